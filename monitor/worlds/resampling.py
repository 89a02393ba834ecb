"""Resample future inputs from recorded inputs: a step gets inputs that once followed similar inputs.

This is a nearest-neighbour bootstrap (Lall & Sharma, "A nearest neighbor bootstrap for resampling hydrologic time
series", 1996) of whole stretches of a recording. A draw selects one of the recorded steps whose inputs are nearest to
the last observed inputs. The draw then continues with the inputs recorded after this step. So the course of a day, for
example, is preserved.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Final

import numpy as np

from monitor.arrays import Bools, Floats, Ints
from monitor.errors import ModelError, brief
from monitor.worlds.protocol import LARGEST_NUMBER, Feature

EPISODE: Final = "episode"
"""Name of the column with the number of the recording; it comes before the columns of the inputs."""
MOST_RECORDED: Final = 100_000
MOST_BYTES: Final = 1 << 25
"""Limits for the recorded steps and for the bytes of their file. At each message, all recorded steps are compared with
the last observed inputs."""
HELD: Final = 8
"""Number of observed inputs for which stretches are cached. All worlds compared by a verdict use the same stretches."""


class ResampledInputs:
    """Recorded inputs, from which later inputs are drawn.

    Args:
        content: a CSV file with a column for each input, in order. Each row is the step after the previous row. An
            optional first column `episode` has a new number where another recording begins.
        inputs: the inputs.
        where: name of the file in messages.

    Raises ModelError if the content does not fit.
    """

    def __init__(self, content: bytes, inputs: Sequence[Feature], where: str) -> None:
        self._rows, self._is_last = _read(content, inputs, where)
        self.steps = len(self._rows)
        self._followed = np.flatnonzero(~self._is_last)
        if not len(self._followed):
            raise ModelError(f"world {where}: no row follows another one of its episode; record inputs step by step")
        # The referee sums in another order. Numbers are rounded, so that it selects the same neighbours.
        with np.errstate(over="ignore", invalid="ignore"):
            spread = np.array([float(f"{column.std():.4g}") for column in self._rows.T])
        if not np.isfinite(spread).all():
            raise ModelError(f"world {where}: its numbers are too large to be compared")
        self._unit = np.where(spread > 0.0, spread, 1.0)
        self._columns = self._rows[self._followed].T / self._unit[:, np.newaxis]
        self._stretches, self._continuation = lru_cache(HELD)(self._begun), cache(self._continued)

    def resample(self, w: Floats, ahead: int, u: Floats) -> Floats:
        """Return the inputs [n, i] `ahead` steps (1, 2, ..) after inputs w [i], from uniform numbers u [n]."""
        stretches = self._stretches(tuple(w.tolist()))
        while len(stretches) < ahead:
            stretches.append(self._following(stretches[-1]))
        places = stretches[ahead - 1]
        return np.asarray(self._rows[places[(u * len(places)).astype(np.int64)]])

    def _begun(self, w: tuple[float, ...]) -> list[Ints]:
        """Return a list with one entry: the rows [k] that may follow inputs w. `resample` appends later steps' rows."""
        return [self._nearest(w) + 1]

    def _nearest(self, w: Sequence[float]) -> Ints:
        """Return the rows nearest to w, among the rows that have a next row.

        Of n rows that have a next row, the sqrt(n) nearest are selected. If more rows have the largest selected
        distance than can be selected, the selected rows among these are spread evenly over the recordings.
        """
        apart = np.zeros(len(self._followed))
        with np.errstate(over="ignore"):  # distances that overflow count as equal
            for column, value in zip(self._columns, w / self._unit, strict=True):
                apart += (column - value) ** 2
        count = round(float(np.sqrt(len(apart))))
        bound = np.partition(apart, count - 1)[count - 1]
        nearer, as_near = np.flatnonzero(apart < bound), np.flatnonzero(apart == bound)
        rest = count - len(nearer)
        spread = as_near[np.arange(rest) * len(as_near) // rest]
        return np.asarray(self._followed[np.sort(np.concatenate([nearer, spread]))])

    def _following(self, places: Ints) -> Ints:
        """Return the next rows. The last row of an episode is followed by a row that once followed similar inputs."""
        following = places + 1
        for n in np.flatnonzero(self._is_last[places]).tolist():
            following[n] = self._continuation(int(places[n]))
        return np.asarray(following)

    def _continued(self, end: int) -> int:
        """Return the row that comes after the last row of an episode."""
        nearest, episode = self._nearest(self._rows[end].tolist()), int(self._is_last[:end].sum())
        return int(nearest[episode % len(nearest)]) + 1  # so that not all episodes continue with the same row


def _read(content: bytes, inputs: Sequence[Feature], where: str) -> tuple[Floats, Bools]:
    """Return the rows [n, i] of a file, and whether each row is the last of its episode [n]."""
    names = [each.name for each in inputs]
    if len(content) > MOST_BYTES or content.count(b"\n") > MOST_RECORDED + 1:
        raise ModelError(f"world {where}: it has more than {MOST_RECORDED:,} rows, or {MOST_BYTES:,} bytes; keep fewer")
    try:
        header, *lines = [line for line in content.decode().split("\n") if line.strip()] or [""]
        columns = [name.strip() for name in header.split(",")]
        if columns not in (names, [EPISODE, *names]):
            raise ModelError(
                f"world {where}: its first line is {header!r:.100}; it must be {','.join(names)}, or "
                f"{EPISODE},{','.join(names)}"
            )
        if len(lines) < 2:
            raise ModelError(f"world {where}: it has {len(lines)} rows; give 2 at least")
        table = np.loadtxt(lines, delimiter=",", ndmin=2, comments=None)
    except ValueError as error:
        raise ModelError(f"world {where}: it is no table of numbers ({brief(error)})") from error
    if table.shape[1] != len(columns):
        raise ModelError(f"world {where}: its rows have {table.shape[1]} numbers, its first line {len(columns)} names")
    rows, episode = table[:, -len(names) :], table[:, 0] if len(columns) > len(names) else np.zeros(len(table))
    for each, column in zip(inputs, rows.T, strict=True):
        inside = (column >= max(each.low, -LARGEST_NUMBER)) & (column <= min(each.high, LARGEST_NUMBER))
        if not inside.all():
            n = int(np.flatnonzero(~inside)[0])
            raise ModelError(f"world {where}: row {n + 1}: {each.outside(float(column[n]))}")
    return np.ascontiguousarray(rows), np.append(episode[1:] != episode[:-1], True)
