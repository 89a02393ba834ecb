"""A program laid out in strands says what the program says, however far and in whichever steps it is laid out."""

from __future__ import annotations

from itertools import product
from random import Random

import numpy as np
import pytest
from hypothesis import given

from monitor.errors import LimitError
from monitor.exact.forward.unroll import FIRST_STRAND, Unrolled
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
EVERY = np.array([[0], [1], [2], [3]])  # four readings, the same letters at all offsets
CHANGING = np.array([[0, 1, 3], [1, 3, 3], [2, 0, 1]])  # three readings; the last column holds from offset 2 on


def program_of(path: str) -> PathAutomaton:
    goal = parse(f"P=? [ {path} ]")
    assert isinstance(goal, Goal)
    assert isinstance(goal.measure, Probability)
    return PathAutomaton(goal.measure.path)


def span_at(strands: Unrolled, offset: int, strand: int, reading: int) -> tuple[int, int, int, int]:
    begin, end = strands.known[strand, reading]
    (span,) = [tuple(each.tolist()) for each in strands.spans[begin:end] if each[0] <= offset < each[1]]
    return span


def follow(strands: Unrolled, program: Automaton, letters: np.ndarray, readings: tuple[int, ...]) -> None:
    """Read the same letters in the program and in its strands."""
    owed, strand = program.start, 0
    for offset, reading in enumerate(readings):
        assert strands.owed[strand][offset] == owed
        _, _, target, pays = span_at(strands, offset, strand, reading)
        assert bool(pays) == program.rewards(owed)
        owed = program.step(owed, int(letters[reading, min(offset, letters.shape[1] - 1)]))
        if owed in (FALSE, TRUE):
            assert target == owed
            return
        strand = target - FIRST_STRAND


@pytest.mark.parametrize("letters", [EVERY, CHANGING])
@pytest.mark.parametrize("path", PATHS)
def test_strands_read_as_the_program_does(path: str, letters: np.ndarray) -> None:
    for steps in ((9,), (1, 2, 3, 9), (4, 9)):
        program = program_of(path)
        strands = Unrolled(program, letters)
        for offsets in steps:
            strands.extend(offsets)
            reach = strands.reach
            assert min(offsets, strands.horizon) <= reach <= strands.horizon
            for readings in product(range(len(letters)), repeat=min(reach, 5)):
                follow(strands, program, letters, readings)
        assert strands.reach == strands.horizon


def test_how_far_it_is_laid_out() -> None:
    strands = Unrolled(program_of('F<=99 "a"'), EVERY)
    assert (strands.reach, strands.horizon, len(strands.spans)) == (0, 100, 0)
    assert strands.known.shape == (1, 4, 2)
    reached = []
    for offsets in (1, 1, 3, 4, 5, 13, 300):
        strands.extend(offsets)
        reached.append(strands.reach)
    assert reached == [1, 1, 3, 6, 6, 13, 100]  # twice as far at least, so that it is seldom laid out anew
    before = strands.spans
    strands.extend(100)
    assert strands.spans is before


def test_what_plays_the_same_part_is_one_strand_of_one_span_for_each_reading() -> None:
    strands = Unrolled(program_of('G<=99 "a"'), np.array([[0], [1]]))
    strands.extend(100)
    assert strands.owed == [{offset: strands.owed[0][offset] for offset in range(100)}]
    assert strands.spans.tolist() == [[0, 100, FALSE, 0], [0, 99, FIRST_STRAND, 0], [99, 100, TRUE, 0]]
    assert strands.known.tolist() == [[[0, 1], [1, 3]]]


def test_a_reward_pays_in_its_interval() -> None:
    strands = Unrolled(RewardAutomaton(1, 3), np.array([[0]]))
    strands.extend(4)
    assert strands.spans.tolist() == [[0, 1, FIRST_STRAND, 0], [1, 3, FIRST_STRAND, 1], [3, 4, FALSE, 1]]


def test_a_strand_that_is_free_again_is_used_again() -> None:
    """`a`, then `b` at two offsets or at none: what is owed at one offset alone needs no strand of its own for good."""
    strands = Unrolled(program_of('(F<=8 ("a" & X "b")) & G<=9 (F<=1 "c")'), np.arange(8)[:, None])
    strands.extend(20)
    most = max(sum(offset in owed for owed in strands.owed) for offset in range(strands.reach))
    assert len(strands.owed) == most


def test_a_program_that_refuses_a_step_leaves_what_was_laid_out(monkeypatch: pytest.MonkeyPatch) -> None:
    program = program_of('F<=40 ("a" & X "b")')
    strands = Unrolled(program, EVERY)
    strands.extend(3)
    before = strands.reach, [dict(owed) for owed in strands.owed], strands.spans.tolist(), strands.known.tolist()
    monkeypatch.setattr(automaton_module, "MAX_OBLIGATIONS", 20)
    with pytest.raises(LimitError):
        strands.extend(40)
    assert (strands.reach, strands.owed, strands.spans.tolist(), strands.known.tolist()) == before
    monkeypatch.undo()
    strands.extend(40)
    for readings in product(range(4), repeat=4):
        follow(strands, program, EVERY, readings)


@LAW
@given(chances)
def test_any_path_is_read_as_the_automaton_does(chance: Random) -> None:
    """Whatever is laid out when, and whichever label sets the readings stand for at which offset."""
    program: Automaton = program_of(path_formula(chance, depth=3))
    if program.start in (FALSE, TRUE):
        return
    readings = chance.randint(1, 4)
    letters = np.array([[chance.randrange(1 << len(program.atoms)) for _ in range(3)] for _ in range(readings)])
    strands = Unrolled(program, letters)
    reach = 0
    while reach < strands.horizon:
        strands.extend(reach + chance.randint(1, 3))
        assert strands.reach > reach
        reach = strands.reach
        for _ in range(5):
            follow(strands, program, letters, tuple(chance.randrange(readings) for _ in range(reach)))
        for offset in range(reach):
            owed = [column[offset] for column in strands.owed if offset in column]
            assert len(set(owed)) == len(owed)  # what is pending has one place
