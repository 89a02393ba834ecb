"""Credible bands of verdicts on a learned world with numbers, from the answers under fits to resampled recordings.

Each fit is a separate world. Each fit infers its own noise for the steps of the path, and samples later noise with the
same keys as all other fits. So the values under different fits differ only because the recordings are limited
(docs/worlds.md).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from monitor.arrays import Floats
from monitor.errors import MonitorError
from monitor.evaluation.bands import missing, with_credible
from monitor.evaluation.credible import Samples, check_band_settings
from monitor.evaluation.procedures import Span, span
from monitor.evaluation.sampled_checker import ERRORS, outcomes_of, with_error
from monitor.evaluation.worlds import WorldChecker
from monitor.logic import Formula
from monitor.logic.syntax import Goal, Regret
from monitor.logic.traversal import goals_now, handover_goal, quantity_goals
from monitor.types.specs import BandSettings
from monitor.types.verdicts import Bands, Drawn, Verdict
from monitor.worlds import Moment

LEAST_FITS = 2
"""Minimum number of fits for a band, because a band needs a least and a greatest value."""

NOT_NESTED = "no credible band: each fit would take as many draws as handover itself"

FitValue = tuple[float, float | None]
"""A value and its standard error; the error is None if no samples are needed."""


class FitBands:
    """Credible bands of verdicts on one world.

    Args:
        checker: checker of the world, which has fits.
        settings: `draws` is the maximum number of used fits. Raises ConfigError if the settings are not allowed.
    """

    def __init__(self, checker: WorldChecker, settings: BandSettings) -> None:
        self._level, self._doubt = check_band_settings(settings).level, settings.doubt
        self._checker = checker
        self._fits = [checker.fit(number) for number in range(min(checker.fits, settings.draws))]

    def added(
        self,
        verdict: Verdict,
        formula: Formula,
        path: Sequence[Moment],
        drawn: Drawn,
        *,
        terminated: bool = False,
        acted: Sequence[str] = (),
    ) -> Verdict:
        """Return a verdict on `path` with its credible band. `drawn`: the noise of the verdict.

        A fit in which a held step is impossible has no answer; `bands.reason` reports it.
        """
        goals = quantity_goals(formula)
        if not goals or not verdict.quantities:
            return verdict
        if not self._fits:
            return replace(verdict, bands=replace(verdict.bands or Bands(), doubt=self._doubt))
        count, now = len(self._fits), list(goals_now(formula) or ())
        nested = any(handover_goal(goal) is not None for goal in goals)
        asked = [*([] if nested else goals), *now]
        answers, problems = self._answers(asked, path, drawn, terminated=terminated, acted=acted)
        reasons = [NOT_NESTED] if nested else []
        if problems:
            reasons.append(f"{len(problems)} of {count} fits have no answer: {problems[0]}")
        enough = len(answers) >= LEAST_FITS
        level = min(self._level, highest_level(len(answers) if enough else count))
        how = replace(verdict.bands or Bands(), fits=count, level=level, doubt=self._doubt)
        if not enough:
            return replace(verdict, bands=missing(how, reasons if nested else ["no credible band", *reasons]))
        spans = [span(goal, None) for goal in asked]
        if isinstance(formula, Regret):
            spans.append(span(_effect(*goals), None))
            answers = [[*each, each[1] - each[0]] for each in answers]
        found = [[with_error(outcomes) for outcomes in answer] for answer in answers]
        credible = [_samples(within, each) for within, each in zip(spans, zip(*found, strict=True), strict=True)]
        effect = credible.pop() if isinstance(formula, Regret) else None
        at_end, credible = credible[len(asked) - len(now) :], credible[: len(asked) - len(now)]
        verdict = with_credible(verdict, formula, credible, effect, at_end, level)
        verdict = replace(verdict, bands=missing(how, reasons))
        if all(isinstance(outcomes, float) for answer in answers for outcomes in answer):
            return verdict
        verdict = replace(verdict, drawn=drawn)
        return replace(verdict, resampled_from=self._checker.resampled_from(verdict, formula, path))

    def _answers(
        self, goals: Sequence[Goal], path: Sequence[Moment], drawn: Drawn, *, terminated: bool, acted: Sequence[str]
    ) -> tuple[list[list[float | Floats]], list[str]]:
        """Return the outcomes of the goals under each fit that has an answer, and why other fits have no answer."""
        answers, problems = [], []
        for fit in self._fits:
            try:
                questions = [fit.question(goal, path, drawn, terminated=terminated, acted=acted) for goal in goals]
                answers.append([outcomes_of(question) for question in questions])
            except MonitorError as error:
                problems.append(str(error))
        return answers, problems


def fit_bands(checker: WorldChecker, settings: BandSettings) -> FitBands | None:
    """Return the bands of a world; None if the world has no bands and verdicts need not say why."""
    says = checker.fits or (settings.doubt and checker.model.learned_from)
    return FitBands(checker, settings) if says else None


def highest_level(fits: int) -> float:
    """Return the probability that a further value lies between the extremes of `fits` values (`Samples.band`)."""
    return (fits - 1.0) / (fits + 1.0)


def _effect(nominal: Goal, alternative: Goal) -> Goal:
    """Return the difference of the two goals of `regret`."""
    return dataclasses.replace(alternative, world=dataclasses.replace(alternative.world, baseline=nominal.world.change))


def _samples(within: Span | None, found: Sequence[FitValue]) -> Samples:
    """Return the value under each fit minus and plus `ERRORS` standard errors, clipped to the value's range."""
    values, errors = np.array([(value, ERRORS * (error or 0.0)) for value, error in found]).T
    low, high = within or (-np.inf, np.inf)
    return Samples(np.maximum(values - errors, low), np.minimum(values + errors, high))
