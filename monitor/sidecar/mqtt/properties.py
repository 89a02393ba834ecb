"""Properties and reasons of MQTT 5, read from bytes; without I/O."""

from __future__ import annotations

from typing import Final, TypeAlias

Properties: TypeAlias = dict[int, int | bytes]

REFERENCE, REASON = 0x1C, 0x1F
"""Properties with texts that explain a reason."""

_NAMES: Final = (
    "Unspecified error,Malformed packet,Protocol error,Implementation specific error,Unsupported protocol version,"
    "Client identifier not valid,Bad user name or password,Not authorized,Server unavailable,Server busy,Banned,"
    "Server shutting down,Bad authentication method,Keep alive timeout,Session taken over,Topic filter invalid,"
    "Topic name invalid,Packet identifier in use,Packet identifier not found,Receive maximum exceeded,"
    "Topic alias invalid,Packet too large,Message rate too high,Quota exceeded,Administrative action,"
    "Payload format invalid,Retain not supported,QoS not supported,Use another server,Server moved,"
    "Shared subscriptions not supported,Connection rate exceeded,Maximum connect time,"
    "Subscription identifiers not supported,Wildcard subscriptions not supported"
)
_REASONS: Final = _NAMES.split(",")
"""Reasons of MQTT 5 from 0x80 on. Smaller codes are no errors."""

_FIXED: Final = {
    **dict.fromkeys((0x01, 0x17, 0x19, 0x24, 0x25, 0x28, 0x29, 0x2A), 1),
    **dict.fromkeys((0x13, 0x21, 0x22, 0x23), 2),
    **dict.fromkeys((0x02, 0x11, 0x18, 0x27), 4),
}
"""Property -> number of bytes of its value, if it is a number. 0x26 has two texts; the others have one text. 0x0B is in
no packet read here."""
_TEXTS: Final = frozenset((0x03, 0x08, 0x09, 0x12, 0x15, 0x16, 0x1A, 0x1C, 0x1F, 0x26))


class MalformedPacketError(ValueError):
    """The peer sent bytes that are not MQTT."""


def read_length(data: bytes, at: int, end: int) -> tuple[int, int] | None:
    """Return a number of variable length and the position after it; None if it does not end before `end`."""
    size = 0
    for place in range(4):
        if at + place >= end:
            return None
        byte = data[at + place]
        size |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return size, at + place + 1
    raise MalformedPacketError("a length of more than four bytes")


def span(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Return the positions at which properties begin and end. Their length is at position `at`."""
    size, begin = read_length(data, at, end) or (end, at)
    demand(begin + size <= end)
    return begin, begin + size


def properties(data: bytes, at: int) -> Properties:
    """Return the properties after their length at position `at`. If a property is repeated, the last one counts."""
    at, end = span(data, at, len(data))
    found: Properties = {}
    while at < end:
        key, at = data[at], at + 1
        if (size := _FIXED.get(key)) is not None:
            found[key], at = int.from_bytes(data[at : at + size]), at + size
        else:
            demand(key in _TEXTS)
            for _ in range(1 + (key == 0x26)):
                begin = at + 2
                at = begin + int.from_bytes(data[at:begin])
                found[key] = data[begin:at]
    demand(at == end)
    return found


def number_of(given: Properties, key: int, default: int) -> int:
    """Return the value of a property if it is a number, else `default`."""
    value = given.get(key, default)
    return value if isinstance(value, int) else default


def words_of(code: int, given: Properties) -> str:
    """Return a reason and the broker's explanation of it, in one line."""
    more = [given[key] for key in (REASON, REFERENCE) if key in given]
    texts = [text.decode("utf-8", "replace")[:200] for text in more if isinstance(text, bytes)]
    known = _REASONS[code - 0x80] if 0x80 <= code < 0x80 + len(_REASONS) else f"reason code {code}"
    return ": ".join([known, *("".join(c if c.isprintable() else " " for c in text) for text in texts)])


def demand(held: bool) -> None:  # noqa: FBT001 - what is demanded
    """Raise MalformedPacketError unless `held` is true."""
    if not held:
        raise MalformedPacketError("a packet that is too short, or longer than it says")
