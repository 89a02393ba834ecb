"""Confidence sequences: their definition, and how often they miss when somebody looks after every draw."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binom

from monitor.statistics.confidence_sequences import proportion_interval, share, unseen_mass


def excess(p: float, successes: int, draws: int, alpha: float) -> float:
    """log of the mixture's odds against p, minus what `alpha` allows; by `math.lgamma`."""
    mixture = math.lgamma(successes + 0.5) + math.lgamma(draws - successes + 0.5) - math.lgamma(draws + 1)
    return mixture - math.log(math.pi) - _log(p, successes) - _log(1 - p, draws - successes) + math.log(alpha)


def _log(base: float, times: int) -> float:
    return 0.0 if times == 0 else times * math.log(base) if base > 0 else -math.inf


@pytest.mark.parametrize(("successes", "draws"), [(0, 0), (0, 1), (1, 1), (0, 40), (7, 40), (40, 40), (3, 100_000)])
@pytest.mark.parametrize("alpha", [0.2, 0.05, 1e-9])
def test_an_interval_ends_where_the_mixture_refutes_the_proportion(successes: int, draws: int, alpha: float) -> None:
    bounds = proportion_interval(np.array([successes]), np.array([draws]), np.array([alpha]))
    low, high = (float(bound[0]) for bound in bounds)
    assert 0.0 <= low <= (successes / draws if draws else 1.0) <= high <= 1.0
    for end, outside in ((low, low - 1e-9), (high, high + 1e-9)):
        if 0.0 < end < 1.0:
            assert excess(end, successes, draws, alpha) == pytest.approx(0.0, abs=1e-6)
            assert excess(outside, successes, draws, alpha) > 0.0
    if draws == 0:
        assert (low, high) == (0.0, 1.0)


def test_shares_of_any_number_of_events_sum_to_less_than_one() -> None:
    ranks = np.arange(1, 1_000_001)
    beyond = 1.0 / (2.11 * math.log(1_000_001))  # the integral of the rest
    assert 0.99 < share(ranks).sum() + beyond < 1.0
    assert bool((np.diff(share(ranks)) < 0).all())


def test_the_unseen_mass_is_the_largest_that_is_missed_so_often() -> None:
    draws, alpha = np.array([0, 1, 10, 500]), np.full(4, 0.05)
    bound = unseen_mass(draws, alpha)
    assert bound[0] == 1.0
    assert (1 - bound[1:]) ** draws[1:] == pytest.approx(alpha[1:])


PATHS, DRAWS, ALPHA = 4_000, 400, 0.1
FALSE_ALARM = 1e-6


@pytest.mark.parametrize("p", [0.003, 0.1, 0.5])
def test_it_seldom_misses_at_any_time(p: float) -> None:
    """False-alarm rate 1e-6: the number of paths that are ever missed is at most binomial (PATHS, ALPHA)."""
    rng = np.random.default_rng(7)
    hits = rng.random((PATHS, DRAWS)) < p
    successes = np.cumsum(hits, axis=1, dtype=np.int64)
    draws = np.arange(1, DRAWS + 1)
    pairs, at = np.unique(successes * (DRAWS + 1) + draws, return_inverse=True)  # most paths share most of them
    low, high = proportion_interval(*np.divmod(pairs, DRAWS + 1), np.full(len(pairs), ALPHA))
    missed = ((p < low) | (p > high))[at].reshape(successes.shape).any(axis=1).sum()
    assert missed <= binom.isf(FALSE_ALARM, PATHS, ALPHA)
    first = np.where(hits.any(axis=1), hits.argmax(axis=1), DRAWS)
    quiet = unseen_mass(np.arange(DRAWS + 1), np.full(DRAWS + 1, ALPHA))
    never = (quiet[first] < p).sum()  # the bound was below p before the first hit
    assert never <= binom.isf(FALSE_ALARM, PATHS, ALPHA)
    assert never > 0 or p * DRAWS < 1.5
