"""HTTP server for `monitor.sidecar.web.http`: uvicorn in a thread with its own event loop, safe from slow clients."""

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
from monitor.sidecar.loopback import is_loopback
from monitor.sidecar.web.guard import Guard

MAX_HEADER_BYTES: Final = 1 << 14
"""Maximum size of a request line and its headers together."""

PATIENCE: Final = 10.0
"""Seconds for a request to arrive, and for its response to be read."""

MAX_CONNECTIONS: Final = 256
"""Maximum number of connections. A further connection closes the oldest connection, so that probes are answered."""

KEEP_ALIVE: Final = 5
"""Seconds for which a connection stays open after a response."""

START_DEADLINE: Final = 10.0
"""Seconds for the server to start."""


class _BoundedHttp(H11Protocol):
    """HTTP/1.1 that closes connections on which no request or response was completed for `PATIENCE` seconds.

    Without this, a few hundred slow clients could take all connections, and probes would fail. The time of a suspension
    of this process does not count. Headers are limited to `MAX_HEADER_BYTES`, and malformed HTTP does not raise.
    """

    begun = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as in uvicorn's own
        super().connection_made(transport)
        self.begun = self.loop.time()
        others = [other for other in self.connections if isinstance(other, _BoundedHttp) and other.open]
        if len(others) > MAX_CONNECTIONS:
            min(others, key=lambda other: other.begun).transport.abort()
        self._schedule_check(self.cycle)

    def data_received(self, data: bytes) -> None:
        """Pass data on in pieces within the limit of headers, because h11 measures only incomplete headers."""
        while data and self.open:
            size = MAX_HEADER_BYTES - len(self.conn.trailing_data[0])
            if size <= 0:  # pipelined requests
                self.transport.abort()
                return
            super().data_received(data[:size])
            data = data[size:]

    def send_400_response(self, msg: str) -> None:
        """Refuse malformed HTTP. If a response has begun, for example before a bad body, only close the connection."""
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True  # otherwise the running request's response would follow this one
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:
            self.transport.close()

    @property
    def open(self) -> bool:
        """True unless the connection is closing."""
        return not self.transport.is_closing()

    def _schedule_check(self, before: object) -> None:
        """Check again in `PATIENCE` seconds; `before`: the current or last request."""
        if self.open:
            self.loop.call_later(PATIENCE, self._check, before, self.loop.time() + PATIENCE)

    def _check(self, before: object, due: float) -> None:
        late = self.loop.time() - due > PATIENCE / 10  # this process was suspended, and data may wait unread
        if self.cycle is before and not late:
            self.transport.abort()
        else:
            self._schedule_check(self.cycle)


class HttpServer:
    """Server of an application, in a thread.

    The constructor opens the socket; raises ConfigError if the port is in use.

    `config.listen`: host:port; port 0 means any free port, which `url` shows. `before`: a server on the same address,
    which this one replaces. `open`: whether the server listens beyond loopback and answers everyone, under any name.
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
                http=_BoundedHttp,
                h11_max_incomplete_event_size=MAX_HEADER_BYTES - 1,
                log_config=None,
                access_log=False,
                lifespan="on",
                ws="none",
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=KEEP_ALIVE,
                timeout_graceful_shutdown=1,
            )
        )
        self._thread = threading.Thread(target=self._server.run, args=([self._socket],), name="http", daemon=True)

    @property
    def url(self) -> str:
        """Base URL, with the actual port."""
        host, port = self._socket.getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def shared(self) -> socket.socket:
        """Return a duplicate of the socket, for a server that replaces this one. Both servers accept connections."""
        shared = self._socket.dup()
        shared.setblocking(False)  # noqa: FBT003 - the signature is the socket's
        return shared

    def start(self) -> None:
        """Start serving, and return when requests are answered. Raises ConfigError if the server does not start."""
        self._thread.start()
        deadline = time.monotonic() + START_DEADLINE
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > deadline:
                raise ConfigError(f"http.listen: nothing is served at {self.url}; see the log")
            time.sleep(0.005)

    def stop(self) -> None:
        """Finish running requests, then end the thread."""
        self._server.should_exit = True
        if self._thread.is_alive():
            self._thread.join(timeout=5.0)
        self._socket.close()
        logging.getLogger("uvicorn.error").removeFilter(self._rate_limit)


def open_socket(listen: str) -> socket.socket:
    """Return a socket that listens on host:port. Raises ConfigError if it cannot be opened."""
    parts = urlsplit(f"//{listen}")
    host, port = parts.hostname or "", parts.port or 0
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        opened = socket.create_server((host, port), family=family, backlog=128)
    except OSError as error:
        raise ConfigError(f"http.listen: cannot listen on {listen}: {error.strerror or error}") from error
    opened.setblocking(False)  # noqa: FBT003 - the signature is the socket's
    return opened
