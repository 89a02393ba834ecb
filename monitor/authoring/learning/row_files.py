"""Readers of recorded rows: CSV, JSON lines, Parquet and Arrow files, in batches of bounded memory. Impure.

What a file declares or how it is packed changes no bound: a line has at most `LINE` bytes and a table at most `COLUMNS`
columns, and whatever is read at once takes at most `monitor.memory.MEMORY` more than the process had.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any, Final, Protocol, cast

import msgspec
import numpy as np

from monitor.arrays import AnyArray, Ints
from monitor.authoring.learning.batch import RowBatch, is_missing, typed
from monitor.errors import RecordingError, to_install
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

TEXTS: Final = (".csv", ".tsv", ".jsonl", ".ndjson")
PACKED: Final = (".gz", ".zst")
SUFFIXES: Final = (*TEXTS, ".parquet", ".arrow", ".feather")

PART: Final = re.compile(r"(.*-)(\d{1,9})(-of-\d+)(\..*)", re.DOTALL)
"""Name of one file of several that hold one table, as the datasets of Hugging Face do."""

TORN: Final = "torn"
NO_MAP: Final = "torn, or no JSON map"
NOT_TEXT: Final = "not UTF-8"
CUT_OFF: Final = "the packed file is cut off"
"""Reasons why a row cannot be read."""


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
    if path.suffix.lower() == ".zst":
        arrow(path)
    match row_suffix(path):
        case ".csv" | ".tsv":
            return CsvRows(path)
        case ".jsonl" | ".ndjson":
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
    """Return whether the second file is the next part of the first, as `train-00001-of-00002` is."""
    one, other = (None if each is None else PART.fullmatch(str(each.path)) for each in (source, after))
    if one is None or other is None:
        return False
    return one.group(1, 3, 4) == other.group(1, 3, 4) and int(one[2]) + 1 == int(other[2])


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
    """Lines of a file of at most `LINE` bytes each.

    `replaced`: what stands for bytes that are no text. Attributes: `taken`: their characters or bytes so far.
    `garbled`: a line has `replaced`. `row`: the lines since this list was emptied.
    """

    def __init__(self, file: IO[Any], path: Path, replaced: str | bytes) -> None:
        self._file, self._path, self._replaced = file, path, replaced
        self._number = self.taken = 0
        self.garbled = False
        self.row: list[Any] = []
        self._again: list[Any] = []

    def peek(self) -> Any:  # noqa: ANN401 - text or bytes
        """Return the next line, which is still to come."""
        line = self._read()
        self._again.append(line)
        return line

    def back(self) -> bool:
        """Take the lines of the row back but the first, and return whether there are any: they are to come again."""
        again = self.row[1:]
        self._again += again[::-1]
        self.row.clear()
        return bool(again)

    def __iter__(self) -> Iterator[Any]:
        while line := self._again.pop() if self._again else self._read():
            if self._replaced in line:
                self.garbled = True
            self.row.append(line)
            yield line

    def _read(self) -> Any:  # noqa: ANN401 - text or bytes
        line = self._file.readline(LINE)
        self._number += 1
        self.taken += len(line)
        if len(line) >= LINE and line[-1:] not in ("\n", b"\n"):
            raise RecordingError(f"{self._path}, line {self._number}: is longer than {LINE >> 20} MiB")
        return line


def _batches(
    rows: Iterator[Sequence[object] | str],
    wanted: Sequence[str],
    source: CsvRows | RecordRows,
    begin: FilePosition,
    typed_as: Callable[[Sequence[object], str | None], tuple[AnyArray, Ints]] = typed,
) -> Iterator[RowBatch]:
    """Yield the values of the wanted columns, from a place on; a column's type is inferred from its first batch.

    A row that cannot be read is the reason, a text.
    """
    source.kinds = kinds = dict(begin.kinds)
    rows, first = islice(rows, begin.rows, None), 1 + begin.rows
    most = rows_at_once(len(wanted))
    parts: Iterator[dict[str, tuple[object, ...]]] = iter(())
    torn: dict[int, str] = {}
    while True:
        with bounded(source.path):
            part = next(parts, None)
            if part is None:
                taken: list[Sequence[object]] = []
                before, torn = source.taken, {}
                for row in rows:
                    if isinstance(row, str):
                        torn[first + len(taken) + len(torn)] = row
                    else:
                        taken.append(row)
                    if len(taken) + len(torn) >= most or source.taken - before >= TEXT:
                        break
                if not taken:
                    if not torn:
                        return
                    part = dict.fromkeys(wanted, ())
                else:
                    parts = _narrow(dict(zip(wanted, zip(*taken, strict=True), strict=True)), len(taken))
                    continue
            batch = _batch(part, kinds, (first, torn), source.path, typed_as)
        first += batch.rows
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
            values = (row if isinstance(row, str) else [row[place] for place in places] for row in rows)
            typed_as = typed if separator == "," else typed_with_commas
            yield from _batches(values, wanted, self, begin, typed_as)

    @contextmanager
    def _opened(self) -> Iterator[tuple[tuple[str, ...], Iterator[list[str] | str], str]]:
        """Open the file; give its header, its rows, and the separator. A row that cannot be read is the reason."""
        try:
            with opened(self.path) as (file, at):
                lines = _Lines(io.TextIOWrapper(file, "utf-8-sig", "replace", newline=""), self.path, "\ufffd")
                separator = max(",;\t|", key=lines.peek().count)
                header = next(csv.reader(lines, delimiter=separator), [])
                names = self._header(header, lines)
                yield names, self._rows(lines, header, separator, at), separator
        except csv.Error as error:
            raise RecordingError(f"{self.path}: its first line is not CSV ({error})") from error
        except OSError as error:
            raise RecordingError(f"{self.path}: cannot be read: {error.strerror or error}") from error

    def _rows(
        self, lines: _Lines, header: list[str], separator: str, at: Callable[[], int] | None
    ) -> Iterator[list[str] | str]:
        reader = csv.reader(lines, delimiter=separator, strict=True)
        width = len(header)
        lines.row.clear()
        while True:
            try:
                for row in reader:
                    self.taken = lines.taken
                    self.position = lines.taken if at is None else at()
                    if len(row) != width and row:
                        yield NOT_TEXT if lines.garbled else TORN
                        if lines.back():
                            break
                    elif lines.garbled:
                        yield NOT_TEXT
                    elif row == header:
                        yield "the header again"
                    elif row:
                        yield row
                    lines.row.clear()
                    lines.garbled = False
                else:
                    return
            except csv.Error:  # a quote that is not closed, or text behind one that is
                yield _alone(lines.row, separator, width)
                lines.back()
            except EOFError:
                yield CUT_OFF
                return
            # the row had a quote that is not closed: only its first line is lost
            lines.garbled = False
            reader = csv.reader(lines, delimiter=separator, strict=True)

    def _header(self, fields: Sequence[str], lines: _Lines) -> tuple[str, ...]:
        if lines.garbled:
            raise RecordingError(f"{self.path}: is not UTF-8 text; convert it, such as with iconv")
        names = tuple(name.strip() for name in fields)
        if not names:
            raise RecordingError(f"{self.path}: is empty; a line with the names of the columns is needed")
        refuse_names(names, self.path)
        numbers = [name for name in names if name.replace(".", "", 1).replace("-", "", 1).isdigit()]
        if len(numbers) == len(names):
            raise RecordingError(f"{self.path}: the first line has numbers only; put the names of the columns there")
        return names


def arrow(path: Path) -> Any:  # noqa: ANN401 - pyarrow is optional
    """Return pyarrow. RecordingError if it is not installed; call it first where memory is not `bounded`."""
    try:
        import pyarrow as pa  # noqa: PLC0415 - an optional extra
    except ImportError as error:
        raise RecordingError(f"{path}: needs pyarrow: {to_install('learn')}") from error
    pa.allocate_buffer(1)  # its allocator reserves address space once, and that is no memory of a file
    return pa


@contextmanager
def opened(path: Path) -> Iterator[tuple[IO[bytes], Callable[[], int] | None]]:
    """Open a file of text, unpacked if its name ends with .gz or .zst (extra `learn`); OSError if it is damaged.

    Also gives what returns how many bytes of a packed file were read, for progress.
    """
    with path.open("rb") as raw:
        match path.suffix.lower():
            case ".gz":
                try:
                    with gzip.GzipFile(fileobj=raw) as file:
                        yield cast("IO[bytes]", file), raw.tell
                except zlib.error as error:
                    raise OSError(0, f"damaged ({error})") from error
            case ".zst":
                pa = arrow(path)
                with pa.CompressedInputStream(pa.PythonFile(raw, "r"), "zstd") as unpacked:
                    yield io.BufferedReader(unpacked), raw.tell
            case _:
                yield raw, None


def row_suffix(path: Path) -> str:
    """Return the suffix that says how rows are written, in lower case, without that of a packed file.

    >>> row_suffix(Path("log.CSV.gz"))
    '.csv'
    """
    last, inner = path.suffix.lower(), Path(path.stem).suffix.lower()
    return inner if last in PACKED and inner in TEXTS else last


def _alone(lines: Sequence[str], separator: str, width: int) -> list[str] | str:
    """Return the row of one line that is not quoted by the rules; `TORN` if there are more lines, or other columns."""
    try:
        row = next(csv.reader(lines[:1], delimiter=separator), [])
    except csv.Error:  # such as a field that is too long
        return TORN
    return row if len(lines) == 1 and len(row) == width else TORN


def refuse_names(names: Sequence[str], path: Path) -> None:
    """Refuse too many columns, and two of the same name."""
    if len(names) > COLUMNS:
        raise RecordingError(f"{path}: has {len(names):,} columns; at most {COLUMNS:,} are read")
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise RecordingError(f"{path}: column {twice[0]!r} is named twice")


_CELL: Final = re.compile(r"(?:0|[1-9][0-9]*),(?:0|[1-9][0-9]*)").fullmatch
"""A pair of whole numbers, as a cell of a grid may be called."""


def typed_with_commas(values: Sequence[object], known: str | None) -> tuple[AnyArray, Ints]:
    """Return values of a CSV file that is not separated by commas: as `typed`, but numbers may have a decimal comma.

    Pairs of whole numbers stay text if two different ones would become the same number, as the names of cells "3,4" and
    "3,40". No name of a cell, and so a number, is "5", "-1,5" or "2,05".
    """
    found, odd = typed(values, known)
    if known == "U" or not (len(odd) or found.dtype.kind == "U"):
        return found, odd
    texts = [str(value) for value in values]
    if not any("," in text and "." not in text for text in texts):
        return found, odd
    pointed = [text if "." in text else text.replace(",", ".") for text in texts]
    numbers, left = typed(pointed, known)
    if numbers.dtype.kind not in "if":
        return found, odd
    if known is not None:
        return numbers, left
    numbers = numbers.astype(np.float64)
    numbers[left] = np.nan
    different = {text.strip() for text, number in zip(texts, numbers.tolist(), strict=True) if np.isfinite(number)}
    alike = len(np.unique(numbers[np.isfinite(numbers)])) == len(different)
    return typed(pointed, known) if alike or not all(map(_CELL, different)) else (found, odd)


class RecordRows:
    """Rows that come as records, one map each; lists become columns `name[0]`, maps `name.key`.

    `taken`: bytes of the records so far.
    """

    path: Path
    position: int = 0
    taken: int = 0
    kinds: Mapping[str, str] = MappingProxyType({})
    left_out: Mapping[str, str] = MappingProxyType({})

    def records(self) -> Iterator[Mapping[str, Any] | str]:
        """Yield the records, flat; for one that cannot be read, the reason."""
        raise NotImplementedError

    def names(self) -> tuple[str, ...]:
        """Return the names in the first batch of records, in order of first sight."""
        found: dict[str, None] = {}
        left_out: dict[str, str] = {}
        with bounded(self.path):
            for record in islice(self.records(), ROWS):
                if isinstance(record, str):
                    continue
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
        rows = (
            record if isinstance(record, str) else [record.get(name) for name in wanted] for record in self.records()
        )
        yield from _batches(rows, wanted, self, begin)


class JsonRows(RecordRows):
    """File of JSON lines, one map a line."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def records(self) -> Iterator[Mapping[str, Any] | str]:
        """Yield the maps, flat; for a line that is not one, the reason."""
        decode = msgspec.json.Decoder(dict[str, Any]).decode
        self.taken = 0
        try:
            with opened(self.path) as (file, at):
                lines = _Lines(file, self.path, b"\n\n")  # which no line has: bytes are decoded later
                try:
                    for line in lines:
                        lines.row.clear()
                        if not line.strip():
                            continue
                        try:
                            record: Mapping[str, Any] | str = flat(decode(line))
                        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                            record = NO_MAP
                        self.taken = lines.taken
                        self.position = lines.taken if at is None else at()
                        yield record
                except EOFError:
                    yield CUT_OFF
        except OSError as error:
            raise RecordingError(f"{self.path}: cannot be read: {error.strerror or error}") from error


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
    rows: tuple[int, dict[int, str]],
    path: Path,
    typed_as: Callable[[Sequence[object], str | None], tuple[AnyArray, Ints]],
) -> RowBatch:
    """Return the next rows. `rows`: the number of the first one, and reasons of torn ones, which are taken out."""
    first, torn = rows
    columns: dict[str, AnyArray] = {}
    odd: dict[str, Ints] = {}
    for name, values in fields.items():
        columns[name], bad = typed_as(values, kinds.get(name))
        if len(bad):
            odd[name] = bad
        if not is_missing(columns[name]).all():  # else its kind is not known yet
            kinds[name] = columns[name].dtype.kind
    if not torn:
        return RowBatch(columns, first, str(path), odd)
    numbers: list[int] = []
    mine: dict[int, str] = {}
    number, length = first, len(next(iter(fields.values()), ()))
    while len(numbers) < length or number in torn:
        if number in torn:
            mine[number] = torn.pop(number)
        else:
            numbers.append(number)
        number += 1
    reasons = {why: np.array([n for n, each in mine.items() if each == why]) for why in dict.fromkeys(mine.values())}
    return RowBatch(columns, first, str(path), odd, reasons, np.array(numbers, np.int64))


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
