"""One connection to an MQTT broker: paho-mqtt on an asyncio loop, over a socket that reads and writes in batches.

Not aiomqtt, which acknowledges a message before the application has seen it, reads one packet per loop iteration (so
under load the backlog is in the sockets, invisible to the queue length and load shedding), and drops the connection
when an acknowledgement waits behind such a backlog. paho with `manual_ack` leaves all three to us.
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
"""Maximum number of reads, and of messages, per loop iteration: enough to see a backlog, without starving other tasks.
paho takes at most as many packets per read as messages of ours are in flight, or one."""

WINDOW: Final = 5_000
"""Maximum number of our messages in flight. Acknowledgements arrive behind the broker's steps, which are not read while
the inbox is full: with 500, no alert was sent for that long.
"""

CONNECT_PATIENCE: Final = 4.0
"""Seconds for TCP to connect to one address, and for each response of the broker after that."""

DIAL_PATIENCE: Final = 15.0
"""Seconds to resolve the address, connect and encrypt. A resolver can hang for longer; then we retry."""

UNEXPLAINED: Final = (
    " before CONNACK; check whether the port is for mqtt:// or mqtts://, and whether it requires a client certificate"
)
"""Appended to the reason if a connection is lost before the broker has sent anything."""


class BrokerError(Exception):
    """The broker cannot be reached, refuses us, or is gone. `Link` catches it and retries."""


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


class _Client(Client):
    """paho client over our socket; overrides the one private method that we depend on."""

    batched_socket: BatchedSocket | None = None
    tls: ssl.SSLContext | None = None

    def _create_socket_connection(self) -> socket.socket:
        connected = super()._create_socket_connection()
        sock = BatchedSocket(connected) if self.tls is None else TlsBatchedSocket(connected, self.tls, self.host)
        self.batched_socket = sock
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # acknowledgements are small and must not wait
        return sock


class Connection:
    """One connection attempt, from CONNECT to DISCONNECT.

    `number` goes into receipts. `arrived` is called with each message, `published` with the id of each message of ours
    that the broker acknowledged. `lost` is done, with the reason, when the connection is over.
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
        self._greeted: asyncio.Future[bool] = self._loop.create_future()  # True if the broker kept our session
        self._subscribed: asyncio.Future[None] = self._loop.create_future()
        self.lost: asyncio.Future[str] = self._loop.create_future()
        self._reading = False
        self._messages = 0
        self._alive: asyncio.Task[None] | None = None
        self._clock = clock
        self._now = clock()
        self._socket: BatchedSocket | None = None
        self._unexplained = UNEXPLAINED
        self._client = self._make_client()

    async def open(self) -> None:
        """Connect and subscribe; BrokerError if either fails. Unacknowledged messages follow.

        If the broker kept our session, it has our subscription and may send thousands of messages before SUBACK, so we
        do not wait for it. If it refuses later, the connection is `lost`.
        """
        broker, keepalive = self._session.broker, max(1, round(self._session.keepalive))
        try:
            # Not in the loop's own threads: the process waits for them at its end, and so for a hanging resolver.
            await asyncio.wait_for(in_thread(partial(self._dial, broker, keepalive)), DIAL_PATIENCE)
            self._attach()
            await self._response(self._greeted, "no response to CONNECT")
            self._unexplained = ""
            self._client.subscribe(self._session.steps, qos=1)
            if self._session.left is not None:
                self._client.unsubscribe(self._session.left)
            if not self._greeted.result():
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

    def publish(self, publication: Publication) -> int:
        """Send a message; return the id with which `published` will be called."""
        return self._client.publish(
            publication.topic, publication.payload, qos=publication.qos, retain=publication.retain
        ).mid

    def acknowledge(self, receipt: Receipt) -> None:
        """Acknowledge a message to the broker."""
        self._client.ack(receipt.message_id, receipt.qos)

    def pause(self) -> None:
        """Stop reading, including data already read with the last message; the broker has to wait."""
        if self._reading and self._socket is not None:
            self._loop.remove_reader(self._socket)
            self._socket.held = True
        self._reading = False

    def resume(self) -> None:
        """Read again, unless the connection is over, which the caller may not know yet."""
        if not self._reading and self._socket is not None and not self.lost.done():
            self._loop.add_reader(self._socket, self._read)
            self._socket.held = False
            self._reading = True
            self._read_on()

    async def close(self, patience: float) -> None:
        """Disconnect in order, so that the last will is not sent; abort after `patience` seconds."""
        self._client.disconnect()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(self.lost), patience)
        self.abort()

    def abort(self) -> None:
        """Close at once; no effect if it is closed already."""
        if self._alive is not None:
            self._alive.cancel()
        if self._socket is not None:
            self._detach(self._socket)
            self._socket.close()
        self._end("ended here")
        self._close_late_socket()

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
        client.max_inflight_messages_set(0)  # `Link` counts them; paho would iterate over all of them
        client.will_set(session.status_topic, OFFLINE, qos=1, retain=True)
        client.on_connect = self._on_connect
        client.on_subscribe = self._on_subscribe
        client.on_disconnect = self._on_disconnect
        client.on_message = self._on_message
        client.on_publish = self._on_publish
        return client

    def _dial(self, broker: Broker, keepalive: int) -> None:
        """Connect, with the current credentials and certificates; runs in another thread. OSError or ConfigError."""
        credentials = broker.credentials()
        if credentials is not None:
            self._client.username_pw_set(*credentials)
        if broker.tls is not None:
            self._client.tls = make_context(broker.tls)
        self._client.connect(broker.host, broker.port, keepalive)
        self._close_late_socket()

    def _close_late_socket(self) -> None:
        """Close a socket that connected after we gave up, unsent: its CONNECT would end the next connection."""
        if self.lost.done() and self._socket is None and self._client.batched_socket is not None:
            socket.socket.close(self._client.batched_socket)

    def _attach(self) -> None:
        """Register the socket with the loop; not in `_dial`, which runs in another thread."""
        client, sock = self._client, self._client.batched_socket
        if sock is None or sock.fileno() < 0:
            raise BrokerError("the connection was closed at once")
        self._socket = sock
        client.on_socket_register_write = self._on_something_to_write
        client.on_socket_close = self._on_socket_close
        self._loop.call_soon(self._write)
        self.resume()
        self._alive = self._loop.create_task(self._keep_alive())

    def _read(self) -> None:
        """Read as long as messages arrive, until `pause`."""
        self._now = self._clock()
        first = self._messages
        for _ in range(BURST):
            before = self._messages
            if not self._reading or self._client.loop_read() != MQTTErrorCode.MQTT_ERR_SUCCESS:
                return  # if it is lost, `_on_disconnect` was called
            if self._messages == before or self._messages - first >= MOST:
                break
        self._read_on()

    def _read_on(self) -> None:
        """Schedule a read of data already buffered, which no selector reports."""
        if self._reading and self._socket is not None and self._socket.readable:
            self._loop.call_soon(self._read)

    def _write(self) -> None:
        """Write all of paho's output at once."""
        sock = self._socket
        if sock is None or self._client.loop_write() != MQTTErrorCode.MQTT_ERR_SUCCESS or sock.fileno() < 0:
            return  # `_on_disconnect` was called
        try:
            sock.flush()
        except OSError as error:
            self._end(self._explain(error))
            self._detach(sock)
            return
        if sock.unsent:
            self._loop.add_writer(sock, self._write)
        else:
            self._loop.remove_writer(sock)

    def _detach(self, sock: BatchedSocket) -> None:
        """Remove the socket from the loop."""
        if sock.fileno() >= 0:
            self._loop.remove_reader(sock)
            self._loop.remove_writer(sock)
        self._reading = False

    async def _keep_alive(self) -> None:
        while self._client.loop_misc() == MQTTErrorCode.MQTT_ERR_SUCCESS:  # noqa: ASYNC110 - paho must be polled
            await asyncio.sleep(1.0)

    async def _response(self, response: asyncio.Future[Any], missing: str) -> None:
        either: set[asyncio.Future[Any]] = {response, self.lost}
        await asyncio.wait(either, timeout=CONNECT_PATIENCE, return_when=asyncio.FIRST_COMPLETED)
        if response.done():
            response.result()
        else:
            raise BrokerError(self.lost.result() if self.lost.done() else missing)

    def _explain(self, error: OSError) -> str:
        """Return the reason for the log: a broker that rejects our certificate or protocol often just hangs up."""
        hung_up = isinstance(error, ConnectionError) and not isinstance(error, ConnectionRefusedError)
        return explain(error) + (self._unexplained if hung_up else "")

    def _end(self, reason: str) -> None:
        if not self.lost.done():
            self.lost.set_result(reason)

    # ---- paho's callbacks ----

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
        failure = self._socket.failure if self._socket is not None else None
        self._end(self._explain(failure or ConnectionAbortedError("the broker closed the connection")))

    def _on_publish(
        self, _client: Client, _data: object, message_id: int, _code: ReasonCode, _more: Properties
    ) -> None:
        self._published(message_id)

    def _on_something_to_write(self, _client: Client, _data: object, _sock: SocketLike) -> None:
        self._loop.call_soon(self._write)  # once for all output of this loop iteration

    def _on_socket_close(self, _client: Client, _data: object, _sock: SocketLike) -> None:
        if self._socket is not None:
            self._detach(self._socket)

    def _on_message(self, _client: Client, _data: object, message: MQTTMessage) -> None:
        try:
            topic = message.topic
        except UnicodeDecodeError:  # brokers should not forward it; the pipeline rejects it as `bad_topic`
            topic = ""
        receipt = Receipt(self._number, message.mid, message.qos) if message.qos else None
        self._messages += 1
        self._arrived(Arrived(self._now, topic, bytes(message.payload), receipt))
