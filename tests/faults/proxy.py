"""A TCP proxy before the broker: one that holds every message back for a random time, or one that listens.

Held back so, what the broker sends in order arrives out of order, as over several paths; other packets keep theirs. A
thread with its own loop, since it stands beside the test.
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
from tests.servers import PATIENCE, free_port

__all__ = ["delaying", "tapped"]

PUBLISH = 3


async def packet(reader: asyncio.StreamReader) -> bytes:
    """The next MQTT packet, whole."""
    head = bytearray(await reader.readexactly(2))
    while head[-1] & 0x80:
        head += await reader.readexactly(1)
    length = sum((byte & 0x7F) << 7 * place for place, byte in enumerate(head[1:]))
    return bytes(head) + await reader.readexactly(length)


class _Line:
    """One direction of a connection through the proxy."""

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
    """One direction of a connection through the proxy, and what was said on it."""

    def __init__(self, heard: list[Heard]) -> None:
        self._heard = heard

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            content = await packet(reader)
            if content[0] >> 4 == PUBLISH:
                self._heard.append(published(content))
            writer.write(content)
            await writer.drain()


def published(content: bytes) -> Heard:
    """A PUBLISH as it is heard."""
    start = 1 + next(place for place, byte in enumerate(content[1:], 1) if not byte & 0x80)
    length = int.from_bytes(content[start : start + 2], "big")
    topic, rest = content[start + 2 : start + 2 + length], content[start + 2 + length :]
    marked, numbered = content[0] & 0x08, content[0] & 0x06
    return Heard(time.monotonic(), topic.decode(), rest[2:] if numbered else rest, bool(marked))


@contextmanager
def delaying(port: int, *, mean: float, spread: float, seed: int) -> Iterator[tuple[int, Callable[[], int]]]:
    """A port that leads to `port`, each packet `mean` +- `spread` seconds late; and how many messages overtook."""
    draw = random.Random(seed)
    lines: list[_Line] = []

    def line() -> _Line:
        lines.append(_Line(lambda: draw.uniform(mean - spread, mean + spread)))
        return lines[-1]

    with _between(port, line, line) as own:
        yield own, lambda: sum(line.moved for line in lines)


@contextmanager
def tapped(port: int) -> Iterator[tuple[int, list[Heard]]]:
    """A port that leads to `port`, and what is published through it towards there."""
    said: list[Heard] = []
    with _between(port, lambda: _Tap(said), lambda: _Tap([])) as own:
        yield own, said


class _Way(Protocol):
    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None: ...


@contextmanager
def _between(port: int, there: Callable[[], _Way], back: Callable[[], _Way]) -> Iterator[int]:
    """A port that leads to `port`; a connection ends on both sides when one side ends it."""
    loop, own = asyncio.new_event_loop(), free_port()

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError), closing(writer):
            answers, questions = await asyncio.open_connection("127.0.0.1", port)
            ways = there().carry(reader, questions), back().carry(answers, writer)
            with closing(questions):
                await _first([asyncio.ensure_future(way) for way in ways])

    thread = threading.Thread(target=loop.run_forever, name="proxy")
    thread.start()
    server = asyncio.run_coroutine_threadsafe(asyncio.start_server(connect, "127.0.0.1", own), loop).result(PATIENCE)
    try:
        yield own
    finally:
        asyncio.run_coroutine_threadsafe(_end(server), loop).result(PATIENCE)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _first(tasks: list[asyncio.Future[None]]) -> None:
    """Until one ends; then so do the others."""
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
