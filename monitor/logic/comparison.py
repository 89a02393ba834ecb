"""The value of a goal as a number: a probability lies in [0, 1], and values that differ by rounding only are equal."""

from __future__ import annotations


def passes(value: float, comparison: str, bound: float) -> bool:
    """Return whether `value` passes; |value - bound| <= 1e-12 max(1, |bound|) is equality.

    See docs/semantics.md, section 5.5.
    """
    if abs(value - bound) <= 1e-12 * max(1.0, abs(bound)):
        return comparison in ("<=", ">=")
    return value < bound if comparison in ("<", "<=") else value > bound


def probability(value: float) -> float:
    """Return a computed probability, clipped to [0, 1]: rounding may leave it outside."""
    return min(max(value, 0.0), 1.0)
