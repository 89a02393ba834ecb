"""Canonical form of data: one encoding, as msgpack, for equal values.

Keys are sorted, lengths have their shortest form, and numbers are finite and of Python's own types. A value may be
assembled from parts that were packed earlier.
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
"""Maximum accepted nesting. The deepest part of the monitor's documents, a policy's choice, has depth 6."""

ONLY_SAMPLED = frozenset({"samples", "confidence", "drawn"})
"""Fields of sampled verdicts, which exact verdicts leave out."""
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
"""Fields of verdicts on learned models, left out if they have no value. A support of 0 is a value."""
ONLY_NAMED = frozenset({"actions"})
ONLY_MISSED = frozenset({"recourse"})
"""Fields of verdicts on missed goals, which all other verdicts leave out."""
ONLY_TAKEOVERS = frozenset({"acted", "takeover"})
"""Fields of evidence for paths on which another policy than nominal acted; otherwise left out."""
ONLY_WORLDS = frozenset({"inputs", "tiers", "resampled_from"})
"""Fields of verdicts on worlds with numbers, left out if they have no value."""
ONLY_HIDDEN = frozenset({"belief", "believed", "evidence", "likely", "unseen"})
"""Fields of verdicts on models with hidden states, left out if they have no value."""
OMITTED: Final = ONLY_SAMPLED | ONLY_LEARNED | ONLY_MISSED | ONLY_NAMED | ONLY_TAKEOVERS | ONLY_WORLDS | ONLY_HIDDEN
"""All fields that are left out if they have no value."""
_EXACT: Final = frozenset({str, int, bool, type(None)})
_PLAIN: Final = _EXACT | {float}
"""Types whose values are stored unchanged. Floats must be finite."""


def pack(where: str, value: object, depth: int = 1) -> bytes:
    """Return the packed canonical form of a member of a document.

    `where`: place of the member, such as `verdict` or `policies.nominal.manifest`. `depth`: number of names in the
    place. Raises EvidenceError, which names the place, for a number that is not finite, and for anything but plain
    data.
    """
    if type(value) in _EXACT:
        return pack_plain(value)
    data = plain(value)
    check_plain(data, f"evidence.{where}", depth)
    return pack_plain(data)


def map_of(packed: Mapping[str, bytes]) -> bytes:
    """Return the packed map of these packed members."""
    head: bytes = msgpack.Packer().pack_map_header(len(packed))
    return head + b"".join([_name(name) + packed[name] for name in sorted(packed)])


def list_of(packed: Sequence[bytes]) -> bytes:
    """Return the packed list of these packed items."""
    head: bytes = msgpack.Packer().pack_array_header(len(packed))
    return head + b"".join(packed)


def plain(value: object) -> Any:  # noqa: ANN401 - whatever shape the value has, as plain data
    """Return a value in canonical form: maps with ascending keys, lists, and Python's own numbers.

    Keys of maps must be text. So a profile becomes a list of [offset, nominal, alternative], and a belief a list of
    [state, probability].
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
    """Yield name and value of each field of a struct that a document contains, ordered by name."""
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
    """Pack plain data as msgpack. Text may contain lone surrogates, because untrusted documents may contain them."""
    packed = msgpack.packb(data, unicode_errors="surrogatepass")
    assert isinstance(packed, bytes)
    return packed


_name: Final = cache(pack_plain)
"""`pack_plain` for names of members, with a cache, because few names exist."""


class _UnfitError(Exception):
    """Data that a document may not contain. `why`: the reason. `where`: the place, such as `.verdict.effect`."""

    def __init__(self, why: str) -> None:
        self.why, self.where = why, ""


def check_plain(value: object, where: str = "evidence", depth: int = 0) -> None:
    """Raise EvidenceError, which names the place, unless the value is plain, finite and not too deep."""
    try:
        _check_data(value, depth)
    except _UnfitError as error:
        raise EvidenceError(f"{where}{error.where}: {error.why}") from None


def _check_data(value: object, depth: int) -> None:
    """Raise _UnfitError if `check_plain` would raise an error. Callers add the value's place in the document."""
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
