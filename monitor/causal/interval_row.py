"""Rows that are known up to a confidence set: extreme means over them, with and without an observed transition.

Row p led to the outcome i; of p and of the target row q only bounds of each entry are known, and nothing of the causal
mechanism that couples them. The conditional rows are exactly (docs/semantics.md, section 13.3)

    { x : sum x = 1, p* x_k <= u_k, sum_k max(l_k, p* x_k) <= 1 },

with l_k <= q_k <= u_k and p* the least possible probability of the outcome. Compiled.
"""

from __future__ import annotations

from monitor.arrays import Floats
from monitor.causal.row import ascending, greedy
from monitor.jit import compiled

__all__ = ["extreme_given", "least_probability"]

TINY = 1e-200
"""Least p* used: from there on x no longer depends on it."""


@compiled
def least_probability(lower: Floats, upper: Floats, at: int) -> float:
    """Return the least probability of entry `at` of a row within bounds [K]."""
    return float(max(lower[at], 1.0 - (upper.sum() - upper[at]), 0.0))


@compiled
def extreme_given(lower: Floats, upper: Floats, observed: float, values: Floats, largest: bool) -> float:
    """Return the largest (smallest) mean of `values` over the rows x above.

    Args:
        lower: [K] lower bounds of q.
        upper: [K] upper bounds.
        observed: p*. As it goes to 0, x may be any distribution on the entries of q that can be positive.
        values: [K] or longer.
        largest: whether to maximise.

    Greedy, in order of the values: p* x_k takes up to l_k freely; the extras, up to u_k - l_k, share what q leaves,
    1 - sum l.
    """
    if observed >= 1.0:
        return greedy(lower, upper, values, largest)
    observed = max(observed, TINY)
    sign = -1.0 if largest else 1.0
    order = ascending(sign * values[: len(lower)])
    spare = max(1.0 - lower.sum(), 0.0)
    rest, total = observed, 0.0
    for n in range(len(order)):
        k = order[n]
        free = min(rest, lower[k])
        extra = min(rest - free, upper[k] - lower[k], spare)
        total += (free + extra) * values[k]
        rest -= free + extra
        spare -= extra
        if rest <= 0.0:
            break
    return total / (observed - rest)
