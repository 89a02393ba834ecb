"""The counterfactual row: its laws, and the same numbers by other means."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate

from monitor.causal import Row, conditional_choices, counterfactual_row
from tests.causal.rows import LAW, STATES, as_row, distributions, hard_rows, mass, rows
from tests.oracle import race
from tests.tiers import first


def test_the_worked_example() -> None:
    """p = (1/2, 1/2), observed 0; under q = (1/4, 3/4) outcome 0 stays with 1/D(2) = 1/2."""
    p, q = (np.array([0, 1]), np.array([0.5, 0.5])), (np.array([0, 1]), np.array([0.25, 0.75]))
    np.testing.assert_allclose(counterfactual_row(p, 0, q), [0.5, 0.5], rtol=0, atol=1e-15)
    np.testing.assert_allclose(counterfactual_row(p, 1, q), [0.0, 1.0], rtol=0, atol=1e-15)


@LAW
@given(distributions(), distributions(), st.data())
def test_agrees_with_the_race_in_rational_arithmetic(
    p: dict[int, Fraction], q: dict[int, Fraction], data: st.DataObject
) -> None:
    outcome = data.draw(st.sampled_from(sorted(p)))
    expected = race.counterfactual_row(p, q, outcome)
    asked = as_row(q)
    np.testing.assert_allclose(
        counterfactual_row(as_row(p), outcome, asked), [float(expected.get(int(s), 0)) for s in asked[0]], atol=1e-13
    )


@pytest.mark.parametrize("seed", first(4, range(12)))
def test_agrees_with_numerical_integration(seed: int) -> None:
    """Condition on the winner's time t; the chance that k rings first is the integral of its density times survival."""
    chance = Random(seed)
    p, q = (as_row(random_distribution(chance)) for _ in range(2))
    outcome = chance.choice(p[0].tolist())
    found = counterfactual_row(p, outcome, q)
    for place, k in enumerate(q[0].tolist()):
        assert found[place] == pytest.approx(by_integration(p, outcome, q, k), abs=1e-6)


def random_distribution(chance: Random) -> dict[int, Fraction]:
    support = sorted(chance.sample(range(4), chance.randint(1, 4)))
    weights = [chance.randint(1, 3) for _ in support]
    return {state: Fraction(weight, sum(weights)) for state, weight in zip(support, weights, strict=True)}


def by_integration(p: Row, outcome: int, q: Row, k: int) -> float:
    weights = dict(zip(q[0].tolist(), q[1].tolist(), strict=True))
    lag = {j: mass(p, j) / weights[j] for j in weights}
    rivals = [j for j in weights if j not in (k, outcome)]

    def survives(x: float, t: float, among: list[int]) -> float:
        return float(np.exp(-sum(weights[j] * max(x - t * lag[j], 0.0) for j in among)))

    if k == outcome:
        return float(integrate.quad(lambda t: np.exp(-t) * survives(t * lag[k], t, rivals), 0, np.inf)[0])

    def wins(t: float) -> float:
        begin, end = t * lag[k], t * lag[outcome] if outcome in lag else t * max(lag.values()) + 40.0
        if begin >= end:
            return 0.0
        steps = np.arange(begin, end, 4.0).tolist()  # short enough for a polynomial
        knees = sorted({begin, end, *steps, *(t * lag[j] for j in rivals if begin < t * lag[j] < end)})
        total: float = sum(
            integrate.fixed_quad(
                np.vectorize(lambda x: weights[k] * np.exp(-weights[k] * (x - begin)) * survives(x, t, rivals)),
                a,
                b,
                n=20,
            )[0]
            for a, b in pairwise(knees)
        )
        return total

    return float(integrate.quad(lambda t: np.exp(-t) * wins(t), 0, 60, epsabs=1e-9, limit=200)[0])


@LAW
@given(rows, rows)
def test_total_probability(p: Row, q: Row) -> None:
    """Averaged over what might have been observed, nothing was learnt: sum_i p_i P(. | i) = q."""
    average = sum(weight * counterfactual_row(p, int(state), q) for state, weight in zip(*p, strict=True))
    np.testing.assert_allclose(average, q[1], rtol=0, atol=1e-12)


@LAW
@given(rows, st.data())
def test_identity(p: Row, data: st.DataObject) -> None:
    outcome = data.draw(st.sampled_from(p[0].tolist()))
    np.testing.assert_array_equal(counterfactual_row(p, outcome, p), (p[0] == outcome).astype(float))


@LAW
@given(distributions(), distributions(), st.data())
def test_counterfactual_stability(p: dict[int, Fraction], q: dict[int, Fraction], data: st.DataObject) -> None:
    """An outcome that became no likelier relative to the observed one is never reached; the others all are."""
    i = data.draw(st.sampled_from(sorted(p)))
    found = counterfactual_row(as_row(p), i, as_row(q))
    for k, chance in zip(sorted(q), found.tolist(), strict=True):
        if k != i:
            unlikelier = q.get(i, 0) * p.get(k, 0) >= q[k] * p[i]
            assert (chance == pytest.approx(0.0, abs=1e-15)) == (unlikelier and (k in p or i in q))


@LAW
@given(rows, rows, st.data())
def test_locality(p: Row, q: Row, data: st.DataObject) -> None:
    """Disjoint supports: the observation says nothing, to the bit."""
    far = (q[0] + STATES, q[1])
    outcome = data.draw(st.sampled_from(p[0].tolist()))
    np.testing.assert_array_equal(counterfactual_row(p, outcome, far), far[1])


@LAW
@given(hard_rows(), st.data())
def test_tiny_huge_and_near_equal(pair: tuple[Row, Row], data: st.DataObject) -> None:
    """Never NaN, never negative, always a distribution, for every representable pair (warnings are errors here)."""
    p, q = pair
    outcome = data.draw(st.sampled_from(p[0].tolist()))
    found = counterfactual_row(p, outcome, q)
    assert np.isfinite(found).all()
    assert (found >= 0.0).all()
    assert found.sum() == pytest.approx(1.0, abs=1e-12)


@LAW
@given(hard_rows())
def test_total_probability_holds_for_hard_rows_too(pair: tuple[Row, Row]) -> None:
    p, q = pair
    average = sum(weight * counterfactual_row(p, int(state), q) for state, weight in zip(*p, strict=True))
    np.testing.assert_allclose(average, q[1], rtol=0, atol=1e-12)


@LAW
@given(hard_rows(), st.data())
def test_near_equal_rows_keep_the_outcome(pair: tuple[Row, Row], data: st.DataObject) -> None:
    p, _ = pair
    outcome = data.draw(st.sampled_from(p[0].tolist()))
    nudged = p[1] * (1.0 + np.linspace(-1e-15, 1e-15, len(p[1])))
    found = counterfactual_row(p, outcome, (p[0], nudged / nudged.sum()))
    assert found[p[0] == outcome][0] == pytest.approx(1.0, abs=1e-12)


@LAW
@given(distributions(4), distributions(4), st.integers(0, 3))
def test_choices_are_rows_over_actions(p: dict[int, Fraction], q: dict[int, Fraction], taken: int) -> None:
    """The same closed form; an action of probability 0 says nothing."""
    dense = [np.array([float(one.get(a, 0)) for a in range(4)]) for one in (p, q)]
    expected = race.counterfactual_row(p, q, taken) if taken in p else q
    found = conditional_choices(dense[0], taken, dense[1])
    np.testing.assert_allclose(found, [float(expected.get(a, 0)) for a in range(4)], atol=1e-13)
