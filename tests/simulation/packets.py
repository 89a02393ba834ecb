"""MQTT 3.1.1 as bytes, written for the tests from the standard: nothing of the product's codec is used.

OASIS MQTT 3.1.1, Section 2 (fixed header) and 3 (the packets).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

CONNECT, CONNACK, PUBLISH, PUBACK, SUBSCRIBE, SUBACK, UNSUBSCRIBE, UNSUBACK, PINGREQ, PINGRESP, DISCONNECT = (
    *range(1, 5),
    *range(8, 15),
)
WRONG_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Message:
    """What a PUBLISH carries."""

    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False


@dataclass(frozen=True, slots=True)
class Hello:
    """A CONNECT."""

    level: int
    client_id: str
    clean: bool
    keepalive: int
    will: Message | None


class Reader:
    """Splits a byte stream into packets (type, flags, body)."""

    def __init__(self) -> None:
        self._kept = b""

    def feed(self, data: bytes) -> Iterator[tuple[int, int, bytes]]:
        data, at = self._kept + data, 0
        while True:
            length, shift, start = 0, 0, at + 1
            while start < len(data):
                byte = data[start]
                length |= (byte & 0x7F) << shift
                shift, start = shift + 7, start + 1
                if byte < 0x80:
                    break
            else:
                break
            if start + length > len(data):
                break
            yield data[at] >> 4, data[at] & 15, data[start : start + length]
            at = start + length
        self._kept = data[at:]


def packet(kind: int, flags: int, body: bytes) -> bytes:
    length, rest = b"", len(body)
    while True:
        rest, low = divmod(rest, 128)
        length += bytes([low | (0x80 if rest else 0)])
        if not rest:
            return bytes([kind << 4 | flags]) + length + body


def text(value: str | bytes) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return len(raw).to_bytes(2, "big") + raw


def publish(message: Message, number: int = 0, *, again: bool = False) -> bytes:
    """Return a PUBLISH. `number`: its packet identifier, unless with QoS 0. `again`: the flag DUP."""
    flags = again << 3 | message.qos << 1 | message.retain
    identifier = number.to_bytes(2, "big") if message.qos else b""
    return packet(PUBLISH, flags, text(message.topic) + identifier + message.payload)


def read_publish(flags: int, body: bytes) -> tuple[Message, int]:
    """Return what a PUBLISH carries, and its packet identifier; 0 with QoS 0."""
    at = 2 + int.from_bytes(body[:2], "big")
    topic, qos = body[2:at].decode(), flags >> 1 & 3
    number = int.from_bytes(body[at : at + 2], "big") if qos else 0
    return Message(topic, body[at + 2 * (qos > 0) :], qos, bool(flags & 1)), number


def numbered(kind: int, number: int, rest: bytes = b"", flags: int = 0) -> bytes:
    """Return a packet that begins with a packet identifier."""
    return packet(kind, flags, number.to_bytes(2, "big") + rest)


def number_of(body: bytes) -> int:
    return int.from_bytes(body[:2], "big")


def connect(client_id: str, *, clean: bool, keepalive: int) -> bytes:
    return packet(CONNECT, 0, text("MQTT") + bytes([4, clean << 1]) + keepalive.to_bytes(2, "big") + text(client_id))


def read_connect(body: bytes) -> Hello:
    """Read a CONNECT of 3.1.1; of another version only the level is right."""
    level, flags, keepalive = body[6], body[7], int.from_bytes(body[8:10], "big")
    if level != 4:
        return Hello(level, "", clean=True, keepalive=keepalive, will=None)
    fields, at = [], 10
    while at < len(body):
        end = at + 2 + int.from_bytes(body[at : at + 2], "big")
        fields.append(body[at + 2 : end])
        at = end
    will = None
    if flags & 4:
        will = Message(fields[1].decode(), fields[2], flags >> 3 & 3, bool(flags & 32))
    return Hello(level, fields[0].decode(), clean=bool(flags & 2), keepalive=keepalive, will=will)


def filters(body: bytes, *, with_qos: bool) -> Iterator[tuple[str, int]]:
    """Yield the topic filters of a SUBSCRIBE or UNSUBSCRIBE, with their QoS."""
    at = 2
    while at < len(body):
        end = at + 2 + int.from_bytes(body[at : at + 2], "big")
        yield body[at + 2 : end].decode(), body[end] if with_qos else 0
        at = end + with_qos


def matches(pattern: str, topic: str) -> bool:
    """Return whether a topic filter fits a topic (Section 4.7)."""
    levels, wanted = topic.split("/"), pattern.split("/")
    for place, want in enumerate(wanted):
        if want == "#":
            return True
        if place >= len(levels) or want not in ("+", levels[place]):
            return False
    return len(levels) == len(wanted)
