"""Test that all samples are equal. A t statistic cannot test this, because its standard error would be 0.

For example, if two interventions have the same outcome on every sampled path, all differences are 0. All differences
may also equal a number c other than 0.

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
    """Return whether value >= theta, or value > theta if strict. Values within rounding are equal."""
    return not strict if same(value, theta) else value > theta


@dataclass(frozen=True)
class EqualOutcome:
    """Test of H0: all samples equal one c, against H1: no c has a probability above 1 - delta.

    This is the Bernoulli test of `P >= 1`. The first sample defines c and is not counted. Each later sample that equals
    c adds log(1 - delta) to the log ratio. The first sample that differs ends the test. So H0 is accepted when the
    number of equal samples reaches `needed`. Under H1 this happens with probability at most
    (1 - delta)^(needed - 1) <= beta/(1 - alpha). Under H0 the test never rejects. Raises ConfigError unless `delta` is
    in (0, 1).

    >>> EqualOutcome(0.01, Strength(0.05, 0.05)).needed
    294
    """

    delta: float
    strength: Strength

    def __post_init__(self) -> None:
        in_open_unit(self.delta, "delta")

    @property
    def needed(self) -> int:
        """Number of equal samples, including the first, after which H0 is accepted."""
        return 1 + math.ceil(self.strength.lower / math.log1p(-self.delta))
