"""Hold messages until the broker has stored them, in order and in bounded memory. Pure: no clock, no connection."""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import Final

__all__ = ["Message", "Outbox"]

OVERHEAD: Final = 250
"""Bytes of memory for a waiting message, in addition to its payload."""


@dataclass
class Message:
    """A message. `number`: position in the order of publishing. `confirmed`: whether the broker has acknowledged it."""

    number: int
    topic: str
    payload: bytes
    confirmed: bool = False

    @property
    def size(self) -> int:
        """Bytes of memory."""
        return len(self.payload) + OVERHEAD


class Outbox:
    """Queue of messages, first in, first out. A message is kept for `republish` seconds after its acknowledgement.

    A broker acknowledges a message before the message is on disk. If the broker is killed, it loses the messages that
    it acknowledged in its last seconds. For this reason, `rewind` sends these messages again after each reconnection.
    The monitor drops duplicates by (episode, seq). The `republish` seconds are counted back from the newest
    acknowledgement, so no message expires while the broker acknowledges nothing.

    If the messages take more than `limit` bytes, the oldest messages are removed: first confirmed messages, then unsent
    messages. Removed unsent messages count as `dropped`.
    """

    def __init__(self, limit: int, republish: float) -> None:
        self._limit = limit
        self._republish = republish
        self._unsent: deque[Message] = deque()
        self._sent: OrderedDict[int, Message] = OrderedDict()
        self._confirmed: deque[tuple[float, Message]] = deque()
        self._next = 0
        self._bytes = 0
        self.published = 0
        """Number of messages that the broker has acknowledged."""
        self.dropped = 0
        """Number of messages that were removed unpublished because the memory was full."""

    @property
    def waiting(self) -> int:
        """Number of messages that the broker has not acknowledged yet."""
        return self._next - self.published - self.dropped

    @property
    def settled(self) -> bool:
        """True if nothing waits: all messages, also those sent again on this connection, are acknowledged."""
        return not self._unsent and not self._sent

    @property
    def size(self) -> int:
        """Bytes held."""
        return self._bytes

    def put(self, topic: str, payload: bytes) -> int:
        """Add a message; return the number of older messages that were dropped to make room."""
        message = Message(self._next, topic, payload)
        self._next += 1
        self._bytes += message.size
        self._unsent.append(message)
        before = self.dropped
        self._make_room()
        return self.dropped - before

    def take(self) -> Message | None:
        """Return the oldest message not yet sent on this connection, and count it as sent; None if all were sent."""
        if not self._unsent:
            return None
        message = self._unsent.popleft()
        self._sent[message.number] = message
        return message

    def acknowledge(self, message: Message, now: float) -> None:
        """Record that the broker acknowledged a message, at time `now` in seconds."""
        if self._sent.pop(message.number, None) is None:
            return  # sent on an earlier connection; it waits again
        if not message.confirmed:
            message.confirmed = True
            self.published += 1
        self._confirmed.append((now, message))
        while self._confirmed[0][0] < now - self._republish:
            self._bytes -= self._confirmed.popleft()[1].size
        self._make_room()

    def rewind(self) -> None:
        """Prepare a new connection: messages that the broker may have lost or has not acknowledged wait again."""
        again = [message for _, message in self._confirmed] + list(self._sent.values()) + list(self._unsent)
        self._unsent = deque(sorted(again, key=lambda message: message.number))
        self._sent.clear()
        self._confirmed.clear()
        self._make_room()

    def _make_room(self) -> None:
        while self._bytes > self._limit and (self._confirmed or len(self._unsent) > 1):
            message = self._confirmed.popleft()[1] if self._confirmed else self._unsent.popleft()
            self._bytes -= message.size
            if not message.confirmed:
                self.dropped += 1
