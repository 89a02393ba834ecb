"""The counterfactual row: its laws exactly, and the row itself against Gumbel noise."""

from __future__ import annotations

from fractions import Fraction
from math import log, sqrt
from random import Random

import numpy as np
import pytest

from tests.oracle.race import counterfactual_row
from tests.oracle.setting import Dist

RANDOM_ROWS = 400
NOISE_ROWS = 30
DRAWS = 200_000
FALSE_ALARM = 1e-6  # of the test against noise as a whole


def random_row(random: Random, size: int = 4) -> Dist:
    weights = [0] * size
    while not any(weights):
        weights = [random.choice((0, 0, 1, 1, 2, 3, 9)) for _ in range(size)]
    return {j: Fraction(weight, sum(weights)) for j, weight in enumerate(weights) if weight}


def test_averaged_over_the_observed_outcomes_it_is_the_plain_row() -> None:
    random = Random(1)
    for _ in range(RANDOM_ROWS):
        p, q = random_row(random), random_row(random)
        averaged: Dist = {}
        for i in p:
            row = counterfactual_row(p, q, i)
            assert sum(row.values()) == 1
            for k, weight in row.items():
                averaged[k] = averaged.get(k, Fraction(0)) + p[i] * weight
        assert averaged == q


def test_the_same_row_gives_the_observed_outcome() -> None:
    random = Random(2)
    for _ in range(RANDOM_ROWS):
        p = random_row(random)
        assert all(counterfactual_row(p, p, i) == {i: 1} for i in p)


def test_disjoint_rows_know_nothing_of_each_other() -> None:
    p, q = {0: Fraction(1, 3), 1: Fraction(2, 3)}, {2: Fraction(1, 4), 3: Fraction(3, 4)}
    assert counterfactual_row(p, q, 0) == q


def test_it_is_stable() -> None:
    random = Random(3)
    for _ in range(RANDOM_ROWS):
        p, q = random_row(random), random_row(random)
        for i in p:
            row = counterfactual_row(p, q, i)
            for k in set(row) - {i}:
                assert q.get(i, 0) * p.get(k, 0) < q[k] * p[i]


def test_an_impossible_observation_is_an_error() -> None:
    with pytest.raises(ValueError, match="cannot have been observed"):
        counterfactual_row({0: Fraction(1)}, {0: Fraction(1)}, 1)


def test_it_is_the_row_of_real_gumbel_noise() -> None:
    """Hoeffding at a false-alarm rate of 1e-6 for all comparisons together."""
    random, drawn = Random(4), np.random.default_rng(4)
    widest = sqrt(log(2 * 4 * NOISE_ROWS / FALSE_ALARM) / 2)
    for _ in range(NOISE_ROWS):
        p, q = random_row(random), random_row(random)
        observed = random.choice(sorted(p))
        noise = drawn.gumbel(size=(DRAWS, 4))
        with np.errstate(divide="ignore"):
            first, second = (np.log([float(row.get(j, 0)) for j in range(4)]) for row in (p, q))
        kept = noise[np.argmax(first + noise, axis=1) == observed]
        found = np.bincount(np.argmax(second + kept, axis=1), minlength=4) / len(kept)
        row = counterfactual_row(p, q, observed)
        for k in range(4):
            assert abs(found[k] - float(row.get(k, 0))) <= widest / sqrt(len(kept))
