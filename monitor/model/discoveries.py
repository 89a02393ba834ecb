"""Frequency with which a further draw of a row discovers a successor that the row had not shown before.

The draws of all rows are pooled by their number within their row: for a row that was drawn n times, the draws of other
rows with numbers near n + 1 show how often the next draw discovers a successor. So a row drawn three times gives much
probability to unseen successors if rows have many successors, and next to nothing if no row ever showed a second
successor (docs/semantics.md, section 13.5).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from monitor.arrays import Ints
from monitor.model.counts import Counts


class Discoveries(NamedTuple):
    """Discoveries by class of draws: class j has the draws with numbers 2**j + 1 to 2**(j + 1) of each row.

    `found`, `draws` [J]: numbers of discoveries and of draws in class j and the class before it. `of_row` [R]: class of
    the next draw of each learned row, in ascending order of rows.
    """

    found: Ints
    draws: Ints
    of_row: Ints


def discoveries(counts: Counts, indptr: Ints) -> Discoveries:
    """Return the discoveries of a learned model. First draws are left out, because they always discover a successor."""
    rows = np.flatnonzero(counts.order > 0)
    lengths = counts.draws(indptr)
    of_row = _class(lengths[rows])
    classes = int(of_row.max(initial=0)) + 1
    of_entry = np.repeat(np.arange(len(lengths)), np.diff(indptr))
    numbers = lengths[of_entry] - counts.since  # of the draw that discovered the entry, from 1
    later = numbers[(counts.order[of_entry] > 0) & (numbers > 1)]
    found = np.bincount(_class(later - 1), minlength=classes)
    starts = np.left_shift(1, np.arange(classes))
    draws = np.array([np.clip(lengths[rows] - start, 0, start).sum() for start in starts], dtype=np.int64)
    return Discoveries(_with_previous(found), _with_previous(draws), of_row)


def _class(draws: Ints) -> Ints:
    """Return the class [n] of the next draw after `draws` [n] draws, each at least 1."""
    exponents: Ints = np.frexp(draws.astype(np.float64))[1].astype(np.int64) - 1
    return exponents


def _with_previous(values: Ints) -> Ints:
    pooled: Ints = values + np.concatenate([[0], values[:-1]])
    return pooled
