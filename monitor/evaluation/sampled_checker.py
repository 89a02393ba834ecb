"""Verdicts from samples for formulas on one scene."""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import copy

from msgspec.structs import replace

from monitor.arrays import Floats
from monitor.errors import LimitError
from monitor.evaluation.case import Case
from monitor.evaluation.procedures import DRAWS
from monitor.exact.evaluators import check_known
from monitor.exact.verdict import resolve
from monitor.logic import Formula
from monitor.logic.syntax import Goal, Regret
from monitor.logic.traversal import goals
from monitor.model import MDP
from monitor.sampled import Sampler, Scene
from monitor.sampled.sampler import AnyPath, AnyQuestion
from monitor.sampled.scene import has_nested
from monitor.types.verdicts import Drawn, Verdict

ERRORS = 3.0
"""Number of standard errors by which an estimated value must exceed a bound to count as beyond it."""


def estimated(question: AnyQuestion, particles: range = range(DRAWS)) -> tuple[float, float | None]:
    """Return the mean of a question over `particles`, and its standard error; None if no samples are needed.

    The number of samples is fixed. A test stops depending on its samples, so its mean is biased away from the bound.
    """
    return with_error(outcomes_of(question, particles))


def outcomes_of(question: AnyQuestion, particles: range = range(DRAWS)) -> float | Floats:
    """Return the outcomes [n] of a question in n `particles`, or its one outcome if no samples are needed."""
    return question.outcomes(particles) if question.certain is None else question.certain


def with_error(outcomes: float | Floats) -> tuple[float, float | None]:
    """Return the mean of outcomes and its standard error; the error is None if the outcome was not sampled."""
    if isinstance(outcomes, float):
        return outcomes, None
    return float(outcomes.mean()), float(outcomes.std()) / math.sqrt(len(outcomes))


class SampledChecker:
    """Evaluates validated formulas by sampling.

    Args:
        scene: scene from which samples are drawn.
        model: model of the scene if it is a table, for the range of rewards (otherwise the settings give the range).
    """

    def __init__(self, scene: Scene, model: MDP | None = None) -> None:
        self._sampler = Sampler(scene, 0)
        self._rewards: tuple[float, float] | None = None
        if model is not None:
            alone = (
                float(model.rewards.min()),
                float(model.rewards.max()),
            )  # if only another model has the transition
            ends = *model.reward_range, *alone
            self._rewards = min(ends), max(ends)

    def verdict(
        self,
        formula: Formula,
        path: AnyPath,
        drawn: Drawn,
        *,
        text: str,
        terminated: bool = False,
        start_observed: bool = True,
        why: str = "",
        acted: Sequence[str] = (),
        spare: bool = False,
    ) -> Verdict:
        """Draw samples until the formula is decided or the limit is reached.

        Args:
            formula: validated.
            path: pairs (state, action), oldest first. The path must be possible.
            drawn: seed of the noise, and error rates of the test of the whole formula.
            text: the formula as the user wrote it.
            terminated: whether the episode has ended in the last state.
            start_observed: whether the first pair is the episode's first step.
            why: the reason for sampling, which begins the verdict's `reason`.
            acted: names of the policies that acted at the pairs; empty if nominal acted at all pairs.
            spare: do not sample if all samples have the same outcome; the verdict is then exact.

        Raises:
            LimitError, FormulaError, ConfigError: the formula cannot be evaluated by sampling; the error gives the
                reason.
        """
        if acted:
            self._check_policies(formula, path, acted)
        sampler = self._seeded(drawn)
        rewards = self._rewards or drawn.sampling.rewards
        case = Case(sampler, rewards, path, drawn, terminated=terminated, spare=spare, acted=acted)
        if isinstance(formula, Regret):
            verdict = case.regret(formula)
        elif isinstance(formula, Goal) and formula.test is None:
            verdict = case.value(formula, text)
        else:
            verdict = case.plain(formula)
        return replace(
            verdict,
            formula=text,
            start_dropped=not start_observed and any(offset < 0 for _, _, offset in goals(formula)),
            reason="; ".join(part for part in (why if verdict.method == "sampled" else "", verdict.reason) if part),
        )

    def _check_policies(self, formula: Formula, path: AnyPath, acted: Sequence[str]) -> None:
        """Raise PathError if the formula depends on an unknown policy; LimitError for nested quantities."""
        chooses, depends = path[-1][1] is None, self._sampler.scene.depends_on_policies
        for goal, changes, offset in goals(formula):
            _, start, _ = resolve(offset, len(path))  # no policy chooses before it
            others = [name for name in acted[start:] if name != "nominal"]
            if not others or not (chooses or any(depends(change, goal.measure) for change in changes)):
                continue
            check_known(acted[start:])
            if has_nested(goal.measure):
                raise LimitError(
                    "another policy than nominal acted at some of the steps from the intervention state on, and "
                    "sampled answers to nested quantities are not made for that; use the exact engine"
                )

    def question(
        self,
        goal: Goal,
        path: AnyPath,
        drawn: Drawn | None,
        *,
        terminated: bool = False,
        acted: Sequence[str] = (),
        begins: int = 0,
        watched: bool = False,
    ) -> AnyQuestion:
        """Return a goal on a path, ready for sampling. Arguments are as for `verdict` and `Sampler.question`.

        `drawn`: None if nothing will be sampled.
        """
        sampler = self._seeded(drawn)
        first = 0 if drawn is None else drawn.first
        return sampler.question(
            goal, path, first_seq=first, terminated=terminated, acted=acted, begins=begins, watched=watched
        )

    def _seeded(self, drawn: Drawn | None) -> Sampler:
        sampler = copy(self._sampler)  # its step tables are shared
        sampler.seed = 0 if drawn is None else drawn.seed
        return sampler

    def warm_up(self, formula: Formula, path: AnyPath, drawn: Drawn) -> None:
        """Draw a first sample, so that the first message is not delayed. Raises the errors of `verdict`."""
        self.verdict(formula, path, replace(drawn, sampling=replace(drawn.sampling, limit=1)), text="")
