"""MQTT 3.1.1, as much of it as a sidecar says and hears: to packets and back (OASIS standard, sections 2, 3)."""

from __future__ import annotations

import struct
from typing import Final

import msgspec

__all__ = [
    "DISCONNECT",
    "PING",
    "REFUSALS",
    "Kind",
    "PacketError",
    "Reader",
    "Will",
    "acknowledgement",
    "connect",
    "message",
    "number",
    "publish",
    "subscribe",
]

MAX_BODY: Final = 17 << 20
"""More than the largest payload a configuration allows (16 MiB) with its topic; a broker that sends more is ill."""


class Kind:
    """The packets a client hears: the upper half of the first byte."""

    CONNACK: Final = 2
    PUBLISH: Final = 3
    PUBACK: Final = 4
    SUBACK: Final = 9
    PONG: Final = 13


PING: Final = b"\xc0\x00"
DISCONNECT: Final = b"\xe0\x00"
REFUSALS: Final = {
    1: "unacceptable protocol version",
    2: "client identifier rejected",
    3: "server unavailable",
    4: "bad user name or password",
    5: "not authorized",
}
"""Return codes of a CONNACK (section 3.2.2.3)."""


class PacketError(ValueError):
    """The bytes are no MQTT; there is no way to find the next packet, so the connection is over."""


class Will(msgspec.Struct, frozen=True):
    """What the broker says for us when we are gone without goodbye; retained, QoS 1."""

    topic: str
    payload: bytes


class Reader:
    """Takes bytes as they come and gives whole packets, oldest first."""

    def __init__(self) -> None:
        self._held = b""
        self._at = 0

    def feed(self, content: bytes) -> None:
        """More bytes."""
        self._held = self._held[self._at :] + content
        self._at = 0

    def next(self) -> tuple[int, bytes] | None:
        """First byte and body of the next packet, None until it is whole; PacketError if it cannot be one."""
        held, at = self._held, self._at
        size, shift, body = 0, 0, at + 1
        while True:
            if body >= len(held):
                return None
            digit = held[body]
            body += 1
            size |= (digit & 127) << shift
            if digit < 128:
                break
            shift += 7
            if shift > 21:
                raise PacketError("the length of a packet has more than four bytes")
        if size > MAX_BODY:
            raise PacketError(f"a packet of {size} bytes")
        if body + size > len(held):
            return None
        self._at = body + size
        return held[at], held[body : body + size]


def message(first: int, body: bytes) -> tuple[bytes, int, bytes]:
    """Topic, message id (0 at QoS 0) and payload of a PUBLISH."""
    qos = first >> 1 & 3
    start = 2 + (body[0] << 8 | body[1]) if len(body) > 1 else 2
    if qos == 0:
        if start > len(body):
            raise PacketError("a message shorter than its topic")
        return body[2:start], 0, body[start:]
    if qos == 3 or start + 2 > len(body):
        raise PacketError("a message without its number")
    return body[2:start], body[start] << 8 | body[start + 1], body[start + 2 :]


def number(body: bytes) -> int:
    """The message id an acknowledgement is about."""
    if len(body) < 2:
        raise PacketError("an acknowledgement of nothing")
    return body[0] << 8 | body[1]


def acknowledgement(message_id: int) -> bytes:
    """A PUBACK."""
    return struct.pack(">BBH", 0x40, 2, message_id)


def connect(client_id: str, *, keepalive: int, will: Will, user: str | None, password: str | None) -> bytes:
    """A CONNECT to a session that outlives connections."""
    flags = 0x04 | 0x08 | 0x20  # a will, its QoS 1, retained
    payload = _text(client_id) + _text(will.topic) + _bytes(will.payload)
    if user is not None:
        flags |= 0x80
        payload += _text(user)
        if password is not None:
            flags |= 0x40
            payload += _text(password)
    return _packet(0x10, _text("MQTT") + struct.pack(">BBH", 4, flags, keepalive) + payload)


def subscribe(message_id: int, topic: str) -> bytes:
    """A SUBSCRIBE at QoS 1."""
    return _packet(0x82, struct.pack(">H", message_id) + _text(topic) + b"\x01")


def publish(message_id: int, topic: str, payload: bytes, *, qos: int, retain: bool) -> bytes:
    """A PUBLISH at QoS 0 or 1."""
    numbered = struct.pack(">H", message_id) if qos else b""
    return _packet(0x30 | qos << 1 | retain, _text(topic) + numbered + payload)


def _text(text: str) -> bytes:
    return _bytes(text.encode())


def _bytes(content: bytes) -> bytes:
    return struct.pack(">H", len(content)) + content


def _packet(first: int, body: bytes) -> bytes:
    size, digits = len(body), bytearray()
    while True:
        size, digit = divmod(size, 128)
        digits.append(digit | 128 if size else digit)
        if not size:
            return bytes((first, *digits)) + body
