"""Static files of the status page: documents, style and scripts, all from this package."""

from __future__ import annotations

from importlib.resources import files
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

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
    "/charts.js": ("charts.js", SCRIPT),
    "/alarm.js": ("alarm.js", SCRIPT),
    "/agent.js": ("agent.js", SCRIPT),
    "/bands.js": ("bands.js", SCRIPT),
    "/recourse.js": ("recourse.js", SCRIPT),
    "/reliability.js": ("reliability.js", SCRIPT),
    "/alarms.js": ("alarms.js", SCRIPT),
}
SHELL: Final = frozenset(FILES)
"""Paths without data, served without a token; the scripts request the data."""

HEADERS: Final = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; frame-src 'self'; "
        "img-src 'self' blob: data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


def page_routes() -> list[Route]:
    """Return a route for each file. The files are read now."""
    return [_route(path, name, kind) for path, (name, kind) in FILES.items()]


def _route(path: str, name: str, kind: str) -> Route:
    content = files("monitor.sidecar.web").joinpath("static", name).read_bytes()

    async def give(_request: Request) -> Response:
        return Response(content, media_type=kind, headers=HEADERS)

    return Route(path, give)
