"""A store whose file is not what was written: opened as it was or set aside, and never an error nobody expected."""

from __future__ import annotations

import os
import shutil
import sqlite3
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from monitor.sidecar.effects import EvidenceFile, Publication
from monitor.sidecar.events import Message
from monitor.sidecar.pipeline import Snapshot
from monitor.sidecar.recording import pack_event
from monitor.sidecar.store.alarm_history import AlarmRecord, HistoryChanges
from monitor.sidecar.store.high_water import HighWaterMark
from monitor.sidecar.store.journal import (
    APPLICATION,
    TABLES,
    Batch,
    DamagedError,
    Journal,
    SnapshotSetting,
    StoreContent,
)
from monitor.sidecar.store.store import Store
from monitor.types import Instant
from tests.sidecar.store_writer import process, write
from tests.tiers import examples, scaled

HEAD = 100
"""Bytes at the beginning that say what kind of database it is."""

WHOSE = {*range(60, 64), *range(68, 72)}
"""Where the head says of which program and which version: a database of another is left alone."""

SNAPSHOT = Snapshot(b"common", {"ada": b"state", "bob": b"another"})
ALARM = AlarmRecord("c" * 32, "ada", "watch", "critical", "resolved", 2, 10.0, 12.0, b"packed")


def step(n: int) -> Message:
    return Message(Instant(float(n), float(n)), "agents/ada/steps", b"%d" % n)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store of everything there can be in one."""
    path = tmp_path / "cfmon.sqlite"
    store = Store(path)
    store.replace(SnapshotSetting("me", "world"), SNAPSHOT, [(3, Publication("cfmon/alerts/ada/watch", b"{}"))])
    store.note(step(1))
    store.commit(evidence=[EvidenceFile("a" * 32, b"proof")], alarms=HistoryChanges({5: msgspec.msgpack.encode(ALARM)}))
    store.close()
    return path


def values(kept: StoreContent) -> list[object]:
    """All of it that has a checksum: all but agents' names, ids and numbers."""
    return [
        kept.setting,
        list(kept.agents.values()),
        kept.events,
        [publication for _, publication in kept.publications],
        [file.content for file in kept.evidence],
        [alarm for _, alarm in kept.alarms],
    ]


def opened(path: Path) -> StoreContent | None:
    """What the next process finds; None if it sets the store aside. Leaves nothing behind."""
    store = Store(path)
    store.close()
    aside = list(path.parent.glob("*.corrupt-1*"))
    for file in aside:
        file.unlink()
    return None if aside else store.kept


def positions(content: bytes) -> Iterator[tuple[int, int]]:
    """Bytes and bits: each of the head, of all else that is used one in each byte."""
    yield from ((at, 1 << bit) for at in range(HEAD) for bit in range(8) if at not in WHOSE)
    yield from ((at, 1 << at % 8) for at in range(HEAD, len(content)) if content[at])


def flip(path: Path, content: bytes, at: int, bits: int) -> None:
    path.write_bytes(content[:at] + bytes([content[at] ^ bits]) + content[at + 1 :])


@scaled
@pytest.mark.parametrize("whole", [False, True], ids=["bits", "bytes"])
def test_a_flip_anywhere_is_found_or_changes_nothing(path: Path, *, whole: bool) -> None:
    content, written = path.read_bytes(), opened(path)
    assert written is not None
    found, tried = 0, list(positions(content))[:: examples(29, 1)]
    for at, bit in tried:
        flip(path, content, at, 0xFF if whole else bit)
        kept = opened(path)
        assert kept is None or values(kept) == values(written), (at, bit)
        found += kept is None
    assert found > 0.7 * len(tried)


