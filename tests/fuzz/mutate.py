"""Small changes to inputs, made where a reader's rules are: a value of a tree, a token of a text, a field of protobuf.

Raw bytes seldom get past the first check of a reader. Each function here takes a generator of chance and an input, and
gives back one like it; an input it cannot take apart comes back with a few bytes changed.
"""

from __future__ import annotations

import io
import json
import random
import re
import struct
import warnings
import zipfile
import zlib
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgpack

__all__ = ["Mutation", "json_text", "msgpack_bytes", "npz_bytes", "protobuf_bytes", "raw", "text", "tree"]

Mutation = Callable[[random.Random, bytes], bytes]

ODD: Final[Sequence[Any]] = (
    *(None, True, False, 0, 1, 2, -1, 3, 7, 255, 256, 65536, 2**31 - 1, 2**31, -(2**31), 2**53 + 1, 2**63 - 1, 2**63),
    *(-(2**63), 2**64 - 1, 0.0, -0.0, 0.5, 1.0, -1.0, 1e-320, 1e308, -1e308, float("inf"), float("-inf"), float("nan")),
    *("", "a", "nominal", "lost", "\0", "\n", "é", "\ud800", "\U0001f600", "a" * 65, "a" * 300, "../x", "1e400", "NaN"),
    *([], {}, [[]], {"": None}, [0, 0], [0] * 17, {"v": 1}, "0" * 64, "f" * 64),
)
"""Values that rules have edges at."""

BYTES: Final = (b"", b"\0", b"\xff", b"\x00\x01", b"\xff" * 9, b"\xef\xbb\xbf", b"\x80", b"\x7f\xff\xff\xff")


def raw(rng: random.Random, data: bytes) -> bytes:
    """A few bytes replaced, removed, repeated or put in."""
    content = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        at = rng.randrange(len(content) + 1)
        size = rng.choice((0, 1, 1, 2, 4, 16))
        match rng.randrange(4):
            case 0:
                content[at : at + size] = rng.randbytes(size)
            case 1:
                del content[at : at + size]
            case 2:
                content[at:at] = content[at : at + size] * rng.choice((1, 2, 8))
            case _:
                content[at : at + size] = rng.choice(BYTES)
    return bytes(content)


def tree(rng: random.Random, value: Any) -> Any:  # noqa: ANN401 - any plain data
    """The same data with one place changed: a value replaced, removed, doubled, wrapped, or moved to another place."""
    places: list[tuple[Any, Any]] = []
    _places(value, places)
    if not places or rng.random() < 0.02:
        return rng.choice(ODD)
    holder, key = rng.choice(places)
    match rng.randrange(6):
        case 0 | 1:
            holder[key] = rng.choice(ODD)
        case 2:
            del holder[key]
        case 3 if isinstance(holder, list):
            holder[key:key] = [holder[key]] * rng.choice((1, 2, 20))
        case 3:
            holder[rng.choice(("v", "x", "name", "", str(key) + "x", key))] = rng.choice(ODD)
        case 4:
            other, where = rng.choice(places)
            holder[key] = json_like(other.get(where) if isinstance(other, dict) else next(iter(other[where:]), None))
        case _:
            holder[key] = _near(rng, holder[key])
    return value


def _near(rng: random.Random, value: Any) -> Any:  # noqa: ANN401 - likewise
    """A value of the same kind, not far off; a container is wrapped."""
    match value:
        case bool() | None:
            return not value
        case int():
            return value + rng.choice((-1, 1, 1, 256, -value, 2**32))
        case float():
            return value * rng.choice((-1.0, 0.5, 1.0000001, 2.0, 1e300))
        case str():
            return text(rng, value.encode("utf-8", "surrogatepass"), ()).decode("utf-8", "replace")
        case bytes():
            return raw(rng, value)
        case _:
            return [value] if rng.random() < 0.5 else {"x": value}


def json_like(value: Any) -> Any:  # noqa: ANN401 - likewise
    """A copy, so that no part of a tree hangs in two places."""
    match value:
        case dict():
            return {key: json_like(item) for key, item in value.items()}
        case list() | tuple():
            return [json_like(item) for item in value]
        case _:
            return value


def _places(value: Any, found: list[tuple[Any, Any]], depth: int = 0) -> None:  # noqa: ANN401 - likewise
    """Every (container, key) in a tree, as far as it is worth it."""
    if depth > 20 or len(found) > 2000:
        return
    for key in list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        found.append((value, key))
        _places(value[key], found, depth + 1)


# ---- forms a tree is written in ----


def msgpack_bytes(rng: random.Random, data: bytes) -> bytes:
    """One msgpack value, changed as a tree; now and then its bytes are changed as well."""
    try:
        value = msgpack.unpackb(data, strict_map_key=False, unicode_errors="surrogatepass")
        written = msgpack.packb(tree(rng, json_like(value)), unicode_errors="surrogatepass")
    except (ValueError, TypeError, OverflowError, RecursionError, msgpack.UnpackException):
        return raw(rng, data)
    return raw(rng, written) if rng.random() < 0.1 else bytes(written)


def json_text(rng: random.Random, data: bytes) -> bytes:
    """One JSON value, changed as a tree; now and then its text is changed as well."""
    try:
        written = json.dumps(tree(rng, json.loads(data)), ensure_ascii=rng.random() < 0.5)
    except (ValueError, TypeError, RecursionError):
        return raw(rng, data)
    content = written.encode("utf-8", "surrogatepass")
    return raw(rng, content) if rng.random() < 0.1 else content


# ---- text ----

_TOKEN: Final = re.compile(r"\w+|\s+|[^\w\s]")


