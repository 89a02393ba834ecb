"""The store: what was noted is there again, whatever the disk does, and nobody else's file is touched."""

from __future__ import annotations

import asyncio
import hashlib
import os
import sqlite3
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from monitor.errors import ConfigError
from monitor.sidecar.effects import EvidenceFile, Publication
from monitor.sidecar.events import Evaluate, Message
from monitor.sidecar.pipeline import Snapshot
from monitor.sidecar.recording import pack_event
from monitor.sidecar.store import store as rooms
from monitor.sidecar.store.journal import Batch, Journal, SnapshotSetting
from monitor.sidecar.store.store import Store
from monitor.types import FormulaSpec, Instant
from tests.sidecar.store_writer import open_store, process

SETTING = SnapshotSetting("me", "world", (FormulaSpec("watch", "true"),), 7.0)
ALERT = Publication("cfmon/alerts/ada/watch", b"{}")
PROOF = EvidenceFile("a" * 32, b"proof")


def step(n: int) -> Message:
    return Message(Instant(float(n), float(n)), "agents/ada/steps", b"%d" % n)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "var" / "cfmon.sqlite"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    """Begun, with a snapshot of one agent."""
    opened = Store(path)
    opened.replace(SETTING, Snapshot(b"common", {"ada": b"state", "bob": b"state"}), [(3, ALERT)])
    yield opened
    opened.close()


def reopened(store: Store, path: Path) -> Store:
    """As the next process finds it."""
    store.close()
    again = Store(path)
    again.close()
    return again


def test_what_is_committed_is_there_again_and_what_is_not_never_was(store: Store, path: Path) -> None:
    store.note(step(1))
    store.note(Evaluate(Instant(1.5, 1.5)))
    store.commit([(4, ALERT)], [PROOF], sent=[3])
    store.note(step(2))
    kept = reopened(store, path).kept
    assert kept.setting == SnapshotSetting("me", "world", (FormulaSpec("watch", "true"),), 7.0, b"common")
    assert kept.agents == {"ada": b"state", "bob": b"state"}
    assert kept.events == [pack_event(step(1)) + pack_event(Evaluate(Instant(1.5, 1.5)))]
    assert kept.publications == [(4, ALERT)]
    assert kept.evidence == [PROOF]


def test_a_snapshot_takes_the_place_of_the_events_and_leaves_other_agents_alone(store: Store, path: Path) -> None:
    store.note(step(1))
    store.commit()
    store.checkpoint(SETTING, Snapshot(b"later", {"ada": b"newer", "bob": None}), sent=[3])
    kept = reopened(store, path).kept
    assert kept.setting is not None
    assert (kept.setting.common, dict(kept.agents)) == (b"later", {"ada": b"newer"})
    assert (list(kept.events), list(kept.publications)) == ([], [])


def test_it_says_when_it_is_time_for_a_snapshot(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rooms, "SNAPSHOT_EVENTS", 2)
    for n, long in ((1, False), (2, True)):
        store.note(step(n))
        store.commit()
        assert store.snapshot_due == long
    store.checkpoint(SETTING, Snapshot(b"", {}))
    assert not store.snapshot_due
    monkeypatch.setattr(rooms, "SNAPSHOT_BYTES", 10)
    store.note(step(3))
    store.commit()
    assert store.snapshot_due


def test_evidence_is_served_from_the_first_moment_and_ends_as_a_file(store: Store, path: Path) -> None:
    store.commit(evidence=[PROOF])
    assert store.read_evidence(PROOF.id) == b"proof"
    assert not (path.parent / "evidence" / PROOF.id).exists()
    asyncio.run(store.file_evidence())
    assert (path.parent / "evidence" / PROOF.id).read_bytes() == b"proof"
    assert store.read_evidence(PROOF.id) == b"proof"
    store.commit()
    again = reopened(store, path)
    assert again.kept.evidence == []
    assert again.read_evidence(PROOF.id) == b"proof"


