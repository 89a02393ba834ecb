"""Bands of a verdict on a learned model: the uncertainty of the answer, and the pairs whose visits would reduce it.

The verdict of the exact engine has its value, and its bounds and guaranteed band if they were requested. This module
adds the credible band (`credible.py`) and the recorded support (`monitor.exact.row_uses`). See
docs/semantics/learned-models.md, section 13.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from monitor.causal import CounterfactualWorld
from monitor.errors import LimitError
from monitor.evaluation.basis import DIGITS, UncertainRows, basis_of
from monitor.evaluation.credible import (
    LearnedModel,
    LearnedTable,
    ObservedPath,
    PosteriorValues,
    Samples,
    check_band_settings,
)
from monitor.exact.row_uses import RowUses, row_uses
from monitor.exact.verdict import resolve
from monitor.logic import Formula, print_formula
from monitor.logic.syntax import Goal, InterventionRef, Probability, Regret
from monitor.logic.traversal import goals_now, nested_goals, quantity_goals
from monitor.types.specs import BandSettings
from monitor.types.stream_events import PathPairs
from monitor.types.verdicts import NO_USES, Bands, RestsOn, Verdict

CARRIED = 0.9
"""`support` refers to the heaviest rows that together have this fraction of the total weight."""
SUGGESTIONS = 3
"""Maximum number of pairs to visit that a verdict names."""


class LearnedBands:
    """Bands of verdicts on one learned model.

    Args:
        learned: the model.
        settings: settings of the credible band. Raises ConfigError if they are not allowed.
    """

    def __init__(self, learned: LearnedModel, settings: BandSettings) -> None:
        self.settings = check_band_settings(settings)
        self._learned, self._posterior = learned, PosteriorValues(learned, settings)

    def prepare(self, formula: Formula, path: PathPairs) -> None:
        """Draw the models and compute their value tables, so that the first verdict is not delayed."""
        for goal in quantity_goals(formula):
            try:
                self._samples(goal, ObservedPath(path, terminated=False))
            except LimitError:
                return  # each verdict reports it

    def added(
        self,
        verdict: Verdict,
        formula: Formula,
        path: PathPairs,
        *,
        terminated: bool = False,
        acted: Sequence[str] = (),
        before: Sequence[float] = (),
    ) -> Verdict:
        """Return an exact verdict on `path` with its credible band, its support and the pairs to visit.

        `acted`, `before`: as in `ObservedPath`. Numbers that are too costly to compute are left out, and `bands.reason`
        says why.
        """
        goals = quantity_goals(formula)
        if not goals or verdict.method != "exact" or not verdict.quantities:
            return verdict
        reasons: list[str] = []
        observed = ObservedPath(path, terminated, acted, before)
        settings = self.settings
        credible = self._credible(goals, observed, reasons)
        uses = self._uses(goals, observed, reasons)
        if credible is not None:
            effect = credible[1].minus(credible[0]) if isinstance(formula, Regret) else None
            now = self._credible(list(goals_now(formula) or ()), observed, reasons)
            verdict = with_credible(verdict, formula, credible, effect, now, settings.level)
        if uses is not None:
            verdict = _with_support(verdict, formula, uses)
        return self.described(verdict, reasons)

    def described(self, verdict: Verdict, reasons: Sequence[str]) -> Verdict:
        """Return a verdict that says how its bands are computed. `reasons`: why some of them are missing."""
        how, settings = verdict.bands or Bands(), self.settings
        how = replace(how, draws=settings.draws, seed=settings.seed, level=settings.level, doubt=settings.doubt)
        return replace(verdict, bands=missing(how, reasons))

    def uses(self, formula: Formula, path: PathPairs, *, terminated: bool = False) -> list[RowUses]:
        """Return the uses of rows by all goals of a formula on `path`; empty if they are not counted."""
        found = self._uses(quantity_goals(formula), ObservedPath(path, terminated), [])
        return [] if found is None else [part for each in found for part in each.uses]

    def _credible(self, goals: list[Goal], observed: ObservedPath, reasons: list[str]) -> list[Samples] | None:
        """Return the values of each goal over the posterior models."""
        try:
            return [self._samples(goal, observed) for goal in goals]
        except LimitError as error:
            reasons.append(f"no credible band: {error}")
            return None

    def _samples(self, goal: Goal, observed: ObservedPath) -> Samples:
        first = resolve(goal.world.offset, len(observed.path))[1]
        values = self._posterior.values(goal.world.change, goal.measure, observed, first)
        if goal.world.baseline is not None:
            return values.minus(self._posterior.values(goal.world.baseline, goal.measure, observed, first))
        return values

    def _uses(self, goals: list[Goal], observed: ObservedPath, reasons: list[str]) -> list[_GoalUses] | None:
        """Return the uses of rows by each goal."""
        if any(isinstance(goal.measure, Probability) and any(nested_goals(goal.measure.path)) for goal in goals):
            reasons.append("no support: a quantity is nested in another")
            return None
        firsts = [resolve(goal.world.offset, len(observed.path))[1] for goal in goals]
        try:
            return [self._of_goal(goal, observed.since(first)) for goal, first in zip(goals, firsts, strict=True)]
        except LimitError as error:
            reasons.append(f"no support: {error}")
            return None

    def _of_goal(self, goal: Goal, since: ObservedPath) -> _GoalUses:
        uses = self._in_world(goal.world.change, goal, since)
        basis = basis_of(uses)
        if goal.world.baseline is None:
            return _GoalUses([uses], basis)
        base = self._in_world(goal.world.baseline, goal, since)
        if base.model is not uses.model:
            return _GoalUses([uses, base], basis)
        uses.add(base, sign=-1.0)
        return _GoalUses([uses], basis)

    def _in_world(self, change: InterventionRef, goal: Goal, since: ObservedPath) -> RowUses:
        if not isinstance(self._learned, LearnedTable):
            raise LimitError(NO_USES.removeprefix("no support: "))
        if change.decides:
            raise LimitError(f"rows that {change.name} uses are not counted")
        path, terminated, acted, _ = since
        evaluators = self._learned.evaluators
        end = path[-1][0] if terminated and not evaluators.stays(path[-1][0]) else None
        nominal = evaluators.nominal(end, until=len(path) - 1, acted=acted)
        world = CounterfactualWorld.at(path, 0, nominal, evaluators.intervention(change, end), evaluators.rows)
        if evaluators.constant(goal.measure) is not None:
            return RowUses.none_of(world.law.dynamics)
        return row_uses(world, evaluators.value_table(world.law, goal.measure), goal.measure)


class _GoalUses(NamedTuple):
    """Uses of rows by a goal: one `RowUses` for each model.

    `basis`: recorded support of the goal's value in the goal's first world.
    """

    uses: list[RowUses]
    basis: RestsOn | None


def with_credible(  # noqa: PLR0917 - a verdict, what it answers, and its bands
    verdict: Verdict,
    formula: Formula,
    credible: Sequence[Samples],
    effect: Samples | None,
    now: Sequence[Samples] | None,
    level: float,
) -> Verdict:
    """Return the verdict with credible bands at `level`.

    Values over drawn models: `credible` of each goal, `effect` of the effect of `regret`, `now` of `goals_now`.
    """
    ends = (*now[0].band(level), *now[1].band(level)) if now else None
    if not credible:
        return replace(verdict, credible_now=ends)
    bands = [values.band(level) for values in credible]
    index = goal_numbers(verdict, quantity_goals(formula))
    quantities = tuple(replace(quantity, credible=bands[index[quantity.text]]) for quantity in verdict.quantities)
    return replace(
        verdict,
        quantities=quantities,
        credible=quantities[-1].credible if len(bands) == 1 or isinstance(formula, Regret) else None,
        effect_credible=None if effect is None else effect.band(level),
        credible_now=ends,
    )


def _with_support(verdict: Verdict, formula: Formula, found: list[_GoalUses]) -> Verdict:
    """Return the verdict with the recorded support of each goal, and the pairs to visit."""
    supports = [support_of(each.uses) for each in found]
    index = goal_numbers(verdict, quantity_goals(formula))
    numbered = [(quantity, index[quantity.text]) for quantity in verdict.quantities]
    return replace(
        verdict,
        quantities=tuple(replace(each, support=supports[n], rests_on=found[n].basis) for each, n in numbered),
        support=min((support for support in supports if support is not None), default=None),
        to_visit=to_visit([part for each in found for part in each.uses]),
    )


def goal_numbers(verdict: Verdict, goals: Sequence[Goal]) -> dict[str, int]:
    """Return the text of each quantity -> the number of its goal."""
    if len(goals) == 1:
        return {quantity.text: 0 for quantity in verdict.quantities}
    return {print_formula(goal): number for number, goal in reversed([*enumerate(goals)])}


def missing(how: Bands, reasons: Sequence[str]) -> Bands:
    """Return the description of bands, with further reasons why something is missing."""
    return replace(how, reason="; ".join([*([how.reason] if how.reason else []), *reasons]))


def support_of(uses: Iterable[RowUses]) -> int | None:
    """Return the smallest number of records among the heaviest rows; None if no uncertain row has weight.

    The heaviest rows together have 90 % of the weight. Among equal weights, the row with fewer records comes first.
    """
    parts = [UncertainRows.of(part) for part in uses]
    weights = np.concatenate([part.weights for part in parts]) if parts else np.zeros(0)
    total = weights.sum()
    if not total > 0.0:
        return None
    draws = np.concatenate([part.draws for part in parts])
    fractions = np.round(weights / total, DIGITS)
    order = np.lexsort((draws, -fractions))
    count = int(np.searchsorted(np.cumsum(fractions[order]), CARRIED - 10.0**-DIGITS)) + 1
    return int(draws[order[:count]].min())


def to_visit(uses: Iterable[RowUses]) -> tuple[tuple[int, int], ...]:
    """Return the pairs (state, action) whose rows contribute most to the variance of the value, the largest first."""
    scores: dict[tuple[int, int], float] = {}
    for part in uses:
        if part.model.counts is None:
            continue
        for row, variance in _variances(part):
            pair = divmod(row, part.model.actions)
            scores[pair] = scores.get(pair, 0.0) + variance
    total = sum(scores.values())
    ranked = sorted((-round(score / total, DIGITS), pair) for pair, score in scores.items() if score > 0.0)
    return tuple(pair for score, pair in ranked[:SUGGESTIONS] if score < 0.0)


def _variances(uses: RowUses) -> Iterator[tuple[int, float]]:
    """Yield each row that more data could narrow, with its part of the value's posterior variance (first order).

    A row without data contributes the largest variance that is possible in the interval of its values.
    """
    model, counts = uses.model, uses.model.counts
    assert counts is not None
    found, sizes = UncertainRows.of(uses), np.diff(model.indptr)
    of = np.repeat(np.arange(len(sizes)), sizes)
    mean, square = (np.bincount(of, model.probabilities * moved, len(sizes)) for moved in (uses.moves, uses.moves**2))
    learned = np.maximum(square - mean**2, 0.0)[found.rows]
    widest = np.where(found.never, (uses.spread[found.rows] / 2.0) ** 2, learned)
    yield from zip(found.rows.tolist(), (widest / (found.draws + counts.prior + 1.0)).tolist(), strict=True)
