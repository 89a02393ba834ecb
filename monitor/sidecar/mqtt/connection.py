"""One connection to an MQTT broker: our codec as a protocol of asyncio, which reads and writes in batches.

One read takes what has arrived, and one write sends all that a loop iteration has to say: over TLS, one record.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from monitor.errors import ConfigError
from monitor.sidecar.clock import Clock, read_clock
from monitor.sidecar.mqtt import codec
from monitor.sidecar.mqtt.broker import Broker
from monitor.sidecar.mqtt.codec import Codec, Greeting, MalformedPacketError, Packet, Version
from monitor.sidecar.mqtt.inbox import Arrived, Receipt
from monitor.sidecar.mqtt.tls import explain, make_context
from monitor.sidecar.pipeline import OFFLINE, Publication
from monitor.sidecar.tasks import in_thread

__all__ = ["BrokerError", "Connection", "OldBrokerError", "SessionConfig"]

T = TypeVar("T")

LOG: Final = logging.getLogger("monitor.mqtt")

READ: Final = 1 << 16
"""Bytes per read: some 800 steps, enough to see a backlog, without starving other tasks."""

MAX_PACKET: Final = 32 << 20
"""Bytes of a packet that a broker with MQTT 5 may send: beyond any `limits.message_bytes`, so that a message which is
too long arrives, and is reported."""

CONNECT_PATIENCE: Final = 4.0
"""Seconds for TCP to connect to one address, and for each response of the broker after that."""

HANDSHAKE: Final = 8.0
"""Seconds for a whole TLS handshake."""

DIAL_PATIENCE: Final = 15.0
"""Seconds to resolve the address, connect and encrypt. A resolver can hang for longer; then we retry."""

UNEXPLAINED: Final = (
    " before CONNACK; check whether the port is for mqtt:// or mqtts://, whether it requires a client certificate,"
    " and whether the broker speaks this version of MQTT (mqtt.version)"
)
"""Appended to the reason if a connection is lost before the broker has sent anything."""

SUBSCRIBE, UNSUBSCRIBE = 1, 2
"""Ids of these packets; messages of ours have others."""


class BrokerError(Exception):
    """The broker cannot be reached, refuses us, or is gone. `Link` catches it and retries."""


class OldBrokerError(BrokerError):
    """The broker does not speak MQTT 5."""


@dataclass(frozen=True, slots=True)
class SessionConfig:
    """Parameters of the MQTT session. `keepalive`: seconds.

    `left`: topic of an earlier configuration's steps, to unsubscribe from: a persistent session keeps subscriptions.
    """

    broker: Broker
    client_id: str
    steps: str
    status_topic: str
    keepalive: float
    left: str | None = None
    version: Version = "5"


class Connection(asyncio.BufferedProtocol):
    """One connection attempt, from CONNECT to DISCONNECT.

    `number` goes into receipts. With MQTT 5 the broker sends at most `receive` messages unacknowledged. `arrived` is
    called with the messages of a read; it returns how many it takes, and what is left waits for `resume` if it called
    `pause`. `published` is called with the id of each message of ours that needs no more. `lost` is done, with the
    reason, when the connection is over.
    """

    def __init__(
        self,
        session: SessionConfig,
        number: int,
        arrived: Callable[[Sequence[Arrived]], int],
        published: Callable[[int], None],
        clock: Clock = read_clock,
        *,
        receive: int = codec.MAX_ID,
    ) -> None:
        self._session = session
        self._number = number
        self._arrived = arrived
        self._published = published
        self._clock = clock
        self._receive = receive
        self._loop = asyncio.get_running_loop()
        self._greeted: asyncio.Future[Greeting] = self._loop.create_future()
        self._subscribed: asyncio.Future[None] = self._loop.create_future()
        self.lost: asyncio.Future[str] = self._loop.create_future()
        self.keepalive = float(max(1, round(session.keepalive)))
        self._codec = Codec(session.version)
        self._socket: socket.socket | None = None
        self._transport: asyncio.Transport | None = None
        self._buffer = memoryview(bytearray(READ))
        self._unread: list[Arrived] = []
        self._paused = False
        self._unsent: list[bytes] = []
        self._id = UNSUBSCRIBE
        self._unacknowledged: dict[int, str] = {}
        self._heard = self._said = self._loop.time()
        self._alive: asyncio.TimerHandle | None = None

    async def open(self) -> None:
        """Connect and subscribe; BrokerError if either fails. Unacknowledged messages follow.

        If the broker kept our session, it has our subscription and may send thousands of messages before SUBACK, so we
        do not wait for it. If it refuses later, the connection is `lost`.
        """
        session = self._session
        try:
            async with asyncio.timeout(DIAL_PATIENCE):
                await self._dial()
            greeting = await self._response(self._greeted, "no response to CONNECT")
            self._write(self._codec.subscribe(SUBSCRIBE, session.steps))
            if session.left is not None:
                self._write(self._codec.unsubscribe(UNSUBSCRIBE, session.left))
            if not greeting.session_present:
                await self._response(self._subscribed, "no response to the subscription")
        except OSError as error:
            self.abort()
            raise BrokerError(self._explain(error) or f"no connection within {DIAL_PATIENCE:.0f} s") from error
        except ConfigError as error:  # a file was replaced by a bad one; the next attempt may find a good one
            self.abort()
            raise BrokerError(str(error)) from error
        except BaseException:
            self.abort()
            raise

    @property
    def window(self) -> int:
        """Number of messages that the broker accepts unacknowledged."""
        return self._greeted.result().receive_maximum

    def publish(self, publication: Publication) -> int:
        """Send a message; return the id with which `published` will be called.

        What the broker does not support is left out: QoS 1, the wish to retain it, or a message that is too large.
        """
        terms = self._greeted.result()
        while (number := self._id % codec.MAX_ID + 1) in self._unacknowledged:
            self._id = number
        self._id = number
        once = min(publication.qos, terms.max_qos) > 0
        packet = self._codec.publish(
            publication.topic,
            publication.payload,
            number=number if once else 0,
            retain=publication.retain and terms.retain,
        )
        self._unacknowledged[number] = publication.topic
        if len(packet) > terms.max_packet:
            self._loop.call_soon(self._settle, codec.Answer(number, f"more than {terms.max_packet} bytes"))
            return number
        self._write(packet)
        if not once:
            self._loop.call_soon(self._settle, codec.Answer(number, None))
        return number

    def acknowledge(self, receipts: Sequence[Receipt]) -> None:
        """Acknowledge messages to the broker, in this order."""
        self._write(codec.acknowledge([receipt.message_id for receipt in receipts]))

    def pause(self) -> None:
        """Read no more; the broker has to wait."""
        self._paused = True
        if self._transport is not None:
            self._transport.pause_reading()

    def resume(self) -> None:
        """Read again, unless the connection is over, which the caller may not know yet."""
        if self._paused:
            self._paused = False
            self._heard = self._loop.time()
            self._loop.call_soon(self._pass_on)

    async def close(self, patience: float) -> None:
        """Disconnect in order, so that the last will is not sent; abort after `patience` seconds.

        What the broker sends meanwhile is not taken; it comes again on the next connection.
        """
        self._arrived = len
        self._write(codec.DISCONNECT)
        self.resume()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(self.lost), patience)
        self.abort()

    def abort(self) -> None:
        """Close at once; no effect if it is closed already."""
        if self._alive is not None:
            self._alive.cancel()
        self._flush()
        self._end("ended here")
        if self._transport is not None:
            self._transport.abort()
        elif self._socket is not None:
            self._socket.close()

    # ---- connecting ----

    async def _dial(self) -> None:
        """Connect, encrypt and greet, with the current credentials and certificates. OSError or ConfigError."""
        # Not in the loop's own threads: the process waits for them at its end, and so for a hanging resolver.
        context, greeting = await in_thread(self._reach)
        assert self._socket is not None, "or it could not be reached"
        await self._loop.create_connection(
            lambda: self,
            sock=self._socket,
            ssl=context,
            server_hostname=None if context is None else self._session.broker.host,
            ssl_handshake_timeout=None if context is None else HANDSHAKE,
        )
        self._write(greeting)
        self._keep_alive()

    def _reach(self) -> tuple[ssl.SSLContext | None, bytes]:
        """Return the context for TLS and CONNECT; runs in a thread of its own, which may take longer than we wait."""
        session, broker = self._session, self._session.broker
        greeting = self._codec.connect(
            session.client_id,
            keepalive=int(self.keepalive),
            will=(session.status_topic, OFFLINE),
            credentials=broker.credentials(),
            receive_maximum=self._receive,
            max_packet=MAX_PACKET,
        )
        context = None if broker.tls is None else make_context(broker.tls)
        self._socket = socket.create_connection((broker.host, broker.port), CONNECT_PATIENCE)
        self._socket.setblocking(False)  # noqa: FBT003 - its one argument
        if self.lost.done():
            self._socket.close()
        return context, greeting

    async def _response(self, response: asyncio.Future[T], missing: str) -> T:
        either: set[asyncio.Future[Any]] = {response, self.lost}
        await asyncio.wait(either, timeout=CONNECT_PATIENCE, return_when=asyncio.FIRST_COMPLETED)
        if response.done():
            return response.result()
        raise BrokerError(self.lost.result() if self.lost.done() else missing)

    def _explain(self, error: Exception) -> str:
        """Return the reason for the log: a broker that rejects our certificate or protocol often just hangs up."""
        hung_up = isinstance(error, ConnectionError) and not isinstance(error, ConnectionRefusedError)
        words = explain(error) if isinstance(error, OSError) else str(error)
        if hung_up and not self._greeted.done():
            return (words or "the broker closed the connection") + UNEXPLAINED
        return words

    def _end(self, reason: str) -> None:
        if not self.lost.done():
            self.lost.set_result(reason)

    # ---- asyncio's callbacks ----

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return where to read to."""
        del sizehint
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Take what was read."""
        self._heard = self._loop.time()
        now, number = self._clock(), self._number
        try:
            messages, packets = self._codec.feed(bytes(self._buffer[:nbytes]))
            for packet in packets:
                self._take(packet)
        except MalformedPacketError as error:
            self._end(f"the broker sends what is not MQTT: {error}")
            self.abort()
            return
        if messages:
            self._unread += [
                Arrived(now, topic, payload, Receipt(number, message_id) if message_id else None)
                for topic, payload, message_id in messages
            ]
            self._pass_on()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._end(self._explain(exc or ConnectionAbortedError("the broker closed the connection")))
        self.abort()

    # ---- reading and writing ----

    def _pass_on(self) -> None:
        """Pass on what was read, and read on unless that is to pause."""
        if self._paused or self.lost.done() or self._transport is None:
            return
        if self._unread:
            del self._unread[: self._arrived(self._unread)]
        if not self._paused:
            self._transport.resume_reading()

    def _take(self, packet: Packet) -> None:
        """React to what the broker answers."""
        match packet[0]:
            case codec.CONNACK if not self._greeted.done():
                self._greet(self._codec.greeting(packet[1]))
            case codec.PUBACK:
                self._settle(self._codec.answer(packet))
            case codec.SUBACK:
                if (words := self._codec.answer(packet).words) is not None:
                    steps = self._session.steps
                    self._end(f"the broker refuses the subscription to {steps} ({words}): check its access rules")
                elif not self._subscribed.done():
                    self._subscribed.set_result(None)
            case codec.GOODBYE:
                self._end(f"the broker ends the connection: {self._codec.answer(packet).words}")
            case codec.UNSUBACK | codec.PINGRESP:
                pass
            case kind:
                raise MalformedPacketError(f"packet 0x{kind:02X}")

    def _greet(self, greeting: Greeting) -> None:
        if self._session.version == "5" and (greeting.old or greeting.code == codec.UNSUPPORTED):
            self._greeted.set_exception(OldBrokerError("the broker does not speak MQTT 5"))
        elif greeting.code:
            self._greeted.set_exception(BrokerError(f"the broker refuses the connection: {greeting.words}"))
        else:
            self.keepalive = greeting.keepalive or self.keepalive
            self._greeted.set_result(greeting)

    def _settle(self, answer: codec.Answer) -> None:
        """Note that a message of ours needs no more."""
        topic = self._unacknowledged.pop(answer.id, None)
        if topic is None:
            return
        if answer.words is not None:
            LOG.error("the broker does not take a message on %s: %s", topic, answer.words)
        self._published(answer.id)

    def _write(self, content: bytes) -> None:
        """Send this with everything else that this loop iteration has to say."""
        if not self._unsent:
            self._loop.call_soon(self._flush)
        self._unsent.append(content)

    def _flush(self) -> None:
        content, self._unsent = b"".join(self._unsent), []
        if content and self._transport is not None and not self._transport.is_closing():
            self._said = self._loop.time()
            self._transport.write(content)

    def _keep_alive(self) -> None:
        """Send a ping if either side was silent for half a keepalive; end the connection after one and a half."""
        now = self._loop.time()
        if not self._paused and now - self._heard > 1.5 * self.keepalive:
            self._end(f"the broker says nothing for {now - self._heard:.0f} s")
            self.abort()
            return
        if now - min(self._heard, self._said) >= self.keepalive / 2:
            self._write(codec.PING)
        self._alive = self._loop.call_later(self.keepalive / 4, self._keep_alive)
