"""The status page's files: documents, style, scripts and the library of the charts, all from this package."""

from __future__ import annotations

from importlib.resources import files
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

__all__ = ["SHELL", "page_routes"]

HTML: Final = "text/html; charset=utf-8"
STYLE: Final = "text/css; charset=utf-8"
SCRIPT: Final = "text/javascript; charset=utf-8"
FILES: Final = {
    "/": ("index.html", HTML),
    "/agent": ("agent.html", HTML),
    "/alarms": ("alarms.html", HTML),
    "/style.css": ("style.css", STYLE),
    "/common.js": ("common.js", SCRIPT),
    "/app.js": ("app.js", SCRIPT),
    "/agent.js": ("agent.js", SCRIPT),
    "/reliability.js": ("reliability.js", SCRIPT),
    "/alarms.js": ("alarms.js", SCRIPT),
    "/uplot.js": ("uplot/uPlot.iife.min.js", SCRIPT),
    "/uplot.css": ("uplot/uPlot.min.css", STYLE),
}
SHELL: Final = frozenset(FILES)
"""Paths that hold no data, so that they can be given to anyone; what they show, the script must ask for."""

HEADERS: Final = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' blob: data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


def page_routes() -> list[Route]:
    """One route a file; they are read once, at start."""
    return [_route(path, name, kind) for path, (name, kind) in FILES.items()]


def _route(path: str, name: str, kind: str) -> Route:
    content = files("monitor.sidecar.web").joinpath("static", name).read_bytes()

    async def give(_request: Request) -> Response:
        return Response(content, media_type=kind, headers=HEADERS)

    return Route(path, give)
