"""Readers of recorded rows: CSV, JSON lines, Parquet and Arrow files, in batches of constant memory. Impure."""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from types import MappingProxyType
from typing import IO, TYPE_CHECKING, Any, Final, Protocol

import msgspec
import numpy as np

from monitor.arrays import AnyArray
from monitor.errors import RecordingError, to_install
from monitor.learning.batch import Batch, is_missing, typed

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "ROWS",
    "START",
    "ArrowRows",
    "CsvRows",
    "EmptyFileError",
    "JsonRows",
    "Place",
    "RecordRows",
    "RowFile",
    "digest_of",
    "flat",
    "open_rows",
    "plain",
    "size_of",
]

ROWS: Final = 1 << 16
"""Rows of a batch."""

SUFFIXES: Final = (".csv", ".tsv", ".jsonl", ".ndjson", ".parquet", ".arrow", ".feather")


@dataclass(frozen=True)
class Place:
    """Place between two batches of a file.

    Attributes:
        rows: rows before it.
        kinds: column -> kind of its values there, "b", "i", "f" or "U", for files without types.
    """

    rows: int = 0
    kinds: Mapping[str, str] = field(default_factory=dict)


START: Final = Place()


class EmptyFileError(RecordingError):
    """A file without rows."""


class RowFile(Protocol):
    """File of recorded rows.

    Attributes:
        path: the file.
        position: bytes read so far, for progress.
        kinds: those of `Place`, after the last batch.
    """

    path: Path
    position: int

    @property
    def kinds(self) -> Mapping[str, str]:
        """See above."""
        ...

    def names(self) -> tuple[str, ...]:
        """Return the names of the columns. RecordingError if the file cannot be read or is empty."""
        ...

    def batches(self, wanted: Sequence[str], begin: Place = START) -> Iterator[Batch]:
        """Yield the wanted columns from a place on. RecordingError names the row that cannot be read."""
        ...


def open_rows(path: Path) -> RowFile:
    """Return the reader of a file by its suffix, or of a Minari dataset, which is a folder."""
    if path.is_dir():
        from monitor.learning.minari_rows import MinariRows  # noqa: PLC0415 - it needs this module

        return MinariRows(path)
    match path.suffix.lower():
        case ".csv" | ".tsv":
            return CsvRows(path)
        case ".jsonl" | ".ndjson":
            return JsonRows(path)
        case ".parquet" | ".arrow" | ".feather":
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


class CsvRows:
    """CSV file with a header, in UTF-8; fields are separated by comma, semicolon, tab or `|`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.position = 0
        self.kinds: dict[str, str] = {}

    def names(self) -> tuple[str, ...]:
        """Return the header."""
        with self._text() as file:
            return self._header(self._reader(file))

    def batches(self, wanted: Sequence[str], begin: Place = START) -> Iterator[Batch]:
        """Yield the wanted columns; a column's type is inferred from its first batch."""
        self.kinds = dict(begin.kinds)
        with self._text() as file:
            reader = self._reader(file)
            names = self._header(reader)
            first = 1
            while first <= begin.rows and (rows := self._rows(reader, None, first, begin.rows + 1 - first)):
                first += len(rows)
            while rows := self._rows(reader, len(names), first):
                fields = {name: [row[names.index(name)] for row in rows] for name in wanted}
                batch = _batch(fields, self.kinds, first, self.path)
                first += len(rows)
                self.position = file.buffer.tell()  # type: ignore[attr-defined]
                yield batch

    def _text(self) -> IO[str]:
        try:
            return self.path.open(encoding="utf-8-sig", newline="")
        except OSError as error:
            raise RecordingError(f"{self.path}: cannot be read: {error.strerror}") from error

    def _reader(self, file: IO[str]) -> Iterator[list[str]]:
        try:
            line = file.readline()
        except UnicodeDecodeError as error:
            raise self._not_text(error) from error
        separator = max(",;\t|", key=line.count)
        return csv.reader(chain([line], file), delimiter=separator)

    def _header(self, reader: Iterator[list[str]]) -> tuple[str, ...]:
        names = tuple(name.strip() for name in next(iter(self._rows(reader, None, 0, 1)), []))
        if not names:
            raise RecordingError(f"{self.path}: is empty; a line with the names of the columns is needed")
        twice = [name for name in names if names.count(name) > 1]
        if twice:
            raise RecordingError(f"{self.path}: column {twice[0]!r} is named twice")
        numbers = [name for name in names if name.replace(".", "", 1).replace("-", "", 1).isdigit()]
        if len(numbers) == len(names):
            raise RecordingError(f"{self.path}: the first line has numbers only; put the names of the columns there")
        return names

    def _rows(
        self, reader: Iterator[list[str]], width: int | None, first: int, most: int | None = None
    ) -> list[list[str]]:
        """Return the next rows that are not blank, at most `most` and `ROWS`; each of `width` fields."""
        try:
            rows = list(islice((row for row in reader if row), ROWS if most is None else min(most, ROWS)))
        except UnicodeDecodeError as error:
            raise self._not_text(error) from error
        except csv.Error as error:
            raise RecordingError(f"{self.path}, after row {first}: not a CSV file ({error})") from error
        for i, row in enumerate(rows if width is not None else ()):
            if len(row) != width:
                raise RecordingError(f"{self.path}, row {first + i}: {len(row)} fields for {width} columns")
        return rows

    def _not_text(self, error: UnicodeDecodeError) -> RecordingError:
        return RecordingError(f"{self.path}: is not UTF-8 text ({error.reason}); convert it, such as with iconv")


