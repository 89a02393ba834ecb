"""Metrics, health and state over HTTP, read-only. `server` runs it in a thread with a loop of its own.

A slow scrape therefore never delays a verdict, and a stuck evaluation never silences `/healthz`, which is there to tell
of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from monitor.errors import ConfigError, LimitError, MonitorError
from monitor.sidecar.config.settings import HttpConfig
from monitor.sidecar.evidence.bundle import pack_bundle
from monitor.sidecar.sinks.metrics import CONTENT_TYPE
from monitor.sidecar.sinks.status_view import StatusView
from monitor.sidecar.store.alarm_history import AlarmFilter
from monitor.sidecar.web.page import page_routes
from monitor.sidecar.web.pictures import Pictures
from monitor.sidecar.web.runbooks import runbook_route
from monitor.sidecar.web.server import HttpServer

__all__ = ["HEADERS", "Sources", "answering_probes", "make_app", "nothing_kept"]

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

MOST_PACKED: Final = 64 << 20
"""Bytes of evidence, model and policies that are packed in this process, which has a stream to watch."""

MOST_AGENTS: Final = 100
"""Agents on one page; others are found by their name."""
MOST_ALARMS: Final = 1000
"""Alarms in one answer; without a limit there are as many as there are agents on a page."""
LONGEST_NAME: Final = 64


def nothing_kept(sha256: str) -> bytes:
    """What is read of models and policies where there is no store."""
    raise ConfigError(f"objects/{sha256}: nothing is kept (store.path is null)")


@dataclass(frozen=True)
class Sources:
    """Where the answers come from; every one is called on the server's thread.

    `evidence` and `signature` are asked by the evidence's id, `objects` by the sha256 of a model or policy; it raises
    ConfigError where there is none. `health` and `readiness` return what is wrong, `starting` what has still to be
    done, or an empty text; `status` plain data about this process.
    """

    view: StatusView
    exposition: Callable[[], bytes]
    evidence: Callable[[str], bytes | None]
    signature: Callable[[str], bytes | None]
    health: Callable[[], str]
    readiness: Callable[[], str]
    status: Callable[[], dict[str, Any]]
    pictures: Pictures
    starting: Callable[[], str] = lambda: ""
    objects: Callable[[str], bytes] = nothing_kept

    def overview(self, search: str, most: int) -> dict[str, Any]:
        """All that a person looks at, in one document; `search` and `most` as in `StatusView.overview`."""
        told = self.view.overview(search, most)
        return {**told, "status": self.status(), "problem": self.problem(), "now": time.time()}

    def life(self, name: str, most: int) -> dict[str, Any] | None:
        """All about one agent; as `StatusView.life`."""
        told = self.view.life(name, most)
        return None if told is None else {**told, "problem": self.problem(), "now": time.time()}

    def problem(self) -> str:
        """Why what is shown cannot be relied on; empty if it can."""
        return self.health() or self.readiness()


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
            runbook_route(),
            Route("/metrics", pages.metrics),
            Route("/healthz", pages.healthz),
            Route("/readyz", pages.readyz),
            Route("/startupz", pages.startupz),
            Route("/evidence/{name}.sig", pages.signature),
            Route("/evidence/{name}.zip", pages.bundle),
            Route("/evidence/{name}", pages.evidence),
            Route("/picture/{name}.svg", pages.picture),
            Route("/api/overview", pages.overview),
            Route("/api/status", pages.status),
            Route("/api/formulas", pages.formulas),
            Route("/api/agents", pages.agents),
            Route("/api/agents/{name}", pages.agent),
            Route("/api/agents/{name}/history", pages.life),
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
        found = self._sources.pictures.get(request.path_params["name"])
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

    async def startupz(self, _request: Request) -> Response:
        return _verdict(self._sources.starting())

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

    async def bundle(self, request: Request) -> Response:
        name, sources = request.path_params["name"], self._sources
        content = sources.evidence(name)
        if content is None:
            return _missing("there is no such evidence")
        packing = partial(pack_bundle, content, sources.objects, sources.signature(name), most=MOST_PACKED)
        try:
            packed = await asyncio.to_thread(packing)
        except LimitError as error:
            why = f"{error}; `cfmon evidence export` packs it where the store is"
            return PlainTextResponse(why, status_code=413, headers=HEADERS)
        except MonitorError as error:
            return _missing(str(error))
        return _download(packed, f"{name}.zip", "application/zip")

    async def status(self, _request: Request) -> Response:
        return JSONResponse(self._sources.status(), headers=HEADERS)

    async def formulas(self, _request: Request) -> Response:
        return JSONResponse(self._sources.view.formulas(), headers=HEADERS)

    async def agents(self, _request: Request) -> Response:
        return JSONResponse(self._sources.view.agents(), headers=HEADERS)

    async def agent(self, request: Request) -> Response:
        agent = self._sources.view.agent(request.path_params["name"])
        return _missing("there is no such agent") if agent is None else JSONResponse(agent, headers=HEADERS)

    async def life(self, request: Request) -> Response:
        """One agent over time, with its alarms: all that its page shows, in one document."""
        told = self._sources.life(request.path_params["name"], MOST_ALARMS)
        return _missing("there is no such agent") if told is None else JSONResponse(told, headers=HEADERS)

    async def alarms(self, request: Request) -> Response:
        """The list of alarms, the newest first, as asked for by the query."""
        try:
            asked, most = _asked(request.query_params)
        except ValueError as error:
            return PlainTextResponse(str(error), status_code=400, headers=HEADERS)
        return JSONResponse(self._sources.view.found(asked, most), headers=HEADERS)


def _asked(query: Mapping[str, str]) -> tuple[AlarmFilter, int]:
    """The filter that a query describes, and how many alarms it wants; ValueError says what is wrong with it."""
    wrong = query.keys() - {"agent", "formula", "severity", "state", "since", "until", "limit"}
    if wrong:
        raise ValueError(f"{min(wrong)!r} is no filter: there are agent, formula, severity, state, since, until, limit")
    words = {name: query[name] for name in ("agent", "formula", "severity", "state") if query.get(name)}
    times = {name: _seconds(name, query[name]) for name in ("since", "until") if query.get(name)}
    limit = query.get("limit") or str(MOST_AGENTS)
    if not (limit.isascii() and limit.isdigit() and 0 < int(limit[:9]) <= MOST_ALARMS):
        raise ValueError(f"limit must be a number from 1 to {MOST_ALARMS}")
    return AlarmFilter(**words, **times), int(limit)  # type: ignore[arg-type] # words are names, times are numbers


def _seconds(name: str, text: str) -> float:
    """Seconds since the epoch, given as such or as RFC 3339; a date without a zone is UTC."""
    with contextlib.suppress(ValueError):
        seconds = float(text)
        if math.isfinite(seconds):
            return seconds
    with contextlib.suppress(ValueError, OverflowError):
        date = datetime.fromisoformat(text.replace(" ", "+"))  # in a query `+` is a space
        return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
    raise ValueError(f"{name} must be a time such as 2026-01-31T12:00:00Z, or seconds since the epoch")


def _verdict(problem: str) -> Response:
    return PlainTextResponse(problem or "ok", status_code=503 if problem else 200, headers=HEADERS)


def _download(content: bytes, name: str, kind: str) -> Response:
    download = {**HEADERS, "Content-Disposition": f'attachment; filename="{name}"'}
    return Response(content, media_type=kind, headers=download)


def _missing(what: str) -> Response:
    return PlainTextResponse(what, status_code=404, headers=HEADERS)


@contextlib.contextmanager
def answering_probes(config: HttpConfig, doing: str) -> Iterator[HttpServer]:
    """Answer that this process lives and is not ready while it is still `doing` something, such as compiling."""

    async def alive(_request: Request) -> Response:
        return _verdict("")

    async def not_yet(_request: Request) -> Response:
        return _verdict(doing)

    app = Starlette(routes=[Route("/healthz", alive), Route("/{path:path}", not_yet)])
    server = HttpServer(app, config)
    try:
        server.start()
        yield server
    finally:
        server.stop()
