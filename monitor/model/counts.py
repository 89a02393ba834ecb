"""Counts of a model that was estimated from data.

The estimated row of (s, a) is its posterior mean under a Dirichlet prior over the K observed successors:
(visits + prior / K) / (n + prior), where n is the number of draws of the row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from monitor.arrays import Bools, Floats, Ints
from monitor.errors import ModelError
from monitor.model.annotations import checked_labels
from monitor.model.sparse_rows import ROW_SUM_TOLERANCE, Rows, as_indices, frozen

MAX_COUNT = 2**53
"""Counts must be below this number, up to which float64 holds every whole number."""


@dataclass(frozen=True, eq=False)
class Counts:
    """Number of observations of each transition, and the order of first observations.

    Rows of order 0 are given, not estimated.

    Attributes (arrays are read-only; N entries, S states, A actions as in `MDP`):
        visits: [N] int64, number of times that each successor was observed; 0 in given rows.
        since: [N] int64, number of draws of the row after the first draw that led to this successor.
        order: [S*A] int64, rank of the row in the order of first visits, from 1; 0 for given rows.
        elsewhere: the absorbing state that stands for all successors never observed; a row without data leads to it.
        prior: total pseudo-count of a row.
        unknown: label -> [S] bool, the states for which the data do not show whether they have the label. Examples are
            states that were never visited (such as `elsewhere`), and ends of episodes whose last state was not
            recorded.
    """

    visits: Ints
    since: Ints
    order: Ints
    elsewhere: int
    prior: float = 1.0
    unknown: Mapping[str, Bools] = field(default_factory=dict)

    def draws(self, indptr: Ints) -> Ints:
        """Return the number of draws of each row, [S*A] int64."""
        return row_totals(self.visits, indptr)

    def given(self, lo: int, hi: int, rows: slice) -> Counts:
        """Return the counts for a model in which `rows` (entries lo to hi) became given rows of one entry each."""
        size = rows.stop - rows.start
        order = self.order.copy()
        order[rows] = 0
        zeros = np.zeros(size, dtype=np.int64)
        return replace(
            self,
            visits=frozen(np.concatenate([self.visits[:lo], zeros, self.visits[hi:]])),
            since=frozen(np.concatenate([self.since[:lo], zeros, self.since[hi:]])),
            order=frozen(order),
        )


@dataclass(frozen=True, eq=False)
class EmissionCounts:
    """Number of times that each state showed each observation, and the order of first occurrences.

    `visits`, `since` [N] int64 for the N emissions, and `prior`, the total pseudo-count of a state: as in `Counts`. If
    a state has no visits, no observation was recorded in it.
    """

    visits: Ints
    since: Ints
    prior: float = 1.0


def row_totals(values: Ints, indptr: Ints) -> Ints:
    """Return the sum of the values [N] of each row."""
    ends = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(values)])
    total: Ints = ends[indptr[1:]] - ends[indptr[:-1]]
    return total


def posterior_mean(visits: Ints, indptr: Ints, prior: float) -> Floats:
    """Return the posterior mean [N] of the probabilities of rows; each entry was observed `visits` [N] times."""
    successors = np.diff(indptr)
    totals = np.add.reduceat(visits, indptr[:-1][successors > 0]) if len(visits) else visits
    of_row = np.repeat(totals, successors[successors > 0])
    seen = np.repeat(successors, successors)
    mean: Floats = (visits + prior / seen) / (of_row + prior)
    return mean


def checked_counts(counts: Counts | None, actions: int, given: Ints, rows: Rows) -> Counts | None:
    """Return the counts with read-only arrays.

    Args:
        counts: counts to check, or None.
        actions: A.
        given: successors before `checked_rows`.
        rows: the result of `checked_rows`.

    Raises:
        ModelError: a wrong shape or number, counts that no sequence of draws gives, or probabilities that are not the
            posterior mean. The message names the row.
    """
    if counts is None:
        return None
    indptr, successors, probabilities = rows
    states = (len(indptr) - 1) // actions
    if not np.array_equal(np.asarray(given), successors):
        raise ModelError("a model with counts needs its rows sorted by successor, without duplicates or zeros")
    visits = _whole(counts.visits, len(successors), "visits")
    since = _whole(counts.since, len(successors), "since")
    order = _whole(counts.order, states * actions, "row_order")
    _check_prior(counts.prior)
    elsewhere = int(as_indices([counts.elsewhere], states, "elsewhere")[0])
    unknown = checked_labels(counts.unknown, states)
    checked = Counts(visits, since, order, elsewhere, float(counts.prior), unknown)
    _check_order(order)
    learned = np.repeat(order > 0, np.diff(indptr))
    _refuse(~learned & ((visits > 0) | (since > 0)), "has counts but row_order 0", indptr, actions)
    _refuse(learned & (visits == 0), "has an entry that was never visited", indptr, actions)
    _check_draws(visits, since, indptr, actions)
    mean = posterior_mean(visits, indptr, checked.prior)
    far = learned & (np.abs(mean - probabilities) > ROW_SUM_TOLERANCE)
    _refuse(far, "is not the posterior mean of its counts", indptr, actions)
    _check_elsewhere(elsewhere, states, actions, rows)
    return checked


def checked_emission_counts(counts: EmissionCounts, indptr: Ints, probabilities: Floats) -> EmissionCounts:
    """Return the counts of checked emissions, with read-only arrays. Raises ModelError as `checked_counts` does."""
    visits = _whole(counts.visits, len(probabilities), "emission_visits")
    since = _whole(counts.since, len(probabilities), "emission_since")
    _check_prior(counts.prior)
    without = np.repeat(row_totals(visits, indptr) == 0, np.diff(indptr))
    _refuse((visits == 0) & ~without, "has an observation that it never showed", indptr, 0)
    _refuse(without & (since > 0), "has draws since an observation but no visits", indptr, 0)
    _check_draws(visits, since, indptr, 0)
    far = np.abs(posterior_mean(visits, indptr, counts.prior) - probabilities) > ROW_SUM_TOLERANCE
    _refuse(far, "is not the posterior mean of its counts", indptr, 0)
    return EmissionCounts(visits, since, float(counts.prior))


def _check_prior(prior: float) -> None:
    if not (np.isfinite(prior) and prior > 0):
        raise ModelError(f"prior is {prior}; give a pseudo-count above 0")


def _whole(values: object, size: int, what: str) -> Ints:
    array = as_indices(values, MAX_COUNT, what)
    if array.shape != (size,):
        raise ModelError(f"{what} has {array.size} entries, not {size}")
    whole: Ints = frozen(array)
    return whole


def _check_order(order: Ints) -> None:
    ranks = order[order > 0]
    if len(np.unique(ranks)) != len(ranks):
        raise ModelError("row_order gives two rows the same rank; rank rows by their first visits, from 1")


def _check_draws(visits: Ints, since: Ints, indptr: Ints, actions: int) -> None:
    """Raise ModelError unless, for each row with visits, some sequence of draws has these counts.

    The first draw must discover an outcome, and no draw can discover two outcomes.
    """
    draws = np.repeat(row_totals(visits, indptr), np.diff(indptr))
    learned, before = draws > 0, draws - 1 - since
    _refuse(learned & (before < 0), "has more draws since an outcome was seen than draws", indptr, actions)
    _refuse(learned & (visits - 1 > since), "has more visits than draws since", indptr, actions)
    rows = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    order = np.lexsort((before, rows))
    first = np.concatenate([[True], np.diff(rows[order]) > 0])[: len(rows)]
    same = np.concatenate([[False], np.diff(before[order]) == 0])[: len(rows)] & ~first
    wrong = np.zeros(len(rows), dtype=np.bool_)
    wrong[order] = (first & (before[order] != 0)) | same
    _refuse(learned & wrong, "has counts since first seen that no order of draws gives", indptr, actions)


def _check_elsewhere(elsewhere: int, states: int, actions: int, rows: Rows) -> None:
    indptr, successors, _ = rows
    lo, hi = int(indptr[elsewhere * actions]), int(indptr[(elsewhere + 1) * actions])
    if bool((successors[lo:hi] != elsewhere).any()):
        raise ModelError(f"elsewhere is state {elsewhere} of {states}, which is not absorbing")


def _refuse(bad: Bools, problem: str, indptr: Ints, actions: int) -> None:
    """Raise ModelError if an entry is bad. `actions`: number of rows of a state; 0 for emissions."""
    found = np.flatnonzero(bad)
    if found.size:
        row = int(np.searchsorted(indptr, found[0], side="right")) - 1
        what = f"the row of (state {row // actions}, action {row % actions})" if actions else f"emissions: state {row}"
        raise ModelError(f"{what} {problem}")
