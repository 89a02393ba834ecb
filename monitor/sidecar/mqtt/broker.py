"""Address of the broker and the monitor's credentials. Printing a `Broker` shows no secrets.

Secrets in files are read at each connection, so they can be rotated without a restart.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

from monitor.errors import ConfigError

MAX_SECRET_BYTES = 4096
"""Maximum size of a secret in bytes. A larger file is no password or token."""

_DEFAULT_PORTS = {"mqtt": 1883, "mqtts": 8883}


@dataclass(frozen=True)
class Tls:
    """PEM files: `ca` of the broker's certificate (None: the system's CAs), our own `certificate` and `key`."""

    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None


@dataclass(frozen=True)
class Broker:
    """Address of a broker and credentials, as text or as files. The repr hides credentials.

    `tls`: None for plain TCP.
    """

    host: str
    port: int
    username: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    username_file: Path | None = None
    password_file: Path | None = None
    tls: Tls | None = None

    @property
    def address(self) -> str:
        """URL without credentials, for logs and pages."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'mqtt' if self.tls is None else 'mqtts'}://{host}:{self.port}"

    def credentials(self) -> tuple[str, str | None] | None:
        """Return the current user name and password, or None without a user name.

        Raises ConfigError if a file cannot be read.
        """
        username, password = self.username, self.password
        if self.username_file is not None:
            username = read_secret(self.username_file, "mqtt.username_file")
        if self.password_file is not None:
            password = read_secret(self.password_file, "mqtt.password_file")
        return None if username is None else (username, password)


def parse_broker(url: str) -> Broker:
    """Parse an MQTT URL. The message of a ValueError does not repeat the URL, which may contain a password.

    >>> parse_broker("mqtt://localhost").address
    'mqtt://localhost:1883'
    >>> parse_broker("mqtts://broker.example").address
    'mqtts://broker.example:8883'
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
        (host or "").encode("idna")  # the resolver does the same
    except ValueError:
        raise ValueError("is not a URL; write mqtt://host:port") from None
    if parts.scheme in {"ws", "wss"}:
        raise ValueError("is for MQTT over websockets, which is not supported; use mqtt:// or mqtts://")
    if parts.scheme not in _DEFAULT_PORTS or not host or parts.path not in {"", "/"} or parts.query or parts.fragment:
        raise ValueError(
            "must be mqtt://host:port or, with TLS, mqtts://host:port; user:password@ may precede the host"
        )
    if port == 0:
        raise ValueError("needs a port between 1 and 65535")
    return Broker(
        host,
        port or _DEFAULT_PORTS[parts.scheme],
        username=unquote(parts.username) if parts.username is not None else None,
        password=unquote(parts.password) if parts.password is not None else None,
        tls=Tls() if parts.scheme == "mqtts" else None,
    )


def read_secret(path: Path, key: str) -> str:
    """Return the secret in a file, without a final line break; `key`: the setting that names the file.

    Raises ConfigError if the file cannot be read, is empty, too long or has more than one line. The error does not
    repeat the content.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MAX_SECRET_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{key}: {path} cannot be read: {error.strerror or error}") from error
    try:
        secret = content.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        secret = ""
    if not secret or len(content) > MAX_SECRET_BYTES or not secret.isprintable():
        raise ConfigError(f"{key}: {path} must contain one line of text, of at most {MAX_SECRET_BYTES} bytes")
    return secret