def test_all_evidence_that_waits_is_filed_together(store: Store, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [EvidenceFile(f"{n:032x}", f"proof {n}".encode()) for n in range(rooms.FILES + 1)]
    store.commit(evidence=files)
    started: list[threading.Thread] = []
    start = threading.Thread.start

    def counted(thread: threading.Thread) -> None:
        started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", counted)
    asyncio.run(store.file_evidence())
    assert len(started) == 2
    assert all((path.parent / "evidence" / file.id).read_bytes() == file.content for file in files)
    assert store.filed_bytes == sum(len(file.content) for file in files)
    store.commit()
    assert reopened(store, path).kept.evidence == []


def test_evidence_a_killed_process_did_not_file_is_filed_by_the_next(store: Store, path: Path) -> None:
    store.commit(evidence=[PROOF])
    again = reopened(store, path)
    assert again.read_evidence(PROOF.id) == b"proof"
    asyncio.run(again.file_evidence())
    assert (path.parent / "evidence" / PROOF.id).exists()


def test_evidence_that_cannot_be_filed_keeps_back_no_other(store: Store, path: Path) -> None:
    folder = path.parent / "evidence"
    files = [EvidenceFile(f"{n:032x}", b"proof %d" % n) for n in range(40)]
    (folder / files[3].id).mkdir()  # something is in the way of this one only
    store.commit(evidence=files)
    for _ in range(3):
        asyncio.run(store.file_evidence())
    assert {file.name for file in folder.iterdir() if file.is_file()} == {file.id for file in files} - {files[3].id}
    assert not store.ok
    assert store.read_evidence(files[3].id) == b"proof 3"
    (folder / files[3].id).rmdir()
    asyncio.run(store.file_evidence())
    assert store.ok


def test_a_place_that_takes_no_file_is_reported_once_and_the_evidence_stays(
    store: Store, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = path.parent / "evidence"
    folder.rmdir()
    folder.write_text("in the way")
    store.commit(evidence=[PROOF])
    for _ in range(3):
        asyncio.run(store.file_evidence())
    assert (store.failures, store.ok, store.problem) == (1, False, "")
    assert caplog.text.count("could not be saved") == 1
    assert store.read_evidence(PROOF.id) == b"proof"
    folder.unlink()
    folder.mkdir()
    asyncio.run(store.file_evidence())
    assert store.ok
    assert (folder / PROOF.id).exists()


def test_evidence_no_disk_takes_does_not_fill_the_memory(
    store: Store, path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(rooms, "MAX_PENDING_BYTES", 9)
    store.commit(evidence=[PROOF])
    store.commit(evidence=[EvidenceFile("b" * 32, b"other")])
    assert store.read_evidence(PROOF.id) is None
    assert store.read_evidence("b" * 32) == b"other"
    assert f"evidence {PROOF.id} is discarded" in caplog.text
    assert [file.id for file in reopened(store, path).kept.evidence] == ["b" * 32]  # nor the database


class Full:
    """A disk that takes nothing while `full`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
        self.full = True
        commit = Journal.commit

        def failing(journal: Journal, batch: Batch) -> None:
            if self.full:
                raise error
            commit(journal, batch)

        monkeypatch.setattr(Journal, "commit", failing)


@pytest.mark.parametrize(
    "error", [sqlite3.OperationalError("database or disk is full"), OSError(5, "Input/output error")]
)
def test_a_disk_that_fails_is_reported_once_and_made_good_by_everything_anew(
    store: Store, path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    disk = Full(monkeypatch, error)
    for n in range(3):
        store.note(step(n))
        store.commit([(10 + n, ALERT)], [PROOF])
    assert store.problem == str(error)
    assert caplog.text.count("a restart would lose state") == 1
    assert store.read_evidence(PROOF.id) == b"proof"
    disk.full = False
    store.checkpoint(SETTING, Snapshot(b"too little", {}))  # changes alone would not do
    store.replace(SETTING, Snapshot(b"all", {"eve": b"state"}), [(12, ALERT)])
    assert store.ok
    assert "the store works again" in caplog.text
    kept = reopened(store, path).kept
    assert kept.setting is not None
    assert kept.setting.common == b"all"
    assert (dict(kept.agents), list(kept.events)) == ({"eve": b"state"}, [])
    assert (list(kept.publications), list(kept.evidence)) == ([(12, ALERT)], [PROOF])


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """A file system of one megabyte; skips the test where that is not allowed."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False).returncode != 0:
        pytest.skip("no file system can be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


def fill(disk: Path) -> Path:
    """Not a byte is left; returns the file to remove."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))
    return filler


def test_a_file_system_that_is_really_full(tmp_path: Path) -> None:
    with small_disk(tmp_path / "small") as place:
        store = Store(place / "cfmon.sqlite")
        store.replace(SETTING, Snapshot(b"common", {}), [])
        filler = place / "filler"
        filler.write_bytes(bytes(800_000))
        store.note(Message(Instant(0.0, 0.0), "agents/ada/steps", bytes(300_000)))
        store.commit()
        assert "full" in store.problem
        store.replace(SETTING, Snapshot(bytes(300_000), {}), [])
        assert "full" in store.problem
        filler.unlink()
        store.replace(SETTING, Snapshot(b"after", {}), [])
        assert store.ok
        kept = reopened(store, place / "cfmon.sqlite").kept
        assert kept.setting is not None
        assert kept.setting.common == b"after"


def test_on_a_full_disk_a_start_takes_up_what_was_kept(tmp_path: Path) -> None:
    with small_disk(tmp_path / "small") as place:
        path = place / "cfmon.sqlite"
        store = Store(path)
        store.replace(SETTING, Snapshot(b"common", {"ada": b"state"}), [(3, ALERT)])
        store.note(step(1))
        store.commit()
        killed = {suffix: path.with_name(path.name + suffix).read_bytes() for suffix in ("", "-wal")}
        store.close()
        for suffix, content in killed.items():
            path.with_name(path.name + suffix).write_bytes(content)
        filler = fill(place)
        again = Store(path)
        assert (dict(again.kept.agents), again.kept.publications) == ({"ada": b"state"}, [(3, ALERT)])
        assert again.kept.events == [pack_event(step(1))]
        again.replace(SETTING, Snapshot(bytes(300_000), {}), [])
        assert "full" in again.problem
        filler.unlink()
        again.replace(SETTING, Snapshot(b"after", {}), [])
        assert again.ok
        again.close()


def test_on_a_full_disk_a_start_with_another_model_watches_and_keeps_it_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = Store(tmp_path / "cfmon.sqlite")
    store.commit(evidence=[EvidenceFile("a" * 32, b"proof")])

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        content = b"model"
        name = hashlib.sha256(content).hexdigest()
        store.keep_objects(lambda: {name: content})
        told = [store.ok]
        asyncio.run(store.file_evidence())
        told.append(store.ok)
    assert "models and policies that evidence refers to could not be saved" in caplog.text
    assert "No space left on device" in caplog.text
    asyncio.run(store.file_evidence())
    assert [*told, store.ok] == [False, False, True]
    assert (tmp_path / "objects" / name).read_bytes() == content
    assert (tmp_path / "evidence" / ("a" * 32)).read_bytes() == b"proof"
    store.close()


@pytest.mark.parametrize("content", [None, b"no database at all" * 100])
def test_on_a_full_disk_a_new_store_is_begun_when_there_is_room(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: bytes | None
) -> None:
    with small_disk(tmp_path / "small") as place:
        path = place / "cfmon.sqlite"
        Store(path).close()
        path.unlink()
        if content is not None:
            path.write_bytes(content)
        filler = fill(place)
        store = Store(path)
        assert "full" in store.problem
        assert "a restart would lose state" in caplog.text
        assert store.kept.setting is None
        store.replace(SETTING, Snapshot(b"", {}), [])
        assert "full" in store.problem
        filler.unlink()
        store.replace(SETTING, Snapshot(b"after", {}), [])
        kept = reopened(store, path).kept
        assert kept.setting is not None
        assert kept.setting.common == b"after"


def test_a_read_only_file_system_is_an_error_at_start(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root may mount a file system")
    place = tmp_path / "locked"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", place], check=False).returncode != 0:
        pytest.skip("no file system can be mounted here")
    try:
        with pytest.raises(ConfigError, match=r"store\.path: .* cannot be written to: Read-only file system"):
            Store(place / "cfmon.sqlite")
    finally:
        subprocess.run(["umount", place], check=True)


def test_two_sidecars_cannot_share_a_store(store: Store, path: Path) -> None:
    with process(open_store, path) as (_, said):
        assert said.recv().startswith(f"store.path: {path} is in use by another sidecar; give each")
    with pytest.raises(ConfigError, match="is in use by another sidecar"):
        Store(path)
    assert reopened(store, path).kept.agents


def damaged(path: Path) -> Store:
    again = Store(path)
    again.close()
    return again


def test_a_damaged_store_is_set_aside(store: Store, path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store.close()
    for n, content in enumerate((b"no database at all" * 100, path.read_bytes()[:9000]), 1):
        path.write_bytes(content)
        again = damaged(path)
        assert again.kept.setting is None
        assert path.with_name(f"cfmon.sqlite.corrupt-{n}").read_bytes() == content
        assert f"set aside as cfmon.sqlite.corrupt-{n}" in caplog.text
        assert damaged(path).kept.setting is None


@pytest.mark.parametrize("table", ["setting", "snapshot", "journal", "outbox", "evidence"])
def test_one_flipped_bit_is_found(store: Store, path: Path, table: str) -> None:
    store.note(step(1))
    store.commit(evidence=[PROOF])
    store.close()
    column = {"setting": "content", "snapshot": "state", "journal": "events", "outbox": "message"}.get(table, "content")
    with sqlite3.connect(path) as database:
        [(content,)] = database.execute(f"SELECT {column} FROM {table} LIMIT 1")
        flipped = content[:-1] + bytes([content[-1] ^ 1])
        database.execute(f"UPDATE {table} SET {column} = ?", (flipped,))
    database.close()
    assert damaged(path).kept.setting is None
    assert path.with_name("cfmon.sqlite.corrupt-1").exists()


def test_the_store_of_a_later_version_and_a_foreign_database_are_left_alone(store: Store, path: Path) -> None:
    store.close()
    for statement, problem in (
        ("PRAGMA user_version=99", "was written by a later version of this program"),
        ("PRAGMA application_id=1", "is a database of another program"),
    ):
        with sqlite3.connect(path) as database:
            database.execute(statement)
        database.close()
        with pytest.raises(ConfigError, match=problem):
            Store(path)
        assert not path.with_name("cfmon.sqlite.corrupt-1").exists()


def test_a_store_that_cannot_be_taken_up_is_set_aside_with_its_evidence_still_ours(store: Store, path: Path) -> None:
    store.commit(evidence=[PROOF])
    again = reopened(store, path)
    again = Store(path)
    again.start_over("of no use")
    assert again.kept.setting is None
    again.replace(SETTING, Snapshot(b"new", {}), [])
    assert again.read_evidence(PROOF.id) == b"proof"
    kept = reopened(again, path).kept
    assert list(kept.evidence) == [PROOF]
    assert path.with_name("cfmon.sqlite.corrupt-1").exists()
