"""Read the arrays of a `.npz` archive safely: all headers are checked before memory for the arrays is allocated.

A few megabytes can unpack to gigabytes, and NumPy's own reader evaluates headers as Python text. So this module reads
all headers before any array. The arrays must have permitted types and matching shapes, and building a model of these
shapes must not take too much memory.
"""

from __future__ import annotations

import io
import math
import re
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from monitor.arrays import AnyArray
from monitor.errors import ModelError
from monitor.model.sparse_rows import checked_size

__all__ = [
    "BIN_EDGES",
    "BIN_NAMES",
    "MAX_DIRECTORY_BYTES",
    "AnyArray",
    "LargeModelError",
    "check_archive",
    "check_directory",
    "read_member",
    "unpacked",
]


MAX_DIRECTORY_BYTES: Final = 1 << 18
"""Largest directory of an archive; a thousand bin edges need a third of this size."""

LONGEST_HEADER: Final = 1000
"""Longest header of a member, in bytes; the headers that NumPy writes have 128."""


class LargeModelError(ModelError):
    """A model that needs more memory than the limit."""


@dataclass(frozen=True)
class _Key:
    """Accepted contents of an array, and the memory for reading it.

    `kinds`: codes of NumPy's types. `shape`: symbols for states S, actions A, entries N, labels L; `*` for any size.
    `each`, `character`: bytes needed for each element and for each character of text, beside the stored array.
    """

    kinds: str
    shape: str
    each: int = 24
    character: int = 0


_SCALAR: Final = _Key("iu", "")
_NUMBER: Final = _Key("f", "")
_NAMES: Final = 200
"""Bytes for a text as a Python object, together with its entries in dictionaries of names."""

# Measured in the worst case (unsorted entries, each given twice), and rounded up: `tests/model/test_archive_bombs.py`.
_KEYS: Final[Mapping[str, _Key]] = {
    "format": _SCALAR,
    "states": _SCALAR,
    "actions": _SCALAR,
    "indptr": _Key("iu", "R", 40),
    "successors": _Key("iu", "N", 50),
    "probabilities": _Key("f", "N", 50),
    "rewards": _Key("fiu", "SA"),
    "transition_rewards": _Key("fiu", "N", 60),
    "reward_spread": _Key("fiu", "N"),
    "label_names": _Key("U", "L", 2 * _NAMES, 12),
    "labels": _Key("b", "LS", 4),
    "initial": _Key("f", "S"),
    "signals": _SCALAR,
    "emission_indptr": _Key("iu", "*", 40),
    "observed": _Key("iu", "*", 80),
    "emission_probabilities": _Key("f", "*", 80),
    "signal_names": _Key("U", "*", _NAMES, 12),
    "emission_visits": _Key("iu", "*", 150),
    "emission_since": _Key("iu", "*", 30),
    "emission_prior": _NUMBER,
    "observations": _Key("fiu", "S*"),
    "samples": _Key("fiu", "**", 40),
    "sample_states": _Key("iu", "*", 40),
    "state_names": _Key("U", "S", _NAMES, 12),
    "action_names": _Key("U", "A", _NAMES, 12),
    "valuations": _Key("U", "S", _NAMES, 32),
    "centres": _Key("fiu", "S*", 80),
    "centre_scales": _Key("fiu", "*"),
    "ranges": _Key("fiu", "**"),
    "dimension_names": _Key("U", "*", _NAMES, 12),
    "ended_as": _Key("iu", "S", 40),
    "visits": _Key("iu", "N", 150),
    "since": _Key("iu", "N", 30),
    "row_order": _Key("iu", "SA", 60),
    "elsewhere": _SCALAR,
    "prior": _NUMBER,
    "unknown": _Key("b", "LS", 4),
}
_EDGES: Final = _Key("fiu", "*", 40)
_BIN_NAMES: Final = _Key("U", "*", 2 * _NAMES, 12)
_REQUIRED: Final = ("format", "states", "actions", "indptr", "successors", "probabilities")
BIN_EDGES: Final = re.compile(r"bin_edges_(0|[1-9][0-9]{0,2})\Z")
BIN_NAMES: Final = re.compile(r"bin_names_(0|[1-9][0-9]{0,2})\Z")
_HEADER: Final = re.compile(
    r"\{\s*'descr':\s*'([<>|=](?:b1|[iu][1248]|f[248]|U[1-9][0-9]{0,6}))',"
    r"\s*'fortran_order':\s*(True|False),\s*'shape':\s*\(([0-9, ]{0,80})\),?\s*\}\s*\Z"
)


def _key_of(key: str) -> _Key:
    return _KEYS.get(key) or (_BIN_NAMES if BIN_NAMES.match(key) else _EDGES)


@dataclass(frozen=True)
class _Header:
    """Header of a member; the array's bytes begin at `start`."""

    key: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    fortran: bool
    start: int

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def memory(self) -> int:
        """Largest number of bytes that reading the array takes."""
        key = _key_of(self.key)
        characters = self.dtype.itemsize // 4 if self.dtype.kind == "U" else 0
        return self.size * (self.dtype.itemsize + key.each + key.character * characters)


