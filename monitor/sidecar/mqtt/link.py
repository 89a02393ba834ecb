"""The broker's side of the sidecar: one persistent session, over as many connections as it takes.

A message is acknowledged when it has been taken over and noted on disk, not before: the broker sends it again after a
crash.

The broker's own limit on unacknowledged messages does not slow it down when we are slow (mosquitto 2.0.11 has 20 by
default, and lets them grow to thousands as soon as acknowledgements flow). So when the door is full we stop reading,
and the broker has to keep what we cannot take: better than dropping it here. Only when that lasts so long that the
connection itself would be given up do we read on; then steps are dropped, and the pipeline is told of which agents.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable
from typing import Any, Final

from monitor.sidecar.clock import Clock, read_clock
from monitor.sidecar.effects import Publication
from monitor.sidecar.mqtt.connection import (
    WINDOW,
    BrokerError,
    Connection,
    SessionConfig,
)
from monitor.sidecar.mqtt.inbox import Arrived, Inbox, Receipt
from monitor.sidecar.mqtt.outbox import Outbox
from monitor.sidecar.pipeline import OFFLINE
from monitor.sidecar.tasks import end_tasks, unless

__all__ = ["Link"]

LOG: Final = logging.getLogger("monitor.mqtt")

FIRST_PAUSE: Final = 0.2
LONGEST_PAUSE: Final = 10.0
"""Seconds before trying to connect again; doubled from the first to the longest, each shortened by up to a half."""

STEADY: Final = 1.0
"""Seconds after which a connection has succeeded. One lost before is tried again ever later: two sidecars under one
name would otherwise throw each other out many times a second.
"""

GOODBYE: Final = 1.5
"""Seconds for the last messages at the end, and for the goodbye. What is not sent by then is sent after the restart."""


class Link:
    """`changed(up)` is called on the loop when the broker is reached and when it is lost."""

    def __init__(
        self,
        session: SessionConfig,
        inbox: Inbox,
        outbox: Outbox,
        changed: Callable[[bool], None],
        clock: Clock = read_clock,
    ) -> None:
        self._clock = clock
        self._session = session
        self._inbox = inbox
        self._outbox = outbox
        self._changed = changed
        self._connection: Connection | None = None
        self._connections = 0
        self._up = False
        self._since = 0.0
        self._sent: dict[int, int] = {}
        self._window = asyncio.Event()
        self._patience: asyncio.TimerHandle | None = None
        self._holding = False
        inbox.on_half_empty = self._let_in

    @property
    def up(self) -> bool:
        """Whether the broker is reached now."""
        return self._up

    def acknowledge(self, receipt: Receipt) -> None:
        """Tell the broker that a message was taken over. Of an older connection: nothing, it will come again."""
        if self._connection is not None and receipt.connection == self._connections:
            self._connection.acknowledge(receipt)

    async def run(self, stop: asyncio.Event) -> None:
        """Keep connected until `stop`; then say goodbye, if there is anyone to say it to."""
        failures = 0
        while not stop.is_set():
            try:
                await self._connect(stop)
            except BrokerError as error:
                steady = self._up and read_clock().ticks - self._since > STEADY
                failures = 0 if steady else failures + 1
                self._tell_lost(error)
            finally:
                self._connection = None
                self._let_in()
            await _pause(stop, failures)

    async def _connect(self, stop: asyncio.Event) -> None:
        """One connection, from the first byte to `stop`; BrokerError if it fails or ends before."""
        self._connections += 1
        self._connection = connection = Connection(
            self._session, self._connections, self._arrived, self._published, self._clock
        )
        if not await unless(stop, connection.open()):
            return
        try:
            self._up, self._since = True, read_clock().ticks
            LOG.info("connected to %s as %s", self._session.broker.address, self._session.client_id)
            self._sent.clear()
            self._window.set()
            self._outbox.rewind()
            self._changed(True)  # noqa: FBT003 - the one argument of a callback
            await self._serve(connection, stop)
        finally:
            connection.abort()
        self._up = False

    async def _serve(self, connection: Connection, stop: asyncio.Event) -> None:
        """Send and receive until `stop`, then empty the outbox and say goodbye; BrokerError if the broker goes."""
        sending = asyncio.create_task(self._send(connection))
        stopping = asyncio.create_task(stop.wait())
        tasks: set[asyncio.Task[Any]] = {sending, stopping}
        waiting: set[asyncio.Future[Any]] = {sending, stopping, connection.lost}
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if stop.is_set():
                self._outbox.finish(Publication(self._session.status_topic, OFFLINE, repeats=True))
                emptied = asyncio.create_task(self._outbox.emptied())
                tasks.add(emptied)
                waiting = {sending, emptied, connection.lost}
                await asyncio.wait(waiting, timeout=GOODBYE, return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                sending.result()
            if connection.lost.done():
                raise BrokerError(connection.lost.result())
            await connection.close(GOODBYE)
        finally:
            await end_tasks(tasks)

    async def _send(self, connection: Connection) -> None:
        while True:
            number, publication = await self._outbox.take()
            self._sent[connection.publish(publication)] = number
            if len(self._sent) >= WINDOW:
                self._window.clear()
            await self._window.wait()

    def _published(self, message_id: int) -> None:
        number = self._sent.pop(message_id, None)
        if number is not None:
            self._outbox.done(number)
            if self._outbox.unsettled:
                self._inbox.wake()  # to have it noted
        self._window.set()

    def _tell_lost(self, error: Exception) -> None:
        if not self._up:
            LOG.warning("cannot connect to %s: %s", self._session.broker.address, error)
            return
        self._up = False
        LOG.warning("lost %s: %s", self._session.broker.address, error)
        self._changed(False)  # noqa: FBT003 - likewise

    # ---- backpressure ----

    def _arrived(self, message: Arrived) -> None:
        self._inbox.put(message)
        if self._inbox.full and not self._holding and self._connection is not None:
            self._holding = True
            self._connection.pause()
            loop = asyncio.get_running_loop()
            self._patience = loop.call_later(self._session.keepalive / 2, self._give_up_holding)

    def _give_up_holding(self) -> None:
        """Unread, the broker's answers to our pings would be missed: read on, and drop what finds no room."""
        if not self._inbox.full:  # steps are taken over, if slowly
            self._let_in()
            return
        LOG.warning("%d messages wait and no more can be held back: steps are dropped", len(self._inbox))
        if self._connection is not None:
            self._connection.resume()

    def _let_in(self) -> None:
        """There is room again."""
        self._holding = False
        if self._patience is not None:
            self._patience.cancel()
        if self._connection is not None:
            self._connection.resume()


async def _pause(stop: asyncio.Event, failures: int) -> None:
    """Wait before the next try, longer each time, and not in step with every other sidecar of the broker."""
    longest = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(failures, 10))
    seconds = longest * random.uniform(0.5, 1.0)  # noqa: S311 - it spreads load, it guards no secret
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(stop.wait(), timeout=seconds)
