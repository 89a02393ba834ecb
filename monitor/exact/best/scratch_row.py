"""Compute one row of the backward pass, given the observed transition of its level. Compiled.

`monitor.causal.row` describes the closed form and its bounds. All successors that are not in the observed row share one
term of the closed form, so this term is computed once. A row that shares no successor with the observed row does not
change (locality).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from monitor.arrays import Bytes, Floats, Ints
from monitor.causal.row import RowMemory, bound, reweigh_within, row_memory
from monitor.exact.best.options import Options
from monitor.exact.forward.row_table import EXACT, STABLE


@dataclass(eq=False)
class Posteriors:
    """Cached counterfactual rows given each of n observed transitions, and the transition of each level of a path.

    `weights` [n, N]: probabilities, in the order of the model's rows. `filled` [n, S * A]: whether a row was computed.
    `slot_of` [L]: the index of a level's transition, -1 if rows of this transition are not cached.
    """

    weights: Floats
    filled: Bytes
    slot_of: Ints


@dataclass(eq=False)
class ScratchRow:
    """Working memory for one row of at most K successors.

    For each successor: `weights` [K] has its probability, or the lower bound; `upper` [K] has the upper bound; `extra`
    [K] has the part of the reward that depends on the successor. `values` [K]: values of the successors in one lane.
    `observed` [S]: the row of the observed pair. `memory`: memory for at least K + 1 successors, and for all actions.
    """

    successors: Ints
    weights: Floats
    upper: Floats
    extra: Floats
    values: Floats
    observed: Floats
    memory: RowMemory


def scratch_row(options: Options) -> ScratchRow:
    """Return working memory for the longest row of a model, with no observed pair."""
    states, actions = options.rewards.shape
    longest = int(np.diff(options.indptr).max(initial=1))
    rest = np.zeros(longest), np.zeros(longest), np.zeros(longest), np.zeros(longest), np.zeros(states)
    return ScratchRow(np.zeros(longest, dtype=np.int64), *rest, row_memory(max(longest + 1, actions)))


# ---- compiled ----


def prepare(
    options: Options,
    posteriors: Posteriors,
    level: int,
    state: int,
    action: int,
    outcome: int,
    certain: bool,
    kind: int,
    row: ScratchRow,
) -> tuple[float, int, bool]:
    """Write the row of a pair to `row`; return its reward, its length, and whether it is known exactly.

    Args:
        options: the rows of the model.
        posteriors: the cached rows.
        level: index of the observed pair on the path.
        state, action: the pair.
        outcome: the observed successor, -1 if none was observed.
        certain: whether the pair is the observed pair. If so, its successor is `outcome` in every causal model.
        kind: EXACT, ANY or STABLE.
        row: overwritten, except `observed`.
    """
    pair = state * options.rewards.shape[1] + action
    begin, reward, at = options.indptr[pair], options.rewards[state, action], -1
    length, slot = options.indptr[pair + 1] - begin, posteriors.slot_of[level]
    kept = slot >= 0 and not certain and posteriors.filled[slot, pair] > 0
    for k in range(length):
        row.successors[k] = options.successors[begin + k]
        row.weights[k] = posteriors.weights[slot, begin + k] if kept else options.probabilities[begin + k]
        row.extra[k] = options.extra[begin + k] if len(options.extra) > 0 else 0.0
        at = k if row.successors[k] == outcome else at
    if kept or outcome < 0:
        return reward, length, True
    if certain:
        row.successors[0], row.weights[0], row.extra[0] = outcome, 1.0, row.extra[at]
        return reward, 1, True
    if kind != EXACT:
        p, q = row.memory.p[:length], row.memory.q[:length]
        for k in range(length):
            p[k], q[k] = row.observed[row.successors[k]], row.weights[k]
        bound(p, q, row.observed[outcome], at, kind == STABLE, row.weights, row.upper)
        return reward, length, False
    condition(row, length, at, outcome)
    if slot >= 0:
        for k in range(length):
            posteriors.weights[slot, begin + k] = row.weights[k]
        posteriors.filled[slot, pair] = 1
    return reward, length, True


def condition(row: ScratchRow, length: int, at: int, outcome: int) -> None:
    """Replace the row in `row.weights` [K] by its counterfactual row.

    `at`: index of the observed outcome in the row, or -1.
    """
    p, q, after = row.memory.p, row.memory.q, row.memory.after
    count, place, rest = 0, -1, 0.0
    for k in range(length):
        if row.observed[row.successors[k]] > 0.0:
            p[count], q[count] = row.observed[row.successors[k]], row.weights[k]
            place = count if k == at else place
            count += 1
        else:
            rest += row.weights[k]
    if count == 0:
        return
    total = count
    if rest > 0.0:
        p[count], q[count] = 0.0, rest
        total += 1
    reweigh_within(p[:total], q[:total], row.observed[outcome], place, after[:total], row.memory.order, row.memory.keys)
    count = 0
    for k in range(length):
        if row.observed[row.successors[k]] > 0.0:
            row.weights[k] = after[count]
            count += 1
        else:
            row.weights[k] *= after[total - 1] / rest
