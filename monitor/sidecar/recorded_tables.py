"""Tables of steps (CSV, JSON lines, Parquet, Arrow, Minari, MCAP) as events of a recording.

Each row becomes a message of its agent, as a live agent would send it, followed by an evaluation. Where a reward or an
end marker belongs to the step that begins in a row's state, it goes to the message of the state afterwards. If that
state is not in the table, the episode ends as truncated: whether it terminated cannot be said without it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from monitor.errors import InputError, RecordingError
from monitor.learning.batch import Batch, as_flags
from monitor.learning.columns import Roles
from monitor.learning.files import RowFile
from monitor.sidecar.events import Connected, Evaluate, Event, Message
from monitor.stream import agent_of
from monitor.types import Instant

__all__ = ["TableEvents"]

TIME: Final = ("time", "timestamp", "wall")
"""Columns that may hold the time of a row, in seconds since the epoch."""

AGENT: Final = "agent"
_encode = msgspec.json.Encoder().encode


class _Rows:
    """Rows of one batch as values of Python. `terminated`, `truncated`: end markers."""

    def __init__(self, batch: Batch, roles: Roles) -> None:
        self._batch = batch
        self._columns = {name: values.tolist() for name, values in batch.columns.items()}
        self.terminated = as_flags(batch, roles.terminated)
        self.truncated = as_flags(batch, roles.truncated)

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self._batch)

    def where(self, row: int) -> str:
        """Return the place of a row, for messages."""
        return self._batch.where(row)

    def at(self, row: int, name: str | None) -> Any:  # noqa: ANN401 - a number, text or Boolean
        """Return a value; None if it is missing."""
        value = None if name is None or name not in self._columns else self._columns[name][row]
        return None if value == "" or (isinstance(value, float) and math.isnan(value)) else value

    def state(self, row: int, names: tuple[str, ...]) -> object:
        """Return a state: one value, or a list. RecordingError if it is missing."""
        values = [self.at(row, name) for name in names]
        if None in values:
            raise RecordingError(f"{self.where(row)}: the state is missing")
        return values[0] if len(values) == 1 else values

    def action(self, row: int, name: str) -> object:
        """Return an action; a number of a column with missing values is a float there."""
        value = self.at(row, name)
        return int(value) if isinstance(value, float) and value.is_integer() else value


@dataclass
class _Agent:
    """What was read of an agent. `reward`: of the step before, if not sent yet. `cut`: number of ended episodes."""

    topic: str
    episode: object = None
    seq: int = -1
    cut: int = 0
    reward: float | None = None


class TableEvents:
    """Rows of a table as events.

    Args:
        source: the table.
        roles: what its columns mean.
        pattern: topic of the steps, with one `+` for the agent's name, which is in the column `agent`.
        agent: name of the agent, if there is no such column.
        interval: seconds between two rows, if no column has times.
    """

    def __init__(self, source: RowFile, roles: Roles, pattern: str, agent: str, interval: float) -> None:
        names = source.names()
        self._source, self._roles, self._pattern = source, roles, pattern
        self._agent, self._interval = agent, interval
        self._time = next((name for name in TIME if name in names and name not in roles.state), None)
        extra = [name for name in (AGENT, self._time) if name is not None and name in names]
        self._wanted = [name for name in dict.fromkeys((*roles.used, *extra)) if name in names]
        self._agents: dict[str, _Agent] = {}
        self._now = Instant(0.0, 0.0)

    def __iter__(self) -> Iterator[Event]:
        done = 0
        for batch in self._source.batches(self._wanted):
            rows = _Rows(batch, self._roles)
            for row in range(len(rows)):
                self._now = self._instant(rows, row, done + row)
                if done + row == 0:
                    yield Connected(self._now, up=True)
                yield from self._events(rows, row)
            done += len(rows)

    def _events(self, rows: _Rows, row: int) -> Iterator[Event]:
        """Yield the messages of a row, and an evaluation after each."""
        name = str(rows.at(row, AGENT) or self._agent)
        if name not in self._agents:
            self._agents[name] = _Agent(self._topic(name))
        agent = self._agents[name]
        for message in self._messages(rows, row, agent):
            step = {"v": 1, "episode": agent.episode, **message, "time": self._now.wall}
            yield Message(self._now, agent.topic, _encode(step))
            yield Evaluate(self._now)

    def _topic(self, agent: str) -> str:
        topic = self._pattern.replace("+", agent)
        try:
            agent_of(topic, self._pattern)
        except InputError as error:
            raise RecordingError(f"{self._source.path}: an agent's name does not fit a topic: {error.detail}") from None
        return topic

    def _messages(self, rows: _Rows, row: int, agent: _Agent) -> list[dict[str, object]]:
        roles, arrives = self._roles, self._roles.timing == "state"
        self._begin(rows, row, agent)
        earned, action = rows.at(row, roles.reward), rows.action(row, roles.action)
        ends = {"terminated": bool(rows.terminated[row]), "truncated": bool(rows.truncated[row])}
        ends = {key: True for key, value in ends.items() if value}
        step: dict[str, object] = {"seq": agent.seq, "state": rows.state(row, roles.state)}
        reward = earned if arrives else agent.reward
        step |= {} if reward is None else {"reward": reward}
        step |= {} if action is None else {"action": action}
        agent.reward = None if arrives else earned
        if ends and roles.episode is None:
            agent.cut += 1
        if not ends or arrives:
            return [{**step, **ends}]
        agent.reward = None
        if not roles.next_state:
            return [{**step, "truncated": True}]
        last = {"seq": agent.seq + 1, "state": rows.state(row, roles.next_state), **ends}
        return [step, last if earned is None else {**last, "reward": earned}]

    def _begin(self, rows: _Rows, row: int, agent: _Agent) -> None:
        """Note episode and seq of a row: the value of its order if that is a whole number, else a count."""
        roles = self._roles
        episode = agent.cut if roles.episode is None else rows.action(row, roles.episode)
        if episode is None:
            raise RecordingError(f"{rows.where(row)}: the episode is missing")
        if episode != agent.episode:
            agent.episode, agent.seq, agent.reward = episode, -1, None
        order = rows.at(row, roles.order)
        agent.seq = order if isinstance(order, int) and order >= 0 and roles.order not in TIME else agent.seq + 1

    def _instant(self, rows: _Rows, row: int, number: int) -> Instant:
        wall = number * self._interval if self._time is None else rows.at(row, self._time)
        if not isinstance(wall, int | float):
            raise RecordingError(
                f"{self._source.path}, row {number + 1}: column {self._time!r} holds no time in seconds"
            )
        return Instant(float(wall), max(float(wall), self._now.ticks))
