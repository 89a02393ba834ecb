"""One partition of an audit: a bucket's events of one day through the code of `run`, from the state of the day before.

As in a shard, the monitor of a bucket sees its agents only; evaluations and the connection concern every bucket.
Heartbeats are left out: they repeat.
"""

from __future__ import annotations

import json
import math
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from monitor.arrays import Ints
from monitor.atomic import new_path
from monitor.errors import ConfigError, RecordingError
from monitor.runtime.lanes.run import EVALUATION, FINISHED, MESSAGE, REPEAT, TURN, Evaluations, Messages, Run
from monitor.runtime.monitor import Monitor
from monitor.sidecar.audit.plan import DONE, Partition
from monitor.sidecar.config.load import Loaded, assemble
from monitor.sidecar.effects import Effects
from monitor.sidecar.events import Connected, Evaluate, Event, Heartbeat, Lost, Message
from monitor.sidecar.parquet_recording import ParquetRecording, read_part
from monitor.sidecar.pipeline import Pipeline, Snapshot
from monitor.sidecar.recording_table import ALL, events_of
from monitor.types import Instant, Judged, Received, Skipped, TakenOver, Trust

__all__ = ["ALERTS", "SPENT", "TAKEOVERS", "alert_line", "run_partition"]

ALERTS: Final = "alerts.jsonl"
TAKEOVERS: Final = "takeovers.jsonl"
SPENT: Final = "spent.npy"
STATE: Final = "state.msgpack"

_OWN: Final = ("number", "kind", "wall", "ticks", "topic", "payload", "number_of", "why")
NO_MESSAGES: Final = Messages(
    (), np.zeros(0, np.int64), memoryview(b""), np.zeros(1, np.int64), np.zeros(0), np.zeros(0)
)

_COMMON: Final = ("number", "kind", "wall", "ticks", "flag", "number_of", "live_since")


def run_partition(partition: Partition) -> str:
    """Compute a partition, unless it is there; return its key.

    The result is in `partition.folder` as a whole or not at all. Raises RecordingError; ConfigError if it cannot be
    written.
    """
    if partition.done:
        return partition.key
    began = time.process_time()
    loaded = _loaded(partition.config)
    monitor = loaded.monitor.anew()
    pipeline = replace(loaded, monitor=monitor).pipeline(partition.client_id)
    if partition.previous is not None:
        _restore(pipeline, Path(partition.previous))
    results = _Results(monitor)
    if partition.bucket == ALL:
        for event in _all_agents(partition):
            results.take(pipeline.step(event))
            results.spend(event)
    else:
        _Bucket(pipeline, results).feed(partition)
    results.write(partition, pipeline, time.process_time() - began)
    return partition.key


def alert_line(topic: str, payload: bytes) -> str:
    """Return a publication as `cfmon replay` prints it."""
    return f'{{"topic":"{topic}","payload":{payload.decode() or "null"}}}\n'


