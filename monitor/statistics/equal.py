"""Test that all samples are equal, which a t statistic cannot make: it has no standard error to divide by.

Two interventions that agree on every sampled path give differences that are all 0; others may give differences that
are all c.

Source: Kazemi & Paoletti (arXiv 2212.08712), Appendix "Decision procedures". They run "a dedicated SPRT to test that
the probability of obtaining equal outcomes is equal to 1" for c = 0. Here c may be any number.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from monitor.statistics.strength import Strength, in_open_unit

TIE = 1e-12
"""Numbers this close, relative to the larger of 1 and the bound, are equal in every comparison."""


def same(a: float, b: float) -> bool:
    """Return whether a equals the bound b, up to rounding."""
    return abs(a - b) <= TIE * max(1.0, abs(b))


def meets(value: float, theta: float, *, strict: bool) -> bool:
    """Return whether value >= theta, or > theta if strict; a tie is equality."""
    return not strict if same(value, theta) else value > theta


@dataclass(frozen=True)
class EqualOutcome:
    """H0: all samples equal one c, against H1: no c has a probability above 1 - delta.

    This is the Bernoulli test of `P >= 1`: the first sample names c and does not count, each one that equals it adds
    log(1 - delta) to the log ratio, and the first that differs ends the test. So only their number matters, `needed`.
    All equal though no value has a probability above 1 - delta: at most (1 - delta)^(needed - 1) <= beta/(1 - alpha).
    Different though all are equal: never. `delta` in (0, 1), else ConfigError.

    >>> EqualOutcome(0.01, Strength(0.05, 0.05)).needed
    294
    """

    delta: float
    strength: Strength

    def __post_init__(self) -> None:
        in_open_unit(self.delta, "delta")

    @property
    def needed(self) -> int:
        """Number of equal samples, the first included, that decide that all are."""
        return 1 + math.ceil(self.strength.lower / math.log1p(-self.delta))
