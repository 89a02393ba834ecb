"""Tests of the sources of compiled modules, `MONITOR_UNCOMPILED=1 pytest`: what the interpreter warns of is no news."""

from __future__ import annotations

import os
import warnings

import pytest

NO_NEWS = (
    "the monitor is not compiled",
    "divide by zero encountered",
    "overflow encountered",
    "invalid value encountered",
)
"""Beginnings of warnings: that the sources run is what is wanted, and machine code computes on without a word."""
PURE = os.environ.get("MONITOR_UNCOMPILED") == "1"

if PURE:  # the packages' own conftest.py files, which come next, import what warns
    for words in NO_NEWS:
        warnings.filterwarnings("ignore", words, RuntimeWarning)


def pytest_configure(config: pytest.Config) -> None:
    """Ignore these warnings; all others are errors (pyproject.toml)."""
    if PURE:
        for words in NO_NEWS:
            config.addinivalue_line("filterwarnings", f"ignore:{words}:RuntimeWarning")
