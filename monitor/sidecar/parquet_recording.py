"""Recordings as folders of Parquet files, by date and bucket of agents.

    recording.json                                      who recorded, with which configuration
    date=2026-11-23/bucket=3/part-000000000000.parquet  messages of the agents of a bucket
    date=2026-11-23/bucket=all/part-...                 the rest: evaluations, heartbeats, the connection
    open-000000000000.rec                               the newest events, while the recording is written

A part is a range of events, in one file for each bucket, named after its first event. A Parquet file cannot be read
before it is complete, so the events of the part that is being written are in `open-*.rec` too: a process that is killed
loses no more of them than with a recording in one file.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Any, Final, Self

import msgspec

from monitor.alarm.message import rfc3339
from monitor.errors import RecordingError
from monitor.sidecar.events import Event
from monitor.sidecar.recording import Header, Recorder, Recording
from monitor.sidecar.recording_table import ALL, Rows, events_of, import_arrow
from monitor.stream.shard import MOST_SHARDS

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "ABOUT",
    "BUCKETS",
    "ParquetRecorder",
    "ParquetRecording",
    "Part",
    "bucket_name",
    "is_parquet_recording",
    "read_part",
]

FORMAT: Final = "cfmon-recording-parquet"
VERSION: Final = 1
ABOUT: Final = "recording.json"
_PART: Final = re.compile(r"date=([^/]+)/bucket=(all|[0-9]{1,4})/part-([0-9]{12})\.parquet")
_OPEN: Final = re.compile(r"open-([0-9]{12})\.rec")

BUCKETS: Final = 16
"""Buckets that the agents are divided into by default."""

LIVE_BLOCK: Final = 8_192
"""Events between two writes of a running monitor: few, because steps wait meanwhile."""

BLOCK: Final = 131_072
"""The same, where nobody waits. They are in memory at once."""

PART: Final = 1_048_576
"""Maximum number of events of a part."""

DAY: Final = 86_400
_OPTIONS: Final = {"compression": "zstd", "write_page_checksum": True}


class About(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Content of recording.json. `steps`: topic of the steps. `block`: events that are written at once."""

    format: str
    v: int
    header: Header
    steps: str
    buckets: Annotated[int, msgspec.Meta(ge=1, le=MOST_SHARDS)]
    block: Annotated[int, msgspec.Meta(ge=1)]


@dataclass(frozen=True, slots=True)
class Part:
    """One file: a bucket (`ALL`: what concerns all agents) on a date, from event number `first` on."""

    date: str
    bucket: int
    first: int
    path: Path


def is_parquet_recording(path: Path) -> bool:
    """Return whether the path is a recording as a folder."""
    return (path / ABOUT).is_file()


def bucket_name(bucket: int) -> str:
    """Return the name of a bucket: its number, or `all`."""
    return "all" if bucket == ALL else str(bucket)