class RecordRows:
    """Rows that come as records, one map each; lists become columns `name[0]`, maps `name.key`."""

    path: Path
    position: int = 0
    kinds: Mapping[str, str] = MappingProxyType({})

    def records(self) -> Iterator[Mapping[str, Any]]:
        """Yield the records, flat."""
        raise NotImplementedError

    def names(self) -> tuple[str, ...]:
        """Return the names in the first batch of records, in order of first sight."""
        records = islice(self.records(), ROWS)
        found = tuple(dict.fromkeys(name for record in records for name in record))
        if not found:
            raise EmptyFileError(f"{self.path}: is empty")
        return found

    def batches(self, wanted: Sequence[str], begin: Place = START) -> Iterator[Batch]:
        """Yield the wanted columns; a column's type is inferred from its first batch."""
        self.kinds = kinds = dict(begin.kinds)
        records, first = islice(self.records(), begin.rows, None), 1 + begin.rows
        while rows := list(islice(records, ROWS)):
            batch = _batch({name: [row.get(name) for row in rows] for name in wanted}, kinds, first, self.path)
            first += len(rows)
            yield batch


class JsonRows(RecordRows):
    """File of JSON lines, one map a line."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.position = 0

    def records(self) -> Iterator[Mapping[str, Any]]:
        """Yield the maps, flat. RecordingError names the line that is not one."""
        decode = msgspec.json.Decoder(dict[str, Any]).decode
        try:
            with self.path.open("rb") as file:
                for number, line in enumerate(file, 1):
                    if not line.strip():
                        continue
                    try:
                        yield flat(decode(line))
                    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                        raise RecordingError(f"{self.path}, line {number}: not a JSON map ({error})") from error
                    self.position = file.tell() if number % 1024 == 0 else self.position
        except OSError as error:
            raise RecordingError(f"{self.path}: cannot be read: {error.strerror}") from error


def flat(record: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Return a record without lists and maps.

    >>> flat({"state": [1, 2], "next": {"done": False}})
    {'state[0]': 1, 'state[1]': 2, 'next.done': False}
    """
    found: dict[str, Any] = {}
    for key, value in record.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{before}{key}.")
        elif isinstance(value, list | tuple):
            found |= {f"{before}{key}[{i}]": entry for i, entry in enumerate(value)}
        else:
            found[f"{before}{key}"] = value
    return found


def _batch(fields: Mapping[str, Sequence[object]], kinds: dict[str, str], first: int, path: Path) -> Batch:
    columns: dict[str, AnyArray] = {}
    for name, values in fields.items():
        found = typed(values, kinds.get(name))
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
    return Batch(columns, first, str(path))


