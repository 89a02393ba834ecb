"""One agent of the job, without Flink: lines in, notices out, and a state that a checkpoint can hold at any line.

The state is the newest bytes of the agent's monitor and the lines since. Writing bytes takes as long as evaluating a
line, so the bytes are written only after every `EVERY` lines; the lines in between are appended. Restoring evaluates
these lines again, with a bit-identical result: a line contains its time, so nothing depends on when it is read.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from cfmon_flink.arrival import LATEST, Arrival
from monitor.runtime.monitor import Monitor
from monitor.runtime.step import AgentState, AgentStep
from monitor.types import Instant, Notice

__all__ = ["EVERY", "KeyedAgent", "Saved", "next_tick"]

EVERY: Final = 64
"""Lines of an agent after which its bytes are written. With 64, writing costs 0.5 us a line, and restoring 2 ms."""

Noticed = tuple[Instant, list[Notice]]
"""Notices, and the time at which they were made."""


class Saved(msgspec.Struct, frozen=True, array_like=True):
    """Bytes of an agent after a line. `now`: ticks of that line. Pages never change, so they are stored separately."""

    content: bytes
    now: float


class KeyedAgent:
    """Monitor of one agent in a job.

    Args:
        monitor: the prototype, shared by all agents.
        agent: the agent's name.
        saved: the bytes that `save` last returned, with the pages at that time; None: the agent is new.

    Raises:
        InputError: `bad_snapshot` if the bytes are damaged or of another version.

    Attributes:
        due: milliseconds since the epoch at which to `take` a tick if no line comes before; None: never, because the
            agent is forgotten, or was never known.
        restored: notices about formulas that have changed since `saved`.
        lines: number of lines since the last `save`.
        pages: numbers of the pages at the last `save`.
    """

    def __init__(
        self,
        monitor: Monitor,
        agent: str,
        saved: Saved | None = None,
        pages: Mapping[int, bytes] | None = None,
    ) -> None:
        state = None if saved is None else AgentState(saved.content, dict(pages or {}))
        self._name = agent
        self._step = AgentStep(monitor, agent, state)
        self._now = -math.inf if saved is None else saved.now
        self.restored = [(_instant(self._now), self._step.restored)] if self._step.restored else []
        self.pages = frozenset(pages or {})
        self.lines = 0
        self.due = self._due()

    def take(self, arrival: Arrival) -> list[Noticed]:
        """Evaluate one line, and first everything that was due before it.

        So it makes no difference whether a timer fires before a later line or after it. Time does not go back: a line
        that is older than the previous line counts as received together with it.
        """
        received = max(arrival.received / 1000.0, self._now)
        found = [] if self.due is None or self.due / 1000.0 > received else [*self._overdue(received)]
        self._now = received
        now = _instant(received)
        found.append((now, self._step.step(arrival.payload, now)))
        self.lines += 1
        self.due = self._due()
        return found

    def save(self) -> tuple[Saved, dict[int, bytes], frozenset[int]]:
        """Return the bytes after the last line, and the pages that are new and that are gone since the last call."""
        state = self._step.checkpoint()
        new = {number: page for number, page in state.pages.items() if number not in self.pages}
        gone = self.pages - state.pages.keys()
        self.pages, self.lines = frozenset(state.pages), 0
        return Saved(state.content, self._now), new, gone

    def current(self) -> Iterator[Notice]:
        """Yield the notices that describe the current state, as last returned."""
        return self._step.current_state()

    def _overdue(self, until: float) -> Iterator[Noticed]:
        """Evaluate what was due before `until`, at the times at which it was due."""
        before = self._now
        due = self.due
        while due is not None and before < due / 1000.0 <= until:
            before = due / 1000.0
            now = _instant(before)
            yield now, self._step.step(None, now)
            due = self._due()

    def _due(self) -> int | None:
        """Return when the agent is due, in milliseconds since the epoch; always after the last event."""
        due = self._step.due
        return None if due is None else next_tick(due, self._now)


def next_tick(due: float, now: float) -> int:
    """Return the first millisecond after `now` and not before `due` (both in seconds): a tick then has work to do."""
    if due * 1000.0 >= LATEST:
        return LATEST
    found = max(math.ceil(max(due, now) * 1000.0), round(now * 1000.0) + 1)
    return found if found / 1000.0 >= due else found + 1  # the product may have been rounded down


def _instant(seconds: float) -> Instant:
    return Instant(wall=seconds, ticks=seconds)
