"""One connection to an MQTT broker, on an asyncio loop.

Why no MQTT library: aiomqtt acknowledges a message before the application has seen it; paho-mqtt leaves acknowledging
to us, but asks the socket three times for each message and once for each acknowledgement, which takes longer than
answering a formula does. Here one read brings all that has come, and one write all acknowledgements of a turn.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from monitor.sidecar import packets
from monitor.sidecar.broker import Broker
from monitor.sidecar.clock import read_clock
from monitor.sidecar.door import Arrived, Receipt
from monitor.sidecar.packets import Kind, PacketError
from monitor.sidecar.pipeline import OFFLINE, Publication
from monitor.types import Instant

__all__ = ["BURST", "WINDOW", "BrokerError", "Connection", "Session"]

BURST: Final = 64
"""Messages in one turn of the loop: enough to see a backlog, few enough to let everyone else have their turn."""

WINDOW: Final = 20
"""Messages of ours that may wait for the broker's acknowledgement at once."""

CONNECT_PATIENCE: Final = 4.0
"""Seconds for TCP to connect, and for each answer of the broker after that."""


class BrokerError(Exception):
    """The broker cannot be reached, refuses us, or is gone. Never leaves the link, which tries again."""


@dataclass(frozen=True, slots=True)
class Session:
    """Who we are to the broker, and what we want from it. `keepalive`: seconds."""

    broker: Broker
    client_id: str
    steps: str
    status_topic: str
    keepalive: float


