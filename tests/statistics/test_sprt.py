from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monitor.errors import ConfigError, InputError
from monitor.statistics.sprt import Sprt
from monitor.statistics.strength import Strength
from tests.statistics.random_walk import fate
from tests.statistics.wald import acceptance, expected_samples
from tests.tiers import examples, first, slow

CASES = [  # theta, delta, alpha, beta: even and uneven regions and strengths, one region that is clamped
    (0.5, 0.1, 0.05, 0.05),
    (0.9, 0.05, 0.05, 0.05),
    (0.9, 0.05, 0.01, 0.1),
    (0.95, 0.05, 0.05, 0.05),
    (0.1, 0.05, 0.1, 0.01),
    (0.5, 0.2, 0.2, 0.05),
    (0.99, 0.02, 0.01, 0.01),
    (0.3, 0.05, 0.05, 0.05),
]


def make(theta: float, delta: float, alpha: float, beta: float) -> Sprt:
    return Sprt(theta, delta, Strength(alpha, beta))


@pytest.mark.parametrize("case", first(4, CASES))
def test_exact_error_rates_at_the_edges_of_the_indifference_region_are_within_the_strength(
    case: tuple[float, float, float, float],
) -> None:
    test = make(*case)
    below, above = test.sides
    worst_true, worst_false = fate(test, above), fate(test, below)
    assert worst_true.false + worst_true.left <= test.strength.alpha
    assert worst_false.true + worst_false.left <= test.strength.beta


def test_walds_lines_may_exceed_one_rate_by_no_more_than_their_factor() -> None:
    test = make(0.7, 0.25, 0.3, 0.01)  # a case that does: the docstring of Strength promises no more than this
    below, above = test.sides
    wrong_true, wrong_false = fate(test, below).true, fate(test, above).false
    assert test.strength.beta < wrong_true <= test.strength.beta / (1 - test.strength.alpha)
    assert wrong_true + wrong_false <= test.strength.alpha + test.strength.beta


@pytest.mark.parametrize("case", first(4, CASES))
@pytest.mark.parametrize("outside", [0.3, 0.7])
def test_beyond_the_edges_errors_are_rarer(case: tuple[float, float, float, float], outside: float) -> None:
    test = make(*case)
    below, above = test.sides
    assert fate(test, above + outside * (1 - above)).false <= fate(test, above).false
    assert fate(test, below * (1 - outside)).true <= fate(test, below).true


@pytest.mark.parametrize("case", first(4, CASES))
def test_expected_samples_are_walds_but_for_the_last_step(case: tuple[float, float, float, float]) -> None:
    test = make(*case)
    success, failure = test.steps
    low, high = test.strength.lower, test.strength.upper
    for p in test.sides:
        exact, drift = fate(test, p), p * success + (1 - p) * failure
        # Wald's identity E[M] E[step] = E[end], the end one step beyond a line at most
        ends = [
            (exact.true * (low + a * success) + exact.false * (high + b * failure)) / drift
            for a in (0, 1)
            for b in (0, 1)
        ]
        assert min(ends) - 1e-6 <= exact.mean <= max(ends) + 1e-6
        formula = expected_samples(test, p)
        assert formula <= exact.mean <= 1.3 * formula + 2


@pytest.mark.parametrize("case", first(4, CASES))
def test_acceptance_is_the_strength_at_the_edges_and_falls_between(case: tuple[float, float, float, float]) -> None:
    test = make(*case)
    below, above = test.sides
    assert acceptance(test, above) == pytest.approx(1 - test.strength.alpha, abs=1e-9)
    assert acceptance(test, below) == pytest.approx(test.strength.beta, abs=1e-9)
    curve = [acceptance(test, p) for p in np.linspace(0, 1, 101)]
    assert curve[0] == 0
    assert curve[-1] == 1
    assert all(a <= b + 1e-12 for a, b in pairwise(curve))
    middle = fate(test, test.theta)
    assert acceptance(test, test.theta) == pytest.approx(middle.true, abs=0.05)


@pytest.mark.parametrize("p", [5e-324, 1e-305, 1e-289, 1e-12, 1 - 1e-16])
@pytest.mark.parametrize("theta", [1e-12, 0.5, 1 - 1e-12])
def test_planning_ends_in_numbers_at_the_extremes_too(theta: float, p: float) -> None:
    for test in (make(theta, 0.999, 1e-300, 0.01), make(theta, 1e-12, 0.01, 1e-300), make(theta, 0.999, 0.5, 0.4)):
        assert 0.0 <= acceptance(test, p) <= 1.0
        assert 0.0 < expected_samples(test, p) < math.inf


def test_where_there_is_no_drift_the_limit_is_taken() -> None:
    test = make(0.5, 0.1, 0.05, 0.05)
    assert acceptance(test, 0.5) == pytest.approx(0.5)
    near = expected_samples(test, 0.5 + 1e-6)
    assert expected_samples(test, 0.5) == pytest.approx(near, rel=1e-4)
    success, _ = test.steps
    assert expected_samples(test, 1.0) == pytest.approx(test.strength.lower / success)


