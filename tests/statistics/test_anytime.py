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
from monitor.statistics import ConfidenceSequence, Strength, ThresholdBets
from monitor.statistics.anytime import Bets, bet_sizes, log_wealth


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
    sizes, bets = bet_sizes(Bets(0.025), np.array(values))
    up, down = (np.exp(np.cumsum(each)) for each in log_wealth(np.array(values), sizes, mean))
    ups, downs = capital(values, mean, 0.025)
    assert up == pytest.approx(ups, rel=1e-9)
    assert down == pytest.approx(downs, rel=1e-9)
    assert bets.samples == len(values)


@given(
    values=VALUES,
    first=st.integers(0, 50),
    case=st.sampled_from([(0.0, 1.0), (-2.0, 3.0)]),
)
def test_the_interval_is_the_same_however_the_samples_come(
    values: list[float], first: int, case: tuple[float, float]
) -> None:
    low, high = case
    seen = low + np.array(values) * (high - low)
    sequence = ConfidenceSequence(0.1, low, high, points=201)
    at_once = sequence.update(sequence.start(), seen)
    parts = sequence.update(sequence.update(sequence.start(), seen[:first]), seen[first:])
    assert (parts.low, parts.high, parts.samples) == (at_once.low, at_once.high, at_once.samples)


def test_the_ends_are_those_of_the_exact_interval_one_grid_step_outward() -> None:
    rng = np.random.default_rng(7)
    values = rng.beta(4, 2, 400)
    sequence = ConfidenceSequence(0.05, points=101)
    state = sequence.update(sequence.start(), values)
    line = 2 / 0.05

    def lead(mean: float, side: int) -> float:
        return math.log(max(capital(values.tolist(), mean, 0.025)[side])) - math.log(line)

    low, high = brentq(lambda m: lead(m, 0), 1e-6, 0.66), brentq(lambda m: lead(m, 1), 0.67, 1 - 1e-6)
    assert state.low <= low <= state.low + 0.01 + 1e-9
    assert state.high - 0.01 - 1e-9 <= high <= state.high


def test_ends_only_come_nearer_and_chunks_do_not_show() -> None:
    values = np.random.default_rng(8).random(3000) < 0.3  # more than one chunk of the grid
    sequence = ConfidenceSequence(0.05)
    state, widths = sequence.start(), []
    for i in range(0, 3000, 100):
        state = sequence.update(state, values[i : i + 100])
        widths.append(state.high - state.low)
    at_once = sequence.update(sequence.start(), values)
    assert (state.low, state.high) == (at_once.low, at_once.high)
    assert all(a >= b for a, b in pairwise(widths))
    assert state.low < 0.3 < state.high
    assert widths[-1] < 0.1


@given(values=VALUES, cuts=st.lists(st.integers(0, 50), max_size=4))
def test_a_threshold_test_decides_at_the_same_sample_however_they_come(values: list[float], cuts: list[int]) -> None:
    test = ThresholdBets(0.6, Strength(0.2, 0.3))
    walk = test.start()
    for start, end in zip([0, *sorted(cuts)], [*sorted(cuts), None], strict=True):
        walk = test.update(walk, values[start:end])
    samples, side = test.decide([values])
    assert walk.samples == samples[0]
    assert side[0] == {True: 1, False: -1, None: 0}[walk.holds]
    ups, downs = capital(values, 0.6, 0.2)
    crossed = [i for i, (u, d) in enumerate(zip(ups, downs, strict=True), start=1) if u >= 1 / 0.3 or d >= 1 / 0.2]
    assert (crossed or [len(values)])[0] == walk.samples


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
    sizes, _ = bet_sizes(Bets(0.05), values)
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
        sequence.update(sequence.start(), [1.1])
    test = ThresholdBets(0.5, Strength(0.05, 0.05))
    assert test.update(test.start(), []).samples == 0
    assert sequence.update(sequence.start(), []).samples == 0
