"""TCP proxy in front of the broker that delays every message for a random time, or records messages.

With random delays, messages arrive out of order, as over several network paths; other packets keep their order. It
runs in its own thread with its own event loop.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from typing import Protocol

from tests.faults.expected import Heard
from tests.servers import PATIENCE

__all__ = ["delaying", "tapped"]

CONNECT, PUBLISH = 1, 3


async def packet(reader: asyncio.StreamReader) -> bytes:
    """Return the next complete MQTT packet."""
    head = bytearray(await reader.readexactly(2))
    while head[-1] & 0x80:
        head += await reader.readexactly(1)
    length = sum((byte & 0x7F) << 7 * place for place, byte in enumerate(head[1:]))
    return bytes(head) + await reader.readexactly(length)


class _Delay:
    """One direction of a connection through the proxy, with delayed messages."""

    def __init__(self, delay: Callable[[], float]) -> None:
        self._delay = delay
        self.moved = 0
        """messages that overtook another"""
        self._latest = 0.0

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        in_order = loop.time()
        while True:
            content = await packet(reader)
            due = loop.time() + self._delay()
            if content[0] >> 4 != PUBLISH:
                due = in_order = max(due, in_order)
            elif due < self._latest:
                self.moved += 1
            self._latest = max(self._latest, due)
            loop.call_at(due, self._write, writer, content)

    def _write(self, writer: asyncio.StreamWriter, content: bytes) -> None:
        if not writer.is_closing():
            writer.write(content)


class _Tap:
    """One direction of a connection through the proxy that records messages."""

    def __init__(self, heard: list[Heard]) -> None:
        self._heard = heard

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        five = False
        while True:
            content = await packet(reader)
            if content[0] >> 4 == CONNECT:
                five = content[_start(content) + len(b"\0\4MQTT")] == 5
            elif content[0] >> 4 == PUBLISH:
                self._heard.append(published(content, five=five))
            writer.write(content)
            await writer.drain()


def _start(content: bytes) -> int:
    """Return where the content of a packet begins, after its length."""
    return 1 + next(place for place, byte in enumerate(content[1:], 1) if not byte & 0x80)


def published(content: bytes, *, five: bool) -> Heard:
    """Return a PUBLISH packet as a message. `five`: of MQTT 5, with less than 128 bytes of properties."""
    start = _start(content)
    length = int.from_bytes(content[start : start + 2], "big")
    topic, rest = content[start + 2 : start + 2 + length], content[start + 2 + length :]
    marked, numbered = content[0] & 0x08, content[0] & 0x06
    rest = rest[2:] if numbered else rest
    return Heard(time.time(), topic.decode(), rest[1 + rest[0] :] if five else rest, bool(marked))


@contextmanager
def delaying(port: int, *, mean: float, width: float, seed: int) -> Iterator[tuple[int, Callable[[], int]]]:
    """Yield a port that forwards to `port` with a delay of `mean` +- `width` seconds, and a count of overtakings."""
    draw = random.Random(seed)
    directions: list[_Delay] = []

    def direction() -> _Delay:
        directions.append(_Delay(lambda: draw.uniform(mean - width, mean + width)))
        return directions[-1]

    with _between(port, direction, direction) as own:
        yield own, lambda: sum(direction.moved for direction in directions)


@contextmanager
def tapped(port: int) -> Iterator[tuple[int, list[Heard]]]:
    """Yield a port that forwards to `port`, and the list of messages published through it."""
    recorded: list[Heard] = []
    with _between(port, lambda: _Tap(recorded), lambda: _Tap([])) as own:
        yield own, recorded


class _Direction(Protocol):
    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None: ...


@contextmanager
def _between(port: int, there: Callable[[], _Direction], back: Callable[[], _Direction]) -> Iterator[int]:
    """Yield a port that forwards to `port`; a connection closed on one side is closed on both."""
    loop = asyncio.new_event_loop()

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError), closing(writer):
            replies, requests = await asyncio.open_connection("127.0.0.1", port)
            directions = there().carry(reader, requests), back().carry(replies, writer)
            with closing(requests):
                await _first([asyncio.ensure_future(direction) for direction in directions])

    thread = threading.Thread(target=loop.run_forever, name="proxy")
    thread.start()
    server = asyncio.run_coroutine_threadsafe(asyncio.start_server(connect, "127.0.0.1", 0), loop).result(PATIENCE)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        asyncio.run_coroutine_threadsafe(_end(server), loop).result(PATIENCE)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _first(tasks: list[asyncio.Future[None]]) -> None:
    """Wait until one task ends, then cancel the others."""
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _end(server: asyncio.Server) -> None:
    server.close()
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
