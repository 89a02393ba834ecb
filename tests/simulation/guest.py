"""Threads of other processes: the real client library on simulated time and network, with its own event loop.

Such a thread is a real one, but only one thread works at a time: the world waits while a guest works, and a guest waits
while the world goes on. So each run of a seed is the same.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from random import Random
from types import SimpleNamespace
from typing import Any, Final
from unittest import mock

import paho.mqtt.client as paho
from cfmon_client import subscription
from cfmon_client.connection import LOG, Backoff

from tests.simulation.loop import TURN, Killed, VirtualLoop
from tests.simulation.network import Network
from tests.simulation.world import Event, World

_NUMBERS: Final = count(100_000)
"""Descriptors, which no file has."""


class Guest(VirtualLoop):
    """The event loop of a thread. `ended`: the thread has ended."""

    def __init__(self, world: World, network: Network, name: str) -> None:
        super().__init__(world)
        self.name = name
        self.ended = False
        self._network = network
        self._works = False
        self._go, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self._timer: Event | None = None
        self._sockets: dict[int, GuestSocket] = {}
        self._readers: dict[int, Callable[[], object]] = {}
        self._writers: dict[int, Callable[[], object]] = {}

    @contextmanager
    def doors(self, module: Any) -> Iterator[None]:  # noqa: ANN401 - a module of the client library
        """Let what this module starts while the block lasts be this guest."""
        threads = SimpleNamespace(Thread=self._thread, Event=threading.Event)
        with (
            mock.patch.object(asyncio, "new_event_loop", return_value=self),
            mock.patch.object(module, "threading", threads),
        ):
            yield

    def dial(self, port: int) -> GuestSocket:
        sock = GuestSocket(self, self._network, port)
        self._sockets[sock.fileno()] = sock
        return sock

    def kill(self) -> None:
        """End the thread wherever it is, if it has not ended."""
        self.alive = False
        if not self.ended:
            self._work()

    def wake(self) -> None:
        """Look at once what there is to do."""
        if not self._works and not self.ended:
            self._sleep(0.0)

    # ---- what asyncio and aiomqtt call ----

    def pass_time(self, timeout: float | None) -> None:
        busy = any(True for _ in self._calls())
        self._sleep(TURN if timeout == 0 or busy else timeout)
        self._back.release()
        self._go.acquire()
        if not self.alive:
            raise Killed
        for call in list(self._calls()):
            self.call_soon(call)

    def add_reader(self, fd: int, callback: Callable[[], object]) -> None:  # type: ignore[override]
        self._readers[fd] = callback

    def remove_reader(self, fd: int) -> bool:  # type: ignore[override]
        return self._readers.pop(fd, None) is not None

    def add_writer(self, fd: int, callback: Callable[[], object]) -> None:  # type: ignore[override]
        self._writers[fd] = callback

    def remove_writer(self, fd: int) -> bool:  # type: ignore[override]
        return self._writers.pop(fd, None) is not None

    def run_in_executor(self, _executor: object, func: Callable[[], Any]) -> asyncio.Future[Any]:  # type: ignore[override]
        done = self.create_future()
        try:
            done.set_result(func())
        except Exception as error:  # noqa: BLE001 - of the work, for whoever waits for it
            done.set_exception(error)
        return done

    def _write_to_self(self) -> None:
        self.wake()

    # ---- its thread ----

    def _thread(self, target: Callable[[], None], **_named: object) -> SimpleNamespace:
        """Return what `threading.Thread` would."""

        def live() -> None:
            self._go.acquire()
            try:
                target()
            except Killed:
                pass
            except BaseException as error:  # noqa: BLE001 - it belongs to the seed
                self.world.errors.append(f"the thread of {self.name} ended: {error!r}")
            finally:
                self.ended = True
                self._back.release()

        def start() -> None:
            threading.Thread(target=live, daemon=True).start()
            self._sleep(0.0)

        def join(seconds: float) -> None:
            self.world.advance(self.world.now + seconds, ready=lambda: self.ended)

        return SimpleNamespace(start=start, join=join)

    def _sleep(self, seconds: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if seconds is None else self.world.after(seconds, self._work)

    def _work(self) -> None:
        self._works = True
        self._go.release()
        self._back.acquire()
        self._works = False

    def _calls(self) -> Iterator[Callable[[], object]]:
        for fd, sock in self._sockets.items():
            if sock.readable and fd in self._readers:
                yield self._readers[fd]
            if sock.writable and fd in self._writers:
                yield self._writers[fd]

    def forget(self, fd: int) -> None:
        self._sockets.pop(fd, None)


class GuestSocket:
    """A connected socket that does not block."""

    def __init__(self, guest: Guest, network: Network, port: int) -> None:
        self._guest = guest
        self._end = network.connect(guest.name, port)
        self._fd = next(_NUMBERS)
        self._arrived = b""
        self._over: list[Exception | None] = []
        self._end.on_bytes, self._end.on_lost, self._end.on_space = self._take, self._lose, guest.wake

    @property
    def readable(self) -> bool:
        return bool(self._arrived or self._over)

    @property
    def writable(self) -> bool:
        return bool(self._over) or not self._end.full

    def fileno(self) -> int:
        return self._fd

    def setblocking(self, _flag: bool) -> None: ...  # noqa: FBT001 - as of a real socket

    def recv(self, size: int) -> bytes:
        if not self._arrived and self._over:
            if self._over[0] is not None:
                raise self._over[0]
            return b""
        if not self._arrived:
            raise BlockingIOError
        data, self._arrived = self._arrived[:size], self._arrived[size:]
        return data

    def send(self, data: bytes) -> int:
        if self._over:
            raise BrokenPipeError(32, "Broken pipe")
        if self._end.full:
            raise BlockingIOError
        self._end.write(bytes(data))
        return len(data)

    def close(self) -> None:
        self._guest.forget(self._fd)
        self._end.close()

    def _take(self, data: bytes) -> None:
        self._arrived += data
        self._guest.wake()

    def _lose(self, error: Exception | None) -> None:
        self._over.append(error)
        self._guest.wake()


def guest() -> Guest:
    """Return the guest whose thread works."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, Guest)
    return loop


@contextmanager
def client_doors(world: World) -> Iterator[None]:
    """Lead the doors of the client library, and of what it uses, into this world while the block lasts."""
    with ExitStack() as stack:
        for target, name, new in (
            (paho, "time_func", lambda: 1000.0 + world.now),
            (paho.Client, "_create_socket_connection", lambda client: guest().dial(client.port)),
            (subscription, "uuid", SimpleNamespace(uuid4=lambda: SimpleNamespace(hex=guest().name))),
            (subscription, "Backoff", lambda: Backoff(random=Random(world.seed))),
            (LOG, "disabled", True),
            (logging.getLogger("mqtt"), "disabled", True),
        ):
            stack.enter_context(mock.patch.object(target, name, new))
        yield
