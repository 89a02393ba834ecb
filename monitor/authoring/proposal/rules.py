"""Rules that choose the horizon and the threshold of a first formula. They are printed beside the chosen values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from monitor.arrays import Bools
from monitor.authoring.proposal.measure import CandidateFormula, Measured
from monitor.authoring.proposal.paths import RecordedPath, unsafe_events
from monitor.types.specs import AlarmSpec

THRESHOLDS: Final = (0.5, 0.7, 0.8, 0.9, 0.95)
SHORTEST: Final = 4
LONGEST: Final = 40
WITHOUT_EVENTS: Final = 20
RARE: Final = 1.0
"""Number of alarms in 1,000 steps that is accepted on recordings without unsafe events."""


def horizon_of(paths: Sequence[RecordedPath], unsafe: Bools) -> int:
    """Return the median number of steps before an unsafe event, limited to 4 to 40; 20 if there is no event.

    Steps are counted from the start of the path, or from the previous event.
    """
    waits: list[int] = []
    for path in paths:
        events = unsafe_events(path, unsafe)
        waits += [int(wait) for wait in np.diff([0, *events])]
    return int(np.clip(np.median(waits), SHORTEST, LONGEST)) if waits else WITHOUT_EVENTS


def candidates(horizon: int, label: str, offset: int, alarm: AlarmSpec) -> list[CandidateFormula]:
    """Return the formulas to compare: each threshold, with `horizon` and with a quarter of it."""
    return [
        CandidateFormula(each, offset, threshold, label, alarm)
        for each in horizons(horizon)
        for threshold in THRESHOLDS
    ]


def horizons(horizon: int) -> list[int]:
    """Return the horizons to compare: a quarter of `horizon`, and `horizon` itself."""
    return list(dict.fromkeys((max(SHORTEST, horizon // 4), horizon)))


def chosen(rows: Sequence[Measured]) -> tuple[Measured, str]:
    """Return the candidate to use, and a sentence on the rule that chose it.

    If an alarm of a candidate preceded an unsafe event, the candidate with the best F1 score wins. Among equal scores,
    the candidate with the fewest alarms wins. Otherwise the candidate with the highest threshold and at most one alarm
    in 1,000 steps wins. If there is no such candidate, the candidate with the fewest alarms wins. Among candidates that
    are still equal, the longer horizon wins.
    """
    if any(row.balance for row in rows):
        best = max(rows, key=lambda row: (row.balance, -row.alarms, row.candidate.threshold, row.candidate.horizon))
        return best, (
            "the best F1 score of 'an unsafe event follows the alarm' and 'an alarm precedes the event'; "
            "of equal ones the fewest alarms"
        )
    why = "no alarm precedes an unsafe event" if any(row.events for row in rows) else "there is no unsafe event"
    quiet = [row for row in rows if row.per_thousand <= RARE]
    if quiet:
        best = max(quiet, key=lambda row: (row.candidate.threshold, row.candidate.horizon))
        return best, f"{why}, so the highest threshold with at most 1 alarm in 1,000 steps"
    best = min(rows, key=lambda row: (row.alarms, -row.candidate.horizon))
    return best, f"{why}, and each candidate fires more than once in 1,000 steps, so the fewest alarms"
