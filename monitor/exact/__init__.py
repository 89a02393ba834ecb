"""Evaluation of formulas: exact values, bounds over causal models, and verdicts."""

from monitor.exact.all_states import values
from monitor.exact.checker import Checker
from monitor.exact.inputs import tables
from monitor.exact.names import validate
from monitor.exact.verdict import IncrementalCheck

__all__ = ["Checker", "IncrementalCheck", "tables", "validate", "values"]
