"""Publish in an event loop: connect, send the waiting messages, reconnect after a failure."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import aiomqtt

from cfmon_client.broker import Broker
from cfmon_client.connection import FAILURES, LOG, WINDOW, Backoff, LimitedLog, connection
from cfmon_client.outbox import Message, Outbox

__all__ = ["Link"]


class Link:
    """Sends an outbox to the broker. Call all methods in one event loop; the attributes can be read in any thread.

    Attributes:
        connected: True while there is a connection.
        problem: Why a connection last failed or ended; None if this has not happened.
    """

    def __init__(
        self, broker: Broker, client_id: str, outbox: Outbox, limited: LimitedLog, clock: Callable[[], float]
    ) -> None:
        self.connected = False
        self.problem: str | None = None
        self._broker = broker
        self._client_id = client_id
        self._outbox = outbox
        self._limited = limited
        self._clock = clock
        self._changed = asyncio.Event()
        self._hurry = asyncio.Event()
        self._backoff = Backoff()
        self._flushed: list[threading.Event] = []
        self._under_way: set[asyncio.Task[None]] = set()
        self._failure: BaseException | None = None
        self._stopping = self._given_up = False
        self._main: asyncio.Task[None] | None = None

    def put(self, topic: str, payload: bytes) -> None:
        """Add a message to the outbox."""
        if self._outbox.put(topic, payload) and self._limited.due("dropped"):
            line = "%s does not take steps, and the memory for them is full: %d dropped so far, the oldest first"
            LOG.error(line, self._broker.address, self._outbox.dropped)
        self._changed.set()

    def notify(self, flushed: threading.Event) -> None:
        """Set the event `flushed` as soon as the broker has acknowledged all messages."""
        self._flushed.append(flushed)
        self._changed.set()
        self._notify_flushed()

    def stop(self, timeout: float) -> None:
        """End `run` when the broker has acknowledged all messages, or after `timeout` seconds."""
        self._stopping = True
        self._backoff.succeed()
        self._hurry.set()
        self._changed.set()
        asyncio.get_running_loop().call_later(timeout, self._give_up)

    async def run(self) -> None:
        """Publish until `stop`."""
        self._main = asyncio.current_task()
        with contextlib.suppress(asyncio.CancelledError):
            while not self._finished:
                await self._connect()

    @property
    def _finished(self) -> bool:
        return self._given_up or (self._stopping and self._outbox.settled)

    def _give_up(self) -> None:
        self._given_up = True  # before Python 3.12 `wait_for` can swallow the cancellation
        if self._main is not None:
            self._main.cancel()

    async def _connect(self) -> None:
        """Publish over one connection; when it fails or ends, wait before the next attempt."""
        try:
            async with connection(self._broker, self._client_id) as client:
                LOG.info("connected to %s", self._broker.address)
                self.connected = True
                self._backoff.succeed()
                self._outbox.rewind()
                await self._serve(client)
                return
        except FAILURES as error:
            self._report(error)
        except Exception as error:  # noqa: BLE001 - logged; the thread must survive a bug
            LOG.exception("unexpected error of the connection to %s", self._broker.address)
            self._report(error)
        finally:
            self.connected = False
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._hurry.wait(), self._backoff.pause())
        self._hurry.clear()

    def _report(self, error: Exception) -> None:
        self.problem = f"no connection to {self._broker.address}: {error}"
        if self._limited.due("connection"):
            LOG.warning("%s; trying again, %d steps wait", self.problem, self._outbox.waiting)

    async def _serve(self, client: aiomqtt.Client) -> None:
        """Send over one connection until `stop`. If the connection ends earlier, raise its error."""
        self._failure = None
        self._begin(_until_lost(client))
        try:
            while not self._finished:
                self._changed.clear()
                self._notify_flushed()
                while len(self._under_way) <= WINDOW and (message := self._outbox.take()) is not None:
                    self._begin(self._publish(client, message))
                await self._changed.wait()
                if self._failure is not None:
                    raise self._failure
        finally:
            for task in self._under_way:
                task.cancel()
            await asyncio.gather(*self._under_way, return_exceptions=True)

    async def _publish(self, client: aiomqtt.Client, message: Message) -> None:
        await client.publish(message.topic, message.payload, qos=1)
        self._outbox.acknowledge(message, self._clock())

    def _begin(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(coroutine)
        self._under_way.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._under_way.discard(task)
        if not task.cancelled() and (failure := task.exception()) is not None:
            self._failure = failure
        self._changed.set()

    def _notify_flushed(self) -> None:
        if self._outbox.settled:
            for event in self._flushed:
                event.set()
            self._flushed.clear()


async def _until_lost(client: aiomqtt.Client) -> None:
    """Wait until the connection is lost, and raise the error.

    While no message is sent, only this method notices the loss.
    """
    async for _ in client.messages:
        pass