class ParquetRecorder:
    """Writer of a recording, to a new folder. Raises RecordingError if it exists or cannot be written.

    Args:
        folder: the new folder.
        header: who recorded.
        pattern: topic of the steps, with one `+` for the agent's name.
        buckets: number of buckets for the agents.
        live: keep the newest events in `open-*.rec` too, and write often.
    """

    def __init__(
        self, folder: Path, header: Header, pattern: str, *, buckets: int = BUCKETS, live: bool = True
    ) -> None:
        import_arrow(folder)
        self._folder, self._header, self._live = folder, header, live
        self._block = LIVE_BLOCK if live else BLOCK
        self._rows = Rows(pattern, buckets)
        self._number = self._first = 0
        self._day: float | None = None
        self._writers: dict[int, tuple[Path, Any]] = {}
        self._journal: Recorder | None = None
        about = About(FORMAT, VERSION, header, pattern, buckets, self._block)
        try:
            folder.mkdir()
            (folder / ABOUT).write_bytes(msgspec.json.format(msgspec.json.encode(about)))
        except FileExistsError:
            raise RecordingError(f"{folder}: already exists; choose another name or move it away") from None
        except OSError as error:
            raise RecordingError(f"{folder}: cannot be written: {error.strerror}") from error
        self._begin_part()

    def write(self, event: Event) -> None:
        """Append one event."""
        day = event.now.wall // DAY
        if self._number > self._first and (day != self._day or self._number - self._first >= PART):
            self._end_part()
            self._begin_part()
        self._day = day
        if self._journal is not None:
            self._journal.write(event)
        self._rows.add(self._number, event)
        self._number += 1
        if self._number % self._block == 0:
            self._write_block()

    def flush(self) -> None:
        """Flush written events to the operating system."""
        if self._journal is not None:
            self._journal.flush()

    def close(self) -> None:
        """Complete the last part."""
        self._end_part()

    def abandon(self) -> None:
        """Close files that cannot be written to, ignoring errors; what is in `open-*.rec` stays."""
        if self._journal is not None:
            self._journal.abandon()
        for path, writer in self._writers.values():
            with contextlib.suppress(OSError, ValueError):  # pyarrow's errors are ValueErrors
                writer.close()
            with contextlib.suppress(OSError):
                path.unlink()

    def _begin_part(self) -> None:
        self._first = self._number
        if self._live:
            self._journal = Recorder(self._open, self._header)
            self._journal.flush()

    def _end_part(self) -> None:
        self._write_block()
        for _, writer in self._writers.values():
            writer.close()
        for path, _ in self._writers.values():
            path.rename(path.with_suffix(""))
        self._writers = {}
        if self._journal is not None:
            self._journal.close()
            self._open.unlink()
            self._journal = None

    def _write_block(self) -> None:
        from pyarrow import parquet  # noqa: PLC0415 - an optional extra

        for bucket, table in self._rows.take():
            if bucket not in self._writers:
                path = self._path(bucket)
                path.parent.mkdir(parents=True, exist_ok=True)
                self._writers[bucket] = path, parquet.ParquetWriter(path, table.schema, **_OPTIONS)
            self._writers[bucket][1].write_table(table)

    @property
    def _open(self) -> Path:
        return self._folder / f"open-{self._first:012d}.rec"

    def _path(self, bucket: int) -> Path:
        assert self._day is not None, "there is an event"
        folder = self._folder / f"date={_date(self._day * DAY)}" / f"bucket={bucket_name(bucket)}"
        return folder / f"part-{self._first:012d}.parquet.new"


