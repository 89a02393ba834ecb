"""Open a socket to a broker, with the parameters of a session, and explain failures."""

from __future__ import annotations

import socket
import ssl
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from monitor.sidecar.mqtt.broker import Broker
from monitor.sidecar.mqtt.codec import Version
from monitor.sidecar.mqtt.tls import explain, make_context

CONNECT_PATIENCE: Final = 4.0
"""Seconds for TCP to connect to one address, and for each response of the broker after that."""

HANDSHAKE: Final = 8.0
"""Seconds for a whole TLS handshake. Without a limit, a peer that sends a byte now and then could delay it forever."""

QUICKACK: Final[int | None] = getattr(socket, "TCP_QUICKACK", None)
"""Option of TCP sockets; None if the system does not have it."""

NO_GREETING: Final = "no response to CONNECT; if the broker does not speak MQTT 5, set mqtt.version: 3.1.1"

UNEXPLAINED: Final = (
    " before CONNACK; check whether the port is for mqtt:// or mqtts://, whether it requires a client certificate,"
    " and whether the broker speaks this version of MQTT (mqtt.version)"
)
"""Appended to the reason if a connection is lost before the broker has sent anything."""


class BrokerError(Exception):
    """The broker cannot be reached, refuses the connection, or is gone. `BrokerLink` catches this error and retries."""


class OldBrokerError(BrokerError):
    """The broker does not speak MQTT 5."""


@dataclass(frozen=True, slots=True)
class SessionConfig:
    """Parameters of the MQTT session. `keepalive`: seconds.

    `left`: topic of steps in an earlier configuration. The client unsubscribes from this topic, because a persistent
    session keeps subscriptions.
    """

    broker: Broker
    client_id: str
    steps: str
    status_topic: str
    keepalive: float
    left: str | None = None
    version: Version = "5"


class Dial:
    """One attempt to reach a broker, in a thread of its own.

    The attempt may continue after the caller has stopped waiting.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._given_up = False
        self.socket: socket.socket | None = None
        self.greeted = False
        """whether the broker has answered; if it has, later failures do not come from a wrong port"""

    def reach(self) -> tuple[tuple[str, str | None] | None, ssl.SSLContext | None]:
        """Connect; return the current credentials and the context for TLS. Raises OSError or ConfigError."""
        broker = self._broker
        credentials = broker.credentials()
        context = None if broker.tls is None else make_context(broker.tls)
        self.socket = socket.create_connection((broker.host, broker.port), CONNECT_PATIENCE)
        self.socket.setblocking(False)  # noqa: FBT003 - its one argument
        if self._given_up:
            self.socket.close()  # do not send CONNECT, because it would end a connection that was made in the meantime
        return credentials, context

    def acknowledge(self) -> None:
        """Make TCP acknowledge the bytes read at once, if the system supports this (Linux).

        Brokers use Nagle's algorithm (RFC 896): they hold back further small packets until TCP has acknowledged the
        earlier bytes. Our TCP acknowledges bytes together with the next bytes that we write, or after up to 40 ms.
        After a PUBACK for an alert, we write nothing, so without this setting the broker waits. The system resets the
        setting (tcp(7)), so call this method after each read.
        """
        if QUICKACK is not None and self.socket is not None:
            with suppress(OSError):
                self.socket.setsockopt(socket.IPPROTO_TCP, QUICKACK, 1)

    def give_up(self) -> None:
        """Close the socket, now or as soon as it is connected."""
        self._given_up = True
        if self.socket is not None:
            self.socket.close()

    def explain(self, error: Exception) -> str:
        """Return the reason for the log.

        A broker that rejects the certificate or protocol often closes without a reason.
        """
        words = explain(error) if isinstance(error, OSError) else str(error)
        hung_up = isinstance(error, ConnectionError) and not isinstance(error, ConnectionRefusedError)
        if hung_up and not self.greeted:
            return (words or "the broker closed the connection") + UNEXPLAINED
        return words
