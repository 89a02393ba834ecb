"""How old a file is, in time that the monitor has seen pass: a clock that jumps ahead makes nothing old.

The time kept moves on as this process runs, and by a day at most for the time before its start, however far the wall
clock is ahead by then. It is the time stamp of a file, so that the next process goes on from there.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import Final

__all__ = ["SeenTime"]

DAY: Final = 86400.0
"""Seconds that may have passed unseen before a start."""


class SeenTime:
    """Wall-clock time as far as it was seen to pass, kept in `file`."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._last: tuple[float, float] | None = None

    def now(self, newest: float | None) -> float:
        """The time, by which files may be old. `newest`: time stamp of the newest, for a folder without such a file."""
        wall, ticks = time.time(), time.monotonic()
        if self._last is not None:
            before, latest = self._last[0], self._last[0] + ticks - self._last[1]
        else:
            before = self._kept(wall if newest is None else newest)
            latest = before + DAY
        seen = max(before, min(wall, latest))
        self._last = seen, ticks
        self._keep(seen)
        return seen

    def _kept(self, otherwise: float) -> float:
        try:
            return self._file.stat().st_mtime
        except OSError:
            return otherwise

    def _keep(self, seen: float) -> None:
        with contextlib.suppress(OSError):  # a full disk: then the next process goes on from before
            self._file.touch()
            os.utime(self._file, (seen, seen))
