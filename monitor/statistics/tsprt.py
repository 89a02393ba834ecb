"""Sequential t-test of `mean >= theta`, for rewards and causal effects: real-valued samples of unknown variance.

Source: Kazemi & Paoletti (arXiv 2212.08712), Appendix "Decision procedures", "R >= theta formulas", after M. Schnuerch
and E. Erdfelder, *Controlling decision errors with minimal costs* (2020).

The paper uses the ratio of two noncentral t densities, f_T(-t | m-1, delta sqrt m) / f_T(t | m-1, delta sqrt m). This
ratio overflows in the libraries that have these densities (m = 500, t = 60). With a = delta sqrt(m) t /
sqrt(t^2 + m - 1), the ratio equals J(-a) / J(a), where J(a) is the integral of y^(m-1) exp(-(y-a)^2 / 2) over y > 0. In
terms of the samples x, a is delta times the sum of x - theta, divided by the root of the sum of (x - theta)^2. So there
is no division by a vanishing standard error and no cancellation of digits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from monitor.arrays import Floats, Ints, Signs
from monitor.errors import ConfigError
from monitor.statistics.equal import TIE, EqualOutcome, meets
from monitor.statistics.samples import sample_array
from monitor.statistics.strength import Strength, first_crossing

NODES = np.arange(-50.0, 9.0, 0.35)
"""Nodes of the integral in `log_moment`: distances from the peak, in units of the peak's width. To the left, the
integrand decreases like exp(m u), slowest for m = 2. To the right, it decreases faster than a Gaussian. The integrand
is analytic in a strip, so the sum converges exponentially."""
SLACK = 1e-9
"""Relative distance from the threshold within which rounding may put a bound on the wrong side of the threshold."""
ROWS = 1 << 12
"""Number of integrals computed at once: 6 MB for each of a few temporary arrays."""


@dataclass(frozen=True)
class TSprt:
    """Test of H0: mean >= theta + delta sigma against H1: mean <= theta - delta sigma.

    sigma is the unknown standard deviation of the samples. `delta`: in standard deviations. Raises ConfigError unless
    `delta` > 0 and `theta` is finite.

    A ratio exists only after two samples differ. Before that, only the test `equal` (if given) may decide: if the first
    `equal.needed` samples all equal some c, c is compared with theta. Only this comparison depends on `strict`
    (mean > theta). The two tests run in parallel, each at its own strength, so for nearly constant samples their error
    probabilities add up.

    The error rates are proven for normal samples, for which J(-a)/J(a) is the likelihood ratio of all t statistics so
    far. For other samples, such as the differences -1, 0, 1 of two outcomes, the error rates are nominal.
    """

    theta: float
    delta: float
    strength: Strength
    equal: EqualOutcome | None = None
    strict: bool = False

    def __post_init__(self) -> None:
        if not (0.0 < self.delta < np.inf and np.isfinite(self.theta)):
            raise ConfigError(f"delta must be positive and theta finite, not {self.delta} and {self.theta}")

    def log_ratio(self, samples: ArrayLike, total: ArrayLike, squares: ArrayLike) -> Floats:
        """Return log f(t|H1)/f(t|H0) after `samples` (2 or more), from the sums of x - theta and its square.

        Shapes broadcast. `squares` must be above 0, because at 0 all samples are theta and there is no ratio.
        """
        m, a = np.broadcast_arrays(
            np.asarray(samples, dtype=np.float64), self.delta * np.asarray(total) / np.sqrt(np.asarray(squares))
        )
        return log_moment(m, -a) - log_moment(m, a)

    def decide(self, values: ArrayLike) -> tuple[Ints, Signs]:
        """Run many tests at once on values [..., N]. Raises InputError if a value is not finite.

        Return samples and side, as `first_decision` does.
        """
        seen = sample_array(values)
        count, off = np.arange(1, seen.shape[-1] + 1), seen - self.theta
        total, squares = np.add.accumulate(off, axis=-1), np.add.accumulate(off * off, axis=-1)
        low, high = np.minimum.accumulate(seen, axis=-1), np.maximum.accumulate(seen, axis=-1)
        varied = high - low > TIE * np.maximum(1.0, np.abs(high))
        ratio = np.full(seen.shape, np.nan)
        counts = np.broadcast_to(count, seen.shape)[varied]
        ratio[varied] = self._sides(counts, total[varied], squares[varied])
        if self.equal is not None:  # after `needed` equal samples, set the ratio so that the test ends
            lasted = ~varied & (count >= self.equal.needed)
            good = np.vectorize(lambda c: meets(c, self.theta, strict=self.strict), otypes=[bool])(high[lasted])
            ratio[lasted] = np.where(good, -np.inf, np.inf)
        return first_crossing(ratio, self.strength)

    def _sides(self, m: Floats, total: Floats, squares: Floats) -> Floats:
        """Return the log ratio, or one of its bounds if both bounds are on the same side of the threshold.

        The decision is the same in both cases.
        """
        a = self.delta * total / np.sqrt(squares)
        threshold = np.where(a > 0.0, -self.strength.lower, self.strength.upper)
        least, most = log_bound(m - 1.0, a), log_bound(m, a)
        close = (most >= threshold * (1.0 - SLACK)) & (least <= threshold * (1.0 + SLACK))
        ratio = -np.copysign(least, a)
        ratio[close] = self.log_ratio(m[close], total[close], squares[close])
        return np.asarray(ratio)


def log_bound(n: ArrayLike, a: ArrayLike) -> Floats:
    """Return B(n), the integral of sqrt(x^2 + 4 n) over 0 < x < |a|. B(m - 1) <= |log J(-a) - log J(a)| <= B(m).

    Proof. Let I_n be the integral of y^n exp(-(y-x)^2 / 2), and r_n = I_n / I_(n-1). The derivative of log J at x is
    r_m - x. Integration by parts gives r_(n+1) = x + n / r_n, and r_n grows with n (Cauchy-Schwarz). So
    r_m^2 - x r_m - m <= 0 and r_m^2 - x r_m - (m-1) >= 0. It follows that r_m is between (x + sqrt(x^2 + 4n)) / 2 for
    n = m-1 and the same for n = m. Integrate this; the odd part vanishes. The two bounds differ by a fraction 1/(2m),
    so the integral itself is rarely needed.
    """
    size, root = np.abs(np.asarray(a, dtype=np.float64)), 2.0 * np.sqrt(np.asarray(n, dtype=np.float64))
    return np.asarray((size * np.hypot(size, root) + root * root * np.arcsinh(size / root)) / 2.0)


def log_moment(m: ArrayLike, a: ArrayLike) -> Floats:
    """Return log J(a) for m >= 2, where J(a) is the integral of y^(m-1) exp(-(y-a)^2 / 2) over y > 0.

    The relative error of J is below 1e-10.

    In u = log y the integrand has one peak, at y^2 - a y = m, of width 1/sqrt(y^2 + m). The trapezoidal rule is applied
    around this peak.
    """
    power, centre = np.broadcast_arrays(np.asarray(m, dtype=np.float64), np.asarray(a, dtype=np.float64))
    flat = [_log_moment(power.flat[i : i + ROWS], centre.flat[i : i + ROWS]) for i in range(0, power.size, ROWS)]
    return np.concatenate(flat).reshape(power.shape) if flat else np.empty(power.shape)


def _log_moment(m: Floats, a: Floats) -> Floats:
    """Return `log_moment` of two vectors of one length."""
    root = np.sqrt(a * a + 4.0 * m)
    peak = np.where(a > 0.0, a + root, 4.0 * m / (root - a)) / 2.0  # the second form does not cancel for a < 0
    width = 1.0 / np.sqrt(peak * peak + m)
    u = width[:, None] * NODES
    # Differences to the peak's exponent: m u - ((y-a)^2 - (peak-a)^2)/2 with y = peak e^u, and y - peak by expm1.
    rise = peak[:, None] * np.expm1(u)
    exponent = m[:, None] * u - rise * (rise / 2.0 + (peak - a)[:, None])
    log_sum = np.log(np.exp(exponent).sum(axis=-1) * width * (NODES[1] - NODES[0]))
    return np.asarray(m * np.log(peak) - (peak - a) ** 2 / 2.0 + log_sum)
