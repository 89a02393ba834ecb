"""Counterfactual transition distribution of one step, and its bounds over classes of causal models.

All vectors are aligned: entry k belongs to the same outcome in each vector. The observed outcome `i` was drawn from the
distribution `p`; `q` is the distribution in the counterfactual world.

1. Gumbel-Max: with D(u) = sum_j max(p_j, u q_j),
       P(i | i) = 1 / D(p_i / q_i),
       P(k | i) = q_k * integral of du / D(u)^2 from p_k / q_k to p_i / q_i     (0 where that interval is empty).
2. Every causal model (`any`): P(k | i) <= q_k / p_i and >= (q_k - (1 - p_i)) / p_i, within [0, 1].
3. Every counterfactually stable causal model (`stable`), if p and q share an outcome: P(k | i) = 0 if k != i, p_k > 0
   and q_i / p_i >= q_k / p_k. Every other outcome has the upper bound of `any`; its lower bound is 1 minus the sum of
   the upper bounds of the other outcomes. If p and q share no outcome, the bounds are those of `any`.

Definitions: docs/semantics/worlds.md, section 3.1 (1) and docs/semantics/formulas.md, section 6.3 (2, 3).
Kazemi & Paoletti, Section 2 (Gumbel-Max SCM, counterfactual stability); the closed form replaces their sampling.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from monitor.arrays import Floats

SLACK = 1e-12
"""Relative tolerance for equal ratios. If the ratios in rule 3 are equal, stability excludes the outcome."""


def counterfactual(p: Floats, q: Floats, i: int) -> Floats:
    """Return the Gumbel-Max distribution [K] of the outcome under `q` [K], given outcome `i` of `p` [K], p[i] > 0."""
    result = np.zeros(len(q))
    k = np.flatnonzero(q > 0)
    elsewhere = float(p[q == 0].sum())
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):  # a ratio may be infinite or overflow
        upper = p[i] / q[i]
        k = k[np.argsort(p[k] / q[k], kind="stable")]
        result[k] = q[k] * _integrals(p[k], q[k], elsewhere, upper)
        if q[i] > 0:
            result[i] = 1.0 / (elsewhere + float(np.maximum(p[k], upper * q[k]).sum()))
    return result


def _integrals(p: Floats, q: Floats, elsewhere: float, upper: float) -> Floats:
    """Return the integrals [K] of du / D(u)^2 from each p_k / q_k to `upper`; 0 if the interval is empty.

    All q_k are positive, in ascending order of p_k / q_k. `elsewhere` is the probability under p of outcomes that q
    excludes. Between two ratios, D(u) = c + m u is linear, and the integral from a to b is (b - a) / (D(a) D(b)).
    """
    begin = np.minimum(p / q, upper)
    end = np.append(begin[1:], upper)
    slope = np.cumsum(q)
    constant = elsewhere + np.append(np.cumsum(p[::-1])[::-1][1:], 0.0)
    at_begin, at_end = constant + slope * begin, constant + slope * end
    pieces = np.where(np.isfinite(end), (end - begin) / at_begin / at_end, 1.0 / (slope * at_begin))
    result: Floats = np.cumsum(pieces[::-1])[::-1]
    return result


def limits(p: Floats, q: Floats, i: int, causal_model: Literal["any", "stable"]) -> tuple[Floats, Floats]:
    """Return the lower and upper bounds [K] of the probability of each outcome over a class of causal models."""
    highest = np.minimum(1.0, q / p[i])
    if causal_model == "any" or not np.any((p > 0) & (q > 0)):
        return np.maximum(0.0, (q - (1.0 - p[i])) / p[i]), highest
    ruled_out = (p > 0) & (q[i] * p >= q * p[i] * (1.0 - SLACK))
    ruled_out[i] = False
    highest[ruled_out] = 0.0
    others = float(highest.sum()) - highest
    return np.where(ruled_out, 0.0, np.maximum(0.0, 1.0 - others)), highest


def extreme_mean(lowest: Floats, highest: Floats, values: Floats, *, largest: bool) -> float:
    """Return the largest (or smallest) mean of `values` over all distributions between the bounds, all [K].

    Every outcome gets its lower bound. The remaining probability goes to the best outcomes first, up to their upper
    bounds.
    """
    order = np.argsort(-values if largest else values, kind="stable")
    slack = (highest - lowest)[order]
    left = max(0.0, 1.0 - float(lowest.sum()))
    extra = np.clip(left - (np.cumsum(slack) - slack), 0.0, slack)
    return float(lowest @ values + extra @ values[order])
