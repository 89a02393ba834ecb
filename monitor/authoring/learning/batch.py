"""Batches of recorded rows, column by column."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from monitor.arrays import AnyArray, Bools, Floats, Ints
from monitor.errors import RecordingError

EXACT: Final = 2**53
"""Float64 represents every whole number up to this number."""

MISSING: Final = frozenset({"na", "n/a", "#n/a", "nan", "null", "none"})
"""Texts, in lower case, that stand for a missing value among numbers or Booleans."""

FLAGS: Final = {
    **dict.fromkeys(("true", "t", "yes", "y", "1", "1.0"), True),
    **dict.fromkeys(("false", "f", "no", "n", "0", "0.0", "", *MISSING), False),
}
"""Text of an end marker, in lower case -> its meaning."""


TIME: Final = re.compile(
    r"(?:(\d{4})([-/.])(\d\d?)\2(\d\d?)|(\d\d?)([-/.])(\d\d?)\6(\d{4}))"
    r"(?:[T ]\s?(\d\d?):(\d\d)(?::(\d\d)(?:[.,](\d{1,9}))?)?)?\s?(?:([AaPp])\.?[Mm]\.?)?(Z|UTC|([+-])(\d\d):?(\d\d)?)?",
    re.ASCII,
)
"""A time: year, month and day as in ISO 8601, or the year last; hours, minutes, seconds, decimals; AM or PM; zone."""

AS_THEY_ARE: Final = "if the rows are in order as they are, give --order ''"

NEARLY_ALL: Final = 10
"""A column has numbers if at most one of 10 values is not a number.