class _Results:
    """What a partition finds."""

    def __init__(self, monitor: Monitor) -> None:
        self._monitor = monitor
        self._alerts: list[str] = []
        self._takeovers: list[bytes] = []
        self._spent: list[Ints] = []
        self._counts: Counter[str] = Counter()
        self._rejected = 0

    def take(self, effects: Effects) -> None:
        """Keep what an event gave."""
        for publication in effects.publications:
            if not publication.repeats:
                self._alerts.append(alert_line(publication.topic, publication.payload))
        for notice in effects.notices:
            kind = type(notice)
            if kind is Judged:
                self._counts["verdicts"] += 1
            elif kind is Received:
                self._counts[notice.result] += 1  # type: ignore[union-attr] # as its class says
            elif isinstance(notice, TakenOver):
                self._takeovers.append(msgspec.json.encode(notice))
            elif isinstance(notice, Skipped):
                self._counts["skipped"] += notice.count
            elif isinstance(notice, Trust):
                self._rejected += notice.doubted

    def add(self, run: Run, common: _Common) -> None:
        """Count what was done in lanes."""
        self._counts["accepted"] += run.accepted
        self._counts["verdicts"] += run.verdicts
        self._spent.append(common.spent(run.spent))

    def spend(self, event: Event) -> None:
        """Note the steps taken at an event, if it is a limited evaluation."""
        if isinstance(event, Evaluate) and event.steps and self._monitor.spent:
            self._spent.append(np.array([[-1, int(self._monitor.spent), event.steps]], np.int64))

    def write(self, partition: Partition, pipeline: Pipeline, seconds: float) -> None:
        """Write the result as a whole. Raises ConfigError if that fails."""
        final = Path(partition.folder)
        try:
            final.parent.mkdir(parents=True, exist_ok=True)
            with new_path(final) as unfinished:
                unfinished.mkdir()
                self._fill(unfinished, partition, pipeline, seconds)
                shutil.rmtree(final, ignore_errors=True)
        except OSError as error:
            why = error.strerror or error
            raise ConfigError(
                f"{final}: cannot be written: {why}; started again, the audit goes on from there"
            ) from error

    def _fill(self, unfinished: Path, partition: Partition, pipeline: Pipeline, seconds: float) -> None:
        (unfinished / ALERTS).write_text("".join(self._alerts), encoding="utf-8")
        (unfinished / TAKEOVERS).write_bytes(b"".join(line + b"\n" for line in self._takeovers))
        (unfinished / STATE).write_bytes(msgspec.msgpack.encode(pipeline.snapshot(everything=True)))
        np.save(unfinished / SPENT, np.concatenate([np.zeros((0, 3), np.int64), *self._spent]))
        about = {
            "key": partition.key,
            "day": partition.day,
            "bucket": partition.bucket,
            "seconds": seconds,
            "agents": len(pipeline.agents()),
            "rejected": self._rejected,
            **self._counts,
        }
        (unfinished / DONE).write_text(json.dumps(about, indent=1) + "\n")


class _Bucket:
    """The events of a bucket, in order."""

    def __init__(self, pipeline: Pipeline, results: _Results) -> None:
        self._pipeline, self._results = pipeline, results

    def feed(self, partition: Partition) -> None:
        """Process all of a partition."""
        for _, group in groupby(partition.files, key=lambda file: file[0]):
            files = {bucket: path for _, bucket, path in group}
            if ALL not in files:
                raise RecordingError(f"{partition.recording}: evaluations of {partition.day} are missing; is a file?")
            common = _common(files[ALL], Path(files[ALL]).stat().st_size)
            path = files.get(partition.bucket)
            self._run(_Own(read_part(Path(path), _OWN)) if path is not None else None, common)

    def _run(self, own: _Own | None, common: _Common) -> None:
        """Process the events of a part: in lanes as far as can be, the others one by one. None: without messages."""
        pipeline, results = self._pipeline, self._results
        monitor = pipeline.monitor
        messages = NO_MESSAGES if own is None else own.messages(pipeline)
        evaluations = common.evaluations(np.zeros(0, np.int64) if own is None else own.numbers)
        with Run(monitor, messages, evaluations, pipeline.longest) as run:
            while (reason := run.go()) != FINISHED:
                if reason == MESSAGE:
                    assert own is not None
                    event = own.event(run.message)
                    results.take(pipeline.step(event))
                    run.pass_message()
                    continue
                if reason == TURN:
                    results.take(pipeline.turn(common.event(run.evaluation).now))
                    run.pass_turn(int(monitor.spent))
                    continue
                at = run.evaluation - (reason == REPEAT)
                results.take(pipeline.step(common.event(at, int(run.spent[at]))))
                if reason == EVALUATION:
                    run.pass_evaluation(int(monitor.spent) if common.is_evaluation(at) else 0)
        results.add(run, common)