def text(rng: random.Random, data: bytes, words: Sequence[str]) -> bytes:
    """Tokens replaced by others of the text or of `words`, removed, repeated or exchanged."""
    tokens = _TOKEN.findall(data.decode("utf-8", "replace"))
    pool = [*words, *tokens] or [" "]
    for _ in range(rng.choice((1, 1, 2, 3, 8))):
        at = rng.randrange(len(tokens) + 1)
        until = at + rng.choice((0, 1, 1, 2, 5))
        match rng.randrange(5):
            case 0:
                tokens[at:until] = [rng.choice(pool)]
            case 1:
                del tokens[at:until]
            case 2:
                tokens[at:at] = tokens[at:until] * rng.choice((1, 2, 30))
            case 3:
                tokens[at:until] = [str(rng.choice(ODD))]
            case _:
                elsewhere = rng.randrange(len(tokens) + 1)
                tokens[at:until] = tokens[elsewhere : elsewhere + until - at]
    return "".join(tokens).encode("utf-8", "replace")


# ---- archives of arrays ----


def npz_bytes(rng: random.Random, data: bytes) -> bytes:
    """One member of a `.npz` changed (header, numbers, name) or left out or doubled, and packed again."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = [(member.filename, archive.read(member)) for member in archive.infolist()]
        at = rng.randrange(len(members))
    except (zipfile.BadZipFile, zlib.error, struct.error, EOFError, OSError, ValueError, RuntimeError):
        return raw(rng, data)
    name, content = members[at]
    match rng.randrange(8):
        case 0:
            members[at] = (rng.choice(members)[0], content)
        case 1:
            del members[at]
        case 2:
            members.append((name, content))
        case 3:
            members[at] = (name, _header(rng, content))
        case 4:
            members[at] = (name, rng.choice(members)[1])
        case _:
            members[at] = (name, _numbers(rng, content))
    written = io.BytesIO()
    packing = rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))
    with (
        warnings.catch_warnings(action="ignore"),
        zipfile.ZipFile(written, "w", packing) as archive,
    ):  # of doubled names
        for each, inside in members:
            archive.writestr(zipfile.ZipInfo(each), inside, compress_type=archive.compression)
    return raw(rng, written.getvalue()) if rng.random() < 0.05 else written.getvalue()


def _header(rng: random.Random, content: bytes) -> bytes:
    """Another type, order or shape in the header of an array."""
    swaps = [
        *((b"<i8", new) for new in (b"<i4", b"<u8", b"<f8", b"|b1", b">i8", b"<U2", b"|O8")),
        *((b"<f8", new) for new in (b"<f4", b"<f2", b"<i8", b">f8", b"<U2")),
        *((b"False", b"True"), (b"(", b"(1, "), (b",)", b", 1)"), (b",)", b", 0)"), (b",)", b",999999999999)")),
    ]
    old, new = rng.choice(swaps)
    return content.replace(old, new, 1)


def _numbers(rng: random.Random, content: bytes) -> bytes:
    """A number somewhere behind the header."""
    changed = bytearray(content)
    at = min(128 + 8 * rng.randrange(max(1, (len(content) - 120) // 8)), len(content))
    number = rng.choice([odd for odd in ODD if isinstance(odd, int | float) and odd is not None])
    packed = struct.pack("<d", number) if isinstance(number, float) else (int(number) % 2**64).to_bytes(8, "little")
    changed[at : at + 8] = packed[: len(content) - at]
    return bytes(changed)


# ---- protobuf ----

Field = tuple[int, int, int | bytes]
"""Number, wire type, and the integer or the bytes in it."""


def protobuf_bytes(rng: random.Random, data: bytes, depth: int = 0) -> bytes:
    """One field of the message changed, or of a message in it, so that all lengths around it stay true."""
    fields = _fields(data)
    if not fields:
        return raw(rng, data)
    at = rng.randrange(len(fields))
    number, wire, value = fields[at]
    if isinstance(value, bytes) and depth < 80 and rng.random() < 0.8:
        fields[at] = (number, wire, protobuf_bytes(rng, value, depth + 1))
    else:
        match rng.randrange(6):
            case 0:
                del fields[at]
            case 1:
                fields.insert(at, fields[at])
            case 2:
                fields[at] = (rng.choice((1, 2, 4, 5, 6, 7, 8, 10, 13, 14, 15, 20, 22, 25, 2**29 - 1)), wire, value)
            case 3:
                fields.append((14, 0, 1))
            case 4 if isinstance(value, bytes):
                fields[at] = (number, wire, _field(fields[at]))  # the message inside itself
            case _:
                changed = rng.choice((0, 1, 2**63, 2**64 - 1)) if isinstance(value, int) else raw(rng, value)
                fields[at] = (number, wire, changed)
    return b"".join(map(_field, fields))


def _fields(data: bytes) -> list[Field]:
    """The fields of a message; none if these bytes are no message."""
    fields: list[Field] = []
    at = 0
    try:
        while at < len(data):
            tag, at = _varint(data, at)
            value: int | bytes
            match tag & 7:
                case 0:
                    value, at = _varint(data, at)
                case 2:
                    length, at = _varint(data, at)
                    value, at = data[at : at + length], at + length
                case 1 | 5:
                    length = 8 if tag & 7 == 1 else 4
                    value, at = data[at : at + length], at + length
                case _:
                    return []
            if at > len(data) or tag >> 3 == 0:
                return []
            fields.append((tag >> 3, tag & 7, value))
    except IndexError:
        return []
    return fields


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at


def _field(field: Field) -> bytes:
    number, wire, value = field
    tag = _written(number << 3 | wire)
    if isinstance(value, int):
        return tag + _written(value)
    return tag + (_written(len(value)) if wire == 2 else b"") + value


def _written(number: int) -> bytes:
    written = bytearray()
    while number > 0x7F:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*written, number])
