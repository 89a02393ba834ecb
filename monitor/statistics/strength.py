"""Error rates of a test, and the two thresholds at which a sequential test stops.

Source: Kazemi & Paoletti (arXiv 2212.08712), Appendix "Decision procedures"; A. Wald, *Sequential Analysis* (1947).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from monitor.arrays import Bools, Floats, Ints, Signs
from monitor.errors import ConfigError


def in_open_unit(value: float, name: str) -> None:
    """Raise ConfigError, with the name of the number, unless the number is in (0, 1)."""
    if not 0.0 < value < 1.0:
        raise ConfigError(f"{name} must lie strictly between 0 and 1, not {value}")


@dataclass(frozen=True)
class Strength:
    """Strength <alpha, beta> of a test. alpha: P(reject | true); beta: P(accept | false).

    Raises ConfigError unless both are in (0, 1) and their sum is below 1. With a sum of 1 or more, tossing a coin would
    be a valid test.

    Wald's thresholds A = (1 - beta)/alpha and B = beta/(1 - alpha) are approximate. The actual rates alpha', beta'
    satisfy alpha' <= alpha/(1 - beta), beta' <= beta/(1 - alpha) and alpha' + beta' <= alpha + beta. So at most one of
    the two rates exceeds its nominal rate, by at most the factor 1/(1 - beta) or 1/(1 - alpha). Usually the ratio
    exceeds a threshold when the test stops, so both rates are below their nominal rates.
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
    """Return samples and side, as `first_decision` does, of tests that end when the log ratio reaches a threshold.

    `log_ratio` [..., N]: log f(x|H1)/f(x|H0) after each sample; NaN while there is no ratio.
    """
    return first_decision((log_ratio <= strength.lower) | (log_ratio >= strength.upper), log_ratio < 0.0)


def first_decision(decided: Bools, holds: Bools) -> tuple[Ints, Signs]:
    """Return for each test the number of samples used [...] (N if undecided) and the side [...].

    The side is 1 if the hypothesis holds, -1 if it does not, 0 if the test is undecided. `decided` [..., N]: whether
    the test is decided after each sample. `holds` [..., N]: whether the hypothesis holds, if the test is decided there.
    """
    count = decided.shape[-1]
    if not count:
        return np.zeros(decided.shape[:-1], dtype=np.int64), np.zeros(decided.shape[:-1], dtype=np.int8)
    found, at = decided.any(axis=-1), decided.argmax(axis=-1)
    true = np.take_along_axis(holds, at[..., None], axis=-1)[..., 0]
    samples = np.where(found, at + 1, count).astype(np.int64)
    return samples, np.where(found, np.where(true, 1, -1), 0).astype(np.int8)
