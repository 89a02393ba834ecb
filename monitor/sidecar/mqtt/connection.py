"""One connection to an MQTT broker: an asyncio protocol that reads and writes in batches.

One read takes all bytes that have arrived. One write sends all packets of a loop iteration; over TLS it is one record.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from monitor.errors import ConfigError
from monitor.sidecar.clock import Clock, read_clock
from monitor.sidecar.effects import OFFLINE, Publication
from monitor.sidecar.mqtt import codec, dial
from monitor.sidecar.mqtt.codec import Codec, Greeting, MalformedPacketError, Packet
from monitor.sidecar.mqtt.dial import BrokerError, Dial, OldBrokerError, SessionConfig
from monitor.sidecar.mqtt.inbox import Arrived, Receipt
from monitor.sidecar.mqtt.keepalive import KeepAlive
from monitor.sidecar.tasks import in_thread

T = TypeVar("T")

LOG: Final = logging.getLogger("monitor.mqtt")

READ: Final = 1 << 16
"""Maximum number of bytes per read: some 800 steps, enough to recognize a backlog, without starving other tasks."""

DIAL_PATIENCE: Final = 15.0
"""Seconds to resolve the address, connect and encrypt. A resolver can hang longer; the attempt is then repeated."""

REFUSALS: Final = 10  # maximum number of reasons logged per connection; each refused message may have its own

SUBSCRIBE, UNSUBSCRIBE = 1, 2  # ids of the packets SUBSCRIBE and UNSUBSCRIBE; published messages have other ids


class Connection(asyncio.BufferedProtocol):
    """One connection attempt, from CONNECT to DISCONNECT.

    `number` is the connection's number in receipts. With MQTT 5 the broker sends at most `receive` unacknowledged
    messages. `arrived` is called with the messages of a read, and returns the number of messages that it takes. If it
    called `pause`, the other messages wait for `resume`. `published` is called with the id of each published message
    that is accepted, refused or sent with QoS 0. `lost` is a future; its result is the reason why the connection ended.
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
        self.keepalive = KeepAlive(min(max(1, round(session.keepalive)), codec.MAX_ID), self._ping, self._give_up)
        self._codec = Codec(session.version)
        self._dial = Dial(session.broker)
        self._transport: asyncio.Transport | None = None
        self._buffer = memoryview(bytearray(READ))
        self._unread: list[Arrived] = []
        self._paused = self._over = False
        self._unsent: list[bytes] = []
        self._id = UNSUBSCRIBE
        self._topics: dict[int, str] = {}  # id -> topic of published messages that are not acknowledged
        self._refusals: set[str] = set()

    async def open(self) -> None:
        """Connect and subscribe. Raises BrokerError if either fails.

        If the broker kept the session, it also kept the subscription. It may then send thousands of unacknowledged
        messages before SUBACK, so this method does not wait for SUBACK. If the broker refuses later, the connection is
        `lost`.
        """
        try:
            async with asyncio.timeout(DIAL_PATIENCE):
                await self._connect()
            greeting = await self._response(self._greeted, dial.NO_GREETING)
            self._write(self._codec.subscribe(SUBSCRIBE, self._session.steps))
            if self._session.left is not None:
                self._write(self._codec.unsubscribe(UNSUBSCRIBE, self._session.left))
            if not greeting.session_present:
                await self._response(self._subscribed, "no response to the subscription")
        except BaseException as error:
            self.abort()
            if isinstance(error, OSError | ConfigError):  # a file may be wrong for a moment while it is replaced
                words = self._dial.explain(error) or f"no connection within {DIAL_PATIENCE:.0f} s"
                raise BrokerError(words) from error
            raise

    @property
    def window(self) -> int:
        """Maximum number of unacknowledged messages that the broker accepts."""
        return self._greeted.result().receive_maximum

    def publish(self, publication: Publication) -> int:
        """Send a message; return the id with which `published` will be called.

        If the broker does not support QoS 1 or retained messages, the message is sent with QoS 0 or not retained. A
        message that is too large is not sent.
        """
        terms = self._greeted.result()
        self._id = next(n for i in range(codec.MAX_ID) if (n := (self._id + i) % codec.MAX_ID + 1) not in self._topics)
        topic, payload, once = publication.topic, publication.payload, min(publication.qos, terms.max_qos) == 0
        retain = publication.retain and terms.retain
        packet = self._codec.publish(topic, payload, number=0 if once else self._id, retain=retain)
        self._topics[self._id] = topic
        refused = f"it is longer than {terms.max_packet} bytes" if len(packet) > terms.max_packet else None
        if refused is None:
            self._write(packet)
        if once or refused is not None:
            self._loop.call_soon(self._complete, codec.BrokerReply(self._id, refused))
        return self._id

    def acknowledge(self, receipts: Sequence[Receipt]) -> None:
        """Acknowledge messages to the broker, in this order."""
        self._write(codec.acknowledge([receipt.message_id for receipt in receipts]))

    def pause(self) -> None:
        """Stop reading, so that the broker has to wait."""
        self._paused = True
        self.keepalive.deafen()
        if self._transport is not None:
            self._transport.pause_reading()

    def resume(self) -> None:
        """Continue reading, unless the connection is over."""
        if self._paused:
            self._paused = False
            self.keepalive.listen()
            self._loop.call_soon(self._pass_on)

    async def close(self, patience: float) -> None:
        """Disconnect properly, so that the last will is not sent; abort after `patience` seconds.

        Messages that the broker sends meanwhile are not taken. The broker sends them again on the next connection.
        """
        self._arrived = len
        self._write(codec.DISCONNECT)
        self._over = True
        self.resume()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(self.lost), patience)
        self.abort()

    def abort(self) -> None:
        """Close at once. No effect if the connection is closed already."""
        self.keepalive.stop()
        self._flush()
        self._end("ended here")
        if self._transport is not None:
            self._transport.abort()
        else:
            self._dial.give_up()

    # ---- connecting ----

    async def _connect(self) -> None:
        """Connect, encrypt and send CONNECT, with the current credentials and certificates.

        Raises OSError or ConfigError.
        """
        # The loop's own threads are not used: at its end the process waits for them, so a hanging resolver would delay
        # the end.
        credentials, context = await in_thread(self._dial.reach)
        session = self._session
        await self._loop.create_connection(
            lambda: self,
            sock=self._dial.socket,
            ssl=context,
            server_hostname=None if context is None else session.broker.host,
            ssl_handshake_timeout=None if context is None else dial.HANDSHAKE,
        )
        will, keepalive = (session.status_topic, OFFLINE), int(self.keepalive.seconds)
        self._write(self._codec.connect(session.client_id, keepalive, will, credentials, self._receive))

    async def _response(self, response: asyncio.Future[T], missing: str) -> T:
        either: set[asyncio.Future[Any]] = {response, self.lost}
        await asyncio.wait(either, timeout=dial.CONNECT_PATIENCE, return_when=asyncio.FIRST_COMPLETED)
        if response.done():
            return response.result()
        raise BrokerError(self.lost.result() if self.lost.done() else missing)

    def _end(self, reason: str) -> None:
        if not self.lost.done():
            self.lost.set_result(reason)

    # ---- asyncio's callbacks ----

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start reading. asyncio calls this when the connection is made."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer to read into."""
        del sizehint
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Process the bytes that were read."""
        self._dial.acknowledge()
        self.keepalive.heard()
        now, number = self._clock(), self._number
        try:
            messages, packets = self._codec.feed(bytes(self._buffer[:nbytes]))
            for packet in packets:
                self._take(packet)
        except MalformedPacketError as error:
            self._give_up(f"the broker sends what is not MQTT: {error}")
            return
        self._unread += [
            Arrived(now, topic, payload, Receipt(number, message_id) if message_id else None)
            for topic, payload, message_id in messages
        ]
        self._pass_on()

    def connection_lost(self, exc: Exception | None) -> None:
        """Record the end of the connection. asyncio calls this when the connection is lost or closed."""
        self._end(self._dial.explain(exc or ConnectionAbortedError("the broker closed the connection")))
        self.abort()

    # ---- reading and writing ----

    def _pass_on(self) -> None:
        """Pass on the messages that were read, and continue reading unless `pause` was called."""
        if self._unread and not self._paused and not self.lost.done():
            del self._unread[: self._arrived(self._unread)]
        if self._transport is not None and not self._paused and not self.lost.done():
            self._transport.resume_reading()

    def _take(self, packet: Packet) -> None:
        """Process an answer of the broker."""
        match packet[0]:
            case codec.CONNACK if not self._greeted.done():
                self._greet(self._codec.greeting(packet[1]))
            case codec.PUBACK:
                self._complete(self._codec.answer(packet))
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
            self.keepalive.seconds = greeting.keepalive or self.keepalive.seconds
            self._dial.greeted = True
            self._greeted.set_result(greeting)
            self.keepalive.start()

    def _complete(self, answer: codec.BrokerReply) -> None:
        """Record that a published message is accepted, refused or sent with QoS 0."""
        if (topic := self._topics.pop(answer.id, None)) is None:
            return
        if answer.words is not None and answer.words not in self._refusals and len(self._refusals) < REFUSALS:
            self._refusals.add(answer.words)
            words = "the broker does not take a message on %s: %s (not logged again until the next connection)"
            LOG.error(words, topic, answer.words)
        self._published(answer.id)

    def _write(self, content: bytes) -> None:
        """Send the bytes together with the other packets of this loop iteration. After DISCONNECT, send nothing."""
        if self._over:
            return
        if not self._unsent:
            self._loop.call_soon(self._flush)
        self._unsent.append(content)

    def _flush(self) -> None:
        content, self._unsent = b"".join(self._unsent), []
        if content and self._transport is not None and not self._transport.is_closing():
            self.keepalive.said()
            self._transport.write(content)

    def _ping(self) -> None:
        self._write(codec.PING)
        self._flush()  # at once, because the broker's time to answer begins

    def _give_up(self, reason: str) -> None:
        self._end(reason)
        self.abort()