@scaled
def test_a_flip_in_what_a_killed_process_left_is_found_or_an_earlier_state(path: Path) -> None:
    written = opened(path)
    assert written is not None
    store, states = Store(path), [written]
    for n in (2, 3):
        store.note(step(n))
        store.commit()
        states.append(msgspec.structs.replace(written, events=[*states[-1].events, pack_event(step(n))]))
    wal = path.with_name(path.name + "-wal")
    database, log = path.read_bytes(), wal.read_bytes()
    store.close()
    found = []
    for at in range(0, len(log), examples(97, 7)):
        path.write_bytes(database)
        flip(wal, log, at, 1 << at % 8)
        found.append(opened(path))
    assert all(kept is None or kept in states for kept in found)
    assert any(kept == states[1] for kept in found)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE setting SET content = 7",
        "UPDATE setting SET n = 0",
        "UPDATE snapshot SET state = 'text'",
        "UPDATE snapshot SET agent = x'ff' WHERE agent = 'ada'",
        "UPDATE snapshot SET agent = CAST(x'ff' AS TEXT) WHERE agent = 'ada'",
        "UPDATE snapshot SET agent = NULL WHERE agent = 'ada'",
        "UPDATE journal SET events = 'text'",
        "UPDATE outbox SET message = 0.5",
        "UPDATE evidence SET id = x'ff'",
        "UPDATE evidence SET content = 7",
        "DROP TABLE journal",
        "ALTER TABLE snapshot RENAME COLUMN state TO status",
    ],
)
def test_a_value_of_another_kind_is_found(path: Path, statement: str) -> None:
    with sqlite3.connect(path) as database:
        database.execute(statement)
    database.close()
    assert opened(path) is None


