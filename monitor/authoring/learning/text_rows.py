"""Rows of files without types, such as text files: lines, and batches whose types are inferred. Impure."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, Any, Final, Protocol, cast

import numpy as np

from monitor.arrays import AnyArray, Ints
from monitor.authoring.learning import row_files
from monitor.authoring.learning.batch import RowBatch, is_missing, typed
from monitor.authoring.learning.row_files import FilePosition
from monitor.errors import RecordingError
from monitor.memory import bounded

TORN: Final = "torn"
NO_MAP: Final = "torn, or no JSON map"
NOT_TEXT: Final = "not UTF-8"
CUT_OFF: Final = "the packed file is cut off"
"""Reasons why a row cannot be read."""


class UntypedRows(Protocol):
    """Reader of a file without types. `taken`: number of characters or bytes so far. `kinds`: see `RowFile`."""

    path: Path
    taken: int
    kinds: Mapping[str, str]


class Lines:
    """Lines of a file, each of at most `row_files.LINE` bytes.

    `replaced`: the text that stands for bytes that are no text. Attributes: `taken`: number of characters or bytes so
    far. `garbled`: True if a line has `replaced`. `row`: the lines that were read since the caller last emptied this
    list.
    """

    def __init__(self, file: IO[Any], path: Path, replaced: str | bytes) -> None:
        self._file, self._path, self._replaced = file, path, replaced
        self._number = self.taken = 0
        self.garbled = False
        self.row: list[Any] = []
        self._again: list[Any] = []

    def peek(self) -> Any:  # noqa: ANN401 - text or bytes
        """Return the next line without consuming it."""
        line = self._read()
        self._again.append(line)
        return line

    def back(self) -> bool:
        """Put back all lines of the row but the first, so that they are read again. Return whether there are any."""
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
        line = self._file.readline(row_files.LINE)
        self._number += 1
        self.taken += len(line)
        if len(line) >= row_files.LINE and line[-1:] not in ("\n", b"\n"):
            raise RecordingError(f"{self._path}, line {self._number}: is longer than {row_files.LINE >> 20} MiB")
        return line


def untyped_batches(
    rows: Iterator[Sequence[object] | str],
    wanted: Sequence[str],
    source: UntypedRows,
    begin: FilePosition,
    typed_as: Callable[[Sequence[object], str | None], tuple[AnyArray, Ints]] = typed,
) -> Iterator[RowBatch]:
    """Yield the values of the wanted columns from a position on. A column's type is inferred from its first batch.

    In place of a row that cannot be read, `rows` gives the reason as a text.
    """
    source.kinds = kinds = dict(begin.kinds)
    rows, first = islice(rows, begin.rows, None), 1 + begin.rows
    most = row_files.rows_at_once(len(wanted))
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
                    if len(taken) + len(torn) >= most or source.taken - before >= row_files.TEXT:
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
    """Yield the rows in parts whose text, as arrays, is no larger than `row_files.TEXT`."""
    widths = [max((len(value) for value in values if isinstance(value, str)), default=0) for values in fields.values()]
    most = row_files.rows_as_wide(widths)
    for at in range(0, rows, most):
        yield {name: values[at : at + most] for name, values in fields.items()}


def _batch(
    fields: Mapping[str, Sequence[object]],
    kinds: dict[str, str],
    rows: tuple[int, dict[int, str]],
    path: Path,
    typed_as: Callable[[Sequence[object], str | None], tuple[AnyArray, Ints]],
) -> RowBatch:
    """Return the next rows. `rows`: number of the first row, and the reasons of torn rows, which are left out."""
    first, torn = rows
    columns: dict[str, AnyArray] = {}
    odd: dict[str, Ints] = {}
    for name, values in fields.items():
        columns[name], bad = typed_as(values, kinds.get(name))
        if len(bad):
            odd[name] = bad
        if not is_missing(columns[name]).all():  # otherwise its kind is not known yet
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


@contextmanager
def opened(path: Path) -> Iterator[tuple[IO[bytes], Callable[[], int] | None]]:
    """Open a text file, unpacked if its name ends with .gz or .zst (extra `learn`). Raises OSError if it is damaged.

    Also gives a function that returns the number of bytes read from a packed file, for progress.
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
                pa = row_files.arrow(path)
                with pa.CompressedInputStream(pa.PythonFile(raw, "r"), "zstd") as unpacked:
                    yield io.BufferedReader(unpacked), raw.tell
            case _:
                yield raw, None
