"""The rows of all causal models, beside linear programs over joint distributions."""

from __future__ import annotations

from fractions import Fraction
from random import Random

import numpy as np
import pytest
from scipy.optimize import linprog

from tests.oracle.couplings import limits, rows_of_models
from tests.oracle.race import counterfactual_row
from tests.oracle.setting import Dist
from tests.oracle.test_race import random_row
from tests.oracle.worlds import best_row, row_ranges
from tests.tiers import examples, scaled

CASES = examples(40, 150)


def extreme(p: Dist, q: Dist, observed: int, kind: str, values: dict[int, Fraction], *, sign: int) -> float:
    """Return the largest (1) or smallest (-1) mean of values over the joint distributions J, by linear programming."""
    pairs = [(i, k) for i in p for k in q]
    cost = [-sign * float(values[k]) if i == observed else 0.0 for i, k in pairs]
    equal = [[float(i == row) for i, _ in pairs] for row in p] + [
        [float(k == column) for _, k in pairs] for column in q
    ]
    totals = [float(weight) for weight in (*p.values(), *q.values())]

    def high(i: int, k: int) -> float:
        barred = k != observed and k in p and q.get(observed, 0) * p[k] >= q[k] * p[observed]
        return 0.0 if kind == "stable" and i == observed and barred else 1.0

    solved = linprog(cost, A_eq=np.array(equal), b_eq=totals, bounds=[(0.0, high(*pair)) for pair in pairs])
    assert solved.success
    return float(-sign * solved.fun / float(p[observed]))


@scaled
@pytest.mark.parametrize("kind", ["any", "stable"])
def test_the_vertices_solve_the_linear_programme_over_joint_distributions(kind: str) -> None:
    random = Random(11)
    for _ in range(CASES):
        p, q = random_row(random), random_row(random)
        observed = random.choice(sorted(p))
        values = {k: Fraction(random.randint(-4, 4), random.randint(1, 3)) for k in q}
        means = [sum(w * values[k] for k, w in row.items()) for row in rows_of_models(p, q, observed, kind)]
        assert float(max(means)) == pytest.approx(extreme(p, q, observed, kind, values, sign=1), abs=1e-8)
        assert float(min(means)) == pytest.approx(extreme(p, q, observed, kind, values, sign=-1), abs=1e-8)


@scaled
@pytest.mark.parametrize("kind", ["any", "stable"])
def test_the_vertices_and_the_table_of_limits_describe_the_same_rows(kind: str) -> None:
    random = Random(12)
    for _ in range(CASES):
        p, q = random_row(random), random_row(random)
        observed = random.choice(sorted(p))
        ranges = row_ranges(p, q, observed, kind)
        values = [Fraction(random.randint(-4, 4), random.randint(1, 3)) for _ in ranges]
        worth = dict(zip((k for k, _, _ in ranges), values, strict=True))
        means = [sum(w * worth[k] for k, w in row.items()) for row in rows_of_models(p, q, observed, kind)]
        assert (min(means), max(means)) == (best_row(ranges, values, -1), best_row(ranges, values, 1))


@scaled
@pytest.mark.parametrize("kind", ["any", "stable"])
def test_each_vertex_is_a_row_and_that_of_gumbel_max_is_within_the_limits(kind: str) -> None:
    random = Random(13)
    for _ in range(CASES):
        p, q = random_row(random), random_row(random)
        observed = random.choice(sorted(p))
        upper = limits(p, q, observed, kind)
        for row in (*rows_of_models(p, q, observed, kind), counterfactual_row(p, q, observed)):
            assert sum(row.values()) == 1
            assert all(0 < weight <= upper[k] for k, weight in row.items())
