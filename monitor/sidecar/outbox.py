"""Queue of messages to send in order. Each stays until the receiver (broker or webhook) has acknowledged it."""

from __future__ import annotations

import asyncio
import logging
import math
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from monitor.sidecar.effects import Publication

LOG: Final = logging.getLogger("monitor.mqtt")
MOST_NAMED: Final = 10
"""Maximum number of topics named in one log line."""


class Numbers:
    """Source of numbers for the messages of all outboxes that share a store."""

    def __init__(self) -> None:
        self._next = 0

    def give(self, publications: Sequence[Publication]) -> list[tuple[int, Publication]]:
        """Give messages the next numbers."""
        numbered = list(enumerate(publications, self._next))
        self._next += len(numbered)
        return numbered

    def skip(self, number: int) -> None:
        """From now on, give only numbers larger than this number."""
        self._next = max(self._next, number + 1)


class Outbox:
    """First-in-first-out queue of at most `limit` messages, used from one thread (the loop's).

    A message first gets a number, under which it can be stored, and is then put into the queue. The broker retains all
    published messages, so only the newest message of a topic matters in the end. Beyond `limit`, older messages of the
    topics with the most messages are dropped; they are logged, and `given_up` is called with their count. The limit
    bounds memory (some 200 MB). `receiver`: name of the receiver, for the log.
    """

    def __init__(
        self,
        limit: int = 100_000,
        *,
        numbers: Numbers | None = None,
        receiver: str = "the broker",
        given_up: Callable[[int], None] = lambda _count: None,
    ) -> None:
        self._limit = limit
        self._numbers = Numbers() if numbers is None else numbers
        self._receiver = receiver
        self._given_up = given_up
        self._waiting: OrderedDict[int, Publication] = OrderedDict()
        self._unsent: deque[int] = deque()
        """numbers of messages not yet taken on this connection, in order; some may have been dropped"""
        self._finished: list[int] = []
        self._last = math.inf
        self._something = asyncio.Event()
        self._nothing = asyncio.Event()
        self._nothing.set()

    def __len__(self) -> int:
        """Return the number of messages the receiver has not acknowledged."""
        return len(self._waiting)

    def __contains__(self, number: int) -> bool:
        """Return whether this message still has to be sent."""
        return number in self._waiting

    def number(self, publications: Iterable[Publication]) -> list[tuple[int, Publication]]:
        """Give messages their numbers. A message that only repeats a waiting message is left out."""
        return self._numbers.give(self._without_copies(list(publications)))

    def put(self, numbered: Sequence[tuple[int, Publication]]) -> None:
        """Add messages to send, also messages of an earlier process.

        Messages added after `finish` wait for the next process.
        """
        if not numbered:
            return
        self._waiting.update(numbered)
        self._unsent.extend(number for number, _ in numbered)
        self._numbers.skip(numbered[-1][0])
        if len(self._waiting) > self._limit:
            self._thin_out()
        self._something.set()
        self._update_emptied()

    def finish(self, last: Publication) -> None:
        """Add the last message to send. All other messages are sent before this message, and none after it."""
        numbered = self._numbers.give([last])
        self.put(numbered)
        self._last = numbered[-1][0]
        self._update_emptied()

    def get(self, number: int) -> Publication | None:
        """Return the message with this number; None if it need not be sent any more."""
        return self._waiting.get(number)

    def poll(self) -> tuple[int, Publication] | None:
        """Return the oldest message not yet taken on this connection, and its number; None if all were taken."""
        while self._unsent and self._unsent[0] <= self._last:
            number = self._unsent.popleft()
            if (publication := self._waiting.get(number)) is not None:
                return number, publication
        self._something.clear()
        return None

    async def more(self) -> None:
        """Wait until `poll` may return a message."""
        await self._something.wait()

    async def take(self) -> tuple[int, Publication]:
        """Wait for the oldest message not yet taken on this connection; return it with its number.

        The message stays in the queue until `done`.
        """
        while (found := self.poll()) is None:
            await self.more()
        return found

    def rewind(self) -> None:
        """Begin again on a new connection, with the messages that were not acknowledged on the old connection."""
        self._unsent = deque(self._waiting)
        self._something.set()

    def done(self, number: int) -> None:
        """Record that the receiver has acknowledged a message."""
        publication = self._waiting.pop(number, None)
        if publication is not None and not publication.repeats:
            self._finished.append(number)
        self._update_emptied()

    def waiting(self) -> list[tuple[int, Publication]]:
        """Return the messages that would have to be sent after a restart: all except repetitions."""
        return [(number, publication) for number, publication in self._waiting.items() if not publication.repeats]

    @property
    def has_finished(self) -> bool:
        """True if `finished` has numbers to return."""
        return bool(self._finished)

    def finished(self) -> list[int]:
        """Return the numbers of messages that need not be sent any more. Each number is returned once."""
        finished, self._finished = self._finished, []
        return finished

    async def emptied(self) -> None:
        """Wait until the broker has everything up to the last message."""
        await self._nothing.wait()

    def _without_copies(self, publications: list[Publication]) -> list[Publication]:
        """Leave out repetitions of waiting messages, because a new connection resends the waiting messages anyway."""
        if not any(publication.repeats for publication in publications):
            return publications
        waiting = {(publication.topic, publication.payload) for publication in self._waiting.values()}
        return [
            message
            for message in publications
            if not message.repeats or (message.topic, message.payload) not in waiting
        ]

    def _update_emptied(self) -> None:
        if all(number > self._last for number in self._waiting):  # in order, so usually one comparison
            self._nothing.set()
        else:
            self._nothing.clear()

    def _thin_out(self) -> None:
        """Drop messages of the topics with the most messages until a tenth of the limit is free."""
        numbers: dict[str, list[int]] = {}
        for number, publication in self._waiting.items():
            numbers.setdefault(publication.topic, []).append(number)
        excess = len(self._waiting) - self._limit + self._limit // 10
        gone: list[int] = []
        for of_topic in sorted(numbers.values(), key=len, reverse=True):
            if len(gone) < excess:
                gone += of_topic[:-1]
        gone += sorted(of_topic[-1] for of_topic in numbers.values())[: max(len(numbers) - self._limit, 0)]
        topics = Counter(self._waiting.pop(number).topic for number in gone)
        named = ", ".join(f"{count} for {topic}" for topic, count in topics.most_common(MOST_NAMED))
        more = f", and others for {len(topics) - MOST_NAMED} topics" if len(topics) > MOST_NAMED else ""
        words = "too many messages wait for %s; dropped: %s%s. The newest of each topic is kept"
        LOG.error(words, self._receiver, named, more)
        self._finished += gone
        self._given_up(len(gone))
