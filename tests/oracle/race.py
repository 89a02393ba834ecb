"""The counterfactual row of a Gumbel-Max SCM, derived from exponential races, in rational arithmetic.

With U_j = exp(-G_j), independent and Exp(1), argmax_j (log p_j + G_j) is the j with the smallest U_j / p_j. So the
observed outcome i says that i wins the race with rates p, and the counterfactual outcome is the winner of the race with
rates q of the same U. For k != i both hold exactly if

    U_i / p_i <= U_j / p_j  and  U_k / q_k <= U_j / q_j  for every j.

Given U_i = a and U_k = b these are two conditions on b / a, and for every other j the event
U_j >= max(a p_j / p_i, b q_j / q_k), of probability exp(-max(...)). The joint probability is therefore the integral of
exp(-a - b - sum_j max(...)) over a cone in the plane. Between two neighbouring rays on which some maximum changes sides
the exponent is linear, -(alpha a + beta b), and the integral over the cone spanned by v and w is
|det(v, w)| / ((alpha, beta).v * (alpha, beta).w). Divided by p_i this is the row. The closed form of
docs/semantics/worlds.md, section 3.1, is not used.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from itertools import pairwise

from tests.oracle.setting import Dist

Ray = tuple[Fraction, Fraction]
Items = tuple[tuple[int, Fraction], ...]
ZERO, ONE = Fraction(0), Fraction(1)


def counterfactual_row(p: Dist, q: Dist, observed: int) -> Dist:
    """Return P(winner under rates q is k | winner under rates p is `observed`) for the k where it is positive."""
    return dict(_row(tuple(sorted(p.items())), tuple(sorted(q.items())), observed))


@lru_cache(maxsize=200_000)
def _row(p_items: Items, q_items: Items, observed: int) -> Items:
    p, q = dict(p_items), dict(q_items)
    if not p.get(observed):
        raise ValueError(f"{observed} cannot have been observed under {p}")
    joint = {k: _joint(p, q, observed, k) if k != observed else _both(p, q, observed) for k in q}
    return tuple((k, weight / p[observed]) for k, weight in joint.items() if weight)


def _both(p: Dist, q: Dist, i: int) -> Fraction:
    """Return the probability that i wins both races: every other U_j is beyond the later of its two limits."""
    if not q.get(i):
        return ZERO
    others = (set(p) | set(q)) - {i}
    return 1 / (1 + sum((max(p.get(j, ZERO) / p[i], q.get(j, ZERO) / q[i]) for j in others), ZERO))


def _joint(p: Dist, q: Dist, i: int, k: int) -> Fraction:
    """Return the probability that i wins the race of p and k the race of q (k != i)."""
    if not q.get(k):
        return ZERO
    lowest: Ray = (ONE, p.get(k, ZERO) / p[i])  # b / a at least this: k does not win the race of p
    highest: Ray = (q.get(i, ZERO), q[k])  # b / a at most this: i does not win the race of q
    if _slope_at_least(lowest, highest):
        return ZERO
    others = sorted((set(p) | set(q)) - {i, k})
    limits = [(p.get(j, ZERO) / p[i], q.get(j, ZERO) / q[k]) for j in others]  # max(a x, b y)
    turns = [(y, x) for x, y in limits if not _slope_at_least(lowest, (y, x)) and not _slope_at_least((y, x), highest)]
    rays = [lowest, *sorted(turns, key=lambda ray: ray[1] / ray[0]), highest]
    return sum((_cone(v, w, limits) for v, w in pairwise(rays)), ZERO)


def _slope_at_least(v: Ray, w: Ray) -> bool:
    """Return whether v is at least as steep as w, both in the closed first quadrant."""
    return v[1] * w[0] >= w[1] * v[0]


def _cone(v: Ray, w: Ray, limits: list[tuple[Fraction, Fraction]]) -> Fraction:
    """Return the integral of exp(-a - b - sum max(a x, b y)) over the cone from v to w, where no maximum turns."""
    inside = (v[0] + w[0], v[1] + w[1])
    alpha, beta = ONE, ONE
    for x, y in limits:
        if inside[0] * x >= inside[1] * y:
            alpha += x
        else:
            beta += y
    determinant = v[0] * w[1] - v[1] * w[0]
    return determinant / ((alpha * v[0] + beta * v[1]) * (alpha * w[0] + beta * w[1]))
