"""Rows of an MCAP file (extra `mcap`) whose messages are JSON, as robots and simulators log them. Impure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from monitor.errors import RecordingError, to_install
from monitor.learning.files import RecordRows, flat

__all__ = ["McapRows"]


class McapRows(RecordRows):
    """Messages of one topic, a map each, in the order of log times. `topic`: needed if several topics have JSON."""

    def __init__(self, path: Path, topic: str) -> None:
        try:
            from mcap.reader import make_reader  # noqa: PLC0415 - an optional extra
        except ImportError as error:
            raise RecordingError(f"{path}: needs mcap: {to_install('mcap')}") from error
        self.path = path
        self._topic, self._reader = topic, make_reader

    def records(self) -> Iterator[Mapping[str, Any]]:
        """Yield the messages, flat. RecordingError: a message is no JSON map, or the file is damaged."""
        decode = msgspec.json.Decoder(dict[str, Any]).decode
        try:
            with self.path.open("rb") as file:
                reader = self._reader(file, validate_crcs=True)
                topic = self._chosen(reader.get_summary())
                for number, (_, _, message) in enumerate(reader.iter_messages(topics=[topic]), 1):
                    try:
                        yield flat(decode(message.data))
                    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                        where = f"{self.path}, message {number} of {topic}"
                        raise RecordingError(f"{where}: not a JSON map ({error})") from error
                    self.position = file.tell()
        except RecordingError:
            raise
        except Exception as error:  # of the file, of its chunks, of their compression
            reason = (str(error) or type(error).__name__).splitlines()[0][:200]
            raise RecordingError(f"{self.path}: cannot be read: {reason}") from error

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
