"""Check the sparse rows of a model, and bring them to a normal form, without a Python loop over states.

A model of S states and A actions is a CSR matrix of S * A rows; the row of (s, a) is row `s * A + a`.
Every function either returns new read-only arrays, or raises a `ModelError` that names the first bad row.
"""

from __future__ import annotations

import numpy as np

from monitor.arrays import AnyArray, Floats, Ints
from monitor.errors import ModelError

Rows = tuple[Ints, Ints, Floats]
"""indptr [S*A + 1], successors [N], probabilities [N]."""

ROW_SUM_TOLERANCE = 1e-9
"""Largest accepted difference of a row's sum from 1. Rows with a smaller difference are renormalised."""


def frozen(array: AnyArray) -> AnyArray:
    """Return the array contiguous and read-only. It is copied if needed, so that no caller can change it.

    A read-only view of a writeable array is copied as well.
    """
    owner = array if array.base is None else array.base
    owned = not array.flags.writeable and not (isinstance(owner, np.ndarray) and owner.flags.writeable)
    kept = array if owned and array.flags.c_contiguous else np.array(array, order="C")
    kept.flags.writeable = False
    return kept


def as_array(values: object, what: str) -> AnyArray:
    """Return the values as an array. Raises ModelError if NumPy cannot convert them."""
    try:
        return np.asarray(values)
    except (ValueError, TypeError, OverflowError) as error:
        raise ModelError(f"{what}: not an array of numbers ({error})") from error


def as_indices(values: object, limit: int, what: str) -> Ints:
    """Return integers in `0..limit-1` as int64 [N]. Raises ModelError, which names the first wrong value."""
    array = as_array(values, what)
    if array.size == 0:
        return np.zeros(0, dtype=np.int64)
    if array.ndim != 1:
        raise ModelError(f"{what}: give a flat list, not shape {array.shape}")
    if array.dtype.kind == "f" and bool(np.all(np.isfinite(array) & (array == np.floor(array)))):
        array = array.astype(np.int64) if bool(np.all(np.abs(array) < 2.0**53)) else array
    if array.dtype.kind not in "iu":
        raise ModelError(f"{what}: give whole numbers, not {array.dtype}")
    bad = np.flatnonzero((array < 0) | (array >= limit))
    if bad.size:
        raise ModelError(f"{what} {array[bad[0]]} (entry {bad[0]}) is outside 0..{limit - 1}")
    return array.astype(np.int64, copy=False)


def as_floats(values: object, what: str) -> Floats:
    """Return finite numbers as float64. Raises ModelError, which names the first value that is not finite."""
    array = as_array(values, what)
    if array.size == 0:
        return np.zeros(array.shape, dtype=np.float64)
    if array.dtype.kind not in "fiu":
        raise ModelError(f"{what}: give numbers, not {array.dtype}")
    numbers = array.astype(np.float64, copy=False)
    bad = np.flatnonzero(~np.isfinite(numbers))
    if bad.size:
        where = tuple(int(i) for i in np.unravel_index(bad[0], numbers.shape))
        raise ModelError(f"{what}: entry {where} is {numbers[where]}; every entry must be finite")
    return numbers


def checked_size(states: int, actions: int) -> None:
    """Raise ModelError for a model without states or actions, or with too many rows S * A."""
    for name, count in (("states", states), ("actions", actions)):
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise ModelError(f"{name} must be a whole number of at least 1, got {count!r}")
    if states * actions >= 2**40:
        raise ModelError(f"{states} states x {actions} actions are too many rows")


def checked_rows(states: int, actions: int, rows: Rows) -> Rows:
    """Return the rows with duplicates summed, zeros dropped, successors ascending, sums 1; read-only.

    Raises:
        ModelError: the arrays do not fit each other, an index is out of bounds, a probability is negative or not
            finite, a row's sum differs from 1 by more than `ROW_SUM_TOLERANCE`, or a state has no available action.
    """
    indptr, successors, probabilities = rows
    successors = as_indices(successors, states, "successor")
    indptr = _checked_indptr(indptr, states * actions, len(successors))
    probabilities = as_floats(probabilities, "probability")
    if probabilities.shape != successors.shape:
        raise ModelError(f"{successors.size} successors but probabilities of shape {probabilities.shape}")
    negative = np.flatnonzero(probabilities < 0)
    if negative.size:
        row = int(np.searchsorted(indptr, negative[0], side="right")) - 1
        raise ModelError(f"{_name(row, actions)} holds the negative probability {probabilities[negative[0]]:g}")
    indptr, successors, probabilities = _merged(indptr, successors, probabilities)
    empty = np.flatnonzero((np.diff(indptr) == 0).reshape(states, actions).all(axis=1))
    if empty.size:
        raise ModelError(
            f"state {empty[0]} has no available action: give it at least one row (to itself with probability 1 if "
            "it is absorbing)"
        )
    probabilities = _renormalised(indptr, probabilities, actions)
    return frozen(indptr), frozen(successors), frozen(probabilities)


