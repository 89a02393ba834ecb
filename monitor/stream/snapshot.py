"""A session's state as bytes: msgpack behind a version and a checksum.

Layout: `cfms`, one byte version, 16 bytes BLAKE2b of the body, body. A body that passes the checksum was written here,
so it is read without checking every field again.
"""

from __future__ import annotations

import hashlib
from typing import Any, assert_never

import msgpack

from monitor.errors import InputError
from monitor.types import Break, End, Step

__all__ = ["VERSION", "pack_event", "seal", "unpack_event", "unseal"]

VERSION = 2
_MAGIC = b"cfms"
_HEAD = len(_MAGIC) + 1


def seal(body: dict[str, object]) -> bytes:
    """The bytes of a snapshot."""
    packed = bytes(msgpack.packb(body))
    return _MAGIC + bytes([VERSION]) + _checksum(packed) + packed


def unseal(data: bytes) -> dict[str, Any]:
    """The inverse of `seal`.

    Raises:
        InputError: `bad_snapshot`, for other bytes or another version.
    """
    if data[: len(_MAGIC)] != _MAGIC:
        raise InputError("bad_snapshot", "these bytes are no session snapshot; start the session anew")
    if data[len(_MAGIC) : _HEAD] != bytes([VERSION]):
        raise InputError("bad_snapshot", f"the snapshot is not of version {VERSION}; start the session anew")
    packed = data[_HEAD + 16 :]
    if data[_HEAD : _HEAD + 16] != _checksum(packed):
        raise InputError("bad_snapshot", "the snapshot is damaged: its checksum differs; start the session anew")
    body: dict[str, Any] = msgpack.unpackb(packed, strict_map_key=False)
    return body


def pack_event(event: Step | Break | End) -> list[object]:
    """An event as plain data."""
    match event:
        case Step(episode, seq, state, action, time, late, foreign):
            return ["step", episode, seq, state, action, time, late, foreign]
        case Break(reason, detail):
            return ["break", reason, detail]
        case End(episode, terminated):
            return ["end", episode, terminated]
        case _:
            assert_never(event)


def unpack_event(plain: list[Any]) -> Step | Break | End:
    """The inverse of `pack_event`."""
    kinds: dict[str, type[Step | Break | End]] = {"step": Step, "break": Break, "end": End}
    return kinds[plain[0]](*plain[1:])


def _checksum(packed: bytes) -> bytes:
    return hashlib.blake2b(packed, digest_size=16, usedforsecurity=False).digest()
