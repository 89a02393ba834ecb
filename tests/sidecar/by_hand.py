"""A service without a network, driven by hand: the test is the broker and the clock, and says when a batch is taken."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from monitor.sidecar.config.load import assemble
from monitor.sidecar.config.reading import load_config
from monitor.sidecar.effects import Publication
from monitor.sidecar.mqtt.inbox import Arrived, Receipt
from monitor.sidecar.service import Service
from monitor.types import Instant

__all__ = ["WALL", "ByHand", "Time", "by_hand", "stopped_time"]

WALL = 1e9
"""Wall time at the start of time."""


class Handle:
    """What a loop gives for something that is to happen later."""

    def __init__(self, at: float, call: Callable[[], object]) -> None:
        self.at, self.call, self.cancelled = at, call, False

    def when(self) -> float:
        return self.at

    def cancel(self) -> None:
        self.cancelled = True


class Time:
    """The time of every clock, and of the loop: it stands still until a test says that it passes.

    `worked`: the part of it in which a processor worked for this process; `share`: of a processor, how much it gets.
    """

    def __init__(self) -> None:
        self.now = 1000.0
        self.worked = 0.0
        self.share = 1.0
        self.later: list[Handle] = []

    def work(self, seconds: float) -> None:
        """So much work is done, which takes as long as the share of a processor has it."""
        self.worked += seconds
        self.now += seconds / self.share

    def time(self) -> float:
        return self.now

    @property
    def instant(self) -> Instant:
        return Instant(WALL + self.now, self.now)

    def call_later(self, seconds: float, call: Callable[[], object]) -> Handle:
        self.later.append(Handle(self.now + seconds, call))
        return self.later[-1]

    def advance(self, seconds: float) -> None:
        end = self.now + seconds
        while handle := min((each for each in self.later if each.at <= end), key=lambda each: each.at, default=None):
            self.later.remove(handle)
            self.now = handle.at
            if not handle.cancelled:
                handle.call()
        self.now = end


@contextmanager
def stopped_time() -> Iterator[Time]:
    """Make the time of this process that of the test until the block ends."""
    stopped = Time()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asyncio, "get_running_loop", lambda: stopped)
        patch.setattr(time, "monotonic", stopped.time)
        patch.setattr(time, "time", lambda: WALL + stopped.now)
        patch.setattr(time, "thread_time", lambda: stopped.worked)
        yield stopped


class ByHand:
    """A service that hears what a test puts in; `acknowledged`: the numbers of messages, as it acknowledged them."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.worker = service.worker
        self.acknowledged: list[int] = []
        self.worker.acknowledge = lambda receipts: self.acknowledged.extend(each.message_id for each in receipts)

    def put(self, payload: str | bytes, *, agent: str = "ada", at: Instant | None = None, number: int = 0) -> None:
        """A message of an agent arrives, now or at another time; it waits for the next turn."""
        content = payload.encode() if isinstance(payload, str) else payload
        now = self.service.clock() if at is None else at
        self.service.inbox.put(Arrived(now, f"agents/{agent}/steps", content, Receipt(1, number)))

    def hear(self, *payloads: str | bytes, agent: str = "ada") -> None:
        """Messages of an agent arrive, and are taken in one batch."""
        for payload in payloads:
            self.put(payload, agent=agent)
        self.worker.turn()

    def sent(self) -> list[Publication]:
        """Everything that waits for the broker, which takes it now."""

        async def take() -> list[Publication]:
            taken = []
            while len(self.service.outbox):
                number, message = await self.service.outbox.take()
                self.service.outbox.done(number)
                taken.append(message)
            return taken

        return asyncio.run(take())

    def metric(self, series: str) -> float | None:
        """The value of a series, written as in the exposition; None if there is none."""
        for line in self.service.sinks.metrics.exposition().decode().splitlines():
            if line.startswith(f"{series} "):
                return float(line.rpartition(" ")[2])
        return None


@contextmanager
def by_hand(config: Path, environment: Mapping[str, str] | None = None) -> Iterator[ByHand]:
    service = Service(assemble(load_config(config, environment or {})))
    try:
        yield ByHand(service)
    finally:
        service.close()
