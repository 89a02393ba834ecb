"""Sample sizes of estimates, fixed in advance (Hoeffding), for `=?` formulas.

Source: Kazemi & Paoletti (arXiv 2212.08712), Appendix "Decision procedures", "Quantitative Properties"; W. Hoeffding,
*Probability inequalities for sums of bounded random variables* (1963). The paper's range of a reward is one term short:
both ends of `C[a,b]` count, so it has b - a + 1 terms.
"""

from __future__ import annotations

import math

from monitor.errors import ConfigError
from monitor.statistics.strength import in_open_unit


def sample_size(delta: float, alpha: float, width: float = 1.0, *, effect: bool = False) -> int:
    """Return the number of samples n with P(|mean of n - expectation| >= delta) <= alpha.

    `width`: width of the interval that contains the samples. `effect`: whether samples are differences of two such
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
    """Return the delta that `samples` (1 or more) achieve: the inverse of `sample_size`."""
    in_open_unit(alpha, "alpha")
    _positive(samples, "samples")
    _positive(width, "width")
    return (2.0 * width if effect else width) * math.sqrt(math.log(2.0 / alpha) / (2.0 * samples))


def reward_width(first: int, last: int, smallest: float, largest: float) -> float:
    """Return the width of the interval of a reward `C[first,last]`: the number of terms times the range of one term.

    >>> reward_width(0, 9, -1.0, 1.0)
    20.0
    """
    if not (0 <= first <= last and smallest <= largest):
        raise ConfigError(f"C[{first},{last}] with rewards from {smallest} to {largest}: ends must be in order")
    return (last - first + 1) * (largest - smallest)


def _positive(value: float, name: str) -> None:
    if not 0.0 < value < math.inf:
        raise ConfigError(f"{name} must be a positive number, not {value}")
