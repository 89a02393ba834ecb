"""Metrics, health and state over HTTP, read-only.

`server` runs this application in a thread with its own event loop. A slow scrape therefore does not delay verdicts, and
`/healthz` answers even if evaluation hangs.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
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
from monitor.evidence.bundle import pack_bundle
from monitor.sidecar.clock import read_clock
from monitor.sidecar.config.settings import HttpConfig
from monitor.sidecar.sinks.metrics import CONTENT_TYPE
from monitor.sidecar.sinks.status_view import DRAWN, StatusView
from monitor.sidecar.store.alarm_history import AlarmFilter
from monitor.sidecar.web.page import page_routes
from monitor.sidecar.web.pictures import Pictures
from monitor.sidecar.web.runbooks import runbook_route
from monitor.sidecar.web.server import HttpServer

HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
}
TEXT_HEADERS: Final = {
    **HEADERS,
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'self'",
    "Refresh": "5",
}
"""Headers of the text that the status page shows without JavaScript. The browser requests it again after 5 seconds."""
PICTURE_HEADERS: Final = {
    **HEADERS,
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; sandbox",
}
"""Headers of a picture. The picture may use its own style and nothing else."""

MAX_PACKED_BYTES: Final = 64 << 20
"""Maximum total size in bytes of evidence, model and policies packed in this process."""

MAX_AGENTS: Final = 100
"""Maximum number of agents on a page; a search by name finds the others. Also the default limit for alarms."""
MAX_ALARMS: Final = 1000
"""Maximum number of alarms in a response."""
MAX_NAME: Final = 64


def nothing_kept(sha256: str) -> bytes:
    """Raise ConfigError, because without a store there are no models and policies to read."""
    raise ConfigError(f"objects/{sha256}: nothing is kept (store.path is null)")


@dataclass(frozen=True)
class Sources:
    """Sources of the pages' data. All functions are called on the server's thread.

    `evidence` and `signature` take the id of evidence. `objects` takes the SHA-256 of a model or policy, and raises
    ConfigError if there is none. `health` and `readiness` return the problem, or an empty text. `starting` returns the
    work of the start that remains, or an empty text. `status` returns plain data about this process.
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

    def overview(self, search: str, most: int, drawn: int = DRAWN) -> dict[str, Any]:
        """Return the data of the status page; `search`, `most` and `drawn` as in `StatusView.overview`."""
        now = read_clock().wall
        overview = self.view.overview(search, most, now, drawn)
        return {**overview, "status": self.status(), "problem": self.problem(), "now": now}

    def life(self, name: str, most: int) -> dict[str, Any] | None:
        """Return the data of an agent's page: `StatusView.life` with the problem and the current time."""
        life = self.view.life(name, most)
        return None if life is None else {**life, "problem": self.problem(), "now": read_clock().wall}

    def problem(self) -> str:
        """Return the reason why the data may be wrong or old; an empty text if there is no reason."""
        return self.health() or self.readiness()


def make_app(sources: Sources) -> Starlette:
    """Return the application, whose routes are read-only."""
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
            Route("/text", pages.text),
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
    """Handlers of the routes, short enough to run on the event loop."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources

    async def overview(self, request: Request) -> Response:
        query = request.query_params
        try:
            every = query.get("drawn") == "all"
            drawn = MAX_AGENTS if every else _whole(query, "drawn", DRAWN, least=0, most=MAX_AGENTS)
        except ValueError as error:
            return PlainTextResponse(str(error), status_code=400, headers=HEADERS)
        search = query.get("search", "")[:MAX_NAME]
        return JSONResponse(self._sources.overview(search, MAX_AGENTS, drawn), headers=HEADERS)

    async def text(self, _request: Request) -> Response:
        """Return the overview as the table of `cfmon run`."""
        from monitor.sidecar.web.fleet_table import as_text  # noqa: PLC0415 - loads rich, which few processes need

        return PlainTextResponse(as_text(self._sources.overview("", MAX_AGENTS, 0)), headers=TEXT_HEADERS)

    async def picture(self, request: Request) -> Response:
        found = self._sources.pictures.get(request.path_params["name"])
        if found is None:
            return PlainTextResponse("the picture is being drawn; try again", status_code=202, headers=HEADERS)
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
        packing = partial(pack_bundle, content, sources.objects, sources.signature(name), most=MAX_PACKED_BYTES)
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
        life = self._sources.life(request.path_params["name"], MAX_ALARMS)
        return _missing("there is no such agent") if life is None else JSONResponse(life, headers=HEADERS)

    async def alarms(self, request: Request) -> Response:
        """Return the alarms that match the query, newest first."""
        try:
            wanted, limit = _parse_query(request.query_params)
        except ValueError as error:
            return PlainTextResponse(str(error), status_code=400, headers=HEADERS)
        return JSONResponse(self._sources.view.found(wanted, limit), headers=HEADERS)


def _parse_query(query: Mapping[str, str]) -> tuple[AlarmFilter, int]:
    """Return the filter and the limit of a query. Raises ValueError if the query is malformed."""
    wrong = query.keys() - {"agent", "formula", "severity", "state", "since", "until", "limit"}
    if wrong:
        raise ValueError(f"unknown filter {min(wrong)!r}: use agent, formula, severity, state, since, until or limit")
    words = {name: query[name] for name in ("agent", "formula", "severity", "state") if query.get(name)}
    times = {name: _seconds(name, query[name]) for name in ("since", "until") if query.get(name)}
    limit = _whole(query, "limit", MAX_AGENTS, least=1, most=MAX_ALARMS)
    return AlarmFilter(**words, **times), limit  # type: ignore[arg-type] # words are names, times are numbers


def _whole(query: Mapping[str, str], name: str, default: int, *, least: int, most: int) -> int:
    """Return the whole number under a name in a query. Raises ValueError if it is no whole number in this range."""
    text = query.get(name) or str(default)
    if not (text.isascii() and text.isdigit() and len(text) < 10 and least <= int(text) <= most):
        raise ValueError(f"{name} must be a number from {least} to {most}")
    return int(text)


def _seconds(name: str, text: str) -> float:
    """Parse a time, in seconds since the epoch or in RFC 3339. A time without a zone is UTC."""
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
    """Answer probes inside the block: the process is alive, and not ready because of `doing`."""

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
