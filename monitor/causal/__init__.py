"""Causal inference on MDPs: the counterfactual row, laws and interventions, the world after one. Never formulas."""

from monitor.causal import row
from monitor.causal.law import Intervention, Law
from monitor.causal.row import Row, conditional_choices, counterfactual_row, extreme, row_bounds
from monitor.causal.world import CounterfactualWorld, RowCache
from monitor.uncompiled import warn_if_uncompiled

__all__ = [
    "CounterfactualWorld",
    "Intervention",
    "Law",
    "Row",
    "RowCache",
    "conditional_choices",
    "counterfactual_row",
    "extreme",
    "row_bounds",
]

warn_if_uncompiled(row)
