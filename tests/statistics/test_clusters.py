"""Intervals of means of clusters: their coverage, and what they are where there is nothing to estimate from."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from monitor.statistics.clusters import frequency, mean, proportion, ratio
from tests.tiers import examples


def test_single_values_give_students_interval() -> None:
    values = np.random.default_rng(0).normal(2.0, 3.0, 12)
    found = mean(values, np.arange(12), error=0.05)
    low, high = stats.t.interval(0.95, 11, values.mean(), stats.sem(values))
    assert (found.value, found.low, found.high, found.clusters) == pytest.approx((values.mean(), low, high, 12))


def test_a_ratio_is_the_mean_of_what_its_clusters_hold() -> None:
    values, clusters = np.array([1.0, 2.0, 6.0, 0.0]), np.array([7, 7, 3, 7])
    assert mean(values, clusters) == ratio(np.array([6.0, 3.0]), np.array([1.0, 3.0]))


def test_the_interval_contains_the_truth_as_often_as_it_says() -> None:
    rng, missed, tries = np.random.default_rng(1), 0, examples(400, 4000)
    for _ in range(tries):
        sizes = rng.integers(1, 20, 40)
        clusters = np.repeat(np.arange(40), sizes)
        values = rng.normal(size=40)[clusters] + rng.normal(size=len(clusters))  # what steps of an episode share
        found = mean(values, clusters, error=0.1)
        missed += not found.low <= 0 <= found.high
    # With 40 clusters of unequal sizes such intervals miss somewhat more often than they say.
    assert 0.05 < missed / tries < 0.16


def test_too_little_has_no_interval() -> None:
    one = mean(np.array([1.0, 3.0]), np.array([5, 5]))
    assert (one.value, one.low, one.high, one.clusters) == (2.0, -np.inf, np.inf, 1)
    none = ratio(np.zeros(3), np.zeros(3))
    assert np.isnan(none.value)
    assert (none.low, none.high) == (-np.inf, np.inf)


def test_what_always_or_never_happened_is_not_taken_for_certain() -> None:
    always = proportion(np.array([2.0, 1.0, 0.0, 4.0]), np.array([2.0, 1.0, 0.0, 4.0]), error=0.02)
    assert (always.value, always.high) == (1.0, 1.0)
    assert always.low == pytest.approx(stats.beta.ppf(0.01, 3, 1))  # three clusters have some
    never = frequency(np.zeros(9, np.bool_), np.repeat(np.arange(3), 3), error=0.02)
    assert (never.value, never.low) == (0.0, 0.0)
    assert never.high == pytest.approx(stats.beta.ppf(0.99, 1, 3))


def test_a_proportion_lies_between_0_and_1() -> None:
    parts, wholes = np.array([2.0, 0.0, 0.0, 0.0, 0.0]), np.full(5, 1.0) + np.array([1.0, 0.0, 0.0, 0.0, 0.0])
    assert ratio(parts, wholes).low < 0.0
    found = proportion(parts, wholes)
    assert (found.value, found.low) == (ratio(parts, wholes).value, 0.0)
    assert found.high == min(ratio(parts, wholes).high, 1.0)