Such a value counts as a mistake. Any other column has text.
"""


@dataclass(frozen=True)
class RowBatch:
    """Consecutive rows of one file.

    Attributes:
        columns: name -> one value for each row: int64, float64 (NaN: missing), bool or text ("": missing).
        first: number of the first row in its file, from 1.
        source: the file, for messages.
        odd: column -> rows [k] whose value is of another kind than the other values. Such a value is not in `columns`.
        torn: reason -> numbers [k] of rows that could not be read at all; they are not in `columns`.
        numbers: number of each row in its file, if some rows are torn; None: the numbers are consecutive.
        coded: reason -> a column, and the rows [n] in which its value was removed, because it stands for a missing
            value.
    """

    columns: Mapping[str, AnyArray]
    first: int
    source: str
    odd: Mapping[str, Ints] = field(default_factory=dict)
    torn: Mapping[str, Ints] = field(default_factory=dict)
    numbers: Ints | None = None
    coded: Mapping[str, tuple[str, Bools]] = field(default_factory=dict)

    def __len__(self) -> int:
        """Return the number of rows that could be read."""
        return next((len(values) for values in self.columns.values()), 0)

    @property
    def rows(self) -> int:
        """Number of rows, including rows that could not be read."""
        return len(self) + sum(len(numbers) for numbers in self.torn.values())

    @property
    def places(self) -> Ints:
        """Number in the file of each row, [n]."""
        return np.arange(self.first, self.first + len(self)) if self.numbers is None else self.numbers

    def where(self, row: int) -> str:
        """Return the place of a row of the batch, for messages."""
        return f"{self.source}, row {self.first + row if self.numbers is None else self.numbers[row]}"

    def picked(self, rows: AnyArray | slice) -> RowBatch:
        """Return some of the rows, without torn rows. The picked rows must have no odd value."""
        columns = {name: values[rows] for name, values in self.columns.items()}
        return RowBatch(columns, self.first, self.source, numbers=self.places[rows])

    def whole(self) -> RowBatch:
        """Return the batch with the rows that have an odd value moved to the torn rows."""
        if not self.odd:
            return self
        torn = dict(self.torn)
        kept = np.ones(len(self), np.bool_)
        for name, rows in self.odd.items():
            torn[odd_value(name, self.columns[name])] = self.places[rows[kept[rows]]]
            kept[rows] = False
        return replace(self.picked(kept), torn=torn)

    def refuse_bad(self) -> None:
        """Raise RecordingError for the first row that is torn or has an odd value."""
        bad = [(int(numbers[0]), reason) for reason, numbers in self.whole().torn.items() if len(numbers)]
        if bad:
            number, reason = min(bad)
            raise RecordingError(f"{self.source}, row {number}: {reason}; correct it or leave it out")

    def column(self, name: str) -> AnyArray:
        """Return a column. Raises RecordingError if the file has no column of this name."""
        if name not in self.columns:
            raise RecordingError(f"{self.source}: there is no column {name!r}; it has {', '.join(self.columns)}")
        return self.columns[name]


def odd_value(name: str, values: AnyArray) -> str:
    """Return the reason for leaving out a row whose value in a column is of another kind than `values`."""
    usual = {"b": "neither true nor false", "U": "no text"}
    return f"{name!r} is {usual.get(values.dtype.kind, 'no number')}"


def concatenated(one: Mapping[str, AnyArray], other: Mapping[str, AnyArray]) -> dict[str, AnyArray]:
    """Return the rows of both, for the columns of `other`. Whole numbers become floats if necessary."""
    if not one or not other:
        return dict(other)
    if not len(next(iter(other.values()))):
        return {name: one[name] for name in other}
    return {name: np.concatenate([beside(one[name], v), beside(v, one[name])]) for name, v in other.items()}


def beside(values: AnyArray, other: AnyArray) -> AnyArray:
    """Return `values`, or empty texts if all values are NaN and `other` is text.

    If all values are NaN, the kind of the column is not known yet.

    >>> beside(np.array([np.nan]), np.array(["left"])).tolist()
    ['']
    """
    unknown = values.ndim > 0 and values.dtype.kind == "f" and bool(np.isnan(values).all())
    return np.full(values.shape, "") if unknown and other.dtype.kind == "U" else values


def is_missing(values: AnyArray) -> Bools:
    """Return for each value whether it is missing: NaN, infinity or empty text."""
    if values.dtype.kind == "f":
        return np.asarray(~np.isfinite(values))
    return np.asarray(values == "") if values.dtype.kind == "U" else np.zeros(len(values), np.bool_)


def as_numbers(batch: RowBatch, name: str) -> Floats:
    """Return a column as float64 with NaN for missing values. Raises RecordingError if it has text."""
    values = batch.column(name)
    if values.dtype.kind == "U":
        if not is_missing(values).all():
            row = int(np.flatnonzero(values != "")[0])
            raise RecordingError(f"{batch.where(row)}: column {name!r} is {str(values[row])!r:.80}; numbers are needed")
        return np.full(len(values), np.nan)
    return values.astype(np.float64)


def as_moments(batch: RowBatch, name: str, way: str = AS_THEY_ARE) -> AnyArray:
    """Return a column that orders rows, like `moments`.

    Raises RecordingError, which names a row, if a value is missing or is not a time. `way`: what the message advises.
    """
    values, _ = moments(batch, name)
    for bad, problem in ((is_missing(batch.column(name)), "is empty"), (is_missing(values), NO_TIME)):
        if bad.any():
            row = int(np.flatnonzero(bad)[0])
            given = f" {str(batch.column(name)[row])!r:.80}," if problem == NO_TIME else ""
            raise RecordingError(f"{batch.where(row)}: column {name!r} is{given} {problem.removeprefix('is ')}; {way}")
    return values


NO_TIME: Final = "is no number and no time such as 2026-05-04T07:00:00Z"


def moments(batch: RowBatch, name: str, *, day_first: bool | None = None) -> tuple[AnyArray, bool | None]:
    """Return a column that orders rows: int64 unchanged, other numbers as float64, times as seconds since 1970.

    A value that is neither a number nor a time is NaN. A time without a zone counts as UTC. Also returns whether days
    come before months in times such as 04/05/2026, or None if there are no such times. `day_first`: the second result
    for earlier rows. Raises RecordingError if it is not known whether day or month comes first, or if only some times
    have a zone.
    """
    values = batch.column(name)
    if values.dtype.kind != "U":
        return (values, day_first) if values.dtype.kind == "i" else (values.astype(np.float64), day_first)
    try:
        return values.astype(np.int64), day_first
    except (ValueError, OverflowError):
        return _times(batch, name, values, day_first)


def _times(batch: RowBatch, name: str, values: AnyArray, day_first: bool | None) -> tuple[Floats, bool | None]:  # noqa: FBT001 - or not known
    matches = [TIME.fullmatch(text.strip()) for text in values.tolist()]
    if day_first is None:
        day_first = _day_first(batch, name, matches)
    found = np.full(len(values), np.nan)
    zoned: bool | None = None
    for row, match in enumerate(matches):
        if match is None or (seconds := _seconds(match, day_first=bool(day_first))) is None:
            continue
        zone = match[14] is not None
        if zoned not in (None, zone):
            raise RecordingError(f"{batch.where(row)}: column {name!r}: some times have a zone and others none")
        zoned = zone
        found[row] = seconds
    return found, day_first


def _day_first(batch: RowBatch, name: str, matches: Sequence[re.Match[str] | None]) -> bool | None:
    """Return whether days come before months in times that end with the year, or None if there are no such times.

    Raises RecordingError if the order is unclear.
    """
    last = [(row, match) for row, match in enumerate(matches) if match is not None and match[8] is not None]
    if not last:
        return None
    ahead = sum(int(match[5]) > 12 for _, match in last)
    behind = sum(int(match[7]) > 12 for _, match in last)
    if ahead != behind:
        return ahead > behind
    row, match = last[0]
    if all(match[6] == "." for _, match in last):
        return True  # with dots, the day is always first
    raise RecordingError(
        f"{batch.where(row)}: column {name!r} is {match[0]!r}: it is not known which of day and month comes first, as "
        f"the rows read allow both; write times as 2026-05-04T07:00:00Z, or {AS_THEY_ARE}"
    )


def _seconds(match: re.Match[str], *, day_first: bool) -> float | None:
    """Return the seconds since 1970 of a match of `TIME`, or None if there is no such day or time."""
    year, month, day = match[1] or match[8], match[3], match[4]
    if match[8] is not None:
        month, day = (match[7], match[5]) if day_first else (match[5], match[7])
    hour = int(match[9] or 0)
    if match[13] is not None:
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + (12 if match[13] in "Pp" else 0)
    try:
        moment = np.datetime64(f"{year}-{month:0>2}-{day:0>2}T{hour:02}:{match[10] or '00'}:{match[11] or '00'}", "s")
    except ValueError:  # such as a 31st of April
        return None
    ahead = int(f"{match[15]}{60 * int(match[16]) + int(match[17] or 0)}") if match[15] else 0
    return int(moment.astype(np.int64)) - 60 * ahead + float(f"0.{match[12] or 0}")


def as_flags(batch: RowBatch, name: str | None) -> Bools:
    """Return an end marker as Booleans, like `flags`. Raises RecordingError, which names a row, for any other value."""
    found, bad = flags(batch, name)
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        value = str(batch.column(str(name))[row])[:80]
        raise RecordingError(f"{batch.where(row)}: column {name!r} is {value!r}; an end marker is true, false, 1 or 0")
    return found


def flags(batch: RowBatch, name: str | None) -> tuple[Bools, Bools]:
    """Return an end marker as Booleans, and which values are not end markers.

    Missing values are False. Without a column, all values are False.
    """
    if name is None:
        return np.zeros(len(batch), np.bool_), np.zeros(len(batch), np.bool_)
    values = batch.column(name)
    if values.dtype.kind == "b":
        return values.astype(np.bool_), np.zeros(len(batch), np.bool_)
    if values.dtype.kind != "U":
        numbers = np.nan_to_num(values.astype(np.float64), nan=0.0)
        return np.asarray(numbers == 1), np.asarray((numbers != 0) & (numbers != 1))
    kinds, places = np.unique(values, return_inverse=True)
    meant = [FLAGS.get(str(kind).strip().lower()) for kind in kinds]
    bad = np.array([flag is None for flag in meant], np.bool_)[places]
    return np.array([bool(flag) for flag in meant], np.bool_)[places], bad


NO_PLACES: Final[Ints] = np.zeros(0, np.int64)


def typed(values: Sequence[object], known: str | None) -> tuple[AnyArray, Ints]:
    """Return values of one column as an array, and the places of values of another kind, which become 0, NaN or "".

    Args:
        values: numbers, Booleans, text (as read from a CSV file) or None.
        known: kind of the column so far, "b", "i", "f" or "U"; None: infer it from these values. Whole numbers and
            Booleans become floats if values are missing or if both are mixed. No other kind changes.
    """
    for kind in {None: "bif", "b": "b", "i": "if", "f": "f", "U": "U"}[known]:
        found = _as_kind(values, kind)
        if found is not None:
            return found, NO_PLACES
    if known != "U":
        found = _with_missing(values, known)
        if found is not None:
            return found, NO_PLACES
    kind = known or _usual_kind(values)
    if known is None and kind == "U" and (found := _as_text(values)) is not None:
        return found, NO_PLACES
    fits = np.array([_fits(value, "f" if kind == "i" else kind) or _is_mark(value) for value in values])
    for empty, each in {"b": ((False, "b"),), "U": ((None, "U"),)}.get(kind, ((0, "i"), (None, "f"))):
        rest = [value if fit else empty for value, fit in zip(values, fits.tolist(), strict=True)]
        if (found := _as_kind(rest, each)) is not None:
            return found, np.flatnonzero(~fits)
    found = _with_missing(rest, kind)
    assert found is not None
    return found, np.flatnonzero(~fits)


def _with_missing(values: Sequence[object], known: str | None) -> AnyArray | None:
    """Return numbers and Booleans as floats, NaN if missing.

    None if there are other values, or if all are missing and `known` is None.
    """
    blank = [None if _is_mark(value) else value for value in values]
    if known is None and not any(value is not None for value in blank):
        return None
    return _as_kind([_as_number(value) for value in blank], "f")


def _as_number(value: object) -> object:
    """Return true and false as 1 and 0, and any other value unchanged."""
    if isinstance(value, str):
        return {"true": 1.0, "false": 0.0}.get(value.lower(), value)
    return float(value) if isinstance(value, bool) else value


def _is_mark(value: object) -> bool:
    """Return whether a value is missing, or is a text that stands for a missing value."""
    return value is None or (isinstance(value, str) and (value == "" or value.strip().lower() in MISSING))


def _usual_kind(values: Sequence[object]) -> str:
    """Return "f" if nearly all values are numbers, or if some are no texts and half of all are numbers; else "U"."""
    present = [value for value in values if not _is_mark(value)]
    numbers = sum(_fits(value, "f") for value in present)
    texts = sum(isinstance(value, str) for value in present)
    if texts == len(present):
        return "f" if (len(present) - numbers) * NEARLY_ALL <= len(present) and numbers else "U"
    return "f" if 2 * numbers >= len(present) else "U"


def _fits(value: object, kind: str) -> bool:
    """Return whether one value is of this kind."""
    if type(value) is str and kind == "f" and value:
        try:
            float(value)
        except ValueError:
            return False
        return True
    return _as_kind([value], kind) is not None


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
    if values and not isinstance(values[0], bool) and str(values[0]).lower() not in ("true", "false"):
        return None  # without checking the other values
    meant = [{"true": True, "false": False}.get(value.lower()) if isinstance(value, str) else value for value in values]
    return np.array(meant, np.bool_) if all(isinstance(value, bool) for value in meant) else None


def _as_text(values: Sequence[object]) -> AnyArray | None:
    if not all(isinstance(value, str) or value is None for value in values):
        return None
    return np.array(["" if value is None else value for value in values], dtype=np.str_)