class ParquetRecording:
    """Recording in a folder: its header, and an iterator over its events. Memory is bounded by a block of events.

    Attributes:
        path: the folder.
        header: who recorded.
        steps: topic of the steps.
        buckets: number of buckets.
        parts: files of complete parts, by first event and bucket.
        position: bytes read so far.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._arrow = import_arrow(path)
        about = _about(self.path)
        self.header, self.steps, self.buckets, self._block = about.header, about.steps, about.buckets, about.block
        self._journal = max(
            ((found, each) for each in self.path.iterdir() if (found := _number(each)) >= 0), default=None
        )
        self.parts = self._parts()
        self.position = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Do nothing: files are open only while they are read."""

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return sum(part.path.stat().st_size for part in self.parts)

    @property
    def is_open(self) -> bool:
        """True if its newest events are in no complete part: it is being written, or the monitor was killed."""
        return self._journal is not None

    def dates(self) -> list[str]:
        """Return the dates of the parts, in order of the recording."""
        return list(dict.fromkeys(part.date for part in self.parts))

    def __iter__(self) -> Iterator[Event]:
        number = 0
        for table in self._tables():
            first, last = table.column("number")[0].as_py(), table.column("number")[-1].as_py()
            if first != number or last - first != table.num_rows - 1:
                raise RecordingError(f"{self.path}: event {number} is missing; is one of the files missing?")
            try:
                yield from events_of(table)
            except (ValueError, TypeError, KeyError) as error:
                raise RecordingError(f"{self.path}: an event from {number} to {last} is damaged: {error}") from None
            number += table.num_rows
        if self._journal is not None:
            if self._journal[0] != number:
                raise RecordingError(f"{self.path}: event {number} is missing; is one of the files missing?")
            with Recording(self._journal[1]) as newest:
                yield from newest

    def _tables(self) -> Iterator[pa.Table]:
        """Yield the blocks of events, each in order."""
        for first in dict.fromkeys(part.first for part in self.parts):
            yield from self.blocks(first)
            self.position += sum(part.path.stat().st_size for part in self.parts if part.first == first)

    def blocks(self, first: int) -> Iterator[pa.Table]:
        """Yield the blocks of events of the part with this first event, each in order. RecordingError: unreadable."""
        files = [part.path for part in self.parts if part.first == first]
        with contextlib.ExitStack() as opened:
            opened.enter_context(_readable(self.path, self._arrow))
            yield from self._in_order(opened, files)

    def _in_order(self, opened: contextlib.ExitStack, files: Sequence[Path]) -> Iterator[pa.Table]:
        from pyarrow import parquet  # noqa: PLC0415 - an optional extra

        blocks: dict[int, list[tuple[Any, int]]] = {}
        for path in files:
            file = opened.enter_context(parquet.ParquetFile(path, page_checksum_verification=True))
            for group in range(file.num_row_groups):
                numbers = file.read_row_group(group, columns=["number"])  # damaged statistics would end the process
                block = numbers.column("number")[0].as_py() // self._block
                blocks.setdefault(block, []).append((file, group))
        for _, groups in sorted(blocks.items()):
            yield self._arrow.concat_tables(file.read_row_group(group) for file, group in groups).sort_by("number")

    def _parts(self) -> list[Part]:
        found = []
        for path in self.path.glob("date=*/bucket=*/part-*.parquet"):
            match = _PART.fullmatch(path.relative_to(self.path).as_posix())
            if match is None:
                continue
            bucket = ALL if match[2] == "all" else int(match[2])
            if self._journal is None or int(match[3]) < self._journal[0]:
                found.append(Part(match[1], bucket, int(match[3]), path))
        return sorted(found, key=lambda part: (part.first, part.bucket))


def read_part(path: Path, columns: Sequence[str]) -> pa.Table:
    """Return columns of a file. RecordingError if it cannot be read."""
    arrow = import_arrow(path)
    from pyarrow import parquet  # noqa: PLC0415 - an optional extra

    with _readable(path, arrow), parquet.ParquetFile(path, page_checksum_verification=True) as file:
        return file.read(columns=list(columns))


@contextlib.contextmanager
def _readable(path: Path, arrow: Any) -> Iterator[None]:  # noqa: ANN401 - pyarrow is optional
    """Turn errors of pyarrow, of many classes if a file is damaged, into RecordingError."""
    try:
        yield
    except (arrow.ArrowException, OSError, KeyError, ValueError, TypeError, IndexError) as error:
        raise RecordingError(f"{path}: cannot be read: {str(error).splitlines()[0][:200]}") from error


def _about(folder: Path) -> About:
    try:
        about = msgspec.json.decode((folder / ABOUT).read_bytes(), type=About)
    except OSError as error:
        raise RecordingError(f"{folder}: is not a recording: {ABOUT} cannot be read: {error.strerror}") from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise RecordingError(f"{folder / ABOUT}: is damaged: {error}") from error
    if about.format != FORMAT or about.v != VERSION:
        raise RecordingError(f"{folder}: has format {about.format!r}, version {about.v}; this program reads {VERSION}")
    return about


def _number(path: Path) -> int:
    match = _OPEN.fullmatch(path.name)
    return -1 if match is None else int(match[1])


def _date(wall: float) -> str:
    """Return the date in UTC; `unknown` outside the years 0001 to 9999."""
    return (rfc3339(wall) or "unknown")[:10]
