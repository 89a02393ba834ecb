"""Recordings: what was written is what is read, and what was not written by us is refused with a reason."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import msgpack
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from monitor.errors import RecordingError
from monitor.sidecar.events import Connected, Evaluate, Event, Heartbeat, Lost, Message
from monitor.sidecar.recording import MAX_EVENT_BYTES, VERSION, Header, Recorder, Recording, pack_event
from monitor.types import Instant
from tests.tiers import examples

HEADER = Header("client", "c" * 64, "m" * 64, "0.1.0")
NOW = Instant(1000.25, 7.5)
EVENTS: list[Event] = [
    Connected(NOW, up=True),
    Message(NOW, "agents/ada/steps", b"\x00\xff"),
    Evaluate(NOW, latest_only=True, steps=3),
    Evaluate(NOW, latest_only=True, steps=3, live_since=6.25),
    Heartbeat(NOW),
    Lost(NOW, "agents/ada/steps", 3),
]


def write(path: Path, events: list[Event]) -> bytes:
    recorder = Recorder(path, HEADER)
    for event in events:
        recorder.write(event)
    recorder.close()
    return path.read_bytes()


def read(path: Path) -> list[Event]:
    with Recording(path) as recording:
        assert recording.header == HEADER
        return list(recording)


instants = st.builds(
    Instant, st.floats(allow_nan=False, allow_infinity=False), st.floats(allow_nan=False, allow_infinity=False)
)
events = st.one_of(
    st.builds(Message, instants, st.text(), st.binary()),
    st.builds(Evaluate, instants, st.booleans(), st.integers(min_value=0, max_value=2**31)),
    st.builds(Heartbeat, instants),
    st.builds(Connected, instants, st.booleans()),
    st.builds(Lost, instants, st.text(), st.integers(min_value=1, max_value=2**31)),
)


@settings(
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture], max_examples=examples(25, 50)
)
@given(many=st.lists(events, max_size=20))
def test_what_was_written_is_what_is_read(tmp_path: Path, many: list[Event]) -> None:
    path = tmp_path / "recording"
    path.unlink(missing_ok=True)
    write(path, many)
    assert read(path) == many


def test_a_large_recording_is_read_in_pieces(tmp_path: Path) -> None:
    many: list[Event] = [Message(NOW, "agents/ada/steps", bytes([n % 256]) * 5000) for n in range(200)]
    write(tmp_path / "r", many)
    assert read(tmp_path / "r") == many


def test_a_recording_cut_off_anywhere_gives_what_came_before_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "recording"
    content = write(path, EVENTS)
    clean = [len(content) - sum(len(pack_event(event)) for event in EVENTS[n:]) for n in range(len(EVENTS) + 1)]
    for size in range(clean[0], len(content)):
        path.write_bytes(content[:size])
        before = [event for n, event in enumerate(EVENTS) if clean[n + 1] <= size]
        got: list[Event] = []
        with Recording(path) as recording:
            if size in clean:
                got.extend(recording)
            else:
                with pytest.raises(RecordingError, match=f"cut off in the middle of event {len(before) + 1}, at byte"):
                    got.extend(recording)
        assert got == before


@settings(
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture], max_examples=examples(25, 300)
)
@given(place=st.integers(min_value=0), value=st.integers(min_value=0, max_value=255))
def test_a_damaged_recording_raises_nothing_but_its_error(tmp_path: Path, place: int, value: int) -> None:
    path = tmp_path / "recording"
    path.unlink(missing_ok=True)
    content = bytearray(write(path, EVENTS))
    content[place % len(content)] = value
    path.write_bytes(content)
    with suppress(RecordingError), Recording(path) as recording:
        for event in recording:
            pack_event(event)


@pytest.mark.parametrize(
    "fields",
    [
        {"a": 1},
        [],
        ["m", 1.0],
        ["m", 1.0, 2.0, "topic"],
        ["m", 1.0, 2.0, b"topic", b""],
        ["m", float("nan"), 2.0, "topic", b""],
        ["h", 1, 2.0],
        ["h", 1.0, 2.0, 3],
        ["e", 1.0, 2.0, 1],
        ["e", 1.0, 2.0, True, 3, float("nan")],
        ["e", 1.0, 2.0, True, 3, 4.0, 5.0],
        ["l", 1.0, 2.0, "topic", 0],
        ["l", 1.0, 2.0, "topic", True],
        ["x", 1.0, 2.0],
        [["m"], 1.0, 2.0],
        7,
        None,
    ],
)
def test_an_event_that_is_none_is_named(tmp_path: Path, fields: object) -> None:
    path = tmp_path / "recording"
    path.write_bytes(write(path, EVENTS) + msgpack.packb(fields))
    with Recording(path) as recording, pytest.raises(RecordingError, match=f"event {len(EVENTS) + 1} is damaged"):
        list(recording)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "is not a recording"),
        (b"#!/bin/sh", "is not a recording"),
        (msgpack.packb({"format": "cfmon-recording", "v": 1}), "version 1"),
        (msgpack.packb({"format": "cfmon-recording", "v": VERSION}), "header is damaged"),
        (
            msgpack.packb({"format": "cfmon-recording", "v": VERSION, **dict.fromkeys(HEADER.__slots__, 1)}),
            "header is damaged",
        ),
        (b"\xc1", "damaged after event 0, at byte 0"),
        (b"\xdd\xff\xff\xff\xff", "damaged after event 0"),
    ],
)
def test_a_file_that_is_no_recording_is_refused(tmp_path: Path, content: bytes, expected: str) -> None:
    path = tmp_path / "recording"
    path.write_bytes(content)
    with pytest.raises(RecordingError, match=expected):
        Recording(path)


def test_an_event_that_never_ends_does_not_fill_the_memory(tmp_path: Path) -> None:
    path = tmp_path / "recording"
    content = write(path, EVENTS)
    with path.open("wb") as file:
        file.write(content + b"\xc6\x7f\xff\xff\xff")  # a binary of two gigabytes
        file.truncate(MAX_EVENT_BYTES + (1 << 20))
    with Recording(path) as recording, pytest.raises(RecordingError):
        list(recording)


def test_files_that_cannot_be_opened(tmp_path: Path) -> None:
    write(tmp_path / "there", [])
    with pytest.raises(RecordingError, match="already exists"):
        Recorder(tmp_path / "there", HEADER)
    with pytest.raises(RecordingError, match="cannot be written"):
        Recorder(tmp_path / "no" / "folder", HEADER)
    with pytest.raises(RecordingError, match="cannot be read"):
        Recording(tmp_path / "absent")
