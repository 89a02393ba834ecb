"""The one place where time is read. Everywhere else it is an argument, so that a replay can give its own."""

from __future__ import annotations

import time

from monitor.types import Instant

__all__ = ["Clock", "read_clock"]


class Clock:
    """Both clocks at once: wall time for people, ticks for durations.

    Ticks are the time in which we could hear. They stand still while we cannot, and go on where an earlier process
    ended: meanwhile nobody was silent, and no step was late.
    """

    def __init__(self) -> None:
        self._ahead = 0.0
        self._stands_at: float | None = None

    def __call__(self) -> Instant:
        """Now."""
        ticks = time.monotonic() + self._ahead if self._stands_at is None else self._stands_at
        return Instant(time.time(), ticks)

    def stop(self) -> None:
        """Let ticks stand still."""
        self._stands_at = self().ticks

    def go(self) -> None:
        """Let them go on."""
        if self._stands_at is not None:
            self.resume(self._stands_at)

    def resume(self, ticks: float) -> None:
        """Go on from there."""
        self._ahead = ticks - time.monotonic()
        self._stands_at = None


read_clock = Clock()
"""A clock that never stands still, for whoever looks at this process only."""
