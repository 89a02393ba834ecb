"""The confidence set of a learned model's rows, against its slow definition."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from monitor.model import MDP
from monitor.model.confidence import IntervalRows, confidence_rows
from tests.model.test_counts import DRAWS, ELSEWHERE, learned
from tests.oracle.confidence import row_box
from tests.oracle.learned import random_case

DELTA = 0.05


def row_of(bounds: IntervalRows, row: int) -> dict[int, tuple[float, float]]:
    entries = range(int(bounds.indptr[row]), int(bounds.indptr[row + 1]))
    return {int(bounds.successors[e]): (float(bounds.lower[e]), float(bounds.upper[e])) for e in entries}


@pytest.mark.parametrize("seed", range(30))
def test_each_row_has_the_box_of_its_definition(seed: int) -> None:
    model = random_case(seed).model
    counts = model.counts
    assert counts is not None
    bounds = confidence_rows(model, DELTA)
    for row in range(model.states * model.actions):
        entries = range(int(model.indptr[row]), int(model.indptr[row + 1]))
        expected = {int(model.successors[e]): (float(model.probabilities[e]),) * 2 for e in entries}
        if counts.order[row]:
            seen = {int(model.successors[e]): (int(counts.visits[e]), int(counts.since[e])) for e in entries}
            expected = row_box(seen, int(counts.order[row]), counts.elsewhere, DELTA)
        found = row_of(bounds, row)
        assert sorted(found) == list(found) == sorted(expected)
        for successor, limits in expected.items():
            assert found[successor] == pytest.approx(limits, abs=1e-9)


def test_rows_that_are_given_are_their_own_bounds() -> None:
    model = replace(learned(DRAWS), counts=None)
    bounds = confidence_rows(model, DELTA)
    assert np.array_equal(bounds.lower, model.probabilities)
    assert np.array_equal(bounds.upper, model.probabilities)


def test_rewards_of_transitions_go_with_their_entries() -> None:
    model = learned(DRAWS)
    earned = np.arange(len(model.successors), dtype=np.float64)
    bounds = confidence_rows(replace(model, transition_rewards=earned), DELTA)
    assert bounds.extra[: len(row_of(bounds, 0))].tolist() == [0.0, 1.0, 2.0, 0.0]
    assert len(bounds.extra) == len(bounds.successors)


def test_draws_that_drifted_refute_every_row_and_then_all_are_allowed() -> None:
    drifted = learned([(0, 0, 0)] * 500 + [(0, 0, 1)] * 500)
    assert row_of(confidence_rows(drifted, DELTA), 0) == dict.fromkeys((0, 1, ELSEWHERE), (0.0, 1.0))


def test_a_model_without_any_draw_has_only_given_rows() -> None:
    model = learned(DRAWS)
    for state in range(3):
        model = model.with_absorbing(state)
    bounds = confidence_rows(model, DELTA)
    assert np.array_equal(bounds.lower, bounds.upper)


def test_unavailable_actions_stay_so() -> None:
    model = learned(DRAWS)
    counts = model.counts
    assert counts is not None
    kept = np.delete(np.arange(len(model.successors)), -1)  # the last row becomes empty
    indptr = model.indptr.copy()
    indptr[-1] -= 1
    cut = MDP.from_rows(
        states=4,
        actions=2,
        indptr=indptr,
        successors=model.successors[kept],
        probabilities=model.probabilities[kept],
        counts=replace(counts, visits=counts.visits[kept], since=counts.since[kept]),
    )
    assert row_of(confidence_rows(cut, DELTA), 7) == {}
