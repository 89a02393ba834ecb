"""Overload detection: evaluations are skipped only while live steps need more work than one processor can do.

Two rates are compared, both averaged over some seconds: live steps that arrive per second, and steps evaluated per
second of *work* while there is a queue. Work is the processor time of this thread. The waiting time of steps does not
show overload. For example, a process that gets a twentieth of a processor on a busy machine is late, but it catches up,
because there are not too many steps. A backlog is not overload either. Steps may accumulate while the broker, the
agents or this process are away. If these steps have a time, all of them are evaluated and raise their alarms. Steps
without a time are recognized as a backlog only by their number (`BacklogDetector`). Such a backlog may count as live if
it arrives slowly or for more than a minute.
"""

from __future__ import annotations

import math
from typing import Final

MEMORY: Final = 5.0
"""Time constant of the exponential average, in seconds."""

OUTLIER: Final = 10.0
"""A batch is ignored if its work per step is this many times the usual work, because it must include other work.
"""

WEIGHT: Final = 0.1
"""Weight of the newest batch in the running average of the work per step."""


class EventRate:
    """Events per second, exponentially averaged over `MEMORY` seconds. NaN until an event was counted.

    `idle`: number of seconds without an event that is assumed before the first event. Without it, one early event would
    be a high rate.

    >>> rate = EventRate()
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
    """Overload detector. `patience`: seconds that a step may wait for its evaluation without overload."""

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._coming, self._going = EventRate(idle=MEMORY), EventRate()
        self._last: tuple[float, float] | None = None
        self._busy = False
        self._usual = 0.0

    def record_batch(self, ticks: float, work: float, *, live: int, answered: int | None, left: bool) -> None:
        """Record a finished batch. `ticks`, `work`: current time, and work of the thread until now, in seconds.

        `live`: number of steps that arrived without delay. `answered`: number of steps evaluated; None if this number
        says nothing about capacity. `left`: whether steps still wait.
        """
        before_ticks, before_work = self._last or (ticks, work)
        self._last = ticks, work
        self._coming.count(live, ticks - before_ticks)
        if answered and self._busy:  # there was a queue
            self._answered(answered, work - before_work)
        self._busy = left

    def _answered(self, steps: int, work: float) -> None:
        """Count evaluated steps, unless the batch took so much work that it must have included other work."""
        each = work / steps
        usual = self._usual or each
        if each <= OUTLIER * usual:
            self._going.count(steps, work)
        self._usual = usual + WEIGHT * (min(each, OUTLIER * usual) - usual)

    def overloaded(self, waited: float) -> bool:
        """Return whether to skip evaluations. `waited`: seconds that the oldest step has waited."""
        return waited > self._patience and self._coming.value > self._going.value
