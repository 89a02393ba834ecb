"""One partition of an audit: a bucket's events of one day through the code of `run`, from the state of the day before.

As in a shard, the monitor of a bucket sees its agents only; evaluations and the connection concern every bucket. An
evaluation that has no effect on a bucket is left out (`Monitor.idle_until`). Heartbeats are left out: they repeat.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from monitor.errors import RecordingError
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
_COMMON: Final = ("number", "kind", "wall", "ticks", "flag", "number_of")


def run_partition(partition: Partition, _after: object = None) -> str:
    """Compute a partition, unless it is there; return its key. `_after`: orders tasks of Dask, and is not used.

    The result is in `partition.folder` as a whole or not at all. Raises RecordingError.
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
            results.take(event, pipeline.step(event))
    else:
        _Bucket(pipeline, monitor, results).feed(partition)
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
        self._spent: list[tuple[int, int, int]] = []
        self._counts: Counter[str] = Counter()
        self._rejected = 0

    def take(self, event: Event, effects: Effects, number: int = -1) -> None:
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
        if isinstance(event, Evaluate) and event.steps and self._monitor.spent:
            self._spent.append((number, int(self._monitor.spent), event.steps))

    def write(self, partition: Partition, pipeline: Pipeline, seconds: float) -> None:
        """Write the result beside its place, and then move it there."""
        final = Path(partition.folder)
        unfinished = final.with_name(f"unfinished-{final.name}-{os.getpid()}")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        (unfinished / ALERTS).write_text("".join(self._alerts), encoding="utf-8")
        (unfinished / TAKEOVERS).write_bytes(b"".join(line + b"\n" for line in self._takeovers))
        (unfinished / STATE).write_bytes(msgspec.msgpack.encode(pipeline.snapshot(everything=True)))
        np.save(unfinished / SPENT, np.array(self._spent, np.int64).reshape(-1, 3))
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
        shutil.rmtree(final, ignore_errors=True)
        unfinished.rename(final)


class _Bucket:
    """The events of a bucket, in order."""

    def __init__(self, pipeline: Pipeline, monitor: Monitor, results: _Results) -> None:
        self._pipeline, self._monitor, self._results = pipeline, monitor, results

    def feed(self, partition: Partition) -> None:
        """Process all of a partition."""
        for _, group in groupby(partition.files, key=lambda file: file[0]):
            files = {bucket: path for _, bucket, path in group}
            if ALL not in files:
                raise RecordingError(f"{partition.recording}: evaluations of {partition.day} are missing; is a file?")
            common = _common(files[ALL], Path(files[ALL]).stat().st_size)
            at = 0
            if partition.bucket in files:
                own = read_part(Path(files[partition.bucket]), _OWN)
                stops = np.searchsorted(common.numbers, own.column("number").to_numpy()).tolist()
                for stop, event in zip(stops, _own_events(own), strict=True):
                    if at < stop:
                        self._evaluate(common, at, stop)
                        at = stop
                    self._results.take(event, self._pipeline.step(event))
            self._evaluate(common, at, len(common.numbers))

    def _evaluate(self, common: _Common, at: int, stop: int) -> None:
        """Process the common events from `at` to `stop`, without those that have no effect."""
        while (at := common.next(at, stop, self._monitor.idle_until)) < stop:
            event = common.event(at)
            self._results.take(event, self._pipeline.step(event), int(common.numbers[at]))
            at += 1


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
        self._newest = np.maximum.accumulate(self._ticks).tolist()
        self._flag = table.column("flag").fill_null(pa.scalar(value=False)).to_numpy()
        self._steps = table.column("number_of").fill_null(0).to_numpy()
        self._connections = np.flatnonzero(table.column("connected").to_numpy()).tolist()

    def next(self, at: int, stop: int, idle_until: float) -> int:
        """Return the place of the next event that may have an effect; `stop` if there is none before."""
        if at >= stop or idle_until < self._newest[at]:
            return at
        place = bisect_left(self._connections, at)
        connected = self._connections[place] if place < len(self._connections) else stop
        return min(bisect_left(self._newest, idle_until, at, stop), connected, stop)

    def event(self, at: int) -> Event:
        """Return an event."""
        now = Instant(float(self._wall[at]), float(self._ticks[at]))
        flag = bool(self._flag[at])
        place = bisect_left(self._connections, at)
        if place < len(self._connections) and self._connections[place] == at:
            return Connected(now, flag)
        return Evaluate(now, flag, int(self._steps[at]))


@lru_cache(2)
def _common(path: str, _size: int) -> _Common:
    """Return those of a file: all buckets need them. `_size`: tells a file from a former one of that name."""
    return _Common(Path(path))


def _own_events(table: Any) -> Iterator[Event]:  # noqa: ANN401 - a table of pyarrow
    columns = [table.column(name).to_pylist() for name in _OWN[1:]]
    for kind, wall, ticks, topic, payload, count, why in zip(*columns, strict=True):
        now = Instant(wall, ticks)
        yield Message(now, topic, payload) if kind == "message" else Lost(now, topic, count, why or "")


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
