"""Guaranteed bounds against the oracle of learned models: linear programs over couplings, one obligation at a time."""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np
import pytest

from monitor.errors import LimitError
from monitor.exact import Checker, guaranteed, tables
from monitor.exact.path_values import PathValues
from monitor.logic import parse
from monitor.logic.syntax import Goal
from monitor.model import MDP
from tests.model.test_counts import DRAWS, learned
from tests.oracle.guaranteed import guaranteed as by_programs
from tests.oracle.learned import Case, random_case

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


def bounds_of(case: Case, text: str) -> tuple[float, float] | None:
    checker = Checker(case.model, tables(case.policies, case.model))
    values, goal, position = values_of(checker, text, case.path)
    one = values.guaranteed(goal.world.change, goal.measure, position)
    if goal.world.baseline is None or one is None:
        return one
    other = values.guaranteed(goal.world.baseline, goal.measure, position)
    assert other is not None
    return one[0] - other[1], one[1] - other[0]


@pytest.mark.parametrize("seed", range(FIRST, FIRST + SEEDS))
def test_bounds_are_those_of_linear_programs(seed: int) -> None:
    case = random_case(seed)
    for text in case.texts:
        found = bounds_of(case, text)
        expected = by_programs(case.model, case.policies, case.path, text, guaranteed.DELTA)
        assert found is not None, text
        assert found == pytest.approx(expected, abs=TOLERANCE), text
