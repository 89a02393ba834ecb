"""One connection to an MQTT broker: paho-mqtt on an asyncio loop, over a socket that reads and writes in batches.

Why not aiomqtt: it acknowledges a message before the application has seen it, reads one packet each turn of the loop
(under load the backlog then hides in the sockets, where neither the queue's length nor the load shedding sees it), and
gives up a connection when an acknowledgement of ours waits behind such a backlog. paho with `manual_ack` leaves all
three to us.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from paho.mqtt.client import Client, ConnectFlags, DisconnectFlags, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from monitor.errors import ConfigError
from monitor.sidecar.clock import Clock, read_clock
from monitor.sidecar.mqtt.batched_socket import BatchedSocket, TlsBatchedSocket
from monitor.sidecar.mqtt.broker import Broker
from monitor.sidecar.mqtt.inbox import Arrived, Receipt
from monitor.sidecar.mqtt.tls import explain, make_context
from monitor.sidecar.pipeline import OFFLINE, Publication
from monitor.sidecar.tasks import in_thread

if TYPE_CHECKING:
    from paho.mqtt.client import SocketLike  # paho defines it for type checkers only

__all__ = ["WINDOW", "BrokerError", "Connection", "SessionConfig"]

BURST: Final = 64
MOST: Final = 512
"""Reads, and messages, in one turn of the loop: enough to see a backlog, few enough to let everyone else have their
turn. paho takes at most as many packets in one read as messages of ours are under way, or one."""

WINDOW: Final = 5_000
"""Messages of ours that may wait for the broker's acknowledgement at once. Acknowledgements come behind the steps that
the broker sends, which are not read while as many wait here as may: with 500, no alert left for as long as that lasted.
"""

CONNECT_PATIENCE: Final = 4.0
"""Seconds for TCP to connect to one address, and for each answer of the broker after that."""

DIAL_PATIENCE: Final = 15.0
"""Seconds to find the address, connect and encrypt. A resolver can hang for longer; then it is tried anew."""

UNEXPLAINED: Final = (
    " before it greeted us; is this the port for mqtt:// or for mqtts://, and must we show a certificate?"
)
"""Added to the loss of a connection on which the broker has not said a word."""


class BrokerError(Exception):
    """The broker cannot be reached, refuses us, or is gone. Never leaves the link, which tries again."""


@dataclass(frozen=True, slots=True)
class SessionConfig:
    """Who we are to the broker, and what we want from it. `keepalive`: seconds.

    `left`: where steps came from under an earlier configuration; in a kept session that subscription goes on.
    """

    broker: Broker
    client_id: str
    steps: str
    status_topic: str
    keepalive: float
    left: str | None = None


class _Client(Client):
    """paho over our socket. Its own way of making one is the one private thing of it that is relied on."""

    wire: BatchedSocket | None = None
    tls: ssl.SSLContext | None = None

    def _create_socket_connection(self) -> socket.socket:
        connected = super()._create_socket_connection()
        self.wire = BatchedSocket(connected) if self.tls is None else TlsBatchedSocket(connected, self.tls, self.host)
        self.wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # acknowledgements are small and must not wait
        return self.wire


class Connection:
    """One connection, from greeting to goodbye; a new one is made for each attempt.

    `number` goes into receipts. `arrived` gets each message, `published` the id of each message of ours that the broker
    has taken over. `lost` is done, with the reason, when the connection is over.
    """

    def __init__(
        self,
        session: SessionConfig,
        number: int,
        arrived: Callable[[Arrived], None],
        published: Callable[[int], None],
        clock: Clock = read_clock,
    ) -> None:
        self._session = session
        self._number = number
        self._arrived = arrived
        self._published = published
        self._loop = asyncio.get_running_loop()
        self._greeted: asyncio.Future[bool] = self._loop.create_future()  # whether the broker kept our session
        self._subscribed: asyncio.Future[None] = self._loop.create_future()
        self.lost: asyncio.Future[str] = self._loop.create_future()
        self._reading = False
        self._messages = 0
        self._alive: asyncio.Task[None] | None = None
        self._clock = clock
        self._now = clock()
        self._wire: BatchedSocket | None = None
        self._unexplained = UNEXPLAINED
        self._client = self._make_client()

    async def open(self) -> None:
        """Connect and subscribe; BrokerError if either fails. What was not acknowledged before comes right behind.

        A broker that kept our session has our subscription, and may have thousands of messages to send before it
        answers to this one: it is not waited for. If it refuses, the connection is `lost`.
        """
        broker, keepalive = self._session.broker, max(1, round(self._session.keepalive))
        try:
            # Not the loop's own threads: the end of the process would wait for them, and so for a resolver that hangs.
            await asyncio.wait_for(in_thread(partial(self._dial, broker, keepalive)), DIAL_PATIENCE)
            self._attach()
            await self._answer(self._greeted, "no greeting")
            self._unexplained = ""
            self._client.subscribe(self._session.steps, qos=1)
            if self._session.left is not None:
                self._client.unsubscribe(self._session.left)
            if not self._greeted.result():
                await self._answer(self._subscribed, "no answer to the subscription")
        except OSError as error:
            self.abort()
            raise BrokerError(self._explain(error) or f"no connection within {DIAL_PATIENCE:.0f} s") from error
        except ConfigError as error:  # a file was exchanged for a bad one: perhaps the next try finds a good one
            self.abort()
            raise BrokerError(str(error)) from error
        except BaseException:
            self.abort()
            raise

    def publish(self, publication: Publication) -> int:
        """Send a message; returns the id under which it will be `published`."""
        return self._client.publish(
            publication.topic, publication.payload, qos=publication.qos, retain=publication.retain
        ).mid

    def acknowledge(self, receipt: Receipt) -> None:
        """Tell the broker that a message was taken over."""
        self._client.ack(receipt.message_id, receipt.qos)

    def pause(self) -> None:
        """Read nothing more for now, not even what was read with the last message; the broker has to wait."""
        if self._reading and self._wire is not None:
            self._loop.remove_reader(self._wire)
            self._wire.held = True
        self._reading = False

    def resume(self) -> None:
        """Read again, unless it is over: whoever takes from the door may know of that later than we do."""
        if not self._reading and self._wire is not None and not self.lost.done():
            self._loop.add_reader(self._wire, self._read)
            self._wire.held = False
            self._reading = True
            self._read_on()

    async def close(self, patience: float) -> None:
        """Say goodbye, so that the last will is not sent, and end."""
        self._client.disconnect()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(self.lost), patience)
        self.abort()

    def abort(self) -> None:
        """End at once; harmless if it is over already."""
        if self._alive is not None:
            self._alive.cancel()
        if self._wire is not None:
            self._let_go(self._wire)
            self._wire.close()
        self._end("ended here")
        self._drop_late()

    # ---- paho on the loop ----

    def _make_client(self) -> _Client:
        session = self._session
        client = _Client(
            CallbackAPIVersion.VERSION2,
            client_id=session.client_id,
            clean_session=False,
            protocol=MQTTProtocolVersion.MQTTv311,
            reconnect_on_failure=False,
            manual_ack=True,
        )
        client.connect_timeout = CONNECT_PATIENCE
        client.max_inflight_messages_set(0)  # `Link` counts them, and paho looks through all of them to do so
        client.will_set(session.status_topic, OFFLINE, qos=1, retain=True)
        client.on_connect = self._on_connect
        client.on_subscribe = self._on_subscribe
        client.on_disconnect = self._on_disconnect
        client.on_message = self._on_message
        client.on_publish = self._on_publish
        return client

    def _dial(self, broker: Broker, keepalive: int) -> None:
        """In another thread: connect, with credentials and certificates as they are now. OSError or ConfigError."""
        credentials = broker.credentials()
        if credentials is not None:
            self._client.username_pw_set(*credentials)
        if broker.tls is not None:
            self._client.tls = make_context(broker.tls)
        self._client.connect(broker.host, broker.port, keepalive)
        self._drop_late()

    def _drop_late(self) -> None:
        """Of a connection that was given up before it stood, no word goes out: our greeting would end the next one."""
        if self.lost.done() and self._wire is None and self._client.wire is not None:
            socket.socket.close(self._client.wire)

    def _attach(self) -> None:
        """Hand the socket to the loop. Only now, since `connect` runs in another thread."""
        client, sock = self._client, self._client.wire
        if sock is None or sock.fileno() < 0:
            raise BrokerError("the connection was closed at once")
        self._wire = sock
        client.on_socket_register_write = self._on_something_to_write
        client.on_socket_close = self._on_socket_close
        self._loop.call_soon(self._write)
        self.resume()
        self._alive = self._loop.create_task(self._keep_alive())

    def _read(self) -> None:
        """Take what has come, as long as messages come and nobody says `pause`."""
        self._now = self._clock()
        first = self._messages
        for _ in range(BURST):
            before = self._messages
            if not self._reading or self._client.loop_read() != MQTTErrorCode.MQTT_ERR_SUCCESS:
                return  # if it is lost, `_on_disconnect` has been told
            if self._messages == before or self._messages - first >= MOST:
                break
        self._read_on()

    def _read_on(self) -> None:
        """What the wire holds already, no selector will tell of."""
        if self._reading and self._wire is not None and self._wire.readable:
            self._loop.call_soon(self._read)

    def _write(self) -> None:
        """All that paho has to say, in one go."""
        wire = self._wire
        if wire is None or self._client.loop_write() != MQTTErrorCode.MQTT_ERR_SUCCESS or wire.fileno() < 0:
            return  # `_on_disconnect` has been told
        try:
            wire.flush()
        except OSError as error:
            self._end(self._explain(error))
            self._let_go(wire)
            return
        if wire.unsent:
            self._loop.add_writer(wire, self._write)
        else:
            self._loop.remove_writer(wire)

    def _let_go(self, wire: BatchedSocket) -> None:
        """The loop looks at this socket no more."""
        if wire.fileno() >= 0:
            self._loop.remove_reader(wire)
            self._loop.remove_writer(wire)
        self._reading = False

    async def _keep_alive(self) -> None:
        while self._client.loop_misc() == MQTTErrorCode.MQTT_ERR_SUCCESS:  # noqa: ASYNC110 - paho wants to be asked
            await asyncio.sleep(1.0)

    async def _answer(self, answer: asyncio.Future[Any], otherwise: str) -> None:
        either: set[asyncio.Future[Any]] = {answer, self.lost}
        await asyncio.wait(either, timeout=CONNECT_PATIENCE, return_when=asyncio.FIRST_COMPLETED)
        if answer.done():
            answer.result()
        else:
            raise BrokerError(self.lost.result() if self.lost.done() else otherwise)

    def _explain(self, error: OSError) -> str:
        """A broker that does not like our certificate, or who speaks first, often just hangs up."""
        hung_up = isinstance(error, ConnectionError) and not isinstance(error, ConnectionRefusedError)
        return explain(error) + (self._unexplained if hung_up else "")

    def _end(self, reason: str) -> None:
        if not self.lost.done():
            self.lost.set_result(reason)

    # ---- what paho tells ----

    def _on_connect(
        self, _client: Client, _data: object, flags: ConnectFlags, code: ReasonCode, _more: Properties | None
    ) -> None:
        if self._greeted.done():
            return
        if code.is_failure:
            self._greeted.set_exception(BrokerError(f"the broker refuses the connection: {code}"))
        else:
            self._greeted.set_result(flags.session_present)

    def _on_subscribe(
        self, _client: Client, _data: object, _id: int, codes: list[ReasonCode], _more: Properties | None
    ) -> None:
        if any(code.is_failure for code in codes):
            self._end(f"the broker refuses the subscription to {self._session.steps}: check its access rules")
        elif not self._subscribed.done():
            self._subscribed.set_result(None)

    def _on_disconnect(
        self, _client: Client, _data: object, _flags: DisconnectFlags, _code: ReasonCode, _more: Properties | None
    ) -> None:
        self._reading = False
        failure = self._wire.failure if self._wire is not None else None
        self._end(self._explain(failure or ConnectionAbortedError("the broker closed the connection")))

    def _on_publish(
        self, _client: Client, _data: object, message_id: int, _code: ReasonCode, _more: Properties
    ) -> None:
        self._published(message_id)

    def _on_something_to_write(self, _client: Client, _data: object, _sock: SocketLike) -> None:
        self._loop.call_soon(self._write)  # once for all that is said in this turn

    def _on_socket_close(self, _client: Client, _data: object, _sock: SocketLike) -> None:
        if self._wire is not None:
            self._let_go(self._wire)

    def _on_message(self, _client: Client, _data: object, message: MQTTMessage) -> None:
        try:
            topic = message.topic
        except UnicodeDecodeError:  # no broker should let it through; the pipeline rejects it as `bad_topic`
            topic = ""
        receipt = Receipt(self._number, message.mid, message.qos) if message.qos else None
        self._messages += 1
        self._arrived(Arrived(self._now, topic, bytes(message.payload), receipt))
