"""Decide formulas: exact answers, bounds over causal models, verdicts."""

from monitor.check.checker import Checker, check
from monitor.check.names import validate

__all__ = ["Checker", "check", "validate"]
