"""Forecasts of an event beside what happened on held-out episodes, and beside simple rules that know less.

Forecasts are better than a rule if their log score (Good 1952) is, beyond chance and by enough to matter. Steps of one
episode depend on each other, so episodes are what varies. The rules are the base rate, which always says how often the
event happens; and, where the event is how episodes end, one that knows when episodes end but not how. A model that only
tells that the end is near forecasts failures better than the base rate, and knows nothing of failures. Rules know
frequencies as the model does: from other episodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from monitor.arrays import Bools, Floats, Ints
from monitor.statistics.clusters import Estimate, frequency, mean

BOTH: Final = 0.1
"""Least fraction of the ends with the event, and of those without it, for the rule that knows when episodes end."""

WORTH: Final = 0.01
"""Least fraction of a rule's loss that forecasts must take away."""

LEAST: Final = 1e-6
"""Least probability that a rule gives to what happens."""

EXACT: Final = 1e6
"""Steps on which a forecast rests that is exact."""

CLASSES: Final = 10
"""Classes of the reliability diagram."""


@dataclass(frozen=True)
class ForecastClass:
    """Forecasts in one tenth of (0, 1): their number, their mean, and the frequency of the event."""

    count: int
    said: float
    happened: Estimate


@dataclass(frozen=True)
class ForecastSkill:
    """Forecasts of a label within `horizon` steps, and what happened.

    Attributes:
        label, horizon: what was forecast.
        count: forecasts. episodes: that they are of. eventful: episodes with at least one that came true.
        said: mean forecast. happened: frequency.
        base: the base rate.
        brier, base_brier: mean squared error, and that of always saying the base rate.
        log_gain: fraction of the loss (negative log score) of always saying the base rate that the forecasts take away.
        end_gain: the same of a rule that knows when episodes end but not how; None where that says nothing.
        classes: the reliability diagram.
    """

    label: str
    horizon: int
    count: int
    episodes: int
    eventful: int
    said: float
    happened: Estimate
    base: float
    brier: float
    base_brier: float
    log_gain: Estimate
    end_gain: Estimate | None
    classes: tuple[ForecastClass, ...]

    @property
    def known(self) -> bool:
        """True if the event happened sometimes and sometimes not, in two episodes at least."""
        return self.episodes > 1 and 0 < self.happened.value < 1

    @property
    def better(self) -> bool:
        """True if the forecasts are better than both rules beyond chance, and by enough to matter."""
        gains = (self.log_gain,) if self.end_gain is None else (self.log_gain, self.end_gain)
        return self.known and all(gain.low > WORTH for gain in gains)

    @property
    def calibrated(self) -> bool:
        """True if the mean forecast is within the interval of the frequency, or within 0.02 of it."""
        off = max(self.happened.low - self.said, self.said - self.happened.high)
        return off <= 0 or abs(self.said - self.happened.value) <= 0.02


@dataclass(frozen=True)
class ForecastSet:
    """Forecasts [n]: probabilities, and on how many recorded steps or draws each rests.

    `ends`: probability that the episode ends within the horizon; None: ends are not modelled, or not all that matters.
    """

    said: Floats
    support: Floats
    ends: Floats | None = None


@dataclass(frozen=True)
class Events:
    """What came after steps [n], and what rules that know only frequencies say of it.

    Attributes:
        happened: whether the event came true within the horizon.
        paths: of which episode each step is.
        base: the base rate, from other episodes than the step's.
        of_ends: how often an end within the horizon has the event, likewise; NaN where an end says nothing of it.
        ends_base: how often the episode ends within the horizon, likewise.
    """

    happened: Bools
    paths: Ints
    base: Floats
    of_ends: Floats
    ends_base: Floats


def skill(what: tuple[str, int], forecasts: ForecastSet, events: Events) -> ForecastSkill:
    """Return how good forecasts [n] are. `what`: label and horizon. `events`: what came, [n]."""
    happened, paths = events.happened, events.paths
    if not len(happened):
        nothing = mean(np.zeros(0), paths)
        return ForecastSkill(*what, 0, 0, 0, np.nan, nothing, np.nan, np.nan, np.nan, nothing, None, ())
    score = log_score(smoothed(forecasts.said, forecasts.support, events.base), happened)
    base = log_score(events.base, happened)
    end_gain = None
    if forecasts.ends is not None and not np.isnan(events.of_ends).any():
        rule = smoothed(forecasts.ends, forecasts.support, events.ends_base) * events.of_ends
        end_gain = _relative(score, log_score(rule, happened), paths)
    return ForecastSkill(
        *what,
        count=len(happened),
        episodes=len(np.unique(paths)),
        eventful=len(np.unique(paths[happened])),
        said=float(forecasts.said.mean()),
        happened=frequency(happened, paths),
        base=float(events.base.mean()),
        brier=float(((forecasts.said - happened) ** 2).mean()),
        base_brier=float(((events.base - happened) ** 2).mean()),
        log_gain=_relative(score, base, paths),
        end_gain=end_gain,
        classes=_classes(forecasts.said, happened, paths),
    )


def _relative(score: Floats, rule: Floats, paths: Ints) -> Estimate:
    """Return which fraction of a rule's loss the forecasts take away; the rule's loss has no part in the interval."""
    loss = -float(rule.mean())
    return mean((score - rule) / loss if loss else score - rule, paths)


def of_ends(happened: Bools, ended: Bools) -> float:
    """Return how often an end has the event; NaN where an end says nothing of it.

    It says nothing if the event happens before an end, or if nearly all ends have it: then an end is the event.
    """
    if not ended.any() or (happened & ~ended).any():
        return float("nan")
    found = float(happened.sum()) / float(ended.sum())
    return found if BOTH <= found <= 1 - BOTH else float("nan")


def smoothed(said: Floats, support: Floats, frequency: Floats | float) -> Floats:
    """Return forecasts as if one more step behind each had come out like the frequency, so that none is 0 or 1."""
    return np.asarray((support * said + frequency) / (support + 1))


def log_score(said: Floats, happened: Bools) -> Floats:
    """Return the logarithm of the probability given to what happened, [n]."""
    return np.asarray(np.log(np.maximum(np.where(happened, said, 1 - said), LEAST)))


def _classes(said: Floats, happened: Bools, paths: Ints) -> tuple[ForecastClass, ...]:
    tenth = np.minimum((said * CLASSES).astype(np.int64), CLASSES - 1)
    found = []
    for number in np.unique(tenth).tolist():
        here = tenth == number
        found.append(ForecastClass(int(here.sum()), float(said[here].mean()), frequency(happened[here], paths[here])))
    return tuple(found)
