"""Both kinds of recordings: one file, and a folder of Parquet files."""

from __future__ import annotations

from pathlib import Path

from monitor.sidecar.parquet_recorder import ParquetRecorder
from monitor.sidecar.parquet_recording import ParquetRecording, is_parquet_recording
from monitor.sidecar.recording import Header, Recorder, Recording


def new_recorder(path: Path, header: Header, pattern: str, *, live: bool = True) -> Recorder | ParquetRecorder:
    """Return the writer of a new recording: Parquet if the name ends in `.parquet`. RecordingError if it exists.

    `pattern`: topic of the steps. `live`: a monitor that must not wait writes it.
    """
    if path.suffix == ".parquet":
        return ParquetRecorder(path, header, pattern, live=live)
    return Recorder(path, header)


def open_recording(path: Path) -> Recording | ParquetRecording:
    """Return a recording. RecordingError if it cannot be read or is none."""
    return ParquetRecording(path) if is_parquet_recording(path) else Recording(path)


def is_recording(path: Path) -> bool:
    """Return whether a path is a recording of the monitor, by how it begins."""
    if is_parquet_recording(path):
        return True
    try:
        with path.open("rb") as file:
            return b"cfmon-recording" in file.read(64)
    except OSError:
        return False
