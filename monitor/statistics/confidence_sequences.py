"""Confidence sequences for proportions: intervals that are valid at all times at once, for any number of looks.

`proportion_interval` inverts the mixture martingale of Robbins (1970) with a Beta(1/2, 1/2) mixture. Under the true p,
for c successes in n draws,

    M_n = B(c + 1/2, n - c + 1/2) / (B(1/2, 1/2) p^c (1 - p)^(n - c))

is a martingale that starts at 1. By Ville's inequality, the probability that it reaches 1 / alpha at any time is at
most alpha. The interval contains the p for which M_n is below this limit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from monitor.arrays import Floats, Ints

HALVINGS = 60
"""Steps of the bisection: an interval of length 1 becomes shorter than the spacing of floats near 1."""
SHARES = 2.11
"""An upper bound of the sum over n >= 1 of 1 / ((n + 1) ln(n + 1)^2), which is 2.10974..."""


def share(rank: Ints) -> Floats:
    """Return the fraction [n] of an error probability for each event of rank 1, 2, ...; all fractions sum to below 1.

    The number of events need not be known, because 1 / (n ln(n)^2) decreases about as slowly as a summable series can.
    """
    follows = rank + 1.0
    fraction: Floats = 1.0 / (SHARES * follows * np.log(follows) ** 2)
    return fraction


def proportion_interval(successes: Ints, draws: Ints, alpha: Floats) -> tuple[Floats, Floats]:
    """Return lower and upper bounds [n] of n proportions, each valid at all times at once with probability 1 - alpha.

    Args:
        successes: [n] number of successes.
        draws: [n] number of draws; without draws the bounds are 0 and 1.
        alpha: [n] probability that the interval misses the proportion at any time, in (0, 1).
    """
    from scipy.special import betaln, xlog1py, xlogy  # noqa: PLC0415  (a heavy import, needed here only)

    constant = betaln(successes + 0.5, draws - successes + 0.5) - betaln(0.5, 0.5)
    allowed = -np.log(alpha)

    def excess(p: Floats) -> Floats:
        """Return log M_n minus its limit. It is convex in p, with its minimum at the observed proportion."""
        gain: Floats = constant - xlogy(successes, p) - xlog1py(draws - successes, -p) - allowed
        return gain

    centre = successes / np.maximum(draws, 1)
    low = _outermost(excess, np.zeros(len(centre)), centre)
    high = _outermost(excess, np.ones(len(centre)), np.where(draws > 0, centre, 1.0))
    return low, high


def _outermost(excess: Any, outside: Floats, inside: Floats) -> Floats:  # noqa: ANN401 - a function of arrays
    """Return the boundary [n] between `outside` [n], where M_n may be too large, and `inside` [n], rounded outward."""
    outer, inner = outside, inside
    for _ in range(HALVINGS):
        middle = (outer + inner) / 2
        beyond = excess(middle) > 0
        outer, inner = np.where(beyond, middle, outer), np.where(beyond, inner, middle)
    kept: Floats = np.where(excess(outside) > 0, outer, outside)
    return kept


def unseen_mass(draws: npt.NDArray[np.generic], alpha: Floats) -> Floats:
    """Return upper bounds [n] of the mass of a fixed set that no draw has hit, valid at all times at once.

    `draws` [n]: number of draws; without draws the bound is 1. k draws miss a set of mass m with probability (1 - m)^k.
    The bound 1 - alpha^(1/k) decreases in k. Let k be the first number of draws at which the bound is below m. The
    bound is wrong at some time only if the first k draws all miss the set. The probability of this is below alpha.
    """
    with np.errstate(divide="ignore"):
        bound: Floats = -np.expm1(np.log(alpha) / draws)
    return bound
