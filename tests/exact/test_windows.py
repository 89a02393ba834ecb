"""A whole recording in one call: the same bits as pair by pair, whatever repeats in it."""

from __future__ import annotations

import numpy as np
import pytest

from monitor.exact import Checker, tables
from monitor.exact import windows as windows_module
from monitor.exact.evaluators import pair_arrays
from monitor.exact.forward import buffers as buffers_module
from monitor.exact.forward import evaluator as evaluator_module
from monitor.exact.forward import row_table
from monitor.exact.forward.codes import ANSWER, BEGIN, OBSERVE, SKIP
from monitor.exact.windows import Windows
from monitor.logic import parse
from monitor.logic.syntax import Goal
from monitor.model import MDP
from monitor.types.stream_events import PathPairs

STATES = 30
MODEL = MDP.from_transitions(
    states=STATES,
    actions=2,
    transitions=[
        (s, a, (s + k) % STATES, p)
        for s in range(STATES)
        for a in range(2)
        for k, p in ((0, 0.25), (1, 0.5), (7, 0.25))
    ],
    rewards=[(s, a, float(s % 5 + a)) for s in range(STATES) for a in range(2)],
    labels={"bad": [0, 7, 11]},
)
POLICIES = {
    "nominal": np.full((STATES, 2), 0.5),
    "alt": [1] * STATES,
    "mix": [[0.25, 0.75]] * STATES,
}
GOALS = ('alt@{t}.P=? [ G<=9 !"bad" ]', "mix[2]@{t}.R=? [ C<=6 ]", 'nominal@{t}.P=? [ F<=4 ("bad" & X !"bad") ]')


def goal_at(text: str, offset: int) -> Goal:
    goal = parse(text.format(t=offset))
    assert isinstance(goal, Goal)
    return goal


def walk(random: np.random.Generator, length: int) -> list[tuple[int, int | None]]:
    state = 0
    path: list[tuple[int, int | None]] = []
    for _ in range(length):
        action = int(random.integers(2))
        path.append((state, action))
        state = int(random.choice(MODEL.row(state, action)[0]))
    return path


def recording(kind: str, random: np.random.Generator) -> PathPairs:
    """Return what repeats, repeats here and there, never repeats, or is short; the last action may be open."""
    if kind == "periodic":
        return [(0, 0), (1, 0), (2, 1), (9, 0), (16, 1), (23, 0)] * 12
    if kind == "now and then":
        laps = [[(s, 0) for s in range(STATES)] for _ in range(6)]
        for lap in laps:
            at = int(random.integers(STATES))
            lap[at] = at, 1
        return [pair for lap in laps for pair in lap]
    path = walk(random, 150 if kind == "random" else int(random.integers(1, 7)))
    return [*path[:-1], (path[-1][0], None)] if random.random() < 0.5 else path


def one_by_one(goal: Goal, pairs: PathPairs) -> np.ndarray:
    stepper = Checker(MODEL, tables(POLICIES, MODEL)).stepper(goal)
    return np.array([stepper.push(state, -1 if action is None else action).copy() for state, action in pairs])


@pytest.mark.parametrize("space", ["enough", "little", "no tables"])
@pytest.mark.parametrize("text", GOALS)
@pytest.mark.parametrize("kind", ["periodic", "now and then", "random", "short"])
def test_every_value_has_the_bits_of_that_pair_by_pair(
    kind: str, text: str, space: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng(7)
    if space == "little":
        monkeypatch.setattr(buffers_module, "INITIAL_NODES", 2)
        monkeypatch.setattr(buffers_module, "INITIAL_FORWARD", (1, 2))
        monkeypatch.setattr(row_table, "INITIAL_SIZES", (2, 2, 2, 4))
    if space == "no tables":
        monkeypatch.setattr(evaluator_module, "SMALL", 0)
    for offset in (0, 1, 4, 13):
        pairs, goal = recording(kind, random), goal_at(text, offset)
        found = Checker(MODEL, tables(POLICIES, MODEL)).along(goal, pairs)
        np.testing.assert_array_equal(found, one_by_one(goal, pairs))


def test_a_recording_begins_anew_whatever_was_pushed_before() -> None:
    stepper, pairs = Checker(MODEL, tables(POLICIES, MODEL)).stepper(goal_at(GOALS[0], 3)), [(0, 0), (1, 0), (2, 1)]
    stepper.push(5, 1)
    first = stepper.along(pairs)
    np.testing.assert_array_equal(first, one_by_one(goal_at(GOALS[0], 3), pairs))
    np.testing.assert_array_equal(stepper.push(0, 0), first[0])  # and what follows does too
    assert stepper.along([]).shape == (0, 4)


def test_only_what_is_needed_is_evaluated() -> None:
    states = np.array([0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 5, 0, 1, 2, 0, 1, 2, 0, 1])
    plan = Windows((states, np.zeros_like(states)), 3).plan
    answered, repeated = [ANSWER | BEGIN, *[ANSWER] * 4], [SKIP] * 4
    assert plan.tolist() == [*answered, *repeated, OBSERVE | BEGIN, OBSERVE, *[ANSWER] * 3, *[SKIP] * 6]


def test_where_windows_hardly_repeat_pairs_are_taken_as_they_come() -> None:
    pairs = pair_arrays(walk(np.random.default_rng(0), 400))
    assert len(Windows(pairs, 6).plan) == 0
    assert len(Windows(pairs, 1).plan) == 400  # of single pairs there are sixty
    assert len(Windows(pairs, 500).plan) == 0


@pytest.mark.parametrize("most", [1 << 62, 1 << 12])
@pytest.mark.parametrize("width", [1, 5, 12, 40])
def test_windows_are_the_same_only_if_all_their_pairs_are(
    width: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also those of so many pairs that a number for each would not fit, and with an action that is not yet taken."""
    monkeypatch.setattr(windows_module, "MOST_CODES", most)
    random = np.random.default_rng(width)
    lap = walk(random, 60)
    states, actions = pair_arrays([*lap * 3, *walk(random, 30), (3, 1), (4, -1)])
    codes = windows_module._codes((states, actions), width).tolist()  # noqa: SLF001 - a plan shows only some of them
    seen = [tuple(zip(states[n : n + width], actions[n : n + width], strict=True)) for n in range(len(codes))]
    assert len(set(zip(codes, seen, strict=True))) == len(set(codes)) == len(set(seen)) < len(seen)
