"""Settings of connections to the broker, the pause before the next attempt, and a limit on repeated warnings."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Final

import aiomqtt

from cfmon_client.broker import Broker

__all__ = ["FAILURES", "LOG", "Backoff", "LimitedLog", "connection"]

LOG: Final = logging.getLogger("cfmon_client")

FAILURES: Final = (aiomqtt.MqttError, OSError, ValueError)
"""Exceptions of a connection that fails or ends. ValueError: a certificate's file has become unusable."""

KEEPALIVE: Final = 10
"""Seconds after which a silent connection is tested."""

PATIENCE: Final = 10.0
"""Seconds for each response of the broker."""

WINDOW: Final = 64
"""Maximum number of our messages in flight."""

LOG_INTERVAL: Final = 60.0


def connection(broker: Broker, client_id: str, *, persistent: bool = False) -> aiomqtt.Client:
    """Return a client for one connection, as a context manager. Raises ClientError if a file of `broker` is unusable.

    `persistent`: the broker keeps subscriptions and messages for this `client_id` between connections.
    """
    username, password = broker.credentials()
    client = aiomqtt.Client(
        broker.host,
        broker.port,
        identifier=client_id,
        username=username,
        password=password,
        tls_context=broker.tls_context(),
        clean_session=not persistent,
        keepalive=KEEPALIVE,
        timeout=PATIENCE,
        max_inflight_messages=WINDOW,
    )
    client.pending_calls_threshold = WINDOW
    return client


@dataclass
class Backoff:
    """Exponentially growing pauses, in seconds, with jitter, so that a fleet does not reconnect all at once."""

    first: float = 0.1
    longest: float = 5.0
    random: Random = field(default_factory=Random)
    failures: int = 0

    def succeed(self) -> None:
        """Begin again with the shortest pause."""
        self.failures = 0

    def pause(self) -> float:
        """Return the next pause in seconds."""
        longest = min(self.longest, self.first * 2.0 ** min(self.failures, 10))
        self.failures += 1
        return longest * self.random.uniform(0.5, 1.0)


@dataclass
class LimitedLog:
    """Rate limit for warnings that could be logged at every step: the first of each kind, then at most one a minute."""

    clock: Callable[[], float] = time.monotonic
    _last: dict[str, float] = field(default_factory=dict)

    def due(self, kind: str) -> bool:
        """Return whether a warning of this kind may be written now; if True, count it as written."""
        now = self.clock()
        if kind in self._last and now - self._last[kind] < LOG_INTERVAL:
            return False
        self._last[kind] = now
        return True
