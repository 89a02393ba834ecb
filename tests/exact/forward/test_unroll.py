"""An unrolled automaton does what the automaton does, however far and in whichever steps it is unrolled."""

from __future__ import annotations

from itertools import product
from random import Random

import numpy as np
import pytest
from hypothesis import given

from monitor.errors import LimitError
from monitor.exact.forward.unroll import FIRST_COLUMN, Unrolled
from monitor.logic import FALSE, TRUE, Automaton, PathAutomaton, RewardAutomaton, parse
from monitor.logic import automaton as automaton_module
from monitor.logic.syntax import Goal, Probability
from tests.exact.small import LAW, chances, path_formula

PATHS = (
    'F<=6 "a"',
    '"a" U[2,5] "b"',
    'F<=2 ("a" & F<=3 "b")',
    '(F[1,3] "a") | G<=4 "b"',
    'X X ("a" | X "b")',
    '("a" R<=3 "b") & !F=5 "a"',
)
EVERY = np.array([[0], [1], [2], [3]])  # four labels, the same label set at all offsets
CHANGING = np.array([[0, 1, 3], [1, 3, 3], [2, 0, 1]])  # three readings; the last column holds from offset 2 on


def automaton_of(path: str) -> PathAutomaton:
    goal = parse(f"P=? [ {path} ]")
    assert isinstance(goal, Goal)
    assert isinstance(goal.measure, Probability)
    return PathAutomaton(goal.measure.path)


def transition_at(unrolled: Unrolled, offset: int, column: int, label: int) -> tuple[int, int, int, int]:
    begin, end = unrolled.ranges[column, label]
    (found,) = [tuple(each.tolist()) for each in unrolled.transitions[begin:end] if each[0] <= offset < each[1]]
    return found


def follow(unrolled: Unrolled, automaton: Automaton, label_sets: np.ndarray, labels: tuple[int, ...]) -> None:
    """Read the same labels with the automaton and with its columns."""
    obligation, column = automaton.start, 0
    for offset, label in enumerate(labels):
        assert unrolled.obligations[column][offset] == obligation
        _, _, target, rewarded = transition_at(unrolled, offset, column, label)
        assert bool(rewarded) == automaton.rewards(obligation)
        obligation = automaton.step(obligation, int(label_sets[label, min(offset, label_sets.shape[1] - 1)]))
        if obligation in (FALSE, TRUE):
            assert target == obligation
            return
        column = target - FIRST_COLUMN


@pytest.mark.parametrize("label_sets", [EVERY, CHANGING])
@pytest.mark.parametrize("path", PATHS)
def test_columns_read_as_the_automaton_does(path: str, label_sets: np.ndarray) -> None:
    for steps in ((9,), (1, 2, 3, 9), (4, 9)):
        automaton = automaton_of(path)
        unrolled = Unrolled(automaton, label_sets)
        for offsets in steps:
            unrolled.extend(offsets)
            depth = unrolled.depth
            assert min(offsets, unrolled.horizon) <= depth <= unrolled.horizon
            for labels in product(range(len(label_sets)), repeat=min(depth, 5)):
                follow(unrolled, automaton, label_sets, labels)
        assert unrolled.depth == unrolled.horizon


def test_how_far_it_is_unrolled() -> None:
    unrolled = Unrolled(automaton_of('F<=99 "a"'), EVERY)
    assert (unrolled.depth, unrolled.horizon, len(unrolled.transitions)) == (0, 100, 0)
    assert unrolled.ranges.shape == (1, 4, 2)
    reached = []
    for offsets in (1, 1, 3, 4, 5, 13, 300):
        unrolled.extend(offsets)
        reached.append(unrolled.depth)
    assert reached == [1, 1, 3, 6, 6, 13, 100]  # twice as far at least, so that the arrays are seldom replaced
    before = unrolled.transitions
    unrolled.extend(100)
    assert unrolled.transitions is before


def test_equivalent_obligations_have_one_column() -> None:
    unrolled = Unrolled(automaton_of('G<=99 "a"'), np.array([[0], [1]]))
    unrolled.extend(100)
    assert unrolled.obligations == [{offset: unrolled.obligations[0][offset] for offset in range(100)}]
    assert unrolled.transitions.tolist() == [[0, 100, FALSE, 0], [0, 99, FIRST_COLUMN, 0], [99, 100, TRUE, 0]]
    assert unrolled.ranges.tolist() == [[[0, 1], [1, 3]]]


def test_a_reward_is_collected_in_its_interval() -> None:
    unrolled = Unrolled(RewardAutomaton(1, 3), np.array([[0]]))
    unrolled.extend(4)
    assert unrolled.transitions.tolist() == [[0, 1, FIRST_COLUMN, 0], [1, 3, FIRST_COLUMN, 1], [3, 4, FALSE, 1]]


def test_a_column_that_is_free_again_is_used_again() -> None:
    """`a`, then `b` at two offsets or at none: an obligation at one offset alone does not keep a column for itself."""
    unrolled = Unrolled(automaton_of('(F<=8 ("a" & X "b")) & G<=9 (F<=1 "c")'), np.arange(8)[:, None])
    unrolled.extend(20)
    most = max(sum(offset in column for column in unrolled.obligations) for offset in range(unrolled.depth))
    assert len(unrolled.obligations) == most


def test_an_automaton_that_refuses_a_step_leaves_what_was_unrolled(monkeypatch: pytest.MonkeyPatch) -> None:
    automaton = automaton_of('F<=40 ("a" & X "b")')
    unrolled = Unrolled(automaton, EVERY)
    unrolled.extend(3)
    before = (
        unrolled.depth,
        [dict(column) for column in unrolled.obligations],
        unrolled.transitions.tolist(),
        unrolled.ranges.tolist(),
    )
    monkeypatch.setattr(automaton_module, "MAX_OBLIGATIONS", 20)
    with pytest.raises(LimitError):
        unrolled.extend(40)
    assert (unrolled.depth, unrolled.obligations, unrolled.transitions.tolist(), unrolled.ranges.tolist()) == before
    monkeypatch.undo()
    unrolled.extend(40)
    for labels in product(range(4), repeat=4):
        follow(unrolled, automaton, EVERY, labels)


@LAW
@given(chances)
def test_any_path_is_read_as_the_automaton_does(chance: Random) -> None:
    """Whatever is unrolled when, and whichever label sets the labels stand for at which offset."""
    automaton: Automaton = automaton_of(path_formula(chance, depth=3))
    if automaton.start in (FALSE, TRUE):
        return
    labels = chance.randint(1, 4)
    label_sets = np.array([[chance.randrange(1 << len(automaton.atoms)) for _ in range(3)] for _ in range(labels)])
    unrolled = Unrolled(automaton, label_sets)
    depth = 0
    while depth < unrolled.horizon:
        unrolled.extend(depth + chance.randint(1, 3))
        assert unrolled.depth > depth
        depth = unrolled.depth
        for _ in range(5):
            follow(unrolled, automaton, label_sets, tuple(chance.randrange(labels) for _ in range(depth)))
        for offset in range(depth):
            obligations = [column[offset] for column in unrolled.obligations if offset in column]
            assert len(set(obligations)) == len(obligations)  # what is pending has one place