def test_a_table_that_is_damaged_while_running_is_found_by_the_next_try(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def failing(_journal: Journal, _batch: Batch) -> None:
        raise OSError(5, "Input/output error")

    store = Store(path)
    with monkeypatch.context() as patched:
        patched.setattr(Journal, "commit", failing)
        store.note(step(2))
        store.commit()
    content = path.read_bytes()
    flip(path, content, content.index(b"CREATE TABLE journal") + 8, 0x80)
    store.replace(SnapshotSetting("me"), Snapshot(b"all", {}), [])
    assert (store.ok, store.problem) == (True, "")
    assert "set aside as cfmon.sqlite.corrupt-1" in caplog.text
    store.close()
    kept = opened(path)
    assert kept is None  # what was set aside lies there still
    kept = opened(path)
    assert kept is not None
    assert kept.setting == SnapshotSetting("me", common=b"all")


@pytest.mark.parametrize(
    "use",
    [
        lambda journal: journal.read(),
        lambda journal: journal.commit(Batch(b"events")),
        lambda journal: journal.checkpoint(SnapshotSetting("me"), SNAPSHOT, Batch(), everything=True),
    ],
    ids=["read", "commit", "checkpoint"],
)
def test_whatever_is_done_damage_has_one_name(path: Path, use: Callable[[Journal], object]) -> None:
    journal = Journal(path)
    for table in ("journal", "snapshot"):
        journal._database.execute(f"DROP TABLE {table}")  # noqa: SLF001 - nobody else may change it while it is open
    with pytest.raises(DamagedError, match="no such table"):
        use(journal)
    journal.close()


# ---- what is missing at the end ----


class Found:
    """What the next process finds in a folder whose files are these; whatever it sets aside is removed again."""

    def __init__(self, path: Path, files: Mapping[str, bytes]) -> None:
        for file in path.parent.glob(f"{path.name}*"):
            file.unlink()
        for suffix, content in files.items():
            path.with_name(path.name + suffix).write_bytes(content)
        store = Store(path)
        store.close()
        self.kept, self.incomplete, self.damage, self.damages = (
            *(store.kept, store.incomplete),
            *(store.damage, store.damages),
        )


def killed(path: Path, count: int) -> tuple[dict[str, bytes], list[StoreContent]]:
    """The files that a killed process left, and what is kept after each of its last transactions, the newest last."""
    store = Store(path)
    waiting, alarms = [(3, Publication("cfmon/alerts/ada/watch", b"{}"))], {5: msgspec.msgpack.encode(ALARM)}
    store.replace(SnapshotSetting("me", "world"), SNAPSHOT, waiting, alarms)
    states = [msgspec.structs.replace(store.kept, events=[])]
    for n in range(count):
        store.note(step(n))
        store.commit()
        states.append(msgspec.structs.replace(states[-1], events=[*states[-1].events, pack_event(step(n))]))
    left = {suffix: path.with_name(path.name + suffix).read_bytes() for suffix in ("", "-wal", "-mark")}
    store.close()
    return left, states


@pytest.fixture
def left(path: Path) -> tuple[dict[str, bytes], list[StoreContent]]:
    return killed(path, 6)


def test_what_a_killed_process_left_is_whole(path: Path, left: tuple[dict[str, bytes], list[StoreContent]]) -> None:
    files, states = left
    found = Found(path, files)
    assert values(found.kept) == values(states[-1])
    assert (found.incomplete, found.damage, found.damages) == ("", "", 0)


def test_a_flip_in_the_log_that_loses_anything_is_reported(
    path: Path, left: tuple[dict[str, bytes], list[StoreContent]]
) -> None:
    files, states = left
    lost = 0
    for at in range(0, len(files["-wal"]), 499):
        flipped = bytearray(files["-wal"])
        flipped[at] ^= 1 << at % 8
        found = Found(path, {**files, "-wal": bytes(flipped)})
        if values(found.kept) == values(states[-1]):
            assert found.damages == 0, at
        else:
            lost += 1
            assert found.damages == 1, at
            assert found.incomplete or "set aside" in found.damage, at
    assert lost > 20


def test_a_log_that_was_cut_off_or_removed_is_reported(
    path: Path, left: tuple[dict[str, bytes], list[StoreContent]]
) -> None:
    files, states = left
    for length in range(0, len(files["-wal"]), 1733):
        found = Found(path, {**files, "-wal": files["-wal"][:length]})
        assert values(found.kept) != values(states[-1]), length
        assert found.damages == 1, length
        assert found.incomplete.endswith("transactions that were written are missing"), length
    gone = Found(path, {suffix: files[suffix] for suffix in ("", "-mark")})
    assert (gone.damages, bool(gone.incomplete)) == (1, True)


def test_how_many_are_missing_is_reported(path: Path, left: tuple[dict[str, bytes], list[StoreContent]]) -> None:
    files, states = left
    at = files["-wal"].index(pack_event(step(4)))  # where the last but one was written first
    found = Found(path, {**files, "-wal": files["-wal"][:at]})
    assert values(found.kept) == values(states[-3])
    assert found.incomplete.startswith("2 of ")


def test_a_database_that_is_gone_is_not_taken_for_a_first_start(
    path: Path, left: tuple[dict[str, bytes], list[StoreContent]]
) -> None:
    files, _ = left
    found = Found(path, {"-mark": files["-mark"]})
    assert found.kept.setting is None
    assert found.incomplete.startswith("all ")
    assert Found(path, {}).damages == 0


@pytest.mark.parametrize("mark", [None, b"", b"cfmk", bytes(16)])
def test_without_its_mark_nobody_knows_whether_the_end_is_there(
    path: Path, left: tuple[dict[str, bytes], list[StoreContent]], mark: bytes | None
) -> None:
    files, states = left
    found = Found(path, {name: content for name, content in files.items() if name != "-mark"} | _mark(mark))
    assert values(found.kept) == values(states[-1])
    assert "cfmon.sqlite-mark is missing or damaged" in found.incomplete


def _mark(content: bytes | None) -> dict[str, bytes]:
    return {} if content is None else {"-mark": content}


@scaled
def test_every_flip_in_the_mark_is_found(path: Path, left: tuple[dict[str, bytes], list[StoreContent]]) -> None:
    files, _ = left
    for bit in range(0, 8 * len(files["-mark"]), examples(5, 1)):
        flipped = bytearray(files["-mark"])
        flipped[bit // 8] ^= 1 << bit % 8
        assert "is missing or damaged" in Found(path, {**files, "-mark": bytes(flipped)}).incomplete, bit


def test_a_mark_that_a_power_failure_left_too_low_is_no_damage(
    path: Path, left: tuple[dict[str, bytes], list[StoreContent]]
) -> None:
    earlier, _ = killed(path, 2)
    files, states = left
    path.with_name("cfmon.sqlite-mark").unlink()
    low = Found(path, {**files, "-mark": mark_of(path, 1)})
    assert values(low.kept) == values(states[-1])
    assert low.damages == 0
    assert Found(path, {**earlier, "-mark": mark_of(path, 10**6)}).damages == 1


def mark_of(path: Path, number: int) -> bytes:
    mark = HighWaterMark(path.with_name("other-mark"))
    mark.write(number)
    mark.close()
    content = mark.path.read_bytes()
    mark.path.unlink()
    return content


def test_it_is_reported_once_and_what_is_written_next_is_whole(
    path: Path, left: tuple[dict[str, bytes], list[StoreContent]]
) -> None:
    files, _ = left
    assert Found(path, {**files, "-wal": b""}).damages == 1
    store = Store(path)
    assert store.damages == 1  # nothing was written since
    store.replace(SnapshotSetting("me"), Snapshot(b"all", {}), [])
    store.note(step(9))
    store.commit()
    store.close()
    again = Store(path)
    again.close()
    assert (again.damages, again.kept.events) == (0, [pack_event(step(9))])


def test_what_was_not_kept_while_the_disk_failed_is_missed_after_a_kill(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(_journal: Journal, _batch: Batch) -> None:
        raise OSError(5, "Input/output error")

    store = Store(path)
    store.replace(SnapshotSetting("me"), SNAPSHOT, [])
    with monkeypatch.context() as patched:
        patched.setattr(Journal, "commit", failing)
        for n in range(3):
            store.note(step(n))
            store.commit()
    again = Store(path)
    again.close()
    assert again.incomplete.startswith("1 of ")
    store.replace(SnapshotSetting("me"), SNAPSHOT, [])  # had it been made good, nothing would be missing
    store.close()
    again = Store(path)
    again.close()
    assert again.incomplete == ""


# ---- rows of different moments ----


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM snapshot WHERE agent = 'ada'",
        "DELETE FROM outbox",
        "DELETE FROM evidence",
        "DELETE FROM setting",
        "DELETE FROM journal WHERE n = (SELECT min(n) FROM journal)",
        "UPDATE journal SET n = n + 10",
        "UPDATE snapshot SET agent = 'eve' WHERE agent = 'ada'",
        "UPDATE snapshot SET state = (SELECT state FROM snapshot WHERE agent = 'bob')",
        "UPDATE outbox SET n = 4",
        "UPDATE evidence SET id = 'bbbb'",
        "INSERT INTO outbox SELECT 9, message FROM outbox",
        "DELETE FROM alarms",
        "UPDATE alarms SET n = 4",
    ],
)
def test_parts_of_another_moment_are_found_although_each_is_as_it_was_written(path: Path, statement: str) -> None:
    store = Store(path)
    store.note(step(2))
    store.commit()
    store.close()
    with sqlite3.connect(path) as database:
        database.execute(statement)
    database.close()
    assert opened(path) is None


# ---- an earlier version ----


def test_a_store_of_the_version_without_numbers_is_restored_and_becomes_one_with_them(path: Path) -> None:
    def sealed(content: bytes) -> bytes:
        return zlib.crc32(content).to_bytes(4, "big") + content

    path.unlink()
    path.with_name("cfmon.sqlite-mark").unlink()
    with sqlite3.connect(path) as database:
        for statement in (*TABLES, f"PRAGMA application_id={APPLICATION}", "PRAGMA user_version=1"):
            database.execute(statement)
        setting = sealed(msgspec.msgpack.encode(SnapshotSetting("me", "world", common=b"common")))
        database.execute("INSERT INTO setting VALUES (1, ?)", (setting,))
        database.execute("INSERT INTO snapshot VALUES ('ada', ?)", (sealed(b"state"),))
        database.execute("INSERT INTO journal VALUES (7, ?)", (sealed(pack_event(step(7))),))
    database.close()
    store = Store(path)
    assert (store.damages, store.incomplete) == (0, "")
    assert store.kept.setting == SnapshotSetting("me", "world", common=b"common")
    assert (dict(store.kept.agents), store.kept.events) == ({"ada": b"state"}, [pack_event(step(7))])
    store.replace(SnapshotSetting("me"), SNAPSHOT, [])
    store.note(step(8))
    store.commit()
    store.close()
    again = Store(path)
    again.close()
    assert (again.damages, again.kept.events) == (0, [pack_event(step(8))])


def test_a_store_without_a_list_of_alarms_is_restored_and_becomes_one_with_it(path: Path) -> None:
    store = Store(path)
    store.replace(SnapshotSetting("me"), SNAPSHOT, [])
    store.note(step(7))
    store.commit()
    store.close()
    with sqlite3.connect(path) as database:
        database.execute("DROP TABLE alarms")
        database.execute("PRAGMA user_version=2")
    database.close()
    store = Store(path)
    assert (store.damages, store.incomplete, store.kept.alarms) == (0, "", [])
    assert store.kept.events == [pack_event(step(7))]
    store.replace(SnapshotSetting("me"), SNAPSHOT, [], {1: msgspec.msgpack.encode(ALARM)})
    store.note(step(8))
    store.commit(alarms=HistoryChanges({2: msgspec.msgpack.encode(ALARM)}, gone=[1]))
    store.close()
    again = Store(path)
    again.close()
    assert (again.damages, again.kept.events, again.kept.alarms) == (0, [pack_event(step(8))], [(2, ALARM)])


# ---- while it is running ----


def removed(path: Path) -> None:
    path.unlink()


def cut_off(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def emptied(path: Path) -> None:
    os.truncate(path, 0)


def exchanged(path: Path) -> None:
    """By a copy, as from a backup."""
    copy = path.with_name("copy")
    copy.write_bytes(path.read_bytes())
    copy.replace(path)


def with_its_folder(path: Path) -> None:
    shutil.rmtree(path.parent)


@pytest.mark.parametrize("suffix", ["", "-wal", "-mark"])
@pytest.mark.parametrize("harm", [removed, cut_off, emptied, exchanged, with_its_folder])
def test_files_that_are_harmed_while_in_use_are_noticed_and_made_good(
    path: Path, caplog: pytest.LogCaptureFixture, suffix: str, harm: Callable[[Path], None]
) -> None:
    store = Store(path)
    store.replace(SnapshotSetting("me"), SNAPSHOT, [])
    store.note(step(2))
    store.commit()
    store.check_files()
    assert store.failures == 0
    harm(path.with_name(path.name + suffix))
    store.check_files()
    assert (store.ok, store.failures, store.damages) == (False, 1, 1)
    assert "while it was in use" in caplog.text
    store.replace(SnapshotSetting("me"), Snapshot(b"all", {"eve": b"state"}), [])
    store.note(step(3))
    store.commit()
    store.check_files()
    assert (store.ok, store.failures) == (True, 1)
    store.close()
    again = Store(path)
    again.close()
    assert again.incomplete == ""
    assert (dict(again.kept.agents), again.kept.events) == ({"eve": b"state"}, [pack_event(step(3))])


@pytest.mark.parametrize("suffix", ["", "-wal"])
@pytest.mark.parametrize("harm", [removed, cut_off, exchanged])
def test_nothing_is_written_into_harmed_files(path: Path, suffix: str, harm: Callable[[Path], None]) -> None:
    """A log that was cut off has its old length again once something is written behind the hole."""
    store = Store(path)
    store.replace(SnapshotSetting("me"), SNAPSHOT, [])
    harm(path.with_name(path.name + suffix))
    store.note(step(2))
    store.commit()
    assert "while it was in use" in store.problem
    store.close()


def test_a_killed_process_whose_database_was_removed_before_anybody_looked_is_missed(path: Path) -> None:
    store = Store(path)
    store.replace(SnapshotSetting("me"), SNAPSHOT, [])
    path.unlink()
    files = {suffix: path.with_name(path.name + suffix).read_bytes() for suffix in ("-wal", "-mark")}
    store.close()
    assert Found(path, files).incomplete.startswith("all ")


@scaled
def test_a_kill_at_any_moment_is_no_damage_and_loses_nothing_that_was_said_to_be_kept(path: Path) -> None:
    for round_ in range(examples(3, 8)):
        written = path.with_name(f"{round_}.sqlite")
        with process(write, written) as (writer, said):
            for _ in range(20 + 13 * round_):
                last: int = said.recv()
            writer.kill()
            with suppress(EOFError):
                while True:
                    last = said.recv()
        store = Store(written)
        store.close()
        assert (store.damages, store.damage) == (0, "")
        assert len(store.kept.evidence) in {last, last + 1}
