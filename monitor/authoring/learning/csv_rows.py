"""Rows of a CSV file. Impure."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import numpy as np

from monitor.arrays import AnyArray, Ints
from monitor.authoring.learning.batch import RowBatch, typed
from monitor.authoring.learning.row_files import START, FilePosition, no_column, refuse_names
from monitor.authoring.learning.text_rows import CUT_OFF, NOT_TEXT, TORN, Lines, opened, untyped_batches
from monitor.errors import RecordingError


class CsvRows:
    """CSV file with a header, in UTF-8. Fields are separated by comma, semicolon, tab or `|`.

    If the separator is not a comma, numbers may have a decimal comma.
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
        """Yield the wanted columns. The type of a column is inferred from its first batch."""
        with self._opened() as (names, rows, separator):
            for name in wanted:
                if name not in names:
                    raise no_column(self, name, names)
            places = [names.index(name) for name in wanted]
            values = (row if isinstance(row, str) else [row[place] for place in places] for row in rows)
            typed_as = typed if separator == "," else typed_with_commas
            yield from untyped_batches(values, wanted, self, begin, typed_as)

    @contextmanager
    def _opened(self) -> Iterator[tuple[tuple[str, ...], Iterator[list[str] | str], str]]:
        """Open the file; give its header, its rows, and the separator.

        For an unreadable row, give the reason as a text.
        """
        try:
            with opened(self.path) as (file, at):
                lines = Lines(io.TextIOWrapper(file, "utf-8-sig", "replace", newline=""), self.path, "\ufffd")
                separator = max(",;\t|", key=lines.peek().count)
                header = next(csv.reader(lines, delimiter=separator), [])
                names = self._header(header, lines)
                yield names, self._rows(lines, header, separator, at), separator
        except csv.Error as error:
            raise RecordingError(f"{self.path}: its first line is not CSV ({error})") from error
        except OSError as error:
            raise RecordingError(f"{self.path}: cannot be read: {error.strerror or error}") from error

    def _rows(
        self, lines: Lines, header: list[str], separator: str, at: Callable[[], int] | None
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
            except csv.Error:  # a quote is not closed, or text follows a closed quote
                yield _alone(lines.row, separator, width)
                lines.back()
            except EOFError:
                yield CUT_OFF
                return
            # the row had a quote that is not closed, so only its first line is lost
            lines.garbled = False
            reader = csv.reader(lines, delimiter=separator, strict=True)

    def _header(self, fields: Sequence[str], lines: Lines) -> tuple[str, ...]:
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


def _alone(lines: Sequence[str], separator: str, width: int) -> list[str] | str:
    """Return the row of a line whose quotes break the rules; `TORN` for several lines or a wrong number of fields."""
    try:
        row = next(csv.reader(lines[:1], delimiter=separator), [])
    except csv.Error:  # such as a field that is too long
        return TORN
    return row if len(lines) == 1 and len(row) == width else TORN


_CELL: Final = re.compile(r"(?:0|[1-9][0-9]*),(?:0|[1-9][0-9]*)").fullmatch
"""A pair of whole numbers, such as the name of a cell of a grid."""


def typed_with_commas(values: Sequence[object], known: str | None) -> tuple[AnyArray, Ints]:
    """Return values like `typed`, for a CSV file that is not separated by commas: numbers may have decimal commas.

    Pairs of whole numbers may be names of cells. They stay text if two different pairs would become the same number,
    such as "3,4" and "3,40". Texts such as "5", "-1,5" or "2,05" cannot be names of cells, so they become numbers.
    """
    texts = [str(value) for value in values]
    if known == "U" or not any("," in text and "." not in text for text in texts):
        return typed(values, known)
    pointed = [text if "." in text else text.replace(",", ".") for text in texts]
    numbers, left = typed(pointed, known)
    if numbers.dtype.kind not in "if":
        return typed(values, known)
    if known is not None:
        return numbers, left
    numbers = numbers.astype(np.float64)
    numbers[left] = np.nan
    different = {text.strip() for text, number in zip(texts, numbers.tolist(), strict=True) if np.isfinite(number)}
    alike = len(np.unique(numbers[np.isfinite(numbers)])) == len(different)
    return typed(pointed if alike or not all(map(_CELL, different)) else values, known)
