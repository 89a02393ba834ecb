"""Boxes of learned rows: an interval for each successor, and extreme means over the rows in a box.

1. The row of rank r gets the part delta w(r) of delta, with w(n) = 1 / (2.11 (n + 1) ln(n + 1)^2). The m-th discovered
   successor of this row gets alpha = delta w(r) w(m) / 2. With c successes in the n draws since the discovery, the
   possible probabilities p are those with
       B(c + 1/2, n - c + 1/2) / (B(1/2, 1/2) p^c (1 - p)^(n - c)) <= 1 / alpha.
   The mass of unseen successors is at most 1 - alpha^(1/n), where n is the number of draws since the last discovery.
2. Let row p, with the outcome i, and row q of the other world lie in their boxes, and let p* be the least probability
   of i. For every causal model that couples the rows, m_k = p* x_k satisfies sum m = p*, m_k <= u_k, and
   sum max(l_k, m_k) <= 1.

Definitions: docs/semantics/learned-models.md, section 13.2 (1) and docs/semantics/learned-models.md, section 13.3 (2).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import expm1, lgamma, log, log1p

from monitor.model.mdp import MDP

Box = dict[int, tuple[float, float]]
"""Successor -> least and greatest probability."""
TINY = 1e-200
"""Smallest probability p* (rule 2) used; every smaller p* allows the same rows."""


def box_of(model: MDP, state: int, action: int, delta: float) -> Box:
    """Return the box of a row; a given row is its own box."""
    row, counts = state * model.actions + action, model.counts
    successors, probabilities = model.row(state, action)
    if counts is None or counts.order[row] == 0:
        return {int(k): (float(p), float(p)) for k, p in zip(successors, probabilities, strict=True)}
    entries = slice(*model.indptr[row:][:2])
    seen = zip(successors.tolist(), counts.visits[entries].tolist(), counts.since[entries].tolist(), strict=True)
    discovered = sorted(seen, key=lambda each: -each[2])
    share = delta * _weight(int(counts.order[row])) / 2
    box = {
        successor: _proportion(visits - 1, since, share * _weight(m))
        for m, (successor, visits, since) in enumerate(discovered, start=1)
    }
    box[counts.elsewhere] = 0.0, _unseen(discovered[-1][2], share * _weight(len(discovered)))
    if sum(low for low, _ in box.values()) > 1.0 or sum(high for _, high in box.values()) < 1.0:
        return dict.fromkeys(box, (0.0, 1.0))  # the box has no row, so it is replaced by all rows
    return box


def _weight(rank: int) -> float:
    return 1.0 / (2.11 * (rank + 1) * log(rank + 1) ** 2)


def _unseen(draws: int, alpha: float) -> float:
    return 1.0 if draws == 0 else -expm1(log(alpha) / draws)


def _proportion(successes: int, draws: int, alpha: float) -> tuple[float, float]:
    """Return the least and the greatest probability that the draws do not refute."""
    if draws == 0:
        return 0.0, 1.0
    failures = draws - successes
    mixture = _log_beta(successes + 0.5, failures + 0.5) - _log_beta(0.5, 0.5)

    def refuted(p: float) -> bool:
        return mixture - successes * log(p) - failures * log1p(-p) > -log(alpha)

    low = 0.0 if successes == 0 else _boundary(0.0, successes / draws, refuted)
    high = 1.0 if failures == 0 else _boundary(1.0, successes / draws, refuted)
    return low, high


def _boundary(outside: float, inside: float, refuted: Callable[[float], bool]) -> float:
    """Return the boundary of `refuted`, by bisection down to neighbouring floating-point numbers."""
    while (middle := (outside + inside) / 2) not in (outside, inside):
        outside, inside = (middle, inside) if refuted(middle) else (outside, middle)
    return outside


def _log_beta(a: float, b: float) -> float:
    return lgamma(a) + lgamma(b) - lgamma(a + b)


def least_probability(box: Box, outcome: int) -> float:
    """Return the least probability p* of an outcome over the rows in a box; 0 if no row has the outcome."""
    if outcome not in box:
        return 0.0
    others = sum(high for successor, (_, high) in box.items() if successor != outcome)
    return min(max(box[outcome][0], 1.0 - others, 0.0), 1.0)


def extreme(box: Box, values: Mapping[int, float], *, largest: bool, observed: float = 1.0) -> float:
    """Return the largest (smallest) mean of `values` over the rows x of rule 2; without observation, over the box.

    `observed`: the least probability p* of the observed outcome. The best successors come first. Each successor gets
    its lower bound, and then more, up to its upper bound, from the probability that is not used by the lower bounds.
    """
    wanted = left = max(observed, TINY)
    spare = max(1.0 - sum(low for low, _ in box.values()), 0.0)
    total = 0.0
    for successor in sorted(box, key=lambda each: values[each], reverse=largest):
        low, high = box[successor]
        extra = min(high - low, spare, max(left - low, 0.0))
        mass = min(low, left) + extra
        total, left, spare = total + mass * values[successor], left - mass, spare - extra
    return total / (wanted - left)
