"""Credible bands on a learned world with numbers. Every fit is sampled again, by the referee's own loop."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from monitor.arrays import Floats
from monitor.errors import LimitError, MonitorError
from monitor.logic.syntax import Goal, Probability
from monitor.referee.numbers import Given, outcomes
from monitor.types.verdicts import Band

ERRORS = 3
"""Number of standard errors by which the sampled value under a fit may be wrong."""


class CredibleBands(NamedTuple):
    """Credible bands of the goals and, if requested, of the second value minus the first.

    There are no bands if fewer than two fits have an answer.
    """

    goals: Sequence[Band | None]
    effect: Band | None


def credible_bands(goals: Sequence[Goal], given: Given, fits: int, level: float, *, effect: bool) -> CredibleBands:
    """Return the bands at a level, over at most `fits` fits. A fit that cannot explain the path is left out.

    `effect`: whether to add the band of the second value minus the first.

    Raises LimitError for goals that this evaluator does not sample.
    """
    answers = []
    there = min((len(world.fits) for world in given.worlds.values() if world.fits), default=0)
    for number in range(min(fits, there)):
        worlds = {name: world.fits[number] if world.fits else world for name, world in given.worlds.items()}
        try:
            answers.append([outcomes(goal, given._replace(worlds=worlds)) for goal in goals])
        except LimitError:
            raise
        except MonitorError:
            continue  # this fit has no answer
    if len(answers) < 2:
        return CredibleBands([None] * len(goals), None)
    bounded = all(isinstance(goal.measure, Probability) for goal in goals)
    bands = [_band([answer[n] for answer in answers], level, *_range(goal)) for n, goal in enumerate(goals)]
    if not effect:
        return CredibleBands(bands, None)
    ends = (-1.0, 1.0) if bounded else (-math.inf, math.inf)
    return CredibleBands(bands, _band([answer[1] - answer[0] for answer in answers], level, *ends))


def _range(goal: Goal) -> Band:
    if not isinstance(goal.measure, Probability):
        return -math.inf, math.inf
    return (0.0 if goal.world.baseline is None else -1.0), 1.0


def _band(answers: Sequence[Floats], level: float, least: float, most: float) -> Band:
    """Return the band of M means -/+ `ERRORS` standard errors; the p-quantile is at position p (M + 1)."""
    lows, highs = [], []
    for drawn in answers:
        mean = sum(drawn.tolist()) / len(drawn)
        error = ERRORS * math.sqrt(sum((each - mean) ** 2 for each in drawn.tolist())) / len(drawn)
        lows.append(max(mean - error, least))
        highs.append(min(mean + error, most))
    tail = (1.0 - level) / 2.0
    return _at(sorted(lows), tail * (len(lows) + 1)), _at(sorted(highs), (1.0 - tail) * (len(highs) + 1))


def _at(ordered: Sequence[float], position: float) -> float:
    """Return the value at a position from 1, on a straight line between its neighbours."""
    place = min(max(position, 1.0), float(len(ordered)))
    before = min(math.floor(place), len(ordered) - 1)
    return ordered[before - 1] + (place - before) * (ordered[before] - ordered[before - 1])
