"""Operating characteristics of a sequential test: acceptance probability and expected number of samples.

Source: A. Wald, *Sequential Analysis* (1947), Sections 3.4 and 3.5. Wald neglects the overshoot of the last step. So a
test takes slightly longer than computed here, and its error rates are slightly smaller. If one outcome decides (theta 0
or 1), the numbers are exact.
"""

from __future__ import annotations

import math

from monitor.errors import ConfigError
from monitor.statistics.sprt import Sprt

LEVEL = 1e-9
"""A mean step below this multiple of a step counts as 0, because the general formula is 0/0 there."""
LARGE = 700.0
"""Largest exponent, because exp overflows beyond it. An h that needs a larger one exceeds the root."""
RARE = 1e-290
"""A smaller p counts as 0: successes so rare decide no test, and h would need exponents beyond `LARGE`."""


def acceptance(test: Sprt, p: float) -> float:
    """Return the probability that the test accepts if samples succeed with probability p (Wald: L(p)).

    >>> from monitor.statistics.strength import Strength
    >>> test = Sprt(0.5, 0.1, Strength(0.05, 0.01))
    >>> round(acceptance(test, 0.6), 9), round(acceptance(test, 0.4), 9)
    (0.95, 0.01)
    """
    _check(p)
    success, failure = test.steps
    if not math.isfinite(success) or not math.isfinite(failure):
        return _decided_by_one(test, p)[0]
    if p < RARE or p == 1.0:
        return float(p == 1.0)
    low, high = test.strength.lower, test.strength.upper
    drift = p * success + (1.0 - p) * failure
    if abs(drift) <= LEVEL * (failure - success):
        return high / (high - low)
    h = _exponent(success, failure, p)
    if h * (high - low) > 0.0:  # P(upper) = (1 - B^h) / (A^h - B^h); neither form overflows
        return 1.0 - math.exp(-h * high) * math.expm1(h * low) / math.expm1(h * (low - high))
    return math.exp(h * -low) * math.expm1(h * high) / math.expm1(h * (high - low))


def expected_samples(test: Sprt, p: float) -> float:
    """Return the mean number of samples to a decision if samples succeed with probability p.

    >>> from monitor.statistics.strength import Strength
    >>> round(expected_samples(Sprt(0.9, 0.05, Strength(0.05, 0.05)), 0.95), 1)
    52.2
    """
    _check(p)
    success, failure = test.steps
    if not math.isfinite(success) or not math.isfinite(failure):
        return _decided_by_one(test, p)[1]
    low, high = test.strength.lower, test.strength.upper
    drift = p * success + (1.0 - p) * failure
    if abs(drift) <= LEVEL * (failure - success):
        return -low * high / (p * success**2 + (1.0 - p) * failure**2)
    true = acceptance(test, p)
    return (true * low + (1.0 - true) * high) / drift


def _exponent(success: float, failure: float, p: float) -> float:
    """Return the h != 0 at which the mean of exp(h * step) is 1. That mean is convex in h, and 1 at 0."""
    from scipy.optimize import brentq  # noqa: PLC0415  (a heavy import, needed for planning only)

    def excess(h: float) -> float:
        up, down = (math.exp(min(h * step, LARGE)) for step in (success, failure))
        return p * up + (1.0 - p) * down - 1.0

    bottom = math.log(-p * success / ((1.0 - p) * failure)) / (failure - success)  # the root lies beyond this minimum
    beyond = 2.0 * bottom
    while excess(beyond) < 0.0:
        beyond *= 2.0
    return float(brentq(excess, bottom, beyond, xtol=1e-14))


def _decided_by_one(test: Sprt, p: float) -> tuple[float, float]:
    """Return acceptance and expected samples if a single outcome of one kind decides, or a run of the other kind."""
    success, failure = test.steps
    needed = math.ceil(test.strength.upper / failure if math.isinf(success) else test.strength.lower / success)
    run = 1.0 - p if math.isinf(success) else p
    mean = float(needed) if run == 1.0 else (1.0 - run**needed) / (1.0 - run)
    return (1.0 - run**needed if math.isinf(success) else run**needed), mean


def _check(p: float) -> None:
    if not 0.0 <= p <= 1.0:
        raise ConfigError(f"p must lie in [0, 1], not {p}")
