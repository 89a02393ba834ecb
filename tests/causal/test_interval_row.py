"""Extreme means over rows known up to bounds, against linear programs over couplings."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linprog

from monitor.arrays import Floats
from monitor.causal.interval_row import extreme_given, least_probability
from monitor.causal.row import row_memory
from tests.tiers import first

TOLERANCE = 1e-9
Bounds = tuple[Floats, Floats]


def box(rng: np.random.Generator, size: int) -> Bounds:
    """Draw bounds that some distribution meets: some tight, some wide, some entries possibly impossible."""
    centre = rng.dirichlet(np.full(size, 0.7))
    width = rng.choice([0.0, 0.05, 0.5, 1.0]) * rng.random(size)
    lower = np.maximum(centre - width * rng.random(size), 0.0)
    upper = np.minimum(centre + width * rng.random(size), 1.0)
    lower[rng.random(size) < 0.2] = 0.0
    return lower, upper


def by_coupling(observed: Bounds, at: int, target: Bounds, values: Floats, *, largest: bool) -> float:
    """Solve over all p, q in their bounds and all couplings, for the mean of q's outcome given that p's is `at`.

    Charnes and Cooper (1962): divided by p_at, the fraction becomes linear. The variables are the coupling over p_at
    [K, M], and its total 1 / p_at.
    """
    rows, columns = len(observed[0]), len(target[0])
    size = rows * columns + 1
    limits: list[Floats] = []
    for n in range(rows):
        marginal = np.zeros(size)
        marginal[n * columns : (n + 1) * columns] = 1.0
        limits += _between(marginal, observed[0][n], observed[1][n])
    for n in range(columns):
        marginal = np.zeros(size)
        marginal[n : rows * columns : columns] = 1.0
        limits += _between(marginal, target[0][n], target[1][n])
    total, given = np.zeros(size), np.zeros(size)
    total[:-1], total[-1] = 1.0, -1.0
    given[at * columns : (at + 1) * columns] = 1.0
    cost = np.zeros(size)
    cost[at * columns : (at + 1) * columns] = -values if largest else values
    found = linprog(
        cost, A_ub=limits, b_ub=np.zeros(len(limits)), A_eq=[total, given], b_eq=[0.0, 1.0], bounds=(0, None)
    )
    assert found.status == 0, found.message
    return float(-found.fun if largest else found.fun)


def _between(marginal: Floats, low: float, high: float) -> list[Floats]:
    """The marginal is at least low and at most high, both times the total (the last variable)."""
    least, greatest = -marginal, marginal.copy()
    least[-1], greatest[-1] = low, -high
    return [least, greatest]


@pytest.mark.parametrize("seed", first(40, range(200)))
def test_extremes_are_those_of_linear_programs_over_couplings(seed: int) -> None:
    rng = np.random.default_rng(seed)
    observed, target = box(rng, int(rng.integers(1, 6))), box(rng, int(rng.integers(1, 6)))
    at = int(rng.integers(len(observed[0])))
    if least_probability(*observed, at) < 0.01:  # else the program is too badly scaled
        observed = np.zeros(len(observed[0])), np.ones(len(observed[0]))
        observed[0][at] = 0.05
    least = least_probability(*observed, at)
    values = rng.choice([rng.normal(size=len(target[0])), rng.integers(0, 2, len(target[0])).astype(float)])
    for largest in (False, True):
        expected = by_coupling(observed, at, target, values, largest=largest)
        assert extreme_given(*target, least, values, largest, row_memory(len(values))) == pytest.approx(
            expected, abs=TOLERANCE
        )


def test_an_outcome_of_any_small_probability_allows_every_possible_successor() -> None:
    lower, upper = np.array([0.2, 0.0, 0.5, 0.0]), np.array([0.4, 0.3, 0.7, 0.0])
    values = np.array([2.0, 3.0, 1.0, 9.0])
    assert extreme_given(lower, upper, 0.0, values, True, row_memory(len(values))) == 3.0  # noqa: FBT003 - compiled code takes no keywords
    assert extreme_given(lower, upper, 0.0, values, False, row_memory(len(values))) == 1.0  # noqa: FBT003 - likewise
    observed = np.array([0.0, 0.0]), np.array([1.0, 1.0])
    assert least_probability(*observed, 0) == 0.0
    tiny = np.array([1e-4, 0.0]), np.array([1.0, 1.0])
    assert by_coupling(tiny, 0, (lower, upper), values, largest=True) == pytest.approx(3.0, abs=1e-6)


def test_a_certain_outcome_says_nothing() -> None:
    lower, upper, values = np.array([0.2, 0.3]), np.array([0.7, 0.8]), np.array([0.0, 1.0])
    assert extreme_given(lower, upper, 1.0, values, True, row_memory(len(values))) == pytest.approx(0.8)  # noqa: FBT003 - likewise
    assert least_probability(np.array([0.0, 0.0]), np.array([1.0, 0.0]), 0) == 1.0
