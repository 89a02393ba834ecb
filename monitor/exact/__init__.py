"""Decide formulas: exact answers, bounds over causal models, verdicts."""

from monitor.exact.all_states import values
from monitor.exact.checker import Checker
from monitor.exact.inputs import tables
from monitor.exact.names import largest_offset, validate
from monitor.exact.verdict import IncrementalCheck

__all__ = ["Checker", "IncrementalCheck", "largest_offset", "tables", "validate", "values"]