@pytest.mark.parametrize("theta", [0.0, 1.0])
@pytest.mark.parametrize("p", [0.0, 0.02, 0.5, 0.97, 1.0])
def test_at_the_border_one_outcome_decides_and_the_planning_is_exact(theta: float, p: float) -> None:
    test = make(theta, 0.05, 0.05, 0.01)
    turning = int(theta == 0.0)  # a success where P > 0 is asked, a failure where P >= 1
    ends = 1 if theta == 0.0 else -1
    assert np.array_equal(test.decide([1 - turning, turning, 1 - turning]), (2, ends))
    needed, side = (int(each) for each in test.decide([1 - turning] * 1000))
    assert side == -ends
    stays = p if theta == 1.0 else 1 - p  # enumerate the run of steady outcomes
    mean = sum(k * stays ** (k - 1) * (1 - stays) for k in range(1, needed)) + needed * stays ** (needed - 1)
    assert expected_samples(test, p) == pytest.approx(mean)
    assert acceptance(test, p) == pytest.approx(stays**needed if theta == 1.0 else 1 - stays**needed)


def test_a_side_that_would_leave_the_unit_interval_goes_half_the_way() -> None:
    assert make(0.95, 0.05, 0.05, 0.05).sides == pytest.approx((0.9, 0.975))
    assert make(0.02, 0.05, 0.05, 0.05).sides == pytest.approx((0.01, 0.07))
    assert make(0.9, 0.08, 0.05, 0.05).sides == pytest.approx((0.82, 0.98))  # inside: as asked


@pytest.mark.parametrize("strength", [Strength(0.05, 0.05), Strength(0.01, 0.3), Strength(0.3, 0.01)])
@pytest.mark.parametrize(
    ("theta", "delta"), [(0.5, 0.1), (0.9, 0.05), pytest.param(0.99, 0.01, marks=slow), (0.05, 0.04)]
)
def test_a_guarded_test_keeps_both_rates_exactly(theta: float, delta: float, strength: Strength) -> None:
    """By following the walk; lines for the strength itself may exceed one of the two."""
    test = Sprt(theta, delta, strength.guarded)
    below, above = test.sides
    assert fate(test, above).false <= strength.alpha
    assert fate(test, below).true <= strength.beta


@settings(max_examples=examples(25, 200))
@given(
    outcomes=st.lists(st.booleans(), max_size=120),
    case=st.sampled_from([*CASES, (1.0, 0.05, 0.05, 0.05), (0.0, 0.1, 0.05, 0.05)]),
)
def test_the_first_sample_beyond_a_line_decides(outcomes: list[bool], case: tuple[float, float, float, float]) -> None:
    test = make(*case)
    expected = len(outcomes), 0
    for m in range(1, len(outcomes) + 1):
        ratio = float(test.log_ratio(m, sum(outcomes[:m])))
        if not test.strength.lower < ratio < test.strength.upper:
            expected = m, 1 if ratio < 0 else -1
            break
    samples, side = test.decide(np.array([outcomes, outcomes]))
    assert list(zip(samples.tolist(), side.tolist(), strict=True)) == [expected] * 2


@given(outcomes=st.lists(st.booleans(), min_size=1, max_size=200))
def test_negation_swaps_everything(outcomes: list[bool]) -> None:
    test = Sprt(0.7, 0.1, Strength(0.02, 0.1))
    mirror = Sprt(0.3, 0.1, test.strength.negated)  # P(not x) >= 0.3 is P(x) <= 0.7
    ratio = test.log_ratio(len(outcomes), sum(outcomes))
    assert mirror.log_ratio(len(outcomes), len(outcomes) - sum(outcomes)) == pytest.approx(-ratio, abs=1e-9)


def test_log_ratio_is_that_of_the_likelihoods() -> None:
    test = make(0.8, 0.1, 0.05, 0.05)
    expected = math.log((0.7**7 * 0.3**3) / (0.9**7 * 0.1**3))
    assert float(test.log_ratio(10, 7)) == pytest.approx(expected)


def test_what_is_no_test_or_no_outcome_is_refused() -> None:
    with pytest.raises(ConfigError, match="theta"):
        make(1.1, 0.1, 0.05, 0.05)
    with pytest.raises(ConfigError, match="delta"):
        make(0.5, 0.0, 0.05, 0.05)
    with pytest.raises(ConfigError, match="alpha"):
        Strength(math.nan, 0.05)
    with pytest.raises(ConfigError, match="below 1"):
        Strength(0.5, 0.5)
    with pytest.raises(ConfigError, match="p must"):
        acceptance(make(0.5, 0.1, 0.05, 0.05), 1.5)
    with pytest.raises(InputError, match="0 or 1"):
        make(0.5, 0.1, 0.05, 0.05).decide([0.5])
