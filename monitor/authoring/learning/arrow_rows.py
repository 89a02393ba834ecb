"""Rows of Parquet and Arrow files (extra `learn`). Impure.

A column of any type of Arrow is either read or listed as left out. Using a column that is left out is an error.

    whole numbers, floats, Booleans   as they are; missing ones as NaN
    decimals                          whole numbers if they have no digits after the point, else floats
    text, bytes                       text; bytes if they are UTF-8, UUIDs in hexadecimal
    dictionaries, run ends            as the values that they encode
    dates, times, durations           seconds, of dates and timestamps since 1970 (UTC)
    lists                             `name[0]`, `name[1]`, ..., if all have the same length
    structs                           `name.key`
    lists of lists, maps, unions, intervals, other bytes: left out
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from monitor.arrays import AnyArray
from monitor.authoring.learning import row_files
from monitor.authoring.learning.batch import RowBatch
from monitor.authoring.learning.row_files import (
    START,
    FilePosition,
    arrow,
    joined,
    no_column,
    plain,
    refuse_names,
    refuse_rows,
    rows_as_wide,
    rows_at_once,
)
from monitor.errors import RecordingError, brief
from monitor.memory import bounded

if TYPE_CHECKING:
    import pyarrow as pa

SAMPLE: Final = 256
"""Number of rows that are examined to find the length of lists, and whether bytes are text."""

LONG_BYTES: Final = 64
"""Largest fixed length, in bytes, of values that are read, such as UUIDs or digests. Longer ones are left out."""

SECONDS: Final = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


class _UnreadableError(Exception):
    """A column of a type that is neither numbers nor text. The message says what the column contains."""


class ArrowRows:
    """Parquet or Arrow file, read with pyarrow."""

    def __init__(self, path: Path) -> None:
        self._arrow, self._compute = arrow(path), _compute()
        self.path = path
        self.position = 0
        self.kinds: Mapping[str, str] = START.kinds  # the file has types
        self.left_out: dict[str, str] = {}
        self._bases: dict[str, str] = {}

    def names(self) -> tuple[str, ...]:
        """Return the names of the columns. A list becomes as many columns as it has entries in the first rows."""
        with bounded(self.path), self._readable():
            whole = next(self._record_batches(None, SAMPLE), None)
            if whole is None or whole.num_rows == 0:
                raise RecordingError(f"{self.path}: is empty")
            bases = whole.schema.names
            refuse_names(bases, self.path)
            batch = next(self._narrow(whole, bases))
            self._bases, self.left_out = {}, {}
            found: list[str] = []
            for base in bases:
                try:
                    columns = list(self._columns(base, batch.column(base), 1))
                except _UnreadableError as error:
                    self.left_out[base] = str(error)
                    continue
                self._bases |= dict.fromkeys(columns, base)
                found += columns
        refuse_names(found, self.path)
        return tuple(found)

    def batches(self, wanted: Sequence[str], begin: FilePosition = START) -> Iterator[RowBatch]:
        """Yield the wanted columns."""
        names = self.names()
        for name in wanted:
            if name not in self._bases:
                raise no_column(self, name, names)
        bases = dict.fromkeys(self._bases[name] for name in wanted)
        width = sum(base in bases for base in self._bases.values())
        most = rows_at_once(width)
        yield from joined(self._parts(list(bases), wanted, most), self.path, begin, most)

    def _parts(self, bases: list[str], wanted: Sequence[str], most: int) -> Iterator[dict[str, AnyArray]]:
        first = 1
        with self._readable():
            for whole in self._record_batches(bases, most):
                for batch in self._narrow(whole, bases):
                    columns: dict[str, AnyArray] = {}
                    for base in bases:
                        columns |= self._like_before(base, batch.column(base), first)
                    yield {name: columns[name] for name in wanted}
                    first += batch.num_rows

    def _like_before(self, base: str, column: pa.Array, first: int) -> dict[str, AnyArray]:
        """Return the columns that one column becomes.

        Raises RecordingError if they differ from those of the first rows.
        """
        try:
            found = self._columns(base, column, first)
        except _UnreadableError as error:
            raise RecordingError(
                f"{self.path}, from row {first}: column {base!r} cannot be read: it holds {error}"
            ) from error
        usual = [name for name, of in self._bases.items() if of == base]
        if list(found) != usual:
            raise self._uneven(base, first)
        return found

    def _record_batches(self, bases: list[str] | None, most: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of these columns (None: all columns), at most `most` rows at once."""
        size = self.path.stat().st_size
        if self.path.suffix.lower() == ".parquet":
            from pyarrow import parquet  # noqa: PLC0415 - likewise

            with parquet.ParquetFile(self.path) as file:
                refuse_rows(self.path, file.metadata.num_rows, size)
                for batch in file.iter_batches(most, columns=bases):
                    yield batch
                    self.position += int(size * batch.num_rows / max(file.metadata.num_rows, 1))
            return
        from pyarrow import ipc  # noqa: PLC0415 - likewise

        rows = 0
        with self._arrow.memory_map(str(self.path)) as source, ipc.open_file(source) as file:
            for i in range(file.num_record_batches):
                whole = file.get_batch(i)
                rows += whole.num_rows
                refuse_rows(self.path, rows, size)
                for at in range(0, whole.num_rows, most):
                    batch = whole.slice(at, most)
                    batch.validate(full=True)
                    yield batch
                self.position = int(size * (i + 1) / file.num_record_batches)

    def _narrow(self, batch: pa.RecordBatch, bases: list[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows in parts whose text, as arrays, is no larger than `row_files.TEXT`."""
        most = rows_as_wide(self._text_width(batch.column(base)) for base in bases)
        for at in range(0, batch.num_rows, most):
            yield batch.slice(at, most)

    def _text_width(self, column: pa.Array) -> int:
        kinds = self._arrow.types
        if kinds.is_dictionary(column.type):
            return self._text_width(column.dictionary)
        if kinds.is_run_end_encoded(column.type):
            return self._text_width(column.values)
        if kinds.is_string_view(column.type) or kinds.is_binary_view(column.type):
            column = column.cast(self._arrow.large_binary())
        if not (
            kinds.is_string(column.type) or kinds.is_large_string(column.type)
            or kinds.is_binary(column.type) or kinds.is_large_binary(column.type)
        ):  # fmt: skip
            return 0
        return self._compute.max(self._compute.binary_length(column)).as_py() or 0

    def _columns(self, name: str, column: pa.Array, first: int) -> dict[str, AnyArray]:
        """Return the columns that one column becomes. `first`: number of its first row."""
        kinds = self._arrow.types
        column = self._decoded(column)
        if kinds.is_struct(column.type):
            found: dict[str, AnyArray] = {}
            refuse_names([f"{name}.{part.name}" for part in column.type], self.path)
            for part, values in zip(column.type, column.flatten(), strict=True):
                try:
                    found |= self._columns(f"{name}.{part.name}", values, first)
                except _UnreadableError as error:
                    self.left_out[f"{name}.{part.name}"] = str(error)
            return found
        if (
            kinds.is_list(column.type) or kinds.is_large_list(column.type) or kinds.is_fixed_size_list(column.type)
            or kinds.is_list_view(column.type) or kinds.is_large_list_view(column.type)
        ):  # fmt: skip
            return self._entries(name, column, first)
        return {name: self._values(column)}

    def _decoded(self, column: pa.Array) -> pa.Array:
        """Return a column without its encoding: dictionary, run ends, extension types."""
        kinds = self._arrow.types
        while True:
            if isinstance(column, self._arrow.ExtensionArray):
                column = column.storage
            elif kinds.is_dictionary(column.type):
                column = column.dictionary_decode()
            elif kinds.is_run_end_encoded(column.type):
                column = self._compute.run_end_decode(column)
            else:
                return column

    def _entries(self, name: str, column: pa.Array, first: int) -> dict[str, AnyArray]:
        lengths = self._compute.list_value_length(column).to_numpy(zero_copy_only=False)
        present = np.flatnonzero(~np.isnan(lengths.astype(np.float64)))
        if not len(present):
            raise _UnreadableError("lists, all of them missing at first")
        uneven = np.flatnonzero(lengths[present] != lengths[present[0]])
        if uneven.size:
            raise self._uneven(name, first + int(present[uneven[0]]))
        width = int(lengths[present[0]])
        if not 0 < width <= row_files.COLUMNS:
            raise _UnreadableError(f"lists of {width:,} entries")
        inner = self._decoded(column.drop_null().flatten())
        if self._arrow.types.is_nested(inner.type):
            raise _UnreadableError("lists of lists or structs, such as pictures")
        values = self._values(inner).reshape(len(present), width)
        if len(present) < len(column):
            empty = "" if values.dtype.kind == "U" else np.nan
            table = np.full((len(column), width), empty, values.dtype if values.dtype.kind == "U" else np.float64)
            table[present] = values
            values = table
        return {f"{name}[{i}]": values[:, i] for i in range(width)}

    def _uneven(self, name: str, row: int) -> RecordingError:
        return RecordingError(
            f"{self.path}, row {row}: the lists of column {name!r} differ in length, or hold something else than before"
        )

    def _values(self, column: pa.Array) -> AnyArray:
        """Return numbers, text or Booleans."""
        kinds, kind = self._arrow.types, column.type
        if kinds.is_null(kind):
            return np.full(len(column), np.nan)
        if kinds.is_fixed_size_binary(kind):
            if kind.byte_width > LONG_BYTES:
                raise _UnreadableError(f"{kind.byte_width:,} bytes each")
            return _text(None if each is None else each.hex() for each in column.to_pylist())
        if kinds.is_binary(kind) or kinds.is_large_binary(kind) or kinds.is_binary_view(kind):
            try:
                return _text(None if each is None else each.decode("utf-8") for each in column.to_pylist())
            except UnicodeDecodeError:
                raise _UnreadableError("bytes that are no text") from None
        if kinds.is_string(kind) or kinds.is_large_string(kind) or kinds.is_string_view(kind):
            return _text(column.to_pylist())
        if kinds.is_decimal(kind):
            column = self._number(column)
        elif kinds.is_interval(kind):
            raise _UnreadableError(str(kind))
        elif kinds.is_temporal(kind):
            return self._seconds(column)
        elif kinds.is_boolean(kind):
            column = column.cast(self._arrow.int8()) if column.null_count else column
        elif not (kinds.is_integer(kind) or kinds.is_floating(kind)):
            raise _UnreadableError(str(kind))
        return plain(column.to_numpy(zero_copy_only=False))

    def _number(self, column: pa.Array) -> pa.Array:
        """Return decimals as whole numbers, if none has digits after the point and none is too large."""
        if column.type.scale <= 0:
            try:
                return column.cast(self._arrow.int64())
            except self._arrow.ArrowInvalid:
                pass
        return column.cast(self._arrow.float64())

    def _seconds(self, column: pa.Array) -> AnyArray:
        kinds, kind = self._arrow.types, column.type
        if kinds.is_date(kind):
            column = column.cast(self._arrow.timestamp("s" if kinds.is_date32(kind) else "ms"))
        elif kinds.is_time32(kind):
            column = column.cast(self._arrow.int32())
        unit = SECONDS[column.type.unit if kinds.is_temporal(column.type) else kind.unit]
        values = plain(column.cast(self._arrow.int64()).to_numpy(zero_copy_only=False))
        return values if unit == 1 else values / unit

    @contextmanager
    def _readable(self) -> Iterator[None]:
        """Turn errors of pyarrow into RecordingError."""
        try:
            yield
        except MemoryError:
            raise
        except (self._arrow.ArrowException, OSError, ValueError, KeyError, TypeError, IndexError) as error:
            raise RecordingError(f"{self.path}: cannot be read: {brief(error)}") from error


def _compute() -> Any:  # noqa: ANN401 - pyarrow is optional
    from pyarrow import compute  # noqa: PLC0415 - likewise

    return compute


def _text(values: Any) -> AnyArray:  # noqa: ANN401 - an iterable of text and None
    return np.array([text or "" for text in values], dtype=np.str_)
