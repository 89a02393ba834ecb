"""The rows that recordings allow: the confidence set, what is expected, and the entry for what was never recorded."""

from __future__ import annotations

import numpy as np
import pytest

from monitor.model import MDP
from monitor.model.allowed_rows import AllowedRows, allowed_rows
from monitor.model.confidence import confidence_rows
from monitor.model.counts import Counts
from monitor.statistics.interval_odds import GIVEN, NO_DATA
from tests.exact.learned import learned_model

HERE, THERE, ELSEWHERE = range(3)
DRAWS = [(HERE, 0, HERE)] * 6 + [(HERE, 0, THERE)] * 3 + [(THERE, 1, THERE)]


def learned() -> tuple[MDP, Counts]:
    model = learned_model(3, 2, DRAWS, {})[0]
    assert model.counts is not None
    return model, model.counts


def row(allowed: AllowedRows, number: int) -> list[tuple[int, float, float, float]]:
    """Successor, expected, lower, upper of each entry."""
    entries = slice(allowed.starts[number], allowed.starts[number + 1])
    columns = allowed.successors, allowed.expected, allowed.bounds.lower, allowed.bounds.upper
    return list(zip(*(list(column[entries]) for column in columns), strict=True))


def test_a_learned_row_has_the_bounds_of_the_confidence_set_with_room_for_wrong_readings() -> None:
    model, counts = learned()
    allowed, plain = allowed_rows(model, counts, 0.01, 0.001), confidence_rows(model, 0.01)
    found = row(allowed, 0)
    assert [entry[0] for entry in found] == [HERE, THERE, ELSEWHERE]
    np.testing.assert_allclose([entry[2] for entry in found], plain.lower[:3] * 0.999)
    np.testing.assert_allclose(
        [entry[3] for entry in found], np.minimum(plain.upper[:3] + np.array([0, 0, 0.001]), 1.0)
    )
    assert plain.lower[0] > 0.0
    assert plain.upper[2] < 0.999
    assert allowed.bounds.unrecorded[0] == 2


def test_what_is_expected_has_a_draw_more_which_leads_to_something_new() -> None:
    model, counts = learned()
    found = row(allowed_rows(model, counts, 0.01, 0.001), 0)
    mean = np.array([6.5, 3.5]) / 10  # nine draws and one pseudo-count, spread over two successors
    np.testing.assert_allclose([entry[1] for entry in found], [*(mean * 0.9), 0.1])


def test_every_row_that_was_drawn_expects_a_distribution() -> None:
    model, counts = learned()
    allowed = allowed_rows(model, counts, 0.01, 0.001)
    for number in range(6):
        assert sum(entry[1] for entry in row(allowed, number)) == pytest.approx(1.0)


def test_a_row_without_data_and_those_of_elsewhere_are_not_tested() -> None:
    model, counts = learned()
    new = list(allowed_rows(model, counts, 0.01, 0.001).bounds.unrecorded)
    assert new[1:3] == [NO_DATA, NO_DATA]
    assert new[4:] == [NO_DATA, NO_DATA]
    assert new[3] >= 0


def test_a_given_row_is_known_exactly() -> None:
    model = MDP.from_rows(
        states=3, actions=1, indptr=np.array([0, 2, 4, 5]), successors=np.array([0, 1, 0, 1, 2]),
        probabilities=np.array([0.7, 0.3, 0.5, 0.5, 1.0]),
        counts=Counts(np.array([0, 0, 1, 1, 0]), np.array([0, 0, 1, 0, 0]), np.array([0, 1, 0]), 2),
    )  # fmt: skip
    assert model.counts is not None
    allowed = allowed_rows(model, model.counts, 0.01, 0.001)
    assert row(allowed, 0) == [(0, 0.7, 0.7, 0.7), (1, 0.3, 0.3, 0.3)]
    assert list(allowed.bounds.unrecorded) == [GIVEN, 4, NO_DATA]


def test_a_successor_that_was_recorded_as_elsewhere_keeps_an_entry_of_its_own() -> None:
    model = MDP.from_rows(
        states=2, actions=1, indptr=np.array([0, 2, 3]), successors=np.array([0, 1, 1]),
        probabilities=np.array([0.5, 0.5, 1.0]),
        counts=Counts(np.array([2, 2, 0]), np.array([3, 2, 0]), np.array([1, 0]), 1),
    )  # fmt: skip
    assert model.counts is not None
    allowed = allowed_rows(model, model.counts, 0.01, 0.001)
    assert [(entry[0], round(entry[1], 6)) for entry in row(allowed, 0)] == [(0, 0.4), (1, 0.2), (1, 0.4)]
    assert allowed.bounds.unrecorded[0] == 1