def unpacked(content: bytes, limit: int) -> dict[str, AnyArray]:
    """Return the arrays by key, with the kind and size that their keys require; reading takes at most `limit` bytes.

    Raises:
        ModelError: the archive has other members, or more data. If the bytes are no archive, also errors of `zipfile`.
    """
    check_directory(content)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = _members(archive)
        _check_unpacked(members.values(), limit)
        headers = {key: _header(archive, member, key) for key, member in members.items()}
        if missing := [key for key in _REQUIRED if key not in headers]:
            raise ModelError(f"key {missing[0]!r} is missing")
        needed = len(content) + sum(header.memory for header in headers.values())
        if needed > limit:
            raise LargeModelError(
                f"reading it takes {needed:,} bytes of memory, more than the limit of {limit:,} bytes"
            )
        counts = [_array(archive, members[key], headers[key]).reshape(()) for key in ("states", "actions")]
        _check_sizes(headers, int(counts[0]), int(counts[1]))
        return {key: _array(archive, members[key], header) for key, header in headers.items()}


def check_archive(content: bytes, limit: int) -> None:
    """Raise ModelError if an archive has far too many members, or unpacks to more than `limit` bytes.

    If the bytes are no archive, also raises errors of `zipfile`.
    """
    check_directory(content)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        _check_unpacked(archive.infolist(), limit)


def _check_unpacked(members: Iterable[zipfile.ZipInfo], limit: int) -> None:
    if sum(member.file_size for member in members) > limit:
        raise LargeModelError(f"it unpacks to more than the limit of {limit:,} bytes")


def check_directory(content: bytes) -> None:
    """Refuse a long list of members before zipfile makes an object for each member.

    `content`: the archive, or enough bytes of its end.
    """
    end = content.rfind(b"PK\x05\x06", max(0, len(content) - MAX_DIRECTORY_BYTES))
    beyond = content.rfind(b"PK\x06\x07", max(0, end - 20), max(0, end)) >= 0  # a ZIP64 archive: the size is elsewhere
    size = int.from_bytes(content[end + 12 : end + 16], "little")
    if end >= 0 and (beyond or size > MAX_DIRECTORY_BYTES):
        raise ModelError("it holds far more members than a model has")


def read_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
    """Return the content of a member. At most as many bytes are read as the archive's directory states."""
    with archive.open(member) as file:
        # If no size is passed, zipfile unpacks everything first and truncates afterwards.
        return file.read(member.file_size)


def _members(archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    members: dict[str, zipfile.ZipInfo] = {}
    for member in archive.infolist():
        key = member.filename.removesuffix(".npy")
        if key not in _KEYS and not BIN_EDGES.match(key) and not BIN_NAMES.match(key):
            known = f"{', '.join(_KEYS)}, bin_edges_0 .., bin_names_0 .."
            raise ModelError(f"unknown key {key[:80]!r}; the keys are {known}")
        if key in members:
            raise ModelError(f"key {key!r} occurs twice")
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise ModelError(f"key {key!r}: only stored or deflated members are read")
        members[key] = member
    return members


def _header(archive: zipfile.ZipFile, member: zipfile.ZipInfo, key: str) -> _Header:
    """Parse the first bytes of a member. NumPy's own reader would evaluate them, and allocate memory unchecked."""
    with archive.open(member) as file:
        begin = file.read(LONGEST_HEADER)
    width = {1: 2, 2: 4, 3: 4}.get(begin[6] if begin[:6] == b"\x93NUMPY" and len(begin) > 6 else 0)
    if width is None:
        raise ModelError(f"key {key!r} is not a NumPy array")
    start = 8 + width + int.from_bytes(begin[8 : 8 + width], "little")
    found = _HEADER.match(begin[8 + width : start].decode("latin-1"))
    if found is None:
        raise ModelError(f"key {key!r}: its header is not that of a plain array of numbers or text")
    dtype, shape = np.dtype(found[1]), tuple(int(n) for n in found[3].split(",") if n.strip())
    kinds = _key_of(key).kinds
    if dtype.kind not in kinds:
        raise ModelError(f"key {key!r} holds {dtype}, not one of the kinds {', '.join(kinds)}")
    header = _Header(key, dtype, shape, found[2] == "True", start)
    if member.file_size - start != header.size * dtype.itemsize:
        raise ModelError(f"key {key!r}: {member.file_size - start} bytes do not fit shape {shape} of {dtype}")
    if _KEYS.get(key) in {_SCALAR, _NUMBER} and header.size != 1:
        raise ModelError(f"key {key!r} must be one number")
    return header


def _check_sizes(headers: Mapping[str, _Header], states: int, actions: int) -> None:
    """Refuse an array that is larger than the others allow. Arrays that are too small are refused later."""
    checked_size(states, actions)
    names, labels = headers.get("label_names"), headers.get("labels")
    most = {
        "R": states * actions + 1,
        "N": headers["successors"].size,
        "SA": states * actions,
        "S": states,
        "A": actions,
        "L": 1 if labels is None else max([1, *labels.shape[:1]]),
        "LS": (1 if names is None else max(1, names.size)) * states,
    }
    for key, header in headers.items():
        allowed = most.get(_key_of(key).shape, header.size)
        if header.size > max(1, allowed):
            raise ModelError(f"key {key!r} holds {header.size:,} elements where {allowed:,} fit the other arrays")


def _array(archive: zipfile.ZipFile, member: zipfile.ZipInfo, header: _Header) -> AnyArray:
    content = read_member(archive, member)
    if len(content) != member.file_size:
        raise ModelError(f"key {header.key!r} ends too soon")
    flat = np.frombuffer(content, header.dtype, offset=header.start)
    if header.dtype.kind == "U":
        points = np.frombuffer(content, header.dtype.byteorder + "u4", offset=header.start)
        if bool(((points > 0x10FFFF) | ((points >= 0xD800) & (points <= 0xDFFF))).any()):
            raise ModelError(f"key {header.key!r} holds text that is not Unicode")
    return flat.reshape(header.shape[::-1]).T if header.fortran else flat.reshape(header.shape)
