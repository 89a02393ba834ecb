"""Time that the monitor has seen pass. It measures the age of files, so a jump of the wall clock ages no file.

This time advances while the process runs. For the time before the start, it advances by at most a day, for any reading
of the wall clock. It is stored as the time stamp of a file. The next process continues from this time stamp.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

from monitor.sidecar.clock import read_clock

DAY: Final = 86400.0
"""Maximum number of seconds counted for the time before a start."""


class SeenTime:
    """Wall-clock time that was seen to pass, stored in `file`."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._last: tuple[float, float] | None = None

    def now(self, newest: float | None) -> float:
        """Return the time, in seconds since the epoch. `newest`: time of the newest file, used if no time is stored."""
        read = read_clock()
        wall, ticks = read.wall, read.ticks
        if self._last is not None:
            before, latest = self._last[0], self._last[0] + ticks - self._last[1]
        else:
            before = self._stored(wall if newest is None else newest)
            latest = before + DAY
        seen = max(before, min(wall, latest))
        self._last = seen, ticks
        with contextlib.suppress(OSError):  # on a full disk the next process continues from an earlier time
            self._file.touch()
            os.utime(self._file, (seen, seen))
        return seen

    def _stored(self, otherwise: float) -> float:
        try:
            return self._file.stat().st_mtime
        except OSError:
            return otherwise
