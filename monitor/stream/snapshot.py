"""Snapshots: state as msgpack bytes with a version and a checksum.

Layout: `cfms`, a version byte, the 16-byte BLAKE2b hash of the body, the body. Bytes with a correct checksum were
written by this program, so only the types in them are checked.
"""

from __future__ import annotations

import hashlib
from functools import cache
from typing import TypeVar

import msgspec

from monitor.errors import InputError

VERSION = 6
_MAGIC = b"cfms"
_HEAD = len(_MAGIC) + 1
_BODY = _HEAD + 16

S = TypeVar("S", bound=msgspec.Struct)
_written = msgspec.msgpack.Encoder().encode


def seal(state: msgspec.Struct) -> bytes:
    """Serialize a state, with version and checksum."""
    body = _written(state)
    return b"%b%c%b%b" % (_MAGIC, VERSION, _checksum(body), body)


def unseal(data: bytes, kind: type[S]) -> S:
    """Return the state of class `kind` from the bytes that `seal` returned.

    Raises:
        InputError: `bad_snapshot`, if the bytes are damaged or no snapshot, or have another version or class.
    """
    if data[: len(_MAGIC)] != _MAGIC:
        raise InputError("bad_snapshot", "these bytes are no snapshot; start anew without it")
    if data[len(_MAGIC) : _HEAD] != bytes([VERSION]):
        raise InputError("bad_snapshot", f"the snapshot is not of version {VERSION}; start anew without it")
    body = data[_BODY:]
    if data[_HEAD:_BODY] != _checksum(body):
        raise InputError("bad_snapshot", "the snapshot is damaged: its checksum differs; start anew without it")
    try:
        state: S = _reader(kind).decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(
            "bad_snapshot", f"the snapshot has another content than expected ({error}); start anew without it"
        ) from error
    return state


@cache
def _reader(kind: type[S]) -> msgspec.msgpack.Decoder[S]:
    return msgspec.msgpack.Decoder(kind)


def _checksum(body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=16, usedforsecurity=False).digest()
