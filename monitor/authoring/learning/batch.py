"""Batches of recorded rows, column by column."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from monitor.arrays import AnyArray, Bools, Floats
from monitor.errors import RecordingError

EXACT: Final = 2**53
"""Largest whole number below which float64 has all of them."""

FLAGS: Final = {
    "true": True, "t": True, "yes": True, "1": True, "1.0": True,
    "false": False, "f": False, "no": False, "0": False, "0.0": False, "": False, "nan": False,
}  # fmt: skip
"""Text of an end marker, in lower case -> its meaning."""


TIME: Final = re.compile(
    r"(\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d)?)?)(?:[.,](\d{1,9}))?\s?(Z|([+-])(\d\d):?(\d\d)?)?", re.ASCII
)
"""A time as ISO 8601 has it: day and time, decimals, zone."""

AS_THEY_ARE: Final = "if the rows are in order as they are, give --order ''"

NEARLY_ALL: Final = 10
"""At most one value in so many may be no number, for the others to make it a mistake and not text."""


@dataclass(frozen=True)
class RowBatch:
    """Consecutive rows of one file.

    Attributes:
        columns: name -> one value for each row: int64, float64 (NaN: missing), bool or text ("": missing).
        first: number of the first row in its file, from 1.
        source: the file, for messages.
    """

    columns: Mapping[str, AnyArray]
    first: int
    source: str

    def __len__(self) -> int:
        """Return the number of rows."""
        return next((len(values) for values in self.columns.values()), 0)

    def where(self, row: int) -> str:
        """Return the place of a row of the batch, for messages."""
        return f"{self.source}, row {self.first + row}"

    def column(self, name: str) -> AnyArray:
        """Return a column; RecordingError if the file has none of that name."""
        if name not in self.columns:
            raise RecordingError(f"{self.source}: there is no column {name!r}; it has {', '.join(self.columns)}")
        return self.columns[name]


def concatenated(one: Mapping[str, AnyArray], other: Mapping[str, AnyArray]) -> dict[str, AnyArray]:
    """Return the rows of both, for the columns of `other`; whole numbers become floats if needed."""
    if not one:
        return dict(other)
    return {name: np.concatenate([beside(one[name], v), beside(v, one[name])]) for name, v in other.items()}


def beside(values: AnyArray, other: AnyArray) -> AnyArray:
    """Return values as they are; as empty texts if all are NaN, so that their kind is not known, and `other` is text.

    >>> beside(np.array([np.nan]), np.array(["left"])).tolist()
    ['']
    """
    unknown = values.ndim > 0 and values.dtype.kind == "f" and bool(np.isnan(values).all())
    return np.full(values.shape, "") if unknown and other.dtype.kind == "U" else values


def is_missing(values: AnyArray) -> Bools:
    """Return which values are missing: NaN, infinity or empty text."""
    if values.dtype.kind == "f":
        return np.asarray(~np.isfinite(values))
    return np.asarray(values == "") if values.dtype.kind == "U" else np.zeros(len(values), np.bool_)


def as_numbers(batch: RowBatch, name: str) -> Floats:
    """Return a column as float64; NaN where missing. RecordingError if it holds text."""
    values = batch.column(name)
    if values.dtype.kind == "U":
        if not is_missing(values).all():
            row = int(np.flatnonzero(values != "")[0])
            raise RecordingError(f"{batch.where(row)}: column {name!r} is {str(values[row])!r:.80}; numbers are needed")
        return np.full(len(values), np.nan)
    return values.astype(np.float64)


def as_moments(batch: RowBatch, name: str, way: str = AS_THEY_ARE) -> AnyArray:
    """Return a column that orders rows: int64 as it is, numbers as float64, ISO 8601 times as seconds since 1970.

    A time without a zone counts as UTC. RecordingError names a value that is neither a number nor such a time, or is
    missing, and `way`, how to do without.
    """
    values = batch.column(name)
    bad = np.flatnonzero(is_missing(values))
    if bad.size:
        raise RecordingError(f"{batch.where(int(bad[0]))}: column {name!r} is empty; {way}")
    if values.dtype.kind != "U":
        return values if values.dtype.kind == "i" else values.astype(np.float64)
    try:
        return values.astype(np.int64)
    except (ValueError, OverflowError):
        return _times(batch, name, values, way)


def _times(batch: RowBatch, name: str, values: AnyArray, way: str) -> Floats:
    found = np.zeros(len(values))
    zoned: bool | None = None
    for row, text in enumerate(values.tolist()):
        match = TIME.fullmatch(text.strip())
        try:
            seconds = np.datetime64(match[1], "s").astype(np.int64) if match else None
        except ValueError:  # such as a 31st of April
            seconds = None
        if match is None or seconds is None:
            raise RecordingError(
                f"{batch.where(row)}: column {name!r} is {text!r:.80}, no number and no time such as "
                f"2026-05-04T07:00:00Z; {way}"
            )
        zone = match[3] is not None
        if zoned not in (None, zone):
            raise RecordingError(f"{batch.where(row)}: column {name!r}: some times have a zone and others none")
        zoned = zone
        ahead = int(f"{match[4]}{60 * int(match[5]) + int(match[6] or 0)}") if match[4] else 0
        found[row] = seconds - 60 * ahead + float(f"0.{match[2] or 0}")
    return found


def as_flags(batch: RowBatch, name: str | None) -> Bools:
    """Return an end marker as Booleans; all False without a column. Missing means False."""
    if name is None:
        return np.zeros(len(batch), np.bool_)
    values = batch.column(name)
    if values.dtype.kind == "b":
        return values.astype(np.bool_)
    if values.dtype.kind != "U":
        numbers = np.nan_to_num(values.astype(np.float64), nan=0.0)
        _refuse(batch, name, np.asarray((numbers != 0) & (numbers != 1)))
        return np.asarray(numbers == 1)
    kinds, places = np.unique(values, return_inverse=True)
    meant = [FLAGS.get(str(kind).strip().lower()) for kind in kinds]
    _refuse(batch, name, np.array([flag is None for flag in meant], np.bool_)[places])
    return np.array([bool(flag) for flag in meant], np.bool_)[places]


def _refuse(batch: RowBatch, name: str, bad: Bools) -> None:
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        value = str(batch.column(name)[row])[:80]
        raise RecordingError(f"{batch.where(row)}: column {name!r} is {value!r}; an end marker is true, false, 1 or 0")


def typed(values: Sequence[object], known: str | None) -> AnyArray | int:
    """Return values of one column as an array; or the place of the first value that does not fit.

    Args:
        values: numbers, Booleans, text (as read from a CSV file) or None.
        known: kind of the column so far, "b", "i", "f" or "U"; None: infer it from these values. Whole numbers may
            become floats later; no other kind changes.
    """
    if known is None and (odd := _odd_text(values)) is not None:
        return odd
    for kind in {None: "bifU", "b": "b", "i": "if", "f": "f", "U": "U"}[known]:
        found = _as_kind(values, kind)
        if found is not None:
            return found
    return next(i for i, value in enumerate(values) if _as_kind([value], known or "f") is None)


def _odd_text(values: Sequence[object]) -> int | None:
    """Return the place of the first text that is no number, if nearly all others are numbers; else None."""
    if _as_kind(values, "f") is not None or _as_kind(values, "b") is not None:
        return None
    bad = [i for i, value in enumerate(values) if _as_kind([value], "f") is None]
    return bad[0] if len(bad) * NEARLY_ALL <= len(values) else None


def _as_kind(values: Sequence[object], kind: str) -> AnyArray | None:
    if kind == "U":
        return _as_text(values)
    if kind == "b":
        return _as_booleans(values)
    if any(isinstance(value, bool) for value in values):
        return None
    try:
        if kind == "i":
            if any(isinstance(value, float) for value in values):
                return None
            return np.array(values, dtype=np.int64)
        return np.array([np.nan if value is None or value == "" else value for value in values], dtype=np.float64)
    except (ValueError, TypeError, OverflowError):
        return None


def _as_booleans(values: Sequence[object]) -> AnyArray | None:
    meant = [{"true": True, "false": False}.get(value.lower()) if isinstance(value, str) else value for value in values]
    return np.array(meant, np.bool_) if all(isinstance(value, bool) for value in meant) else None


def _as_text(values: Sequence[object]) -> AnyArray | None:
    if not all(isinstance(value, str) or value is None for value in values):
        return None
    return np.array(["" if value is None else value for value in values], dtype=np.str_)
