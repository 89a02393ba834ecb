"""Queue of times at which agents are due although no message arrives from them."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Final

__all__ = ["TimerQueue"]

SLACK: Final = 64
"""Void entries allowed, beside one for each valid one, before the heap is rebuilt."""


class TimerQueue:
    """Queue of one time (ticks) for each name, the earliest first; equal times in the order of the names.

    >>> timers = TimerQueue()
    >>> timers.put("ada", 2.0), timers.put("bob", 1.0), timers.put("ada", 3.0)
    (None, None, None)
    >>> list(timers.due(2.5)), list(timers.due(3.0))
    (['bob'], ['ada'])
    """

    def __init__(self) -> None:
        self._times: dict[str, float] = {}
        self._heap: list[tuple[float, str]] = []

    def __len__(self) -> int:
        """Return the number of entries, void ones included."""
        return len(self._heap)

    def put(self, name: str, ticks: float | None) -> None:
        """Set the only time of a name; None removes it."""
        if ticks is None:
            self._times.pop(name, None)
        elif self._times.get(name) != ticks:
            self._times[name] = ticks
            heappush(self._heap, (ticks, name))
            if len(self._heap) > 2 * len(self._times) + SLACK:
                self._heap = [(at, each) for each, at in self._times.items()]
                heapify(self._heap)

    def due(self, ticks: float) -> Iterator[str]:
        """Yield and remove the names that are due."""
        while self._heap and self._heap[0][0] <= ticks:
            at, name = heappop(self._heap)
            if self._times.get(name) == at:
                del self._times[name]
                yield name