def checked_distribution(values: object, states: int) -> Floats:
    """Return the distribution of the first state as [S] float64, renormalised, read-only."""
    weights = as_floats(values, "initial distribution")
    if weights.shape != (states,):
        raise ModelError(f"the initial distribution has shape {weights.shape}, not [{states}]")
    total = float(weights.sum())
    if (weights < 0).any() or abs(total - 1) > ROW_SUM_TOLERANCE:
        raise ModelError(f"the initial distribution must hold no negative number and sum to 1; it sums to {total:.12g}")
    return frozen(weights / total if abs(total - 1) > states * np.finfo(np.float64).eps else weights + 0.0)


def _name(row: int, actions: int) -> str:
    return f"the row of (state {row // actions}, action {row % actions})"


def _checked_indptr(indptr: object, rows: int, entries: int) -> Ints:
    array = as_indices(indptr, entries + 1, "indptr")
    if array.size != rows + 1:
        raise ModelError(f"indptr has {array.size} entries, not states * actions + 1 = {rows + 1}")
    if array[0] != 0 or array[-1] != entries or bool((np.diff(array) < 0).any()):
        raise ModelError(f"indptr must rise from 0 to the number of entries, {entries}")
    return array


def _merged(indptr: Ints, successors: Ints, probabilities: Floats) -> Rows:
    """Drop zeros, sort successors and sum duplicates in their order; rows in normal form are returned unchanged."""
    first = np.zeros(successors.size + 1, dtype=np.bool_)
    first[indptr] = True
    ordered = bool(np.all(first[1:-1] | (np.diff(successors) > 0)))
    if ordered and bool((probabilities > 0).all()):
        return indptr, successors, probabilities
    rows = np.repeat(np.arange(indptr.size - 1), np.diff(indptr))
    order = np.lexsort((successors, rows))
    rows, successors, probabilities = rows[order], successors[order], probabilities[order]
    starts = np.flatnonzero(np.concatenate([[True], (np.diff(rows) != 0) | (np.diff(successors) != 0)])[: rows.size])
    sums = np.add.reduceat(probabilities, starts) if starts.size else probabilities
    kept = sums > 0
    rows, successors, probabilities = rows[starts][kept], successors[starts][kept], sums[kept]
    counts = np.bincount(rows, minlength=indptr.size - 1)
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts, dtype=np.int64)]), successors, probabilities


def _renormalised(indptr: Ints, probabilities: Floats, actions: int) -> Floats:
    """Divide a row by its sum if the sum differs from 1 by more than rounding explains.

    A row of K entries stays unchanged if its sum is within K * 2^-52 of 1. After a division, the sum of every row is
    within this limit, so no row is divided a second time: a model that is saved and loaded keeps its bytes.
    """
    lengths = np.diff(indptr)
    filled = np.flatnonzero(lengths)
    sums = np.add.reduceat(probabilities, indptr[filled])
    bad = np.flatnonzero(~(np.abs(sums - 1) <= ROW_SUM_TOLERANCE))
    if bad.size:
        total = sums[bad[0]]
        raise ModelError(
            f"{_name(int(filled[bad[0]]), actions)} sums to {total:.12g}, not 1 (off by {total - 1:.3g}; "
            f"{bad.size} such rows): correct its probabilities, or leave the row out if the action is unavailable"
        )
    loose = np.abs(sums - 1) > lengths[filled] * np.finfo(np.float64).eps
    if not loose.any():
        return probabilities
    divided: Floats = probabilities / np.repeat(np.where(loose, sums, 1.0), lengths[filled])
    return divided
