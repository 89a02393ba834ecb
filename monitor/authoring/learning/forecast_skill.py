"""Skill of forecasts of an event on held-out episodes, compared with simple rules that know less.

Forecasts are better than a rule if their log score (Good 1952) is better, beyond chance and by enough to matter. Steps
of one episode depend on each other, so episodes are the independent units. One rule is the base rate, which always
forecasts the frequency of the event. Some events are ways in which episodes end, such as a failure. For such an event,
a second rule knows when episodes end, but not how. This rule is needed because a model that only knows that the end is
near forecasts failures better than the base rate, although it knows nothing about failures. Like the model, the rules
learn their frequencies from other episodes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from monitor.arrays import Bools, Floats, Ints
from monitor.authoring.learning.model_problem import ModelProblem
from monitor.statistics.clusters import Estimate, frequency, mean

BOTH: Final = 0.1
"""The rule that knows when episodes end applies if at least this fraction of the ends has the event, and at least this
fraction of the ends does not have the event.
"""

WORTH: Final = 0.01
"""Smallest fraction of a rule's loss that forecasts must remove to be better."""

LEAST: Final = 1e-6
"""Smallest probability that a rule gives to an outcome."""

EXACT: Final = 1e6
"""An exact forecast counts as based on this number of recorded steps."""

CLASSES: Final = 10
"""Number of classes of the reliability diagram."""

CLOSE: Final = 0.02
"""A difference of forecasts that does not matter. A mean forecast this close to the frequency counts as right, and an
assumed part this small is ignored."""

MOST_ASSUMED: Final = 0.05
"""Largest fraction of forecasts of a good model that rest mostly on what was never recorded."""

NEVER_RECORDED: Final = "rest mostly on what was never recorded"
"""Words in the text of the problem that too many forecasts depend on what was never recorded."""


@dataclass(frozen=True)
class ForecastClass:
    """The forecasts in one tenth of (0, 1): their number, their mean, and the frequency of the event."""

    count: int
    said: float
    happened: Estimate


