"""The counterfactual row: where would the same randomness have led, had the row been another one?

In the Gumbel-Max causal model (Kazemi & Paoletti, Section 2.3) the next state is `argmax_j (log P(j) + G_j)`. With
`E_j = exp(-(G_j + log p_j))` that is a race of exponential clocks: the winner's time is Exp(1), every other clock with
`p_j > 0` is the winner's time plus a fresh Exp(p_j), and a clock with `p_j = 0` keeps its prior. The paper samples this
posterior; here its image under another row is written down in closed form (design page "semantics", section 3).
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt

__all__ = ["Row", "conditional_choices", "counterfactual_row", "extreme", "row_bounds"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Row = tuple[Ints, Floats]
"""Successors, ascending, and their positive probabilities: two arrays [K]."""

STABILITY_TOLERANCE = 1e-12
"""Relative slack in the premise of counterfactual stability, so that rows equal up to rounding count as equal."""


def counterfactual_row(observed: Row, outcome: int, asked: Row) -> Floats:
    """Distribution over `asked`'s successors, given that `observed` led to `outcome` under the same noise.

    Args:
        observed: the row of the step really taken, p; `outcome` must be among its successors.
        outcome: the state really reached, i.
        asked: the row of the world asked about, q.

    Returns:
        [K] float64 aligned with `asked`'s successors; states outside them have probability 0.

    With D(u) = sum_j max(p_j, u q_j):  P(i) = 1 / D(p_i/q_i)  and  P(k) = q_k * integral of du / D(u)^2 from p_k/q_k to
    p_i/q_i. D is piecewise linear, so the integral over a piece [a, b] is (b - a) / (D(a) D(b)). O(K log K).
    """
    p, p_outcome, at = _aligned(observed, outcome, asked)
    q = asked[1]
    return _reweigh(p, q, p_outcome, at, 1.0 - float(p.sum()))


def conditional_choices(observed: Floats, action: int, asked: Floats) -> Floats:
    """The same for a stochastic policy's choice: p, q are distributions [A] over actions, `action` the one taken.

    An action of probability 0 under `observed` says nothing about the noise: then `asked` itself (semantics, 7). Nor
    does a certain one, whatever the noise was.
    """
    if observed[action] <= 0.0 or observed[action] >= 1.0:
        return asked
    support = np.flatnonzero(asked)
    at = int(np.searchsorted(support, action))
    where = at if at < len(support) and support[at] == action else None
    p = observed[support]
    result = np.zeros_like(asked)
    result[support] = _reweigh(p, asked[support], float(observed[action]), where, 1.0 - float(p.sum()))
    return result


def _aligned(observed: Row, outcome: int, asked: Row) -> tuple[Floats, float, int | None]:
    """`observed`'s probabilities at `asked`'s successors [K], that of the outcome, and the outcome's place there."""
    states, p = observed
    at = np.searchsorted(states, asked[0])
    found = at < len(states)
    found[found] = states[at[found]] == asked[0][found]
    aligned = np.zeros(len(asked[0]))
    aligned[found] = p[at[found]]
    p_outcome = float(p[np.searchsorted(states, outcome)])
    place = int(np.searchsorted(asked[0], outcome))
    return aligned, p_outcome, place if place < len(asked[0]) and asked[0][place] == outcome else None


def _reweigh(p: Floats, q: Floats, p_outcome: float, at: int | None, unmatched: float) -> Floats:
    """The closed form. `unmatched`: p's mass where q is 0; `at`: where the outcome stands in q, or None if q_i = 0."""
    if not p.any():
        return q  # disjoint supports: the observation says nothing here (locality)
    ratio, limit = _ratios(p, q, p_outcome, at)
    result = np.zeros(len(q))
    order = np.argsort(ratio, kind="stable")
    order = order[ratio[order] < limit]
    if len(order) == 0:
        result[at] = 1.0  # nothing became likelier relative to the outcome
        return result
    breaks = ratio[order]
    # On the piece that begins at breaks[n]: D(u) = (p mass not yet overtaken) + u * (q mass that has overtaken).
    overtaken = np.cumsum(q[order])
    kept = (float(p.sum()) + max(unmatched, 0.0)) - np.cumsum(p[order])
    low = kept + overtaken * breaks
    ends = np.append(breaks[1:], limit)
    if np.isinf(limit):
        high = kept[:-1] + overtaken[:-1] * ends[:-1]
        pieces = np.append((ends[:-1] - breaks[:-1]) / high / low[:-1], 1.0 / overtaken[-1] / low[-1])
    else:
        high = kept + overtaken * ends
        pieces = (ends - breaks) / high / low  # not by their product, which may overflow
        result[at] = 1.0 / high[-1]
    result[order] = q[order] * np.cumsum(pieces[::-1])[::-1]
    return result


def _ratios(p: Floats, q: Floats, p_outcome: float, at: int | None) -> tuple[Floats, float]:
    """p_k/q_k [K] and p_i/q_i; infinite where q is 0, or so small that the ratio is beyond all numbers."""
    with np.errstate(over="ignore"):
        return p / q, float(p_outcome / q[at]) if at is not None else np.inf


def row_bounds(
    observed: Row, outcome: int, asked: Row, causal_model: Literal["any", "stable"]
) -> tuple[Floats, Floats]:
    """Lower and upper bound, each [K], of every entry of the counterfactual row over a class of causal models.

    `any`: every mechanism with these two rows (Frechet bounds). `stable`: those that keep the observed outcome i unless
    another became relatively likelier; the extra zeros then raise the other lower bounds. Not for the very same state,
    action and model as observed: there the outcome is certain under every causal model.
    """
    p, p_outcome, at = _aligned(observed, outcome, asked)
    q = asked[1]
    with np.errstate(over="ignore"):
        upper = np.minimum(1.0, q / p_outcome)
    if causal_model == "stable" and p.any():
        ratio, limit = _ratios(p, q, p_outcome, at)
        barred = (p > 0.0) & (ratio >= limit * (1.0 - STABILITY_TOLERANCE))
        if at is not None:
            barred[at] = False
        upper = np.where(barred, 0.0, upper)
    # What the others cannot take. For `any` this is (q_k - (1 - p_i)) / p_i, without its cancellation at small p_i.
    lower = np.clip(1.0 - (upper.sum() - upper), 0.0, upper)
    return lower, upper


def extreme(lower: Floats, upper: Floats, values: Floats, *, largest: bool) -> float:
    """Largest (or smallest) mean of `values` over the distributions x with lower <= x <= upper; arrays [K].

    Greedy: everyone gets the lower bound, the rest goes to the best values first.
    """
    order = np.argsort(-values if largest else values, kind="stable")
    room = (upper - lower)[order]
    rest = 1.0 - float(lower.sum())
    before = np.cumsum(room) - room
    given = np.clip(rest - before, 0.0, room)
    return float(lower @ values + given @ values[order])
