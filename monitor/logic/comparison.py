"""Compare a goal's value with a bound, and clip a probability to [0, 1]; both allow for rounding errors."""

from __future__ import annotations


def passes(value: float, comparison: str, bound: float) -> bool:
    """Return whether `value` passes the comparison; |value - bound| <= 1e-12 max(1, |bound|) counts as equality.

    See docs/semantics/formulas.md, section 5.5.
    """
    if abs(value - bound) <= 1e-12 * max(1.0, abs(bound)):
        return comparison in ("<=", ">=")
    return value < bound if comparison in ("<", "<=") else value > bound


def probability(value: float) -> float:
    """Return a computed probability, clipped to [0, 1]. Rounding may have moved it outside this interval."""
    return min(max(value, 0.0), 1.0)
