"""The only module that reads the time. Other modules get the time as an argument, so that a replay can supply it."""

from __future__ import annotations

import time

from monitor.types.stream_events import Instant


class Clock:
    """Wall time for people, and ticks for durations, in seconds.

    Ticks stop while no messages can arrive. During that time, no agent counts as silent, and no step counts as late.
    After a restart, ticks continue from the last ticks of the earlier process.
    """

    def __init__(self) -> None:
        self._ahead = 0.0
        self._stopped_at: float | None = None

    def __call__(self) -> Instant:
        """Return the current time."""
        ticks = time.monotonic() + self._ahead if self._stopped_at is None else self._stopped_at
        return Instant(time.time(), ticks)

    def stop(self) -> None:
        """Stop the ticks."""
        self._stopped_at = self().ticks

    def go(self) -> None:
        """Continue the ticks if they were stopped."""
        if self._stopped_at is not None:
            self.resume(self._stopped_at)

    def resume(self, ticks: float) -> None:
        """Continue from `ticks`."""
        self._ahead = ticks - time.monotonic()
        self._stopped_at = None


def read_work() -> float:
    """Return the processor time of this thread, in seconds. It does not grow while the thread waits for a processor."""
    return time.thread_time()


read_clock = Clock()
"""A clock that is never stopped."""
