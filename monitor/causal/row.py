"""The counterfactual row: where another row would have led with the noise of an observed transition.

The counterfactual row combines abduction and prediction of one step in closed form: the noise is integrated out, never
represented. Suppose that row p led to i, and let D(u) = sum_j max(p_j, u q_j). Then row q leads to i and to another
state k with the probabilities (docs/semantics/worlds.md, section 3.1)

    P(i) = 1 / D(p_i/q_i),    P(k) = q_k * integral of du / D(u)^2 from p_k/q_k to p_i/q_i, or 0 if that is empty.

In the Gumbel-Max causal model (Kazemi & Paoletti, Section 2.3) the next state is `argmax_j (log P(j) + G_j)`. With
`E_j = exp(-(G_j + log p_j))` this is a race of exponential clocks. Given the winner, its time is Exp(1), the time of
every other clock with `p_j > 0` is the winner's time plus a fresh Exp(p_j), and a clock with `p_j = 0` keeps its prior.
The paper samples this posterior (abduction) and takes the winner under q (prediction). The formula is the probability
of each winner under q.

The compiled functions are at the end (`row.pxd` has their C types). The functions before them take plain arrays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from monitor.arrays import Floats, Ints

Row = tuple[Ints, Floats]
"""Successors, ascending, and their positive probabilities: two arrays [K]."""

STABILITY_TOLERANCE = 1e-12
"""Relative tolerance in the premise of counterfactual stability: ratios that differ only by rounding are equal."""

FEW = 24
"""Largest length for which insertion sort is fastest."""

INFINITY = float("inf")


@dataclass(eq=False)
class RowMemory:
    """Working memory for rows of at most `len(keys)` successors; its contents are not kept between two calls.

    `keys`, `order`: numbers to sort, and the indices that belong to them. `p`, `q`: the observed and the target row.
    `after`: the counterfactual row.
    """

    keys: Floats
    order: Ints
    p: Floats
    q: Floats
    after: Floats


def row_memory(size: int) -> RowMemory:
    """Return working memory for rows of at most `size` successors."""
    return RowMemory(np.zeros(size), np.zeros(size, dtype=np.int64), np.zeros(size), np.zeros(size), np.zeros(size))


def counterfactual_row(observed: Row, outcome: int, target: Row) -> Floats:
    """Return the distribution over `target`'s successors, given that `observed` led to `outcome` under the same noise.

    Args:
        observed: the row of the observed step, p; `outcome` must be among its successors.
        outcome: the observed successor, i.
        target: the row of the counterfactual world, q.

    Returns:
        [K] float64 aligned with `target`'s successors; states outside them have probability 0.

    D is piecewise linear, so the integral over a piece [a, b] is (b - a) / (D(a) D(b)). O(K log K).
    """
    states, q = target
    p, result = np.empty(len(q)), np.empty(len(q))
    p_outcome, at = align(*observed, outcome, states, p)
    reweigh(p, q, p_outcome, at, result)
    return result


def conditional_choices(observed: Floats, action: int, target: Floats) -> Floats:
    """Return the distribution [A] of the action that `target` takes with the noise with which `observed` took `action`.

    `observed`, `target`: distributions [A] of actions under two policies. An action of probability 0 or 1 under
    `observed` says nothing about the noise, so the result is then `target` (docs/semantics/formulas.md, section 7).
    """
    result = np.empty(len(target))
    choose(observed, action, target, result, row_memory(len(target)))
    return result


def row_bounds(
    observed: Row, outcome: int, target: Row, causal_model: Literal["any", "stable"]
) -> tuple[Floats, Floats]:
    """Return lower and upper bounds, each [K], of the counterfactual row over a class of causal models.

    `any`: every mechanism with these two rows (Frechet bounds). `stable`: the mechanisms that change the outcome only
    to an outcome that became relatively more likely. With `stable`, all outcomes that did not become relatively more
    likely, except i, have the upper bound 0, which raises some lower bounds. Do not use this function for the observed
    state, action and model: there the outcome is certain under every causal model.
    """
    states, q = target
    p, lower, upper = np.empty(len(q)), np.empty(len(q)), np.empty(len(q))
    p_outcome, at = align(*observed, outcome, states, p)
    bound(p, q, p_outcome, at, causal_model == "stable", lower, upper)
    return lower, upper


def extreme(lower: Floats, upper: Floats, values: Floats, *, largest: bool) -> float:
    """Return the largest (or smallest) mean of `values` over distributions x with lower <= x <= upper; arrays [K].

    The method is greedy: every entry gets its lower bound, and the best values get the remaining probability first.
    """
    memory = row_memory(len(lower))
    return float(greedy(lower, upper, values, largest, memory.keys, memory.order))


# ---- compiled ----


def align(states: Ints, p: Floats, outcome: int, target: Ints, aligned: Floats) -> tuple[float, int]:
    """Write p at `target`'s successors to `aligned` [K]; return p of the outcome, and its index in `target` or -1."""
    index = -1
    p_outcome, here = 0.0, 0
    for n in range(len(states)):
        if states[n] == outcome:
            p_outcome = p[n]
    for k in range(len(target)):
        while here < len(states) and states[here] < target[k]:
            here += 1
        if target[k] == outcome:
            index = k
        aligned[k] = p[here] if here < len(states) and states[here] == target[k] else 0.0
    return p_outcome, index


