"""Where the broker is: the parts of an MQTT URL, kept apart so that nothing prints the password."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

__all__ = ["Broker", "parse_broker"]


@dataclass(frozen=True)
class Broker:
    """A broker's address and credentials; the password is not in its repr."""

    host: str
    port: int
    username: str | None = None
    password: str | None = field(default=None, repr=False)

    @property
    def address(self) -> str:
        """The URL without credentials, for logs and pages."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"mqtt://{host}:{self.port}"


def parse_broker(url: str) -> Broker:
    """Take an MQTT URL apart; a ValueError says what is wrong without repeating the URL, which may hold a password.

    >>> parse_broker("mqtt://localhost").address
    'mqtt://localhost:1883'
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise ValueError("is not a URL; write mqtt://host:port") from None
    if parts.scheme in {"mqtts", "ssl", "wss", "ws"}:
        raise ValueError(
            f"{parts.scheme}:// is not supported yet; use mqtt:// on a trusted network or through a tunnel"
        )
    if parts.scheme != "mqtt" or not host or parts.path not in {"", "/"} or parts.query or parts.fragment:
        raise ValueError("must be mqtt://host:port or mqtt://user:password@host:port")
    username = unquote(parts.username) if parts.username is not None else None
    password = unquote(parts.password) if parts.password is not None else None
    if port == 0:
        raise ValueError("needs a port between 1 and 65535")
    return Broker(host, port or 1883, username, password)
