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
from monitor.exact.best.posteriors import Posteriors
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
    options: Options,
    posteriors: Posteriors,
    level: int,
    state: int,
    action: int,
    outcome: int,
    certain: bool,
    observed: Floats,
    kind: int,
    row: Row,
) -> tuple[float, int, bool]:
    """Write the row of a pair to `row`; return its reward, its length, and whether it is known exactly.

    Args:
        options: the rows of the model.
        posteriors: rows that are kept.
        level: the pair of the path.
        state, action: the pair.
        outcome: the observed successor, -1 if none was.
        certain: the pair is the observed one, so that its successor is the observed one in every causal model.
        observed: [S] the row of the observed pair.
        kind: EXACT, ANY or STABLE.
        row: overwritten.
    """
    pair = state * options.rewards.shape[1] + action
    begin, end = options.indptr[pair], options.indptr[pair + 1]
    length, reward = end - begin, options.rewards[state, action]
    row.successors[:length] = options.successors[begin:end]
    if len(options.extra):
        row.extra[:length] = options.extra[begin:end]
    slot = posteriors.slot_of[level]
    if slot >= 0 and posteriors.filled[slot, pair] and not certain:
        row.weights[:length] = posteriors.weights[slot, begin:end]
        return reward, length, True
    row.weights[:length] = options.probabilities[begin:end]
    if outcome < 0:
        return reward, length, True
    at = -1
    for k in range(length):
        if row.successors[k] == outcome:
            at = k
    if certain:
        row.successors[0], row.weights[0], row.extra[0] = outcome, 1.0, row.extra[at]
        return reward, 1, True
    if kind != EXACT:
        row.q[:length] = row.weights[:length]
        for k in range(length):
            row.p[k] = observed[row.successors[k]]
        p, q = row.p[:length], row.q[:length]
        bound(p, q, observed[outcome], at, kind == STABLE, row.weights, row.upper)
        return reward, length, False
    condition(row, length, at, observed, outcome)
    if slot >= 0:
        posteriors.weights[slot, begin:end] = row.weights[:length]
        posteriors.filled[slot, pair] = True
    return reward, length, True


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
