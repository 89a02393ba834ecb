"""Open or create a recording of either kind: one file, or a folder of Parquet files."""

from __future__ import annotations

from pathlib import Path

from monitor.sidecar.parquet_recorder import ParquetRecorder
from monitor.sidecar.parquet_recording import ParquetRecording, is_parquet_recording
from monitor.sidecar.recording import Header, Recorder, Recording


def new_recorder(path: Path, header: Header, pattern: str, *, live: bool = True) -> Recorder | ParquetRecorder:
    """Return the writer of a new recording, in Parquet if the name ends in `.parquet`.

    Raises RecordingError if the path exists. `pattern`: topic of the steps. `live`: True if the writer is a running
    monitor, which must not wait long.
    """
    if path.suffix == ".parquet":
        return ParquetRecorder(path, header, pattern, live=live)
    return Recorder(path, header)


def open_recording(path: Path) -> Recording | ParquetRecording:
    """Return the recording at a path. Raises RecordingError if it cannot be read or is no recording."""
    return ParquetRecording(path) if is_parquet_recording(path) else Recording(path)


def is_recording(path: Path) -> bool:
    """Return whether a path is a recording of the monitor, judged by its first bytes or by its files."""
    if is_parquet_recording(path):
        return True
    try:
        with path.open("rb") as file:
            return b"cfmon-recording" in file.read(64)
    except OSError:
        return False
