"""Extreme means over rows that are known only up to a confidence set, given an observed transition.

Row p led to the outcome i. Only bounds of each entry of p and of the target row q are known. Nothing is known about the
causal mechanism that couples the two rows. The possible conditional rows are exactly (docs/semantics/learned-models.md,
section 13.3)

    { x : sum x = 1, p* x_k <= u_k, sum_k max(l_k, p* x_k) <= 1 },

with l_k <= q_k <= u_k and p* the least possible probability of the outcome. This module is compiled.
"""

from __future__ import annotations

from monitor.arrays import Floats
from monitor.causal.row import RowMemory, greedy, sort_pairs

TINY = 1e-200
"""Smaller values of p* are replaced by this value, which allows the same rows."""


def least_probability(lower: Floats, upper: Floats, at: int) -> float:
    """Return the least probability that a row within bounds [K] can have at entry `at`."""
    total = 0.0
    for k in range(len(upper)):
        total += upper[k]
    return max(lower[at], 1.0 - (total - upper[at]), 0.0)


def extreme_given(
    lower: Floats, upper: Floats, observed: float, values: Floats, largest: bool, memory: RowMemory
) -> float:
    """Return the largest (smallest) mean of `values` over the rows x that the module's docstring defines.

    Args:
        lower: [K] lower bounds of q.
        upper: [K] upper bounds.
        observed: p*. As p* goes to 0, x may be any distribution on the entries of q that can be positive.
        values: [K] or longer.
        largest: whether to maximise.
        memory: working memory for K entries.

    The method is greedy: it distributes the mass p* from the best value to the worst. Entry k takes up to l_k at no
    cost, and up to u_k - l_k more from a budget of 1 - sum l that all entries share.
    """
    keys, order = memory.keys, memory.order
    if observed >= 1.0:
        return greedy(lower, upper, values, largest, keys, order)
    observed = max(observed, TINY)
    sign = -1.0 if largest else 1.0
    known = 0.0
    for k in range(len(lower)):
        keys[k], order[k] = sign * values[k], k
        known += lower[k]
    sort_pairs(keys, order, len(lower))
    spare = max(1.0 - known, 0.0)
    rest, total = observed, 0.0
    for n in range(len(lower)):
        k = order[n]
        free = min(rest, lower[k])
        extra = min(rest - free, upper[k] - lower[k], spare)
        total += (free + extra) * values[k]
        rest -= free + extra
        spare -= extra
        if rest <= 0.0:
            break
    return total / (observed - rest)
