"""Readers of recorded rows: CSV, JSON lines, Parquet and Arrow files, in batches of bounded memory. Impure.

What a file declares or how it is packed changes no bound: a line has at most `LINE` bytes and a table at most `COLUMNS`
columns, and whatever is read at once takes at most `monitor.memory.MEMORY` more than the process had.
"""

from __future__ import annotations

import csv
import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any, Final, Protocol

import msgspec
import numpy as np

from monitor.arrays import AnyArray
from monitor.authoring.learning.batch import RowBatch, is_missing, typed
from monitor.errors import RecordingError
from monitor.memory import bounded

ROWS: Final = 1 << 16
"""Rows of a batch."""

CELLS: Final = 1 << 21
"""Values of a batch: of many columns, fewer rows are read at once."""

TEXT: Final = 1 << 26
"""Bytes of the text of a batch, and of one of its columns as an array, whose rows are all as wide as the widest."""

LINE: Final = 4 << 20
"""Bytes of a line of a CSV file or of JSON lines, and of a message of an MCAP file."""

COLUMNS: Final = 1 << 16
"""Columns of a table, lists and maps expanded."""

ROWS_A_BYTE: Final = 100
FREE_ROWS: Final = 1_000_000
"""A file has at most so many rows, and so many more for each of its bytes: constant columns take next to none."""

SUFFIXES: Final = (".csv", ".tsv", ".jsonl", ".ndjson", ".parquet", ".arrow", ".feather")


@dataclass(frozen=True)
class FilePosition:
    """Place between two batches of a file.

    Attributes:
        rows: rows before it.
        kinds: column -> kind of its values there, "b", "i", "f" or "U", for files without types.
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
        position: bytes read so far, for progress.
        left_out: columns that cannot be read -> what they hold; complete after `names`.
        kinds: those of `FilePosition`, after the last batch.
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
        """Return the names of the columns. RecordingError if the file cannot be read or is empty."""
        ...

    def batches(self, wanted: Sequence[str], begin: FilePosition = START) -> Iterator[RowBatch]:
        """Yield the wanted columns from a place on. RecordingError names the row that cannot be read."""
        ...


def open_rows(path: Path) -> RowFile:
    """Return the reader of a file by its suffix, or of a Minari dataset, which is a folder."""
    if path.is_dir():
        from monitor.authoring.learning.minari_rows import MinariRows  # noqa: PLC0415 - it needs this module

        return MinariRows(path)
    match path.suffix.lower():
        case ".csv" | ".tsv":
            return CsvRows(path)
        case ".jsonl" | ".ndjson":
            return JsonRows(path)
        case ".parquet" | ".arrow" | ".feather":
            from monitor.authoring.learning.arrow_rows import ArrowRows  # noqa: PLC0415 - likewise

            return ArrowRows(path)
        case _:
            raise RecordingError(f"{path}: is neither a recording of the monitor nor one of {', '.join(SUFFIXES)}")


def size_of(path: Path) -> int:
    """Return the bytes of a file, or of all files in a folder."""
    return sum(each.stat().st_size for each in _files_in(path))


def _files_in(path: Path) -> list[Path]:
    return sorted(each for each in path.rglob("*") if each.is_file()) if path.is_dir() else [path]


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal; of a folder, that of its files' names and digests."""
    if path.is_dir():
        lines = [f"{each.relative_to(path)} {digest_of(each)}" for each in _files_in(path)]
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise RecordingError(f"{path}: cannot be read: {error.strerror}") from error


