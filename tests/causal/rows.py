"""Pairs of rows for the tests of the counterfactual row."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import numpy.typing as npt
from hypothesis import settings
from hypothesis import strategies as st

from monitor.causal import Row
from tests.tiers import examples

__all__ = ["LAW", "as_row", "distributions", "hard_rows", "mass", "rows"]

LAW = settings(max_examples=examples(25, 300))

STATES = 6


@st.composite
def distributions(draw: st.DrawFn, states: int = STATES) -> dict[int, Fraction]:
    """Rational, with small weights: ratios often coincide and supports often differ."""
    weights = draw(st.dictionaries(st.integers(0, states - 1), st.integers(1, 6), min_size=1, max_size=states))
    total = sum(weights.values())
    return {state: Fraction(weight, total) for state, weight in sorted(weights.items())}


def as_row(distribution: dict[int, Fraction]) -> Row:
    return np.array(sorted(distribution)), np.array([float(distribution[state]) for state in sorted(distribution)])


rows = distributions().map(as_row)


@st.composite
def hard_rows(draw: st.DrawFn) -> tuple[Row, Row]:
    """Probabilities down to 1e-300, up to 1 - 1e-15, and a second row that is nearly the first or nothing like it."""
    size = draw(st.integers(1, STATES))
    states = np.array(sorted(draw(st.permutations(range(STATES)))[:size]))
    first = _normal(10.0 ** draw(_exponents(size)))
    if draw(st.booleans()):
        nudges = draw(st.lists(st.integers(-4, 4), min_size=size, max_size=size))
        return (states, first), (states, _normal(first * (1.0 + np.array(nudges) * np.finfo(float).eps)))
    others = np.array(sorted(draw(st.permutations(range(STATES)))[: draw(st.integers(1, STATES))]))
    return (states, first), (others, _normal(10.0 ** draw(_exponents(len(others)))))


def _exponents(size: int) -> st.SearchStrategy[npt.NDArray[np.float64]]:
    exponent = st.one_of(st.just(0.0), st.floats(-20.0, 0.0), st.floats(-300.0, 0.0))
    return st.lists(exponent, min_size=size, max_size=size).map(np.array)


def _normal(weights: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    shares: npt.NDArray[np.float64] = weights / weights.sum()
    return shares


def mass(row: Row, state: int) -> float:
    """The probability of one state."""
    return float(row[1][row[0] == state].sum())
