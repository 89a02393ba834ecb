"""The HTTP server: uvicorn in a thread with a loop of its own, patient with the slow and never blocked by them.

What it serves is `monitor.sidecar.web.http`.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
import time
from typing import Final
from urllib.parse import urlsplit

import h11
import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.h11_impl import H11Protocol

from monitor.errors import ConfigError
from monitor.sidecar.config.settings import HttpConfig
from monitor.sidecar.log import RateLimit
from monitor.sidecar.web.guard import Guard, is_loopback

__all__ = ["HttpServer", "open_socket"]

MAX_HEADER_BYTES: Final = 1 << 14
"""Of a request line and its headers together."""

PATIENCE: Final = 10.0
"""Seconds in which a request must be there, and its answer taken."""

MOST_CONNECTIONS: Final = 256
"""At once; the oldest makes room for a newer one, so that a probe is heard however many others are held open."""

START_DEADLINE: Final = 10.0
"""Seconds for the server to come up: it has nothing to do but to accept on a socket that is already open."""


class _Impatient(H11Protocol):
    """HTTP/1.1 that closes a connection on which nothing was finished for `PATIENCE`: no headers, no answer read.

    Else a few hundred slow clients would hold every connection there is, and a probe would find us dead. For the same
    reason the newest is never turned away: where there are too many, the oldest is closed.

    Time in which this process itself stood still is nobody's fault, and closes nothing.

    Headers have `MAX_HEADER_BYTES` and no byte more, and what is no HTTP raises nothing.
    """

    begun = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as in uvicorn's own
        super().connection_made(transport)
        self.begun = self.loop.time()
        others = [other for other in self.connections if isinstance(other, _Impatient) and other.open]
        if len(others) > MOST_CONNECTIONS:
            min(others, key=lambda other: other.begun).transport.abort()
        self._look_again(self.cycle)

    def data_received(self, data: bytes) -> None:
        """Pass on no more at once than headers may have: h11 measures only headers that are not complete yet."""
        while data and self.open:
            room = MAX_HEADER_BYTES - len(self.conn.trailing_data[0])
            if room <= 0:  # further requests, sent before the first is answered
                self.transport.abort()
                return
            super().data_received(data[:room])
            data = data[room:]

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP; where an answer has begun, such as before a bad body, only close the connection."""
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True  # or its answer would come after this one
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:
            self.transport.close()

    @property
    def open(self) -> bool:
        """Whether it is not being closed already."""
        return not self.transport.is_closing()

    def _look_again(self, before: object) -> None:
        """`before`: the request that was under way at the last look, or the last one that was."""
        if not self.transport.is_closing():
            self.loop.call_later(PATIENCE, self._look, before, self.loop.time() + PATIENCE)

    def _look(self, before: object, due: float) -> None:
        late = self.loop.time() - due > PATIENCE / 10  # we were suspended: what came meanwhile is read after this
        if self.cycle is before and not late:
            self.transport.abort()
        else:
            self._look_again(self.cycle)


class HttpServer:
    """Serves an application from a thread. The socket is opened here, so a port in use is an error at start.

    `config.listen`: host:port; port 0 takes a free one, see `url`. `before`: a server on the same address, which this
    one takes over from. `open`: beyond loopback it answers everyone who gets there, under any name.
    """

    def __init__(self, app: Starlette, config: HttpConfig, before: HttpServer | None = None) -> None:
        self._socket: socket.socket = open_socket(config.listen) if before is None else before.shared()
        loopback = is_loopback(self._socket.getsockname()[0])
        self._rate_limit = RateLimit()
        logging.getLogger("uvicorn.error").addFilter(self._rate_limit)
        self.open = not (loopback or config.token_file or config.hosts)
        guarded = Guard(app, loopback=loopback, token_file=config.token_file, hosts=config.hosts)
        self._server = uvicorn.Server(
            uvicorn.Config(
                guarded,
                http=_Impatient,
                h11_max_incomplete_event_size=MAX_HEADER_BYTES - 1,
                log_config=None,
                access_log=False,
                lifespan="on",
                ws="none",
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=5,
                timeout_graceful_shutdown=1,
            )
        )
        self._thread = threading.Thread(target=self._server.run, args=([self._socket],), name="http", daemon=True)

    @property
    def url(self) -> str:
        """Where it is served, with the real port."""
        host, port = self._socket.getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def shared(self) -> socket.socket:
        """The socket once more, for a server that takes over; connections come to either."""
        shared = self._socket.dup()
        shared.setblocking(False)  # noqa: FBT003 - the signature is the socket's
        return shared

    def start(self) -> None:
        """Serve; returns once requests are answered."""
        self._thread.start()
        deadline = time.monotonic() + START_DEADLINE
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > deadline:
                raise ConfigError(f"http.listen: nothing is served at {self.url}; see the log")
            time.sleep(0.005)

    def stop(self) -> None:
        """Finish the requests that run, then end the thread."""
        self._server.should_exit = True
        if self._thread.is_alive():
            self._thread.join(timeout=5.0)
        self._socket.close()
        logging.getLogger("uvicorn.error").removeFilter(self._rate_limit)


def open_socket(listen: str) -> socket.socket:
    """A socket that listens on host:port; ConfigError if there can be none."""
    parts = urlsplit(f"//{listen}")
    host, port = parts.hostname or "", parts.port or 0
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        opened = socket.create_server((host, port), family=family, backlog=128)
    except OSError as error:
        raise ConfigError(f"http.listen: cannot listen on {listen}: {error.strerror or error}") from error
    opened.setblocking(False)  # noqa: FBT003 - the signature is the socket's
    return opened
