"""How good a model is, and what is proposed on it: the numbers of the verdict that `cfmon init` ends with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from monitor.arrays import Floats
from monitor.authoring.learning.forecast_skill import ForecastSkill
from monitor.authoring.learning.model_report import Gain
from monitor.authoring.proposal.measure import Measured
from monitor.statistics.clusters import Estimate, proportion, ratio
from monitor.types import RestsOn


@dataclass(frozen=True)
class AlarmRates:
    """How often a formula fires, as measured on recorded paths.

    Attributes:
        measured: the counts.
    """

    measured: Measured

    @cached_property
    def alarms(self) -> Estimate:
        """Alarms in one step."""
        return self._rate("alarms", "steps")

    @cached_property
    def false(self) -> Estimate:
        """Alarms in one step that no event followed within the horizon."""
        return self._rate("false", "steps")

    @cached_property
    def preceded(self) -> Estimate:
        """Fraction of the events before which an alarm fired within the horizon."""
        return proportion(self._counts("preceded"), self._counts("events"))

    def _rate(self, part: str, whole: str) -> Estimate:
        return ratio(self._counts(part), self._counts(whole))

    def _counts(self, name: str) -> Floats:
        return np.array([getattr(path, name) for path in self.measured.paths], np.float64)


@dataclass(frozen=True)
class Assessment:
    """What is known of a model and of a formula on it; None and empty: not judged.

    Attributes:
        label: the event.
        skills: of its forecasts, one for each horizon.
        problems: why the model is not good enough, apart from its forecasts.
        past: what the past still tells, if the model has states.
        bases: what the values of the formula rest on from the start, as `Engines.rests_on`.
        alarms: of the proposed formula.
        horizon: of that formula.
        day: steps in a day.
        unjudged: what cannot be judged, and why.
        held_out: the forecasts are of episodes that the model was not learned from.
    """

    label: str
    skills: tuple[ForecastSkill, ...]
    problems: tuple[str, ...] = ()
    past: tuple[Gain, ...] = ()
    bases: Mapping[str, RestsOn] = field(default_factory=dict)
    alarms: AlarmRates | None = None
    horizon: int | None = None
    day: float | None = None
    unjudged: tuple[str, ...] = ()
    held_out: bool = True

    @property
    def refused(self) -> bool:
        """True if the forecasts can be judged and none is better than simple rules: then no formula is proposed."""
        judged = [each for each in self.skills if each.known]
        return bool(judged) and not any(each.better for each in judged)

    @property
    def main(self) -> ForecastSkill | None:
        """The forecasts that the formula relies on; without a formula, the best that can be judged."""
        judged = [each for each in self.skills if each.known]
        mine = [each for each in judged if each.horizon == self.horizon]
        return max(mine or judged, key=lambda each: (each.better, each.log_gain.low), default=None)

    @property
    def good(self) -> bool:
        """True if nothing that could be judged counts against the model."""
        main = self.main
        return not self.problems and not self.refused and (main is None or (main.better and main.calibrated))

    @property
    def doubt(self) -> str:
        """The worst that counts against the model, without what to do about it; empty if nothing does."""
        if self.good:
            return ""
        if self.main is not None and not self.main.better:
            return f"its forecasts of '{self.label}' are no better than the base rate"
        if self.main is not None and not self.main.calibrated:
            return f"its forecasts of '{self.label}' were wrong"
        return self.problems[0].partition(";")[0]