@dataclass(frozen=True)
class ForecastSkill:
    """Forecasts of a label within `horizon` steps, and the outcomes.

    Attributes:
        label, horizon: the event that was forecast.
        count: number of forecasts.
        episodes: number of episodes with forecasts.
        eventful: number of episodes with at least one event.
        said: mean forecast.
        happened: frequency of the event.
        base: the base rate.
        brier, base_brier: mean squared error of the forecasts, and of always forecasting the base rate.
        log_gain: fraction of the loss (negative log score) of the base rate that the forecasts remove.
        end_gain: fraction of the loss of a second rule that the forecasts remove. This rule knows when episodes end,
            but not how; None if it does not apply.
        classes: the reliability diagram.
        assumed: the forecasts that rest mostly on what was never recorded; None if there are none. They are assumptions
            and not forecasts, so no other number includes them.
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
    assumed: ForecastClass | None = None

    @property
    def known(self) -> bool:
        """True if the event sometimes happened and sometimes not, in at least two episodes."""
        return self.episodes > 1 and 0 < self.happened.value < 1

    @property
    def better(self) -> bool:
        """True if the forecasts are better than both rules, beyond chance and by enough to matter."""
        gains = (self.log_gain,) if self.end_gain is None else (self.log_gain, self.end_gain)
        return self.known and all(gain.low > WORTH for gain in gains)

    @property
    def calibrated(self) -> bool:
        """True if the mean forecast is within the interval of the frequency, or within `CLOSE` of it."""
        off = max(self.happened.low - self.said, self.said - self.happened.high)
        return off <= 0 or abs(self.said - self.happened.value) <= CLOSE

    @property
    def problem(self) -> ModelProblem | None:
        """The problem that too many forecasts rest mostly on what was never recorded; else None."""
        apart = 0 if self.assumed is None else self.assumed.count
        return too_many_assumed(self.label, self.horizon, apart, self.count + apart)


@dataclass(frozen=True)
class ForecastSet:
    """Forecasts [n]: probabilities `said`, and for each the number of recorded steps or draws that it is based on.

    `ends`: probability that the episode ends within the horizon; None: ends are not modelled, or only in part.
    `assumed`: the part of each probability that is an assumption, because the outcomes were never recorded and the
    event is assumed to follow them; None: no part.
    """

    said: Floats
    support: Floats
    ends: Floats | None = None
    assumed: Floats | None = None

    @property
    def mostly_assumed(self) -> Bools:
        """Which forecasts rest mostly on what was never recorded, [n]."""
        return np.zeros(len(self.said), np.bool_) if self.assumed is None else mostly_assumed(self.said, self.assumed)

    def __getitem__(self, rows: Bools) -> ForecastSet:
        """Return some of the forecasts."""
        ends, assumed = (None if each is None else each[rows] for each in (self.ends, self.assumed))
        return ForecastSet(self.said[rows], self.support[rows], ends, assumed)


def mostly_assumed(said: Floats, assumed: Floats) -> Bools:
    """Return for which forecasts [n] the `assumed` part is over half of the value, and more than `CLOSE`."""
    return np.asarray((2 * assumed > said) & (assumed > CLOSE))


def too_many_assumed(label: str, horizon: int, assumed: int, total: int) -> ModelProblem | None:
    """Return the problem that too many of `total` forecasts rest mostly on what was never recorded; else None."""
    if assumed <= MOST_ASSUMED * total:
        return None
    return ModelProblem(
        f"{assumed / total:.0%} of the forecasts of '{label}' within {horizon} step{'s' * (horizon > 1)} "
        f"{NEVER_RECORDED}",
        ": nothing is known there; record more, or use coarser bins",
    )


@dataclass(frozen=True)
class Events:
    """The outcomes after steps [n], and the probabilities that simple rules give them.

    Attributes:
        happened: whether the event happened within the horizon.
        episodes: episode of each step.
        base: the base rate, computed from other episodes than the step's.
        of_ends: fraction of ends within the horizon that have the event, computed from other episodes; NaN if ends say
            nothing about the event.
        ends_base: fraction of steps whose episode ends within the horizon, computed from other episodes.
    """

    happened: Bools
    episodes: Ints
    base: Floats
    of_ends: Floats
    ends_base: Floats

    def __getitem__(self, rows: Bools) -> Events:
        """Return some of the outcomes."""
        return Events(
            self.happened[rows], self.episodes[rows], self.base[rows], self.of_ends[rows], self.ends_base[rows]
        )


def skill(what: tuple[str, int], forecasts: ForecastSet, events: Events) -> ForecastSkill:
    """Return the skill of forecasts [n]. `what`: label and horizon. `events`: the outcomes, [n]."""
    apart = forecasts.mostly_assumed
    if apart.any():
        found = ForecastClass(
            int(apart.sum()),
            float(forecasts.said[apart].mean()),
            frequency(events.happened[apart], events.episodes[apart]),
        )
        return replace(skill(what, forecasts[~apart], events[~apart]), assumed=found)
    happened, episodes = events.happened, events.episodes
    if not len(happened):
        nothing = mean(np.zeros(0), episodes)
        return ForecastSkill(*what, 0, 0, 0, np.nan, nothing, np.nan, np.nan, np.nan, nothing, None, ())
    score = log_score(smoothed(forecasts.said, forecasts.support, events.base), happened)
    base = log_score(events.base, happened)
    end_gain = None
    if forecasts.ends is not None and not np.isnan(events.of_ends).any():
        rule = smoothed(forecasts.ends, forecasts.support, events.ends_base) * events.of_ends
        end_gain = _relative(score, log_score(rule, happened), episodes)
    return ForecastSkill(
        *what,
        count=len(happened),
        episodes=len(np.unique(episodes)),
        eventful=len(np.unique(episodes[happened])),
        said=float(forecasts.said.mean()),
        happened=frequency(happened, episodes),
        base=float(events.base.mean()),
        brier=float(((forecasts.said - happened) ** 2).mean()),
        base_brier=float(((events.base - happened) ** 2).mean()),
        log_gain=_relative(score, base, episodes),
        end_gain=end_gain,
        classes=_classes(forecasts.said, happened, episodes),
    )


def _relative(score: Floats, rule: Floats, episodes: Ints) -> Estimate:
    """Return the fraction of a rule's loss that the forecasts remove. The interval treats the rule's loss as exact."""
    loss = -float(rule.mean())
    return mean((score - rule) / loss if loss else score - rule, episodes)


def of_ends(happened: Bools, ended: Bools) -> float:
    """Return the fraction of ends that have the event; NaN if an end says nothing about the event.

    An end says nothing if the event also happens without an end, if nearly all ends have the event, or if nearly no end
    has it.
    """
    if not ended.any() or (happened & ~ended).any():
        return float("nan")
    found = float(happened.sum()) / float(ended.sum())
    return found if BOTH <= found <= 1 - BOTH else float("nan")


def smoothed(said: Floats, support: Floats, frequency: Floats | float) -> Floats:
    """Return forecasts as if each had one more recorded step, whose outcome is the frequency.

    No forecast is then 0 or 1.
    """
    return np.asarray((support * said + frequency) / (support + 1))


def log_score(said: Floats, happened: Bools) -> Floats:
    """Return the logarithm of the probability of each outcome, [n]."""
    return np.asarray(np.log(np.maximum(np.where(happened, said, 1 - said), LEAST)))


def _classes(said: Floats, happened: Bools, episodes: Ints) -> tuple[ForecastClass, ...]:
    tenth = np.minimum((said * CLASSES).astype(np.int64), CLASSES - 1)
    found = []
    for number in np.unique(tenth).tolist():
        here = tenth == number
        found.append(
            ForecastClass(int(here.sum()), float(said[here].mean()), frequency(happened[here], episodes[here]))
        )
    return tuple(found)
