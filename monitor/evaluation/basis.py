"""Recorded support of a value on a learned model: the recordings that it rests on (`RestsOn`).

Definitions: docs/semantics/learned-models.md, section 13.6.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np

from monitor.arrays import AnyArray, Floats, Ints
from monitor.causal import CounterfactualWorld
from monitor.exact.evaluators import Evaluators
from monitor.exact.row_uses import RowUses, row_uses
from monitor.logic import Formula
from monitor.logic.printer import print_change
from monitor.logic.syntax import InterventionRef, Measure, Probability, Regret
from monitor.logic.traversal import handover_goal, nested_goals, quantity_goals
from monitor.model import MDP
from monitor.model.unknown import never_recorded
from monitor.types.verdicts import RestsOn

FEW: Final = 5
"""Number of recorded steps below which a pair (state, action) counts as rarely recorded."""
DIGITS: Final = 9
"""Number of decimals to which fractions of a total are compared. Equal weights may differ by rounding errors."""


class UncertainRows(NamedTuple):
    """The rows of a learned model that an answer uses and that more data could narrow.

    `rows` [n]: numbers of the rows. `draws` [n]: recorded steps of each row. `weights` [n]: expected uses of each row.
    `never` [n]: whether each row was never recorded.
    """

    rows: Ints
    draws: Ints
    weights: Floats
    never: AnyArray

    @classmethod
    def of(cls, uses: RowUses) -> UncertainRows:
        """Return the rows of positive weight that are learned or have no data; empty if nothing is learned."""
        model, counts = uses.model, uses.model.counts
        if counts is None:
            nothing = np.zeros(0, dtype=np.int64)
            return cls(nothing, nothing, np.zeros(0), np.zeros(0, dtype=np.bool_))
        never = never_recorded(model)
        rows = np.flatnonzero((never | (counts.order > 0)) & (uses.weights > 0.0))
        return cls(rows, counts.draws(model.indptr)[rows], uses.weights[rows], never[rows])


def basis_of(uses: RowUses) -> RestsOn | None:
    """Return the recorded support of a value, from the uses of rows in its world; None if it uses no learned row."""
    found = UncertainRows.of(uses)
    total = found.weights.sum()
    if not total > 0.0:
        return None
    used = np.round(found.weights / total, DIGITS) > 0.0
    return RestsOn(
        steps=int(found.draws[used].sum()),
        rare=float(found.weights[found.draws < FEW].sum() / total),
        never=min(float(found.weights[found.never].sum()), 1.0),
    )


def basis_at_start(evaluators: Evaluators, formula: Formula) -> dict[str, RestsOn]:
    """Return intervention as text -> recorded support of the values of a formula, before anything is observed.

    For `regret` and `handover`, the result has the support of the value under the policy to hand over to. For other
    formulas, it has the support of the value of each quantity in its first world. The values start where recorded
    episodes start, or in any recorded state if the starts are unknown. Decisions made for the goal, nested quantities,
    and worlds without learned rows are left out.
    """
    found: dict[str, RestsOn] = {}
    for change, measure in compared(formula):
        if change.decides or (isinstance(measure, Probability) and any(nested_goals(measure.path))):
            continue
        nominal = evaluators.nominal()
        world = CounterfactualWorld((), nominal, nominal.under(evaluators.intervention(change, None)), evaluators.rows)
        model = world.law.dynamics
        if model.counts is not None and evaluators.constant(measure) is None:
            uses = row_uses(world, evaluators.value_table(world.law, measure), measure, _starts(model))
            basis = basis_of(uses)
            if basis is not None:
                found.setdefault(print_change(change), basis)
    return found


def compared(formula: Formula) -> Iterator[tuple[InterventionRef, Measure]]:
    """Yield the interventions whose values a formula compares, each with its measure.

    For `regret` and `handover` this is the policy to hand over to; for other formulas, the first world of each
    quantity.
    """
    handed = handover_goal(formula)
    if handed is not None:
        yield handed.world.change, handed.measure
        return
    for goal in quantity_goals(formula)[isinstance(formula, Regret) :]:
        yield goal.world.change, goal.measure


def _starts(model: MDP) -> Floats:
    """Return the distribution [S] of the first state."""
    if model.initial is not None:
        return model.initial
    assert model.counts is not None
    draws = model.counts.draws(model.indptr).reshape(model.states, model.actions).sum(axis=1)
    return np.asarray(draws / draws.sum() if draws.any() else np.full(model.states, 1.0 / model.states))
