"""The broker's side of the sidecar: receiving with acknowledgement after the fact, publishing until acknowledged.

aiomqtt acknowledges a message before the application has seen it (paho does so as soon as `on_message` returns, and
aiomqtt only puts the message in a queue there). A message that waits in that queue when the process dies is then lost,
although the broker was told otherwise. paho can be made to wait: with `manual_ack` it is `ack(mid, qos)` that sends the
PUBACK. aiomqtt does not offer this, so this file, and no other, reaches through to the paho client it wraps
(`_client`), and hands in a queue of its own (`queue_type`) that never discards on its own account. Hence the pin to
aiomqtt 2.x.

What it gives: the broker keeps a step until the pipeline has taken it over, sends it again after a crash, and (with its
limit on messages in flight, 20 in mosquitto) slows down when we do. Once steps are kept on disk, the acknowledgement
moves behind that, with nothing to change here.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import socket
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, cast

import aiomqtt

from monitor.sidecar.broker import Broker
from monitor.sidecar.clock import read_clock
from monitor.sidecar.door import Arrived, Door, Receipt
from monitor.sidecar.pipeline import OFFLINE, Publication
from monitor.sidecar.tasks import end_tasks

__all__ = ["Link", "Outbox"]

LOG: Final = logging.getLogger("monitor.mqtt")
FIRST_PAUSE: Final = 0.2
LONGEST_PAUSE: Final = 10.0
"""Seconds before trying to connect again; doubled from the first to the longest, each shortened by up to a half."""

GOODBYE: Final = 2.0
"""Seconds for the last messages at the end."""


class Outbox:
    """What is to be published, in order, until the broker has acknowledged it. Bounded.

    Everything we publish is retained, so only the newest message of a topic matters in the end: beyond `limit`, older
    messages of the same topic go first.
    """

    def __init__(self, limit: int = 10_000) -> None:
        self._limit = limit
        self._waiting: OrderedDict[int, Publication] = OrderedDict()
        self._next = 0
        self._something = asyncio.Event()
        self._nothing = asyncio.Event()
        self._nothing.set()

    def __len__(self) -> int:
        """Messages waiting."""
        return len(self._waiting)

    def put(self, publication: Publication) -> None:
        """Add a message to send."""
        self._waiting[self._next] = publication
        self._next += 1
        if len(self._waiting) > self._limit:
            self._thin_out()
        self._something.set()
        self._nothing.clear()

    async def first(self) -> tuple[int, Publication]:
        """The oldest message and its number; it stays until `done`."""
        while not self._waiting:
            self._something.clear()
            await self._something.wait()
        return next(iter(self._waiting.items()))

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
            number, publication = self._waiting.popitem(last=False)
            LOG.error("outbox is full: message %d for %s given up", number, publication.topic)


class _Inlet:
    """Stands where aiomqtt expects its queue: hands each message on at once, and never gives one out."""

    def __init__(self, arrived: Callable[[aiomqtt.Message], None]) -> None:
        self._arrived = arrived

    def __call__(self, maxsize: int = 0) -> _Inlet:  # noqa: ARG002 - aiomqtt makes its queue by calling `queue_type`
        return self

    def put_nowait(self, message: aiomqtt.Message) -> None:
        self._arrived(message)

    async def get(self) -> aiomqtt.Message:
        """Never returns: who waits for a message here is told of the disconnection, and that is all we want."""
        await asyncio.Event().wait()
        raise AssertionError

    def qsize(self) -> int:
        return 0


@dataclass(frozen=True, slots=True)
class Session:
    """Who we are to the broker, and what we want from it."""

    broker: Broker
    client_id: str
    steps: str
    status_topic: str
    keepalive: float


class Link:
    """One persistent session with the broker, over as many connections as it takes.

    `changed(up)` is called on the loop when the broker is reached and when it is lost.
    """

    def __init__(self, session: Session, door: Door, outbox: Outbox, changed: Callable[[bool], None]) -> None:
        self._session = session
        self._door = door
        self._outbox = outbox
        self._changed = changed
        self._connection = 0
        self._client: aiomqtt.Client | None = None
        self._up = False

    @property
    def up(self) -> bool:
        """Whether the broker is reached now."""
        return self._up

    def acknowledge(self, receipt: Receipt) -> None:
        """Tell the broker that a message was taken over. Of an older connection: nothing, it will come again."""
        if self._client is not None and receipt.connection == self._connection:
            self._paho(self._client).ack(receipt.message_id, receipt.qos)

    async def run(self, stop: asyncio.Event) -> None:
        """Keep connected until `stop`; then say goodbye, if there is anyone to say it to."""
        failures = 0
        while not stop.is_set():
            try:
                await self._connect(stop)
            except (aiomqtt.MqttError, TimeoutError) as error:
                failures = 0 if self._up else failures + 1
                self._tell_lost(error)
            self._client = None
            await _pause(stop, failures)

    async def _connect(self, stop: asyncio.Event) -> None:
        """One connection, from the first byte to `stop`; MqttError if it fails or ends before."""
        self._connection += 1  # before connecting: what was not acknowledged comes right behind the greeting
        self._client = self._make_client()
        async with self._client as client:
            await self._subscribe(client)
            self._up = True
            LOG.info("connected to %s as %s", self._session.broker.address, self._session.client_id)
            self._changed(True)  # noqa: FBT003 - the one argument of a callback
            await self._serve(client, stop)
            await asyncio.wait_for(client.publish(self._session.status_topic, OFFLINE, qos=1, retain=True), GOODBYE)
            self._up = False

    async def _subscribe(self, client: aiomqtt.Client) -> None:
        codes = await client.subscribe(self._session.steps, qos=1)
        if any(code >= 0x80 if isinstance(code, int) else code.is_failure for code in codes):
            raise aiomqtt.MqttError(
                f"the broker refuses the subscription to {self._session.steps}: check its access rules"
            )

    async def _serve(self, client: aiomqtt.Client, stop: asyncio.Event) -> None:
        """Send and receive until `stop` is set and the outbox had its chance to empty; MqttError if the broker goes."""
        sending = asyncio.create_task(self._send(client))
        losing = asyncio.create_task(_until_lost(client))
        stopping = asyncio.create_task(stop.wait())
        tasks: set[asyncio.Task[Any]] = {sending, losing, stopping}
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if stop.is_set():
                emptied = asyncio.create_task(self._outbox.emptied())
                tasks.add(emptied)
                await asyncio.wait({sending, losing, emptied}, timeout=GOODBYE, return_when=asyncio.FIRST_COMPLETED)
            for ended in (sending, losing):
                if ended.done():
                    ended.result()
        finally:
            await end_tasks(tasks)

    async def _send(self, client: aiomqtt.Client) -> None:
        while True:
            number, publication = await self._outbox.first()
            await client.publish(publication.topic, publication.payload, qos=publication.qos, retain=publication.retain)
            self._outbox.done(number)

    def _tell_lost(self, error: Exception) -> None:
        if not self._up:
            LOG.warning("cannot connect to %s: %s", self._session.broker.address, error)
            return
        self._up = False
        LOG.warning("lost %s: %s", self._session.broker.address, error)
        self._changed(False)  # noqa: FBT003 - likewise

    def _make_client(self) -> aiomqtt.Client:
        session = self._session
        client = aiomqtt.Client(
            session.broker.host,
            session.broker.port,
            username=session.broker.username,
            password=session.broker.password,
            identifier=session.client_id,
            clean_session=False,
            keepalive=max(1, round(session.keepalive)),
            will=aiomqtt.Will(session.status_topic, OFFLINE, qos=1, retain=True),
            socket_options=[
                (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            ],  # acknowledgements are small and must not wait
            queue_type=cast("Any", _Inlet(self._arrived)),
            logger=LOG,
        )
        self._paho(client).manual_ack_set(on=True)
        return client

    @staticmethod
    def _paho(client: aiomqtt.Client) -> Any:  # noqa: ANN401 - paho's client, which aiomqtt keeps to itself
        return client._client  # noqa: SLF001 - the reason stands at the top of this file

    def _arrived(self, message: aiomqtt.Message) -> None:
        receipt = Receipt(self._connection, message.mid, message.qos) if message.qos else None
        self._door.enter(Arrived(read_clock(), str(message.topic), bytes(message.payload), receipt))


async def _until_lost(client: aiomqtt.Client) -> None:
    """Raises MqttError when the connection is lost; no message ever comes this way (see `_Inlet`)."""
    async for _ in client.messages:
        raise AssertionError("a message came where none can")


async def _pause(stop: asyncio.Event, failures: int) -> None:
    """Wait before the next try, longer each time, and not in step with every other sidecar of the broker."""
    longest = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(failures, 10))
    seconds = longest * random.uniform(0.5, 1.0)  # noqa: S311 - it spreads load, it guards no secret
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(stop.wait(), timeout=seconds)
