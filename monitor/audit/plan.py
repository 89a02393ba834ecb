"""Plan an audit: its partitions (each is a bucket of agents on one date), and the inputs of each partition."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Final

from monitor._version import __version__
from monitor.errors import ConfigError, RecordingError
from monitor.sidecar.config.load import Loaded
from monitor.sidecar.parquet_recording import ParquetRecording, RecordingFile, bucket_name, is_parquet_recording
from monitor.sidecar.recording_columns import ALL

DONE: Final = "done.json"


@dataclass(frozen=True, slots=True)
class Day:
    """Consecutive parts of one date in one recording.

    `name`: the date. If the clock went back over midnight, or if another recording has the same date, the date is
    followed by `~2`, and so on. `fresh`: whether no earlier state of the agents is known.
    """

    name: str
    recording: ParquetRecording
    parts: tuple[RecordingFile, ...]
    fresh: bool


@dataclass(frozen=True, slots=True)
class Partition:
    """One bucket on one day. The bucket `ALL` has all agents, in the order in which one process received them.

    `key`: digest of all inputs of its result. `folder`: folder of the result. `previous`: result folder of the
    bucket's previous day, with the state from which the partition continues; None if it begins anew. `files`: the
    recording's files to read, as (first event, bucket, path).
    """

    config: str
    client_id: str
    recording: str
    bucket: int
    day: str
    files: tuple[tuple[int, int, str], ...]
    key: str
    folder: str
    previous: str | None

    @property
    def name(self) -> str:
        """Name of the partition, for messages."""
        return f"bucket {bucket_name(self.bucket)} on {self.day}"

    @property
    def done(self) -> bool:
        """True if the result exists."""
        try:
            return bool(json.loads((Path(self.folder) / DONE).read_bytes())["key"] == self.key)
        except (OSError, ValueError, KeyError):
            return False


def opened(paths: Sequence[Path], loaded: Loaded) -> list[ParquetRecording]:
    """Open recordings.

    Raises RecordingError or ConfigError if a recording is not Parquet or does not fit the configuration.
    """
    found: list[ParquetRecording] = []
    for path in paths:
        if not is_parquet_recording(path):
            there = "is no recording as Parquet" if path.exists() else "there is no such folder"
            raise RecordingError(f"{path}: {there}; make one with `cfmon recording convert {path} --to NAME.parquet`")
        recording = ParquetRecording(path)
        if recording.steps != loaded.topics.steps:
            raise ConfigError(
                f"mqtt.steps is {loaded.topics.steps}, and {path} was recorded with {recording.steps}; make them equal"
            )
        if found and recording.buckets != found[0].buckets:
            raise RecordingError(f"{path}: has {recording.buckets} buckets, and {paths[0]} has {found[0].buckets}")
        if not recording.parts:
            raise RecordingError(f"{path}: has no complete part yet; those of a day are complete at midnight (UTC)")
        found.append(recording)
    return found


def days_of(recordings: Sequence[ParquetRecording], loaded: Loaded) -> list[Day]:
    """Return the days of all recordings, in order.

    A recording continues the previous recording like a restarted monitor. If there is a store, it continues with the
    stored state.
    """
    found: list[Day] = []
    seen: dict[str, int] = {}
    for number, recording in enumerate(recordings):
        fresh = number == 0 or loaded.config.store.path is None
        for date, parts in groupby(recording.parts, key=lambda part: part.date):
            seen[date] = seen.get(date, 0) + 1
            name = date if seen[date] == 1 else f"{date}~{seen[date]}"
            found.append(Day(name, recording, tuple(parts), fresh))
            fresh = False
    return found


def partitions(
    days: Sequence[Day], loaded: Loaded, config: Path, out: Path, *, in_order: bool
) -> dict[int, list[Partition]]:
    """Return the partitions of each bucket, in order. `in_order`: use one bucket for all agents."""
    buckets = [ALL] if in_order else sorted({part.bucket for day in days for part in day.parts} - {ALL})
    return {bucket: list(_of_bucket(bucket, days, loaded, config, out)) for bucket in buckets}


def _of_bucket(bucket: int, days: Sequence[Day], loaded: Loaded, config: Path, out: Path) -> Iterator[Partition]:
    previous: Partition | None = None
    for day in days:
        parts = [part for part in day.parts if bucket == ALL or part.bucket in (bucket, ALL)]
        before = None if day.fresh or previous is None else previous
        header = day.recording.header
        depends = [
            __version__, loaded.config.digest, loaded.inputs_digest, header.client_id, bucket, in_files(parts),
            None if before is None else before.key,
        ]  # fmt: skip
        folder = out / "partitions" / f"bucket={bucket_name(bucket)}" / f"date={day.name}"
        previous = Partition(
            config=str(config),
            client_id=header.client_id,
            recording=str(day.recording.path),
            bucket=bucket,
            day=day.name,
            files=tuple((part.first, part.bucket, str(part.path)) for part in parts),
            key=hashlib.sha256(json.dumps(depends).encode()).hexdigest(),
            folder=str(folder),
            previous=None if before is None else before.folder,
        )
        yield previous


def in_files(parts: Sequence[RecordingFile]) -> list[tuple[str, int, int, int]]:
    """Return data that identify the content of parts, without reading the content."""
    stats = [(part, part.path.stat()) for part in parts]
    return [(part.path.name, part.bucket, stat.st_size, stat.st_mtime_ns) for part, stat in stats]
