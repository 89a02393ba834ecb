"""Models nobody enumerates: a number line of 10**12 states, asked one state at a time, many at once, or by name."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest

from monitor.errors import ConfigError, FormulaError, LimitError, ModelError, PolicyError
from monitor.logic import parse
from monitor.sampled import NumberedSimulator, Sampler, Simulated, number_of
from tests.sampled.worlds import FALSE_ALARM, error_bound, goal
from tests.tiers import heavy

SIZE = 10**12
START = 987_654_321_012
GO, FAST, REST = 0, 1, 2
MOVES = {GO: {0: 0.1, 1: 0.9}, FAST: {1: 0.5, 2: 0.5}, REST: {0: 1.0}}
COUNT = 20_000
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class Line:
    """States 0 .. 10**12 - 1 in a ring; an action moves on by some steps. Counts how often it is asked."""

    actions = 3
    labels = frozenset({"ahead", "even"})

    def __init__(self) -> None:
        self.asked = 0

    def successors(self, state: int, action: int) -> tuple[Sequence[int], Sequence[float]]:
        self.asked += 1
        moves = MOVES[action]
        return [(state + by) % SIZE for by in moves], [*moves.values()]

    def holds(self, label: str, state: int) -> bool:
        return state >= START + 3 if label == "ahead" else state % 2 == 0

    def reward(self, state: int, action: int) -> float:
        return float(state - START) if action != REST else 0.0


class Lines:
    """The same, for many states at once, with rows that do not ascend and are padded."""

    actions = 3
    labels = Line.labels

    def rows(self, states: Ints, actions: Ints) -> tuple[Ints, Floats]:
        by = np.array([[1, 0], [2, 1], [0, 0]])[actions]
        chances = np.array([[0.9, 0.1], [0.5, 0.5], [0.0, 1.0]])[actions]
        return (states[:, np.newaxis] + by) % SIZE, chances

    def holds(self, label: str, states: Ints) -> npt.NDArray[np.bool_]:
        return states >= START + 3 if label == "ahead" else states % 2 == 0

    def rewards(self, states: Ints, actions: Ints) -> Floats:
        return np.where(actions != REST, states - START, 0).astype(np.float64)


class Words:
    """The same again; a state is what someone would write down."""

    actions = 3
    labels = Line.labels

    def successors(self, state: tuple[str, int], action: int) -> tuple[Sequence[tuple[str, int]], Sequence[float]]:
        return [("at", (state[1] + by) % SIZE) for by in MOVES[action]], [*MOVES[action].values()]

    def holds(self, label: str, state: tuple[str, int]) -> bool:
        return Line().holds(label, state[1])

    def reward(self, state: tuple[str, int], action: int) -> float:
        return Line().reward(state[1], action)


def always(action: int) -> object:
    return lambda states: np.full(len(states), action)


def policies() -> dict[str, object]:
    return {
        "nominal": always(GO),
        "fast": always(FAST),
        "mixed": lambda states: np.tile([0.25, 0.5, 0.25], (len(states), 1)),
    }


PATH = [(START, GO), (START + 1, GO), (START + 2, GO)]
# Going took one step where it could have rested. Had the row been FAST: P(1) = 1 / D(9/5) with D(u) = 1 + u / 2 there.
ONE = 1.0 / 1.9
TEXTS = [
    'fast@2.P=? [ F=2 "ahead" ]',
    'delta(fast,nominal)@2.P=? [ F=2 "ahead" ]',
    "mixed@2.R=? [ C<=5 ]",
    'fast[1]@-1.P=? [ F<=4 "ahead" ]',
    "do(2)@1.R=? [ C<=2 ]",
]


@heavy
def test_a_world_of_a_million_million_states_agrees_with_the_computation_by_hand() -> None:
    line = Line()
    drawn = Sampler(Simulated(line, policies()), 4)
    first = drawn.outcomes(goal('fast@2.P=? [ X (F=0 !"even") ]'), PATH, range(COUNT))  # START is even
    assert START % 2 == 0
    assert abs(first.mean() - ONE) <= error_bound(first, 1.0, FALSE_ALARM / 3)
    # Ahead after two: by two at once and then anything (off the path, no row in common), or by one and then by two.
    both = drawn.outcomes(goal('fast@2.P=? [ F=2 "ahead" ]'), PATH, range(COUNT))
    assert abs(both.mean() - (1.0 - ONE**2)) <= error_bound(both, 1.0, FALSE_ALARM / 3)
    # Really there were two steps: none is ahead.
    effect = drawn.outcomes(goal('delta(fast,nominal)@2.P=? [ F=2 "ahead" ]'), PATH, range(COUNT))
    assert np.array_equal(effect, both)
    total = drawn.outcomes(goal("fast@2.R=? [ C[1,1] ]"), PATH, range(COUNT))
    assert abs(total.mean() - (2.0 - ONE)) <= error_bound(total, 2.0, FALSE_ALARM / 3)
    assert line.asked < 30  # each row once, and only where some particle stood


def test_one_state_at_a_time_many_at_once_and_names_are_the_same_world() -> None:
    one, many = Sampler(Simulated(Line(), policies()), 4), Sampler(Simulated(Lines(), policies()), 4)
    for text in TEXTS:
        for seq in (0, 12):
            outcomes = one.outcomes(goal(text), PATH, range(3_000), first_seq=seq)
            assert np.array_equal(many.outcomes(goal(text), PATH, range(3_000), first_seq=seq), outcomes)
            assert outcomes.std() > 0 or text.startswith("do")
    words = NumberedSimulator(Words())
    named = Sampler(Simulated(words, policies()), 4)
    path = [(words.number(("at", state)), action) for state, action in PATH]
    found = named.outcomes(goal(TEXTS[0]), path, range(COUNT))
    assert abs(found.mean() - (1.0 - ONE**2)) <= error_bound(found, 1.0, FALSE_ALARM)
    again = NumberedSimulator(Words())
    for state, _ in reversed(PATH):
        again.number(("at", state))  # met in another order: the same numbers, hence the same noise
    assert np.array_equal(Sampler(Simulated(again, policies()), 4).outcomes(goal(TEXTS[0]), path, range(COUNT)), found)


def test_an_episode_that_has_ended_asks_nothing_of_its_last_state() -> None:
    class Ending(Line):
        def successors(self, state: int, action: int) -> tuple[Sequence[int], Sequence[float]]:
            return ([], []) if state == START + 2 else super().successors(state, action)

    drawn = Sampler(Simulated(Ending(), policies()), 4)
    path = [*PATH[:2], (START + 2, None)]
    assert not drawn.outcomes(goal("nominal@0.R=? [ C<=9 ]"), path, range(9), terminated=True).any()
    with pytest.raises(PolicyError, match=r"has no successors: the action is unavailable there"):
        drawn.outcomes(goal("nominal@0.R=? [ C<=9 ]"), path, range(9))


def test_other_dynamics_keep_labels_and_rewards() -> None:
    class Icy(Line):
        def successors(self, state: int, action: int) -> tuple[Sequence[int], Sequence[float]]:
            return [state, state + action + 1], [0.5, 0.5]

    drawn = Sampler(Simulated(Line(), policies(), models={"icy": Icy()}), 4)
    # Going: p = (.1, .9), q = (.5, .5) for no step and one; D(u) = max(.1, u/2) + max(.9, u/2).
    found = drawn.outcomes(goal('model:icy@1.P=? [ X !"even" ]'), PATH[:2], range(COUNT))
    # P(one) = 1 / D(9/5) = 1 / 1.8
    assert abs(found.mean() - 1.0 / 1.8) <= error_bound(found, 1.0, FALSE_ALARM)


def test_what_is_wrong_is_said() -> None:
    scene = Simulated(Line(), policies(), actions=["go", "fast", "rest"])
    scene.validate(parse('do(rest)[2]@1.P=? [ F<=2 "even" ] '), "text")
    for text, problem in [
        ('slow@1.P=? [ F<=2 "even" ]', "unknown policy 'slow'; there is fast, mixed, nominal"),
        ('model:icy@1.P=? [ F<=2 "even" ]', "unknown model 'icy'; there is none"),
        ('do(stop)@1.P=? [ F<=2 "even" ]', "unknown action 'stop'; there is fast, go, rest"),
        ('do(7)@1.P=? [ F<=2 "even" ]', "unknown action '7'"),
        ('fast@1.P=? [ F<=2 "odd" ]', "unknown label 'odd'; there is ahead, even"),
        ('fast@1.P=? [ F<=2 fast@0.P>0.5 [ X "even" ] ]', "nested in a path, which a simulated model cannot answer"),
    ]:
        with pytest.raises(FormulaError, match="line 1, column") as caught:
            scene.validate(parse(text), text)
        assert problem in str(caught.value)
    with pytest.raises(FormulaError, match="nested in a path"):
        Sampler(scene, 0).outcomes(goal('fast@1.P=? [ F<=2 fast@0.P>0.5 [ X "even" ] ]'), PATH, range(3))
    with pytest.raises(ConfigError, match="no policy is called 'nominal'"):
        Simulated(Line(), {})
    with pytest.raises(TypeError, match="a policy is a table, a network or a function of states, not int"):
        Simulated(Line(), {"nominal": 3})


@pytest.mark.parametrize(
    ("states", "chances", "problem"),
    [
        ([1, 2], [0.5, 0.6], "do not sum to 1"),
        ([1, 2], [0.5, float("nan")], "do not sum to 1"),
        ([1, 2], [-0.5, 1.5], "negative probability"),
        ([1, 1], [0.5, 0.5], "lists a state twice"),
        ([1, 7, 1], [0.5, 0.0, 0.5], "lists a state twice"),
        ([1, 2], [1.0], "2 successors but 1 probabilities"),
    ],
)
def test_a_row_that_is_none_is_refused_by_name(states: list[int], chances: list[float], problem: str) -> None:
    class Broken(Line):
        def successors(self, state: int, action: int) -> tuple[Sequence[int], Sequence[float]]:
            del state, action
            return states, chances

    class Wrong(Lines):
        def rows(self, states: Ints, actions: Ints) -> tuple[Ints, Floats]:
            del actions
            return np.ones((len(states), 2), dtype=np.int64), np.full((len(states) + 1, 2), 0.5)

    with pytest.raises(ModelError, match=f"the row of .state 5, action 0.: .*{problem}"):
        Sampler(Simulated(Broken(), policies()), 0).outcomes(goal('nominal@0.P=? [ X "even" ]'), [(5, 0)], range(3))
    with pytest.raises(ModelError, match="for 3 pairs"):
        Sampler(Simulated(Wrong(), policies()), 0).outcomes(goal('nominal@0.P=? [ X "even" ]'), [(5, 0)], range(3))


def test_too_many_named_states_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("monitor.sampled.simulator.MAX_NUMBERED", 2)
    numbered = NumberedSimulator(Words())
    state = numbered.number(("at", 0))
    assert numbered.reward(state, GO) == -START
    assert numbered.holds("even", state)
    with pytest.raises(LimitError, match="more than 2 different states were met"):
        numbered.successors(state, FAST)


def test_states_that_cannot_be_told_apart_are_refused() -> None:
    class Same:
        def __repr__(self) -> str:
            return "same"

    numbered = NumberedSimulator(Words())
    assert numbered.number(("at", 3)) == number_of(("at", 3)) >= 0
    numbered.number(Same())  # type: ignore[arg-type] # as a user might
    with pytest.raises(ModelError, match="have the same number"):
        numbered.number(Same())  # type: ignore[arg-type] # likewise
