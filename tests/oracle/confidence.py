"""The confidence set of learned rows, by definition and slowly.

Row of rank r (order of first visits) gets delta share(r); its m-th discovered successor gets that times share(m). One
half bounds this successor's probability by the draws after its discovery, the other half the mass that was not yet seen
then by the draws until the next discovery. All bounds hold at once, after every draw, with probability 1 - delta.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import log
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq
from scipy.special import betaln, xlog1py, xlogy

Floats = npt.NDArray[np.float64]
Interval = tuple[float, float]
Box = dict[int, Interval]  # limits of the probability of each successor


def share(n: Any) -> Any:  # noqa: ANN401 - a number or an array
    """Return 1 / (2.11 (n + 1) ln(n + 1)^2); the sum over n >= 1 is below 1."""
    return 1 / (2.11 * (n + 1) * np.log(n + 1) ** 2)


def log_evidence(p: Any, successes: Any, draws: Any) -> Any:  # noqa: ANN401 - numbers or arrays
    """Return the logarithm of the evidence against p: the Beta(1/2, 1/2) mixture of likelihoods over that of p.

    For the true p the evidence is a nonnegative martingale from 1, so it ever reaches 1 / alpha with probability at
    most alpha (Ville).
    """
    failures = draws - successes
    mixture = betaln(0.5 + successes, 0.5 + failures) - betaln(0.5, 0.5)
    return mixture - xlogy(successes, p) - xlog1py(failures, -p)


def interval(successes: int, draws: int, alpha: float) -> Interval:
    """Return the p whose evidence is at most 1 / alpha; it falls up to successes / draws and rises from there."""
    if draws == 0:
        return 0.0, 1.0
    middle = successes / draws

    def excess(p: float) -> float:
        return float(log_evidence(p, successes, draws)) + log(alpha)

    low = 0.0 if successes == 0 else brentq(excess, 1e-300, middle, xtol=1e-300, rtol=1e-14, maxiter=2000)
    high = 1.0 if successes == draws else brentq(excess, middle, 1 - 2**-53, xtol=1e-15, rtol=1e-14, maxiter=2000)
    return float(low), float(high)


def unseen(fresh: Any, alpha: Any) -> Any:  # noqa: ANN401 - numbers or arrays
    """Return the largest mass that stays out of `fresh` draws with probability alpha or more."""
    return np.where(fresh == 0, 1.0, 1 - alpha ** (1 / np.maximum(fresh, 1)))


def row_box(seen: Mapping[int, tuple[int, int]], rank: int, elsewhere: int, delta: float) -> Box:
    """Return the limits of each successor of a learned row, and of `elsewhere` for those never seen.

    Args:
        seen: (visits, draws since the first) of each successor.
        rank: of the row, from 1.
        elsewhere: the state that stands for those never seen.
        delta: of all rows together.
    """
    discovered = sorted(seen, key=lambda k: -seen[k][1])
    box: Box = {}
    for m, k in enumerate(discovered, start=1):
        visits, since = seen[k]
        box[k] = interval(visits - 1, since, delta * share(rank) * share(m) / 2)
    alpha = delta * share(rank) * share(len(discovered)) / 2
    box[elsewhere] = 0.0, float(unseen(seen[discovered[-1]][1], alpha))
    return box
