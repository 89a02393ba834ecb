"""What `cfmon config check` tries beyond reading: that the port is free, and that the store can be written."""

from __future__ import annotations

import tempfile
from http.client import HTTPConnection, HTTPException
from typing import Final
from urllib.parse import urlsplit

from monitor.errors import ConfigError, Mistakes
from monitor.sidecar.config.settings import Config
from monitor.sidecar.web.http import HEADERS
from monitor.sidecar.web.server import open_socket

__all__ = ["check_places"]

PATIENCE: Final = 2.0
"""Seconds in which whoever has the port may say who it is."""
NAMED: Final = "Content-Security-Policy"


def check_places(config: Config) -> list[str]:
    """Try what is opened at start, and leave no trace; returns what a person should know, and is no mistake.

    Raises ConfigError: a line for each place that cannot be used.
    """
    notes: list[str] = []
    mistakes = Mistakes()
    with mistakes.collect():
        notes += _check_port(config)
    with mistakes.collect():
        _check_store(config)
    mistakes.raise_all()
    return notes


def _check_port(config: Config) -> list[str]:
    listen = config.http.listen
    try:
        open_socket(listen).close()
    except ConfigError as error:
        if _is_a_monitor(listen):
            where = config.where("http", "listen")
            return [f"{where}: a monitor answers at {listen} already: this one, or another that would be in the way"]
        reason = str(error).removeprefix("http.listen: ")
        raise ConfigError(f"{config.where('http', 'listen')}: {reason}") from error
    return []


def _is_a_monitor(listen: str) -> bool:
    """Whether what answers there is one of us."""
    parts = urlsplit(f"//{listen}")
    host = parts.hostname or "127.0.0.1"
    there = HTTPConnection("127.0.0.1" if host == "0.0.0.0" else host, parts.port, timeout=PATIENCE)  # noqa: S104 - asked, not bound
    try:
        there.request("GET", "/healthz")
        return there.getresponse().getheader(NAMED) == HEADERS[NAMED]
    except (OSError, HTTPException):
        return False
    finally:
        there.close()


def _check_store(config: Config) -> None:
    """The folder of the store, or the nearest one above it that there is, takes a file."""
    path = config.store.path
    if path is None:
        return
    folder = next(parent for parent in path.parents if parent.exists())
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
        if path.exists():
            with path.open("r+b"):
                pass
    except OSError as error:
        where = config.where("store", "path")
        raise ConfigError(f"{where}: {folder} cannot be written to: {error.strerror}") from error
