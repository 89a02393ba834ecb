"""Wealth of bets that may begin at any step.

The bet that begins at step t, with 2^k <= t < 2^(k+1), gets the fraction `1 / (2^k (k+1) (k+2))` of the initial wealth.
This part of the wealth is not bet before step t. All fractions sum to 1. Compiled.
"""

from __future__ import annotations


def part_of(step: int) -> float:
    """Return the initial wealth of the bet that begins at this step (>= 1).

    The parts of the steps t with 2^k <= t < 2^(k+1) sum to 1 / ((k + 1)(k + 2)).
    """
    k = _doublings(step)
    return 1.0 / ((k + 1) * (k + 2) << k)


def idle_after(steps: int) -> float:
    """Return the wealth that is not bet yet after `steps` steps: 1 minus the parts of these steps.

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
