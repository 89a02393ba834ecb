"""Messages until the broker has them, in order and in bounded memory. No clock, no connection."""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import Final

__all__ = ["Message", "Outbox"]

OVERHEAD: Final = 250
"""Bytes that a waiting message takes besides its payload."""


@dataclass
class Message:
    """A message under its number, in the order of publishing. `confirmed`: the broker has acknowledged it once."""

    number: int
    topic: str
    payload: bytes
    confirmed: bool = False

    @property
    def size(self) -> int:
        """Bytes of memory."""
        return len(self.payload) + OVERHEAD


class Outbox:
    """First in, first out. A message is kept until `republish` seconds after the broker acknowledged it.

    A broker acknowledges a message before it is on disk: if it is killed in between, it loses what it acknowledged in
    its last seconds. So `rewind` puts these back too, after each reconnection; the monitor drops duplicates by
    (episode, seq). The seconds count back from the newest acknowledgement, so no clock runs while nothing happens.

    Beyond `limit` bytes the oldest messages are given up: confirmed ones first, then unsent ones, which are `dropped`.
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
        """Number of messages given up unpublished, for want of memory."""

    @property
    def waiting(self) -> int:
        """Number of messages that the broker has not acknowledged yet."""
        return self._next - self.published - self.dropped

    @property
    def settled(self) -> bool:
        """True if the broker has acknowledged everything, on this connection too."""
        return not self._unsent and not self._sent

    @property
    def size(self) -> int:
        """Bytes held."""
        return self._bytes

    def put(self, topic: str, payload: bytes) -> int:
        """Add a message; return how many older ones were dropped for it."""
        message = Message(self._next, topic, payload)
        self._next += 1
        self._bytes += message.size
        self._unsent.append(message)
        before = self.dropped
        self._make_room()
        return self.dropped - before

    def take(self) -> Message | None:
        """Return the oldest message not sent on this connection; None if there is none."""
        if not self._unsent:
            return None
        message = self._unsent.popleft()
        self._sent[message.number] = message
        return message

    def acknowledge(self, message: Message, now: float) -> None:
        """Note that the broker has a message, at time `now` in seconds."""
        if self._sent.pop(message.number, None) is None:
            return  # of an earlier connection: it waits again
        if not message.confirmed:
            message.confirmed = True
            self.published += 1
        self._confirmed.append((now, message))
        while self._confirmed[0][0] < now - self._republish:
            self._bytes -= self._confirmed.popleft()[1].size
        self._make_room()

    def rewind(self) -> None:
        """Begin again on a new connection: with what the broker may have lost, and what it has not acknowledged."""
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
