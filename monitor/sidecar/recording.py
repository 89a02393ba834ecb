"""Recordings of all events of a sidecar: a header, then a msgpack array for each event.

An array is `[kind, wall, ticks, ...]` with kind `m` (topic, payload), `e` (latest_only, steps, live_since if it is
finite), `h`, `c` (up) or `l` (topic, count, optionally why). A replay passes the events to the same pipeline, which
gives byte-identical output.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final, Self, assert_never

import msgpack

from monitor.errors import RecordingError
from monitor.sidecar.events import Connected, Evaluate, Event, Heartbeat, Lost, Message
from monitor.types.stream_events import Instant

FORMAT: Final = "cfmon-recording"
VERSION: Final = 2
MAX_EVENT_BYTES: Final = 32 << 20
"""Maximum size of an event in bytes; larger than the largest configurable payload (16 MiB)."""

MAX_FIELDS: Final = 16
"""Maximum length of an array or map. msgpack allocates the announced length before it reads the elements."""

_READ_BYTES: Final = 1 << 16
_END: Final = object()


@dataclass(frozen=True, slots=True)
class Header:
    """Identity of the recorded sidecar. A replay uses the same `client_id`, because the status topic contains it."""

    client_id: str
    config_sha256: str
    model_sha256: str
    version: str


def pack_event(event: Event) -> bytes:
    """Return the recorded form of an event."""
    at = (event.now.wall, event.now.ticks)
    match event:
        case Message():
            fields: tuple[Any, ...] = ("m", *at, event.topic, event.payload)
        case Evaluate():
            since = event.live_since
            fields = ("e", *at, event.latest_only, event.steps, *((since,) if math.isfinite(since) else ()))
        case Heartbeat():
            fields = ("h", *at)
        case Connected():
            fields = ("c", *at, event.up)
        case Lost():
            fields = ("l", *at, event.topic, event.count, *((event.why,) if event.why else ()))
        case _:
            assert_never(event)
    packed: bytes = msgpack.packb(fields)
    return packed


def unpack_events(packed: bytes) -> Iterator[Event]:
    """Yield the events in concatenated packed events. Raises ValueError or TypeError if they are malformed."""
    unpacker = msgpack.Unpacker(max_buffer_size=max(len(packed), 1), strict_map_key=True, raw=False)
    unpacker.feed(packed)
    while unpacker.tell() < len(packed):
        try:
            yield _unpacked(unpacker.unpack())
        except msgpack.UnpackException as error:
            raise ValueError(str(error)) from None


class Recorder:
    """Writer of a recording, to a new file. Raises RecordingError if the file exists or cannot be written."""

    def __init__(self, path: Path, header: Header) -> None:
        try:
            self._file: IO[bytes] = path.open("xb")
        except FileExistsError:
            raise RecordingError(f"{path}: already exists; choose another name or move it away") from None
        except OSError as error:
            raise RecordingError(f"{path}: cannot be written: {error.strerror}") from error
        self._file.write(msgpack.packb({"format": FORMAT, "v": VERSION, **asdict(header)}))

    def write(self, event: Event) -> None:
        """Append one event."""
        self._file.write(pack_event(event))

    def flush(self) -> None:
        """Flush written events to the operating system."""
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def abandon(self) -> None:
        """Close the file, which cannot be written to any more, and ignore errors."""
        with contextlib.suppress(OSError):
            self._file.close()


class Recording:
    """Recording on disk: its header, and an iterator over its events. At most one event is in memory."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        try:
            self._file = self.path.open("rb")
        except OSError as error:
            raise RecordingError(f"{path}: cannot be read: {error.strerror}") from error
        self._unpacker = msgpack.Unpacker(
            max_buffer_size=MAX_EVENT_BYTES,
            max_array_len=MAX_FIELDS,
            max_map_len=MAX_FIELDS,
            max_ext_len=0,
            strict_map_key=True,
            raw=False,
        )
        self._count = 0
        try:
            self.header = self._read_header()
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return self.path.stat().st_size

    @property
    def position(self) -> int:
        """Bytes read so far, up to the end of an event."""
        return int(self._unpacker.tell())

    def __iter__(self) -> Iterator[Event]:
        while (fields := self._next()) is not _END:
            self._count += 1
            try:
                yield _unpacked(fields)
            except (ValueError, TypeError) as error:
                raise RecordingError(f"{self.path}: event {self._count} is damaged: {error}") from None

    def _read_header(self) -> Header:
        fields = self._next()
        if not isinstance(fields, dict) or fields.pop("format", None) != FORMAT:
            raise RecordingError(f"{self.path}: is not a recording; make one with `cfmon run CONFIG --record FILE`")
        if (version := fields.pop("v", None)) != VERSION:
            raise RecordingError(f"{self.path}: has format version {version!r}; this program reads version {VERSION}")
        try:
            header = Header(**fields)
        except TypeError:
            raise RecordingError(f"{self.path}: its header is damaged") from None
        if not all(isinstance(value, str) for value in asdict(header).values()):
            raise RecordingError(f"{self.path}: its header is damaged")
        return header

    def _next(self) -> Any:  # noqa: ANN401 - any msgpack value; checked by the caller
        """Return the next value, or `_END` at an orderly end."""
        while True:
            at = self._unpacker.tell()
            try:
                return self._unpacker.unpack()
            except msgpack.OutOfData:
                if not (content := self._file.read(_READ_BYTES)):
                    self._check_end(at)
                    return _END
                self._feed(content)
            except (ValueError, msgpack.UnpackException) as error:  # malformed bytes
                raise RecordingError(f"{self.path}: damaged after event {self._count}, at byte {at}: {error}") from None

    def _feed(self, content: bytes) -> None:
        try:
            self._unpacker.feed(content)
        except msgpack.BufferFull:
            raise RecordingError(
                f"{self.path}: event {self._count + 1} is larger than {MAX_EVENT_BYTES} bytes"
            ) from None

    def _check_end(self, at: int) -> None:
        size = self._file.tell()
        if size != at:
            raise RecordingError(
                f"{self.path}: cut off in the middle of event {self._count + 1}, at byte {at} of {size}; "
                f"the {self._count} events before it were read"
            )