def sort_pairs(keys: Floats, order: Ints, count: int) -> None:
    """Sort the first `count` pairs of `keys` and `order`, ascending by key and then by `order`, by insertion sort.

    Many pairs are sorted by Shell's method first (Knuth, The Art of Computer Programming, volume 3).
    """
    gap = 1
    while gap * FEW < count:
        gap = 3 * gap + 1
    while gap > 0:
        for n in range(gap, count):
            key, moved, m = keys[n], order[n], n
            while m >= gap and (keys[m - gap] > key or (keys[m - gap] == key and order[m - gap] > moved)):
                keys[m], order[m] = keys[m - gap], order[m - gap]
                m -= gap
            keys[m], order[m] = key, moved
        gap //= 3


def reweigh(p: Floats, q: Floats, p_outcome: float, at: int, result: Floats) -> None:
    """Write the counterfactual row to `result` [K]. `at`: index of the outcome in q, or -1 if q_i = 0."""
    reweigh_within(p, q, p_outcome, at, result, np.empty(len(q), dtype=np.int64), np.empty(len(q)))


def reweigh_within(
    p: Floats, q: Floats, p_outcome: float, at: int, result: Floats, shared: Ints, breaks: Floats
) -> bool:
    """Do the same as `reweigh`, with working memory `shared` and `breaks` [K].

    Return False if p and q have no common successor; the result is then q. The integral for successor k begins at the
    breakpoint p_k/q_k. Successors that p cannot reach, usually most of them, have the breakpoint 0 and the same
    integral. Only the breakpoints of the other successors are computed and sorted.
    """
    count, mass, overtaken = 0, 0.0, 0.0
    for k in range(len(q)):
        shared[count] = k
        count += p[k] > 0.0
        mass += p[k]
        overtaken += 0.0 if p[k] > 0.0 else q[k]
    if count == 0:
        for k in range(len(q)):
            result[k] = q[k]
        return False  # no common successor: the observation gives no information about this row (locality)
    limit = p_outcome / q[at] if at >= 0 else INFINITY  # also infinite if q_i is so small that the ratio overflows
    few, count, likelier = count <= FEW, 0, count
    for n in range(likelier):
        k, m = shared[n], count
        ratio = p[k] / q[k]
        if ratio < limit:
            while few and m > 0 and breaks[m - 1] > ratio:  # insertion sort
                breaks[m], shared[m] = breaks[m - 1], shared[m - 1]
                m -= 1
            breaks[m], shared[m] = ratio, k
            count += 1
    if not few:
        sort_pairs(breaks, shared, count)
    # Between two breakpoints, D(u) = (sum of the p_k with u q_k < p_k) + u * (sum of the q_k of all other k).
    kept, high, whole = max(mass, 1.0), 1.0, 0.0
    for n in range(-1 if overtaken > 0.0 else 0, count):
        begin = 0.0
        if n >= 0:
            begin = breaks[n]
            kept -= p[shared[n]]
            overtaken += q[shared[n]]
        end = breaks[n + 1] if n + 1 < count else limit
        low, high = kept + overtaken * begin, kept + overtaken * end
        # divide twice, because the product of the divisors may overflow
        integral = 1.0 / overtaken / low if end == INFINITY else (end - begin) / high / low
        if n >= 0:
            breaks[n] = integral
        else:
            whole = integral
    for n in range(count - 2, -1, -1):
        breaks[n] += breaks[n + 1]  # now the integral from this breakpoint on
    whole += breaks[0] if count else 0.0
    for k in range(len(q)):
        result[k] = 0.0 if p[k] > 0.0 else q[k] * whole
    for n in range(count):
        result[shared[n]] = q[shared[n]] * breaks[n]
    if at >= 0 and limit != INFINITY:
        result[at] = 1.0 / high  # 1 if nothing became likelier relative to the outcome
    return True


