"""The clock, the order of events and the trace of a simulated world: one thread, one seed, no waiting."""

from __future__ import annotations

import hashlib
import heapq
import random
from collections import Counter
from collections.abc import Callable
from itertools import count
from typing import Final

EPOCH: Final = 1_790_000_000.0
"""Wall time at which every world begins, in seconds since the Unix epoch."""

Call = Callable[[], object]


class Event:
    """Something that will happen; `cancel` prevents it."""

    __slots__ = ("call",)

    def __init__(self, call: Call) -> None:
        self.call: Call | None = call

    def cancel(self) -> None:
        self.call = None


class World:
    """A virtual clock and the events on it. `now`: seconds since the beginning; only `advance` moves it.

    Everything that is left to chance is drawn from `draw`. Events of one moment happen in the order in which they were
    added. `note` adds a line to the trace, whose digest two runs of a seed share; `lines` keeps the lines, if wanted.
    """

    def __init__(self, seed: int, *, keep: bool = False) -> None:
        self.seed = seed
        self.draw = random.Random(seed)
        self.now = 0.0
        self.wall_ahead = 0.0
        """What the wall clock was set forward by, in seconds."""
        self.faults: Counter[str] = Counter()
        self.disturbed: list[float] = []
        """Times at which a connection of the sidecar ended."""
        self.problems: list[str] = []
        """What does not hold."""
        self.errors: list[str] = []
        """Exceptions that nobody expects, of the sidecar or of the world."""
        self.lines: list[str] | None = [] if keep else None
        self._events: list[tuple[float, int, Event]] = []
        self._numbers = count()
        self._digest = hashlib.sha256()

    @property
    def wall(self) -> float:
        """Seconds since the Unix epoch, as a process reads them."""
        return EPOCH + self.now + self.wall_ahead

    @property
    def digest(self) -> str:
        """The digest of the trace so far."""
        return self._digest.hexdigest()

    def note(self, what: str) -> None:
        line = f"{self.now:.6f} {what}"
        self._digest.update(line.encode())
        if self.lines is not None:
            self.lines.append(line)

    def at(self, when: float, call: Call) -> Event:
        event = Event(call)
        heapq.heappush(self._events, (max(when, self.now), next(self._numbers), event))
        return event

    def after(self, seconds: float, call: Call) -> Event:
        return self.at(self.now + seconds, call)

    def advance(self, until: float, *, ready: Callable[[], object] = lambda: False) -> None:
        """Let the world go on until this time; less if `ready` after an event."""
        events = self._events
        while events and events[0][0] <= until:
            when, _, event = heapq.heappop(events)
            self.now = max(self.now, when)
            if event.call is not None:
                event.call()
                if ready():
                    return
        if until == float("inf"):
            raise AssertionError("nothing will happen any more, and something waits for it")
        self.now = max(self.now, until)

    def disturb(self) -> None:
        """Note that a connection of the sidecar ended, so that it sends again what was not acknowledged."""
        self.disturbed.append(self.now)
