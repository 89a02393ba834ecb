"""Overload detection: evaluations are skipped only while steps arrive faster than they can be evaluated.

A backlog alone is no overload: steps that accumulated while the broker, the agents or this process were away are all
evaluated, and their alarms raised. So two rates are compared, averaged over some seconds: of live steps arriving, and
of steps evaluated while there is a queue.
"""

from __future__ import annotations

import math
from typing import Final

__all__ = ["OverloadDetector", "Rate"]

MEMORY: Final = 5.0
"""Time constant of the exponential average, in seconds."""

STALL: Final = 10.0
"""Ratio to the usual duration of a batch beyond which it is ignored."""

WEIGHT: Final = 0.1
"""Weight of the newest batch in the usual duration."""


class Rate:
    """Events per second, exponentially averaged over `MEMORY` seconds. NaN until something was counted.

    >>> rate = Rate()
    >>> for _ in range(600):
    ...     rate.count(20, seconds=0.1)
    >>> round(rate.value)
    200
    """

    def __init__(self) -> None:
        self._events = self._seconds = 0.0

    def count(self, events: int, seconds: float) -> None:
        """Add `events` in the last `seconds`."""
        decay = math.exp(-seconds / MEMORY)
        self._events = self._events * decay + events
        self._seconds = self._seconds * decay + seconds

    @property
    def value(self) -> float:
        """Events per second."""
        return self._events / self._seconds if self._seconds > 0.0 else math.nan


class OverloadDetector:
    """Overload detector. `patience`: seconds a step may wait for its evaluation before it counts as overload."""

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._coming, self._going = Rate(), Rate()
        self._last: float | None = None
        self._busy = False
        self._usual = 0.0

    def record_batch(self, ticks: float, *, live: int, answered: int | None, left: bool) -> None:
        """Record a finished batch.

        `live`: steps that arrived as they happened. `answered`: steps evaluated; None if evaluations were skipped.
        `left`: steps still wait.
        """
        seconds = 0.0 if self._last is None else ticks - self._last
        self._last = ticks
        self._coming.count(live, seconds)
        if answered is not None and self._busy:  # there was a queue
            self._answered(answered, seconds)
        self._busy = left

    def _answered(self, steps: int, seconds: float) -> None:
        """Count them, unless the batch took so long that the process must have been suspended."""
        usual = self._usual or seconds
        if seconds <= STALL * usual:
            self._going.count(steps, seconds)
        self._usual = usual + WEIGHT * (min(seconds, STALL * usual) - usual)

    def overloaded(self, waited: float) -> bool:
        """Return whether to evaluate the newest steps only. `waited`: seconds that the oldest step has waited."""
        return waited > self._patience and self._coming.value > self._going.value
