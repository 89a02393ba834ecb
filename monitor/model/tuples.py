"""Convert tuples to the arrays of a model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from monitor.arrays import Floats, Ints
from monitor.errors import ModelError
from monitor.model.sparse_rows import Rows, as_floats, as_indices


def rows_from_triples(states: int, actions: int, rows: Ints, successors: Ints, probabilities: Floats) -> Rows:
    """Return CSR rows from entries in any order; `rows` [N]: s * A + a of each. Duplicates remain (`checked_rows`)."""
    order = np.argsort(rows, kind="stable")
    counts = np.bincount(rows, minlength=states * actions)
    indptr = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts, dtype=np.int64)])
    return indptr, successors[order], probabilities[order]


def columns(tuples: Iterable[Sequence[Any]], width: int, what: str) -> list[Sequence[Any]]:
    """Return the columns of tuples of `width` fields. Raises ModelError for a tuple of another length."""
    rows = list(tuples)
    try:
        widths = {len(row) for row in rows}
    except TypeError as error:
        raise ModelError(f"{what}: give a list of {width}-tuples ({error})") from error
    if widths - {width}:
        raise ModelError(f"{what}: every entry needs {width} fields, one has {min(widths - {width})}")
    return list(zip(*rows, strict=True)) if rows else [()] * width


def distribution_array(initial: Mapping[int, float], states: int) -> Floats:
    """Return weights by state as an array [S]; the weight of all other states is 0."""
    weights = np.zeros(states)
    weights[as_indices(list(initial), states, "initial: state")] = as_floats(list(initial.values()), "initial")
    return weights
