"""Tables of steps (CSV, JSON lines, Parquet, Arrow, Minari, MCAP) as events of a recording.

Each row becomes a message in the form that a live agent would send, followed by an evaluation. A row's reward or end
marker may belong to the step that begins in the row's state. It is then sent with the message of the next state. If the
next state is not in the table, the episode ends as truncated, because a message about the termination of an episode
needs the last state.

An episode's first message has seq 0, with one exception. If the table counts steps in each episode, and an episode
begins later than at step 1, its beginning is missing. Its first message then has the row's own step as seq.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import numpy as np

from monitor.authoring.learning.batch import RowBatch, as_flags, as_moments
from monitor.authoring.learning.columns import Roles
from monitor.authoring.learning.linked_rows import LONGER, MAX_OPEN, TIMES, counts_steps, unordered, usual_step
from monitor.authoring.learning.row_files import RowFile
from monitor.errors import InputError, RecordingError
from monitor.sidecar.events import Connected, Evaluate, Event, Message
from monitor.stream import agent_of
from monitor.types.stream_events import Instant

AGENT: Final = "agent"
_encode = msgspec.json.Encoder().encode


class _PlainRows:
    """Rows of one batch as Python values.

    `sent`: the rows are messages. `terminated`, `truncated`: end markers. `order`: values that order the rows, or
    empty. `times`: seconds since 1970, or empty.
    """

    def __init__(self, batch: RowBatch, roles: Roles, time: str | None, *, sent: bool) -> None:
        self._batch, self._sent = batch, sent
        self._columns = {name: values.tolist() for name, values in batch.columns.items()}
        self.terminated = as_flags(batch, roles.terminated)
        self.truncated = as_flags(batch, roles.truncated)
        self.order: list[float] = [] if roles.order is None else as_moments(batch, roles.order).tolist()
        self.times: list[float] = [] if time is None else as_moments(batch, time, "write seconds since 1970").tolist()

    def spacing(self, roles: Roles, agents: list[str]) -> tuple[bool, float]:
        """Return whether the order counts steps, and its usual step or 0. `agents`: agent of each row."""
        if roles.order is None:
            return False, 0.0
        last: dict[tuple[str, object], float] = {}
        rises = []
        for row, agent in enumerate(agents):
            path = agent, self.at(row, roles.episode)
            rise = self.order[row] - last.get(path, np.inf)
            rises += [rise] if rise >= 0 else []
            last[path] = self.order[row]
            if self.terminated[row] or self.truncated[row]:
                del last[path]
        order, found = np.array(self.order), np.array(rises)
        text = self._batch.column(roles.order).dtype.kind == "U"
        counts = not text and counts_steps(roles.order, order, found)
        return counts, 1.0 if counts else usual_step(found)

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
        """Return a state: a single whole number or text unchanged, else as `several`.

        Raises RecordingError if it is missing.
        """
        values = self.several(row, names, "the state is")
        if len(names) > 1 or isinstance(values, dict) or isinstance(values[0], float):
            return values
        return values[0]

    def several(self, row: int, names: tuple[str, ...], what: str) -> list[object] | dict[str, object]:
        """Return the values of columns: a list, or a map if a message had one.

        Raises RecordingError if one is missing.
        """
        values = [self.at(row, name) for name in names]
        if None in values:
            raise RecordingError(f"{self.where(row)}: {what} missing")
        keys = [name.partition(".")[2] for name in names] if self._sent else []
        return dict(zip(keys, values, strict=True)) if all(keys) and keys else values

    def action(self, row: int, name: str) -> object:
        """Return an action.

        In a column with missing values, whole numbers are stored as floats and become integers again.
        """
        value = self.at(row, name)
        return int(value) if isinstance(value, float) and value.is_integer() else value


@dataclass
class _Path:
    """The current position in an episode, or in the rows of an agent if no column has episodes.

    `reward`: reward of the previous step, if it was not sent yet. `order`: order of the previous row. `first`: order of
    the first row. `begins`: True if the next row begins an episode.
    """

    topic: str
    episode: Any
    seq: int = 0
    reward: float | None = None
    order: float = 0.0
    first: float = 0.0
    begins: bool = True


class TableEvents:
    """Rows of a table as events.

    Args:
        source: the table.
        roles: roles of its columns.
        pattern: topic of the steps, with one `+` for the agent's name, which is in the column `agent`.
        agent: name of the agent, if there is no such column.
        interval: seconds between two rows, if no column has times.
        sent: True if rows are messages as an agent sent them; then maps stay maps.
    """

    def __init__(
        self, source: RowFile, roles: Roles, pattern: str, agent: str, interval: float, *, sent: bool = False
    ) -> None:
        names = source.names()
        self._sent = sent
        self._source, self._roles, self._pattern = source, roles, pattern
        self._agent, self._interval = agent, interval
        self._time = next((name for name in TIMES if name in names and name not in roles.state), None)
        extra = [name for name in (AGENT, self._time) if name is not None and name in names]
        self._wanted = [name for name in dict.fromkeys((*roles.used, *extra)) if name in names]
        self._open: dict[tuple[str, object], _Path] = {}
        self._now = Instant(0.0, 0.0)
        self._counts: bool | None = None
        self._step = 0.0
        self._newest = math.nan

    def __iter__(self) -> Iterator[Event]:
        done = 0
        for batch in self._source.batches(self._wanted):
            batch.refuse_bad()
            rows = _PlainRows(batch, self._roles, self._time, sent=self._sent)
            if self._counts is None:
                agents = [self._name(rows, row) for row in range(len(rows))]
                self._counts, self._step = rows.spacing(self._roles, agents)
            for row in range(len(rows)):
                self._now = self._instant(rows, row, done + row)
                if done + row == 0:
                    yield Connected(self._now, up=True)
                yield from self._events(rows, row)
            done += len(rows)

    def _events(self, rows: _PlainRows, row: int) -> Iterator[Event]:
        """Yield the messages of a row, and an evaluation after each."""
        path = self._path(rows, row)
        for message in self._messages(rows, row, path):
            step = {"v": 1, "episode": path.episode, **message, "time": self._now.wall}
            yield Message(self._now, path.topic, _encode(step))
            yield Evaluate(self._now)

    def _path(self, rows: _PlainRows, row: int) -> _Path:
        """Return the path of a row. Episodes may be interleaved; the oldest ones count as finished."""
        name, column = self._name(rows, row), self._roles.episode
        episode = None if column is None else rows.action(row, column)
        if column is not None and episode is None:
            raise RecordingError(f"{rows.where(row)}: the episode is missing")
        path = self._open.pop((name, episode), None) or _Path(self._topic(name), -1 if column is None else episode)
        self._open[name, episode] = path
        if len(self._open) > MAX_OPEN:
            del self._open[next(iter(self._open))]
        return path

    def _name(self, rows: _PlainRows, row: int) -> str:
        return str(rows.at(row, AGENT) or self._agent)

    def _topic(self, agent: str) -> str:
        topic = self._pattern.replace("+", agent)
        try:
            agent_of(topic, self._pattern)
        except InputError as error:
            raise RecordingError(f"{self._source.path}: an agent's name does not fit a topic: {error.detail}") from None
        return topic

    def _messages(self, rows: _PlainRows, row: int, path: _Path) -> list[dict[str, object]]:
        roles, arrives = self._roles, self._roles.timing == "state"
        self._begin(rows, row, path)
        earned, action = rows.at(row, roles.reward), rows.action(row, roles.action)
        ends = {"terminated": bool(rows.terminated[row]), "truncated": bool(rows.truncated[row])}
        ends = {key: True for key, value in ends.items() if value}
        inputs = {"inputs": rows.several(row, roles.inputs, "inputs are")} if roles.inputs else {}
        step: dict[str, object] = {"seq": path.seq, "state": rows.state(row, roles.state), **inputs}
        reward = earned if arrives else path.reward
        last_state = bool(ends) and action is None and not arrives and not roles.next_state
        if last_state and earned is not None:  # no step begins here, so the last step gets this reward too
            reward = earned + (path.reward or 0.0)
        step |= {} if reward is None else {"reward": reward}
        step |= {} if action is None else {"action": action}
        path.reward = None if arrives or ends else earned
        path.begins = bool(ends) and roles.episode is None
        if not ends or arrives or last_state:
            return [{**step, **ends}]
        if not roles.next_state:
            return [{**step, "truncated": True}]
        last = {"seq": path.seq + 1, "state": rows.state(row, roles.next_state), **inputs, **ends}
        return [step, last if earned is None else {**last, "reward": earned}]

    def _begin(self, rows: _PlainRows, row: int, path: _Path) -> None:
        """Set the seq of a row, so that a path of the learner is one episode, and a missing step is a gap."""
        named = self._roles.episode is not None
        order = rows.order[row] if rows.order else path.order + 1
        rise = order - path.order
        again = self._counts and rise == 0
        if path.begins or (not named and (rise < 0 or (again and order == path.first))):
            late = self._counts and order > 1 and order != self._newest + 1
            path.begins, path.first, path.reward, path.seq = False, order, None, int(order) if late else 0
            if not named:
                path.episode += 1
        elif rise < 0 or again:
            episode = str(path.episode) if named else None
            raise unordered(rows.where(row), str(self._roles.order), (path.order, order), episode)
        else:
            missing = self._counts or (self._step and rise > LONGER * self._step)
            path.seq += round(rise / self._step) if missing else 1
        path.order = self._newest = order

    def _instant(self, rows: _PlainRows, row: int, number: int) -> Instant:
        wall = rows.times[row] if rows.times else number * self._interval
        return Instant(float(wall), max(float(wall), self._now.ticks))
