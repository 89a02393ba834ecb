"""Further checks of `cfmon config check`: the port, the store, and whether takeovers can be judged."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from http.client import HTTPConnection, HTTPException
from typing import Final
from urllib.parse import urlsplit

from monitor.errors import ConfigError, Mistakes
from monitor.runtime.query import Query
from monitor.runtime.takeovers import NO_POLICY
from monitor.sidecar.config.settings import Config
from monitor.sidecar.web.http import HEADERS
from monitor.sidecar.web.server import open_socket

PATIENCE: Final = 2.0
"""Seconds within which a server on the port must respond."""
SIGNATURE_HEADER: Final = "Content-Security-Policy"


def check_places(config: Config) -> list[str]:
    """Check the port and the store, without side effects, and return notes. Raises ConfigError if one is unusable."""
    notes: list[str] = []
    mistakes = Mistakes()
    with mistakes.collect():
        notes += _check_port(config)
    with mistakes.collect():
        _check_store(config)
    mistakes.raise_all()
    return notes


def takeover_notes(queries: Sequence[Query], window: int) -> list[str]:
    """Return notes on which formulas judge takeovers, and why other formulas do not (such as a short path).

    There is no note on a formula that names no policy, because it has no takeovers to judge.
    """
    notes = []
    for query in queries:
        if (by := query.takeover_goal) is None:
            if query.no_takeovers != NO_POLICY:
                notes.append(f"{query.spec.name} judges no takeovers: {query.no_takeovers}")
            continue
        note = f"{query.spec.name} judges takeovers by {by.policy!r} after {by.pairs} steps"
        if by.pairs > window:
            note += f"; all are undecided, because path.window is {window}: make it {by.pairs} or more"
        notes.append(note)
    return notes


def _check_port(config: Config) -> list[str]:
    listen = config.http.listen
    try:
        open_socket(listen).close()
    except ConfigError as error:
        if _is_a_monitor(listen):
            where = config.where("http", "listen")
            return [f"{where}: a monitor already listens on {listen}; if it is another one, change the port"]
        reason = str(error).removeprefix("http.listen: ")
        raise ConfigError(f"{config.where('http', 'listen')}: {reason}") from error
    return []


def _is_a_monitor(listen: str) -> bool:
    """Return whether the server at this address is a monitor."""
    parts = urlsplit(f"//{listen}")
    host = parts.hostname or "127.0.0.1"
    server = HTTPConnection("127.0.0.1" if host == "0.0.0.0" else host, parts.port, timeout=PATIENCE)  # noqa: S104 - compared, not bound
    try:
        server.request("GET", "/healthz")
        return server.getresponse().getheader(SIGNATURE_HEADER) == HEADERS[SIGNATURE_HEADER]
    except (OSError, HTTPException):
        return False
    finally:
        server.close()


def _check_store(config: Config) -> None:
    """Raise ConfigError unless the store's folder, or its nearest existing parent, is writable."""
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
