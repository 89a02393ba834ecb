"""The one place where time is read. Everywhere else it is an argument, so that a replay can give its own."""

from __future__ import annotations

import time

from monitor.types import Instant

__all__ = ["read_clock"]


def read_clock() -> Instant:
    """Both clocks at once: wall time for people, monotonic time for durations."""
    return Instant(time.time(), time.monotonic())
