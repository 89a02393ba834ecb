"""The status page's files: one document, its style and its script, all from this package."""

from __future__ import annotations

from importlib.resources import files
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

__all__ = ["SHELL", "page_routes"]

KINDS: Final = {
    "index.html": "text/html; charset=utf-8",
    "style.css": "text/css; charset=utf-8",
    "app.js": "text/javascript; charset=utf-8",
}
SHELL: Final = frozenset({"/", "/style.css", "/app.js"})
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
    return [_route("/" if name == "index.html" else f"/{name}", name, kind) for name, kind in KINDS.items()]


def _route(path: str, name: str, kind: str) -> Route:
    content = files("monitor.sidecar").joinpath("web", name).read_bytes()

    async def give(_request: Request) -> Response:
        return Response(content, media_type=kind, headers=HEADERS)

    return Route(path, give)
