"""Confidence intervals for a number of samples fixed in advance. The level 1 - alpha is for one look, not for many.

Source: Kazemi & Paoletti (arXiv 2212.08712), Appendix "Decision procedures", "Quantitative Properties"; C. Clopper and
E. Pearson (1934). For repeated looks, see `monitor.statistics.anytime`.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from monitor.errors import ConfigError
from monitor.statistics.samples import sample_array
from monitor.statistics.strength import in_open_unit


def normal_applies(successes: int, samples: int) -> bool:
    """Return whether the normal approximation applies: at least 10 successes and 10 failures were observed.

    The paper requires that they are expected.
    """
    _counts(successes, samples)
    return successes >= 10 and samples - successes >= 10


def normal(successes: int, samples: int, alpha: float) -> tuple[float, float]:
    """Return the normal-approximation (Wald) interval of a probability, within [0, 1].

    The interval is useless for 0 successes, or if all samples are successes.

    >>> tuple(round(end, 4) for end in normal(90, 100, 0.05))
    (0.8412, 0.9588)
    """
    in_open_unit(alpha, "alpha")
    _counts(successes, samples)
    from scipy.special import ndtri  # noqa: PLC0415  (a heavy import, needed here only)

    rate = successes / samples
    half = -float(ndtri(alpha / 2.0)) * math.sqrt(rate * (1.0 - rate) / samples)
    return max(rate - half, 0.0), min(rate + half, 1.0)


def clopper_pearson(successes: int, samples: int, alpha: float) -> tuple[float, float]:
    """Return the interval of a probability by inversion of the binomial test; its coverage is at least 1 - alpha.

    >>> tuple(round(end, 4) for end in clopper_pearson(0, 10, 0.05))
    (0.0, 0.3085)
    """
    in_open_unit(alpha, "alpha")
    _counts(successes, samples)
    from scipy.special import betaincinv  # noqa: PLC0415  (likewise)

    failures = samples - successes
    low = float(betaincinv(successes, failures + 1.0, alpha / 2.0)) if successes else 0.0
    high = float(betaincinv(successes + 1.0, failures, 1.0 - alpha / 2.0)) if failures else 1.0
    return low, high


def student(values: ArrayLike, alpha: float) -> tuple[float, float]:
    """Return the t interval of a mean from values [N], N >= 2. It is exact for normal values, asymptotic for others.

    If all values are equal, the interval has width 0, which proves nothing; see `EqualOutcome`.
    """
    in_open_unit(alpha, "alpha")
    seen = sample_array(values)
    if seen.ndim != 1 or seen.size < 2:
        raise ConfigError(f"a t interval needs at least two values in one row, not shape {seen.shape}")
    from scipy.special import stdtrit  # noqa: PLC0415  (likewise)

    mean = float(seen.mean())
    half = -float(stdtrit(seen.size - 1, alpha / 2.0)) * float(np.std(seen, ddof=1)) / math.sqrt(seen.size)
    return mean - half, mean + half


def _counts(successes: int, samples: int) -> None:
    if not 0 <= successes <= samples or samples < 1:
        raise ConfigError(f"{successes} successes among {samples} samples: counts must be in order, and one at least")
