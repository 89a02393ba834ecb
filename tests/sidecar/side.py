"""One link to a broker with its door and outbox, as tests drive it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from monitor.sidecar.mqtt.broker import Broker, parse_broker
from monitor.sidecar.mqtt.codec import Version
from monitor.sidecar.mqtt.dial import SessionConfig
from monitor.sidecar.mqtt.inbox import Arrived, Inbox
from monitor.sidecar.mqtt.link import Link
from monitor.sidecar.mqtt.outbox import Outbox
from tests.servers import PATIENCE

__all__ = ["STATUS", "Side"]

STATUS = "cfmon/status/test"


class Side:
    """One link with its door and outbox, running until `stop`."""

    version: Version = "5"

    def __init__(
        self,
        broker: str | Broker,
        *,
        limit: int = 1000,
        keepalive: float = 5.0,
        version: Version | None = None,
    ) -> None:
        self.door = Inbox(limit)
        self.outbox = Outbox()
        self.changes: list[bool] = []
        broker = parse_broker(broker) if isinstance(broker, str) else broker
        session = SessionConfig(broker, "test", "agents/+/steps", STATUS, keepalive, version=version or self.version)
        self.link = Link(session, self.door, self.outbox, self.changes.append)
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
