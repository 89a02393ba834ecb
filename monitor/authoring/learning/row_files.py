"""Files of recorded rows: common parts of their readers, and the choice of the reader of a file. Impure.

Limits do not depend on declarations in a file or on its compression. A line has at most `LINE` bytes, and a table has
at most `COLUMNS` columns. Reading a batch takes at most `monitor.memory.MEMORY` more memory than the process had.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np

from monitor.arrays import AnyArray
from monitor.authoring.learning.batch import RowBatch
from monitor.errors import MonitorError, RecordingError, to_install
from monitor.memory import bounded

ROWS: Final = 1 << 16
"""Number of rows of a batch."""

CELLS: Final = 1 << 21
"""Largest number of values of a batch. If there are many columns, a batch has fewer rows."""

TEXT: Final = 1 << 26
"""Largest size, in bytes, of the text of a batch. Also the largest size of a text column as an array, in which all rows
are as wide as the widest."""

LINE: Final = 4 << 20
"""Largest number of bytes of a line of a CSV file or of JSON lines, and of a message of an MCAP file."""

COLUMNS: Final = 1 << 16
"""Largest number of columns of a table, with lists and maps expanded."""

ROWS_A_BYTE: Final = 100
FREE_ROWS: Final = 1_000_000
"""A file has at most this number of rows, plus `ROWS_A_BYTE` rows for each byte of the file.