class ArrowRows:
    """Parquet or Arrow file, read with pyarrow (extra `learn`)."""

    def __init__(self, path: Path) -> None:
        try:
            import pyarrow as pa  # noqa: PLC0415 - an optional extra
        except ImportError as error:
            raise RecordingError(f"{path}: needs pyarrow: {to_install('learn')}") from error
        self._arrow = pa
        self.path = path
        self.position = 0
        self.kinds: Mapping[str, str] = START.kinds  # the file has types

    def names(self) -> tuple[str, ...]:
        """Return the columns; lists are expanded as in the first batch."""
        with self._readable():
            batch = next(self._record_batches(), None)
        if batch is None or batch.num_rows == 0:
            raise RecordingError(f"{self.path}: is empty")
        return tuple(self._columns(batch.slice(0, 1), self._schema(batch)))

    def batches(self, wanted: Sequence[str], begin: Place = START) -> Iterator[Batch]:
        """Yield the wanted columns."""
        bases = list(dict.fromkeys(name.rpartition("[")[0] or name for name in wanted))
        first = 1
        with self._readable():
            for whole in self._record_batches():
                batch = whole.slice(min(max(begin.rows + 1 - first, 0), whole.num_rows))
                first += whole.num_rows - batch.num_rows
                if not batch.num_rows:
                    continue
                present = [name for name in self._schema(batch) if name in wanted or name in bases]
                columns = self._columns(batch, present)
                missing = [name for name in wanted if name not in columns]
                if missing:
                    raise RecordingError(f"{self.path}: there is no column {missing[0]!r}; it has {', '.join(columns)}")
                yield Batch({name: columns[name] for name in wanted}, first, str(self.path))
                first += batch.num_rows

    def _record_batches(self) -> Iterator[pa.RecordBatch]:
        if self.path.suffix.lower() == ".parquet":
            from pyarrow import parquet  # noqa: PLC0415 - likewise

            with parquet.ParquetFile(self.path) as file:
                for batch in file.iter_batches(ROWS):
                    yield batch
                    self.position += int(self.path.stat().st_size * batch.num_rows / max(file.metadata.num_rows, 1))
            return
        from pyarrow import ipc  # noqa: PLC0415 - likewise

        with self._arrow.memory_map(str(self.path)) as source, ipc.open_file(source) as file:
            for i in range(file.num_record_batches):
                yield file.get_batch(i)

    def _schema(self, batch: pa.RecordBatch) -> list[str]:
        return list(batch.schema.names)

    def _columns(self, batch: pa.RecordBatch, names: Sequence[str]) -> dict[str, AnyArray]:
        found: dict[str, AnyArray] = {}
        for name in names:
            found |= self._expanded(name, batch.column(name))
        return found

    def _expanded(self, name: str, column: Any) -> dict[str, AnyArray]:  # noqa: ANN401 - pyarrow is optional
        kinds = self._arrow.types
        if kinds.is_list(column.type) or kinds.is_large_list(column.type) or kinds.is_fixed_size_list(column.type):
            rows = column.to_pylist()
            widths = {len(row) if row is not None else 0 for row in rows}
            if len(widths) > 1:
                raise RecordingError(f"{self.path}: the lists of column {name!r} differ in length")
            table = np.array(rows)
            if table.ndim != 2 or table.dtype.kind not in "biufU":
                return {}
            return {f"{name}[{i}]": plain(table[:, i]) for i in range(table.shape[1])}
        if kinds.is_dictionary(column.type):
            column = column.dictionary_decode()
        if kinds.is_string(column.type) or kinds.is_large_string(column.type):
            return {name: np.array([text or "" for text in column.to_pylist()], dtype=np.str_)}
        if kinds.is_temporal(column.type):
            column = column.cast(self._arrow.int64())
        if not (kinds.is_integer(column.type) or kinds.is_floating(column.type) or kinds.is_boolean(column.type)):
            return {}  # pictures, maps and such are no states
        if kinds.is_boolean(column.type) and column.null_count:
            column = column.cast(self._arrow.int8())
        return {name: plain(column.to_numpy(zero_copy_only=False))}

    def _readable(self) -> _ArrowErrors:
        return _ArrowErrors(self.path, (self._arrow.ArrowException, OSError))


class _ArrowErrors:
    """Turns errors of pyarrow into RecordingError."""

    def __init__(self, path: Path, errors: tuple[type[BaseException], ...]) -> None:
        self._path, self._errors = path, errors

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None and isinstance(error, self._errors):
            reason = str(error).splitlines()[0][:200]
            raise RecordingError(f"{self._path}: cannot be read: {reason}") from error


def plain(values: AnyArray) -> AnyArray:
    """Return values as a column of a batch has them: int64, float64, Booleans or text."""
    match values.dtype.kind:
        case "b" | "U":
            return values
        case "i" | "u":
            return values.astype(np.int64)
        case _:
            return values.astype(np.float64)
