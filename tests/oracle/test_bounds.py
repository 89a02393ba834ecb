"""The best row over a class of causal models, beside a linear programme; and where Gumbel-Max lies."""

from __future__ import annotations

from fractions import Fraction
from random import Random

import numpy as np
import pytest
from scipy.optimize import linprog

from tests.oracle.race import counterfactual_row
from tests.oracle.test_race import random_row
from tests.oracle.worlds import best_row, row_ranges
from tests.tiers import examples, scaled

ROWS = examples(60, 300)


@scaled
@pytest.mark.parametrize("kind", ["any", "stable"])
def test_the_greedy_row_solves_the_linear_programme(kind: str) -> None:
    random = Random(5)
    for _ in range(ROWS):
        p, q = random_row(random), random_row(random)
        ranges = row_ranges(p, q, random.choice(sorted(p)), kind)
        values = [Fraction(random.randint(-4, 4), random.randint(1, 3)) for _ in ranges]
        for sign in (1, -1):
            solved = linprog(
                -sign * np.array([float(value) for value in values]),
                A_eq=np.ones((1, len(ranges))),
                b_eq=[1.0],
                bounds=[(float(low), float(high)) for _, low, high in ranges],
            )
            assert solved.success
            assert float(best_row(ranges, values, sign)) == pytest.approx(-sign * solved.fun, abs=1e-9)


@scaled
@pytest.mark.parametrize("kind", ["any", "stable"])
def test_gumbel_max_lies_inside(kind: str) -> None:
    random = Random(6)
    for _ in range(ROWS):
        p, q = random_row(random), random_row(random)
        observed = random.choice(sorted(p))
        row = counterfactual_row(p, q, observed)
        limits = {k: (low, high) for k, low, high in row_ranges(p, q, observed, kind)}
        assert set(row) <= set(limits)
        assert all(low <= row.get(k, 0) <= high for k, (low, high) in limits.items())


def test_couplings_are_the_rows_of_any_causal_model() -> None:
    """Every limit of `any` is reached by a joint distribution of the two outcomes, and none goes beyond."""
    random = Random(7)
    for _ in range(40):
        p, q = random_row(random, 3), random_row(random, 3)
        observed = random.choice(sorted(p))
        limits = {k: (low, high) for k, low, high in row_ranges(p, q, observed, "any")}
        equal = np.array([[float(i == row) for i in p for _ in q] for row in p])
        likewise = np.array([[float(k == column) for _ in p for k in q] for column in q])
        totals = [float(p[i]) for i in p] + [float(q[k]) for k in q]
        for k in q:
            cost = np.array([float(i == observed and other == k) for i in p for other in q])
            for sign, limit in zip((1, -1), map(float, limits.get(k, (0, 0))), strict=True):
                solved = linprog(sign * cost, A_eq=np.vstack([equal, likewise]), b_eq=totals)
                assert sign * solved.fun / float(p[observed]) == pytest.approx(limit, abs=1e-9)
