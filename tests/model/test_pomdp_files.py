"""Cassandra's `.pomdp` files: what they mean, by the textbook filter; every way to write it; what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import monitor
from monitor.arrays import Floats
from monitor.authoring.formats.pomdp import read_pomdp
from monitor.errors import ModelError
from monitor.model import MDP, canonical_bytes, load_model

DOOR = """\
# A door that may be open or shut; looking says which, pushing shows nothing of it.
discount: 0.95
values: reward
states: open shut
actions: look push
observations: bright dark
start: 0.25 0.75

T: look identity
T: push : open : open 1      # an open door stays so
T: push : shut
0.6 0.4
O: look
0.9 0.1
0.2 0.8
O: push uniform
R: look : * : * : * -1
R: push : shut : open : * 10
R: push : shut : shut : dark -4
"""
NOTHING = 2
"""What is observed before the first action."""


def read(text: str, **more: Any) -> MDP:  # noqa: ANN401
    return read_pomdp(text.encode(), "door.pomdp", **more)


def changed(old: str, new: str) -> str:
    assert old in DOOR
    return DOOR.replace(old, new)


def test_a_state_for_each_way_to_enter_it() -> None:
    model = read(DOOR)
    assert model.signal_names == ("bright", "dark", "nothing yet")
    assert model.state_names == (
        "open at the start",
        "open after look",
        "open after push",
        "shut at the start",
        "shut after look",
        "shut after push",
    )
    assert model.valuations[1] == ("open", "look")
    assert model.action_names == ("look", "push")
    assert {name: states.tolist() for name, states in model.labels.items()} == {
        "open": [True, True, True, False, False, False],
        "shut": [False, False, False, True, True, True],
    }
    assert model.emissions is not None
    assert model.emissions.signals == 3
    assert [model.shown(state) for state in range(6)] == [
        [(NOTHING, 1.0)],
        [(0, 0.9), (1, 0.1)],
        [(0, 0.5), (1, 0.5)],
        [(NOTHING, 1.0)],
        [(0, 0.2), (1, 0.8)],
        [(0, 0.5), (1, 0.5)],
    ]
    assert model.initial is not None
    assert model.initial.tolist() == [0.25, 0, 0, 0.75, 0, 0]
    for shut in (3, 4, 5):
        assert [part.tolist() for part in model.row(shut, 1)] == [[2, 5], [0.6, 0.4]]
        assert model.reward(shut, 0, 4) == -1
        assert model.reward(shut, 1, 2) == 10
        assert model.reward(shut, 1, 5) == -2  # -4 if it then is dark, which has probability 1/2
    assert model.reward_spread is not None
    assert model.reward_spread.max() == 2


def test_states_share_a_copy_where_actions_show_the_same_and_unreachable_ones_are_left_out() -> None:
    text = changed("O: push uniform", "O: push\n0.9 0.1\n0.2 0.8").replace("start: 0.25 0.75", "start: open")
    assert read(text).state_names == ("open at the start", "open after look")
    both = text.replace("T: look identity", "T: look uniform").replace("0.9 0.1", "1 0").replace("0.2 0.8", "1 0")
    assert read(both).state_names == ("open at the start", "open after look", "shut")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("T: look identity", "T: look : * reset\nT: look\n1 0 0\n1"),
        ("T: look identity", "T: * identity"),
        ("T: look identity", "T: look : * : * 0\nT: look : 0 : 0 1.0\nT: 0 : shut : 1 : 1"),
        ("T: push : shut\n0.6 0.4", "T : push : 1 : 0 .6\nT:push:shut:shut 4e-1"),
        ("O: push uniform", "O: push : * uniform"),
        ("O: push uniform", "O: 1 : open uniform O: 1 : 1 : * 0.5"),
        ("O: push uniform", "O: push : *\n0.5\n+0.5"),
        ("0.2 0.8\n", "0.2 0.8\nO: look : shut : bright : 0.2\n"),
        ("values: reward", "values: cost"),
        ("discount: 0.95\n", ""),
        ("start: 0.25 0.75", "start: 0.25 # and\n.75"),
        ("R: push : shut : shut : dark -4", "R: push : shut : shut 0 -4"),
        ("R: push : shut : shut : dark -4", "R: push : shut\n10 10\n0 -4"),
        ("R: look : * : * : * -1", "R: look : * : * : dark -7\nR: look : * : * : * -1"),
        ("R: look : * : * : * -1", "R: * : * : * : * 3\nR: push : * : * : * 0\nR: look : *\n-1 -1 -1 -1"),
    ],
)
def test_other_ways_to_say_the_same(old: str, new: str) -> None:
    assert canonical_bytes(read(changed(old, new))) == canonical_bytes(read(DOOR))


@pytest.mark.parametrize(
    ("start", "chances"),
    [
        ("start: uniform", [1 / 3] * 3),
        ("", [1 / 3] * 3),
        ("start: b", [0, 1, 0]),
        ("start: 2", [0, 0, 1]),
        ("start: 0.5 0 0.5", [0.5, 0, 0.5]),
        ("start include: c 0", [0.5, 0, 0.5]),
        ("start exclude: c", [0.5, 0.5, 0]),
    ],
)
def test_where_an_episode_begins(start: str, chances: list[float]) -> None:
    model = read(f"states: a b c\nactions: 1\nobservations: 1\n{start}\nT: 0 : * reset\nO: * uniform\n")
    assert model.initial is not None
    found = [sum(model.initial[model.labels[name]]) if name in model.labels else 0 for name in "abc"]
    np.testing.assert_allclose(found, chances, rtol=0, atol=1e-15)
    after = model.row(int(np.flatnonzero(model.initial)[0]), 0)[1]
    np.testing.assert_allclose(sorted(after), sorted(p for p in chances if p), rtol=0, atol=1e-15)


def test_without_names_there_are_numbers(tmp_path: Path) -> None:
    """And a file may be called .POMDP, as the published ones are."""
    file = tmp_path / "m.POMDP"
    file.write_text("states: 2\nactions: 2\nobservations: 2\nT: * uniform\nO: 0 uniform\nO: 1 : * 1 0\n")
    model = load_model(file)
    assert model.state_names[:3] == ("0 at the start", "0 after 0", "0 after 1")
    assert (model.action_names, dict(model.labels), model.valuations[5]) == ((), {}, (1.0, "1"))


def text_of(start: Floats, moves: Floats, shows: Floats) -> str:
    """A file with these distributions: `moves` [A, S, S], `shows` [A, S, O]."""
    rows = [f"states: {' '.join(f's{n}' for n in range(len(start)))}\nactions: {len(moves)}"]
    rows += [f"observations: {shows.shape[2]}", f"start: {' '.join(map(repr, start.tolist()))}"]
    for name, table in (("T", moves), ("O", shows)):
        for action, matrix in enumerate(table.tolist()):
            rows += [f"{name}: {action}", *(" ".join(map(repr, row)) for row in matrix)]
    return "\n".join(rows)


@pytest.mark.parametrize("seed", range(12))
def test_belief_and_forecast_are_those_of_the_file(seed: int) -> None:
    """Against the textbook filter and forward recursion, in which what is observed depends on the action."""
    rng = np.random.default_rng(seed)
    states, actions, signals, horizon = 3, 2, 2, 3
    start, moves = rng.dirichlet(np.ones(states)), rng.dirichlet(np.ones(states), (actions, states))
    shows = rng.dirichlet(np.ones(signals), (actions, states))
    policy = rng.dirichlet(np.ones(actions), signals + 1)
    path: list[tuple[int | None, int | None]] = [(None if seed % 2 else signals, int(rng.integers(actions)))]
    belief = start
    for _ in range(3):
        action, seen = path[-1][1], int(rng.integers(signals))
        assert action is not None
        belief = (belief @ moves[action]) * shows[action][:, seen]
        path.append((seen, int(rng.integers(actions))))
    belief = belief / belief.sum()
    path[-1] = (path[-1][0], None)

    def reached(state: int, action: int, steps: int) -> float:
        """P(F<=steps s0) from a state other than s0 in which this action is taken."""
        if steps == 0:
            return 0.0
        later = [
            sum(
                shows[action, after, seen] * policy[seen, following] * reached(after, following, steps - 1)
                for seen in range(signals)
                for following in range(actions)
            )
            for after in range(1, states)
        ]
        return float(moves[action, state] @ [1.0, *later])

    model = read(text_of(start, moves, shows))

    def answer(text: str) -> float:
        verdict = monitor.check(text, model=model, path=path, policies={"nominal": policy})
        assert verdict.value is not None
        return verdict.value

    for state in range(states):
        assert answer(f'P=? [ "s{state}" ]') == pytest.approx(belief[state], abs=1e-12)
    last = path[-1][0]
    expected = belief[0] + sum(
        belief[state] * policy[last, action] * reached(state, action, horizon)
        for state in range(1, states)
        for action in range(actions)
    )
    assert answer(f'P=? [ F<={horizon} "s0" ]') == pytest.approx(expected, abs=1e-12)


BAD: dict[str, tuple[Callable[[], str], str]] = {
    "empty": (lambda: "", "there are no transitions"),
    "no statement": (lambda: changed("T: look", "look"), "line 9: 'look' begins no statement; O, R, T, actions,"),
    "no observations": (
        lambda: changed("observations: bright dark\n", ""),
        "line 6: no observations above this line",
    ),
    "names twice": (lambda: changed("actions: look push", "actions: a a"), "line 5: actions: give their number, or a"),
    "no names": (lambda: changed("actions: look push", "actions:"), "actions: give their number"),
    "states twice": (lambda: "states: 2\nstates: 2\n", "line 2: states are given twice"),
    "no states": (lambda: "states: 0\n", "line 1: there are no states"),
    "values": (lambda: changed("values: reward", "values: joy"), "line 3: 'joy' is not reward or cost"),
    "colon": (lambda: changed("T: look identity", "T look identity"), "line 9: 'look' stands where ':' is expected"),
    "unknown action": (lambda: changed("T: push :", "T: pull :"), "line 10: 'pull' is none of the actions"),
    "unknown number": (lambda: changed("T: push :", "T: 2 :"), "line 10: action 2 is outside 0..1"),
    "not a number": (lambda: changed("0.6 0.4", "0.6 O"), "line 12: 'O' is not a probability"),
    "negative": (lambda: changed("0.6 0.4", "1.6 -0.6"), "line 12: the probability '1.6' is not from 0 to 1"),
    "infinite": (lambda: changed("* -1", "* -1e999"), "line 17: reward '-1e999' is not finite"),
    "too few": (lambda: changed("0.6 0.4", "0.6"), "line 13: 'O' is not a probability"),
    "too many": (lambda: changed("0.6 0.4", "0.6 0.4 0"), "line 12: '0' begins no statement"),
    "sum": (lambda: changed("0.6 0.4", "0.6 0.3"), "the probabilities of T: push : shut sum to 0.9, not 1"),
    "no row": (lambda: changed("T: look identity", ""), "the probabilities of T: look : open sum to 0, not 1"),
    "shown": (lambda: changed("0.9 0.1", "0.9 0.2"), "the probabilities of O: look : open sum to 1.1, not 1"),
    "start sum": (lambda: changed("0.25 0.75", "0.25 0.7"), "the probabilities of start: sum to 0.95, not 1"),
    "start numbers": (lambda: changed("0.25 0.75", "0.25 0.25 0.5"), "line 7: 3 numbers for 2 states"),
    "start of nothing": (lambda: changed("start:", "start exclude: 0 1\nstart:"), "line 7: no state is left"),
    "identity of observations": (lambda: changed("push uniform", "push identity"), "line 16: 'identity' is not a"),
    "reset of a matrix": (lambda: changed("look identity", "look reset"), "line 9: 'reset' is not a probability"),
    "rewards of an MDP": (lambda: changed("R: look : * : * : *", "R: look"), "line 17: '-1' stands where ':'"),
    "cut off": (lambda: DOOR.rstrip().removesuffix("-4"), "line 19: the file ends here, within a statement"),
    "not UTF-8": (lambda: changed("0.6", "\udcff"), "line 12: not UTF-8 text"),
    "label": (lambda: changed("open", "o" * 65), "label 'o+': a name has 1 to 64"),
}


@pytest.mark.parametrize("case", BAD)
def test_malformed_files(case: str) -> None:
    text, says = BAD[case]
    with pytest.raises(ModelError, match=f"^model door.pomdp: .*{says}"):
        read_pomdp(text().encode("utf-8", "surrogateescape"), "door.pomdp")


@pytest.mark.parametrize(
    "text",
    [
        "states: 9999999\nactions: 9999\nobservations: 9999\nT: * uniform\n",
        "states: 9999999\nactions: 9999\nobservations: 9999\nT: * identity\n",
        "states: 9999999\nactions: 9999\nobservations: 9999\nO: * : * : * 0\n",
        "states: 9999999\nactions: 9999\nobservations: 9999\nstart: uniform\n",
        "states: 200\nactions: 200\nobservations: 200\n" + "T: * : * reset\n" * 3,
        "states: 20\nactions: 2\nobservations: 2\nT: * uniform\nO: * uniform\n" * 1,
    ],
)
def test_little_text_that_says_much_is_refused(text: str) -> None:
    with pytest.raises(ModelError, match="bytes of memory, more than the limit"):
        read(text, limit=1 << 18)
