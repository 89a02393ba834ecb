"""Evaluate one partition of an audit, a bucket's events of one day, with the code of `run`.

The evaluation begins with the state that the bucket had after the previous day.

As in a shard, the monitor of a bucket sees only the bucket's agents. Evaluations and changes of the connection are
events of every bucket. Heartbeats are left out, because they only repeat messages.
"""

from __future__ import annotations

import json
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

from monitor.atomic import new_path
from monitor.audit.plan import DONE, Partition
from monitor.errors import ConfigError, RecordingError
from monitor.runtime.monitor import Monitor
from monitor.sidecar.config.load import Loaded, assemble
from monitor.sidecar.effects import Effects
from monitor.sidecar.events import Evaluate, Event, Heartbeat
from monitor.sidecar.parquet_recording import ParquetRecording, read_part
from monitor.sidecar.pipeline import Pipeline, Snapshot
from monitor.sidecar.recording_columns import ALL, COLUMNS, events_of, import_arrow
from monitor.types.notices import Judged, Received, Skipped, TakenOver, Trust

ALERTS: Final = "alerts.jsonl"
TAKEOVERS: Final = "takeovers.jsonl"
SPENT: Final = "spent.npy"
STATE: Final = "state.msgpack"


def run_partition(partition: Partition) -> str:
    """Compute a partition unless its result exists; return its key.

    The result is written to `partition.folder` completely or not at all. Raises RecordingError; ConfigError if the
    result cannot be written.
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
    else:
        for number, event in _one_bucket(partition):
            results.take(pipeline.step(event))
            results.spend(number, event)
    results.write(partition, pipeline, time.process_time() - began)
    return partition.key


def alert_line(topic: str, payload: bytes) -> str:
    """Return a publication in the form that `cfmon replay` prints."""
    return f'{{"topic":"{topic}","payload":{payload.decode() or "null"}}}\n'


class _Results:
    """Findings of one partition."""

    def __init__(self, monitor: Monitor) -> None:
        self._monitor = monitor
        self._alerts: list[str] = []
        self._takeovers: list[bytes] = []
        self._spent: list[tuple[int, int, int]] = []
        self._counts: Counter[str] = Counter()
        self._rejected = 0

    def take(self, effects: Effects) -> None:
        """Collect the effects of an event."""
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

    def spend(self, number: int, event: Event) -> None:
        """Note the number of evaluated steps, if the event is an evaluation with a limit on steps.

        `number`: the event's number in the recording.
        """
        if isinstance(event, Evaluate) and event.steps and self._monitor.spent:
            self._spent.append((number, int(self._monitor.spent), event.steps))

    def write(self, partition: Partition, pipeline: Pipeline, seconds: float) -> None:
        """Write the result completely or not at all. Raises ConfigError if this fails."""
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


def _one_bucket(partition: Partition) -> Iterator[tuple[int, Event]]:
    """Yield the events of a bucket in order: messages of its agents, and evaluations, which concern all agents.

    Each event comes with its number in the recording.
    """
    for _, group in groupby(partition.files, key=lambda file: file[0]):
        files = {bucket: path for _, bucket, path in group}
        if ALL not in files:
            raise RecordingError(f"{partition.recording}: evaluations of {partition.day} are missing; add their file")
        table = _common(files[ALL], Path(files[ALL]).stat().st_size)
        if (path := files.get(partition.bucket)) is not None:
            own = read_part(Path(path), COLUMNS)
            table = import_arrow(path).concat_tables([own, table], promote_options="permissive").sort_by("number")
        yield from zip(table.column("number").to_pylist(), events_of(table), strict=True)


@lru_cache(2)
def _common(path: str, _size: int) -> Any:  # noqa: ANN401 - a table of pyarrow
    """Return the events in a file that all buckets need: evaluations, and changes of the connection.

    `_size`: size of the file. It is part of the cache key, so that the events of a former file with the same name are
    not used.
    """
    table = read_part(Path(path), COLUMNS)
    from pyarrow import compute  # noqa: PLC0415 - an optional extra, as `read_part` has found

    kinds = table.column("kind")
    return table.filter(compute.or_(compute.equal(kinds, "evaluate"), compute.equal(kinds, "connected")))


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
    """Return the model and policies that a configuration names. They are read once in each process."""
    return assemble(config)
