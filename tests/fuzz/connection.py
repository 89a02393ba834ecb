"""A connection to the monitor's HTTP server without a socket: bytes go in, bytes come out, nothing waits."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final

import uvicorn
from uvicorn.server import ServerState

from monitor.sidecar.sinks.status_view import StatusView
from monitor.sidecar.web import server as server_module
from monitor.sidecar.web.guard import Guard
from monitor.sidecar.web.http import Sources, make_app
from monitor.sidecar.web.pictures import Pictures
from monitor.sidecar.web.server import MAX_HEADER_BYTES, _BoundedHttp
from tests.fuzz.world import loaded

__all__ = ["answer"]

PATIENCE: Final = 0.05
"""Seconds after which the server looks at a connection again, and lets go of it."""

TURNS: Final = 20
"""Turns of the loop in which everything is answered: no page waits for anything."""


class _Transport(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()
        self.closed = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:  # noqa: ANN401 - as asyncio has it
        return ("127.0.0.1", 1) if name in ("sockname", "peername") else default

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    abort = close

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


class _Errors(logging.Handler):
    """What the server takes for a mistake of its own."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.records: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(self.format(record))


class _Server:
    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.loop.set_exception_handler(self._failed)
        self.errors = _Errors()
        sources = Sources(
            view=StatusView(loaded().watched),
            exposition=lambda: b"cfmon_metric 1\n",
            evidence=lambda _name: None,
            signature=lambda _name: None,
            health=lambda: "",
            readiness=lambda: "not yet",
            status=lambda: {"version": "1"},
            pictures=Pictures(lambda _name: None, Path("objects")),
        )
        self.config = uvicorn.Config(
            Guard(make_app(sources), loopback=True, hosts=["monitor.example"]),
            http=_BoundedHttp,
            h11_max_incomplete_event_size=MAX_HEADER_BYTES - 1,
            log_config=None,
            access_log=False,
            lifespan="off",
            ws="none",
            server_header=False,
        )
        self.config.load()

    def _failed(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.errors.records.append(str(context))

    async def talk(self, pieces: list[bytes]) -> bytes:
        transport = _Transport()
        protocol = _BoundedHttp(config=self.config, server_state=ServerState(), app_state={}, _loop=self.loop)
        protocol.connection_made(transport)
        for piece in pieces:
            if transport.closed:
                break
            protocol.data_received(piece)
            for _ in range(TURNS):
                await asyncio.sleep(0)
        protocol.connection_lost(None)
        transport.close()  # so that no timer looks at it again
        if protocol.timeout_keep_alive_task is not None:
            protocol.timeout_keep_alive_task.cancel()
        return bytes(transport.written)


@contextmanager
def _changed(errors: _Errors) -> Iterator[None]:
    """Keep the errors that are logged, and connections no longer than need be; afterwards all is as it was."""
    loggers = [logging.getLogger(name) for name in ("uvicorn.error", "monitor")]
    before = [(logger.handlers, logger.propagate) for logger in loggers]
    patience = server_module.PATIENCE
    try:
        server_module.PATIENCE = PATIENCE  # type: ignore[misc] # its own is for a running server
        for logger in loggers:
            logger.handlers, logger.propagate = [errors], False
        yield
    finally:
        server_module.PATIENCE = patience  # type: ignore[misc]
        for logger, (handlers, propagate) in zip(loggers, before, strict=True):
            logger.handlers, logger.propagate = handlers, propagate


@cache
def _server() -> _Server:
    return _Server()


def answer(pieces: list[bytes]) -> tuple[bytes, list[str]]:
    """What comes back for these bytes, received one piece after the other, and what was logged as an error."""
    server = _server()
    server.errors.records.clear()
    with _changed(server.errors):
        written = server.loop.run_until_complete(server.talk(pieces))
    return written, list(server.errors.records)
