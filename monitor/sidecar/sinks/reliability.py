"""How the forecasts of a formula stand, as the API and an agent's page show it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import msgspec

from monitor.logic import parse, print_formula
from monitor.runtime.forecasts import SAMPLED, followed_forecast
from monitor.statistics.calibration import CalibrationCounts
from monitor.types import Calibrated, Calibration, Forecast, FormulaSpec, Judged

__all__ = ["WORDS", "Reliability", "counted", "followed", "with_diagrams"]

WORDS: Final[Mapping[bool | None, str]] = {True: "true", False: "false", None: "dropped"}
"""What became of a forecast: label values of `cfmon_forecasts_total`."""


@lru_cache(maxsize=4096)
def followed(spec: FormulaSpec) -> tuple[str, str]:
    """Return the path formula whose forecasts are followed and an empty text, or the reverse: why none are."""
    found = followed_forecast(parse(spec.text), spec.engine)
    return ("", found) if isinstance(found, str) else (print_formula(found.path), "")


def counted(counts: CalibrationCounts | None, notice: Forecast | Calibrated) -> CalibrationCounts:
    """Return the counts after a notice; None: there was none before."""
    if isinstance(notice, Calibrated):
        return CalibrationCounts(notice.calibration)
    counts = CalibrationCounts() if counts is None else counts
    if notice.came_true is None:
        counts.drop()
    else:
        counts.add(notice.value, came_true=notice.came_true)
    return counts


class Reliability(msgspec.Struct, frozen=True):
    """What the forecasts of a formula came to for one agent, to be shown. `sampled`: its newest answer is not exact."""

    spec: FormulaSpec
    calibration: Calibration
    sampled: bool

    @classmethod
    def of(cls, spec: FormulaSpec, counts: CalibrationCounts | None, judged: Judged | None) -> Reliability:
        """As it stands now. `counts`: None where no forecast is over, `judged`: where there is no answer."""
        sampled = judged is not None and judged.verdict.method == "sampled"
        return cls(spec, Calibration() if counts is None else counts.dump(), sampled)

    def shown(self) -> dict[str, Any]:
        """Return `calibration`, or null with the reason in `not_followed`."""
        path, why = followed(self.spec)
        if not why and self.sampled and self.calibration == Calibration():
            why = SAMPLED
        if why:
            return {"calibration": None, "not_followed": why}
        return {"calibration": {"path": path, **_columns(CalibrationCounts(self.calibration))}, "not_followed": ""}


def with_diagrams(agent: dict[str, Any], forecasts: Sequence[Reliability]) -> dict[str, Any]:
    """Return an agent as the board shows it, each of its formulas with its calibration."""
    pairs = zip(agent["formulas"], forecasts, strict=True)
    return {**agent, "formulas": [{**formula, **of.shown()} for formula, of in pairs]}


def _columns(counts: CalibrationCounts) -> dict[str, Any]:
    bins = [
        {
            "from": point.low,
            "to": point.high,
            "forecast": point.forecast,
            "came_true": point.share,
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