def _unpacked(fields: object) -> Event:
    """Return the event in an array. Raises ValueError or TypeError if the array is no event."""
    if not isinstance(fields, list) or len(fields) < 3:
        raise ValueError("not an array of kind, wall and ticks")
    return event_of(fields[0], fields[1], fields[2], fields[3:])


def event_of(kind: object, wall: object, ticks: object, rest: Sequence[object]) -> Event:
    """Return the event with these elements, which may have any type.

    Raises ValueError or TypeError if they are no event.
    """
    now = Instant(_seconds(wall), _seconds(ticks))
    match kind, rest:
        case "m", [str(topic), bytes(payload)]:
            return Message(now, topic, payload)
        case "e", [bool(latest_only), int(steps)] if steps >= 0 and not isinstance(steps, bool):
            return Evaluate(now, latest_only, steps)
        case "e", [bool(latest_only), int(steps), float(since)] if steps >= 0 and not isinstance(steps, bool):
            return Evaluate(now, latest_only, steps, _seconds(since))
        case "h", []:
            return Heartbeat(now)
        case "c", [bool(up)]:
            return Connected(now, up)
        case "l", [str(topic), int(count)] if count > 0 and not isinstance(count, bool):
            return Lost(now, topic, count)
        case "l", [str(topic), int(count), str(why)] if count > 0 and not isinstance(count, bool):
            return Lost(now, topic, count, why)
    raise ValueError(f"unknown kind {kind!r} with {len(rest)} fields")


def _seconds(value: object) -> float:
    if not isinstance(value, float) or not -math.inf < value < math.inf:
        raise ValueError("a time is not a finite number")
    return value
