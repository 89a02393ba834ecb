"""The one place where time is read. Everywhere else it is an argument, so that a replay can give its own."""

from __future__ import annotations

import time

from monitor.types import Instant

__all__ = ["Clock", "read_clock"]


class Clock:
    """Both clocks at once: wall time for people, ticks for durations. Ticks go on where an earlier process ended."""

    def __init__(self) -> None:
        self._ahead = 0.0

    def __call__(self) -> Instant:
        """Now."""
        return Instant(time.time(), time.monotonic() + self._ahead)

    def resume(self, ticks: float) -> None:
        """Go on from there: while no sidecar ran, nobody was silent and nothing was late."""
        self._ahead = ticks - time.monotonic()


read_clock = Clock()
"""A clock that was never set, for whoever outlives nothing."""
