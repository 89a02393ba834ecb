"""Calibration of forecasts: counts binned by forecast, the Brier score, intervals of the observed frequencies.

A forecaster is *calibrated* if, among all events with forecast probability v, a fraction v happens. The reliability
diagram shows this fraction over v. The Brier score is the mean squared error of the forecasts. Sources: G. Brier,
"Verification of forecasts expressed in terms of probability" (1950); A. Murphy, "A new vector partition of the
probability score" (1973).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

import msgspec

from monitor.statistics.intervals import clopper_pearson
from monitor.types.notices import Calibration

BINS: Final = 10
"""Number of bins of equal width; the last one includes 1."""


def bin_of(forecast: float) -> int:
    """Return the number of the bin of a forecast in [0, 1]."""
    return min(int(forecast * BINS), BINS - 1)


class ReliabilityBin(msgspec.Struct, frozen=True):
    """One nonempty bin of a reliability diagram.

    `low`, `high`: the ends of the bin. `forecast`: mean of the forecasts in the bin. `frequency`: fraction of these
    forecasts that came true, with its Clopper-Pearson `interval`. `count`: number of forecasts.
    """

    low: float
    high: float
    forecast: float
    frequency: float
    interval: tuple[float, float]
    count: int

    @property
    def agrees(self) -> bool:
        """True if the interval contains the mean forecast."""
        return self.interval[0] <= self.forecast <= self.interval[1]


class CalibrationCounts:
    """Counts of forecasts and of their outcomes, in bins of the forecast.

    `resolved`: number of forecasts with a known outcome. `dropped`: number of forecasts whose outcome stays unknown.

    >>> counts = CalibrationCounts()
    >>> for came_true in (True, True, False):
    ...     counts.add(0.75, came_true=came_true)
    >>> counts.resolved, round(counts.brier, 4), counts.expected_brier
    (3, 0.2292, 0.1875)
    """

    __slots__ = ("_counts", "_expected", "_hits", "_squared", "_sums", "dropped", "resolved")

    def __init__(self, counted: Calibration | None = None) -> None:
        self._counts = [0] * BINS
        self._sums = [0.0] * BINS
        self._hits = [0] * BINS
        self._squared = self._expected = 0.0
        self.resolved = self.dropped = 0
        if counted is not None:
            self.merge(counted)

    @property
    def brier(self) -> float:
        """Brier score: mean squared error of the forecasts, in [0, 1]; 0 is perfect, NaN if no outcome is known."""
        return self._squared / self.resolved if self.resolved else math.nan

    @property
    def expected_brier(self) -> float:
        """Expected Brier score if the forecasts are calibrated: the mean of v (1 - v); NaN if no outcome is known.

        A Brier score far above or below this value shows that the forecasts are not calibrated. A score near this value
        proves nothing: forecasts of 1/2 always have the score 1/4, which is also the expected score.
        """
        return self._expected / self.resolved if self.resolved else math.nan

    def add(self, forecast: float, *, came_true: bool) -> None:
        """Count a forecast in [0, 1] whose outcome is known."""
        place = bin_of(forecast)
        self._counts[place] += 1
        self._sums[place] += forecast
        self._hits[place] += came_true
        self._squared += (forecast - came_true) ** 2
        self._expected += forecast * (1.0 - forecast)
        self.resolved += 1

    def drop(self) -> None:
        """Count a forecast whose outcome will never be known."""
        self.dropped += 1

    def merge(self, other: Calibration) -> None:
        """Add the counts of another instance."""
        for place, (count, total, hits) in enumerate(other.bins):
            self._counts[place] += count
            self._sums[place] += total
            self._hits[place] += hits
            self.resolved += count
        self._squared += other.squared
        self._expected += other.expected
        self.dropped += other.dropped

    def reliability(self, alpha: float = 0.05) -> list[ReliabilityBin]:
        """Return the points of the reliability diagram, lowest forecasts first; empty bins are left out.

        Each single interval has level 1 - `alpha`, for one look. The forecasts of a bin differ slightly, so the number
        of forecasts that come true is a sum of unequal Bernoulli variables. The variance of this sum is smaller than
        that of the binomial distribution that the interval assumes, so the interval is slightly too wide.
        """
        return [
            ReliabilityBin(
                n / BINS, (n + 1) / BINS, total / count, hits / count, clopper_pearson(hits, count, alpha), count
            )
            for n, (count, total, hits) in enumerate(self._bins())
            if count
        ]

    def dump(self) -> Calibration:
        """Return the counts as plain data for the constructor."""
        bins = tuple(self._bins()) if self.resolved else ()
        return Calibration(bins, self._squared, self._expected, self.dropped)

    def _bins(self) -> Iterator[tuple[int, float, int]]:
        return zip(self._counts, self._sums, self._hits, strict=True)
