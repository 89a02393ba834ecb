"""What is to be published, in order, until the broker has acknowledged it."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from typing import Final

from monitor.sidecar.pipeline import Publication

__all__ = ["Outbox"]

LOG: Final = logging.getLogger("monitor.mqtt")


class Outbox:
    """First in, first out, `limit` messages at most; used from one thread (the loop's).

    Everything we publish is retained, so only the newest message of a topic matters in the end: beyond `limit`, older
    messages of the same topic go first.
    """

    def __init__(self, limit: int = 10_000) -> None:
        self._limit = limit
        self._waiting: OrderedDict[int, Publication] = OrderedDict()
        self._next = 0
        self._sent = -1
        self._closed = False
        self._something = asyncio.Event()
        self._nothing = asyncio.Event()
        self._nothing.set()

    def __len__(self) -> int:
        """Messages the broker has not acknowledged."""
        return len(self._waiting)

    def put(self, publication: Publication) -> None:
        """Add a message to send; after `finish` nobody is listening."""
        if self._closed:
            return
        self._waiting[self._next] = publication
        self._next += 1
        if len(self._waiting) > self._limit:
            self._thin_out()
        self._something.set()
        self._nothing.clear()

    def finish(self, last: Publication) -> None:
        """Add the very last message: none may overtake it, none may come after it."""
        self.put(last)
        self._closed = True

    async def take(self) -> tuple[int, Publication]:
        """The oldest message not yet taken on this connection, and its number; it stays until `done`."""
        while True:
            for number, publication in self._waiting.items():
                if number > self._sent:
                    self._sent = number
                    return number, publication
            self._something.clear()
            await self._something.wait()

    def rewind(self) -> None:
        """A new connection: what was not acknowledged on the old one is sent again."""
        self._sent = -1
        self._something.set()

    def done(self, number: int) -> None:
        """The broker has it."""
        self._waiting.pop(number, None)
        if not self._waiting:
            self._nothing.set()

    async def emptied(self) -> None:
        """Until the broker has everything."""
        await self._nothing.wait()

    def _thin_out(self) -> None:
        newest = {publication.topic: number for number, publication in self._waiting.items()}
        self._waiting = OrderedDict((n, p) for n, p in self._waiting.items() if newest[p.topic] == n)
        while len(self._waiting) > self._limit:
            _, publication = self._waiting.popitem(last=False)
            LOG.error("too much to publish: a message for %s is given up", publication.topic)
