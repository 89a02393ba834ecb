"""Access control in front of all pages: methods, host names, bearer token.

On loopback without a token, only requests for a loopback name are answered. Otherwise a web page that is open on this
machine could let its own name resolve to 127.0.0.1, and read everything through the browser (DNS rebinding). With a
required token, this attack is impossible. Beyond loopback, names are checked only if `http.hosts` is set, because
orchestrators probe by address.
"""

from __future__ import annotations

import hmac
import logging
import re
from collections.abc import Collection
from pathlib import Path
from typing import Final

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from monitor.errors import ConfigError
from monitor.sidecar.clock import read_clock
from monitor.sidecar.log import RateLimitedLog
from monitor.sidecar.loopback import is_loopback
from monitor.sidecar.mqtt.broker import read_secret
from monitor.sidecar.web.page import SHELL
from monitor.sidecar.web.runbooks import PREFIX

LOG: Final = logging.getLogger("monitor.http")
PROBES: Final = frozenset({"/healthz", "/readyz", "/startupz"})
"""Paths answered without a token, because orchestrators have none. They reveal only health."""

HOST: Final = re.compile(r"([a-z0-9._-]+|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?", re.ASCII)
"""Name or address, optional port; no user information (`localhost:80@elsewhere`)."""

MIN_TOKEN: Final = 16
"""Minimum length in characters; shorter tokens can be guessed."""


def read_token(path: Path) -> bytes:
    """Return the bearer token in a file. Raises ConfigError if there is no token or if it is too short."""
    token = read_secret(path, "http.token_file")
    if len(token) < MIN_TOKEN or not token.isascii() or " " in token:
        raise ConfigError(
            f"http.token_file: {path} must contain at least {MIN_TOKEN} ASCII characters without spaces, such as "
            "`openssl rand -hex 32` prints"
        )
    return token.encode()


class Guard:
    """ASGI application in front of `app`. `loopback`: the server listens on loopback.

    `hosts`: further host names to accept.
    """

    def __init__(
        self, app: ASGIApp, *, loopback: bool, token_file: Path | None = None, hosts: Collection[str] = ()
    ) -> None:
        self._app = app
        self._token_file = token_file
        self._hosts = frozenset(host.lower() for host in hosts)
        self._by_name = bool(hosts) or (loopback and token_file is None)
        self._log = RateLimitedLog(LOG)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it with a reason."""
        refusal = self._refusal(scope) if scope["type"] == "http" else None
        await (self._app if refusal is None else refusal)(scope, receive, send)

    def _refusal(self, scope: Scope) -> Response | None:
        if scope["method"] not in {"GET", "HEAD"}:
            return _refuse(405, "read-only: use GET or HEAD", Allow="GET, HEAD")
        if scope["path"] in PROBES:
            return None
        headers = Headers(scope=scope)
        if self._by_name and not self._is_known(headers.getlist("host")):
            return _refuse(421, "unknown host name; if a proxy forwards it, add it to http.hosts")
        if scope["path"] in SHELL or scope["path"].startswith(PREFIX):
            return None  # runbooks, and static files, whose script prompts for the token and requests data
        if self._token_file is not None and not self._is_authorized(headers.getlist("authorization"), self._token_file):
            return _refuse(401, "a bearer token is required", **{"WWW-Authenticate": 'Bearer realm="cfmon"'})
        return None

    def _is_known(self, hosts: list[str]) -> bool:
        if len(hosts) != 1:
            return False
        host = HOST.fullmatch(hosts[0].lower())
        return host is not None and (host[1] in self._hosts or is_loopback(host[1]))

    def _is_authorized(self, values: list[str], file: Path) -> bool:
        """Compare the token in constant time, so that the time reveals nothing about the token."""
        try:
            token = read_token(file)
        except ConfigError as error:
            self._log.warn("token", read_clock(), "every request is refused: %s", error)
            return False
        scheme, _, credentials = values[0].partition(" ") if len(values) == 1 else ("", "", "")
        right = hmac.compare_digest(credentials.strip().encode("latin-1", "replace"), token)
        return right and scheme.lower() == "bearer"


def _refuse(status: int, why: str, **headers: str) -> Response:
    return PlainTextResponse(why, status_code=status, headers={"Cache-Control": "no-store", **headers})