class Connection(asyncio.Protocol):
    """One connection, from greeting to goodbye; a new one is made for each attempt.

    `number` goes into receipts. `arrived` gets each message, `published` the id of each message of ours that the broker
    has taken over. `lost` is done, with the reason, when the connection is over.
    """

    def __init__(
        self, session: Session, number: int, arrived: Callable[[Arrived], None], published: Callable[[int], None]
    ) -> None:
        self._session = session
        self._number = number
        self._arrived = arrived
        self._published = published
        self._loop = asyncio.get_running_loop()
        self._greeted: asyncio.Future[None] = self._loop.create_future()
        self._subscribed: asyncio.Future[None] = self._loop.create_future()
        self.lost: asyncio.Future[str] = self._loop.create_future()
        self._transport: asyncio.Transport | None = None
        self._reader = packets.Reader()
        self._reading = True
        self._waiting: asyncio.Handle | None = None
        self._acknowledged = bytearray()
        self._last_id = 0
        self._said = self._loop.time()
        self._pinged: float | None = None
        self._alive: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Connect and subscribe; BrokerError if either fails. What was not acknowledged before comes right behind."""
        broker = self._session.broker
        try:
            async with asyncio.timeout(CONNECT_PATIENCE):
                await self._loop.create_connection(lambda: self, broker.host, broker.port)
            self._say(self._greeting())
            await self._answer(self._greeted, "no greeting")
            self._alive = self._loop.create_task(self._keep_alive())
            self._say(packets.subscribe(self._next_id(), self._session.steps))
            await self._answer(self._subscribed, "no answer to the subscription")
        except OSError as error:  # a timeout is one, too
            self.abort()
            raise BrokerError(error.strerror or str(error) or "no connection in time") from error
        except BaseException:
            self.abort()
            raise

    def publish(self, publication: Publication) -> int:
        """Send a message; returns the id under which it will be `published`."""
        message_id, qos = self._next_id(), publication.qos
        content = (publication.topic, publication.payload)
        self._say(packets.publish(message_id, *content, qos=qos, retain=publication.retain))
        if qos == 0:
            self._loop.call_soon(self._published, message_id)
        return message_id

    def acknowledge(self, receipt: Receipt) -> None:
        """Tell the broker that a message was taken over; with all others of this turn of the loop."""
        if not self._acknowledged:
            self._loop.call_soon(self._say_acknowledged)
        self._acknowledged += packets.acknowledgement(receipt.message_id)

    def pause(self) -> None:
        """Read nothing more for now; the broker has to wait."""
        self._reading = False
        if self._transport is not None:
            self._transport.pause_reading()

    def resume(self) -> None:
        """Read again, first what has been read already."""
        self._reading = True
        if self._waiting is None:
            self._waiting = self._loop.call_soon(self._read)

    async def close(self, patience: float) -> None:
        """Say goodbye, so that the last will is not sent, and end."""
        self._say_acknowledged()
        self._say(packets.DISCONNECT)
        self._arrived = lambda _: None  # whatever still comes will come again
        self.resume()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(self.lost), patience)
        self.abort()

    def abort(self) -> None:
        """End at once; harmless if it is over already."""
        if self._alive is not None:
            self._alive.cancel()
        if self._waiting is not None:
            self._waiting.cancel()
        if self._transport is not None:
            self._transport.abort()
        self._end("ended here")

    # ---- what the loop tells ----

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """TCP is there; asyncio sets TCP_NODELAY, for acknowledgements are small and must not wait."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Something came."""
        self._reader.feed(data)
        if self._waiting is None:
            self._read()

    def connection_lost(self, exc: Exception | None) -> None:
        """TCP is gone."""
        self._end(str(exc) if exc is not None else "the broker closed the connection")

    # ---- in ----

    def _read(self) -> None:
        """Take what has come, up to a burst, and as long as nobody says `pause`; the rest waits, and the broker too."""
        self._waiting = None
        now, left = read_clock(), BURST
        try:
            while left and self._reading and not self.lost.done():
                packet = self._reader.next()
                if packet is None:
                    if self._transport is not None:
                        self._transport.resume_reading()
                    return
                left -= 1
                self._take(*packet, now)
        except PacketError as error:
            self._end(f"what the broker sends is no MQTT: {error}")
            self.abort()
            return
        if self._transport is not None:
            self._transport.pause_reading()
        if self._reading:
            self._waiting = self._loop.call_soon(self._read)

    def _take(self, first: int, body: bytes, now: Instant) -> None:
        match first >> 4:
            case Kind.PUBLISH:
                topic, message_id, payload = packets.message(first, body)
                try:
                    name = topic.decode()
                except UnicodeDecodeError:  # no broker should let it through; the pipeline rejects it as `bad_topic`
                    name = ""
                qos = first >> 1 & 3
                receipt = Receipt(self._number, message_id, qos) if qos else None
                self._arrived(Arrived(now, name, payload, receipt))
            case Kind.PUBACK:
                self._published(packets.number(body))
            case Kind.CONNACK:
                self._hear_greeting(body)
            case Kind.SUBACK:
                self._hear_subscription(body)
            case Kind.PONG:
                self._pinged = None
            case kind:
                raise PacketError(f"a packet of type {kind}")

    def _hear_greeting(self, body: bytes) -> None:
        if len(body) != 2 or self._greeted.done():
            raise PacketError("a strange greeting")
        if body[1]:
            why = packets.REFUSALS.get(body[1], f"code {body[1]}")
            self._greeted.set_exception(BrokerError(f"the broker refuses the connection: {why}"))
        else:
            self._greeted.set_result(None)

    def _hear_subscription(self, body: bytes) -> None:
        if len(body) != 3 or self._subscribed.done():
            raise PacketError("a strange answer to the subscription")
        if body[2] & 0x80:
            problem = f"the broker refuses the subscription to {self._session.steps}: check its access rules"
            self._subscribed.set_exception(BrokerError(problem))
        else:
            self._subscribed.set_result(None)

    # ---- out ----

    def _greeting(self) -> bytes:
        session = self._session
        return packets.connect(
            session.client_id,
            keepalive=max(1, round(session.keepalive)),
            will=packets.Will(session.status_topic, OFFLINE),
            user=session.broker.username,
            password=session.broker.password,
        )

    def _say(self, content: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(content)
            self._said = self._loop.time()

    def _say_acknowledged(self) -> None:
        if self._acknowledged:
            self._say(bytes(self._acknowledged))
            self._acknowledged.clear()

    def _next_id(self) -> int:
        """From 1 to 65535, and again: what is so old was acknowledged long ago."""
        self._last_id = self._last_id % 65535 + 1
        return self._last_id

    async def _keep_alive(self) -> None:
        """Say something at least every half of the keepalive; a broker that does not answer is gone."""
        patience = max(1.0, self._session.keepalive)
        while not self.lost.done():
            await asyncio.sleep(patience / 4)
            now = self._loop.time()
            if self._pinged is not None and now - self._pinged > patience:
                self._end(f"no answer in {patience:g} s")
                self.abort()
            elif self._pinged is None and now - self._said > patience / 4:
                self._pinged = now
                self._say(packets.PING)

    async def _answer(self, answer: asyncio.Future[None], otherwise: str) -> None:
        either: set[asyncio.Future[Any]] = {answer, self.lost}
        await asyncio.wait(either, timeout=CONNECT_PATIENCE, return_when=asyncio.FIRST_COMPLETED)
        if answer.done():
            answer.result()
        else:
            raise BrokerError(self.lost.result() if self.lost.done() else otherwise)

    def _end(self, reason: str) -> None:
        if not self.lost.done():
            self.lost.set_result(reason)
