"""The one bounded queue between the broker and the pipeline.

Everything that waits for the pipeline waits here. When it is full, a new message is dropped, and a `Dropped` entry
takes its place in the order, so that the pipeline learns of the hole exactly where it is.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import msgspec

from monitor.types import Instant

__all__ = ["Arrived", "Dropped", "Inbox", "Receipt"]

MAX_HOLES: Final = 1000
"""Topics told apart while the door is full; the steps of further agents are still missed by their sequence numbers."""

LARGE: Final = 64 << 20
"""Bytes that make a door full however few messages they are."""


class Receipt(msgspec.Struct, frozen=True, gc=False):
    """What acknowledges a message, on the connection it came by; on a later one its number means another message."""

    connection: int
    message_id: int
    qos: int


class Arrived(msgspec.Struct, frozen=True):
    """A message as it came; no `receipt` where it needs no acknowledgement (QoS 0)."""

    now: Instant
    topic: str
    payload: bytes
    receipt: Receipt | None


@dataclass(slots=True)
class Dropped:
    """Messages of one topic for which there was no room; they are acknowledged too, for nothing will come of them."""

    now: Instant
    topic: str
    receipts: list[Receipt] = field(default_factory=list)
    count: int = 0


class Inbox:
    """First in, first out. Used from one thread (the loop's).

    With `limit` messages, or `LARGE` bytes of them, it is `full`, and what comes then is dropped until it is half empty
    again: one long hole is better than one after each message. `on_room` is called when a full door is half empty.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._was_full = self._dropping = False
        self.on_room: Callable[[], None] = lambda: None
        self._entries: deque[Arrived | Dropped] = deque()
        self._messages = self._bytes = 0
        self._holes: dict[str, Dropped] = {}
        self._something = asyncio.Event()

    def __len__(self) -> int:
        """Messages waiting."""
        return self._messages

    @property
    def full(self) -> bool:
        """Whether no more messages should come for now."""
        return self._messages >= self._limit or self._bytes >= LARGE

    def enter(self, message: Arrived) -> bool:
        """Take a message in; False if it had to be dropped."""
        self._something.set()
        if not self.full and not self._dropping:
            self._entries.append(message)
            self._messages += 1
            self._bytes += len(message.payload)
            self._was_full = self._was_full or self.full
            self._holes = {}
            return True
        self._drop(message)
        return False

    @property
    def waiting_since(self) -> float | None:
        """Ticks at which the oldest entry came, None if there is none."""
        return self._entries[0].now.ticks if self._entries else None

    def take(self) -> Arrived | Dropped | None:
        """The oldest entry, None if there is none."""
        if not self._entries:
            self._something.clear()
            return None
        entry = self._entries.popleft()
        if isinstance(entry, Arrived):
            self._messages -= 1
            self._bytes -= len(entry.payload)
            self._tell_room()
        else:
            self._holes.pop(entry.topic, None)
        return entry

    def _drop(self, message: Arrived) -> None:
        """One entry a topic for all that is dropped between two messages let in; in a flood of topics, one for all."""
        self._dropping = True
        topic = message.topic if message.topic in self._holes or len(self._holes) < MAX_HOLES else ""
        hole = self._holes.get(topic)
        if hole is None:
            hole = self._holes[topic] = Dropped(message.now, topic)
            self._entries.append(hole)
        hole.count += 1
        if message.receipt is not None:
            hole.receipts.append(message.receipt)

    def _tell_room(self) -> None:
        if self._was_full and self._messages <= self._limit // 2 and self._bytes <= LARGE // 2:
            self._was_full = self._dropping = False
            self.on_room()

    def knock(self) -> None:
        """Wake whoever waits, although nothing came."""
        self._something.set()

    async def wait(self) -> None:
        """Until there may be something to take, or someone knocks."""
        await self._something.wait()
