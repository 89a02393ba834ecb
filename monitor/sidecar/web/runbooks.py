"""Runbooks, served with the status page, so that links in alerts work for anyone who can reach the monitor."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

if TYPE_CHECKING:
    from monitor.sidecar.config.settings import HttpConfig

PREFIX: Final = "/runbooks/"
FOLDER: Final = "deploy/runbooks"
HEADERS: Final = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
}
ANY_ADDRESS: Final = ("0.0.0.0", "::", "")  # noqa: S104 - compared, not bound
"""Listening addresses that cannot be used in a link."""


def default_runbook(http: HttpConfig, severity: str) -> str | None:
    """Return the runbook link of an alarm that has no configured link; None if the monitor's address is unknown."""
    base = http.url
    if base is None:
        parts = urlsplit(f"//{http.listen}")
        if not parts.port or (parts.hostname or "") in ANY_ADDRESS:
            return None
        base = f"http://{http.listen}"
    return f"{base.rstrip('/')}{PREFIX}CfmonAlarm{'Critical' if severity == 'critical' else 'Warning'}"


def runbook_route() -> Route:
    """Return the route `/runbooks/NAME`, with or without `.md`, which serves Markdown as text."""
    pages = {file.stem: file.read_text(encoding="utf-8") for file in sorted(_folder().glob("*.md"))}

    async def give(request: Request) -> Response:
        found = pages.get(request.path_params["name"].removesuffix(".md"))
        if found is None:
            problem = "there is no such runbook; there are: " + ", ".join(pages)
            return PlainTextResponse(problem, status_code=404, headers=HEADERS)
        return PlainTextResponse(found, headers=HEADERS)

    return Route(f"{PREFIX}{{name}}", give)


def _folder() -> Path:
    """Return the folder of the runbooks, in the repository or in the installed wheel."""
    package = Path(__file__).resolve().parents[2]
    in_repository = package.parent / FOLDER
    return in_repository if in_repository.is_dir() else package / "_data" / FOLDER
