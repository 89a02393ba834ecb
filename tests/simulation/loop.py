"""An event loop of asyncio on the clock of a world: where a real one waits for the kernel, the world goes on."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from math import inf
from typing import Any, Final, Protocol

from tests.simulation.world import World

TURN: Final = 20e-6
"""Seconds that one turn of a busy loop takes: what else happens comes in between."""


class Killed(SystemExit):
    """The process is killed, wherever it is."""


class Attachable(Protocol):
    """A connected socket of the simulated network."""

    def attach(self, loop: VirtualLoop, protocol: asyncio.BaseProtocol) -> asyncio.Transport: ...


class VirtualLoop(asyncio.BaseEventLoop):
    """The loop of one process. `alive` until the process is killed: then only what ends its tasks still runs.

    `asleep_until`: the process was stopped (SIGSTOP), and goes on then. `work`: processor time used, in seconds.
    """

    _ready: deque[Any]

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world
        self.alive = True
        self.asleep_until = 0.0
        self.work = 0.0
        self._dead_time = 0.0
        self._clock_resolution = 1e-9
        self._selector = _Selector(self)

    def time(self) -> float:
        return self.world.now + self._dead_time

    def pass_time(self, timeout: float | None) -> None:
        """Let the world go on, for `timeout` seconds at most, until something is to be done."""
        world = self.world
        if not self.alive:
            self._dead_time += 0.0 if timeout is None else timeout
            return
        if timeout == 0:
            self.work += TURN
            world.advance(world.now + TURN, ready=lambda: not self.alive)
        else:
            until = inf if timeout is None else world.now + timeout
            world.advance(until, ready=lambda: self._ready or not self.alive or world.now < self.asleep_until)
        while self.alive and world.now < self.asleep_until:
            world.advance(self.asleep_until, ready=lambda: not self.alive)
        if not self.alive:
            raise Killed

    async def create_connection(  # type: ignore[override] # of its many ways, the one that is used
        self, protocol_factory: Callable[[], asyncio.BaseProtocol], *, sock: Attachable, **_tls: object
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        await asyncio.sleep(0)
        protocol = protocol_factory()
        return sock.attach(self, protocol), protocol

    def _process_events(self, event_list: list[object]) -> None:
        """There are no file descriptors."""

    def _write_to_self(self) -> None:
        """There is one thread: nobody waits."""


class _Selector:
    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[object]:
        self._loop.pass_time(timeout)
        return []
