"""The two tiers of the tests. `make test` runs the fast one (`TIER=fast`): tests that are not slow, with few examples.

`make test-all` then runs the rest (`TIER=rest`): tests that are slow, and those that are scaled again, with many
examples. Without TIER, pytest runs every test with many examples.

A test belongs in the slow tier if it takes seconds and a fault that it finds would usually fail a fast test too.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, Final

import pytest

__all__ = ["examples", "first", "heavy", "runs", "scaled", "slow"]

_TIER: Final = os.environ.get("TIER", "")
if _TIER not in {"", "fast", "rest"}:
    raise pytest.UsageError(f"TIER is {_TIER!r}; it must be fast, rest, or not set")

slow: Final = pytest.mark.slow
"""Marker: the test runs in `make test-all` only."""
scaled: Final = pytest.mark.scaled
"""Marker: the test calls `examples`, so `make test-all` runs it again with more. Tests of Hypothesis have it anyway."""
heavy: Final = pytest.mark.heavy
"""Marker: uncompiled, the test takes long and covers nothing that others do not, so it runs compiled only."""


def examples(few: int, many: int) -> int:
    """Return how many examples to try: `few` in the fast tier, else `many`."""
    return few if _TIER == "fast" else many


def first(count: int, cases: Iterable[Any]) -> list[Any]:
    """Return the cases of a parametrized test, of which all but the first `count` are slow."""
    return [case if place < count else pytest.param(case, marks=slow) for place, case in enumerate(cases)]


def runs(item: pytest.Item) -> bool:
    """Return whether the tier runs a test."""
    if os.environ.get("MONITOR_UNCOMPILED") == "1" and item.get_closest_marker("heavy") is not None:
        return False
    if _TIER == "fast":
        return item.get_closest_marker("slow") is None
    if _TIER == "rest":
        return any(item.get_closest_marker(name) is not None for name in ("slow", "scaled"))
    return True
