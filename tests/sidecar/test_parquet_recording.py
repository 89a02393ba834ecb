"""Recordings as Parquet: what was written is what is read, also after a kill; damage is reported."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from monitor.authoring.learning.recording_rows import RecordingRows
from monitor.errors import RecordingError
from monitor.sidecar import parquet_recorder
from monitor.sidecar.events import Connected, Evaluate, Event, Heartbeat, Lost, Message
from monitor.sidecar.parquet_recorder import ParquetRecorder
from monitor.sidecar.parquet_recording import ParquetRecording
from monitor.sidecar.recording import Recorder, Recording
from monitor.sidecar.recording_formats import is_recording, new_recorder, open_recording
from monitor.stream.shard import shard_of
from monitor.types import Instant
from tests.sidecar.test_recording import HEADER, events
from tests.tiers import examples

TOPIC = "agents/+/steps"
DAY = 86_400.0


def step(agent: str, episode: object, seq: int, now: Instant) -> Message:
    payload = {"v": 1, "episode": episode, "seq": seq, "state": 3, "action": 1}
    return Message(now, f"agents/{agent}/steps", json.dumps(payload).encode())


def days(number: int, agents: int = 5) -> list[Event]:
    """Steps and evaluations of so many days, an hour apart."""
    found: list[Event] = [Connected(Instant(0.0, 0.0), up=True)]
    for hour in range(24 * number):
        now = Instant(hour * 3600.0, float(hour))
        found += [step(f"a{n}", "one", hour, now) for n in range(agents)]
        found.append(Evaluate(now, steps=7))
    return found


def write(path: Path, many: list[Event], *, live: bool = True) -> ParquetRecorder:
    recorder = ParquetRecorder(path, HEADER, TOPIC, live=live)
    for event in many:
        recorder.write(event)
    return recorder


@settings(
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture], max_examples=examples(25, 50)
)
@given(many=st.lists(events, max_size=20), live=st.booleans())
def test_what_was_written_is_what_is_read(tmp_path: Path, *, many: list[Event], live: bool) -> None:
    path = tmp_path / "r.parquet"
    shutil.rmtree(path, ignore_errors=True)
    write(path, many, live=live).close()
    recording = ParquetRecording(path)
    assert recording.header == HEADER
    assert list(recording) == many
    assert recording.position == recording.size


def test_odd_payloads_and_names_are_kept_to_the_byte(tmp_path: Path) -> None:
    now = Instant(-1e300, 5e-324)
    many: list[Event] = [
        Message(now, "agents/ada/steps", b""),
        Message(now, "agents/ada/steps", b"\x00\xff"),
        Message(now, "agents/Ünïcode/steps", b'{"v": 1}'),
        Message(now, "elsewhere", b"null"),
        step("ada", 2**63 - 1, 2**63 - 1, now),
        step("ada", "1", 0, now),
        step("ada", 1, 0, now),
        Evaluate(now, latest_only=True),
        Evaluate(now, latest_only=True, live_since=-0.0),
        Lost(now, "agents/ada/steps", 2**40, "why\x00not"),
    ]
    write(tmp_path / "r.parquet", many).close()
    assert list(ParquetRecording(tmp_path / "r.parquet")) == many


def test_files_are_divided_by_date_and_by_the_hash_of_the_agent(tmp_path: Path) -> None:
    write(tmp_path / "r.parquet", days(2)).close()
    recording = ParquetRecording(tmp_path / "r.parquet")
    assert list(dict.fromkeys(part.date for part in recording.parts)) == ["1970-01-01", "1970-01-02"]
    for part in recording.parts:
        table = parquet.ParquetFile(part.path).read()
        agents = set(table.column("agent").to_pylist())
        if part.bucket >= 0:
            assert {shard_of(agent, 16) for agent in agents} == {part.bucket}
            assert set(table.column("episode").to_pylist()) == {'"one"'}
            assert table.column("seq").to_pylist() == sorted(table.column("seq").to_pylist())
        else:
            assert agents == {None}


def test_a_recording_is_read_in_blocks_and_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_recorder, "LIVE_BLOCK", 7)
    monkeypatch.setattr(parquet_recorder, "PART", 60)
    many = days(3)
    write(tmp_path / "r.parquet", many).close()
    recording = ParquetRecording(tmp_path / "r.parquet")
    assert len({part.first for part in recording.parts}) > 6
    assert list(recording) == many


def test_a_monitor_that_is_killed_loses_no_event_that_was_flushed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet_recorder, "LIVE_BLOCK", 7)
    many, path = days(2), tmp_path / "r.parquet"
    for count in (1, 6, 30, 200, len(many)):
        recorder = write(path, many[:count])
        recorder.flush()
        shutil.copytree(path, tmp_path / "killed.parquet")
        recorder.close()
        killed = ParquetRecording(tmp_path / "killed.parquet")
        assert killed.is_open
        assert list(killed) == many[:count]
        assert not ParquetRecording(path).is_open
        shutil.rmtree(path)
        shutil.rmtree(tmp_path / "killed.parquet")


def test_a_part_that_was_completed_in_part_is_taken_from_the_newest_events(tmp_path: Path) -> None:
    many, path = days(1), tmp_path / "r.parquet"
    recorder = write(path, many)
    recorder.flush()
    newest = (path / "open-000000000000.rec").read_bytes()
    recorder.close()
    next(path.glob("date=*/bucket=all/*")).unlink()  # killed after it had renamed the others
    (path / "open-000000000000.rec").write_bytes(newest)
    assert list(ParquetRecording(path)) == many


def test_a_recorder_that_cannot_go_on_leaves_the_newest_events(tmp_path: Path) -> None:
    many = days(1)
    recorder = write(tmp_path / "r.parquet", many)
    recorder.flush()
    recorder.abandon()
    assert list(ParquetRecording(tmp_path / "r.parquet")) == many


def test_a_missing_file_is_noticed(tmp_path: Path) -> None:
    many = days(2)
    write(tmp_path / "r.parquet", many).close()
    for part in ParquetRecording(tmp_path / "r.parquet").parts:
        part.path.rename(tmp_path / "aside")
        with pytest.raises(RecordingError, match=r"event \d+ is missing"):
            assert list(ParquetRecording(tmp_path / "r.parquet")) == []
        (tmp_path / "aside").rename(part.path)
    assert list(ParquetRecording(tmp_path / "r.parquet")) == many


def test_a_missing_part_before_the_newest_events_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "r.parquet"
    recorder = write(path, days(2))
    recorder.flush()
    shutil.rmtree(path / "date=1970-01-01")
    with pytest.raises(RecordingError, match="event 0 is missing"):
        list(ParquetRecording(path))
    recorder.close()


def test_damaged_files_are_named(tmp_path: Path) -> None:
    path = tmp_path / "r.parquet"
    write(path, days(1)).close()
    part = ParquetRecording(path).parts[0].path
    content = part.read_bytes()
    part.write_bytes(content[:-3])
    with pytest.raises(RecordingError, match="cannot be read"):
        list(ParquetRecording(path))
    part.write_bytes(content)
    (path / "recording.json").write_text('{"format": "cfmon-recording-parquet"}')
    with pytest.raises(RecordingError, match=r"recording\.json: is damaged"):
        ParquetRecording(path)


def test_a_damaged_value_is_noticed_by_the_checksum_of_its_page(tmp_path: Path) -> None:
    path, many = tmp_path / "r.parquet", days(1)
    write(path, many).close()
    part = ParquetRecording(path).parts[0].path
    content = part.read_bytes()
    noticed = 0
    for at in range(4, len(content) - 4, 13):
        part.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        try:
            assert list(ParquetRecording(path)) == many  # a byte that means nothing
        except RecordingError:
            noticed += 1
    assert noticed > 100


def test_a_row_that_is_no_event_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "r.parquet"
    write(path, [Heartbeat(Instant(0.0, 0.0))]).close()
    part = ParquetRecording(path).parts[0].path
    table = parquet.ParquetFile(part).read()
    column = table.column("kind").cast("string").to_pylist()
    assert column == ["heartbeat"]
    parquet.write_table(table.set_column(1, "kind", [["message"]]), part)
    with pytest.raises(RecordingError, match="event from 0 to 0 is damaged"):
        list(ParquetRecording(path))


@pytest.mark.parametrize(("field", "value"), [("v", 1), ("format", "another")])
def test_another_format_is_refused(tmp_path: Path, field: str, value: object) -> None:
    path = tmp_path / "r.parquet"
    write(path, []).close()
    about = json.loads((path / "recording.json").read_bytes())
    (path / "recording.json").write_text(json.dumps({**about, field: value}))
    with pytest.raises(RecordingError, match="this program reads"):
        ParquetRecording(path)


def test_a_number_that_no_column_holds_is_an_error_and_no_crash(tmp_path: Path) -> None:
    recorder = write(tmp_path / "r.parquet", [Lost(Instant(0.0, 0.0), "agents/ada/steps", 2**70)], live=False)
    with pytest.raises(RecordingError, match="use a recording in one file"):
        recorder.close()


def test_files_that_cannot_be_opened(tmp_path: Path) -> None:
    write(tmp_path / "r.parquet", []).close()
    with pytest.raises(RecordingError, match="already exists"):
        ParquetRecorder(tmp_path / "r.parquet", HEADER, TOPIC)
    with pytest.raises(RecordingError, match="cannot be written"):
        ParquetRecorder(tmp_path / "no" / "r.parquet", HEADER, TOPIC)
    with pytest.raises(RecordingError, match="is not a recording"):
        ParquetRecording(tmp_path)


def test_the_name_decides_how_a_recording_is_written_and_its_content_how_it_is_read(tmp_path: Path) -> None:
    for name, kind, reader in (("r.parquet", ParquetRecorder, ParquetRecording), ("r", Recorder, Recording)):
        recorder = new_recorder(tmp_path / name, HEADER, TOPIC)
        assert isinstance(recorder, kind)
        recorder.close()
        assert is_recording(tmp_path / name)
        with open_recording(tmp_path / name) as found:
            assert isinstance(found, reader)
    assert not is_recording(tmp_path)
    assert not is_recording(tmp_path / "absent")


def test_learning_reads_the_same_rows_from_both(tmp_path: Path) -> None:
    many = days(1)
    write(tmp_path / "r.parquet", many).close()
    recorder = Recorder(tmp_path / "r", HEADER)
    for event in many:
        recorder.write(event)
    recorder.close()
    rows = [list(RecordingRows(tmp_path / name, TOPIC).records()) for name in ("r", "r.parquet")]
    assert rows[0] == rows[1]
    assert len(rows[0]) == 24 * 5
