"""Who may ask: the token, the name under which we are asked, and nothing that writes. Before any page sees a request.

On loopback without a token, only requests for a loopback name are answered. Else a web page that a person on this
machine has open could have its own name resolved to 127.0.0.1 and read everything through the person's browser. A
token makes that harmless: a page does not know it. Beyond loopback the probes of an orchestrator ask by address, so
there names are checked only where they are configured.
"""

from __future__ import annotations

import hmac
import ipaddress
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
from monitor.sidecar.mqtt.broker import read_secret
from monitor.sidecar.web.page import SHELL
from monitor.sidecar.web.runbooks import PREFIX

__all__ = ["Guard", "is_loopback", "read_token"]

LOG: Final = logging.getLogger("monitor.http")
PROBES: Final = frozenset({"/healthz", "/readyz", "/startupz"})
"""What orchestrators ask, which have no token and tell no one: one word of health."""

HOST: Final = re.compile(r"([a-z0-9._-]+|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?", re.ASCII)
"""A name or an address, and perhaps a port; never whom to be there (`localhost:80@elsewhere`)."""

SHORTEST_TOKEN: Final = 16
"""Characters; shorter ones can be guessed."""


def read_token(path: Path) -> bytes:
    """The bearer token in a file; ConfigError if there is none or it is too short."""
    token = read_secret(path, "http.token_file")
    if len(token) < SHORTEST_TOKEN or not token.isascii() or " " in token:
        raise ConfigError(
            f"http.token_file: {path} must hold at least {SHORTEST_TOKEN} ASCII characters without spaces, such as "
            "`openssl rand -hex 32` gives"
        )
    return token.encode()


def is_loopback(host: str) -> bool:
    """Whether a host, as it stands in a URL, is this machine and nothing else."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


class Guard:
    """An application in front of `app`. `loopback`: it listens there; `hosts`: further names it may be asked under."""

    def __init__(
        self, app: ASGIApp, *, loopback: bool, token_file: Path | None = None, hosts: Collection[str] = ()
    ) -> None:
        self._app = app
        self._token_file = token_file
        self._hosts = frozenset(host.lower() for host in hosts)
        self._by_name = bool(hosts) or (loopback and token_file is None)
        self._log = RateLimitedLog(LOG)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer why not."""
        refusal = self._refusal(scope) if scope["type"] == "http" else None
        await (self._app if refusal is None else refusal)(scope, receive, send)

    def _refusal(self, scope: Scope) -> Response | None:
        if scope["method"] not in {"GET", "HEAD"}:
            return _refuse(405, "there is nothing to write here", Allow="GET, HEAD")
        if scope["path"] in PROBES:
            return None
        headers = Headers(scope=scope)
        if self._by_name and not self._is_known(headers.getlist("host")):
            return _refuse(421, "not under this name; list it in http.hosts if a proxy passes it on")
        if scope["path"] in SHELL or scope["path"].startswith(PREFIX):
            return None  # the page as it is shipped, whose script asks for the token and then for the data; runbooks
        if self._token_file is not None and not self._is_authorized(headers.getlist("authorization"), self._token_file):
            return _refuse(401, "a bearer token is needed", **{"WWW-Authenticate": 'Bearer realm="cfmon"'})
        return None

    def _is_known(self, asked: list[str]) -> bool:
        if len(asked) != 1:
            return False
        host = HOST.fullmatch(asked[0].lower())
        return host is not None and (host[1] in self._hosts or is_loopback(host[1]))

    def _is_authorized(self, shown: list[str], file: Path) -> bool:
        """In constant time: how long it takes tells nothing of the token."""
        try:
            token = read_token(file)
        except ConfigError as error:
            self._log.warn("token", read_clock(), "nobody is let in: %s", error)
            return False
        scheme, _, credentials = shown[0].partition(" ") if len(shown) == 1 else ("", "", "")
        right = hmac.compare_digest(credentials.strip().encode("latin-1", "replace"), token)
        return right and scheme.lower() == "bearer"


def _refuse(status: int, why: str, **headers: str) -> Response:
    return PlainTextResponse(why, status_code=status, headers={"Cache-Control": "no-store", **headers})
