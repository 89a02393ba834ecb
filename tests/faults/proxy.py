"""A bad line to the broker: a TCP proxy that holds every message back for a random time of its own.

So what the broker sends in order arrives out of order, as over several paths; other packets keep theirs. A thread with
its own loop, since it stands beside the test.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.servers import PATIENCE, free_port

__all__ = ["delaying"]

PUBLISH = 3


async def packet(reader: asyncio.StreamReader) -> bytes:
    """The next MQTT packet, whole."""
    head = bytearray(await reader.readexactly(2))
    while head[-1] & 0x80:
        head += await reader.readexactly(1)
    length = sum((byte & 0x7F) << 7 * place for place, byte in enumerate(head[1:]))
    return bytes(head) + await reader.readexactly(length)


class _Line:
    """One connection through the proxy."""

    def __init__(self, delay: Callable[[], float]) -> None:
        self._delay = delay
        self.moved = 0
        """messages that overtook another"""
        self._latest = 0.0

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        in_order = loop.time()
        try:
            while True:
                content = await packet(reader)
                due = loop.time() + self._delay()
                if content[0] >> 4 != PUBLISH:
                    due = in_order = max(due, in_order)
                elif due < self._latest:
                    self.moved += 1
                self._latest = max(self._latest, due)
                loop.call_at(due, writer.write, content)
        except (OSError, asyncio.IncompleteReadError):
            writer.close()


@contextmanager
def delaying(port: int, *, mean: float, spread: float, seed: int) -> Iterator[tuple[int, Callable[[], int]]]:
    """A port that leads to `port`, each packet `mean` +- `spread` seconds late; and how many messages overtook."""
    draw = random.Random(seed)
    lines: list[_Line] = []
    loop, own = asyncio.new_event_loop(), free_port()

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back, forth = await asyncio.open_connection("127.0.0.1", port)
        pair = [_Line(lambda: draw.uniform(mean - spread, mean + spread)) for _ in range(2)]
        lines.extend(pair)
        await asyncio.gather(pair[0].carry(reader, forth), pair[1].carry(back, writer))

    thread = threading.Thread(target=loop.run_forever, name="proxy")
    thread.start()
    server = asyncio.run_coroutine_threadsafe(asyncio.start_server(connect, "127.0.0.1", own), loop).result(PATIENCE)
    try:
        yield own, lambda: sum(line.moved for line in lines)
    finally:
        asyncio.run_coroutine_threadsafe(_end(server), loop).result(PATIENCE)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _end(server: asyncio.Server) -> None:
    server.close()
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
