"""Error rates of a test, and the two thresholds at which a sequential test stops.

Source: Kazemi & Paoletti (arXiv 2212.08712), Appendix "Decision procedures"; A. Wald, *Sequential Analysis* (1947).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from monitor.arrays import Floats, Ints, Signs
from monitor.errors import ConfigError


def in_open_unit(value: float, name: str) -> None:
    """Raise ConfigError, with the name of the number, unless the number is in (0, 1)."""
    if not 0.0 < value < 1.0:
        raise ConfigError(f"{name} must lie strictly between 0 and 1, not {value}")


@dataclass(frozen=True)
class Strength:
    """Strength <alpha, beta> of a test. alpha: P(reject | true); beta: P(accept | false).

    Raises ConfigError unless both are in (0, 1) and their sum is below 1. With a sum of 1 or more, tossing a coin would
    be enough.

    Wald's thresholds A = (1 - beta)/alpha and B = beta/(1 - alpha) are approximate. The actual rates alpha', beta'
    satisfy alpha' <= alpha/(1 - beta), beta' <= beta/(1 - alpha) and alpha' + beta' <= alpha + beta. So at most one of
    them exceeds its nominal rate, by at most this factor. Usually the ratio oversteps a threshold, and both rates are
    smaller than nominal.
    """

    alpha: float
    beta: float

    def __post_init__(self) -> None:
        in_open_unit(self.alpha, "alpha")
        in_open_unit(self.beta, "beta")
        if self.alpha + self.beta >= 1.0:
            raise ConfigError(f"alpha + beta must be below 1, not {self.alpha} + {self.beta}")

    @property
    def negated(self) -> Strength:
        """Strength that a formula needs so that its negation has this strength."""
        return Strength(self.beta, self.alpha)

    @property
    def guarded(self) -> Strength:
        """<alpha (1 - beta), beta (1 - alpha)>: with its thresholds, Wald's test exceeds neither alpha nor beta.

        This follows from the factors above: alpha (1 - beta) / (1 - beta (1 - alpha)) <= alpha. The proof for beta is
        the same.
        """
        return Strength(self.alpha * (1.0 - self.beta), self.beta * (1.0 - self.alpha))

    @property
    def lower(self) -> float:
        """Log B. If the log ratio is at most log B, H0 (the formula is true) is accepted."""
        return math.log(self.beta) - math.log1p(-self.alpha)

    @property
    def upper(self) -> float:
        """Log A. If the log ratio is at least log A, H1 (the formula is false) is accepted."""
        return math.log1p(-self.beta) - math.log(self.alpha)


def first_crossing(log_ratio: Floats, strength: Strength) -> tuple[Ints, Signs]:
    """Find the first sample at which log f(x|H1)/f(x|H0) [..., N] reaches a threshold; NaN means no ratio yet.

    Return the index of this sample [...] (N if there is none) and the side [...]: 1 for H0, -1 for H1, 0 if undecided.
    """
    if not log_ratio.shape[-1]:
        return np.zeros(log_ratio.shape[:-1], dtype=np.int64), np.zeros(log_ratio.shape[:-1], dtype=np.int8)
    crossed = (log_ratio <= strength.lower) | (log_ratio >= strength.upper)
    found = crossed.any(axis=-1)
    index = np.where(found, crossed.argmax(axis=-1), log_ratio.shape[-1]).astype(np.int64)
    last = np.minimum(index, log_ratio.shape[-1] - 1)
    there = np.take_along_axis(log_ratio, last[..., None], axis=-1)[..., 0]
    return index, np.where(found, np.where(there < 0.0, 1, -1), 0).astype(np.int8)


def truth(side: Any) -> bool | None:  # noqa: ANN401  (one number of an array, whatever NumPy calls it)
    """Return the truth of the formula for a side; None if undecided."""
    return None if side == 0 else bool(side > 0)