class _Own:
    """Events of the agents of a bucket in a part, in order."""

    def __init__(self, table: Any) -> None:  # noqa: ANN401 - a table of pyarrow
        import pyarrow as pa  # noqa: PLC0415 - an optional extra
        from pyarrow import compute  # noqa: PLC0415 - likewise

        topics = table.column("topic").combine_chunks().dictionary_encode()
        payloads = table.column("payload").combine_chunks().fill_null(b"").cast(pa.large_binary())
        _, offsets, content = payloads.buffers()
        self.numbers = table.column("number").to_numpy()
        self._table = table
        self._topics: list[str] = topics.dictionary.to_pylist()
        self._topic = topics.indices.to_numpy()
        self._is_message = compute.equal(table.column("kind"), "message").to_numpy()
        self._content = memoryview(content or b"")
        first = payloads.offset
        self._begins: Ints = np.frombuffer(offsets, np.int64)[first : first + len(payloads) + 1].copy()
        self._wall, self._ticks = (np.array(table.column(name).to_numpy(), np.float64) for name in ("wall", "ticks"))

    def messages(self, pipeline: Pipeline) -> Messages:
        """Return the messages as columns; what is no message of a valid agent has no agent."""
        names = [pipeline.agent_of(topic) for topic in self._topics]
        agents = list(dict.fromkeys(name for name in names if name is not None))
        places = {name: place for place, name in enumerate(agents)}
        number_of: Ints = np.array([-1 if name is None else places[name] for name in names], np.int64)
        agent = np.where(self._is_message, number_of[self._topic], -1)
        return Messages(agents, agent, self._content, self._begins, self._wall, self._ticks)

    def event(self, at: int) -> Event:
        """Return an event."""
        now, topic = Instant(float(self._wall[at]), float(self._ticks[at])), self._topics[self._topic[at]]
        if self._is_message[at]:
            return Message(now, topic, bytes(self._content[self._begins[at] : self._begins[at + 1]]))
        count, why = (self._table.column(name)[at].as_py() for name in ("number_of", "why"))
        return Lost(now, topic, count, why or "")


class _Common:
    """Evaluations and changes of the connection in a part, in order."""

    def __init__(self, path: Path) -> None:
        import pyarrow as pa  # noqa: PLC0415 - an optional extra
        from pyarrow import compute  # noqa: PLC0415 - likewise

        table = read_part(path, _COMMON)
        connected = compute.equal(table.column("kind"), "connected")
        used = compute.or_(compute.equal(table.column("kind"), "evaluate"), connected)
        table = table.append_column("connected", connected).filter(used)
        self.numbers = table.column("number").to_numpy()
        self._wall, self._ticks = (table.column(name).to_numpy() for name in ("wall", "ticks"))
        self._flag = table.column("flag").fill_null(pa.scalar(value=False)).to_numpy()
        self._steps = table.column("number_of").fill_null(0).to_numpy()
        self._live_since = table.column("live_since").fill_null(-math.inf).to_numpy()
        self._connected = table.column("connected").to_numpy()

    def evaluations(self, numbers: Ints) -> Evaluations:
        """Return the events as columns. `numbers`: of the messages they are between."""
        before = np.searchsorted(self.numbers, numbers)
        ordinary = (self._connected | self._flag).astype(np.int64)
        return Evaluations(before, np.ascontiguousarray(self._ticks), ordinary, self._steps.astype(np.int64))

    def is_evaluation(self, at: int) -> bool:
        """Return whether an event is no change of the connection."""
        return not self._connected[at]

    def event(self, at: int, spent: int = 0) -> Event:
        """Return an event. `spent`: steps already taken at an evaluation."""
        now = Instant(float(self._wall[at]), float(self._ticks[at]))
        flag, steps = bool(self._flag[at]), int(self._steps[at])
        if self._connected[at]:
            return Connected(now, flag)
        return Evaluate(now, flag, max(steps - spent, 1) if steps else 0, float(self._live_since[at]))

    def spent(self, spent: Ints) -> Ints:
        """Return number, steps taken and most steps of each limited evaluation at which steps were taken."""
        found = (spent > 0) & (self._steps > 0) & ~self._connected
        return np.column_stack([self.numbers[found], spent[found], self._steps[found]])


@lru_cache(2)
def _common(path: str, _size: int) -> _Common:
    """Return those of a file: all buckets need them. `_size`: tells a file from a former one of that name."""
    return _Common(Path(path))


def _all_agents(partition: Partition) -> Iterator[Event]:
    """Yield the events of all agents, without heartbeats."""
    recording = ParquetRecording(partition.recording)
    for first in dict.fromkeys(first for first, _, _ in partition.files):
        for table in recording.blocks(first):
            yield from (event for event in events_of(table) if not isinstance(event, Heartbeat))


def _restore(pipeline: Pipeline, folder: Path) -> None:
    state = msgspec.msgpack.decode((folder / STATE).read_bytes(), type=Snapshot)
    pipeline.restore(state.common, state.agents, state.pages)


@lru_cache(1)
def _loaded(config: str) -> Loaded:
    """Return what a configuration names; read once in each process."""
    return assemble(config)
