"""Counts, scores and intervals of forecasts, against sums over the list of them."""

from __future__ import annotations

import math
from itertools import pairwise

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from monitor.statistics.calibration import BINS, CalibrationCounts
from monitor.types import Calibration

Pairs = list[tuple[float, bool]]
PAIRS = st.lists(st.tuples(st.floats(0.0, 1.0), st.booleans()), max_size=60)


def counted(pairs: Pairs, dropped: int = 0) -> CalibrationCounts:
    counts = CalibrationCounts()
    for forecast, came_true in pairs:
        counts.add(forecast, came_true=came_true)
    for _ in range(dropped):
        counts.drop()
    return counts


@given(PAIRS)
def test_scores_and_points_are_those_of_the_list(pairs: Pairs) -> None:
    counts = counted(pairs)
    assert counts.resolved == len(pairs)
    if not pairs:
        assert math.isnan(counts.brier)
        assert math.isnan(counts.expected_brier)
        assert counts.reliability() == []
        return
    forecasts, outcomes = (np.array(column, dtype=float) for column in zip(*pairs, strict=True))
    assert counts.brier == pytest.approx(np.mean((forecasts - outcomes) ** 2), abs=1e-12)
    assert counts.expected_brier == pytest.approx(np.mean(forecasts * (1 - forecasts)), abs=1e-12)
    edges = [n / BINS for n in range(BINS + 1)]
    points = counts.reliability()
    for low, high in pairwise(edges):
        within = [pair for pair in pairs if int(low * BINS + 0.5) == min(int(pair[0] * BINS), BINS - 1)]
        found = [point for point in points if point.low == low]
        assert len(found) == bool(within)
        for point in found:
            hits = sum(came_true for _, came_true in within)
            assert (point.high, point.count, point.frequency) == (high, len(within), hits / len(within))
            assert point.forecast == pytest.approx(np.mean([forecast for forecast, _ in within]), abs=1e-12)
            assert low - 1e-9 <= point.forecast <= high + 1e-9
            exact = binomtest(hits, len(within)).proportion_ci(0.95, "exact")
            assert point.interval == pytest.approx((exact.low, exact.high), abs=1e-9)
            assert point.agrees == (point.interval[0] <= point.forecast <= point.interval[1])


@given(PAIRS, PAIRS, st.integers(0, 3))
def test_tallies_of_parts_make_that_of_the_whole(one: Pairs, two: Pairs, dropped: int) -> None:
    merged = counted(one, dropped)
    merged.merge(counted(two, 1).dump())
    whole = counted(one + two, dropped + 1)
    assert [bins[::2] for bins in merged.dump().bins] == [bins[::2] for bins in whole.dump().bins]
    assert (merged.resolved, merged.dropped) == (whole.resolved, whole.dropped)
    assert merged.brier == pytest.approx(whole.brier, abs=1e-12, nan_ok=True)


@given(PAIRS, st.integers(0, 3))
def test_what_is_kept_is_what_there_was(pairs: Pairs, dropped: int) -> None:
    before = counted(pairs, dropped).dump()
    kept = msgspec.msgpack.decode(msgspec.msgpack.encode(before), type=Calibration)
    assert CalibrationCounts(kept).dump() == before


@pytest.mark.parametrize(("forecast", "place"), [(0.0, 0), (0.0999, 0), (0.1, 1), (0.95, 9), (1.0, 9)])
def test_where_a_forecast_is_counted(forecast: float, place: int) -> None:
    [point] = counted([(forecast, True)]).reliability()
    assert point.low == place / BINS


def test_the_wrong_forecaster_scores_worse() -> None:
    """A proper score: whatever is true, nobody who says something else does better on average."""
    outcomes = [(n % 10) < 7 for n in range(100)]
    scores = {said: counted([(said, outcome) for outcome in outcomes]).brier for said in (0.5, 0.6, 0.7, 0.8, 1.0)}
    assert min(scores, key=lambda said: scores[said]) == 0.7
    honest = counted([(0.7, outcome) for outcome in outcomes])
    assert honest.brier == pytest.approx(honest.expected_brier)
