"""Decide formulas: exact answers, bounds over causal models, verdicts."""

from monitor.decide.checker import Checker
from monitor.decide.everywhere import values
from monitor.decide.handed_in import tables
from monitor.decide.names import largest_offset, validate
from monitor.decide.track import Track

__all__ = ["Checker", "Track", "largest_offset", "tables", "validate", "values"]
