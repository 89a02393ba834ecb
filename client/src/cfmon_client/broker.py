"""Address of the broker and the client's credentials. Printing a `Broker` shows no secrets.

Files are read again at each connection, so certificates and passwords can be rotated without a restart.
"""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import SplitResult, unquote, urlsplit

from cfmon_client.errors import ClientError

__all__ = ["Broker", "as_broker"]

_DEFAULT_PORTS: Final = {"mqtt": 1883, "mqtts": 8883}
_MAX_SECRET_BYTES: Final = 4096


@dataclass(frozen=True)
class Broker:
    """An MQTT broker: `mqtt://host`, or with TLS `mqtts://host`; `user:password@` may precede the host.

    Args:
        url: The broker's URL. The default ports are 1883 and, with TLS, 8883.
        username: User name; takes precedence over the user name in the URL.
        password: Password; takes precedence over the password in the URL.
        username_file: File with one line of text, instead of `username`.
        password_file: File with one line of text, instead of `password`.
        ca: PEM file of the broker's CA; by default the system's CAs are trusted.
        certificate: PEM file of the client's own certificate.
        key: PEM file of the certificate's key, if the key is not in the file of the certificate.

    Raises:
        ClientError: The URL is not a broker's URL, or a file cannot be read. The message does not repeat the URL,
            because it may contain a password.

    >>> Broker("mqtt://localhost").address
    'mqtt://localhost:1883'
    >>> Broker("mqtts://arm-7:secret@broker.example").address
    'mqtts://broker.example:8883'
    """

    url: str = field(repr=False)
    username: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    username_file: str | os.PathLike[str] | None = None
    password_file: str | os.PathLike[str] | None = None
    ca: str | os.PathLike[str] | None = None
    certificate: str | os.PathLike[str] | None = None
    key: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        _parse(self.url)
        self.credentials()
        given = [name for name in ("ca", "certificate", "key") if getattr(self, name) is not None]
        if given and not self.tls:
            raise ClientError(f"{given[0]} is for TLS, but the URL begins with mqtt://; write mqtts://")
        if self.key is not None and self.certificate is None:
            raise ClientError("key is given without certificate; give both, or only certificate if it holds the key")
        self.tls_context()

    @property
    def host(self) -> str:
        """Name or address of the host."""
        return _parse(self.url).hostname or ""

    @property
    def port(self) -> int:
        """TCP port."""
        parts = _parse(self.url)
        return parts.port or _DEFAULT_PORTS[parts.scheme]

    @property
    def tls(self) -> bool:
        """True if the connection is encrypted."""
        return _parse(self.url).scheme == "mqtts"

    @property
    def address(self) -> str:
        """URL without credentials, for logs."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'mqtts' if self.tls else 'mqtt'}://{host}:{self.port}"

    def credentials(self) -> tuple[str | None, str | None]:
        """Return the current user name and password. Raises ClientError if a file cannot be read."""
        parts = _parse(self.url)
        username = _secret(self.username_file, "username_file") or self.username or _decoded(parts.username)
        password = _secret(self.password_file, "password_file") or self.password or _decoded(parts.password)
        if password is not None and username is None:
            raise ClientError("a password is given without a username; give both")
        return username, password

    def tls_context(self) -> ssl.SSLContext | None:
        """Return a context for TLS 1.2+ that verifies the certificate and the host name; None without TLS.

        Raises ClientError if a file is unusable.
        """
        if not self.tls:
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if self.ca is None:
            context.load_default_certs()
        else:
            _readable(self.ca, "ca")
            try:
                context.load_verify_locations(self.ca)
            except ssl.SSLError:
                raise ClientError(f"ca: {os.fspath(self.ca)} contains no PEM certificates") from None
        if self.certificate is not None:
            self._load_certificate(context, self.certificate)
        return context

    def _load_certificate(self, context: ssl.SSLContext, certificate: str | os.PathLike[str]) -> None:
        _readable(certificate, "certificate")
        if self.key is not None:
            _readable(self.key, "key")
        try:
            context.load_cert_chain(certificate, self.key, password="")  # an empty password: no prompt on the terminal
        except ssl.SSLError:
            where = os.fspath(self.key if self.key is not None else certificate)
            raise ClientError(
                f"certificate: {os.fspath(certificate)} and the key in {where} are not a pair in PEM without a password"
            ) from None


def as_broker(broker: Broker | str) -> Broker:
    """Return a broker that is given as a `Broker` or as a URL. Raises ClientError for anything else."""
    if isinstance(broker, Broker):
        return broker
    if isinstance(broker, str):
        return Broker(broker)
    raise ClientError(f"the broker is a {type(broker).__name__}; give a URL such as mqtt://localhost, or a Broker")


def _parse(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
        (host or "").encode("idna")  # as the resolver will
    except (ValueError, AttributeError):
        raise ClientError("the broker's URL is not a URL; write mqtt://host:port") from None
    if parts.scheme not in _DEFAULT_PORTS or not host or parts.path not in {"", "/"} or parts.query or parts.fragment:
        raise ClientError(
            "the broker's URL must be mqtt://host:port or, with TLS, mqtts://host:port; user:password@ may precede "
            "the host"
        )
    if port == 0:
        raise ClientError("the broker's URL needs a port between 1 and 65535")
    return parts


def _decoded(text: str | None) -> str | None:
    return None if text is None else unquote(text)


def _readable(path: str | os.PathLike[str], name: str) -> None:
    """Raise ClientError if a file is unreadable. The message names the file; OpenSSL's message would not."""
    try:
        Path(path).open("rb").close()
    except OSError as error:
        raise ClientError(f"{name}: {os.fspath(path)} cannot be read: {error.strerror or error}") from error


def _secret(path: str | os.PathLike[str] | None, name: str) -> str | None:
    """Return the secret in a file, without a final line break; None without a file."""
    if path is None:
        return None
    try:
        with Path(path).open("rb") as file:
            content = file.read(_MAX_SECRET_BYTES + 1)
    except OSError as error:
        raise ClientError(f"{name}: {os.fspath(path)} cannot be read: {error.strerror or error}") from error
    secret = content.decode(errors="replace").rstrip("\r\n")
    if not secret or len(content) > _MAX_SECRET_BYTES or not secret.isprintable():
        limit = f"of at most {_MAX_SECRET_BYTES} bytes"
        raise ClientError(f"{name}: {os.fspath(path)} must contain one line of text, {limit}")
    return secret
