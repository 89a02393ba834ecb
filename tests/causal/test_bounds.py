"""Bounds of rows against linear programs over couplings: every joint distribution with the two rows as its margins."""

from __future__ import annotations

from fractions import Fraction
from typing import Literal

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from monitor.causal import Row, counterfactual_row, extreme, row_bounds
from tests.causal.rows import LAW, as_row, distributions, hard_rows
from tests.tiers import examples

Class = Literal["any", "stable"]
CLASSES: tuple[Class, ...] = ("any", "stable")
Rational = dict[int, Fraction]


def best_coupling(p: Rational, i: int, q: Rational, causal_model: Class, worth: dict[int, float]) -> float:
    """The largest mean of `worth` after the observed outcome i, over all couplings x[j, k] of p and q.

    Stable: x[i, k] = 0 wherever k != i became no likelier relative to i; asked only of rows whose supports overlap.
    """
    cells = [(j, k) for j in p for k in q]
    margins = [[float(cell[0] == j) for cell in cells] for j in p] + [
        [float(cell[1] == k) for cell in cells] for k in q
    ]
    overlap = bool(p.keys() & q.keys())

    def barred(j: int, k: int) -> bool:
        kept = k != i and k in p and q.get(i, Fraction(0)) * p[k] >= q[k] * p[i]
        return causal_model == "stable" and overlap and j == i and kept

    found = linprog(
        [-worth[k] / float(p[i]) if j == i else 0.0 for j, k in cells],
        A_eq=margins,
        b_eq=[float(w) for w in (*p.values(), *q.values())],
        bounds=[(0.0, 0.0 if barred(j, k) else None) for j, k in cells],
    )
    assert found.success
    return -float(found.fun)


@pytest.mark.parametrize("causal_model", CLASSES)
@settings(LAW, max_examples=examples(25, 60))
@given(distributions(4), distributions(4), st.data())
def test_bounds_are_the_extremes_over_couplings(
    causal_model: Class, p: Rational, q: Rational, data: st.DataObject
) -> None:
    i = data.draw(st.sampled_from(sorted(p)))
    lower, upper = row_bounds(as_row(p), i, as_row(q), causal_model)
    for place, k in enumerate(sorted(q)):
        alone = {state: float(state == k) for state in q}
        assert upper[place] == pytest.approx(best_coupling(p, i, q, causal_model, alone), abs=1e-9)
        assert lower[place] == pytest.approx(-best_coupling(p, i, q, causal_model, negative(alone)), abs=1e-9)


@pytest.mark.parametrize("causal_model", CLASSES)
@settings(LAW, max_examples=examples(25, 60))
@given(distributions(4), distributions(4), st.data())
def test_the_best_row_is_the_best_coupling(causal_model: Class, p: Rational, q: Rational, data: st.DataObject) -> None:
    """Box and simplex lose nothing: the mean of any values is extreme over rows as it is over couplings."""
    i = data.draw(st.sampled_from(sorted(p)))
    worth = {k: data.draw(st.integers(-3, 3)) * 0.5 for k in sorted(q)}
    bounds = row_bounds(as_row(p), i, as_row(q), causal_model)
    values = np.array([worth[k] for k in sorted(q)])
    assert extreme(*bounds, values, largest=True) == pytest.approx(
        best_coupling(p, i, q, causal_model, worth), abs=1e-9
    )
    assert extreme(*bounds, values, largest=False) == pytest.approx(
        -best_coupling(p, i, q, causal_model, negative(worth)), abs=1e-9
    )


def negative(worth: dict[int, float]) -> dict[int, float]:
    return {state: -value for state, value in worth.items()}


@LAW
@given(distributions(5), distributions(5), st.data())
def test_gumbel_within_stable_within_any(p: Rational, q: Rational, data: st.DataObject) -> None:
    i = data.draw(st.sampled_from(sorted(p)))
    row = counterfactual_row(as_row(p), i, as_row(q))
    low, high = row_bounds(as_row(p), i, as_row(q), "any")
    stable_low, stable_high = row_bounds(as_row(p), i, as_row(q), "stable")
    ordered = np.array([low, stable_low, row, stable_high, high])
    assert (np.diff(ordered, axis=0) >= -1e-12).all()


@pytest.mark.parametrize("causal_model", CLASSES)
@LAW
@given(hard_rows(), st.data())
def test_bounds_of_hard_rows(causal_model: Class, pair: tuple[Row, Row], data: st.DataObject) -> None:
    """Never NaN, always in order within [0, 1], and some distribution fits between them."""
    p, q = pair
    i = data.draw(st.sampled_from(p[0].tolist()))
    lower, upper = row_bounds(p, i, q, causal_model)
    assert (lower >= 0.0).all()
    assert (upper <= 1.0).all()
    assert (lower <= upper + 1e-12).all()
    assert lower.sum() <= 1.0 + 1e-9
    assert upper.sum() >= 1.0 - 1e-9


@LAW
@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8), st.integers(-4, 4)), min_size=1, max_size=6))
def test_extreme_is_the_linear_program(entries: list[tuple[int, int, int]]) -> None:
    lower, room, values = (np.array(column, dtype=float) for column in zip(*entries, strict=True))
    scale = max(lower.sum(), 1.0)
    lower = lower / (2 * scale)
    upper = np.minimum(lower + room / 8.0, 1.0)
    if upper.sum() < 1.0:
        upper = np.minimum(upper + 1.0, 1.0)  # room for a distribution
    for sign in (1.0, -1.0):
        assert extreme(lower, upper, values, largest=sign > 0) == pytest.approx(
            sign * program(lower, upper, sign * values), abs=1e-9
        )


def program(lower: npt.NDArray[np.float64], upper: npt.NDArray[np.float64], values: npt.NDArray[np.float64]) -> float:
    spans = list(zip(lower, upper, strict=True))
    found = linprog(-values, A_eq=[np.ones(len(values))], b_eq=[1.0], bounds=spans)
    assert found.success
    return -float(found.fun)
