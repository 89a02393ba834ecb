"""The betting test with an indifference region, against its definition written out sample by sample."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.errors import ConfigError, InputError
from monitor.statistics.region import RegionBets
from monitor.statistics.strength import Strength

VALUES = st.lists(st.sampled_from([0.0, 0.2, 0.6, 1.0]), min_size=1, max_size=60)
THETAS = st.sampled_from([0.0, 0.1, 0.5, 0.6, 0.97, 1.0])
UNEVEN = Strength(0.2, 0.3)


def sides(theta: float, delta: float) -> tuple[float, float]:
    below, above = theta - delta, theta + delta
    return below if below > 0 else theta / 2, above if above < 1 else (1 + theta) / 2


def slowly(values: list[float], theta: float, delta: float, strength: Strength, *, strict: bool) -> tuple[int, int]:
    """Samples and side of a test of values in [0, 1]: bets of the paper's aGRAPA, cut to half of the capital."""
    below, above = sides(theta, delta)
    up = down = 1.0
    refuted_below = refuted_above = False
    total, spread = 0.0, 0.0
    for t, x in enumerate(values, start=1):
        mean, variance = (0.5 + total) / t, (0.25 + spread) / t
        rise, fall = max(mean - below, delta), max(above - mean, delta)
        up *= 1 + min(rise / (variance + rise**2), 0.5 / below if below else math.inf) * (x - below)
        down *= 1 - min(fall / (variance + fall**2), 0.5 / (1 - above) if above < 1 else math.inf) * (x - above)
        total += x
        spread += (x - (0.5 + total) / (t + 1)) ** 2
        refuted_below |= up >= 1 / strength.beta
        refuted_above |= down >= 1 / strength.alpha
        near = len(set(values[:t])) == 1 and (theta + below) / 2 <= x <= (theta + above) / 2 and below < theta < above
        if near and refuted_below and refuted_above:
            return t, 1 if x > theta or (x == theta and not strict) else -1
        if not near and (refuted_below or refuted_above):
            return t, 1 if refuted_below and not (refuted_above and down > up) else -1
    return len(values), 0


@given(values=VALUES, theta=THETAS, delta=st.sampled_from([0.01, 0.1, 0.3]), strict=st.booleans())
def test_it_is_its_definition(*, values: list[float], theta: float, delta: float, strict: bool) -> None:
    test = RegionBets(theta, delta, UNEVEN, strict=strict)
    samples, side = test.decide([values])
    assert (samples[0], side[0]) == slowly(values, theta, delta, UNEVEN, strict=strict)


@given(values=VALUES, theta=THETAS, strict=st.booleans())
def test_a_range_only_scales_it(*, values: list[float], theta: float, strict: bool) -> None:
    scaled = RegionBets(4 * theta - 1, 0.4, UNEVEN, -1.0, 3.0, strict).decide(4 * np.array(values) - 1)
    assert scaled == RegionBets(theta, 0.1, UNEVEN, strict=strict).decide(values)


@pytest.mark.parametrize("strength", [Strength(0.05, 0.05), Strength(1e-6, 0.1), Strength(0.1, 1e-6)])
@pytest.mark.parametrize(
    ("theta", "c", "holds"),
    [
        *((0.0, c, c > 0) for c in (-1.0, -0.02, -0.004, 0.004, 0.02, 1.0)),
        (1.0, 1.0, True),
        (1.0, 0.98, False),
        (-1.0, -0.98, True),
        (0.995, 1.0, True),
        (0.995, 0.98, False),
    ],
)
def test_equal_samples_are_compared_with_the_bound(theta: float, c: float, strength: Strength, *, holds: bool) -> None:
    """Also the nearest, whichever of the two rates is the smaller."""
    for strict in (False, True):
        test = RegionBets(theta, 0.01, strength, -1.0, 1.0, strict)
        assert test.decide([[c] * 20_000])[1][0] == (1 if holds else -1)


@pytest.mark.parametrize("strength", [Strength(0.05, 0.05), Strength(1e-6, 0.1), Strength(0.1, 1e-6)])
@pytest.mark.parametrize("theta", [-0.5, 0.0, 1 / 3])
def test_samples_that_are_the_bound_itself_meet_it_unless_it_is_strict(theta: float, strength: Strength) -> None:
    for strict in (False, True):
        test = RegionBets(theta, 0.01, strength, -1.0, 1.0, strict)
        assert test.decide([[theta] * 20_000])[1][0] == (-1 if strict else 1)
    assert RegionBets(-1.0, 0.01, strength, -1.0, 1.0, strict=True).decide([[-1.0] * 20_000])[1][0] == -1


def test_a_side_that_would_leave_the_range_goes_half_the_way() -> None:
    even = Strength(0.05, 0.05)
    assert RegionBets(0.5, 0.1, even).sides == (0.4, 0.6)
    assert RegionBets(0.95, 0.1, even).sides == pytest.approx((0.85, 0.975))
    assert RegionBets(1.0, 0.1, even, -1.0, 1.0).sides == (0.9, 1.0)
    assert RegionBets(-1.0, 0.1, even, -1.0, 1.0).sides == (-1.0, -0.9)


def test_what_makes_no_sense_is_refused() -> None:
    even = Strength(0.05, 0.05)
    with pytest.raises(ConfigError, match="lo must"):
        RegionBets(1.0, 0.1, even, 1.0, 1.0)
    with pytest.raises(ConfigError, match="theta"):
        RegionBets(1.5, 0.1, even)
    for delta in (0.0, math.nan, math.inf):
        with pytest.raises(ConfigError, match="delta"):
            RegionBets(0.5, delta, even)
    test = RegionBets(0.5, 0.1, even)
    with pytest.raises(InputError, match="lie in"):
        test.decide([1.1])
    assert test.decide(np.zeros((2, 0)))[1].tolist() == [0, 0]
