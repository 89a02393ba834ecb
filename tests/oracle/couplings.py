"""All counterfactual rows of a step over a class of causal models, by their vertices.

A causal model of one step is a joint distribution J >= 0 of the outcome under p and the outcome under q, with these two
marginals. Given that p led to `observed` the row is x_k = J[observed, k] / p_observed. So x_k <= q_k / p_observed, and
x sums to 1; conversely the rest of q has as much mass as the rest of p, and any distribution of it makes x part of a J.
In a `stable` model x_k is 0 as well for each barred k: p_k > 0 and q_observed p_k >= q_k p_observed, k not observed
(docs/semantics/formulas.md, section 6.3). Without a common outcome of p and q none is barred.

A linear function is largest in a vertex of { x : 0 <= x <= limit, sum x = 1 }. In a vertex at most one x_k lies
strictly between 0 and its limit.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from itertools import product

from tests.oracle.race import ONE, ZERO
from tests.oracle.setting import Dist

Items = tuple[tuple[int, Fraction], ...]


def rows_of_models(p: Dist, q: Dist, observed: int, kind: str) -> tuple[Dist, ...]:
    """Return the vertices of the set of rows that the causal models of a kind (`any`, `stable`) can have."""
    found = _vertices(tuple(sorted(limits(p, q, observed, kind).items())))
    return tuple(dict(vertex) for vertex in found)


def limits(p: Dist, q: Dist, observed: int, kind: str) -> Dist:
    """Return the largest probability of each outcome that can have any."""
    chance = p[observed]

    def barred(k: int) -> bool:
        return k != observed and k in p and q.get(observed, ZERO) * p[k] >= q[k] * chance

    left_out = {k for k in q if barred(k)} if kind == "stable" else set()
    return {k: min(ONE, weight / chance) for k, weight in q.items() if k not in left_out}


@lru_cache(maxsize=100_000)
def _vertices(upper: Items) -> frozenset[Items]:
    found = set()
    for between, (outcome, limit) in enumerate(upper):
        others = upper[:between] + upper[between + 1 :]
        for full in product((False, True), repeat=len(others)):
            row = {k: high for (k, high), at_limit in zip(others, full, strict=True) if at_limit}
            rest = 1 - sum(row.values(), ZERO)
            if 0 <= rest <= limit:
                row[outcome] = rest
                found.add(tuple(sorted((k, weight) for k, weight in row.items() if weight)))
    return frozenset(found)
