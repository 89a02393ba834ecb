"""Counterfactual rows when neither the transition distributions nor the causal model is known, as linear programs.

The observed row p lies in the box [low, high], the target row q in the box [low_q, high_q]; each sums to 1. Noise that
produces outcome j of p and outcome k of q has some joint distribution J >= 0 with marginals p and q, and any J is that
of some causal model. Given that p led to outcome i, the counterfactual row is x_k = J[i, k] / p_i.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.optimize import linprog

from tests.oracle.confidence import Floats

Numbers = Sequence[float]
Table = Sequence[Numbers]
Limits = Sequence[tuple[float, float | None]]
ROUNDING = 1e-12
PRECISION = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}


class NoRowError(ValueError):
    """No pair of rows lies in the boxes."""


def row_extreme(  # noqa: PLR0917 (two boxes and the question, in the order of the definition)
    low: Numbers, high: Numbers, observed: int, low_q: Numbers, high_q: Numbers, values: Numbers, *, largest: bool
) -> float:
    """Return the largest or smallest x.v over all p and q in their boxes and all couplings of the two.

    x.v = sum_k J[i, k] v_k / p_i is a quotient of linear functions. With t = 1 / p_i and Y = t J (Charnes & Cooper)
    it is linear: sum_k Y[i, k] = 1, the row sums of Y lie between t low and t high, its column sums between t low_q and
    t high_q, its total is t. Every t >= 1 is allowed, so p_i > 0 however small: the outcome was observed.
    """
    rows, columns = len(low), len(low_q)
    size = rows * columns

    def entries(row: int | slice, column: int | slice) -> Floats:
        chosen = np.zeros((rows, columns))
        chosen[row, column] = 1.0
        return chosen.reshape(-1)

    at_most = []
    for j in range(rows):
        at_most += [[*entries(j, slice(None)), -high[j]], [*-entries(j, slice(None)), low[j]]]
    for k in range(columns):
        at_most += [[*entries(slice(None), k), -high_q[k]], [*-entries(slice(None), k), low_q[k]]]
    equal = [[*entries(observed, slice(None)), 0.0], [*np.ones(size), -1.0]]
    cost = np.zeros(size + 1)
    cost[observed * columns : (observed + 1) * columns] = values
    return _solved(cost, at_most, [0.0] * len(at_most), equal, [1.0, 0.0], [(0, None)] * (size + 1), largest=largest)


def row_extreme_closed(  # noqa: PLR0917 (likewise)
    low: Numbers, high: Numbers, observed: int, low_q: Numbers, high_q: Numbers, values: Numbers, *, largest: bool
) -> float:
    """Return the same from the smallest possible probability p* of the observed outcome alone.

    A smaller p_i only allows more, so with p* > 0 the rows are { x : sum x = 1, p* x_k <= high_q_k,
    sum_k max(low_q_k, p* x_k) <= 1 }: here with z_k for the maximum. With p* = 0 every p_i > 0 is allowed. As p_i
    becomes small the conditions keep only that x_k = 0 where q_k must be 0: any row on the other outcomes.
    """
    least = least_chance(low, high, observed)
    count = len(values)
    if sum(low_q) > 1 + ROUNDING:
        raise NoRowError("the target row is empty")
    if least == 0.0:
        room = 1 - sum(low_q)
        possible = [v for v, lo, hi in zip(values, low_q, high_q, strict=True) if min(hi, room + lo) > ROUNDING]
        return max(possible) if largest else min(possible)
    eye = np.eye(count)
    at_most = [*np.hstack([least * eye, -eye]).tolist(), [*np.zeros(count), *np.ones(count)]]
    bounds = [(0.0, None)] * count + list(zip(low_q, high_q, strict=True))
    cost = np.concatenate([values, np.zeros(count)])
    equal = [[*np.ones(count), *np.zeros(count)]]
    return _solved(cost, at_most, [0.0] * count + [1.0], equal, [1.0], bounds, largest=largest)


def least_chance(low: Numbers, high: Numbers, observed: int) -> float:
    """Return the smallest probability of the observed outcome, p*."""
    return float(max(low[observed], 1 - (sum(high) - high[observed])))


def interval_extreme(low: Numbers, high: Numbers, values: Numbers, *, largest: bool) -> float:
    """Return the largest or smallest q.v over all q in the box that sum to 1."""
    bounds = list(zip(low, high, strict=True))
    return _solved(np.array(values), [], [], [[1.0] * len(values)], [1.0], bounds, largest=largest)


def _solved(  # noqa: PLR0917 (the arguments of linprog)
    cost: Floats, at_most: Table, limits: Numbers, equal: Table, totals: Numbers, bounds: Limits, *, largest: bool
) -> float:
    sign = -1.0 if largest else 1.0
    solved = linprog(
        sign * cost,
        A_ub=at_most or None,
        b_ub=limits or None,
        A_eq=equal,
        b_eq=totals,
        bounds=bounds,
        method="highs",
        options=PRECISION,
    )
    if solved.status == 2:
        raise NoRowError(solved.message)
    assert solved.status == 0, solved.message
    return sign * float(solved.fun)
