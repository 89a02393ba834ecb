from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, binomtest

from monitor.errors import ConfigError
from monitor.statistics.intervals import clopper_pearson, error_bound, sample_size


def test_the_papers_sizes() -> None:
    assert sample_size(0.02, 0.05) == 4612
    assert sample_size(0.02, 0.05, effect=True) == 18445


@given(delta=st.floats(0.001, 3), alpha=st.floats(1e-6, 0.9), width=st.floats(0.1, 50), effect=st.booleans())
def test_the_size_is_the_smallest_that_reaches_the_error(
    *, delta: float, alpha: float, width: float, effect: bool
) -> None:
    n = sample_size(delta, alpha, width, effect=effect)
    assert error_bound(n, alpha, width, effect=effect) <= delta * (1 + 1e-9)
    if n > 1:
        assert error_bound(n - 1, alpha, width, effect=effect) >= delta * (1 - 1e-9)


@pytest.mark.parametrize("p", [0.5, 0.9, 0.99])
def test_the_promise_of_the_size_is_kept(p: float) -> None:
    n = sample_size(0.05, 0.05)
    low, high = math.ceil(n * (p - 0.05)) - 1, math.floor(n * (p + 0.05))
    assert binom.cdf(low, n, p) + binom.sf(high, n, p) <= 0.05


@pytest.mark.parametrize("successes", [0, 1, 30, 49, 50])
@pytest.mark.parametrize("alpha", [0.05, 0.001])
def test_clopper_pearson_is_scipys(successes: int, alpha: float) -> None:
    expected = binomtest(successes, 50).proportion_ci(1 - alpha, method="exact")
    assert clopper_pearson(successes, 50, alpha) == pytest.approx((expected.low, expected.high), abs=1e-12)


@pytest.mark.parametrize("p", [0.003, 0.1, 0.5, 0.97])
def test_clopper_pearson_covers_at_least_its_level(p: float) -> None:
    covered = 0.0
    for k in range(41):
        low, high = clopper_pearson(k, 40, 0.05)
        covered += binom.pmf(k, 40, p) * (low <= p <= high)
    assert covered >= 0.95


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(ConfigError, match="alpha"):
        sample_size(0.1, 0.0)
    with pytest.raises(ConfigError, match="delta"):
        sample_size(-0.1, 0.05)
    with pytest.raises(ConfigError, match="needs too many samples"):
        sample_size(1e-200, 0.05)
    with pytest.raises(ConfigError, match="width"):
        error_bound(10, 0.05, 0.0)
    with pytest.raises(ConfigError, match="successes"):
        clopper_pearson(5, 4, 0.05)
