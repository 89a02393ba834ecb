"""The agents of one key of the job, without Flink: batches of lines in, notices out, and a state for checkpoints.

A call from Java to Python and a write to RocksDB cost as much as a line each, so both are made for many lines at once.
The state is that of `cfmon_flink.keyed`, of all agents of the bucket: their newest bytes, and the batches since then.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from cfmon_flink.arrival import NOBODY, read_line, tick_line
from cfmon_flink.keyed import EVERY, KeyedAgent, Noticed, Saved
from monitor.errors import InputError
from monitor.runtime.monitor import Monitor
from monitor.types import Instant, Notice, Received

__all__ = ["SEPARATOR", "Bucket", "Changes"]

SEPARATOR: Final = "\x1e"
"""Between the lines of a batch. `Keys.java` keeps it out of lines; JSON has no place for it."""


class Changes(msgspec.Struct, frozen=True):
    """What to write to the state: `agents` and `pages` that are new, and names of those that are `gone`.

    A page is named by agent and number. The batches that were kept are to be dropped.
    """

    agents: dict[str, Saved]
    pages: dict[tuple[str, int], bytes]
    agents_gone: set[str]
    pages_gone: set[tuple[str, int]]


class Bucket:
    """Monitors of some agents.

    Args:
        monitor: the prototype, shared by all agents.
        saved: what `save` returned, by agent.
        pages: the pages of then, by agent and number.
        batches: those since then, in order.
        every: lines after which to save, for each agent.

    Raises:
        InputError: `bad_snapshot` if the bytes are damaged or of another version.

    Attributes:
        agents: by name.
        due: milliseconds since the epoch before which no agent is due; None: none is at all.
        restored: notices about formulas that have changed since `saved`; after the next `save` they do not come again.
    """

    def __init__(
        self,
        monitor: Monitor,
        saved: Mapping[str, Saved] | None = None,
        pages: Mapping[tuple[str, int], bytes] | None = None,
        batches: Iterable[str] = (),
        *,
        every: int = EVERY,
    ) -> None:
        self._monitor, self._every = monitor, every
        of_agents: dict[str, dict[int, bytes]] = {}
        for (name, number), page in (pages or {}).items():
            of_agents.setdefault(name, {})[number] = page
        self.agents = {
            name: KeyedAgent(monitor, name, each, of_agents.get(name)) for name, each in (saved or {}).items()
        }
        self.restored = [noticed for agent in self.agents.values() for noticed in agent.restored]
        self.due = min((agent.due for agent in self.agents.values() if agent.due is not None), default=None)
        self._lines = 0
        self._agents_gone: set[str] = set()
        self._pages_gone: set[tuple[str, int]] = set()
        for batch in batches:
            self.take(batch)

    @property
    def full(self) -> bool:
        """Return whether it is time to `save`."""
        return self._lines >= self._every * len(self.agents)

    def take(self, batch: str) -> list[Noticed]:
        """Evaluate the lines of a batch; one that is none is refused."""
        found: list[Noticed] = []
        lines = batch.split(SEPARATOR)
        agents = self.agents
        for line in lines:
            try:
                arrival = read_line(line, agents)
            except InputError as error:
                found.append((Instant(0.0, 0.0), [Received(NOBODY, "rejected", error.reason, error.detail)]))
                continue
            agent = agents.get(arrival.agent)
            if agent is None:
                agent = agents[arrival.agent] = KeyedAgent(self._monitor, arrival.agent)
            found += agent.take(arrival)
            if agent.due is None:  # forgotten: its next line begins anew
                self._forget(arrival.agent)
            elif self.due is None or agent.due < self.due:
                self.due = agent.due
        self._lines += len(lines)
        return found

    def ticks(self, until: int) -> str:
        """Return a batch of ticks: one for each agent that is due until so many milliseconds since the epoch."""
        due = {name: agent.due for name, agent in self.agents.items() if agent.due is not None}
        self.due = min(due.values(), default=None)
        return SEPARATOR.join(tick_line(name, at) for name, at in due.items() if at <= until)

    def save(self) -> Changes:
        """Return what has changed since the last call."""
        changes = Changes({}, {}, self._agents_gone, self._pages_gone)
        for name, agent in self.agents.items():
            if agent.lines or agent.restored:
                agent.restored = []
                changes.agents[name], new, gone = agent.save()
                changes.pages.update({(name, number): page for number, page in new.items()})
                changes.pages_gone.update((name, number) for number in gone)
        changes.agents_gone.difference_update(changes.agents)
        changes.pages_gone.difference_update(changes.pages)
        self.restored = []
        self._lines, self._agents_gone, self._pages_gone = 0, set(), set()
        return changes

    def current(self) -> Iterator[Notice]:
        """Yield the notices that describe the current state, as last returned."""
        for agent in self.agents.values():
            yield from agent.current()

    def _forget(self, name: str) -> None:
        """Drop an agent. Its bytes stay until `save`: the batches since then continue them."""
        agent = self.agents.pop(name)
        self._agents_gone.add(name)
        self._pages_gone.update((name, number) for number in agent.pages)
