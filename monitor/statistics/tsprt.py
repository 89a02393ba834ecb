"""Sequential t-test of `mean >= theta`, on real-valued samples of unknown variance: rewards and causal effects.

Source: Kazemi & Paoletti (arXiv 2212.08712), Appendix "Decision procedures", "R >= theta formulas", after M. Schnuerch
and E. Erdfelder, *Controlling decision errors with minimal costs* (2020).

The paper's ratio of two noncentral t densities, f_T(-t | m-1, delta sqrt m) / f_T(t | m-1, delta sqrt m), overflows in
the libraries that have them (m = 500, t = 60). With a = delta sqrt(m) t / sqrt(t^2 + m - 1) it equals J(-a) / J(a),
where J(a) is the integral of y^(m-1) exp(-(y-a)^2 / 2) over y > 0. Written with the samples x, a is delta times the sum
of x - theta, divided by the root of the sum of (x - theta)^2. So nothing is divided by a vanishing standard error, and
no digits cancel.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from monitor.arrays import Floats, Ints, Signs
from monitor.errors import ConfigError
from monitor.statistics.equal import TIE, EqualOutcome, meets
from monitor.statistics.samples import running, sample_array
from monitor.statistics.strength import Strength, first_crossing, truth

NODES = np.arange(-50.0, 9.0, 0.35)
"""Nodes of `log_moment`, in widths from the peak. To the left it falls like exp(m u), slowest for
m = 2, to the right faster than a Gaussian. It is analytic in a strip, so the sum converges exponentially."""
SLACK = 1e-9
"""Relative distance from the threshold within which bounds may lie on the wrong side, by rounding."""
ROWS = 1 << 12
"""Integrals computed at once: 6 MB for each of a few temporaries."""


@dataclass(frozen=True)
class TSprtState:
    """State of a test. `total`, `squares`: sums of x - theta and of its square; `low`, `high`: extremes of x.

    `holds`: the decision, None while there is none; after it no more samples are taken.
    """

    samples: int = 0
    total: float = 0.0
    squares: float = 0.0
    low: float = np.inf
    high: float = -np.inf
    holds: bool | None = None


@dataclass(frozen=True)
class TSprt:
    """H0: mean >= theta + delta sigma against H1: mean <= theta - delta sigma, sigma the samples' unknown deviation.

    `delta` > 0 in standard deviations, `theta` finite, else ConfigError. A ratio exists from the second sample on and
    only once two differ; until then only `equal` (if given) may decide: when its `needed` samples are all some c, c is
    compared with theta, where `strict` (mean > theta) matters. The two tests run in parallel, each at its strength, so
    for nearly constant samples their error probabilities add.

    The strength is proven for normal samples, where J(-a)/J(a) is the likelihood ratio of all t statistics so far. For
    others, such as the differences -1, 0, 1 of two outcomes, it is nominal.
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

        Shapes broadcast. `squares` > 0: at 0 all samples are theta, and there is no ratio.
        """
        m, a = np.broadcast_arrays(
            np.asarray(samples, dtype=np.float64), self.delta * np.asarray(total) / np.sqrt(np.asarray(squares))
        )
        return log_moment(m, -a) - log_moment(m, a)

    def start(self) -> TSprtState:
        """Return the state before the first sample."""
        return TSprtState()

    def update(self, state: TSprtState, values: ArrayLike) -> TSprtState:
        """Return the state after values [N], or after the first of them that decides it. Not finite: InputError."""
        seen = sample_array(values)
        if state.holds is not None or not seen.size:
            return state
        states, index, side = self._follow(state, seen)
        at = min(int(index), seen.shape[-1] - 1)
        total, squares, low, high = (float(each[at]) for each in states)
        return replace(
            state, samples=state.samples + at + 1, total=total, squares=squares, low=low, high=high, holds=truth(side)
        )

    def decide(self, values: ArrayLike) -> tuple[Ints, Signs]:
        """Run many tests at once, each from its start: values [..., N], finite.

        Return the samples each took [...] (N if undecided) and its side [...]: 1 holds, -1 does not, 0 undecided.
        """
        seen = sample_array(values)
        _, index, side = self._follow(self.start(), seen)
        return np.minimum(index + 1, seen.shape[-1]), side

    def _sides(self, m: Floats, total: Floats, squares: Floats) -> Floats:
        """Return the log ratio; if both its bounds lie on one side of the threshold, the smaller: same decision."""
        a = self.delta * total / np.sqrt(squares)
        threshold = np.where(a > 0.0, -self.strength.lower, self.strength.upper)
        least, most = log_bound(m - 1.0, a), log_bound(m, a)
        close = (most >= threshold * (1.0 - SLACK)) & (least <= threshold * (1.0 + SLACK))
        ratio = -np.copysign(least, a)
        ratio[close] = self.log_ratio(m[close], total[close], squares[close])
        return np.asarray(ratio)

    def _follow(self, state: TSprtState, seen: Floats) -> tuple[tuple[Floats, ...], Ints, Signs]:
        """Return all intermediate states, the index of the sample that decides, and the side."""
        count = state.samples + np.arange(1, seen.shape[-1] + 1)
        off = seen - self.theta
        total, squares = running(np.add, state.total, off), running(np.add, state.squares, off * off)
        low, high = running(np.minimum, state.low, seen), running(np.maximum, state.high, seen)
        varied = high - low > TIE * np.maximum(1.0, np.abs(high))
        ratio = np.full(seen.shape, np.nan)
        counts = np.broadcast_to(count, seen.shape)[varied]
        ratio[varied] = self._sides(counts, total[varied], squares[varied])
        if self.equal is not None:  # a long constant run decides like a ratio beyond either threshold
            lasted = ~varied & (count >= self.equal.needed)
            good = np.vectorize(lambda c: meets(c, self.theta, strict=self.strict), otypes=[bool])(high[lasted])
            ratio[lasted] = np.where(good, -np.inf, np.inf)
        return (total, squares, low, high), *first_crossing(ratio, self.strength)


def log_bound(n: ArrayLike, a: ArrayLike) -> Floats:
    """Return B(n) = integral of sqrt(x^2 + 4 n) over 0 < x < |a|: B(m - 1) <= |log J(-a) - log J(a)| <= B(m).

    Proof. With I_n the integral of y^n exp(-(y-x)^2 / 2), the derivative of log J at x is r_m - x, r_n = I_n / I_(n-1).
    By parts r_(n+1) = x + n / r_n, and r_n grows with n (Cauchy-Schwarz). So r_m^2 - x r_m - m <= 0 and
    r_m^2 - x r_m - (m-1) >= 0: r_m lies between (x + sqrt(x^2 + 4n)) / 2 for n = m-1 and for n = m. Integrate; the odd
    part vanishes. The two differ by a fraction 1/(2m), so the integral itself is rarely needed.
    """
    size, root = np.abs(np.asarray(a, dtype=np.float64)), 2.0 * np.sqrt(np.asarray(n, dtype=np.float64))
    return np.asarray((size * np.hypot(size, root) + root * root * np.arcsinh(size / root)) / 2.0)


def log_moment(m: ArrayLike, a: ArrayLike) -> Floats:
    """Return log J(a), J(a) = integral of y^(m-1) exp(-(y-a)^2 / 2) over y > 0, m >= 2. J has relative error < 1e-10.

    In u = log y the integrand has one peak, at y^2 - a y = m, of width 1/sqrt(y^2 + m); the trapezoidal rule there.
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