def choose(observed: Floats, action: int, target: Floats, result: Floats, memory: RowMemory) -> None:
    """Write `conditional_choices` to `result` [A]."""
    p, q, after = memory.p, memory.q, memory.after
    size, at = 0, -1
    for k in range(len(target)):
        result[k] = target[k]
        if target[k] > 0.0:
            at = size if k == action else at
            p[size], q[size] = observed[k], target[k]
            size += 1
    if observed[action] <= 0.0 or observed[action] >= 1.0:
        return
    reweigh_within(p[:size], q[:size], observed[action], at, after[:size], memory.order, memory.keys)
    size = 0
    for k in range(len(target)):
        if target[k] > 0.0:
            result[k] = after[size]
            size += 1


def bound(
    p: Floats,
    q: Floats,
    p_outcome: float,
    at: int,
    stable: bool,
    lower: Floats,
    upper: Floats,
) -> None:
    """Write the bounds of `row_bounds` to `lower` and `upper` [K]."""
    limit = p_outcome / q[at] if at >= 0 else INFINITY
    total = 0.0
    for k in range(len(q)):
        upper[k] = min(1.0, q[k] / p_outcome)
    if stable:
        for k in range(len(q)):
            if k != at and p[k] / q[k] >= limit * (1.0 - STABILITY_TOLERANCE):
                upper[k] = 0.0
    for k in range(len(q)):
        total += upper[k]
    for k in range(len(q)):
        # The mass that the other entries cannot hold. For `any` it equals (q_k - (1 - p_i)) / p_i, but this form
        # cancels no digits.
        lower[k] = min(max(1.0 - (total - upper[k]), 0.0), upper[k])


def greedy(lower: Floats, upper: Floats, values: Floats, largest: bool, keys: Floats, order: Ints) -> float:
    """Return the same as `extreme`; `values` may be longer than the row. `keys`, `order` [K]: working memory."""
    sign = -1.0 if largest else 1.0
    rest, total = 1.0, 0.0
    for k in range(len(lower)):
        rest -= lower[k]
        total += lower[k] * values[k]
    used, worst, last = 0, -INFINITY, -1
    while rest > 0.0 and used < min(len(lower), FEW):  # find the best entry each time: usually few are needed
        best, found = used, INFINITY
        for k in range(len(lower)):
            value = sign * values[k]
            if value < found and (value > worst or (value == worst and k > last)):
                best, found = k, value
        given = min(rest, upper[best] - lower[best])
        total += given * values[best]
        rest -= given
        used, worst, last = used + 1, found, best
    if used == FEW:
        for k in range(len(lower)):
            keys[k], order[k] = sign * values[k], k
        sort_pairs(keys, order, len(lower))
        while rest > 0.0 and used < len(lower):
            k = order[used]
            given = min(rest, upper[k] - lower[k])
            total += given * values[k]
            rest -= given
            used += 1
    return total
