"""Formulas over one scene, answered from samples as verdicts that say how they were obtained."""

from __future__ import annotations

from copy import copy

from msgspec.structs import replace

from monitor.engine.case import Case
from monitor.exact.verdict import Path
from monitor.logic import Formula
from monitor.logic.syntax import Goal, Regret
from monitor.logic.traversal import goals
from monitor.model import MDP
from monitor.sampled import Sampler, Scene, Simulator, VectorSimulator
from monitor.sampled.rows import as_rows
from monitor.types import Drawn, Verdict

__all__ = ["SampledChecker"]


class SampledChecker:
    """Answers validated formulas by sampling.

    Args:
        scene: what can be asked about.
        model: of that scene: its labels say what holds in the state the path ends in, its rewards what a step may
            bring (for a simulator that is a matter of the settings).
    """

    def __init__(self, scene: Scene, model: MDP | Simulator | VectorSimulator) -> None:
        self._sampler = Sampler(scene, 0)
        self._rows = as_rows(model)
        self._rewards: tuple[float, float] | None = None
        if isinstance(model, MDP):
            alone = float(model.rewards.min()), float(model.rewards.max())  # of a transition only another model has
            ends = *model.reward_range, *alone
            self._rewards = min(ends), max(ends)

    def verdict(
        self,
        formula: Formula,
        path: Path,
        drawn: Drawn,
        *,
        text: str,
        terminated: bool = False,
        start_observed: bool = True,
        why: str = "",
    ) -> Verdict:
        """Draw worlds until the formula is decided or the limit is reached.

        Args:
            formula: validated.
            path: pairs (state, action), oldest first; a possible one.
            drawn: the noise, and the strength of the whole formula.
            text: the formula as its user wrote it.
            terminated: the episode has ended in the last state.
            start_observed: whether the first pair is the episode's first step.
            why: this is sampled and not answered exactly; it stands first in the verdict's `reason`.

        Raises:
            LimitError, FormulaError, ConfigError: samples cannot answer this, with the reason.
        """
        sampler = copy(self._sampler)  # what it has learned of formulas is shared
        sampler.seed = drawn.seed
        case = Case(sampler, self._rows, self._rewards or drawn.sampling.rewards, path, drawn, terminated=terminated)
        if isinstance(formula, Regret):
            verdict = case.regret(formula)
        elif isinstance(formula, Goal) and formula.test is None:
            verdict = case.figure(formula, text)
        else:
            verdict = case.plain(formula)
        return replace(
            verdict,
            formula=text,
            start_dropped=not start_observed and any(offset < 0 for _, _, offset in goals(formula)),
            reason="; ".join(part for part in (why, verdict.reason) if part),
        )

    def rehearse(self, formula: Formula, path: Path, drawn: Drawn) -> None:
        """A first look, so that the first message meets nothing cold. Raises what `verdict` would."""
        self.verdict(formula, path, replace(drawn, sampling=replace(drawn.sampling, limit=1)), text="")
