"""Parse a payload of limited size, in msgpack or JSON, into a map.

The first byte decides: the first byte of a msgpack map is at least 0x80, the first byte of JSON text is smaller.
"""

from __future__ import annotations

import json
from typing import Any, NoReturn

import msgspec

from monitor.errors import InputError

MAX_BYTES = 65536
"""Largest payload accepted, in bytes."""

_read = msgspec.msgpack.Decoder().decode
_read_text = msgspec.json.Decoder().decode

_MALFORMED = (ValueError, TypeError, OverflowError, RecursionError)
"""Exceptions of the two parsers for bad bytes. Fuzz tests check that there are no others."""


def unpack(payload: bytes, max_bytes: int = MAX_BYTES) -> dict[Any, Any]:
    """Return the map in a payload. Its keys and values are not checked.

    Raises:
        InputError: `too_large`, `malformed`, `not_a_map`, `duplicate_key`, or `not_finite` for JSON's NaN.

    >>> unpack(b'{"v": 1}')
    {'v': 1}
    """
    if len(payload) > max_bytes:
        raise InputError("too_large", f"the payload has more than {max_bytes} bytes; send at most that many")
    if not payload:
        raise InputError("malformed", "the payload is empty; send a msgpack map or a JSON object")
    found = _read_json(payload) if payload[0] < 0x80 else _read_msgpack(payload)
    if not isinstance(found, dict):
        raise InputError("not_a_map", f"the payload is a {type(found).__name__}; send a msgpack map or a JSON object")
    return found


def _read_msgpack(payload: bytes) -> object:
    try:
        found = _read(payload)
    except _MALFORMED as error:
        raise InputError("malformed", f"the payload is not one whole msgpack map: {_brief(error)}") from error
    if isinstance(found, dict) and len(found) < _keys_sent(payload):
        raise _duplicate()
    return found


def _keys_sent(payload: bytes) -> int:
    """Return the number of keys that a msgpack map declares, in its first byte or in the two or four bytes after it."""
    match payload[0]:
        case 0xDE:
            return int.from_bytes(payload[1:3])
        case 0xDF:
            return int.from_bytes(payload[1:5])
        case first:
            return first & 0x0F


def _read_json(payload: bytes) -> object:
    """Return the value of a JSON text. The faster parser reads most texts, but does not notice repeated keys.

    Every key and every text value has two quotation marks. If the payload has no more quotation marks than the keys and
    texts that were read, no key was repeated. If the payload has more, for example because of nesting or escapes, the
    slower parser reads it again.
    """
    try:
        found = _read_text(payload)
    except _MALFORMED:
        return _read_json_slowly(payload)  # this parser detects constants that are not JSON, and explains other errors
    if isinstance(found, dict) and payload.count(b'"') == 2 * (len(found) + list(map(type, found.values())).count(str)):
        return found
    return _read_json_slowly(payload)


def _read_json_slowly(payload: bytes) -> object:
    try:
        text = payload.decode("utf-8")
        return json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_without_duplicates)
    except _MALFORMED as error:
        raise InputError("malformed", f"the payload is not one whole JSON object: {_brief(error)}") from error


def _without_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise _duplicate()
    return found


def _duplicate() -> InputError:
    return InputError("duplicate_key", "a key occurs twice in the payload; send each key once")


def _refuse_constant(word: str) -> NoReturn:
    raise InputError("not_finite", f"the payload holds {word}; send finite numbers")


def _brief(error: BaseException) -> str:
    """Return the parser's message. It is truncated, because it may quote the payload."""
    return (str(error) or type(error).__name__)[:120]
