"""One persistent MQTT session over any number of connections.

A message is acknowledged after it is processed and on disk, so the broker resends it after a crash (at-least-once).

Back-pressure: with MQTT 5 the number of unacknowledged messages is limited to half of the inbox, so the broker cannot
fill the inbox. With 3.1.1 the client cannot set a limit. Some brokers do not respect the limit of MQTT 5: mosquitto
2.0.11 exceeds it while messages are queued (mosquitto's issue 2301). So when the inbox is full, the link stops reading,
and the broker queues messages. If the inbox is still full after half a keepalive, the link continues reading, drops
steps, and notifies the pipeline for each agent.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from monitor.sidecar.clock import Clock, read_clock
from monitor.sidecar.effects import OFFLINE, Publication
from monitor.sidecar.mqtt.codec import MAX_ID
from monitor.sidecar.mqtt.connection import Connection
from monitor.sidecar.mqtt.dial import BrokerError, OldBrokerError, SessionConfig
from monitor.sidecar.mqtt.inbox import Arrived, Inbox, Receipt
from monitor.sidecar.outbox import Outbox
from monitor.sidecar.tasks import end_tasks, unless

LOG: Final = logging.getLogger("monitor.mqtt")

FIRST_PAUSE: Final = 0.2
LONGEST_PAUSE: Final = 10.0
"""Minimum and maximum seconds before reconnecting: exponential backoff, each pause shortened at random by up to a half.
"""

STEADY: Final = 1.0
"""Seconds after which a connection counts as a success. A connection lost earlier increases the backoff. Otherwise two
sidecars with the same client id would disconnect each other many times a second."""

WINDOW: Final = 5_000
"""Maximum number of published messages in flight, if the broker accepts so many. While the inbox is full, nothing is
read, so acknowledgements wait behind the steps that the broker sent before them."""

GOODBYE: Final = 1.5
"""Seconds to send the last messages and DISCONNECT. Messages not sent by then are sent after the restart."""


class BrokerLink:
    """Keeps a connection to the broker, and renews it when it is lost.

    `changed(up)` is called on the loop when the connection is made and when it is lost.
    """

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
        inbox.on_half_empty = self._resume

    @property
    def up(self) -> bool:
        """True while connected to the broker."""
        return self._up

    def acknowledge(self, receipts: Sequence[Receipt]) -> None:
        """Acknowledge messages to the broker.

        Messages of an older connection are left out, because the broker resends them.
        """
        current = [receipt for receipt in receipts if receipt.connection == self._connections]
        if self._connection is not None and current:
            self._connection.acknowledge(current)

    async def run(self, stop: asyncio.Event) -> None:
        """Stay connected until `stop`, then disconnect properly."""
        failures = 0
        while not stop.is_set():
            try:
                await self._connect(stop)
            except OldBrokerError as error:
                LOG.warning("%s; going on with 3.1.1: write mqtt.version: 3.1.1 to begin with it", error)
                self._session = replace(self._session, version="3.1.1")
                continue
            except BrokerError as error:
                steady = self._up and read_clock().ticks - self._since > STEADY
                failures = 0 if steady else failures + 1
                self._report_lost(error)
            finally:
                self._connection = None
                self._resume()
            await _pause(stop, failures)

    async def _connect(self, stop: asyncio.Event) -> None:
        """Run one connection until `stop` is set. Raises BrokerError if the connection fails or ends earlier."""
        self._connections += 1
        receive = min(max(1, self._inbox.limit // 2), MAX_ID)  # so messages resent after a lost connection fit too
        self._connection = connection = Connection(
            self._session, self._connections, self._arrived, self._published, self._clock, receive=receive
        )
        if not await unless(stop, connection.open()):
            return
        try:
            self._up, self._since = True, read_clock().ticks
            session = self._session
            words = "connected to %s as %s, with MQTT %s"
            LOG.info(words, session.broker.address, session.client_id, session.version)
            self._sent.clear()
            self._window.set()
            self._outbox.rewind()
            self._changed(True)  # noqa: FBT003 - the one argument of a callback
            await self._serve(connection, stop)
        finally:
            connection.abort()
        self._up = False

    async def _serve(self, connection: Connection, stop: asyncio.Event) -> None:
        """Send and receive until `stop` is set, then empty the outbox and disconnect.

        Raises BrokerError if the broker is lost.
        """
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
        window = min(WINDOW, connection.window)
        while True:
            number, publication = await self._outbox.take()
            self._sent[connection.publish(publication)] = number
            if len(self._sent) >= window:
                self._window.clear()
            await self._window.wait()

    def _published(self, message_id: int) -> None:
        number = self._sent.pop(message_id, None)
        if number is not None:
            self._outbox.done(number)
            if self._outbox.has_finished:
                self._inbox.wake()  # so that the store learns of the acknowledged messages
        self._window.set()

    def _report_lost(self, error: Exception) -> None:
        if not self._up:
            LOG.warning("cannot connect to %s: %s", self._session.broker.address, error)
            return
        self._up = False
        LOG.warning("lost the connection to %s: %s", self._session.broker.address, error)
        self._changed(False)  # noqa: FBT003 - likewise

    # ---- backpressure ----

    def _arrived(self, messages: Sequence[Arrived]) -> int:
        """Put messages into the inbox; return the number of messages that were put.

        When the inbox is full, the rest waits and reading pauses.

        Messages of an earlier connection may fill the inbox before the first message.
        """
        for count, message in enumerate(messages):
            if self._inbox.full and not self._holding and self._connection is not None:
                self._holding = True
                self._connection.pause()
                loop = asyncio.get_running_loop()
                self._patience = loop.call_later(self._connection.keepalive.seconds / 2, self._give_up_holding)
                return count
            self._inbox.put(message)
        return len(messages)

    def _give_up_holding(self) -> None:
        """Continue reading although the inbox is full, and drop messages.

        While reading is paused, the link would not see the broker's ping responses.
        """
        if not self._inbox.full:  # steps are processed, although slowly
            self._resume()
            return
        LOG.warning("%d messages wait and the broker can be held back no longer: steps are dropped", len(self._inbox))
        if self._connection is not None:
            self._connection.resume()

    def _resume(self) -> None:
        self._holding = False
        if self._patience is not None:
            self._patience.cancel()
        if self._connection is not None:
            self._connection.resume()


async def _pause(stop: asyncio.Event, failures: int) -> None:
    """Wait before the next attempt: exponential backoff with jitter."""
    longest = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(failures, 10))
    seconds = longest * random.uniform(0.5, 1.0)  # noqa: S311 - jitter, not a secret
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(stop.wait(), timeout=seconds)
