"""Rows of an MCAP file (extra `mcap`) whose messages are JSON, as robots and simulators log them. Impure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from monitor.authoring.learning.row_files import LINE, NO_MAP, RecordRows, flat, refuse_rows, size_of
from monitor.errors import RecordingError, brief, to_install


class McapRows(RecordRows):
    """Messages of one topic, a map each, in the order of log times. `topic`: needed if several topics have JSON."""

    def __init__(self, path: Path, topic: str) -> None:
        try:
            from mcap.reader import make_reader  # noqa: PLC0415 - an optional extra
        except ImportError as error:
            raise RecordingError(f"{path}: needs mcap: {to_install('mcap')}") from error
        self.path = path
        self._topic, self._reader = topic, make_reader
        self._decode = msgspec.json.Decoder(dict[str, Any]).decode

    def records(self) -> Iterator[Mapping[str, Any] | str]:
        """Yield the messages, flat; for one that cannot be read, the reason. RecordingError: the file is damaged."""
        try:
            with self.path.open("rb") as file:
                reader = self._reader(file, validate_crcs=True)
                topic, size = self._chosen(reader.get_summary()), size_of(self.path)
                for number, (_, _, message) in enumerate(reader.iter_messages(topics=[topic]), 1):
                    refuse_rows(self.path, number, size)
                    self.position = file.tell()
                    self.taken += len(message.data)
                    yield self._record(message.data, f"{self.path}, message {number} of {topic}")
        except (RecordingError, MemoryError):
            raise
        except Exception as error:  # of the file, of its chunks, of their compression
            raise RecordingError(f"{self.path}: cannot be read: {brief(error)}") from error

    def _record(self, data: bytes, where: str) -> Mapping[str, Any] | str:
        if len(data) > LINE:
            raise RecordingError(f"{where}: is longer than {LINE >> 20} MiB")
        try:
            return flat(self._decode(data))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return NO_MAP

    def _chosen(self, summary: Any) -> str:  # noqa: ANN401 - mcap is optional
        if summary is None:
            raise RecordingError(
                f"{self.path}: has no summary, as if its recording was cut off; `mcap recover` adds one"
            )
        topics = sorted({each.topic for each in summary.channels.values() if each.message_encoding == "json"})
        if self._topic in topics or len(topics) == 1:
            return self._topic if self._topic in topics else topics[0]
        if not topics:
            raise RecordingError(f"{self.path}: no topic has JSON messages; other encodings are not read")
        raise RecordingError(
            f"{self.path}: several topics have JSON messages; give one of {', '.join(topics)} by --topic"
        )
