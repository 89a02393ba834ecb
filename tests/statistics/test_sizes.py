from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, binomtest, norm, ttest_1samp

from monitor.errors import ConfigError, InputError
from monitor.statistics import (
    clopper_pearson,
    error_bound,
    normal,
    normal_applies,
    reward_width,
    sample_size,
    student,
)


def test_the_papers_sizes() -> None:
    assert sample_size(0.02, 0.05) == 4612
    assert sample_size(0.02, 0.05, effect=True) == 18445


def test_a_reward_counts_both_ends() -> None:
    assert reward_width(3, 3, 0.0, 2.0) == 2.0  # one term, where the paper's b - a has none
    assert sample_size(0.5, 0.05, reward_width(0, 9, -1, 1)) == math.ceil(20**2 * math.log(40) / (2 * 0.25))


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


def test_normal_is_the_approximation_cut_to_the_unit_interval() -> None:
    half = norm.ppf(0.975) * math.sqrt(0.3 * 0.7 / 200)
    assert normal(60, 200, 0.05) == pytest.approx((0.3 - half, 0.3 + half))
    assert normal(1, 20, 0.01)[0] == 0.0
    assert normal(20, 20, 0.05) == (1.0, 1.0)
    assert [normal_applies(k, 20) for k in (9, 10, 11)] == [False, True, False]


def test_student_is_scipys() -> None:
    values = np.random.default_rng(5).normal(3, 2, 25)
    expected = ttest_1samp(values, 0).confidence_interval(0.9)
    assert student(values, 0.1) == pytest.approx((expected.low, expected.high))
    assert student([2.0, 2.0], 0.05) == (2.0, 2.0)


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(ConfigError, match="alpha"):
        sample_size(0.1, 0.0)
    with pytest.raises(ConfigError, match="delta"):
        sample_size(-0.1, 0.05)
    with pytest.raises(ConfigError, match="needs too many samples"):
        sample_size(1e-200, 0.05)
    with pytest.raises(ConfigError, match="width"):
        error_bound(10, 0.05, 0.0)
    with pytest.raises(ConfigError, match="order"):
        reward_width(4, 3, 0, 1)
    with pytest.raises(ConfigError, match="successes"):
        normal(5, 4, 0.05)
    with pytest.raises(ConfigError, match="two values"):
        student([1.0], 0.05)
    with pytest.raises(InputError, match="finite"):
        student([1.0, math.inf], 0.05)
