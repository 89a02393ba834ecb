"""Overload detection: evaluations are skipped only while live steps take more work than one processor can do.

Two rates are compared, averaged over some seconds: of live steps arriving, a second, and of steps evaluated while there
is a queue, a second of *work*, the processor's time for this thread. How long steps wait says nothing: a process that
gets a twentieth of a processor on a busy machine is late, but steps are not too many, and it catches up. Neither is a
backlog overload: steps that accumulated while the broker, the agents or this process were away are all evaluated, and
their alarms raised, if they have a time. Without one, a backlog is known by its number only (`Worker`), so one that
comes slowly or for more than a minute may count as live.
"""

from __future__ import annotations

import math
from typing import Final

MEMORY: Final = 5.0
"""Time constant of the exponential average, in seconds."""

OUTLIER: Final = 10.0
"""Ratio to the usual work for a step beyond which a batch is ignored: something else was done as well."""

WEIGHT: Final = 0.1
"""Weight of the newest batch in the usual work for a step."""


class Rate:
    """Events per second, exponentially averaged over `MEMORY` seconds. NaN until something was counted.

    `idle`: seconds without an event that are taken to be before the first, so that one early event is no high rate.

    >>> rate = Rate()
    >>> for _ in range(600):
    ...     rate.count(20, seconds=0.1)
    >>> round(rate.value)
    200
    """

    def __init__(self, idle: float = 0.0) -> None:
        self._events, self._seconds = 0.0, idle

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
        self._coming, self._going = Rate(idle=MEMORY), Rate()
        self._last: tuple[float, float] | None = None
        self._busy = False
        self._usual = 0.0

    def record_batch(self, ticks: float, work: float, *, live: int, answered: int | None, left: bool) -> None:
        """Record a finished batch. `ticks`, `work`: time and work until now, in seconds.

        `live`: steps that arrived as they happened. `answered`: steps evaluated; None if that says nothing about how
        many could be. `left`: steps still wait.
        """
        before_ticks, before_work = self._last or (ticks, work)
        self._last = ticks, work
        self._coming.count(live, ticks - before_ticks)
        if answered and self._busy:  # there was a queue
            self._answered(answered, work - before_work)
        self._busy = left

    def _answered(self, steps: int, work: float) -> None:
        """Count them, unless they took so much work that it must have been for something else."""
        each = work / steps
        usual = self._usual or each
        if each <= OUTLIER * usual:
            self._going.count(steps, work)
        self._usual = usual + WEIGHT * (min(each, OUTLIER * usual) - usual)

    def overloaded(self, waited: float) -> bool:
        """Return whether to skip evaluations. `waited`: seconds that the oldest step has waited."""
        return waited > self._patience and self._coming.value > self._going.value
