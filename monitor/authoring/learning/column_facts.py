"""The first rows of recordings, and what their columns hold: kind, range, and what changes from row to row. Impure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

import numpy as np

from monitor.arrays import AnyArray, Bools, Ints
from monitor.authoring.learning.abstraction import FEW, MANY
from monitor.authoring.learning.batch import TIME, RowBatch, as_moments, concatenated, flags, is_missing
from monitor.authoring.learning.row_files import RowFile
from monitor.errors import RecordingError

Kind = Literal["flag", "whole", "decimal", "text", "time", "empty"]
"""`flag`: true and false, or 0 and 1. `whole`: whole numbers. `time`: texts, each a time as ISO 8601 has it."""

ROWS: Final = 100_000
"""Rows that are looked at, in equal parts of `FILES` files at most."""

FILES: Final = 20

SHOWN: Final = 4
"""Values of a column that are shown one by one; of more, the range."""

LONGEST: Final = 14
"""Characters of a shown text."""


@dataclass(frozen=True)
class Head:
    """First rows of recordings.

    Attributes:
        columns: name -> values [n], of the columns that can be read.
        file: [n] number of the file of each row.
        unreadable: other columns -> why they cannot be read.
        whole: these are all rows.
    """

    columns: Mapping[str, AnyArray]
    file: Ints
    unreadable: Mapping[str, str] = field(default_factory=dict)
    whole: bool = True

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.file)

    @property
    def looked_at(self) -> str:
        """These rows, in words."""
        return f"the {len(self):,} rows" if self.whole else f"the first {len(self):,} rows"


def head_of(sources: Sequence[RowFile]) -> Head:
    """Return the first rows of recordings, with the columns of the first one.

    A column that cannot be read in one of them is not among `columns`; where a file has none, values are missing.
    Raises RecordingError: there are no rows, or they cannot be read at all.
    """
    names = sources[0].names()
    unreadable = dict(sources[0].left_out)
    columns: dict[str, AnyArray] = {}
    files: list[int] = []
    looked_at = sources[:FILES]
    most, whole = max(1, ROWS // len(looked_at)), len(looked_at) == len(sources)
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
    if not files:
        raise RecordingError(f"{sources[0].path}: has no rows")
    return Head(columns, np.array(files, np.int64), unreadable, whole)


def _first_rows(source: RowFile, names: Sequence[str], most: int, unreadable: dict[str, str]) -> tuple[RowBatch, bool]:
    """Return at most so many rows, and whether there are more; columns that cannot be read go to `unreadable`."""
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
    for name, odd in batch.odd.items():  # values of another kind than the others: no numbers
        values = batch.columns[name].astype(np.float64)
        values[odd] = np.nan
        columns[name] = values[:most]
    return RowBatch(columns, 1, batch.source), more


@dataclass(frozen=True)
class ColumnFacts:
    """What a column holds.

    Attributes:
        kind: see `Kind`.
        missing: fraction of the rows without a value.
        distinct: number of different values.
        continuous: numbers with decimals, too many different ones to number them.
        unique: no value is there twice.
        words: texts of several words.
        values: examples, or the range, in words.
    """

    kind: Kind
    missing: float
    distinct: int
    continuous: bool
    unique: bool
    words: bool
    values: str


def facts_of(values: AnyArray) -> ColumnFacts:
    """Return what a column [n] holds."""
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


def _kind(kinds: AnyArray) -> Kind:
    """Return the kind of the different values of a column, those that are not missing."""
    if not len(kinds):
        return "empty"
    if kinds.dtype.kind == "b":
        return "flag"
    if kinds.dtype.kind == "U":
        return "time" if all(TIME.fullmatch(text.strip()) for text in kinds.tolist()) else "text"
    if bool(np.isin(kinds, (0, 1)).all()):
        return "flag"
    return "whole" if bool((kinds == np.floor(kinds)).all()) else "decimal"


def _shown(kind: Kind, kinds: AnyArray, values: AnyArray) -> str:
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
    """Rows that follow each other: `before` [m] and `after` [m], of the same episode. `last`: [n] it has no next.

    `lengths`: [n] number of rows of the episode that a last row ends; 0 elsewhere.
    """

    before: Ints
    after: Ints
    last: Bools
    lengths: Ints

    def constant(self, values: AnyArray) -> bool:
        """Return whether a column never changes within an episode."""
        return bool(len(self.before)) and bool((values[self.before] == values[self.after]).all())

    def rising(self, values: AnyArray) -> float:
        """Return in which fraction of the pairs a column rises; 1 without pairs."""
        values = ranks(values)
        pairs = values[self.after] > values[self.before]
        return float(pairs.mean()) if len(pairs) else 1.0

    def counts(self, values: AnyArray) -> bool:
        """Return whether a column rises by 1 from each row to the next."""
        return values.dtype.kind in "if" and bool((values[self.after] - values[self.before] == 1).all())


def ranks(values: AnyArray) -> AnyArray:
    """Return values whose order is that of a column: of times, seconds; of other texts, numbers in their order."""
    if values.dtype.kind != "U":
        return values
    try:
        return as_moments(RowBatch({"": values}, 1, ""), "")
    except RecordingError:
        return np.unique(values, return_inverse=True)[1]


def links_of(head: Head, episode: str | None, order: str | None, ends: Sequence[str]) -> Links:
    """Return which rows follow each other.

    Without a column of the episode, an episode ends with its file, where the order falls, and after end markers.
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
    """Return whether each value of `other` comes with one value of `values` alone, and has been seen twice or more."""
    kinds, places, counts = np.unique(other, return_inverse=True, return_counts=True)
    if len(kinds) < 2 or 5 * len(kinds) > len(other) or counts.min() < 2:
        return False
    numbers = np.unique(values, return_inverse=True)[1]
    pairs = np.unique(places * (int(numbers.max()) + 1) + numbers)
    return len(pairs) == len(kinds)
