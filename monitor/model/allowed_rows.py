"""Bounds of the rows of a learned model, with one entry for all successors that were never recorded.

`monitor.statistics.interval_betting` tests these rows. `monitor.model.confidence` computes the bounds.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from monitor.arrays import Bools, Ints
from monitor.model.confidence import confidence_rows
from monitor.model.counts import Counts
from monitor.model.mdp import MDP
from monitor.statistics.interval_odds import GIVEN, NO_DATA, Bounds


class AllowedRows(NamedTuple):
    """Rows as CSR, with their `bounds`. `expected`: the probabilities that the data predict.

    Memory views are the fastest here, because entries are read one at a time.
    """

    starts: memoryview
    successors: memoryview
    expected: memoryview
    bounds: Bounds


def allowed_rows(model: MDP, counts: Counts, delta: float, impossible: float) -> AllowedRows:
    """Return the bounds of the rows of a learned model, and the probabilities that the data predict.

    With probability 1 - `delta` the bounds hold for all rows at once, and at all times, if at most a fraction
    `impossible` of the readings is wrong. In a row of n draws, `expected` gives an unrecorded successor the probability
    1 / (n + 1).

    Args:
        model: a learned model.
        counts: counts of the model.
        delta: error probability of the bounds, in (0, 1).
        impossible: fraction of the steps that may lead to any state, because of wrong readings.
    """
    set_ = confidence_rows(model, delta)
    learned = np.flatnonzero(counts.order > 0)
    entries = _unrecorded(set_.indptr, set_.successors, learned, counts.elsewhere)
    draws = counts.draws(model.indptr)[learned]
    recorded = np.ones(len(set_.successors), dtype=np.bool_)
    recorded[entries] = False
    expected = np.empty(len(set_.successors))
    kept = np.ones(len(counts.order))
    kept[learned] = draws / (draws + 1.0)
    expected[recorded] = model.probabilities * np.repeat(kept, np.diff(model.indptr))
    expected[entries] = 1.0 / (draws + 1.0)
    lower, upper = set_.lower.copy(), set_.upper.copy()
    lower[np.repeat(counts.order > 0, np.diff(set_.indptr))] *= 1.0 - impossible
    upper[entries] = np.minimum(upper[entries] + impossible, 1.0)
    unrecorded = np.where(_without_data(model, counts), NO_DATA, GIVEN)
    unrecorded[learned] = entries
    bounds = Bounds(lower.data, upper.data, unrecorded.data)
    return AllowedRows(set_.indptr.data, set_.successors.data, expected.data, bounds)


def _unrecorded(indptr: Ints, successors: Ints, learned: Ints, elsewhere: int) -> Ints:
    """Return the entry of `elsewhere` in each learned row.

    If a row has two such entries, the first is returned. The second is then a recorded transition to `elsewhere`.
    """
    rows = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    found = np.flatnonzero(successors == elsewhere)
    first = found[np.concatenate([[True], np.diff(rows[found]) > 0])[: len(found)]]
    entries: Ints = first[np.isin(rows[first], learned)]
    return entries


def _without_data(model: MDP, counts: Counts) -> Bools:
    """Return which rows [S*A] have no draw and lead to `elsewhere` only, including the rows of `elsewhere` itself."""
    lengths = np.diff(model.indptr)
    first = model.successors[np.minimum(model.indptr[:-1], len(model.successors) - 1)]
    without: Bools = (counts.order == 0) & (lengths == 1) & (first == counts.elsewhere)
    return without
