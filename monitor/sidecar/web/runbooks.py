"""The runbooks, served beside the page: a link in an alert leads somewhere for whoever can reach the monitor."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

if TYPE_CHECKING:
    from monitor.sidecar.config.settings import HttpConfig

__all__ = ["PREFIX", "default_runbook", "runbook_route"]

PREFIX: Final = "/runbooks/"
FOLDER: Final = "deploy/runbooks"
HEADERS: Final = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
}
EVERYWHERE: Final = ("0.0.0.0", "::", "")  # noqa: S104 - told apart, not bound
"""Addresses to listen on that lead nowhere in a link."""


def default_runbook(http: HttpConfig, severity: str) -> str | None:
    """The link told with an alarm that has none of its own; None where it is not known how people reach us."""
    base = http.url
    if base is None:
        parts = urlsplit(f"//{http.listen}")
        if not parts.port or (parts.hostname or "") in EVERYWHERE:
            return None
        base = f"http://{http.listen}"
    return f"{base.rstrip('/')}{PREFIX}CfmonAlarm{'Critical' if severity == 'critical' else 'Warning'}"


def runbook_route() -> Route:
    """`/runbooks/NAME`, with or without `.md`: the page as it is written, which is text for people."""
    pages = {file.stem: file.read_text(encoding="utf-8") for file in sorted(_folder().glob("*.md"))}

    async def give(request: Request) -> Response:
        found = pages.get(request.path_params["name"].removesuffix(".md"))
        if found is None:
            told = "there is no such runbook; there are: " + ", ".join(pages)
            return PlainTextResponse(told, status_code=404, headers=HEADERS)
        return PlainTextResponse(found, headers=HEADERS)

    return Route(f"{PREFIX}{{name}}", give)


def _folder() -> Path:
    """In the repository or, once installed, in the wheel."""
    package = Path(__file__).resolve().parents[2]
    in_repository = package.parent / FOLDER
    return in_repository if in_repository.is_dir() else package / "_data" / FOLDER
