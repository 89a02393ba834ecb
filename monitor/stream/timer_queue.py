"""When each agent is to be looked at again although nothing comes from it."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Final

__all__ = ["TimerQueue"]

SLACK: Final = 64
"""Entries that may have become void, beside one for each that has not, before the heap is made anew."""


class TimerQueue:
    """One time (ticks) for each name, the earliest first; equal times in the order of the names.

    >>> agenda = TimerQueue()
    >>> agenda.put("ada", 2.0), agenda.put("bob", 1.0), agenda.put("ada", 3.0)
    (None, None, None)
    >>> list(agenda.due(2.5)), list(agenda.due(3.0))
    (['bob'], ['ada'])
    """

    def __init__(self) -> None:
        self._times: dict[str, float] = {}
        self._heap: list[tuple[float, str]] = []

    def __len__(self) -> int:
        """Entries held, void ones included."""
        return len(self._heap)

    def put(self, name: str, ticks: float | None) -> None:
        """The only time for that name from now on; None: no time at all."""
        if ticks is None:
            self._times.pop(name, None)
        elif self._times.get(name) != ticks:
            self._times[name] = ticks
            heappush(self._heap, (ticks, name))
            if len(self._heap) > 2 * len(self._times) + SLACK:
                self._heap = [(at, who) for who, at in self._times.items()]
                heapify(self._heap)

    def due(self, ticks: float) -> Iterator[str]:
        """The names whose time has come; each is taken off."""
        while self._heap and self._heap[0][0] <= ticks:
            at, name = heappop(self._heap)
            if self._times.get(name) == at:
                del self._times[name]
                yield name
