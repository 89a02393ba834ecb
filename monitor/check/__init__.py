"""Decide formulas: exact answers, bounds over causal models, verdicts."""

from monitor.check.api import check, tables
from monitor.check.checker import Checker
from monitor.check.names import largest_offset, validate

__all__ = ["Checker", "check", "largest_offset", "tables", "validate"]
