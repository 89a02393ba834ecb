"""Centres of clusters, for the `nearest` state encoder, which encodes numbers as the state of the nearest centre."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from monitor.arrays import Floats, Ints
from monitor.errors import ModelError
from monitor.model.sparse_rows import as_floats, frozen

CELLS: Final = 1 << 20
"""Number of distances that are computed at a time."""


@dataclass(frozen=True, eq=False)
class Centres:
    """Centres of the first K states.

    Attributes:
        points: [K, D] float64.
        scales: [D] float64, positive: the unit of each column.
    """

    points: Floats
    scales: Floats

    def nearest(self, rows: Floats) -> tuple[Ints, Floats]:
        """Return the nearest centre of each row of finite numbers [n, D], and the distance to it, [n] each.

        The distance is Euclidean, after each column is divided by its scale. Among equally near centres, the centre
        with the lowest index is returned. Columns are added one by one, so that the result for a row does not depend on
        the other rows.
        """
        chosen, distance = np.zeros(len(rows), np.int64), np.zeros(len(rows))
        size = max(CELLS // len(self.points), 1)
        for begin in range(0, len(rows), size):
            part = slice(begin, begin + size)
            squares = self._squares(rows[part])
            chosen[part] = squares.argmin(axis=1)
            distance[part] = np.sqrt(squares.min(axis=1))
        return chosen, distance

    def _squares(self, rows: Floats) -> Floats:
        total = np.zeros((len(rows), len(self.points)))
        with np.errstate(over="ignore"):  # if all distances overflow to infinity, all centres are equally near
            for values, centres, scale in zip(rows.T, self.points.T, self.scales, strict=True):
                total += ((values[:, None] - centres) / scale) ** 2
        return total


def checked_centres(points: object, scales: object, states: int) -> Centres | None:
    """Return the centres, read-only; None without `points`.

    Raises ModelError if the points are not [K, D] with K from 1 to S and D > 0, if there is not one scale above 0 for
    each column, or if two centres are equal.
    """
    if points is None and scales is None:
        return None
    if points is None or scales is None:
        raise ModelError("centres need scales, and scales need centres: give both or none")
    table, units = as_floats(points, "centres"), as_floats(scales, "scales of centres")
    if table.ndim != 2 or not 1 <= len(table) <= states or not table.shape[1]:
        raise ModelError(f"centres have shape {table.shape}, not [K, D] with K from 1 to the {states} states")
    if units.shape != table.shape[1:] or not bool((units > 0).all()):
        raise ModelError(f"scales of centres: give {table.shape[1]} numbers above 0, one for each column")
    different, first = np.unique(table, axis=0, return_index=True)
    if len(different) < len(table):
        twice = int(np.setdiff1d(np.arange(len(table)), first)[0])
        raise ModelError(f"centre {twice} equals another one")
    return Centres(frozen(table), frozen(units))


def live_row(raw: object, columns: int) -> Floats | None:
    """Return an agent's state as one row [1, D], or None if it is not a tuple of D finite numbers."""
    if not isinstance(raw, tuple) or len(raw) != columns:
        return None
    if any(isinstance(value, bool) or not isinstance(value, int | float) for value in raw):
        return None
    try:
        row = np.array([[float(value) for value in raw]])
    except OverflowError:  # a whole number beyond the largest float
        return None
    return row if bool(np.isfinite(row).all()) else None
