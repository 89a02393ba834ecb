"""Canonical form of data: one encoding, as msgpack, for equal values.

Keys are sorted, lengths have their shortest form, numbers are Python's own and finite. A value may be put together from
parts packed before.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final

import msgpack
import msgspec
import numpy as np

from monitor.errors import EvidenceError

MAX_DEPTH = 12
"""Deepest nesting accepted; the deepest part of our own documents, a policy's choice, is at 6."""

ONLY_SAMPLED = frozenset({"samples", "confidence", "drawn"})
"""Fields of sampled answers; left out of exact ones."""
ONLY_LEARNED = frozenset(
    {
        "credible",
        "guaranteed",
        "effect_credible",
        "credible_now",
        "effect_guaranteed",
        "support",
        "to_visit",
        "bands",
        "extremes",
        "profile_extremes",
        "rests_on",
    }
)
"""Fields of answers on learned models; left out where they have no value. A support of 0 is one."""
ONLY_NAMED = frozenset({"actions"})
ONLY_MISSED = frozenset({"recourse"})
"""Fields of verdicts on missed goals; left out of all others."""
ONLY_TAKEOVERS = frozenset({"acted", "takeover"})
"""Fields of evidence on a path on which another policy than nominal acted; left out elsewhere."""
ONLY_WORLDS = frozenset({"inputs", "tiers", "resampled_from"})
"""Fields of answers on worlds with numbers; left out where they have no value."""
ONLY_HIDDEN = frozenset({"belief", "believed", "evidence", "likely", "unseen"})
"""Fields of answers on models with hidden states; left out where they have no value."""
OMITTED: Final = ONLY_SAMPLED | ONLY_LEARNED | ONLY_MISSED | ONLY_NAMED | ONLY_TAKEOVERS | ONLY_WORLDS | ONLY_HIDDEN
"""Fields that are left out where they have no value."""
_EXACT: Final = frozenset({str, int, bool, type(None)})
_PLAIN: Final = _EXACT | {float}
"""Types whose values a document has as they are; floats must be finite."""


def pack(where: str, value: object, depth: int = 1) -> bytes:
    """Return a member of a document in canonical form, packed.

    `where`: its place, as `verdict` or `policies.nominal.manifest`; `depth`: the number of names in it. Raises
    EvidenceError, naming the place, for a number that is not finite, and for anything but plain data.
    """
    if type(value) in _EXACT:
        return pack_plain(value)
    data = plain(value)
    check_plain(data, f"evidence.{where}", depth)
    return pack_plain(data)


def map_of(packed: Mapping[str, bytes]) -> bytes:
    """Return the map of these packed members, packed."""
    head: bytes = msgpack.Packer().pack_map_header(len(packed))
    return head + b"".join([_name(name) + packed[name] for name in sorted(packed)])


def list_of(packed: Sequence[bytes]) -> bytes:
    """Return the list of these packed items, packed."""
    head: bytes = msgpack.Packer().pack_array_header(len(packed))
    return head + b"".join(packed)


def plain(value: object) -> Any:  # noqa: ANN401 - whatever shape the value has, as plain data
    """Return a value in canonical form: maps with ascending keys, lists, and Python's own numbers.

    A profile, whose keys are numbers, becomes a list of [offset, nominal, alternative], and a belief one of [state,
    probability]: keys here are text.
    """
    if type(value) is tuple or type(value) is list:  # `match` takes ten times as long
        return [item if type(item) in _PLAIN else plain(item) for item in value]
    match value:
        case Mapping():
            return {key: plain(value[key]) for key in sorted(value)}
        case Sequence() if not isinstance(value, str):
            return [plain(item) for item in value]
        case np.generic():
            return value.item()
        case msgspec.Struct():
            return {name: member if type(member) in _PLAIN else plain(member) for name, member in members(value)}
        case _:
            return value


def members(value: msgspec.Struct) -> Iterator[tuple[str, object]]:
    """Yield name and value of each field that a document has, by name."""
    for name in _fields(type(value)):
        member = getattr(value, name)
        if name in OMITTED and (member in (None, ()) if name in ONLY_LEARNED else not member):
            continue
        if name == "profile":
            member = [[offset, *member[offset]] for offset in sorted(member)]
        elif name == "belief":
            member = [[state, member[state]] for state in sorted(member)]
        yield name, member


@cache
def _fields(kind: type[msgspec.Struct]) -> tuple[str, ...]:
    return tuple(sorted(kind.__struct_fields__))


def pack_plain(data: object) -> bytes:
    """Pack plain data as msgpack. Text may hold lone surrogates, which a document from elsewhere may have."""
    packed = msgpack.packb(data, unicode_errors="surrogatepass")
    assert isinstance(packed, bytes)
    return packed


_name: Final = cache(pack_plain)
"""`pack_plain` for names of members, which are few."""


class _UnfitError(Exception):
    """Data that no document has: `why`, and `where` in what was checked, as `.verdict.effect`."""

    def __init__(self, why: str) -> None:
        self.why, self.where = why, ""


def check_plain(value: object, where: str = "evidence", depth: int = 0) -> None:
    """Raise EvidenceError, naming the place, for anything but plain data, deep nesting, or a number not finite."""
    try:
        _check_data(value, depth)
    except _UnfitError as error:
        raise EvidenceError(f"{where}{error.where}: {error.why}") from None


def _check_data(value: object, depth: int) -> None:
    """Raise _UnfitError as `check_plain` says; the place is put together on the way up."""
    if type(value) is dict:
        _check_items(value.items(), ".{}", depth)
        if any(type(key) is not str for key in value):
            raise _UnfitError("a key that is not text")
    elif type(value) is list:
        _check_items(enumerate(value), "[{}]", depth)
    elif type(value) is float:
        if not math.isfinite(value):
            raise _UnfitError(f"{value} is not a finite number")
    elif type(value) not in _EXACT:
        raise _UnfitError(f"{type(value).__name__} is not allowed")


def _check_items(items: Iterable[tuple[object, object]], place: str, depth: int) -> None:
    """Check the items of a map or list, each with its key or index."""
    for at, item in items:
        if depth == MAX_DEPTH:
            raise _UnfitError(f"nested deeper than {MAX_DEPTH}")
        if type(item) in _EXACT:
            continue
        try:
            _check_data(item, depth + 1)
        except _UnfitError as error:
            error.where = f"{place.format(at)}{error.where}"
            raise
