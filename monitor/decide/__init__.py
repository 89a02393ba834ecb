"""Decide formulas: exact answers, bounds over causal models, verdicts."""

from monitor.decide.api import check, check_many, tables
from monitor.decide.checker import Checker
from monitor.decide.everywhere import values
from monitor.decide.names import largest_offset, validate
from monitor.decide.track import Track

__all__ = ["Checker", "Track", "check", "check_many", "largest_offset", "tables", "validate", "values"]
