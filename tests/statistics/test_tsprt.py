from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import nct

from monitor.errors import ConfigError, InputError
from monitor.statistics.equal import EqualOutcome, meets
from monitor.statistics.sprt import Sprt
from monitor.statistics.strength import Strength, first_crossing
from monitor.statistics.tsprt import TSprt, log_bound, log_moment

EVEN = Strength(0.05, 0.05)


@pytest.mark.parametrize("m", [2, 3, 5, 20, 100])
@pytest.mark.parametrize("mean", [-1.0, -0.1, 0.0, 0.3, 1.5])
def test_the_ratio_is_that_of_noncentral_t_densities(m: int, mean: float) -> None:
    values = np.random.default_rng(m).normal(mean, 2.0, m)
    test = TSprt(0.25, 0.4, EVEN)
    t = (values.mean() - 0.25) / (values.std(ddof=1) / math.sqrt(m))
    shift = 0.4 * math.sqrt(m)
    expected = nct.logpdf(-t, m - 1, shift) - nct.logpdf(t, m - 1, shift)
    off = values - 0.25
    assert float(test.log_ratio(m, off.sum(), (off**2).sum())) == pytest.approx(expected, rel=1e-7, abs=1e-7)


def integral(m: int, a: float) -> float:
    """Log J(a) by adaptive quadrature in y itself."""
    peak = (a + math.sqrt(a * a + 4 * (m - 1))) / 2
    top = (m - 1) * math.log(peak) - (peak - a) ** 2 / 2
    width = 1 / math.sqrt((m - 1) / peak**2 + 1)

    def relative(y: float) -> float:
        return math.exp((m - 1) * math.log(y) - (y - a) ** 2 / 2 - top)

    halves = [(max(peak - 40 * width, 1e-300), peak), (peak, peak + 40 * width)]
    return top + math.log(sum(quad(relative, *half, epsabs=0, epsrel=1e-12, limit=500)[0] for half in halves))


@pytest.mark.parametrize("m", [2, 3, 10, 300, 20_000])
@pytest.mark.parametrize("a", [-200.0, -20.0, -2.0, 0.0, 0.3, 3.0, 40.0, 200.0])
def test_log_moment_is_the_integral(m: int, a: float) -> None:
    assert float(log_moment(m, a)) == pytest.approx(integral(m, a), rel=1e-13, abs=1e-10)


@pytest.mark.parametrize("m", [2, 3, 10, 300, 20_000])
def test_the_ratio_lies_between_its_bounds(m: int) -> None:
    a = np.linspace(0.01, 30, 300)
    ratio = log_moment(m, a) - log_moment(m, -a)
    rounding = 1e-9 * np.maximum(ratio, 1.0)
    assert (log_bound(m - 1, a) <= ratio + rounding).all()
    assert (ratio <= log_bound(m, a) + rounding).all()


@pytest.mark.parametrize("strength", [EVEN, Strength(0.001, 0.2)])
def test_bounds_decide_as_the_ratio_itself_does(strength: Strength) -> None:
    values = np.random.default_rng(3).normal(0.1, 1.0, (200, 80))
    test = TSprt(0.0, 0.3, strength)
    ratio = test.log_ratio(np.arange(1, 81), np.cumsum(values, axis=1), np.cumsum(values**2, axis=1))
    ratio[:, 0] = np.nan
    taken, side = first_crossing(ratio, strength)
    samples, decided = test.decide(values)
    assert (samples == taken).all()
    assert (decided == side).all()
    assert {-1, 1} <= set(side.tolist())


def test_it_stays_finite_where_scipy_overflows() -> None:
    m, t, delta = 500, 60.0, 0.3  # scipy.stats.nct.logpdf raises OverflowError here, or gives infinities
    a = delta * math.sqrt(m) * t / math.sqrt(t * t + m - 1)
    values = np.array([-1.0, 1.0] * (m // 2))
    values = values / values.std(ddof=1) * math.sqrt(m) / t + 1.0  # mean 1, t = 60
    ratio = TSprt(0.0, delta, EVEN).log_ratio(m, values.sum(), (values**2).sum())
    assert float(ratio) == pytest.approx(integral(m, -a) - integral(m, a), rel=1e-10)


@given(
    values=st.lists(st.floats(-5, 5), min_size=2, max_size=30),
    scale=st.sampled_from([1e-3, 0.5, 1e4]),
    shift=st.sampled_from([-3.0, 0.0, 8.0]),
)
def test_scale_and_place_do_not_matter(values: list[float], scale: float, shift: float) -> None:
    here = np.array(values) - 0.5
    if np.ptp(here) < 1e-3:
        return
    moved = (np.array(values) * scale + shift) - (0.5 * scale + shift)
    test = TSprt(0.5, 0.3, EVEN)
    m = len(values)
    assert float(test.log_ratio(m, here.sum(), (here**2).sum())) == pytest.approx(
        float(test.log_ratio(m, moved.sum(), (moved**2).sum())), abs=1e-6
    )


def test_constant_samples_are_decided_by_the_equal_outcome_test() -> None:
    equal = EqualOutcome(0.05, EVEN)
    for value, strict, holds in [(0.3, False, True), (0.0, False, True), (0.0, True, False), (-0.1, False, False)]:
        test = TSprt(0.0, 0.2, EVEN, equal, strict=strict)
        assert np.array_equal(test.decide([value] * 500), (equal.needed, 1 if holds else -1))
    assert np.array_equal(TSprt(0.0, 0.2, EVEN).decide([0.3] * 500), (500, 0))  # without it, never


def test_nearly_constant_samples_count_as_constant() -> None:
    values = 0.1 + np.array([0.0, 1e-17, -2e-17] * 100)
    assert TSprt(0.1, 0.2, EVEN, EqualOutcome(0.05, EVEN), strict=True).decide(values)[1] == -1


def test_the_equal_outcome_test_is_the_bernoulli_test_of_certainty_after_the_first_sample() -> None:
    for strength in (EVEN, Strength(0.01, 0.1)):
        equal = EqualOutcome(0.02, strength)
        assert equal.needed == 1 + Sprt(1.0, 0.02, strength).decide([1] * 2000)[0]
        # any law without a value above 1 - delta: the first names c, the rest equal it with at most that probability
        assert 0.98 ** (equal.needed - 1) <= strength.beta / (1 - strength.alpha)


def test_ties_are_equality() -> None:
    assert meets(0.1 + 0.2, 0.3, strict=False)
    assert not meets(0.1 + 0.2, 0.3, strict=True)
    assert meets(0.3, 0.1 + 0.2, strict=False)
    assert not meets(0.29, 0.3, strict=False)


def test_what_is_no_test_or_no_sample_is_refused() -> None:
    with pytest.raises(ConfigError, match="delta"):
        TSprt(0.0, 0.0, EVEN)
    with pytest.raises(ConfigError, match="finite"):
        TSprt(math.inf, 0.1, EVEN)
    with pytest.raises(ConfigError, match="delta"):
        EqualOutcome(1.0, EVEN)
    with pytest.raises(InputError, match="finite"):
        TSprt(0.0, 0.1, EVEN).decide([math.nan])
    assert log_moment([], []).shape == (0,)
