"""Decide formulas: exact answers, bounds over causal models, verdicts."""

from monitor.check.checker import Checker, check, tables
from monitor.check.names import largest_offset, validate

__all__ = ["Checker", "check", "largest_offset", "tables", "validate"]
