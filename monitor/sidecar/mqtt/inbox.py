"""Bounded queue between the broker and the pipeline.

When the queue is full, new messages are dropped, and a `Dropped` entry takes their place in the order.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import msgspec

from monitor.types.stream_events import Instant

MAX_TOPICS: Final = 1000
"""Maximum number of topics whose dropped messages are counted separately. Gaps in sequence numbers show the losses on
other topics."""

MAX_RECEIPTS: Final = 65_535
"""Maximum number of dropped messages that are acknowledged together. It is the largest number that a broker may have in
flight. The broker sends further dropped messages again."""

LARGE: Final = 64 << 20
"""Bytes of payload that make the inbox full, for any number of messages."""


class Receipt(msgspec.Struct, frozen=True, gc=False):
    """Acknowledges a message on the connection on which the message arrived.

    On a later connection the id may belong to another message.
    """

    connection: int
    message_id: int


class Arrived(msgspec.Struct, frozen=True):
    """A received message; `receipt` is None if it needs no acknowledgement (QoS 0)."""

    now: Instant
    topic: str
    payload: bytes
    receipt: Receipt | None


@dataclass(slots=True)
class Dropped:
    """Messages of one topic that were dropped because the inbox was full.

    `receipts`: between two accepted messages, the last `Dropped` entry has the receipts of all messages that were
    dropped there. Messages are thus acknowledged in the order of arrival.
    """

    now: Instant
    topic: str
    receipts: list[Receipt] = field(default_factory=list)
    count: int = 0


class Inbox:
    """Bounded FIFO queue, used from one thread (the loop's).

    With `limit` messages or `LARGE` bytes the queue is `full`. After a message was dropped, all messages are dropped
    until the queue is half empty, because one long gap is better than many short gaps. `on_half_empty` is called when a
    full queue has become half empty.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._was_full = self._dropping = False
        self.on_half_empty: Callable[[], None] = lambda: None
        self._entries: deque[Arrived | Dropped] = deque()
        self._messages = self._bytes = 0
        self._dropped: dict[str, Dropped] = {}
        self._last: Dropped | None = None
        self._something = asyncio.Event()

    def __len__(self) -> int:
        """Return the number of waiting messages."""
        return self._messages

    @property
    def full(self) -> bool:
        """True if further messages would be dropped now."""
        return self._dropping or self._messages >= self.limit or self._bytes >= LARGE

    def put(self, message: Arrived) -> bool:
        """Add a message; return False if it had to be dropped."""
        self._something.set()
        if not self.full:
            self._entries.append(message)
            self._messages += 1
            self._bytes += len(message.payload)
            if self._messages >= self.limit or self._bytes >= LARGE:
                self._was_full = True
            if self._last is not None:
                self._dropped, self._last = {}, None
            return True
        self._drop(message)
        return False

    @property
    def waiting_since(self) -> float | None:
        """Ticks at which the oldest entry arrived; None if there is none."""
        return self._entries[0].now.ticks if self._entries else None

    def take(self) -> Arrived | Dropped | None:
        """Remove and return the oldest entry; None if there is none."""
        if not self._entries:
            self._something.clear()
            return None
        entry = self._entries.popleft()
        if isinstance(entry, Arrived):
            self._messages -= 1
            self._bytes -= len(entry.payload)
            if self._was_full:
                self._report_space()
        else:
            if self._dropped.get(entry.topic) is entry:  # otherwise messages were accepted after this entry
                del self._dropped[entry.topic]
            self._last = None if entry is self._last else self._last
        return entry

    def _drop(self, message: Arrived) -> None:
        """Count the messages dropped between two accepted messages, in one entry per topic, up to MAX_TOPICS."""
        self._dropping = True
        topic = message.topic if message.topic in self._dropped or len(self._dropped) < MAX_TOPICS else ""
        entry = self._dropped.get(topic)
        if entry is None:
            entry = self._dropped[topic] = Dropped(message.now, topic)
            self._entries.append(entry)
            if self._last is not None:
                entry.receipts, self._last.receipts = self._last.receipts, entry.receipts
            self._last = entry
        entry.count += 1
        receipts = (self._last or entry).receipts
        if message.receipt is not None and len(receipts) < MAX_RECEIPTS:
            receipts.append(message.receipt)

    def _report_space(self) -> None:
        if self._messages <= self.limit // 2 and self._bytes <= LARGE // 2:
            self._was_full = self._dropping = False
            self.on_half_empty()

    def wake(self) -> None:
        """Wake the waiting task although nothing arrived."""
        self._something.set()

    async def wait(self) -> None:
        """Wait until `take` may return an entry, or `wake` is called."""
        await self._something.wait()
