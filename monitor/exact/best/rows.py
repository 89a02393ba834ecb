"""One row of the backward pass, given the observed transition of its level. Compiled.

The closed form and its bounds are those of `monitor.causal.row`. Successors that the observed row does not have share
one term of the closed form, so it is evaluated for them together; a row that shares no successor with the observed one
stays as it is (locality).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from monitor.arrays import Floats, Ints
from monitor.causal.row import bound, reweigh
from monitor.exact.best.options import Options
from monitor.exact.forward.row_table import EXACT, STABLE
from monitor.jit import compiled, inlined

__all__ = ["Row", "prepare", "scratch_row"]


class Row(NamedTuple):
    """Scratch for one row of at most K successors.

    Of each successor: its probability, or the lower bound of it (`weights`), the `upper` bound, and the part of the
    reward that depends on it (`extra`). `values` [K]: for one lane. `p`, `q`, `posterior` [K + 1]: see `condition`.
    """

    successors: Ints
    weights: Floats
    upper: Floats
    extra: Floats
    values: Floats
    p: Floats
    q: Floats
    posterior: Floats


@compiled
def scratch_row(options: Options) -> Row:
    """Return scratch for the longest row."""
    longest = 1
    for pair in range(len(options.alike)):
        longest = max(longest, options.indptr[pair + 1] - options.indptr[pair])
    return Row(
        np.zeros(longest, dtype=np.int64),
        np.zeros(longest),
        np.zeros(longest),
        np.zeros(longest),
        np.zeros(longest),
        np.zeros(longest + 1),
        np.zeros(longest + 1),
        np.zeros(longest + 1),
    )


@inlined
def prepare(
    options: Options, state: int, action: int, outcome: int, certain: bool, observed: Floats, kind: int, row: Row
) -> tuple[float, int, bool]:
    """Write the row of a pair to `row`; return its reward, its length, and whether it is known exactly.

    Args:
        options: the rows of the model.
        state, action: the pair.
        outcome: the observed successor, -1 if none was.
        certain: the pair is the observed one, so that its successor is the observed one in every causal model.
        observed: [S] the row of the observed pair.
        kind: EXACT, ANY or STABLE.
        row: overwritten.
    """
    pair = state * options.rewards.shape[1] + action
    begin, length = options.indptr[pair], options.indptr[pair + 1] - options.indptr[pair]
    rewarded, at = len(options.extra) > 0, -1
    for k in range(length):
        row.successors[k], row.weights[k] = options.successors[begin + k], options.probabilities[begin + k]
        row.extra[k] = options.extra[begin + k] if rewarded else 0.0
        if row.successors[k] == outcome:
            at = k
    point = True
    if outcome >= 0:
        if certain:
            row.successors[0], row.weights[0], row.extra[0] = outcome, 1.0, row.extra[at]
            length = 1
        elif kind == EXACT:
            condition(row, length, at, observed, outcome)
        else:
            point = False
            row.q[:length] = row.weights[:length]
            for k in range(length):
                row.p[k] = observed[row.successors[k]]
            p, q = row.p[:length], row.q[:length]
            bound(p, q, observed[outcome], at, kind == STABLE, row.weights, row.upper)
    return options.rewards[state, action], length, point


@compiled
def condition(row: Row, length: int, at: int, observed: Floats, outcome: int) -> None:
    """Replace the row q in `row.weights` [K] by the counterfactual one; `at`: index of the outcome in it, or -1."""
    count, place, rest = 0, -1, 0.0
    for k in range(length):
        p = observed[row.successors[k]]
        if p > 0.0:
            row.p[count], row.q[count] = p, row.weights[k]
            if k == at:
                place = count
            count += 1
        else:
            rest += row.weights[k]
    if count == 0:
        return
    total = count
    if rest > 0.0:
        row.p[count], row.q[count] = 0.0, rest
        total = count + 1
    reweigh(row.p[:total], row.q[:total], observed[outcome], place, row.posterior[:total])
    count = 0
    for k in range(length):
        if observed[row.successors[k]] > 0.0:
            row.weights[k] = row.posterior[count]
            count += 1
        else:
            row.weights[k] *= row.posterior[total - 1] / rest
