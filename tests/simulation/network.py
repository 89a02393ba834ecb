"""Connections of byte streams: delayed, lost, half-open, and with readers that do not read."""

# ruff: noqa: SLF001 - the two ends of a connection know each other

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from tests.simulation.loop import VirtualLoop
from tests.simulation.world import World

BUFFERS: Final = 200_000
"""Bytes that fit between two ends while the other side does not read: buffers of both kernels."""


class End:
    """One end of a connection. The callbacks are of whoever holds it, and are called from events of the world.

    `reading`: false: what arrives waits. `full`: no more should be written until `on_space`.
    """

    def __init__(self, net: Network, name: str) -> None:
        self.name = name
        self.peer: End
        self.on_bytes: Callable[[bytes], None] = lambda _data: None
        self.on_lost: Callable[[Exception | None], None] = lambda _error: None
        self.on_space: Callable[[], None] = lambda: None
        self.closed = False
        self.mute_since: float | None = None
        """Since when nothing passes, in either direction, and nobody is told."""
        self._net = net
        self._reading = True
        self._arrived: deque[bytes] = deque()
        self._flying: list[bytes] | None = None
        self._written_at = self._arrives_at = -1.0
        self._outstanding = 0  # bytes written that the peer has not read

    @property
    def full(self) -> bool:
        return self._outstanding >= BUFFERS

    def write(self, data: bytes) -> None:
        """Send. What is written in one moment arrives in one moment."""
        if self.closed or self.mute_since is not None:
            return
        world = self._net.world
        self._outstanding += len(data)
        if self._flying is not None and self._written_at == world.now:
            self._flying.append(data)
            return
        packets = self._flying = [data]
        self._written_at = world.now
        self._arrives_at = max(self._arrives_at, world.now + self._net.delay())
        world.at(self._arrives_at, lambda: self.peer._arrive(packets))

    def pause(self) -> None:
        self._reading = False

    def resume(self) -> None:
        if not self._reading:
            self._reading = True
            self._net.world.after(0.0, self._pass_on)

    def close(self) -> None:
        """End in order, after what was written."""
        self._leave(None)

    def reset(self) -> None:
        """End at once."""
        self._leave(ConnectionResetError("connection reset by peer"))

    def cut(self) -> None:
        """Lose the connection on the way: both ends notice."""
        for end in (self, self.peer):
            if not end.closed:
                end.closed = True
                end._lose(ConnectionResetError("connection reset by peer"))

    def mute(self) -> None:
        """Let nothing pass any more, unnoticed: a half-open connection."""
        self.mute_since = self.peer.mute_since = self._net.world.now

    def _leave(self, error: Exception | None) -> None:
        if self.closed:
            return
        self.closed = True
        self._net.ends.pop(self, None)
        if self.mute_since is None:
            peer, world = self.peer, self._net.world
            self._arrives_at = max(self._arrives_at, world.now + self._net.delay())
            world.at(self._arrives_at, lambda: peer._hear_of_end(error))

    def _hear_of_end(self, error: Exception | None) -> None:
        if not self.closed and self.mute_since is None:
            self.closed = True
            self._lose(error)

    def _lose(self, error: Exception | None) -> None:
        self._net.ends.pop(self, None)
        self.on_lost(error)

    def _arrive(self, packets: list[bytes]) -> None:
        if self.peer._flying is packets:
            self.peer._flying = None
        if self.closed or self.mute_since is not None:
            return
        self._arrived.append(b"".join(packets))
        self._pass_on()

    def _pass_on(self) -> None:
        while self._arrived and self._reading and not self.closed:
            data = self._arrived.popleft()
            was_full = self.peer.full
            self.peer._outstanding -= len(data)
            self.on_bytes(data)
            if was_full and not self.peer.full and not self.peer.closed:
                self.peer.on_space()


class Network:
    """Who listens where, and how slow the way is. `slow`: seconds added to the delay of each write."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.slow = 0.0
        self.refusing: set[str] = set()
        """Callers whose connections are refused on the way."""
        self.ends: dict[End, None] = {}
        """Open ends, in the order in which they were made."""
        self._listeners: dict[int, Callable[[End], None] | None] = {}

    def delay(self) -> float:
        """Draw how long the next write is on its way."""
        seconds = 0.0001 + self.world.draw.random() * 0.002
        return seconds + self.world.draw.random() * self.slow if self.slow else seconds

    def listen(self, port: int, accept: Callable[[End], None] | None) -> None:
        """Have connections to a port accepted; None: refused."""
        self._listeners[port] = accept

    def connect(self, caller: str, port: int) -> End:
        """Return the caller's end of a new connection; raise ConnectionRefusedError if nobody listens."""
        accept = self._listeners.get(port)
        if accept is None or caller in self.refusing:
            raise ConnectionRefusedError(111, "Connection refused")
        near, far = End(self, caller), End(self, f"to {caller}")
        near.peer, far.peer = far, near
        self.ends |= {near: None, far: None}
        accept(far)
        return near

    def be_quick(self) -> None:
        self.slow = 0.0

    def of(self, caller: str) -> list[End]:
        """Return the open ends of a caller."""
        return [end for end in self.ends if end.name == caller]


class Socket:
    """What `socket.create_connection` returns in the world: an end, which a loop can take over."""

    def __init__(self, end: End) -> None:
        self._end = end

    def setblocking(self, flag: bool) -> None:  # noqa: FBT001 - as of a real socket
        del flag

    def setsockopt(self, *_option: int) -> None: ...

    def close(self) -> None:
        self._end.reset()

    def attach(self, loop: VirtualLoop, protocol: asyncio.BaseProtocol) -> asyncio.Transport:
        assert isinstance(protocol, asyncio.BufferedProtocol)
        return Transport(loop, self._end, protocol)


class Transport(asyncio.Transport):
    """An end as a transport of asyncio, for a process with a loop."""

    def __init__(self, loop: VirtualLoop, end: End, protocol: asyncio.BufferedProtocol) -> None:
        super().__init__()
        self._loop = loop
        self._end = end
        self._protocol = protocol
        self._arrived: deque[bytes] = deque()
        self._over = False
        end.on_bytes, end.on_lost = self._on_bytes, self._on_lost
        protocol.connection_made(self)

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        self._end.write(bytes(data))

    def pause_reading(self) -> None:
        self._end.pause()

    def resume_reading(self) -> None:
        self._end.resume()

    def is_closing(self) -> bool:
        return self._over or self._end.closed

    def close(self) -> None:
        self.abort()

    def abort(self) -> None:
        self._end.close()
        self._lose(None)

    def _on_bytes(self, data: bytes) -> None:
        if not self._arrived:
            self._loop.call_soon(self._deliver)
        self._arrived.append(data)

    def _deliver(self) -> None:
        data = b"".join(self._arrived)
        self._arrived.clear()
        while data and not self._over:
            buffer = memoryview(self._protocol.get_buffer(-1))
            count = min(len(data), len(buffer))
            buffer[:count] = data[:count]
            self._protocol.buffer_updated(count)
            data = data[count:]

    def _on_lost(self, error: Exception | None) -> None:
        self._lose(error)

    def _lose(self, error: Exception | None) -> None:
        if not self._over:
            self._over = True
            self._loop.world.disturb()
            self._loop.call_soon(self._protocol.connection_lost, error)
