"""Columns of a Parquet recording: convert events to rows of an Arrow table, and back.

`number` is the event's position in the recording, from 0. `agent`, `episode` (as JSON) and `seq` are set for messages
that can be decoded; tools and `cfmon audit` use these columns. The other columns contain the unchanged event.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple, assert_never

from monitor.errors import InputError, RecordingError, to_install
from monitor.sidecar.events import Connected, Evaluate, Event, Heartbeat, Lost, Message
from monitor.sidecar.recording import MAX_EVENT_BYTES, event_of
from monitor.stream import agent_of, decode
from monitor.stream.shard import shard_of
from monitor.types.stream_events import Episode

if TYPE_CHECKING:
    import pyarrow as pa

ALL: Final = -1
"""Bucket of events about all agents, and of messages that name no valid agent."""

TOPICS: Final = 4096
"""Number of topics whose agent and bucket are cached."""

_LETTERS: Final = {"message": "m", "evaluate": "e", "heartbeat": "h", "connected": "c", "lost": "l"}
COLUMNS: Final = ("number", "kind", "wall", "ticks", "topic", "payload", "flag", "number_of", "why", "live_since")
"""The columns from which events are restored."""


class EventRow(NamedTuple):
    """One event. `flag`: `latest_only` or `up`. `number_of`: number of steps of an evaluation, or of lost messages.

    `live_since`: the field of an evaluation; None if it is minus infinity.
    """

    number: int
    kind: str
    wall: float
    ticks: float
    topic: str | None = None
    agent: str | None = None
    episode: str | None = None
    seq: int | None = None
    payload: bytes | None = None
    flag: bool | None = None
    number_of: int | None = None
    why: str | None = None
    live_since: float | None = None


def import_arrow(why: object) -> Any:  # noqa: ANN401 - pyarrow is optional
    """Return the module pyarrow. Raises RecordingError, which begins with `why`, if pyarrow is not installed."""
    try:
        import pyarrow as pa  # noqa: PLC0415 - an optional extra
    except ImportError as error:
        raise RecordingError(f"{why}: Parquet needs pyarrow: {to_install('learn')}") from error
    return pa


class EventRows:
    """Events to be written to tables, by bucket.

    Args:
        pattern: topic of the steps, with one `+` for the agent's name.
        buckets: number of buckets. `shard_of` gives an agent's bucket.
    """

    def __init__(self, pattern: str, buckets: int) -> None:
        self._buckets: dict[int, list[EventRow]] = {}
        self._agent_of = lru_cache(TOPICS)(lambda topic: _agent_of(topic, pattern, buckets))

    def add(self, number: int, event: Event) -> None:
        """Add an event."""
        bucket, row = self._row(number, event)
        self._buckets.setdefault(bucket, []).append(row)

    def take(self) -> list[tuple[int, pa.Table]]:
        """Remove and return the rows of each bucket. Raises RecordingError if a number does not fit 64 bits."""
        taken, self._buckets = self._buckets, {}
        return [(bucket, _table(rows)) for bucket, rows in sorted(taken.items())]

    def _row(self, number: int, event: Event) -> tuple[int, EventRow]:
        at = (event.now.wall, event.now.ticks)
        match event:
            case Message():
                agent, bucket = self._agent_of(event.topic)
                key = (None, None) if agent is None else _key(agent, event.payload)
                return bucket, EventRow(number, "message", *at, event.topic, agent, *key, event.payload)
            case Evaluate():
                since = event.live_since if math.isfinite(event.live_since) else None
                return ALL, EventRow(
                    number, "evaluate", *at, flag=event.latest_only, number_of=event.steps, live_since=since
                )
            case Heartbeat():
                return ALL, EventRow(number, "heartbeat", *at)
            case Connected():
                return ALL, EventRow(number, "connected", *at, flag=event.up)
            case Lost():
                agent, bucket = self._agent_of(event.topic)
                return bucket, EventRow(number, "lost", *at, event.topic, agent, number_of=event.count, why=event.why)
            case _:
                assert_never(event)


def events_of(table: pa.Table) -> Iterator[Event]:
    """Yield the events of a table, in the table's order. Raises ValueError or TypeError if a row is no event."""
    columns = {name: table.column(name) for name in COLUMNS[1:]}
    columns["kind"] = columns["kind"].cast("string")  # pyarrow converts dictionary arrays to lists slowly
    rows = zip(*(column.to_pylist() for column in columns.values()), strict=True)
    for kind, wall, ticks, topic, payload, flag, count, why, since in rows:
        match kind:
            case "message":
                rest: Sequence[object] = (topic, payload)
            case "evaluate":
                rest = (flag, count) if since is None else (flag, count, since)
            case "connected":
                rest = (flag,)
            case "lost":
                rest = (topic, count, why) if why else (topic, count)
            case _:
                rest = ()
        yield event_of(_LETTERS.get(kind, kind), wall, ticks, rest)


def _agent_of(topic: str, pattern: str, buckets: int) -> tuple[str | None, int]:
    try:
        agent = agent_of(topic, pattern)
    except InputError:
        return None, ALL
    return agent, shard_of(agent, buckets)


def _key(agent: str, payload: bytes) -> tuple[str | None, int | None]:
    """Return episode and seq of a message; both None if the message is no step."""
    try:
        step = decode(agent, payload, max_bytes=MAX_EVENT_BYTES)
    except InputError:
        return None, None
    return _as_json(step.episode), step.seq


@lru_cache(TOPICS)
def _as_json(episode: Episode) -> str:
    return json.dumps(episode, ensure_ascii=False)


def _table(rows: Iterable[EventRow]) -> pa.Table:
    arrow = import_arrow("a recording")
    types = {
        "number": arrow.int64(),
        "kind": arrow.dictionary(arrow.int8(), arrow.string()),
        "wall": arrow.float64(),
        "ticks": arrow.float64(),
        "topic": arrow.string(),
        "agent": arrow.string(),
        "episode": arrow.string(),
        "seq": arrow.int64(),
        "payload": arrow.binary(),
        "flag": arrow.bool_(),
        "number_of": arrow.int64(),
        "why": arrow.string(),
        "live_since": arrow.float64(),
    }
    try:
        columns = [
            arrow.array(c, types[name]) for name, c in zip(EventRow._fields, zip(*rows, strict=True), strict=True)
        ]
    except (arrow.ArrowException, OverflowError) as error:
        raise RecordingError(f"an event cannot be written as Parquet: {error}; use a recording in one file") from error
    return arrow.Table.from_arrays(columns, schema=arrow.schema(types))
