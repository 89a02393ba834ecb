"""Sample size (Hoeffding) and interval (Clopper-Pearson) for the estimates of `=?` formulas.

The number of samples is fixed in advance, and the level 1 - alpha is for one look. For repeated looks, see
`monitor.statistics.anytime`.

Source: Kazemi & Paoletti (arXiv 2212.08712), Appendix "Decision procedures", "Quantitative Properties"; C. Clopper and
E. Pearson (1934); W. Hoeffding, *Probability inequalities for sums of bounded random variables* (1963).
"""

from __future__ import annotations

import math

from monitor.errors import ConfigError
from monitor.statistics.strength import in_open_unit


def clopper_pearson(successes: int, samples: int, alpha: float) -> tuple[float, float]:
    """Return the confidence interval, of level at least 1 - alpha, of a probability. It inverts the binomial test.

    >>> tuple(round(end, 4) for end in clopper_pearson(0, 10, 0.05))
    (0.0, 0.3085)
    """
    in_open_unit(alpha, "alpha")
    if not 0 <= successes <= samples or samples < 1:
        raise ConfigError(f"{successes} successes among {samples} samples: counts must be in order, and one at least")
    from scipy.special import betaincinv  # noqa: PLC0415  (a heavy import, needed here only)

    failures = samples - successes
    low = float(betaincinv(successes, failures + 1.0, alpha / 2.0)) if successes else 0.0
    high = float(betaincinv(successes + 1.0, failures, 1.0 - alpha / 2.0)) if failures else 1.0
    return low, high


def sample_size(delta: float, alpha: float, width: float = 1.0, *, effect: bool = False) -> int:
    """Return the number of samples n with P(|mean of n - expectation| >= delta) <= alpha.

    `width`: width of the interval that contains all values. `effect`: whether samples are differences of two such
    values, which doubles the width. Raises ConfigError unless `delta` > 0, `width` > 0, `alpha` is in (0, 1), and n is
    finite as a float.

    >>> sample_size(0.02, 0.05), sample_size(0.02, 0.05, effect=True)
    (4612, 18445)
    """
    in_open_unit(alpha, "alpha")
    _positive(delta, "delta")
    _positive(width, "width")
    width = 2.0 * width if effect else width
    needed = (width / delta) * (width / delta) * math.log(2.0 / alpha) / 2.0
    if needed == math.inf:
        raise ConfigError(f"delta {delta} with a width of {width} needs too many samples; choose a larger delta")
    return max(1, math.ceil(needed))


def error_bound(samples: int, alpha: float, width: float = 1.0, *, effect: bool = False) -> float:
    """Return the delta that `samples` (1 or more) samples achieve. This is the inverse of `sample_size`."""
    in_open_unit(alpha, "alpha")
    _positive(samples, "samples")
    _positive(width, "width")
    return (2.0 * width if effect else width) * math.sqrt(math.log(2.0 / alpha) / (2.0 * samples))


def _positive(value: float, name: str) -> None:
    if not 0.0 < value < math.inf:
        raise ConfigError(f"{name} must be a positive number, not {value}")
