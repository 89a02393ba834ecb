"""Metrics, health and state over HTTP, read-only, in a thread with a loop of its own.

A slow scrape therefore never delays a verdict, and a stuck evaluation never silences `/healthz`, which is there to tell
of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from uvicorn.protocols.http.h11_impl import H11Protocol

from monitor.errors import ConfigError
from monitor.sidecar.board import Board
from monitor.sidecar.guard import Guard, is_loopback
from monitor.sidecar.metrics import CONTENT_TYPE
from monitor.sidecar.page import page_routes
from monitor.sidecar.pictures import Pictures
from monitor.sidecar.settings import HttpConfig

__all__ = ["HttpServer", "Sources", "make_app"]

LOG: Final = logging.getLogger("monitor.http")
HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
}
PICTURE_HEADERS: Final = {
    **HEADERS,
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; sandbox",
}
"""A picture brings its own style, and nothing else."""

MOST_AGENTS: Final = 100
"""Agents on one page; others are found by their name."""
LONGEST_NAME: Final = 64

MAX_HEADER_BYTES: Final = 1 << 14
"""Of a request line and its headers together."""

PATIENCE: Final = 10.0
"""Seconds in which a request must be there, and its answer taken."""

MOST_CONNECTIONS: Final = 256
"""At once; the oldest makes room for a newer one, so that a probe is heard however many others are held open."""

START_DEADLINE: Final = 10.0
"""Seconds for the server to come up: it has nothing to do but to accept on a socket that is already open."""


@dataclass(frozen=True)
class Sources:
    """Where the answers come from; every one is called on the server's thread.

    `evidence` and `signature` are asked by the evidence's id. `health` and `readiness` return what is wrong, or an
    empty text; `status` plain data about this process.
    """

    board: Board
    exposition: Callable[[], bytes]
    evidence: Callable[[str], bytes | None]
    signature: Callable[[str], bytes | None]
    health: Callable[[], str]
    readiness: Callable[[], str]
    status: Callable[[], dict[str, Any]]
    pictures: Pictures

    def overview(self, search: str, most: int) -> dict[str, Any]:
        """All that a person looks at, in one document; `search` and `most` as in `Board.overview`."""
        told = self.board.overview(search, most)
        problem = self.health() or self.readiness()
        return {**told, "status": self.status(), "problem": problem, "now": time.time()}


def make_app(sources: Sources) -> Starlette:
    """The application: routes for GET and HEAD only, for there is nothing to write."""
    pages = _Pages(sources)

    @contextlib.asynccontextmanager
    async def until_stopped(_app: Starlette) -> AsyncIterator[None]:
        yield
        await sources.pictures.close()

    return Starlette(
        lifespan=until_stopped,
        routes=[
            *page_routes(),
            Route("/metrics", pages.metrics),
            Route("/healthz", pages.healthz),
            Route("/readyz", pages.readyz),
            Route("/evidence/{name}.sig", pages.signature),
            Route("/evidence/{name}", pages.evidence),
            Route("/picture/{name}.svg", pages.picture),
            Route("/api/overview", pages.overview),
            Route("/api/status", pages.status),
            Route("/api/formulas", pages.formulas),
            Route("/api/agents", pages.agents),
            Route("/api/agents/{name}", pages.agent),
            Route("/api/alarms", pages.alarms),
        ],
    )


class _Pages:
    """One method a route; they are short enough to run on the loop itself."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources

    async def overview(self, request: Request) -> Response:
        """All that the status page shows, in one document."""
        search = request.query_params.get("search", "")[:LONGEST_NAME]
        return JSONResponse(self._sources.overview(search, MOST_AGENTS), headers=HEADERS)

    async def picture(self, request: Request) -> Response:
        found = self._sources.pictures.look(request.path_params["name"])
        if found is None:
            return PlainTextResponse("it is being drawn: ask again", status_code=202, headers=HEADERS)
        drawn, problem = found
        return _missing(problem) if problem else Response(drawn, media_type="image/svg+xml", headers=PICTURE_HEADERS)

    async def metrics(self, _request: Request) -> Response:
        return Response(self._sources.exposition(), media_type=CONTENT_TYPE, headers=HEADERS)

    async def healthz(self, _request: Request) -> Response:
        return _verdict(self._sources.health())

    async def readyz(self, _request: Request) -> Response:
        return _verdict(self._sources.readiness())

    async def evidence(self, request: Request) -> Response:
        name = request.path_params["name"]
        content = self._sources.evidence(name)
        if content is None:
            return _missing("there is no such evidence")
        return _download(content, f"{name}.evidence", "application/vnd.msgpack")

    async def signature(self, request: Request) -> Response:
        name = request.path_params["name"]
        content = self._sources.signature(name)
        if content is None:
            return _missing("there is no such evidence, or it is not signed")
        return _download(content, f"{name}.sig", "application/octet-stream")

    async def status(self, _request: Request) -> Response:
        return JSONResponse(self._sources.status(), headers=HEADERS)

    async def formulas(self, _request: Request) -> Response:
        return JSONResponse(self._sources.board.formulas(), headers=HEADERS)

    async def agents(self, _request: Request) -> Response:
        return JSONResponse(self._sources.board.agents(), headers=HEADERS)

    async def agent(self, request: Request) -> Response:
        agent = self._sources.board.agent(request.path_params["name"])
        return _missing("there is no such agent") if agent is None else JSONResponse(agent, headers=HEADERS)

    async def alarms(self, _request: Request) -> Response:
        return JSONResponse(self._sources.board.alarms(), headers=HEADERS)


