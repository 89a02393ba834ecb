"""Wealth of bets that may begin at any step.

The bet that begins at step t, 2^k <= t < 2^(k+1), gets the part `1 / (2^k (k+1) (k+2))` of the wealth, idle until then;
all parts sum to 1. Compiled.
"""

from __future__ import annotations


def part_of(step: int) -> float:
    """Return the wealth the bet of this step (>= 1) begins with; the k-th doubling sums to 1 / ((k + 1)(k + 2))."""
    k = _doublings(step)
    return 1.0 / ((k + 1) * (k + 2) << k)


def idle_after(steps: int) -> float:
    """Return the wealth that is idle after so many steps: 1 minus their parts.

    >>> from math import isclose
    >>> isclose(idle_after(1000), 1.0 - sum(map(part_of, range(1, 1001))))
    True
    """
    if steps == 0:
        return 1.0
    k = _doublings(steps)
    return 1.0 / (k + 1) - (steps - (1 << k) + 1) * part_of(steps)


def _doublings(step: int) -> int:
    """Return the k with 2^k <= step < 2^(k+1)."""
    k = 0
    while step >> (k + 1) > 0:
        k += 1
    return k
