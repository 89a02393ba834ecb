"""A thread that publishes messages over one connection, and survives all failures of the broker.

To publish, the caller only does one `deque.append`, without a lock or a system call. The caller never wakes the thread,
because a woken thread competes for the interpreter lock while the caller is still inside `step`. With a queue, one step
in a thousand waited for milliseconds on a busy machine. The thread therefore checks for messages every 10 ms.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import threading
import time
import uuid
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from cfmon_client.broker import Broker, as_broker
from cfmon_client.connection import LOG, LimitedLog
from cfmon_client.errors import ClientError
from cfmon_client.link import Link
from cfmon_client.message import REASONS
from cfmon_client.outbox import Outbox

__all__ = ["FLUSH", "MEMORY", "REPUBLISH", "Publisher", "Status"]

MEMORY: Final = 16 << 20
"""Default limit, in bytes, for steps that wait for the broker: about 50,000 steps."""

REPUBLISH: Final = 4.0
"""Default number of seconds whose acknowledged steps are published again after a reconnection. A killed broker may have
acknowledged these steps without saving them (docs/limits.md)."""

FLUSH: Final = 5.0
"""Default number of seconds to wait at the end until the broker has acknowledged all messages."""

TURN: Final = 0.01
"""Seconds between two checks for messages of the caller."""

HANDED_OVER: Final = 10_000
"""Maximum number of messages that the caller has handed over and the thread has not read. The maximum is reached only
if the thread gets no processor time."""


@dataclass(frozen=True)
class Status:
    """Counts of the steps so far, and the state of the connection.

    Attributes:
        connected: True while there is a connection to the broker.
        published: Number of steps that the broker has acknowledged.
        waiting: Number of steps that the broker has not acknowledged yet.
        dropped: Number of steps that were removed because memory was full; the monitor reports a gap.
        refused: Reason -> number of steps, rewards and extras that could not be published.
        problem: The newest problem; None if there was none.
    """

    connected: bool
    published: int
    waiting: int
    dropped: int
    refused: Mapping[str, int]
    problem: str | None


class Publisher:
    """A connection with a thread of its own. Only the constructor raises; `put` and `refuse` neither raise nor wait.

    Args:
        broker: URL of the broker, or a `Broker` with credentials and certificates.
        memory: Maximum bytes of messages that are kept while the broker is away; then the oldest are dropped.
        republish: Messages acknowledged in the last `republish` seconds are published again after a reconnection.
        client_id: MQTT client id; by default a unique one.
        clock: Monotonic time in seconds.

    Raises:
        ClientError: An argument is wrong.
    """

    def __init__(
        self,
        broker: Broker | str,
        *,
        memory: int = MEMORY,
        republish: float = REPUBLISH,
        client_id: str | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if memory < 1 or republish < 0:
            raise ClientError(f"memory is {memory}, republish is {republish}; give bytes from 1, and seconds from 0")
        self._broker = as_broker(broker)
        self._outbox = Outbox(memory, republish)
        self._limited = LimitedLog(clock)
        name = client_id or f"cfmon-client-{uuid.uuid4().hex[:12]}"
        self._link = Link(self._broker, name, self._outbox, self._limited, clock)
        self._handed_over: deque[tuple[str, bytes]] = deque()
        self._calls: deque[Callable[[], None]] = deque()
        self._overflow = 0
        self._refused: Counter[str] = Counter()
        self._problem: str | None = None
        self._closed = False
        self._pid = os.getpid()
        self._thread = threading.Thread(target=self._run, name="cfmon-client", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    @property
    def status(self) -> Status:
        """Counts of the steps so far, and the state of the connection."""
        own = os.getpid() == self._pid
        return Status(
            connected=own and self._link.connected,
            published=self._outbox.published,
            waiting=self._outbox.waiting + (len(self._handed_over) if own else 0),
            dropped=self._outbox.dropped + self._overflow,
            refused=dict(self._refused),
            problem=self._problem or self._link.problem,
        )

    def put(self, topic: str, payload: bytes) -> str | None:
        """Hand a message over to the thread. If that is impossible, return the reason, `closed` or `forked`."""
        if os.getpid() != self._pid:
            return "forked"
        if self._closed:
            return "closed"
        if len(self._handed_over) >= HANDED_OVER:
            self._overflow += 1
        else:
            self._handed_over.append((topic, payload))
        return None

    def refuse(self, agent: str, reason: str, text: str) -> None:
        """Count a step that cannot be published, and log it: the first one for each reason, then one a minute."""
        self._refused[reason] += 1
        self._problem = f"agent {agent}: {text}"
        if not self._limited.due(f"{agent} {reason}"):
            return
        line = "agent %s: %s [%s: %s; %d so far]"
        write = partial(LOG.error, line, agent, text, reason, REASONS[reason], self._refused[reason])
        if self._usable:
            self._calls.append(write)
        else:
            write()

    def flush(self, timeout: float = FLUSH) -> bool:
        """Wait at most `timeout` seconds for the broker to acknowledge all messages; return whether it has."""
        if not self._usable:
            return False
        flushed = threading.Event()
        self._calls.append(partial(self._link.notify, flushed))
        return flushed.wait(timeout)

    def close(self, timeout: float = FLUSH) -> bool:
        """Flush, disconnect and end the thread, in at most about `timeout` seconds.

        Return whether the broker has acknowledged all messages. In a process that was forked from the publisher's
        process, do nothing and return False, because the connection belongs to the parent.
        """
        if os.getpid() != self._pid:
            return False
        if not self._closed:
            self._closed = True
            atexit.unregister(self.close)
            self._calls.append(partial(self._link.stop, timeout))
            self._thread.join(timeout + 1.0)
            if lost := self._outbox.waiting:
                LOG.error("%d steps were not published: %s did not take them in time", lost, self._broker.address)
        return self._outbox.waiting == 0

    @property
    def _usable(self) -> bool:
        """False after `close`, and in a forked process, which has no thread."""
        return os.getpid() == self._pid and not self._closed

    # ---- the thread ----

    def _run(self) -> None:
        loop = asyncio.new_event_loop()
        with contextlib.closing(loop):  # `asyncio.run` would wait for a pending attempt to connect
            loop.run_until_complete(self._publish())

    async def _publish(self) -> None:
        feeding = asyncio.ensure_future(self._feed())
        await self._link.run()
        feeding.cancel()
        await asyncio.wait({feeding})

    async def _feed(self) -> None:
        while True:
            calls = [self._calls.popleft() for _ in range(len(self._calls))]
            while self._handed_over:  # messages that were put before these calls are sent first
                self._link.put(*self._handed_over.popleft())
            for call in calls:
                call()
            await asyncio.sleep(TURN)
