"""Encode and decode MQTT 3.1.1 and 5, for a client that subscribes and publishes with QoS 0 and 1. Without I/O.

The existing codecs support only one version (mqtt5: only 5), or read one packet at a time (paho: 14 us for a PUBLISH
and its acknowledgement). In one call, this codec reads all bytes that have arrived, at about 1 us per message.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from functools import lru_cache
from typing import Final, Literal, NamedTuple, TypeAlias

from monitor.sidecar.mqtt.properties import (
    MalformedPacketError,
    Properties,
    demand,
    number_of,
    properties,
    read_length,
    span,
    words_of,
)

__all__ = [
    "DISCONNECT",
    "MAX_ID",
    "PING",
    "BrokerReply",
    "Codec",
    "Greeting",
    "MalformedPacketError",
    "Packet",
    "Version",
    "acknowledge",
]

Version: TypeAlias = Literal["5", "3.1.1"]
Packet: TypeAlias = tuple[int, bytes]
"""Type (first byte without flags) and content of a packet other than PUBLISH."""

PING: Final = b"\xc0\x00"
DISCONNECT: Final = b"\xe0\x00"
MAX_ID: Final = 65535
CONNACK, PUBLISH, PUBACK, SUBACK, UNSUBACK, PINGRESP, GOODBYE = 0x20, 0x30, 0x40, 0x90, 0xB0, 0xD0, 0xE0

NEVER: Final = 0xFFFFFFFF
"""Session expiry interval with which the broker keeps the session forever, as in 3.1.1."""

LONGEST: Final = 32 << 20
"""Maximum number of bytes kept of a packet. It exceeds any `limits.message_bytes`, so that a message that is too long
arrives and is reported. With MQTT 5 the broker may not send longer packets. With 3.1.1 the broker cannot know the
limit, and the rest of a longer packet is dropped."""

LONGEST_ANSWER: Final = 256 << 10
"""Maximum number of bytes of a packet other than PUBLISH. Its texts may have up to 64 KiB each."""

KEPT: Final = 256
"""Maximum number of bytes of a topic whose decoded text is cached. Thousands of topics of 65,535 bytes would fill the
memory."""

UNSUPPORTED: Final = 0x84
_OLD_CODES: Final = {1: UNSUPPORTED, 2: 0x85, 3: 0x88, 4: 0x86, 5: 0x87}
"""Codes of CONNACK in MQTT 3.1.1 -> codes of MQTT 5."""

EXPIRY, KEEPALIVE, RECEIVE_MAXIMUM, MAX_QOS, RETAIN, MAX_PACKET = 0x11, 0x13, 0x21, 0x24, 0x25, 0x27
"""Properties that this client sends or uses."""
_short = struct.Struct(">H")


class Greeting(NamedTuple):
    """CONNACK. `code`: a reason code of MQTT 5, also for a broker that speaks 3.1.1; 0 if the broker accepts.

    `old`: whether the answer has the form of 3.1.1. `keepalive`: keepalive in seconds that the broker demands in place
    of the requested one.
    """

    session_present: bool
    code: int
    words: str
    old: bool
    keepalive: int | None
    receive_maximum: int
    max_qos: int
    retain: bool
    max_packet: int


class BrokerReply(NamedTuple):
    """PUBACK, SUBACK, or DISCONNECT with id 0. `words`: why the broker refuses or disconnects; None if it accepts."""

    id: int
    words: str | None


class Codec:
    """Encoder and decoder of one connection, for one version. The beginning of a packet is kept until the rest arrives.

    At most `LONGEST` bytes are kept, for any declared length and any size of the pieces.
    """

    def __init__(self, version: Version) -> None:
        self._five = version == "5"
        self._nothing = b"\0" if self._five else b""
        """no properties"""
        self._kept = bytearray()
        self._needed = 0
        self._cut: tuple[str, bytes, int] | None = None  # kept part of a message whose rest is dropped
        self._dropping = 0  # remaining bytes to drop

    # ---- received ----

    def feed(self, data: bytes) -> tuple[list[tuple[str, bytes, int]], list[Packet]]:
        """Return the messages (topic, payload, id; 0 for QoS 0) and the other packets that `data` completes, in order.

        The topic is empty if it is not UTF-8; a broker should not forward such a message. Raises MalformedPacketError
        for a packet that a broker may not send, as soon as its first bytes show it.
        """
        messages: list[tuple[str, bytes, int]] = []
        packets: list[Packet] = []
        if self._cut is not None:
            data = self._drop(data, messages)
        if self._kept:
            self._kept += data
            if len(self._kept) < self._needed:
                return messages, packets
            data, self._kept = bytes(self._kept), bytearray()
        at, end, five = 0, len(data), self._five
        needed = 2
        while at + 2 <= end:
            kind, size, start = data[at], data[at + 1], at + 2
            if size > 0x7F:
                if (length := read_length(data, at + 1, end)) is None:
                    needed = end - at + 1
                    break
                size, start = length
            stop = start + size
            if size > LONGEST_ANSWER and (kind & 0xF0 != PUBLISH or size > LONGEST):
                if kind & 0xF0 != PUBLISH or five:
                    raise MalformedPacketError(f"a packet of type 0x{kind & 0xF0:02X} and {size} bytes")
                if at + LONGEST > end:
                    needed = LONGEST
                    break
                self._cut, self._dropping = _message(data, kind, start, at + LONGEST, five), stop - at - LONGEST
                data = self._drop(data[at + LONGEST :], messages)
                at, end = 0, len(data)
                continue
            if stop > end:
                needed = stop - at
                break
            if kind & 0xF0 == PUBLISH:
                messages.append(_message(data, kind, start, stop, five))
            else:
                packets.append((kind & 0xF0, data[start:stop]))
            at = stop
        if at < end:
            self._kept, self._needed = bytearray(data[at:]), needed
        return messages, packets

    def _drop(self, data: bytes, messages: list[tuple[str, bytes, int]]) -> bytes:
        """Drop the rest of a message that is too long. When all of it has arrived, add its kept part to `messages`.

        Return the bytes that follow.
        """
        dropped = min(self._dropping, len(data))
        self._dropping -= dropped
        if not self._dropping and self._cut is not None:
            messages.append(self._cut)
            self._cut = None
        return data[dropped:]

    def greeting(self, content: bytes) -> Greeting:
        """Decode the content of CONNACK."""
        demand(len(content) >= 2)
        code = _OLD_CODES.get(content[1], content[1])
        old = len(content) == 2
        given = properties(content, 2) if self._five and not old else {}
        return Greeting(
            session_present=content[0] & 1 == 1,
            code=code,
            words=words_of(code, given),
            old=old,
            keepalive=number_of(given, KEEPALIVE, 0) or None,
            receive_maximum=number_of(given, RECEIVE_MAXIMUM, MAX_ID) or 1,
            max_qos=number_of(given, MAX_QOS, 2),
            retain=number_of(given, RETAIN, 1) == 1,
            max_packet=number_of(given, MAX_PACKET, NEVER),
        )

    def answer(self, packet: Packet) -> BrokerReply:
        """Decode the content of PUBACK, SUBACK or DISCONNECT."""
        kind, content = packet
        given: Properties = {}
        at, codes = 0 if kind == GOODBYE else 2, b""
        demand(len(content) >= at)
        if kind == SUBACK:
            at = span(content, at, len(content))[1] if self._five else at
            codes = content[at:]
            demand(len(codes) > 0)
        elif self._five and len(content) > at:
            codes = content[at : at + 1]
            given = properties(content, at + 1) if len(content) > at + 1 else {}
        worst = max(codes, default=0)
        refused = worst >= 0x80 or kind == GOODBYE
        return BrokerReply(
            0 if kind == GOODBYE else int.from_bytes(content[:2]), words_of(worst, given) if refused else None
        )

    # ---- sent ----

    def connect(
        self,
        client_id: str,
        keepalive: int,
        will: tuple[str, bytes],
        credentials: tuple[str, str | None] | None,
        receive_maximum: int,
    ) -> bytes:
        """Return CONNECT for a session that the broker keeps, with a retained last will (topic, payload)."""
        username, password = credentials or (None, None)
        flags = 0x2C | (username is not None) << 7 | (password is not None) << 6
        wishes = b""
        if self._five:
            wishes = struct.pack(">BBIBHBI", 13, EXPIRY, NEVER, RECEIVE_MAXIMUM, receive_maximum, MAX_PACKET, LONGEST)
        parts = [
            _text("MQTT"),
            struct.pack(">BBH", 5 if self._five else 4, flags, keepalive),
            wishes,
            _text(client_id),
            self._nothing,
            _text(will[0]),
            _binary(will[1]),
            *(_text(secret) for secret in (username, password) if secret is not None),
        ]
        return _packet(0x10, *parts)

    def subscribe(self, number: int, topic: str) -> bytes:
        """Return SUBSCRIBE for one topic filter with QoS 1."""
        return _packet(0x82, _short.pack(number), self._nothing, _text(topic), b"\x01")

    def unsubscribe(self, number: int, topic: str) -> bytes:
        """Return UNSUBSCRIBE for one topic filter."""
        return _packet(0xA2, _short.pack(number), self._nothing, _text(topic))

    def publish(self, topic: str, payload: bytes, *, number: int, retain: bool) -> bytes:
        """Return PUBLISH with the id `number`; if `number` is 0, with QoS 0."""
        kind = PUBLISH | (number > 0) << 1 | retain
        return _packet(kind, _text(topic), _short.pack(number) if number else b"", self._nothing, payload)


def acknowledge(numbers: Iterable[int]) -> bytes:
    """Return a PUBACK for each message, in this order. PUBACK is the same in both versions."""
    acknowledged = [0x40020000 | number for number in numbers]
    return struct.pack(f">{len(acknowledged)}I", *acknowledged)


# ---- parts of packets ----


def _decode(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return ""


_topic = lru_cache(maxsize=4096)(_decode)


def _message(data: bytes, kind: int, start: int, stop: int, five: bool) -> tuple[str, bytes, int]:  # noqa: FBT001
    """Return topic, payload and id of the PUBLISH in these bytes."""
    at = start + 2
    end_of_topic = at + (data[start] << 8 | data[start + 1]) if at <= stop else stop + 1
    at, number = end_of_topic, 0
    if kind & 0x06:
        at += 2
        if kind & 0x04 or at > stop or not (number := data[at - 2] << 8 | data[at - 1]):
            raise MalformedPacketError("a PUBLISH without id, or of another QoS than was asked for")
    if five and at < stop and not data[at]:
        at += 1
    elif five:
        at = span(data, at, stop)[1]
    if at > stop:
        raise MalformedPacketError("a PUBLISH that is too short")
    topic = data[start + 2 : end_of_topic]
    return _topic(topic) if len(topic) <= KEPT else _decode(topic), data[at:stop], number


def _packet(kind: int, *parts: bytes) -> bytes:
    content = b"".join(parts)
    size, length = len(content), bytearray()
    while size > 0x7F:
        length.append(size & 0x7F | 0x80)
        size >>= 7
    length.append(size)
    return b"".join((bytes((kind,)), length, content))


def _text(text: str) -> bytes:
    return _binary(text.encode())


def _binary(content: bytes) -> bytes:
    return _short.pack(len(content)) + content