def _verdict(problem: str) -> Response:
    return PlainTextResponse(problem or "ok", status_code=503 if problem else 200, headers=HEADERS)


def _download(content: bytes, name: str, kind: str) -> Response:
    download = {**HEADERS, "Content-Disposition": f'attachment; filename="{name}"'}
    return Response(content, media_type=kind, headers=download)


def _missing(what: str) -> Response:
    return PlainTextResponse(what, status_code=404, headers=HEADERS)


class _Impatient(H11Protocol):
    """HTTP/1.1 that closes a connection on which nothing was finished for `PATIENCE`: no headers, no answer read.

    Else a few hundred slow clients would hold every connection there is, and a probe would find us dead. For the same
    reason the newest is never turned away: where there are too many, the oldest is closed.
    """

    begun = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as in uvicorn's own
        super().connection_made(transport)
        self.begun = self.loop.time()
        others = [other for other in self.connections if isinstance(other, _Impatient) and other.open]
        if len(others) > MOST_CONNECTIONS:
            min(others, key=lambda other: other.begun).transport.abort()
        self._look_again(self.cycle)

    @property
    def open(self) -> bool:
        """Whether it is not being closed already."""
        return not self.transport.is_closing()

    def _look_again(self, before: object) -> None:
        """`before`: the request that was under way at the last look, or the last one that was."""
        if self.transport.is_closing():
            return
        self.loop.call_later(PATIENCE, self._look, before)

    def _look(self, before: object) -> None:
        if self.cycle is before:
            self.transport.abort()
        else:
            self._look_again(self.cycle)


class HttpServer:
    """Serves an application from a thread. The socket is opened here, so a port in use is an error at start.

    `config.listen`: host:port; port 0 takes a free one, see `url`.
    """

    def __init__(self, app: Starlette, config: HttpConfig) -> None:
        self._socket = _open(config.listen)
        loopback = is_loopback(self._socket.getsockname()[0])
        guarded = Guard(app, loopback=loopback, token_file=config.token_file, hosts=config.hosts)
        self._server = uvicorn.Server(
            uvicorn.Config(
                guarded,
                http=_Impatient,
                h11_max_incomplete_event_size=MAX_HEADER_BYTES,
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


def _open(listen: str) -> socket.socket:
    parts = urlsplit(f"//{listen}")
    host, port = parts.hostname or "", parts.port or 0
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        opened = socket.create_server((host, port), family=family, backlog=128)
    except OSError as error:
        raise ConfigError(f"http.listen: cannot listen on {listen}: {error.strerror or error}") from error
    opened.setblocking(False)  # noqa: FBT003 - the signature is the socket's
    return opened
