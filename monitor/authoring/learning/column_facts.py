"""The first rows of recordings, and facts on their columns: kind, range, and changes from row to row. Impure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

import numpy as np

from monitor.arrays import AnyArray, Bools, Ints
from monitor.authoring.learning.abstraction import FEW, MANY
from monitor.authoring.learning.batch import TIME, RowBatch, as_moments, concatenated, flags, is_missing
from monitor.authoring.learning.row_files import RowFile
from monitor.errors import RecordingError

ColumnKind = Literal["flag", "whole", "decimal", "text", "time", "empty"]
"""`flag`: true and false, or 0 and 1. `whole`: whole numbers. `time`: texts, each a time in ISO 8601."""

ROWS: Final = 100_000
"""Number of rows that are examined, in equal parts from at most `FILES` files."""

FILES: Final = 20

SHOWN: Final = 4
"""Largest number of values that are shown one by one. If there are more, the range is shown."""

LONGEST: Final = 14
"""Largest number of characters of a shown text."""


@dataclass(frozen=True)
class Head:
    """First rows of recordings.

    Attributes:
        columns: name -> values [n], for the columns that can be read.
        file: [n] number of the file of each row.
        unreadable: name of any other column -> why it cannot be read.
        odd: name of a column of numbers -> number of its rows that have a text. These rows count as empty.
        whole: True if these are all rows.
    """

    columns: Mapping[str, AnyArray]
    file: Ints
    unreadable: Mapping[str, str] = field(default_factory=dict)
    whole: bool = True
    odd: Mapping[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.file)

    @property
    def looked_at(self) -> str:
        """Description of these rows."""
        return f"the {len(self):,} rows" if self.whole else f"the first {len(self):,} rows"


def head_of(sources: Sequence[RowFile]) -> Head:
    """Return the first rows of recordings, with the columns of the first recording.

    A column that cannot be read in one of the files is not among `columns`. If a file lacks a column, its values are
    missing. Raises RecordingError if there are no rows or they cannot be read at all.
    """
    names = sources[0].names()
    unreadable = dict(sources[0].left_out)
    columns: dict[str, AnyArray] = {}
    files: list[int] = []
    looked_at = sources[:FILES]
    most, whole = max(1, ROWS // len(looked_at)), len(looked_at) == len(sources)
    odd: Counter[str] = Counter()
    for number, source in enumerate(looked_at):
        there = source.names()
        part, more = _first_rows(source, [n for n in names if n in there and n not in unreadable], most, unreadable)
        whole = whole and not more
        wanted = [name for name in names if name not in unreadable]
        empty = np.full(len(part), np.nan)
        columns = concatenated(
            {name: columns[name] for name in wanted if columns},
            {name: part.columns.get(name, empty) for name in wanted},
        )
        files += [number] * len(part)
        odd.update({name: int((rows < len(part)).sum()) for name, rows in part.odd.items()})
    if not files:
        raise RecordingError(f"{sources[0].path}: has no rows")
    return Head(columns, np.array(files, np.int64), unreadable, whole, odd)


def _first_rows(source: RowFile, names: Sequence[str], most: int, unreadable: dict[str, str]) -> tuple[RowBatch, bool]:
    """Return at most `most` rows, and whether there are more. Columns that cannot be read are added to `unreadable`."""
    try:
        batches = source.batches(names)
        batch = next(batches, None)
    except RecordingError as error:
        bad: dict[str, str] = {}
        for name in names:
            try:
                next(source.batches([name]), None)
            except RecordingError as problem:
                bad[name] = str(problem)
        if not bad or len(bad) == len(names):
            raise error from None
        unreadable |= bad
        return _first_rows(source, [name for name in names if name not in bad], most, unreadable)
    if batch is None:
        raise RecordingError(f"{source.path}: has no rows")
    more = len(batch) > most or next(batches, None) is not None
    source.position = 0
    columns = {name: values[:most] for name, values in batch.columns.items()}
    for name, odd in batch.odd.items():  # odd values are not numbers
        values = batch.columns[name].astype(np.float64)
        values[odd] = np.nan
        columns[name] = values[:most]
    return RowBatch(columns, 1, batch.source, batch.odd), more


@dataclass(frozen=True)
class ColumnFacts:
    """Facts on the values of a column.

    Attributes:
        kind: see `ColumnKind`.
        missing: fraction of the rows without a value.
        distinct: number of different values.
        continuous: True for numbers with decimals that have too many different values to number them.
        unique: True if no value occurs twice.
        words: True for texts of several words.
        values: examples or the range, as text.
    """

    kind: ColumnKind
    missing: float
    distinct: int
    continuous: bool
    unique: bool
    words: bool
    values: str


def facts_of(values: AnyArray) -> ColumnFacts:
    """Return the facts on a column [n]."""
    lost = is_missing(values)
    present = values[~lost]
    kinds = np.unique(present)
    kind = _kind(kinds)
    missing = float(lost.mean())
    known = max(len(present), 1)
    continuous = kind == "decimal" and len(kinds) > min(MANY, max(FEW, known // 10))
    words = kind == "text" and sum(len(str(text).split()) > 2 for text in kinds.tolist()) * 2 > len(kinds)
    shown = _shown(kind, kinds, values=present)
    if missing:
        shown = f"{shown}; {missing:.0%} empty" if kind != "empty" else shown
    return ColumnFacts(kind, missing, len(kinds), continuous, len(kinds) == len(present) > 1, words, shown)


def _kind(kinds: AnyArray) -> ColumnKind:
    """Return the kind of a column, from its different values that are not missing."""
    if not len(kinds):
        return "empty"
    if kinds.dtype.kind == "b":
        return "flag"
    if kinds.dtype.kind == "U":
        return "time" if all(TIME.fullmatch(text.strip()) for text in kinds.tolist()) else "text"
    if bool(np.isin(kinds, (0, 1)).all()):
        return "flag"
    return "whole" if bool((kinds == np.floor(kinds)).all()) else "decimal"


def _shown(kind: ColumnKind, kinds: AnyArray, values: AnyArray) -> str:
    if kind == "empty":
        return "empty"
    if kind == "time":
        return str(values[0]) + (" .." if len(kinds) > 1 else "")
    if kind == "text":
        count = SHOWN if len(kinds) <= SHOWN else 2
        first = list(dict.fromkeys(values[: 100 * count].tolist()))[:count]
        cut = [text if len(text) <= LONGEST else f"{text[: LONGEST - 2]}.." for text in first]
        return ", ".join(cut) + (f", .. ({len(kinds):,})" if len(kinds) > len(first) else "")
    if kinds.dtype.kind == "b":
        return ", ".join(str(bool(value)).lower() for value in kinds)
    if len(kinds) <= SHOWN:
        return ", ".join(_number(float(value)) for value in kinds)
    return f"{_number(float(kinds[0]))} to {_number(float(kinds[-1]))}"


def _number(value: float) -> str:
    return f"{value:.0f}" if value == np.floor(value) and abs(value) < 1e15 else f"{value:.4g}"


@dataclass(frozen=True)
class Links:
    """Pairs of consecutive rows of the same episode: `before` [m] and `after` [m].

    `last`: [n] True for rows that have no next row. `lengths`: [n] for each last row, the number of rows of its
    episode; 0 for other rows.
    """

    before: Ints
    after: Ints
    last: Bools
    lengths: Ints

    def constant(self, values: AnyArray) -> bool:
        """Return whether a column never changes within an episode."""
        return bool(len(self.before)) and bool((values[self.before] == values[self.after]).all())

    def rising(self, values: AnyArray) -> float:
        """Return the fraction of the pairs in which a column rises; 1 if there are no pairs."""
        values = ranks(values)
        pairs = values[self.after] > values[self.before]
        return float(pairs.mean()) if len(pairs) else 1.0

    def counts(self, values: AnyArray) -> bool:
        """Return whether a column rises by exactly 1 from each row to the next."""
        return values.dtype.kind in "if" and bool((values[self.after] - values[self.before] == 1).all())


def ranks(values: AnyArray) -> AnyArray:
    """Return values that sort as a column does: numbers unchanged, times in seconds, or ranks of other texts."""
    if values.dtype.kind != "U":
        return values
    try:
        return as_moments(RowBatch({"": values}, 1, ""), "")
    except RecordingError:
        return np.unique(values, return_inverse=True)[1]


def links_of(head: Head, episode: str | None, order: str | None, ends: Sequence[str]) -> Links:
    """Return the pairs of rows that follow each other in an episode.

    Without a column of the episode, an episode ends at the end of its file, where the order falls, and after end
    markers.
    """
    key = head.file
    if episode is not None:
        key = key * (len(head) + 1) + np.unique(head.columns[episode], return_inverse=True)[1]
    rows = np.argsort(key, kind="stable")
    before, after = rows[:-1], rows[1:]
    same = key[before] == key[after]
    if episode is None:
        if order is not None:
            values = ranks(head.columns[order])
            same &= ~(values[after] < values[before])
        for name in ends:
            same &= ~flags(RowBatch(head.columns, 1, ""), name)[0][before]
    last = np.ones(len(head), np.bool_)
    last[before[same]] = False
    places = np.flatnonzero(last[rows])
    lengths = np.zeros(len(head), np.int64)
    lengths[rows[places]] = np.diff(places, prepend=-1)
    return Links(before[same], after[same], last, lengths)


def depends_on(values: AnyArray, other: AnyArray) -> bool:
    """Return whether each value of `other` occurs twice or more, and always with the same value of `values`."""
    kinds, places, counts = np.unique(other, return_inverse=True, return_counts=True)
    if len(kinds) < 2 or 5 * len(kinds) > len(other) or counts.min() < 2:
        return False
    numbers = np.unique(values, return_inverse=True)[1]
    pairs = np.unique(places * (int(numbers.max()) + 1) + numbers)
    return len(pairs) == len(kinds)
