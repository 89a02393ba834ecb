"""Quality of a model and of the formula proposed on it: the numbers at the end of `cfmon init`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from monitor.arrays import Floats
from monitor.authoring.learning.forecast_skill import NEVER_RECORDED, ForecastSkill
from monitor.authoring.learning.model_report import Gain
from monitor.authoring.proposal.measure import Measured
from monitor.statistics.clusters import Estimate, proportion, ratio
from monitor.types.verdicts import RestsOn


@dataclass(frozen=True)
class AlarmRates:
    """Rates of a formula's alarms, measured on recorded paths.

    Attributes:
        measured: the counts.
    """

    measured: Measured

    @cached_property
    def alarms(self) -> Estimate:
        """Mean number of alarms in one step."""
        return self._rate("alarms", "steps")

    @cached_property
    def false(self) -> Estimate:
        """Mean number of alarms in one step that are not followed by an event within the horizon."""
        return self._rate("false", "steps")

    @cached_property
    def preceded(self) -> Estimate:
        """Fraction of the events that have an alarm within the horizon before them."""
        return proportion(self._counts("preceded"), self._counts("events"))

    def _rate(self, part: str, whole: str) -> Estimate:
        return ratio(self._counts(part), self._counts(whole))

    def _counts(self, name: str) -> Floats:
        return np.array([getattr(path, name) for path in self.measured.episodes], np.float64)


@dataclass(frozen=True)
class ModelQuality:
    """Results on a model and on a formula. Values that were not judged are None or empty.

    Attributes:
        label: the event.
        skills: skill of the event's forecasts for each horizon.
        problems: further reasons why the model is not good enough.
        past: gains in forecasts from knowing more of the past, if the model has states.
        bases: recorded support of the formula's values before anything is observed, as in `TableEngines.rests_on`.
        alarms: rates of the proposed formula.
        horizon: horizon of the proposed formula.
        day: number of steps in a day.
        unjudged: what could not be judged, with the reasons.
        held_out: True if the forecasts are for episodes that the model was not learned from.
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
        """True if the forecasts can be judged and none is better than simple rules. Then no formula is proposed."""
        judged = [each for each in self.skills if each.known]
        return bool(judged) and not any(each.better for each in judged)

    @property
    def main(self) -> ForecastSkill | None:
        """The forecasts that the formula relies on; without a formula, the best forecasts that can be judged."""
        judged = [each for each in self.skills if each.known]
        mine = [each for each in judged if each.horizon == self.horizon]
        return max(mine or judged, key=lambda each: (each.better, each.log_gain.low), default=None)

    @property
    def reasons(self) -> tuple[str, ...]:
        """The problems, including the problem that too many of the main forecasts rest on what was never recorded."""
        said = any(NEVER_RECORDED in each for each in self.problems)
        return (*self.problems, *([self.main.problem] if self.main and self.main.problem and not said else []))

    @property
    def good(self) -> bool:
        """True if no result counts against the model."""
        main = self.main
        return not self.reasons and not self.refused and (main is None or (main.better and main.calibrated))

    @property
    def worst_problem(self) -> str:
        """The worst problem of the model, without the advice on it; "" if there is no problem."""
        if self.good:
            return ""
        if self.main is not None and not self.main.better:
            return f"its forecasts of '{self.label}' are no better than the base rate"
        if self.main is not None and not self.main.calibrated:
            return f"its forecasts of '{self.label}' were wrong"
        return self.reasons[0].partition(";")[0]
