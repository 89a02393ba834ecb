"""Writer of recordings as folders of Parquet files. `parquet_recording.py` documents the files."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any, Final

import msgspec

from monitor.alarm.message import rfc3339
from monitor.atomic import write_file
from monitor.errors import RecordingError
from monitor.sidecar.events import Event
from monitor.sidecar.parquet_recording import ABOUT, FORMAT, PART, VERSION, About, open_name, part_name
from monitor.sidecar.recording import Header, Recorder
from monitor.sidecar.recording_columns import EventRows, import_arrow

BUCKETS: Final = 16
"""Default number of buckets for the agents."""

LIVE_BLOCK: Final = 8_192
"""Events between two writes of a running monitor. The number is small, because steps wait during a write."""

BLOCK: Final = 131_072
"""Events between two writes if no steps wait. All of them are in memory at the same time."""

DAY: Final = 86_400
_OPTIONS: Final = {"compression": "zstd", "write_page_checksum": True}


class ParquetRecorder:
    """Writer of a recording, to a new folder. Raises RecordingError if it exists or cannot be written.

    Args:
        folder: the new folder.
        header: identity of the recorded sidecar.
        pattern: topic of the steps, with one `+` for the agent's name.
        buckets: number of buckets for the agents.
        live: True for a running monitor: the newest events are also in `open-*.rec`, and writes are frequent.
    """

    def __init__(
        self, folder: Path, header: Header, pattern: str, *, buckets: int = BUCKETS, live: bool = True
    ) -> None:
        import_arrow(folder)
        self._folder, self._header, self._live = folder, header, live
        self._block = LIVE_BLOCK if live else BLOCK
        self._rows = EventRows(pattern, buckets)
        self._number = self._first = 0
        self._day: float | None = None
        self._writers: dict[int, tuple[Path, Any]] = {}
        self._journal: Recorder | None = None
        about = About(FORMAT, VERSION, header, pattern, buckets, self._block)
        try:
            folder.mkdir()
            write_file(folder / ABOUT, msgspec.json.format(msgspec.json.encode(about)))
        except FileExistsError:
            raise RecordingError(f"{folder}: already exists; choose another name or move it away") from None
        except OSError as error:
            with contextlib.suppress(OSError):
                folder.rmdir()
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
        """Close files that cannot be written to, and ignore errors. The events in `open-*.rec` stay there."""
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
        return self._folder / open_name(self._first)

    def _path(self, bucket: int) -> Path:
        assert self._day is not None, "there is an event"
        return self._folder / f"{part_name(_date(self._day * DAY), bucket, self._first)}.new"


def _date(wall: float) -> str:
    """Return the date in UTC; `unknown` outside the years 0001 to 9999."""
    return (rfc3339(wall) or "unknown")[:10]
