"""Recordings as folders of Parquet files, by date and bucket of agents.

    recording.json                                      who recorded, with which configuration
    date=2026-11-23/bucket=3/part-000000000000.parquet  messages of the agents of a bucket
    date=2026-11-23/bucket=all/part-...                 the rest: evaluations, heartbeats, the connection
    open-000000000000.rec                               the newest events, while the recording is written

A part is a range of events. It has one file for each bucket, named after the part's first event. A Parquet file cannot
be read before it is complete, so the events of the unfinished part are also in `open-*.rec`. If the process is killed,
a folder therefore loses no more events than a recording in one file. `parquet_recorder.py` writes these folders.
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

from monitor.errors import RecordingError
from monitor.memory import bounded
from monitor.sidecar.events import Event
from monitor.sidecar.recording import Header, Recording
from monitor.sidecar.recording_columns import ALL, events_of, import_arrow
from monitor.stream.shard import MOST_SHARDS

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT: Final = "cfmon-recording-parquet"
VERSION: Final = 2
ABOUT: Final = "recording.json"
PART: Final = 1_048_576
"""Maximum number of events of a part."""

MEMORY: Final = 4 << 30
"""Bytes of address space that reading a file may add to the process, for any sizes that the file declares."""

_PART: Final = re.compile(r"date=([^/]+)/bucket=(all|[0-9]{1,4})/part-([0-9]{12})\.parquet")
_OPEN: Final = re.compile(r"open-([0-9]{12})\.rec")


class About(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Content of recording.json. `steps`: topic of the steps. `block`: number of events written at once."""

    format: str
    v: int
    header: Header
    steps: str
    buckets: Annotated[int, msgspec.Meta(ge=1, le=MOST_SHARDS)]
    block: Annotated[int, msgspec.Meta(ge=1)]


@dataclass(frozen=True, slots=True)
class RecordingFile:
    """One file: the events of a bucket on a date, from event number `first` on.

    Bucket `ALL`: events about all agents.
    """

    date: str
    bucket: int
    first: int
    path: Path


def is_parquet_recording(path: Path) -> bool:
    """Return whether the path is a recording in the form of a folder."""
    return (path / ABOUT).is_file()


def bucket_name(bucket: int) -> str:
    """Return the name of a bucket: its number, or `all`."""
    return "all" if bucket == ALL else str(bucket)


def part_name(date: str, bucket: int, first: int) -> str:
    """Return the relative path of the file with the events of a bucket and a date, from event `first` on (`_PART`)."""
    return f"date={date}/bucket={bucket_name(bucket)}/part-{first:012d}.parquet"


def open_name(first: int) -> str:
    """Return the name of the file with the newest events, from event `first` on (`_OPEN`)."""
    return f"open-{first:012d}.rec"


class ParquetRecording:
    """Recording in a folder: its header, and an iterator over its events. At most one block of events is in memory.

    Attributes:
        path: the folder.
        header: identity of the recorded sidecar.
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
        """True if the last part is unfinished: the recording is still being written, or the monitor was killed."""
        return self._journal is not None

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
        """Yield the blocks of events of all parts. In each block, events are in order."""
        for first in dict.fromkeys(part.first for part in self.parts):
            yield from self.blocks(first)
            self.position += sum(part.path.stat().st_size for part in self.parts if part.first == first)

    def blocks(self, first: int) -> Iterator[pa.Table]:
        """Yield the blocks of the part whose first event is `first`, events in order.

        Raises RecordingError if unreadable.
        """
        files = [part.path for part in self.parts if part.first == first]
        with contextlib.ExitStack() as opened:
            opened.enter_context(_readable(self.path, self._arrow))
            yield from self._in_order(opened, files)

    def _in_order(self, opened: contextlib.ExitStack, files: Sequence[Path]) -> Iterator[pa.Table]:
        from pyarrow import parquet  # noqa: PLC0415 - an optional extra

        blocks: dict[int, list[tuple[Any, int]]] = {}
        for path in files:
            with bounded(path, MEMORY):
                file = opened.enter_context(parquet.ParquetFile(path, page_checksum_verification=True))
                _check_rows(path, file)
                for group in range(file.num_row_groups):
                    # The file's statistics are not used, because damaged statistics would end the process.
                    numbers = file.read_row_group(group, columns=["number"])
                    block = numbers.column("number")[0].as_py() // self._block
                    blocks.setdefault(block, []).append((file, group))
        for _, groups in sorted(blocks.items()):
            with bounded(self.path, MEMORY):
                table = self._arrow.concat_tables(file.read_row_group(group) for file, group in groups)
                table = table.sort_by("number")
            yield table

    def _parts(self) -> list[RecordingFile]:
        found = []
        for path in self.path.glob("date=*/bucket=*/part-*.parquet"):
            match = _PART.fullmatch(path.relative_to(self.path).as_posix())
            if match is None:
                continue
            bucket = ALL if match[2] == "all" else int(match[2])
            if self._journal is None or int(match[3]) < self._journal[0]:
                found.append(RecordingFile(match[1], bucket, int(match[3]), path))
        return sorted(found, key=lambda part: (part.first, part.bucket))


def read_part(path: Path, columns: Sequence[str]) -> pa.Table:
    """Return columns of a file. Raises RecordingError if it cannot be read."""
    arrow = import_arrow(path)
    from pyarrow import parquet  # noqa: PLC0415 - an optional extra

    with (
        _readable(path, arrow),
        bounded(path, MEMORY),
        parquet.ParquetFile(path, page_checksum_verification=True) as file,
    ):
        _check_rows(path, file)
        return file.read(columns=list(columns))


def _check_rows(path: Path, file: Any) -> None:  # noqa: ANN401 - pyarrow is optional
    """Raise RecordingError if a file declares more rows than a part may have.

    A column that repeats one value is small on disk, even with very many rows.
    """
    if file.metadata.num_rows > PART:
        raise RecordingError(f"{path}: has {file.metadata.num_rows:,} events; a part has {PART:,} at most")


@contextlib.contextmanager
def _readable(path: Path, arrow: Any) -> Iterator[None]:  # noqa: ANN401 - pyarrow is optional
    """Convert errors of pyarrow to RecordingError. A damaged file can cause errors of many classes."""
    arrow.allocate_buffer(1)  # pyarrow reserves address space once; do not count it for the file
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
