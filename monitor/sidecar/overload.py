"""Whether steps come faster than they can be answered: then, and only then, answers are passed over.

A backlog is no reason: what piled up while the broker, the agents or this process were away is worked off, however
long that takes, and every alarm in it is raised. So two rates are compared, both averaged over some seconds: of steps
that come while they happen, and of answers while there is always something to answer.
"""

from __future__ import annotations

import math
from typing import Final

__all__ = ["OverloadDetector", "Rate"]

MEMORY: Final = 5.0
"""Seconds after which what was measured counts e times less."""

STALL: Final = 10.0
"""How many times as long as usual a batch must take to be left out."""

WEIGHT: Final = 0.1
"""Weight of the newest batch in what is usual."""


class Rate:
    """Events a second, averaged with weights that fall off over `MEMORY` seconds. NaN until something was counted.

    >>> rate = Rate()
    >>> for _ in range(600):
    ...     rate.count(20, seconds=0.1)
    >>> round(rate.value)
    200
    """

    def __init__(self) -> None:
        self._events = self._seconds = 0.0

    def count(self, events: int, seconds: float) -> None:
        """So many more, in so many seconds more."""
        left = math.exp(-seconds / MEMORY)
        self._events = self._events * left + events
        self._seconds = self._seconds * left + seconds

    @property
    def value(self) -> float:
        """Events a second."""
        return self._events / self._seconds if self._seconds > 0.0 else math.nan


class OverloadDetector:
    """`patience`: seconds that a step may wait for its answer before answers are passed over, if more come than go."""

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._coming, self._going = Rate(), Rate()
        self._last: float | None = None
        self._busy = False
        self._usual = 0.0

    def record_batch(self, ticks: float, *, live: int, answered: int | None, left: bool) -> None:
        """One batch is done.

        `live`: steps that came as they happened. `answered`: steps; None if as many as possible were not meant to be.
        `left`: some still wait.
        """
        seconds = 0.0 if self._last is None else ticks - self._last
        self._last = ticks
        self._coming.count(live, seconds)
        if answered is not None and self._busy:  # it was not for want of steps that no more were answered
            self._answered(answered, seconds)
        self._busy = left

    def _answered(self, steps: int, seconds: float) -> None:
        """Count them, unless the process was stopped meanwhile: that says nothing of how fast it is."""
        usual = self._usual or seconds
        if seconds <= STALL * usual:
            self._going.count(steps, seconds)
        self._usual = usual + WEIGHT * (min(seconds, STALL * usual) - usual)

    def overloaded(self, waited: float) -> bool:
        """Whether to answer the newest steps only. `waited`: seconds that the oldest step has waited for its answer."""
        return waited > self._patience and self._coming.value > self._going.value
