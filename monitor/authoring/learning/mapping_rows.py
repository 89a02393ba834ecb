"""Rows that are read as records, each a map: lines of JSON, or messages. Impure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec

from monitor.authoring.learning import row_files
from monitor.authoring.learning.batch import RowBatch
from monitor.authoring.learning.row_files import START, EmptyFileError, FilePosition, refuse_names
from monitor.authoring.learning.text_rows import CUT_OFF, NO_MAP, Lines, opened, untyped_batches
from monitor.errors import RecordingError
from monitor.memory import bounded


class MappingRows:
    """Rows that are read as records, each a map. Lists become columns `name[0]`, and maps become `name.key`.

    `taken`: number of bytes of the records so far.
    """

    path: Path
    position: int = 0
    taken: int = 0
    kinds: Mapping[str, str] = MappingProxyType({})
    left_out: Mapping[str, str] = MappingProxyType({})

    def records(self) -> Iterator[Mapping[str, Any] | str]:
        """Yield the flat records, or the reason for a record that cannot be read."""
        raise NotImplementedError

    def names(self) -> tuple[str, ...]:
        """Return the names in the first batch of records, in order of first occurrence."""
        found: dict[str, None] = {}
        left_out: dict[str, str] = {}
        with bounded(self.path):
            for record in islice(self.records(), row_files.ROWS):
                if isinstance(record, str):
                    continue
                for name, value in record.items():
                    if isinstance(value, list | dict):
                        left_out[name.partition("[")[0]] = "lists of lists or maps"
                    else:
                        found[name] = None
                if len(found) > row_files.COLUMNS:
                    refuse_names(list(found), self.path)
        if not found:
            raise EmptyFileError(f"{self.path}: is empty")
        self.left_out = left_out
        return tuple(name for name in found if name.partition("[")[0] not in left_out)

    def batches(self, wanted: Sequence[str], begin: FilePosition = START) -> Iterator[RowBatch]:
        """Yield the wanted columns. The type of a column is inferred from its first batch."""
        rows = (
            record if isinstance(record, str) else [record.get(name) for name in wanted] for record in self.records()
        )
        yield from untyped_batches(rows, wanted, self, begin)


class JsonRows(MappingRows):
    """File of JSON lines. Each line is a map."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def records(self) -> Iterator[Mapping[str, Any] | str]:
        """Yield the flat maps, or the reason for a line that is not a map."""
        decode = msgspec.json.Decoder(dict[str, Any]).decode
        self.taken = 0
        try:
            with opened(self.path) as (file, at):
                lines = Lines(file, self.path, b"\n\n")  # no line has these bytes; bytes are decoded later
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
    """Return a record without lists and maps. Raises `msgspec.DecodeError` if two values get the same name.

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
