"""Guaranteed bounds against the oracle of learned models: linear programs over couplings, one obligation at a time."""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np
import pytest

from monitor.errors import LimitError
from monitor.exact import Checker, tables
from monitor.exact import guaranteed_values as guaranteed_module
from monitor.exact.path_values import PathValues
from monitor.logic import parse
from monitor.logic.syntax import Goal
from monitor.model import MDP
from tests.model.test_counts import DRAWS, learned
from tests.oracle.guaranteed import guaranteed as by_programs
from tests.oracle.learned import Case, random_case
from tests.tiers import first

TOLERANCE = 1e-7  # of linear programs, one after another
SEEDS = int(os.environ.get("CFMON_GUARANTEED_SEEDS", "60"))
FIRST = int(os.environ.get("CFMON_GUARANTEED_FIRST", "5000"))


def values_of(checker: Checker, text: str, path: list[tuple[int, int | None]]) -> tuple[PathValues, Goal, int]:
    goal = parse(text)
    assert isinstance(goal, Goal)
    values = PathValues(checker.evaluators, goal, len(path))
    values.advance(path, len(path), None)
    offset = goal.world.offset
    last = len(path) - 1
    position = max(last - offset, 0) if offset >= 0 else min(-offset - 1, last)
    return values, goal, position


def bounds_of(case: Case, text: str, delta: float = 0.05) -> tuple[float, float] | None:
    checker = Checker(case.model, tables(case.policies, case.model), delta=delta)
    values, goal, position = values_of(checker, text, case.path)
    one = values.guaranteed(goal.world.change, goal.measure, position)
    if goal.world.baseline is None or one is None:
        return one
    other = values.guaranteed(goal.world.baseline, goal.measure, position)
    assert other is not None
    return one[0] - other[1], one[1] - other[0]


@pytest.mark.parametrize("seed", first(15, range(FIRST, FIRST + SEEDS)))
def test_bounds_are_those_of_linear_programs(seed: int) -> None:
    case, delta = random_case(seed), (0.05, 0.5, 0.001)[seed % 3]
    for text in case.texts:
        found = bounds_of(case, text, delta)
        expected = by_programs(case.model, case.policies, case.path, text, delta)
        assert found is not None, text
        assert found == pytest.approx(expected, abs=TOLERANCE), text


def sure(model: MDP, text: str, path: list[tuple[int, int | None]], **policies: object) -> tuple[float, float] | None:
    checker = Checker(model, tables({"nominal": [0] * model.states, **policies}, model))
    values, goal, position = values_of(checker, text, path)
    return values.guaranteed(goal.world.change, goal.measure, position)


LEARNED = replace(learned(DRAWS * 20), labels={"x": np.array([False, True, False, False])})


def test_a_model_that_was_not_learned_has_none() -> None:
    assert sure(replace(LEARNED, counts=None), 'P=? [ F<=3 "x" ]', [(0, 0)]) is None


@pytest.mark.parametrize("text", ['P=? [ F<=3 P>=0.5 [ X "x" ] ]', 'P=? [ F<=3 @1.P>=0.5 [ X "x" ] ]'])
def test_nested_quantities_have_none(text: str) -> None:
    assert sure(LEARNED, text, [(0, 0), (1, 0)]) is None


def test_rewards_that_vary_have_none_and_others_have() -> None:
    varied = replace(LEARNED, reward_spread=np.full(len(LEARNED.successors), 0.1))
    assert sure(varied, "R=? [ C<=3 ]", [(0, 0)]) is None
    assert sure(varied, 'P=? [ F<=3 "x" ]', [(0, 0)]) is not None
    assert sure(LEARNED, "R=? [ C<=3 ]", [(0, 0)]) == (0.0, 0.0)


def test_after_an_end_in_a_state_that_goes_on_there_is_none() -> None:
    checker = Checker(LEARNED, tables({"nominal": [0] * 4}, LEARNED))
    goal = parse('P=? [ F<=3 "x" ]')
    assert isinstance(goal, Goal)
    values = PathValues(checker.evaluators, goal, 2)
    values.advance([(0, 0), (2, None)], 2, 2)
    assert values.guaranteed(goal.world.change, goal.measure, 1) is None


def test_a_constant_is_certain() -> None:
    assert sure(LEARNED, "P=? [ true ]", [(0, 0)]) == (1.0, 1.0)


def test_a_path_beyond_the_horizon_counts_up_to_it() -> None:
    path: list[tuple[int, int | None]] = [(0, 0)] * 4
    assert sure(LEARNED, 'f@3.P=? [ X "x" ]', path, f=[0] * 4) == (0.0, 0.0)


def test_a_state_of_which_nothing_is_known_decides_only_what_every_labelling_decides() -> None:
    path: list[tuple[int, int | None]] = [(0, 1)]
    assert sure(LEARNED, 'P=? [ X ("x" | !"x") ]', path) == (1.0, 1.0)
    assert sure(LEARNED, 'P=? [ X ("x" & X !"x") ]', path) == (0.0, 1.0)
    many = {f"l{n}": np.array([n % 2 == 0] * 4) for n in range(9)}
    text = " & ".join(f'("l{n}" | !"l{n}")' for n in range(9))
    assert sure(replace(LEARNED, labels=many), f"P=? [ X ({text}) ]", path) == (0.0, 1.0)


def test_too_many_numbers_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guaranteed_module, "MAX_GUARANTEED_NUMBERS", 10)
    with pytest.raises(LimitError, match="shorten the formula's intervals, or use fewer states"):
        sure(LEARNED, 'P=? [ F<=3 "x" ]', [(0, 0)])


def test_more_data_narrow_the_bounds_towards_those_of_the_row() -> None:
    text = 'f@1.P=? [ F<=4 "x" ]'
    path: list[tuple[int, int | None]] = [(0, 0), (1, 1)]
    widths = []
    for times in (5, 50, 500, 5000):
        found = sure(replace(learned(DRAWS * times), labels=LEARNED.labels), text, path, f=[0] * 4)
        assert found is not None
        widths.append(found[1] - found[0])
    assert widths == sorted(widths, reverse=True)
    assert widths[-1] < 0.1
