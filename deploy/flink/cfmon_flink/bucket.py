"""The agents of one key of the job, without Flink: batches of lines in, notices out, and a state for checkpoints.

A call from Java to Python and a write to RocksDB each cost as much as evaluating a line, so both are made for many
lines at once. The state is the newest bytes of all agents of the bucket (`cfmon_flink.keyed`), and the batches since.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from cfmon_flink.arrival import LATEST, NOBODY, Arrival, read_line, read_lines, tick_line
from cfmon_flink.keyed import EVERY, KeyedAgent, Noticed, Saved
from monitor.errors import InputError
from monitor.runtime.monitor import Monitor
from monitor.stream.decode import agent_of
from monitor.types import Instant, Notice, Received

__all__ = ["SEPARATOR", "Bucket", "Changes"]

SEPARATOR: Final = "\x1e"
"""Separator of the lines of a batch. `Keys.java` replaces it in lines; valid JSON never contains it."""

Entry = Arrival | InputError
"""A line: what arrived, or why it is refused."""


class Changes(msgspec.Struct, frozen=True):
    """What to write to the state: `agents` and `pages` that are new, and names of those that are `gone`.

    A page is named by agent and number. The batches kept so far must be deleted when this is written.
    """

    agents: dict[str, Saved]
    pages: dict[tuple[str, int], bytes]
    agents_gone: set[str]
    pages_gone: set[tuple[str, int]]


class Bucket:
    """Monitors of some agents.

    Args:
        monitor: the prototype, shared by all agents.
        saved: agent -> the bytes that `save` last returned.
        pages: (agent, number) -> the pages at that time.
        batches: the batches since that time, in order.
        every: number of lines for each agent after which to save.

    Raises:
        InputError: `bad_snapshot` if the bytes are damaged or of another version.

    Attributes:
        agents: name -> monitor of the agent.
        due: milliseconds since the epoch before which no agent is due; None: no agent is ever due.
        restored: notices about formulas that have changed since `saved`; empty after the next `save`.
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
        """Evaluate the lines of a batch; malformed lines are refused."""
        entries: Sequence[Entry] = read_lines(batch, SEPARATOR) or [_read(line) for line in batch.split(SEPARATOR)]
        self._lines += len(entries)
        return [noticed for entry in entries for noticed in self._take_one(entry)]

    def _take_one(self, arrival: Entry) -> list[Noticed]:
        """Evaluate one arrival, or report why its line is refused."""
        if isinstance(arrival, InputError):
            return [_refused(arrival)]
        agent = self.agents.get(arrival.agent)
        if agent is None:
            try:
                agent_of(arrival.agent, "+")
            except InputError as error:
                return [_refused(error)]
            agent = self.agents[arrival.agent] = KeyedAgent(self._monitor, arrival.agent)
        found = agent.take(arrival)
        self._go_on(arrival.agent, agent)
        return found

    def _go_on(self, name: str, agent: KeyedAgent) -> None:
        """Record when an agent is due; drop the agent if it is forgotten."""
        if agent.due is None:  # forgotten: its next line begins anew
            self._forget(name)
            return
        if self.due is None or agent.due < self.due:
            self.due = agent.due

    def ticks(self, until: int) -> str:
        """Return a batch of ticks: one for each agent that is due by `until`, in milliseconds since the epoch."""
        due = {name: agent.due for name, agent in self.agents.items() if agent.due is not None}
        self.due = min(due.values(), default=None)
        until = min(until, LATEST - 1)  # a later tick would be refused, and due again
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
        """Drop an agent. Its saved bytes stay until `save`, because the batches since then are evaluated on them."""
        agent = self.agents.pop(name)
        self._agents_gone.add(name)
        self._pages_gone.update((name, number) for number in agent.pages)


def _read(line: str) -> Entry:
    try:
        return read_line(line)
    except InputError as error:
        return error


def _refused(error: InputError) -> Noticed:
    return Instant(0.0, 0.0), [Received(NOBODY, "rejected", error.reason, error.detail)]
