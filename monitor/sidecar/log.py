"""Logging, one line per entry, as text or JSON. Secrets are never logged."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Hashable, Mapping
from datetime import UTC, datetime
from typing import Final

from monitor.sidecar.clock import read_clock
from monitor.sidecar.config.settings import LoggingConfig
from monitor.types.stream_events import Instant

PAUSE: Final = 60.0
"""Seconds between two warnings of the same kind."""

MAX_KINDS: Final = 10_000
"""When this number of kinds is stored, expired kinds are removed."""


class RateLimitedLog:
    """Log for entries that may occur with each message.

    Each kind is logged once a minute; repetitions have level debug.
    """

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._next: dict[Hashable, float] = {}

    def warn(self, kind: Hashable, now: Instant, message: str, *arguments: object) -> None:
        """Log a warning."""
        self.write(logging.WARNING, kind, now, message, *arguments)

    def write(
        self,
        level: int,
        kind: Hashable,
        now: Instant,
        message: str,
        *arguments: object,
        fields: Mapping[str, object] | None = None,
        traceback: bool = False,
    ) -> None:
        """Log an entry at `level`, or at debug if this kind was logged within the last minute. `fields`: for JSON."""
        due = now.ticks >= self._next.get(kind, now.ticks)
        if due:
            if len(self._next) >= MAX_KINDS:
                self._next = {known: at for known, at in self._next.items() if at > now.ticks}
            self._next[kind] = now.ticks + PAUSE
        self._log.log(
            level if due else logging.DEBUG, message, *arguments, exc_info=traceback, extra={"fields": fields or {}}
        )


class RateLimit(logging.Filter):
    """Filter for loggers of libraries: passes one record a minute for each message text, whatever its arguments are."""

    def __init__(self) -> None:
        super().__init__()
        self._next: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to pass this record. Message texts are literals in source code, so there are few of them."""
        now = read_clock().ticks
        due = now >= self._next.get(str(record.msg), now)
        if due:
            self._next[str(record.msg)] = now + PAUSE
        return due


class _Text(logging.Formatter):
    """`2026-01-31T12:00:00Z WARNING mqtt: lost mqtt://localhost:1883: ...`."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: ARG002, N802 - logging's
        return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")


class _Json(logging.Formatter):
    """One JSON object per line: time, level, logger, message, and the fields of the entry, if any."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, object] = {"time": record.created, "level": record.levelname.lower(), "logger": record.name}
        entry["message"] = record.getMessage()
        if record.exc_info:
            entry["error"] = self.formatException(record.exc_info)
        return json.dumps({**getattr(record, "fields", {}), **entry})


def set_up_logging(config: LoggingConfig) -> None:
    """Log this package and uvicorn to stderr.

    The root logger is not changed, because an embedding program may use it.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if config.format == "json" else _Text())
    for name in ("monitor", "uvicorn.error"):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.propagate = False
        logger.setLevel(config.level.upper() if name == "monitor" else "WARNING")
