"""A digest of numbers and values: equal digests are equal bits."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Final

import msgpack
import msgspec
import numpy as np
import numpy.typing as npt

__all__ = ["Bits"]

WORDS: Final = frozenset({"summary", "details", "detail", "text", "runbook"})
"""Fields that hold words for people; nothing depends on what they say."""
ATOMS: Final = frozenset({type(None), bool, str, bytes, float, int})
"""Types of values that stay as they are."""
CODES: Final = frozenset({"Received", "Blind"})
"""Values whose `reason` is one of a fixed list; elsewhere it is a sentence, and only counts whether there is one."""


class Bits:
    """Collects numbers and values. Sentences are left out, and what has its default: a new field changes nothing."""

    def __init__(self) -> None:
        self._made = hashlib.sha256()

    def numbers(self, *arrays: npt.ArrayLike) -> None:
        """Add numbers, with their shape; the sign of zero counts."""
        for array in arrays:
            given = np.array(array, "<f8")
            given[np.isnan(given)] = np.nan  # processors give it different signs
            self._made.update(f"{given.shape}".encode())
            self._made.update(given.tobytes())

    def value(self, value: object) -> None:
        """Add a value made of structs, containers and numbers."""
        self._made.update(msgpack.packb(_plain(value)))

    @property
    def digest(self) -> str:
        """16 hexadecimal digits."""
        return self._made.hexdigest()[:16]


def _plain(value: object) -> object:
    """Return a value as lists, text and numbers, in an order that is always the same."""
    if type(value) in ATOMS:  # nearly all are
        return value
    match value:
        case msgspec.Struct():
            return [type(value).__name__, *_members(value)]
        case tuple() | list():
            return [_plain(each) for each in value]
        case None | bool() | str() | bytes() | float() | int():
            return value.item() if isinstance(value, np.generic) else value
        case np.ndarray():
            return value.tolist()
        case Mapping():
            return sorted(([_plain(key), _plain(each)] for key, each in value.items()), key=repr)
    raise TypeError(f"no digest of a {type(value).__name__}")


def _members(value: msgspec.Struct) -> Iterator[object]:
    kind = type(value)
    for name, default in _fields(kind):
        member = getattr(value, name)
        if name == "reason" and kind.__name__ not in CODES:
            member = bool(member)
        if type(member) is not type(default) or member != default:
            yield [name, _plain(member)]


@cache
def _fields(kind: type[msgspec.Struct]) -> tuple[tuple[str, object], ...]:
    """Return names and defaults, by name, without words; another for a default that is made anew, or is none."""
    fields = [each for each in msgspec.structs.fields(kind) if each.name not in WORDS]
    return tuple(sorted(((each.name, False if each.name == "reason" else each.default) for each in fields), key=repr))
