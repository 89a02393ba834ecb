from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import brentq

from monitor.errors import ConfigError, InputError
from monitor.statistics.anytime import ConfidenceSequence, bet_sizes, log_wealth
from monitor.statistics.strength import Strength
from monitor.statistics.threshold import ThresholdBets


def capital(values: list[float], mean: float, level: float) -> tuple[list[float], list[float]]:
    """The two capitals after each sample, as the paper defines them, one number after the other."""
    up, down, ups, downs = 1.0, 1.0, [], []
    total, spread = 0.0, 0.0
    for t, x in enumerate(values, start=1):
        variance = (0.25 + spread) / t
        bet = math.sqrt(2 * math.log(1 / level) / (variance * t * math.log(1 + t)))
        up *= 1 + min(bet, 0.5 / mean if mean else math.inf) * (x - mean)
        down *= 1 - min(bet, 0.5 / (1 - mean) if mean < 1 else math.inf) * (x - mean)
        ups.append(up)
        downs.append(down)
        total += x
        spread += (x - (0.5 + total) / (t + 1)) ** 2
    return ups, downs


VALUES = st.lists(st.sampled_from([0.0, 0.2, 0.5, 1.0]), min_size=1, max_size=50)


@given(values=VALUES, mean=st.sampled_from([0.0, 0.1, 0.5, 0.93, 1.0]))
def test_the_capital_is_the_papers(values: list[float], mean: float) -> None:
    sizes = bet_sizes(0.025, np.array(values))
    up, down = (np.exp(np.cumsum(each)) for each in log_wealth(np.array(values), sizes, mean))
    ups, downs = capital(values, mean, 0.025)
    assert up == pytest.approx(ups, rel=1e-9)
    assert down == pytest.approx(downs, rel=1e-9)


def test_the_ends_are_those_of_the_exact_interval_one_grid_step_outward() -> None:
    rng = np.random.default_rng(7)
    values = rng.beta(4, 2, 400)
    sequence = ConfidenceSequence(0.05, points=101)
    first, last = sequence.interval(values)
    line = 2 / 0.05

    def lead(mean: float, side: int) -> float:
        return math.log(max(capital(values.tolist(), mean, 0.025)[side])) - math.log(line)

    low, high = brentq(lambda m: lead(m, 0), 1e-6, 0.66), brentq(lambda m: lead(m, 1), 0.67, 1 - 1e-6)
    assert first <= low <= first + 0.01 + 1e-9
    assert last - 0.01 - 1e-9 <= high <= last


def test_ends_only_come_nearer() -> None:
    values = np.random.default_rng(8).random(3000) < 0.3
    ends = [ConfidenceSequence(0.05).interval(values[:count]) for count in range(0, 3001, 100)]
    assert all(a[0] <= b[0] and b[1] <= a[1] for a, b in pairwise(ends))
    assert ends[-1][0] < 0.3 < ends[-1][1]
    assert ends[-1][1] - ends[-1][0] < 0.1


@given(values=VALUES)
def test_the_first_sample_at_which_a_capital_reaches_its_line_decides(values: list[float]) -> None:
    samples, side = ThresholdBets(0.6, Strength(0.2, 0.3)).decide([values])
    ups, downs = capital(values, 0.6, 0.2)
    crossed = [
        (i, 1 if u >= 1 / 0.3 else -1)
        for i, (u, d) in enumerate(zip(ups, downs, strict=True), start=1)
        if u >= 1 / 0.3 or d >= 1 / 0.2
    ]
    assert (samples[0], side[0]) == (crossed or [(len(values), 0)])[0]


def paths(kind: str, rng: np.random.Generator, runs: int, length: int) -> tuple[NDArray[np.float64], float]:
    match kind:
        case "coin":
            return (rng.random((runs, length)) < 0.9).astype(float), 0.9
        case "rare":
            return (rng.random((runs, length)) < 0.01).astype(float), 0.01
        case _:
            return rng.beta(2, 5, (runs, length)), 2 / 7


@pytest.mark.parametrize("kind", ["coin", "rare", "smooth"])
def test_whole_trajectories_are_covered(kind: str) -> None:
    from scipy.stats import binom  # noqa: PLC0415  (one use)

    values, mean = paths(kind, np.random.default_rng(11), 2000, 1000)
    sizes = bet_sizes(0.05, values)
    up, down = (np.cumsum(each, axis=-1).max(axis=-1) for each in log_wealth(values, sizes, mean))
    left = int(((up >= math.log(20)) | (down >= math.log(20))).sum())
    # Level .1 over both sides. This fails of itself with probability 1e-6 at most (family-wise over three laws).
    assert binom.sf(left - 1, 2000, 0.1) > 1e-6 / 3


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(ConfigError, match="lo must"):
        ConfidenceSequence(0.05, 1.0, 1.0)
    with pytest.raises(ConfigError, match="points"):
        ConfidenceSequence(0.05, points=1)
    with pytest.raises(ConfigError, match="theta"):
        ThresholdBets(1.5, Strength(0.05, 0.05))
    sequence = ConfidenceSequence(0.05)
    with pytest.raises(InputError, match="lie in"):
        sequence.interval([1.1])
    test = ThresholdBets(0.5, Strength(0.05, 0.05))
    assert np.array_equal(test.decide([]), (0, 0))
    assert sequence.interval([]) == (0.0, 1.0)
