"""The log: one line an entry, as text for people or as JSON for machines. Nothing secret is ever handed to it."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Hashable
from datetime import UTC, datetime
from typing import Final

from monitor.sidecar.settings import LoggingConfig
from monitor.types import Instant

__all__ = ["Seldom", "set_up_logging"]

PAUSE: Final = 60.0
"""Seconds between two warnings of one kind."""


class Seldom:
    """Warnings that would otherwise come with each message: one a minute of each kind, the others at level debug.

    What they count stands in the metrics; here is an example to look at. Kinds are few, and never forgotten.
    """

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._next: dict[Hashable, float] = {}

    def warn(self, kind: Hashable, now: Instant, message: str, *arguments: object) -> None:
        """Say it, as loudly as it may be."""
        due = now.ticks >= self._next.get(kind, now.ticks)
        if due:
            self._next[kind] = now.ticks + PAUSE
        self._log.log(logging.WARNING if due else logging.DEBUG, message, *arguments)


class _Text(logging.Formatter):
    """`2026-01-31T12:00:00Z WARNING mqtt: lost mqtt://localhost:1883: ...`."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: ARG002, N802 - logging's
        return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")


class _Json(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        entry = {"time": record.created, "level": record.levelname.lower(), "logger": record.name}
        entry["message"] = record.getMessage()
        if record.exc_info:
            entry["error"] = self.formatException(record.exc_info)
        return json.dumps(entry)


def set_up_logging(config: LoggingConfig) -> None:
    """Send everything this package and uvicorn say to stderr. The root logger is left to whoever embeds us."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if config.format == "json" else _Text())
    for name in ("monitor", "uvicorn.error"):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.propagate = False
        logger.setLevel(config.level.upper() if name == "monitor" else "WARNING")
