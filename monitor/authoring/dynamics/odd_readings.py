"""Odd readings of sensors: numbers that jump away from the rows around them and return (Hampel identifier).

The identifier compares a reading with the median of a window of rows (Pearson 2002, "Outliers in process modeling and
identification"). Usually an odd reading is then replaced by the median. Here the steps from and to an odd reading are
left out instead. A lasting change is never odd.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from monitor.arrays import AnyArray, Bools, Floats, Ints
from monitor.authoring.dynamics.steps import RecordedSteps

HALF: Final = 3
"""Half-width of the window. Near an end of a path the window is smaller, but as wide on both sides."""
FAR: Final = 10.0
"""Smallest distance of an odd reading from the median, in standard deviations of a change from row to row."""
QUARTILE: Final = 1.1503
"""Upper quartile of the absolute value of a standard normal number."""
RARE: Final = 0.05
"""If more than this fraction of a column's readings jump and return, none of them is odd."""


class OddReadings(NamedTuple):
    """Readings of states and inputs.

    `values`: [r, f + i]. `odd`: [r, f + i] which readings are odd. `steps`: [n] steps that begin or end with an odd
    reading.
    """

    values: Floats
    odd: Bools
    steps: Bools

    def in_words(self, columns: Sequence[str]) -> list[str]:
        """Return a sentence on the odd readings of these columns, if there are any."""
        named = [
            f"{name} ({int(there.sum()):,} odd readings, {_range(self.values[there, n])}; the others are "
            f"{_range(self.values[~there, n])})"
            for n, (name, there) in enumerate(zip(columns, self.odd.T, strict=True))
            if there.any()
        ]
        said = (
            f"the world is learned without {int(self.steps.sum()):,} of {len(self.steps):,} steps. They begin or end "
            f"with a reading that jumps away from the rows around it and returns within {HALF} rows: "
            f"{', '.join(named)}. "
            "If such jumps are real, this world does not know them"
        )
        return [said] if named else []


def odd_readings(steps: RecordedSteps) -> OddReadings:
    """Return the odd readings of recorded steps.

    The first and the last reading of a path cannot return. They are odd if they jump, their column has odd readings
    elsewhere, and they lie beyond all readings of the column that are not odd.
    """
    width = steps.x.shape[1] + steps.w.shape[1]
    if not len(steps):
        return OddReadings(np.zeros((0, width)), np.zeros((0, width), np.bool_), np.zeros(0, np.bool_))
    linked = steps.linked
    order = np.argsort(linked, kind="stable")
    begins = np.arange(len(steps)) + linked[order]  # each run has one reading more than steps
    values = np.empty((len(steps) + linked.max() + 1, width))
    values[begins + 1] = np.concatenate([steps.x_next, steps.w], axis=1)[order]
    values[begins] = np.concatenate([steps.x, steps.w], axis=1)[order]
    run = np.empty(len(values), np.int64)
    run[begins + 1] = run[begins] = linked[order]
    odd = np.column_stack([_odd(column, run) for column in values.T])
    touched = np.zeros(len(steps), np.bool_)
    touched[order] = odd[begins].any(axis=1) | odd[begins + 1, : steps.x.shape[1]].any(axis=1)
    return OddReadings(values, odd, touched)


def _odd(column: Floats, run: Ints) -> Bools:
    """Return which readings of a column [r] are odd. `run`: [r] ascending number of each reading's run."""
    at = np.arange(len(run))
    first, last = np.searchsorted(run, run), np.searchsorted(run, run, side="right") - 1
    half = np.minimum(np.minimum(at - first, last - at), HALF)
    change = np.abs(np.diff(column))
    usual = float(np.quantile(change[np.diff(run) == 0], 0.75)) / QUARTILE
    odd: AnyArray = np.abs(column - _medians(column, half)) > FAR * usual
    if usual == 0.0 or not odd.any() or odd.mean() > RARE:
        return np.zeros(len(column), np.bool_)
    others = column[~odd & (half > 0)]
    beside = np.where(at == first, np.minimum(at + 1, last), at - 1)
    jumps: Bools = np.abs(column - column[beside]) > FAR * usual
    return np.asarray(odd | ((half == 0) & jumps & ((column < others.min()) | (column > others.max()))))


def _medians(column: Floats, half: Ints) -> Floats:
    """Return the median of the window around each number. `half`: half-widths of the windows."""
    found = column.copy()
    for width in range(1, HALF + 1):
        rows: AnyArray = np.flatnonzero(half == width)
        if len(rows):
            found[rows] = np.median(column[rows[:, np.newaxis] + np.arange(-width, width + 1)], axis=1)
    return found


def _range(values: Floats) -> str:
    return f"{values.min():.6g} to {values.max():.6g}"
