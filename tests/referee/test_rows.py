"""The counterfactual row and its bounds, on distributions small enough to compute by hand."""

from __future__ import annotations

import numpy as np
import pytest

from monitor.referee.row import counterfactual, extreme_mean, limits

HALF = np.array([0.5, 0.5])


def test_two_outcomes_by_hand() -> None:
    """p = (1/2, 1/2) gave 0; q = (1/4, 3/4): D(u) = 1 on [0, 2/3], 1/2 + 3u/4 on [2/3, 2].

    P(0) = 1 / D(2) = 1/2; P(1) = 3/4 * (4/3) / (D(2/3) D(2)) = 1/2.
    """
    assert counterfactual(HALF, np.array([0.25, 0.75]), 0) == pytest.approx([0.5, 0.5], abs=1e-15)


def test_an_outcome_that_became_likelier_stays() -> None:
    assert counterfactual(HALF, np.array([0.75, 0.25]), 0) == pytest.approx([1.0, 0.0], abs=1e-15)


def test_an_outcome_that_became_impossible() -> None:
    """q = (0, 1/2, 1/2), p = (1/2, 1/2, 0), 0 observed: D(u) = 1 + u/2 up to 1, 1/2 + u above.

    P(2) = 1/2 * (1 / (1 * 3/2) + 1 / (3/2)) = 2/3, P(1) = 1/2 * 1 / (3/2) = 1/3.
    """
    found = counterfactual(np.array([0.5, 0.5, 0.0]), np.array([0.0, 0.5, 0.5]), 0)
    assert found == pytest.approx([0.0, 1 / 3, 2 / 3], abs=1e-15)


def test_disjoint_supports_leave_the_row_as_it_is() -> None:
    q = np.array([0.0, 0.0, 0.3, 0.7])
    assert counterfactual(np.array([0.4, 0.6, 0.0, 0.0]), q, 0) == pytest.approx(q, abs=1e-15)


@pytest.mark.parametrize("seed", range(20))
def test_laws(seed: int) -> None:
    """The mean over observed outcomes is the plain row; the same row replays; a bound holds every row."""
    rng = np.random.default_rng(seed)
    p, q = (rng.dirichlet(np.ones(6)) * (rng.random(6) < 0.7) + np.eye(6)[seed % 6] * 0.01 for _ in range(2))
    p, q = p / p.sum(), q / q.sum()
    rows = {int(i): counterfactual(p, q, int(i)) for i in np.flatnonzero(p)}
    assert sum(p[i] * row for i, row in rows.items()) == pytest.approx(q, abs=1e-12)
    for i, row in rows.items():
        assert counterfactual(p, p, i) == pytest.approx(np.eye(6)[i], abs=1e-15)
        for causal_model in ("any", "stable"):
            low, high = limits(p, q, i, causal_model)
            assert np.all(low <= row + 1e-12)
            assert np.all(row <= high + 1e-12)


@pytest.mark.filterwarnings("error")
def test_ratios_beyond_all_floats_are_no_trouble() -> None:
    p, q = np.array([1.0 - 1e-310, 1e-310]), np.array([1e-310, 1.0 - 1e-310])
    assert counterfactual(p, q, 0) == pytest.approx([0.0, 1.0], abs=1e-15)


def test_limits_by_hand() -> None:
    """p = (1/2, 1/2) gave 0; q = (1/4, 3/4): any: P(0) in [0, 1/2], P(1) in [1/2, 1]; stable: 1 is allowed."""
    q = np.array([0.25, 0.75])
    for causal_model in ("any", "stable"):
        low, high = limits(HALF, q, 0, causal_model)
        assert (low.tolist(), high.tolist()) == ([0.0, 0.5], [0.5, 1.0])
    low, high = limits(HALF, q, 1, "stable")
    assert (low.tolist(), high.tolist()) == ([0.0, 1.0], [0.0, 1.0])
    low, high = limits(HALF, q, 1, "any")
    assert (low.tolist(), high.tolist()) == ([0.0, 0.5], [0.5, 1.0])


def test_disjoint_supports_bound_as_any() -> None:
    p, q = np.array([0.5, 0.5, 0.0, 0.0]), np.array([0.0, 0.0, 0.25, 0.75])
    low, high = limits(p, q, 0, "stable")
    assert (low.tolist(), high.tolist()) == ([0.0, 0.0, 0.0, 0.5], [0.0, 0.0, 0.5, 1.0])


def test_the_extreme_mean_fills_the_best_outcomes_first() -> None:
    low, high, values = np.array([0.1, 0.0, 0.2]), np.array([0.5, 0.6, 0.9]), np.array([1.0, 3.0, 2.0])
    assert extreme_mean(low, high, values, largest=True) == pytest.approx(0.1 * 1 + 0.6 * 3 + 0.3 * 2)
    assert extreme_mean(low, high, values, largest=False) == pytest.approx(0.5 * 1 + 0.0 * 3 + 0.5 * 2)
