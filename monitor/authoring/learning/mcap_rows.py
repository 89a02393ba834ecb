"""Rows of an MCAP file (extra `mcap`) whose messages are JSON, or ROS 2 messages as recorded by rosbag2. Impure."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from monitor.authoring.learning.mapping_rows import MappingRows, flat
from monitor.authoring.learning.row_files import LINE, refuse_rows, size_of
from monitor.authoring.learning.text_rows import NO_MAP, TORN
from monitor.errors import RecordingError, brief, to_install

STAMP: Final = {"sec", "nanosec"}
"""Names of the fields of a time or a duration of ROS 2."""


class McapRows(MappingRows):
    """Messages of one topic in the order of log times, each a map. `topic`: necessary if several topics can be read.

    In messages of ROS 2, stamps become seconds, and bytes such as pictures are left out.
    """

    def __init__(self, path: Path, topic: str) -> None:
        try:
            from mcap.reader import make_reader  # noqa: PLC0415 - an optional extra
            from mcap_ros2.decoder import DecoderFactory  # noqa: PLC0415 - likewise
        except ImportError as error:
            raise RecordingError(f"{path}: needs mcap: {to_install('mcap')}") from error
        self.path = path
        self._topic, self._reader = topic, make_reader
        self._json = msgspec.json.Decoder(dict[str, Any]).decode
        self._ros = DecoderFactory

    def records(self) -> Iterator[Mapping[str, Any] | str]:
        """Yield the flat messages, or the reason for a message that cannot be read.

        Raises RecordingError if the file is damaged.
        """
        try:
            with self.path.open("rb") as file:
                reader, ros = self._reader(file, validate_crcs=True), self._ros()
                topic, size = self._chosen(reader.get_summary()), size_of(self.path)
                for number, (schema, channel, message) in enumerate(reader.iter_messages(topics=[topic]), 1):
                    refuse_rows(self.path, number, size)
                    self.position = file.tell()
                    self.taken += len(message.data)
                    self._refuse_long(message.data, f"message {number} of {topic}")
                    yield self._record(message.data, ros.decoder_for(channel.message_encoding, schema))
        except (RecordingError, MemoryError):
            raise
        except Exception as error:  # errors of the file, of its chunks, or of their compression
            raise RecordingError(f"{self.path}: cannot be read: {brief(error)}") from error

    def _refuse_long(self, data: bytes, what: str) -> None:
        if len(data) > LINE:
            raise RecordingError(f"{self.path}, {what}: is longer than {LINE >> 20} MiB")

    def _record(self, data: bytes, ros: Callable[[bytes], Any] | None) -> Mapping[str, Any] | str:
        try:
            if ros is None:
                return flat(self._json(data))
            found: Mapping[str, Any] = flat(_plain(ros(data)))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return NO_MAP
        except MemoryError:
            raise
        except Exception:  # noqa: BLE001 - whatever the decoder of ROS 2 does with bytes that are no such message
            return TORN
        return found

    def _chosen(self, summary: Any) -> str:  # noqa: ANN401 - mcap is optional
        if summary is None:
            raise RecordingError(
                f"{self.path}: has no summary, as if its recording was cut off; `mcap recover` adds one"
            )
        topics = sorted({each.topic for each in summary.channels.values() if _is_known(each, summary.schemas)})
        json = {each.topic for each in summary.channels.values() if each.message_encoding == "json"}
        for known in ({self._topic} & set(topics), json, topics):
            if len(known) == 1:
                return str(next(iter(known)))
        if not topics:
            raise RecordingError(f"{self.path}: no topic has JSON messages, or those of ROS 2 with their definitions")
        raise RecordingError(f"{self.path}: several topics can be read; give one of {', '.join(topics)} by --topic")


def _is_known(channel: Any, schemas: Mapping[int, Any]) -> bool:  # noqa: ANN401 - mcap is optional
    """Return whether messages of a channel can be read: JSON, or ROS 2 with the message's definition."""
    if channel.message_encoding == "json":
        return True
    schema = schemas.get(channel.schema_id)
    return channel.message_encoding == "cdr" and schema is not None and schema.encoding == "ros2msg"


def _plain(value: Any) -> Any:  # noqa: ANN401 - a decoded message, or a part of one
    """Return a message of ROS 2 as maps and lists. The slots of its class are the names of its fields."""
    names = getattr(type(value), "__slots__", None)
    if names is not None and hasattr(value, "_type"):
        if set(names) == STAMP:
            return value.sec + value.nanosec / 1e9
        return {name: _plain(getattr(value, name)) for name in names}
    if isinstance(value, bytes | bytearray | memoryview):
        return {}
    if isinstance(value, list | tuple | array):
        return [_plain(each) for each in value]
    return value
