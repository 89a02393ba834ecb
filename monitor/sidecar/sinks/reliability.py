"""How often the forecasts of a formula came true, for the API and an agent's page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from monitor.logic import print_formula
from monitor.runtime.query import Query
from monitor.statistics.calibration import CalibrationCounts
from monitor.types.notices import Calibrated, Calibration, Forecast

WORDS: Final[Mapping[bool | None, str]] = {True: "true", False: "false", None: "dropped"}
"""Outcome of a forecast (None: dropped) -> label value of `cfmon_forecasts_total`."""


def counted(counts: CalibrationCounts | None, notice: Forecast | Calibrated) -> CalibrationCounts:
    """Return the counts after a notice. `counts`: the counts before the notice; None if there were none."""
    if isinstance(notice, Calibrated):
        return CalibrationCounts(notice.calibration)
    counts = CalibrationCounts() if counts is None else counts
    if notice.came_true is None:
        counts.drop()
    else:
        counts.add(notice.value, came_true=notice.came_true)
    return counts


class Reliability(msgspec.Struct, frozen=True):
    """Outcomes of the forecasts of a formula for one agent."""

    query: Query
    calibration: Calibration

    @classmethod
    def of(cls, query: Query, counts: CalibrationCounts | None) -> Reliability:
        """Return the present state. `counts`: None if no forecast is due yet."""
        return cls(query, Calibration() if counts is None else counts.dump())

    def shown(self) -> dict[str, Any]:
        """Return `calibration`, or null with the reason in `not_followed`."""
        found = self.query.followed
        if isinstance(found, str):
            return {"calibration": None, "not_followed": found}
        columns = _columns(CalibrationCounts(self.calibration))
        return {"calibration": {"path": print_formula(found.path), **columns}, "not_followed": ""}


def with_diagrams(agent: dict[str, Any], forecasts: Sequence[Reliability]) -> dict[str, Any]:
    """Return an agent's document with the calibration of each of its formulas."""
    pairs = zip(agent["formulas"], forecasts, strict=True)
    return {**agent, "formulas": [{**formula, **of.shown()} for formula, of in pairs]}


def _columns(counts: CalibrationCounts) -> dict[str, Any]:
    bins = [
        {
            "from": point.low,
            "to": point.high,
            "forecast": point.forecast,
            "came_true": point.frequency,
            "interval": list(point.interval),
            "count": point.count,
            "agrees": point.agrees,
        }
        for point in counts.reliability()
    ]
    return {
        "resolved": counts.resolved,
        "dropped": counts.dropped,
        "brier_score": _known(counts.brier),
        "brier_score_expected": _known(counts.expected_brier),
        "bins": bins,
    }


def _known(number: float) -> float | None:
    return None if math.isnan(number) else number