def rows_at_once(columns: int) -> int:
    """Return how many rows of so many columns are read at once."""
    return max(1, min(ROWS, CELLS // max(columns, 1)))


def rows_as_wide(widths: Iterable[int]) -> int:
    """Return how many rows take `TEXT` bytes as an array of text; `widths`: the most characters in each column."""
    return max(1, TEXT // (4 * max([1, *widths])))


def no_column(source: RowFile, name: str, names: Iterable[str]) -> RecordingError:
    """Return the error of a column that is asked for and is not among `names`."""
    held = source.left_out.get(name.partition("[")[0], source.left_out.get(name))
    if held is not None:
        return RecordingError(f"{source.path}: column {name!r} cannot be read: it holds {held}")
    known = list(islice(names, 31))
    more = ", ..." if len(known) > 30 else ""
    return RecordingError(f"{source.path}: there is no column {name!r}; it has {', '.join(known[:30])}{more}")


def refuse_rows(path: Path, rows: int, size: int) -> None:
    """Refuse more rows than a file of `size` bytes may have: so its size bounds the time it takes to read."""
    if rows > FREE_ROWS + ROWS_A_BYTE * size:
        raise RecordingError(
            f"{path}: has {rows:,} rows or more in {size:,} bytes; at most {ROWS_A_BYTE:,} for each byte are read, and "
            f"{FREE_ROWS:,} more"
        )


def joined(parts: Iterator[dict[str, AnyArray]], path: Path, begin: FilePosition, most: int) -> Iterator[RowBatch]:
    """Yield batches of at least `most` rows, or of `TEXT` bytes, without the rows before a place.

    A batch ends where a part does.
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


class _Lines:
    """Lines of a file of at most `LINE` bytes each. `taken`: their characters or bytes so far."""

    def __init__(self, file: IO[Any], path: Path) -> None:
        self._file, self._path = file, path
        self.number = self.taken = 0

    def __iter__(self) -> Iterator[Any]:
        while line := self._file.readline(LINE):
            self.number += 1
            self.taken += len(line)
            if len(line) >= LINE and line[-1:] not in ("\n", b"\n"):
                raise RecordingError(f"{self._path}, line {self.number}: is longer than {LINE >> 20} MiB")
            yield line


def _batches(
    rows: Iterator[Sequence[object]],
    wanted: Sequence[str],
    source: CsvRows | RecordRows,
    begin: FilePosition,
    typed_as: Callable[[Sequence[object], str | None], AnyArray | int] = typed,
) -> Iterator[RowBatch]:
    """Yield the values of the wanted columns, from a place on; a column's type is inferred from its first batch."""
    source.kinds = kinds = dict(begin.kinds)
    rows, first = islice(rows, begin.rows, None), 1 + begin.rows
    most = rows_at_once(len(wanted))
    parts: Iterator[dict[str, tuple[object, ...]]] = iter(())
    while True:
        with bounded(source.path):
            part = next(parts, None)
            if part is None:
                taken, before = [], source.taken
                for row in rows:
                    taken.append(row)
                    if len(taken) >= most or source.taken - before >= TEXT:
                        break
                if not taken:
                    return
                parts = _narrow(dict(zip(wanted, zip(*taken, strict=True), strict=True)), len(taken))
                continue
            batch = _batch(part, kinds, first, source.path, typed_as)
        first += len(batch)
        yield batch


def _narrow(fields: dict[str, tuple[object, ...]], rows: int) -> Iterator[dict[str, tuple[object, ...]]]:
    """Yield the rows in parts whose text is no larger than `TEXT` as arrays."""
    widths = [max((len(value) for value in values if isinstance(value, str)), default=0) for values in fields.values()]
    most = rows_as_wide(widths)
    for at in range(0, rows, most):
        yield {name: values[at : at + most] for name, values in fields.items()}


class CsvRows:
    """CSV file with a header, in UTF-8; fields are separated by comma, semicolon, tab or `|`.

    Where the separator is no comma, numbers may have a decimal comma.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.position = self.taken = 0
        self.kinds: Mapping[str, str] = START.kinds
        self.left_out: Mapping[str, str] = {}

    def names(self) -> tuple[str, ...]:
        """Return the header."""
        with self._opened() as (names, _, _):
            return names

    def batches(self, wanted: Sequence[str], begin: FilePosition = START) -> Iterator[RowBatch]:
        """Yield the wanted columns; a column's type is inferred from its first batch."""
        with self._opened() as (names, rows, separator):
            for name in wanted:
                if name not in names:
                    raise no_column(self, name, names)
            places = [names.index(name) for name in wanted]
            values = ([row[place] for place in places] for row in rows)
            typed_as = typed if separator == "," else typed_with_commas
            yield from _batches(values, wanted, self, begin, typed_as)

    @contextmanager
    def _opened(self) -> Iterator[tuple[tuple[str, ...], Iterator[list[str]], str]]:
        """Open the file; give its header, its rows, and the separator. RecordingError names the row that is bad."""
        number = 0
        try:
            with self.path.open(encoding="utf-8-sig", newline="") as file:
                separator = max(",;\t|", key=file.readline(LINE).count)
                file.seek(0)
                lines = _Lines(file, self.path)
                reader = csv.reader(lines, delimiter=separator)
                names = self._header(next(reader, []))

                def rows() -> Iterator[list[str]]:
                    nonlocal number
                    for row in reader:
                        if not row:
                            continue
                        number += 1
                        if len(row) != len(names):
                            where = f"{self.path}, row {number}"
                            raise RecordingError(f"{where}: {len(row)} fields for {len(names)} columns")
                        self.position = self.taken = lines.taken
                        yield row

                yield names, rows(), separator
        except UnicodeDecodeError as error:
            raise RecordingError(
                f"{self.path}: is not UTF-8 text ({error.reason}); convert it, such as with iconv"
            ) from error
        except csv.Error as error:
            raise RecordingError(f"{self.path}, after row {number}: not a CSV file ({error})") from error
        except OSError as error:
            raise RecordingError(f"{self.path}: cannot be read: {error.strerror}") from error

    def _header(self, fields: Sequence[str]) -> tuple[str, ...]:
        names = tuple(name.strip() for name in fields)
        if not names:
            raise RecordingError(f"{self.path}: is empty; a line with the names of the columns is needed")
        refuse_names(names, self.path)
        numbers = [name for name in names if name.replace(".", "", 1).replace("-", "", 1).isdigit()]
        if len(numbers) == len(names):
            raise RecordingError(f"{self.path}: the first line has numbers only; put the names of the columns there")
        return names


def refuse_names(names: Sequence[str], path: Path) -> None:
    """Refuse too many columns, and two of the same name."""
    if len(names) > COLUMNS:
        raise RecordingError(f"{path}: has {len(names):,} columns; at most {COLUMNS:,} are read")
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise RecordingError(f"{path}: column {twice[0]!r} is named twice")


def typed_with_commas(values: Sequence[object], known: str | None) -> AnyArray | int:
    """Return values of a CSV file that is not separated by commas: as `typed`, but numbers may have a decimal comma.

    Text stays text if two different ones would become the same number, as the names of cells "3,4" and "3,40".
    """
    found = typed(values, known)
    if known == "U" or (not isinstance(found, int) and found.dtype.kind != "U"):
        return found
    texts = [str(value) for value in values]
    if not any("," in text for text in texts) or any("." in text and "," in text for text in texts):
        return found
    numbers = typed([text.replace(",", ".") for text in texts], known)
    if isinstance(numbers, int) or numbers.dtype.kind not in "if":
        return found
    if known is not None:
        return numbers
    different = {text.strip() for text in texts if text}
    return numbers if len(np.unique(numbers[np.isfinite(numbers)])) == len(different) else found


class RecordRows:
    """Rows that come as records, one map each; lists become columns `name[0]`, maps `name.key`.

    `taken`: bytes of the records so far.
    """

    path: Path
    position: int = 0
    taken: int = 0
    kinds: Mapping[str, str] = MappingProxyType({})
    left_out: Mapping[str, str] = MappingProxyType({})

    def records(self) -> Iterator[Mapping[str, Any]]:
        """Yield the records, flat."""
        raise NotImplementedError

    def names(self) -> tuple[str, ...]:
        """Return the names in the first batch of records, in order of first sight."""
        found: dict[str, None] = {}
        left_out: dict[str, str] = {}
        with bounded(self.path):
            for record in islice(self.records(), ROWS):
                for name, value in record.items():
                    if isinstance(value, list | dict):
                        left_out[name.partition("[")[0]] = "lists of lists or maps"
                    else:
                        found[name] = None
                if len(found) > COLUMNS:
                    refuse_names(list(found), self.path)
        if not found:
            raise EmptyFileError(f"{self.path}: is empty")
        self.left_out = left_out
        return tuple(name for name in found if name.partition("[")[0] not in left_out)

    def batches(self, wanted: Sequence[str], begin: FilePosition = START) -> Iterator[RowBatch]:
        """Yield the wanted columns; a column's type is inferred from its first batch."""
        rows = ([record.get(name) for name in wanted] for record in self.records())
        yield from _batches(rows, wanted, self, begin)


class JsonRows(RecordRows):
    """File of JSON lines, one map a line."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def records(self) -> Iterator[Mapping[str, Any]]:
        """Yield the maps, flat. RecordingError names the line that is not one."""
        decode = msgspec.json.Decoder(dict[str, Any]).decode
        self.taken = 0
        try:
            with self.path.open("rb") as file:
                lines = _Lines(file, self.path)
                for line in lines:
                    if not line.strip():
                        continue
                    try:
                        record = flat(decode(line))
                    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                        raise RecordingError(f"{self.path}, line {lines.number}: not a JSON map ({error})") from error
                    self.position = self.taken = lines.taken
                    yield record
        except OSError as error:
            raise RecordingError(f"{self.path}: cannot be read: {error.strerror}") from error


def flat(record: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Return a record without lists and maps; a `msgspec.DecodeError` if two values get the same name.

    >>> flat({"state": [1, 2], "next": {"done": False}})
    {'state[0]': 1, 'state[1]': 2, 'next.done': False}
    """
    found: dict[str, Any] = {}
    count = 0
    for key, value in record.items():
        if isinstance(value, Mapping):
            parts = flat(value, f"{before}{key}.")
            found |= parts
            count += len(parts)
        elif isinstance(value, list | tuple):
            found |= {f"{before}{key}[{i}]": entry for i, entry in enumerate(value)}
            count += len(value)
        else:
            found[f"{before}{key}"] = value
            count += 1
    if len(found) != count:
        raise msgspec.DecodeError("two values get the same name, as those of {'a.b': 1, 'a': {'b': 2}} do")
    return found


def _batch(
    fields: Mapping[str, Sequence[object]],
    kinds: dict[str, str],
    first: int,
    path: Path,
    typed_as: Callable[[Sequence[object], str | None], AnyArray | int],
) -> RowBatch:
    columns: dict[str, AnyArray] = {}
    for name, values in fields.items():
        found = typed_as(values, kinds.get(name))
        if isinstance(found, int):
            is_now = {"b": "true or false", "i": "numbers", "f": "numbers", "U": "text"}
            usual = is_now[kinds.get(name, "f")]
            raise RecordingError(
                f"{path}, row {first + found}: column {name!r} holds {str(values[found])!r:.80}, others hold {usual}; "
                "make them alike"
            )
        if not is_missing(found).all():  # else its kind is not known yet
            kinds[name] = found.dtype.kind
        columns[name] = found
    return RowBatch(columns, first, str(path))


def plain(values: AnyArray) -> AnyArray:
    """Return values as a column of a batch has them: int64, float64, Booleans or text."""
    match values.dtype.kind:
        case "b" | "U":
            return values
        case "i":
            return values.astype(np.int64)
        case "u" if values.dtype.itemsize < 8 or not (values >> np.uint64(63)).any():
            return values.astype(np.int64)
        case _:
            return values.astype(np.float64)
