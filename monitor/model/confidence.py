"""Confidence set of the rows of a learned model: bounds that hold for all rows at once, at all times at once.

Rows are unknown but fixed, and each draw of a row is independent of the past given its state and action. This is also
true of the draws after the first visit of a row, and of the draws after the first observation (the discovery) of a
successor. Each bound below uses only the draws after a first visit or a discovery, so the possible successors need not
be known in advance. `delta` is divided as follows (docs/semantics/learned-models.md, section 13.2):

- The row of rank r in the order of first visits gets the fraction `share(r)` of `delta`.
- The m-th discovered successor of the row gets the fraction `share(m)` of the row's part. One half is for the interval
  of the successor's probability. The other half is for the probability of all successors not yet seen at this
  discovery; that bound is used until the next discovery.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from monitor.arrays import Floats, Ints
from monitor.model.mdp import MDP
from monitor.model.sparse_rows import frozen
from monitor.statistics.confidence_sequences import proportion_interval, share, unseen_mass


class IntervalRows(NamedTuple):
    """Rows as CSR, with bounds of each entry. A learned row has one more entry, for the successors never seen.

    `indptr` [S*A + 1], `successors` [M] ascending within a row, `lower`, `upper` [M]; `extra` [M]: the part of the
    reward that depends on the successor (empty if no reward does). Arrays are read-only.
    """

    indptr: Ints
    successors: Ints
    lower: Floats
    upper: Floats
    extra: Floats


def confidence_rows(model: MDP, delta: float) -> IntervalRows:
    """Return bounds of all rows, which hold with probability 1 - `delta`; the bounds of a given row are the row itself.

    Rewards of transitions that were never seen are not bounded here: `extra` is 0 for them.
    """
    extra = np.zeros(0) if model.transition_rewards is None else model.transition_rewards
    counts = model.counts
    if counts is None:
        return IntervalRows(model.indptr, model.successors, model.probabilities, model.probabilities, frozen(extra))
    lengths = np.diff(model.indptr)
    rows = np.repeat(np.arange(len(lengths)), lengths)
    lower, upper = model.probabilities.copy(), model.probabilities.copy()
    learned = np.flatnonzero(counts.order[rows] > 0)
    spent = delta * share(counts.order[rows[learned]]) / 2 * share(_discovery(rows[learned], counts.since[learned]))
    lower[learned], upper[learned] = proportion_interval(counts.visits[learned] - 1, counts.since[learned], spent)
    last = learned[counts.since[learned] == _least(counts.since[learned], rows[learned])]
    unseen = unseen_mass(counts.since[last], spent[np.isin(learned, last, assume_unique=True)])
    return _with_elsewhere(model, IntervalRows(model.indptr, model.successors, lower, upper, extra), last, unseen)


def _discovery(rows: Ints, since: Ints) -> Ints:
    """Return the rank [n] of each successor, from 1, in the order of first observation within its row."""
    order = np.lexsort((-since, rows))
    first = np.concatenate([[True], np.diff(rows[order]) > 0])[: len(rows)]
    begin = np.maximum.accumulate(np.where(first, np.arange(len(rows)), 0))
    rank = np.empty(len(rows), dtype=np.int64)
    rank[order] = np.arange(len(rows)) - begin + 1
    return rank


def _least(values: Ints, rows: Ints) -> Ints:
    """Return, for each entry [n], the least value among the entries of its row; `rows` are ascending."""
    starts = np.flatnonzero(np.concatenate([[True], np.diff(rows) > 0])[: len(rows)])
    if not len(starts):
        return values
    lengths = np.diff(np.append(starts, len(rows)))
    least: Ints = np.repeat(np.minimum.reduceat(values, starts), lengths)
    return least


def _with_elsewhere(model: MDP, bounds: IntervalRows, last: Ints, unseen: Floats) -> IntervalRows:
    """Insert the entry of `elsewhere` into each learned row.

    `last`: for each learned row, the index of one of its entries. `unseen`: for each learned row, the upper bound of
    the new entry.
    """
    assert model.counts is not None
    indptr, successors, lower, upper, extra = bounds
    elsewhere = model.counts.elsewhere
    rows = np.searchsorted(indptr, last, side="right") - 1
    places = np.array(
        [indptr[r] + np.searchsorted(successors[indptr[r] : indptr[r + 1]], elsewhere) for r in rows], dtype=np.int64
    )
    added = np.zeros(len(indptr), dtype=np.int64)
    added[rows + 1] = 1
    indptr = indptr + np.cumsum(added)
    lower, upper = np.insert(lower, places, 0.0), np.insert(upper, places, unseen)
    _open_empty(indptr, rows, lower, upper)
    return IntervalRows(
        frozen(indptr),
        frozen(np.insert(successors, places, elsewhere)),
        frozen(lower),
        frozen(upper),
        frozen(np.insert(extra, places, 0.0) if len(extra) else extra),
    )


def _open_empty(indptr: Ints, rows: Ints, lower: Floats, upper: Floats) -> None:
    """Allow every distribution in each of the `rows` whose bounds no distribution meets.

    The bounds of a row can contradict each other if the true probabilities changed during the recordings.
    """
    for row in rows:
        entries = slice(indptr[row], indptr[row + 1])
        if lower[entries].sum() > 1.0 or upper[entries].sum() < 1.0:
            lower[entries], upper[entries] = 0.0, 1.0
