"""Timers: for each agent at most one time at which the agent is due even if it sends no message."""

from __future__ import annotations

import math
from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Final

NEVER: Final = math.inf
SLACK: Final = 64
"""The heap is rebuilt when outdated entries outnumber the valid ones by more than this."""


class TimerQueue:
    """Priority queue with one time (ticks) per name, earliest first; equal times are ordered by name.

    `next`: time of the next entry, or earlier if an outdated entry is first; infinite if there is no entry.

    >>> timers = TimerQueue()
    >>> timers.put("ada", 2.0), timers.put("bob", 1.0), timers.put("ada", 3.0)
    (None, None, None)
    >>> list(timers.due(2.5)), list(timers.due(3.0))
    (['bob'], ['ada'])
    """

    def __init__(self) -> None:
        self._times: dict[str, float] = {}
        self._heap: list[tuple[float, str]] = []
        self.next = NEVER

    def __len__(self) -> int:
        """Return the number of entries, including outdated ones."""
        return len(self._heap)

    def put(self, name: str, ticks: float | None) -> None:
        """Replace the time of a name; None removes it."""
        if ticks is None:
            self._times.pop(name, None)
        elif self._times.get(name) != ticks:
            self._times[name] = ticks
            heappush(self._heap, (ticks, name))
            if len(self._heap) > 2 * len(self._times) + SLACK:
                self._heap = [(at, each) for each, at in self._times.items()]
                heapify(self._heap)
            self.next = self._heap[0][0]

    def due(self, ticks: float) -> Iterator[str]:
        """Remove and yield the names whose time is `ticks` or earlier."""
        while self._heap and self._heap[0][0] <= ticks:
            at, name = heappop(self._heap)
            self.next = self._heap[0][0] if self._heap else NEVER
            if self._times.get(name) == at:
                del self._times[name]
                yield name
