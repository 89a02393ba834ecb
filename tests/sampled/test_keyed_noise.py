"""The generator gives the published numbers, the noise is what the definitions say, and the race is its argmax."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import gumbel_r, kstest

from monitor.causal import counterfactual_row
from monitor.sampled.noise import (
    ACTION,
    NOTHING,
    STATE,
    ObservedRow,
    ParticleRows,
    gumbels,
    philox,
    posterior_gumbels,
    race,
    uniforms,
)
from tests.exact.small import LAW
from tests.sampled.worlds import FALSE_ALARM, error_bound
from tests.tiers import heavy

ONES = 0xFFFFFFFF
KNOWN = [  # of Random123, the authors' own library: counter, key, output
    ([0] * 4, [0] * 2, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
    ([ONES] * 4, [ONES] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
    (
        [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
        [0xA4093822, 0x299F31D0],
        [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
    ),
]
Rows = tuple[np.ndarray, np.ndarray]


@pytest.mark.parametrize(("counter", "key", "output"), KNOWN)
def test_philox_gives_the_published_words(counter: list[int], key: list[int], output: list[int]) -> None:
    assert philox(*counter, *key) == tuple(output)


def test_uniforms_are_uniform_and_never_at_an_end() -> None:
    drawn = uniforms(7, STATE, 3, np.arange(20_000), np.array([-5, 0, 1, 2, 10**12, 2**62]))
    assert 0.0 < drawn.min() < drawn.max() < 1.0
    assert kstest(drawn.ravel(), "uniform").pvalue > FALSE_ALARM / 2
    assert kstest(gumbels(7, STATE, 3, np.arange(20_000), np.array([4])).ravel(), gumbel_r.cdf).pvalue > FALSE_ALARM / 2


def test_each_of_seed_kind_step_particle_and_outcome_makes_other_noise() -> None:
    particles, keys = np.arange(50), np.array([0, 1, 2, 3, 2**40, 2**40 + 1])
    parts = [
        uniforms(seed, kind, step, particles, keys).ravel()
        for seed in (0, 1, 2**40)
        for kind in (STATE, ACTION)
        for step in (0, 1, 7)
    ]
    drawn = np.concatenate(parts)
    assert len(np.unique(drawn)) == len(drawn)


@st.composite
def rows(draw: st.DrawFn) -> Rows:
    keys = draw(st.lists(st.integers(0, 9), min_size=1, max_size=6, unique=True).map(sorted))
    weights = np.array(draw(st.lists(st.integers(1, 6), min_size=len(keys), max_size=len(keys))), dtype=np.float64)
    return np.array(keys), weights / weights.sum()


def everywhere(row: Rows, count: int) -> ParticleRows:
    """The same row for each of `count` particles."""
    return ParticleRows(np.zeros(count, dtype=np.int64), np.full(count, len(row[0])), *row)


def evidence(row: Rows, place: int) -> ObservedRow:
    at = place % len(row[0])
    return ObservedRow(*row, int(row[0][at]), float(row[1][at]))


@LAW
@given(rows(), rows(), st.integers(0, 5), st.integers(0, 2**64 - 1))
def test_the_race_is_the_argmax_of_posterior_noise(p: Rows, q: Rows, place: int, seed: int) -> None:
    particles = np.arange(200)
    for known in (NOTHING, evidence(p, place)):
        noise = posterior_gumbels(seed, STATE, 4, particles, q[0], known)
        expected = q[0][(np.log(q[1]) + noise).argmax(axis=1)]
        assert np.array_equal(race(seed, STATE, 4, particles, everywhere(q, 200), known), expected)


@LAW
@given(rows(), st.integers(0, 5), st.integers(0, 2**64 - 1))
def test_posterior_noise_explains_what_was_observed(p: Rows, place: int, seed: int) -> None:
    known = evidence(p, place)
    noise = posterior_gumbels(seed, STATE, 0, np.arange(200), p[0], known)
    assert (p[0][(np.log(p[1]) + noise).argmax(axis=1)] == known.outcome).all()
    winner = noise[:, p[0] == known.outcome][:, 0] + np.log(known.probability)
    first = gumbels(seed, STATE, 0, np.arange(200), np.array([known.outcome]))[:, 0]
    assert winner == pytest.approx(first)  # M, whatever p is
    for k in np.flatnonzero(p[0] != known.outcome):  # truncated at M: docs/semantics/worlds.md, section 4
        raw = gumbels(seed, STATE, 0, np.arange(200), p[0][k : k + 1])[:, 0] + np.log(p[1][k])
        assert noise[:, k] + np.log(p[1][k]) == pytest.approx(-np.logaddexp(-raw, -first))


@LAW
@given(rows(), rows(), st.integers(0, 5), st.integers(0, 2**64 - 1))
def test_no_particle_breaks_counterfactual_stability(p: Rows, q: Rows, place: int, seed: int) -> None:
    known = evidence(p, place)
    won = race(seed, STATE, 1, np.arange(2_000), everywhere(q, 2_000), known)
    before, after = dict(zip(*p, strict=True)), dict(zip(*q, strict=True))
    q_outcome = after.get(known.outcome, 0.0)
    for k in set(won.tolist()) - {known.outcome}:
        assert k not in before or q_outcome * before[k] < after[k] * known.probability
    assert (race(seed, STATE, 1, np.arange(2_000), everywhere(p, 2_000), known) == known.outcome).all()


@heavy
def test_the_race_has_the_distribution_of_the_closed_form() -> None:
    rng, count = np.random.default_rng(3), 50_000
    for trial in range(30):
        p, q = ((np.sort(rng.choice(6, size, replace=False)), rng.dirichlet(np.ones(size))) for size in (4, 4))
        known = evidence(p, trial)
        won = race(trial, STATE, 2, np.arange(count), everywhere(q, count), known)
        for k, chance in zip(q[0], counterfactual_row(p, known.outcome, q), strict=True):
            hits = (won == k).astype(np.float64)
            assert abs(hits.mean() - chance) <= error_bound(hits, 1.0, FALSE_ALARM / 120)


def test_rows_may_come_in_any_order_with_padding() -> None:
    keys, chances, particles = np.array([3, 5, 8]), np.array([0.5, 0.2, 0.3]), np.arange(500)
    known = ObservedRow(np.array([3, 8]), np.array([0.4, 0.6]), 8, 0.6)
    mixed = np.array([8, 4, 3, 4, 5]), np.array([0.3, 0.0, 0.5, 0.0, 0.2])
    straight = race(1, STATE, 0, particles, everywhere((keys, chances), 500), known)
    assert np.array_equal(straight, race(1, STATE, 0, particles, everywhere(mixed, 500), known))
