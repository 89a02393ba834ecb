"""The address to which a webhook posts. The URL's path may be a secret, so only scheme and host are printed."""

from __future__ import annotations

import http.client
import ssl
from dataclasses import dataclass, field
from traceback import walk_tb
from typing import Final
from urllib.parse import urlsplit

from monitor.sidecar.loopback import is_loopback

_PORTS: Final = {"http": http.client.HTTP_PORT, "https": http.client.HTTPS_PORT}


@dataclass(frozen=True)
class Target:
    """A parsed URL. Its repr hides the path."""

    encrypted: bool
    host: str
    port: int
    path: str = field(repr=False)

    @property
    def address(self) -> str:
        """Scheme and host, for logs and pages."""
        scheme = "https" if self.encrypted else "http"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{scheme}://{host}" if self.port == _PORTS[scheme] else f"{scheme}://{host}:{self.port}"

    def connection(self, timeout: float, context: ssl.SSLContext | None) -> http.client.HTTPConnection:
        """Return a connection that is not open yet. It uses no proxy and follows no redirect."""
        if self.encrypted:
            return _EncryptedConnection(self.host, self.port, timeout=timeout, context=context)
        return http.client.HTTPConnection(self.host, self.port, timeout=timeout)


class _EncryptedConnection(http.client.HTTPSConnection):
    def connect(self) -> None:
        try:
            super().connect()
        except OSError as error:
            close_unfinished(error)
            raise


def close_unfinished(error: OSError) -> None:
    """Close the socket that `ssl` leaves open if the peer resets the connection before the handshake.

    Only the traceback of the error still refers to that socket.
    """
    for frame, _ in walk_tb(error.__traceback__):
        if isinstance(made := frame.f_locals.get("self"), ssl.SSLSocket):
            made.close()


def parse_target(url: str, *, plain: bool) -> Target:
    """Parse the URL of a webhook. The message of a ValueError does not repeat the URL.

    `plain`: allow `http` beyond loopback.

    >>> parse_target("https://hooks.example/T0/secret?a=1", plain=False).address
    'https://hooks.example'
    """
    if not url.isascii() or not url.isprintable() or " " in url:
        raise ValueError("may contain printable ASCII characters only; write others as %XX, and names as xn--...")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
        (host or "").encode("idna")  # as the resolver will
    except ValueError:
        raise ValueError("is not a URL; write https://host/path") from None
    if parts.scheme not in _PORTS or not host or port == 0:
        raise ValueError("is not the URL of a webhook; write https://host/path")
    if "@" in parts.netloc or parts.fragment:
        raise ValueError("must not contain user:password@ or a fragment (#...)")
    encrypted = parts.scheme == "https"
    if not (encrypted or plain or is_loopback(host)):
        raise ValueError("is not encrypted; use https://, or set plain: true if everyone on the way may read it")
    query = f"?{parts.query}" if parts.query else ""
    return Target(encrypted, host, port or _PORTS[parts.scheme], f"{parts.path or '/'}{query}")
