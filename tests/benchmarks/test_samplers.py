"""The samplers the benchmark measures against draw the same worlds that the exact answers are about.

All comparisons of this file together raise a false alarm with probability at most 1e-6 (Bonferroni, exact binomial
tests); the seeds are fixed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import binomtest

from benchmarks.loading import Peers
from benchmarks.peers.samplers import Counting, Rejection, TopDown, sample_size
from benchmarks.rows import Bench
from benchmarks.workloads.icu import episodes, icu_world
from benchmarks.workloads.stepping import goal_of, grid_workload
from monitor.exact import Checker
from tests.tiers import first

KINDS: list[Any] = [TopDown, Counting, Rejection]
COMPARISONS = 3 * 24 + 2 * 6
FALSE_ALARM = 1e-6 / COMPARISONS
WORLDS = 20_000


def same(estimate: float, worlds: int, exact: float | None) -> bool:
    assert exact is not None
    if min(exact, 1.0 - exact) < 1e-12:
        return estimate == round(exact)
    return bool(binomtest(round(estimate * worlds), worlds, exact).pvalue >= FALSE_ALARM)


@pytest.mark.parametrize("kind", first(2, KINDS))
def test_on_the_grid(kind: Any) -> None:  # noqa: ANN401 - the samplers share a shape
    about = grid_workload(Bench(Peers(None)), 400)
    sampler = kind(about.model, about.policies["fallback"].actions, 20, np.random.default_rng(3))
    telling = 0
    for n, last in enumerate(range(11, 11 + 24 * 13, 13)):
        offset = (10, 7, 4, 1)[n % 4]
        pairs = about.pairs[:last]
        exact = about.checker.check(goal_of(f'fallback@{offset}.P=? [ G<=20 !"unsafe" ]'), pairs).value
        assert same(sampler.estimate(pairs[-1 - offset :], WORLDS), WORLDS, exact), (n, exact)
        telling += exact is not None and 1e-3 < exact < 1 - 1e-3
    assert telling >= 12


@pytest.mark.parametrize("kind", first(1, [TopDown, Counting]))
def test_in_intensive_care(kind: Any) -> None:  # noqa: ANN401 - the samplers share a shape
    model, policies = icu_world()
    checker, goal = Checker(model, policies), goal_of('fallback@5.P=? [ G<=20 !"death" ]')
    sampler = kind(model, policies["fallback"].actions, 20, np.random.default_rng(4))
    drawn = episodes(model, policies["nominal"], np.random.default_rng(5))
    for _ in range(6):
        pairs = next(drawn)
        exact = checker.check(goal, pairs).value
        assert same(sampler.estimate(pairs[-6:], 4_000), 4_000, exact), exact


def test_sample_sizes() -> None:
    assert sample_size(0.01) == 9604
    assert sample_size(0.008) == 15006
    assert sample_size(0.01, 0.0) == 1