`FREE_ROWS` is large, because constant columns take few bytes, so that a small file may have many rows.
"""

TEXTS: Final = (".csv", ".tsv", ".jsonl", ".ndjson")
PACKED: Final = (".gz", ".zst")
SUFFIXES: Final = (*TEXTS, ".parquet", ".arrow", ".feather")

PART: Final = re.compile(r"(.*-)(\d{1,9})(-of-\d+)(\..*)", re.DOTALL)
"""Name of one of several files that together are one table, as in datasets of Hugging Face."""


@dataclass(frozen=True)
class FilePosition:
    """Position between two batches of a file.

    Attributes:
        rows: number of rows before the position.
        kinds: column -> kind of its values so far, "b", "i", "f" or "U", for files without types.
    """

    rows: int = 0
    kinds: Mapping[str, str] = field(default_factory=dict)


START: Final = FilePosition()


class EmptyFileError(RecordingError):
    """A file without rows."""


class RowFile(Protocol):
    """File of recorded rows.

    Attributes:
        path: the file.
        position: number of bytes read so far, for progress.
        left_out: columns that cannot be read -> what they contain; complete after a call of `names`.
        kinds: as in `FilePosition`, after the last batch.
    """

    path: Path
    position: int

    @property
    def left_out(self) -> Mapping[str, str]:
        """See above."""
        ...

    @property
    def kinds(self) -> Mapping[str, str]:
        """See above."""
        ...

    def names(self) -> tuple[str, ...]:
        """Return the names of the columns. Raises RecordingError if the file cannot be read or is empty."""
        ...

    def batches(self, wanted: Sequence[str], begin: FilePosition = START) -> Iterator[RowBatch]:
        """Yield the wanted columns from a position on.

        Raises RecordingError, which names the row that cannot be read.
        """
        ...


class RowsOf:
    """Base of readers that change the rows of another reader. A subclass overrides what it changes."""

    def __init__(self, rows: RowFile) -> None:
        self.path = rows.path
        self._rows = rows

    @property
    def position(self) -> int:
        """Number of bytes read so far."""
        return self._rows.position

    @position.setter
    def position(self, position: int) -> None:
        self._rows.position = position

    @property
    def dropped(self) -> int:
        """Number of messages of a recording that are not steps, or arrived twice or late."""
        return int(getattr(self._rows, "dropped", 0))

    @property
    def left_out(self) -> Mapping[str, str]:
        """Columns that cannot be read."""
        return self._rows.left_out

    @property
    def kinds(self) -> Mapping[str, str]:
        """Kinds of the columns."""
        return self._rows.kinds

    def names(self) -> tuple[str, ...]:
        """Return the names of the columns."""
        return self._rows.names()


class FileRows:
    """Batches of one file.

    The first batch can be read ahead. `wanted`: names of columns. `begin`: position to begin at.
    """

    def __init__(self, source: RowFile, wanted: Sequence[str], begin: FilePosition = START) -> None:
        self.source, self._wanted, self.begin = source, wanted, begin
        self._first: RowBatch | None = None
        self._rest: Iterator[RowBatch] | None = None

    def first(self) -> RowBatch | None:
        """Return the first batch without consuming it.

        Return None if there is none or it cannot be read. Iteration then raises the error.
        """
        if self._first is None:
            self._rest = self.source.batches(self._wanted, self.begin)
            try:
                self._first = next(self._rest, None)
            except MonitorError:
                self._rest = None
        return self._first

    def __iter__(self) -> Iterator[RowBatch]:
        first, self._first = self._first, None
        if first is not None:
            yield first
        yield from self._rest or self.source.batches(self._wanted, self.begin)


def open_rows(path: Path) -> RowFile:
    """Return the reader of a file by its suffix, or of a Minari dataset, which is a folder."""
    if path.is_dir():
        from monitor.authoring.learning.minari_rows import MinariRows  # noqa: PLC0415 - it needs this module

        return MinariRows(path)
    if path.suffix.lower() == ".zst":
        arrow(path)
    match row_suffix(path):
        case ".csv" | ".tsv":
            from monitor.authoring.learning.csv_rows import CsvRows  # noqa: PLC0415 - likewise

            return CsvRows(path)
        case ".jsonl" | ".ndjson":
            from monitor.authoring.learning.mapping_rows import JsonRows  # noqa: PLC0415 - likewise

            return JsonRows(path)
        case ".parquet" | ".arrow" | ".feather":
            from monitor.authoring.learning.arrow_rows import ArrowRows  # noqa: PLC0415 - likewise

            return ArrowRows(path)
        case _:
            raise RecordingError(
                f"{path}: is neither a recording of the monitor nor one of {', '.join(SUFFIXES)}; text may be packed, "
                f"with {' or '.join(PACKED)} after that"
            )


def goes_on(source: RowFile, after: RowFile | None) -> bool:
    """Return whether the second file is the next part after the first, as in `train-00001-of-00002`."""
    one, other = (None if each is None else PART.fullmatch(str(each.path)) for each in (source, after))
    if one is None or other is None:
        return False
    return one.group(1, 3, 4) == other.group(1, 3, 4) and int(one[2]) + 1 == int(other[2])


def size_of(path: Path) -> int:
    """Return the number of bytes of a file, or of all files in a folder."""
    return sum(each.stat().st_size for each in _files_in(path))


def _files_in(path: Path) -> list[Path]:
    return sorted(each for each in path.rglob("*") if each.is_file()) if path.is_dir() else [path]


def digest_of(path: Path) -> str:
    """Return the hexadecimal SHA-256 of a file. For a folder, hash the names and digests of its files."""
    if path.is_dir():
        lines = [f"{each.relative_to(path)} {digest_of(each)}" for each in _files_in(path)]
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise RecordingError(f"{path}: cannot be read: {error.strerror}") from error


def rows_at_once(columns: int) -> int:
    """Return the number of rows that are read at once from `columns` columns."""
    return max(1, min(ROWS, CELLS // max(columns, 1)))


def rows_as_wide(widths: Iterable[int]) -> int:
    """Return the number of rows that take `TEXT` bytes as an array of text.

    `widths`: largest number of characters in each column.
    """
    return max(1, TEXT // (4 * max([1, *widths])))


def no_column(source: RowFile, name: str, names: Iterable[str]) -> RecordingError:
    """Return the error for a wanted column that is not among `names`."""
    held = source.left_out.get(name.partition("[")[0], source.left_out.get(name))
    if held is not None:
        return RecordingError(f"{source.path}: column {name!r} cannot be read: it holds {held}")
    known = list(islice(names, 31))
    more = ", ..." if len(known) > 30 else ""
    return RecordingError(f"{source.path}: there is no column {name!r}; it has {', '.join(known[:30])}{more}")


def refuse_rows(path: Path, rows: int, size: int) -> None:
    """Refuse more rows than a file of `size` bytes may have, so that the size limits the time for reading."""
    if rows > FREE_ROWS + ROWS_A_BYTE * size:
        raise RecordingError(
            f"{path}: has {rows:,} rows or more in {size:,} bytes; at most {ROWS_A_BYTE:,} for each byte are read, and "
            f"{FREE_ROWS:,} more"
        )


def joined(parts: Iterator[dict[str, AnyArray]], path: Path, begin: FilePosition, most: int) -> Iterator[RowBatch]:
    """Yield batches of at least `most` rows, or of `TEXT` bytes, without the rows before a position.

    A batch ends at the end of a part.
    """
    held: list[dict[str, AnyArray]] = []
    first, rows, size, skip = 1 + begin.rows, 0, 0, begin.rows
    while True:
        with bounded(path):
            part = next(parts, None)
            if part is not None:
                length = len(next(iter(part.values())))
                dropped = min(skip, length)
                skip -= dropped
                if length > dropped:
                    held.append({name: values[dropped:] for name, values in part.items()})
                    rows += length - dropped
                    size += sum(values.nbytes for values in held[-1].values())
            if rows >= most or size >= TEXT or (part is None and rows):
                columns = {name: np.concatenate([each[name] for each in held]) for name in held[0]}
                batch = RowBatch(columns, first, str(path))
                held, first, rows, size = [], first + rows, 0, 0
            else:
                batch = None
        if batch is not None:
            yield batch
        if part is None:
            return


def arrow(path: Path) -> Any:  # noqa: ANN401 - pyarrow is optional
    """Return pyarrow. Raises RecordingError if it is not installed. Call this first where memory is not `bounded`."""
    try:
        import pyarrow as pa  # noqa: PLC0415 - an optional extra
    except ImportError as error:
        raise RecordingError(f"{path}: needs pyarrow: {to_install('learn')}") from error
    pa.allocate_buffer(1)  # its allocator reserves address space once, and this must not count as memory of a file
    return pa


def row_suffix(path: Path) -> str:
    """Return the suffix for the format of the rows, in lower case, without the suffix of a packed file.

    >>> row_suffix(Path("log.CSV.gz"))
    '.csv'
    """
    last, inner = path.suffix.lower(), Path(path.stem).suffix.lower()
    return inner if last in PACKED and inner in TEXTS else last


def refuse_names(names: Sequence[str], path: Path) -> None:
    """Refuse too many columns, or two columns with the same name."""
    if len(names) > COLUMNS:
        raise RecordingError(f"{path}: has {len(names):,} columns; at most {COLUMNS:,} are read")
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise RecordingError(f"{path}: column {twice[0]!r} is named twice")


def plain(values: AnyArray) -> AnyArray:
    """Return values in the types of a batch: int64, float64, Booleans or text."""
    match values.dtype.kind:
        case "b" | "U":
            return values
        case "i":
            return values.astype(np.int64)
        case "u" if values.dtype.itemsize < 8 or not (values >> np.uint64(63)).any():
            return values.astype(np.int64)
        case _:
            return values.astype(np.float64)
