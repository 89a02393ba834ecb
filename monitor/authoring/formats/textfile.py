"""Lines and numbers of text files that contain models. Every error names the file, the line and the problem."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePath
from typing import Final

from monitor.errors import ModelError

LONGEST_LINE: Final = 1 << 20
"""Largest length of a line, in bytes."""

_SHOWN: Final = 60
_INTEGER: Final = re.compile(r"[0-9]{1,18}\Z")
_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]{1,400}(?:\.[0-9]{0,400})?|\.[0-9]{1,400})(?:[eE][+-]?[0-9]{1,9})?\Z")


@dataclass(frozen=True, slots=True)
class Line:
    """One line: the name of the file, the number from 1, and the text without the line break."""

    file: str
    number: int
    text: str

    def error(self, problem: str) -> ModelError:
        """Return an error about this line."""
        return ModelError(f"{self.file}, line {self.number}: {problem}")

    def index(self, text: str, limit: int, what: str) -> int:
        """Return a whole number in `0..limit-1`. `what`: its name in messages."""
        if not _INTEGER.match(text):
            raise self.error(f"{shown(text)} is not a {what}; give a whole number of at least 0")
        value = int(text)
        if value >= limit:
            raise self.error(f"{what} {value} is outside 0..{limit - 1}")
        return value

    def number_of(self, text: str, what: str) -> float:
        """Return a finite number, such as `0.25`, `1e-3` or `1/3`."""
        first, slash, second = text.partition("/")
        try:
            value = _decimal(first) / _decimal(second) if slash else _decimal(first)
        except (ValueError, ZeroDivisionError, OverflowError) as error:
            interval = "; models with intervals are not supported" if text.startswith("[") else ""
            raise self.error(f"{shown(text)} is not a {what}{interval}") from error
        if not math.isfinite(value):
            raise self.error(f"{what} {shown(text)} is not finite")
        return value

    def probability(self, text: str) -> float:
        """Return a probability: a number from 0 to 1, with a small tolerance above 1 for rounding."""
        value = self.number_of(text, "probability")
        if not 0 <= value <= 1 + 1e-9:
            raise self.error(f"the probability {shown(text)} is not from 0 to 1")
        return value


def lines(content: bytes, file: str, comment: str = "#", first: int = 1) -> Iterator[Line]:
    """Yield the lines that are not empty without white space and comments. Only one line at a time is in memory.

    `first`: the number of the first line. Raises ModelError if a line is too long or not UTF-8; the message shows the
    last part of `file`.
    """
    reader, name = io.BytesIO(content), PurePath(file).name
    number = first - 1
    while raw := reader.readline(LONGEST_LINE + 1):
        number += 1
        if len(raw) > LONGEST_LINE:
            raise ModelError(f"{name}, line {number}: the line is longer than {LONGEST_LINE:,} bytes")
        try:
            text = raw.decode("utf-8").strip()
        except UnicodeDecodeError as error:
            raise ModelError(f"{name}, line {number}: not UTF-8 text; save the file as UTF-8") from error
        if text and not text.startswith(comment):
            yield Line(name, number, text)


def shown(text: str) -> str:
    """Return the text in quotes, shortened."""
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}...")


def _decimal(text: str) -> float:
    if not _NUMBER.match(text):
        raise ValueError(text)
    return float(text)
