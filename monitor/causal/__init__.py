"""Causal inference on MDPs: counterfactual rows, laws and interventions, and the resulting world. No formulas."""

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
