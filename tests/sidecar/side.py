"""One link to a broker with its inbox and outbox, as tests drive it; and brokers that a test plays."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any

from monitor.sidecar.mqtt.broker import Broker, parse_broker
from monitor.sidecar.mqtt.codec import Version
from monitor.sidecar.mqtt.connection import Connection
from monitor.sidecar.mqtt.dial import SessionConfig
from monitor.sidecar.mqtt.inbox import Arrived, Inbox
from monitor.sidecar.mqtt.link import BrokerLink
from monitor.sidecar.outbox import Outbox
from tests.leaks import alone
from tests.servers import PATIENCE

__all__ = ["STATUS", "Play", "Side", "connection_to", "let_pass", "playing", "run"]

STATUS = "cfmon/status/test"

Play = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class CountingInbox(Inbox):
    """An inbox that counts what it drops."""

    dropped = 0

    def put(self, message: Arrived) -> bool:
        taken = super().put(message)
        self.dropped += not taken
        return taken


class Side:
    """One link with its inbox and outbox, running until `stop`."""

    version: Version = "5"

    def __init__(
        self,
        broker: str | Broker,
        *,
        limit: int = 1000,
        keepalive: float = 4 * PATIENCE,
        version: Version | None = None,
    ) -> None:
        self.door = CountingInbox(limit)
        self.outbox = Outbox()
        self.changes: list[bool] = []
        broker = parse_broker(broker) if isinstance(broker, str) else broker
        session = SessionConfig(broker, "test", "agents/+/steps", STATUS, keepalive, version=version or self.version)
        self.link = BrokerLink(session, self.door, self.outbox, self.changes.append)
        self.stopping = asyncio.Event()
        self.task = asyncio.create_task(self.link.run(self.stopping))

    async def until(self, happened: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not happened():  # noqa: ASYNC110 - what is waited for comes from outside this loop
                await asyncio.sleep(0.005)

    async def take(self, count: int, *, acknowledge: bool) -> list[bytes]:
        """The next `count` messages."""
        payloads: list[bytes] = []
        async with asyncio.timeout(PATIENCE):
            while len(payloads) < count:
                await self.door.wait()
                entry = self.door.take()
                if isinstance(entry, Arrived):
                    payloads.append(entry.payload)
                    if acknowledge and entry.receipt is not None:
                        self.link.acknowledge([entry.receipt])
        return payloads

    async def stop(self) -> None:
        self.stopping.set()
        await asyncio.wait_for(self.task, PATIENCE)

    async def die(self) -> None:
        """End as a killed process does: the system closes the connection, and nothing more is said on it."""
        self.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.task


@asynccontextmanager
async def playing(play: Play) -> AsyncIterator[str]:
    """Serve each connection with `play`; yields the URL. At the end all are closed, whatever became of them."""
    plays: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        plays.add(task)
        try:
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):  # the other side is gone
                await play(reader, writer)
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"mqtt://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for each in plays:
            each.cancel()
        await asyncio.gather(*plays, return_exceptions=True)


def connection_to(url: str, arrived: Callable[[Sequence[Arrived]], int], version: Version = "5") -> Connection:
    """A connection without a link."""
    session = SessionConfig(parse_broker(url), "test", "agents/+/steps", STATUS, 4 * PATIENCE, version=version)
    return Connection(session, 1, arrived, lambda _number: None)


class _PlayedTime(asyncio.SelectorEventLoop):
    """A loop on which time passes as usual, and also when a test says so."""

    passed = 0.0

    def time(self) -> float:
        return super().time() + self.passed


def run(scenario: Coroutine[Any, Any, None]) -> None:
    """Run a scenario that may `let_pass` time."""
    with asyncio.Runner(loop_factory=_PlayedTime) as runner:
        runner.run(alone(scenario))


def let_pass(seconds: float) -> None:
    """Let time pass at once on the loop of a scenario: what is due until then happens next."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, _PlayedTime)
    loop.passed += seconds
