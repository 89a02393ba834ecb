"""A store whose file is not what was written: opened as it was or set aside, and never an error nobody expected."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from monitor.sidecar.effects import EvidenceFile, Publication
from monitor.sidecar.events import Message
from monitor.sidecar.journal import Batch, DamagedError, Journal, Kept, Setting
from monitor.sidecar.pipeline import Snapshot
from monitor.sidecar.recording import pack_event
from monitor.sidecar.store import Store
from monitor.types import Instant

HEAD = 100
"""Bytes at the beginning that say what kind of database it is."""

WHOSE = {*range(60, 64), *range(68, 72)}
"""Where the head says of which program and which version: a database of another is left alone."""

SNAPSHOT = Snapshot(b"common", {"ada": b"state", "bob": b"another"})


def step(n: int) -> Message:
    return Message(Instant(float(n), float(n)), "agents/ada/steps", b"%d" % n)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store of everything there can be in one."""
    path = tmp_path / "cfmon.sqlite"
    store = Store(path)
    store.mend(Setting("me", "world"), SNAPSHOT, [(3, Publication("cfmon/alerts/ada/watch", b"{}"))])
    store.note(step(1))
    store.commit(evidence=[EvidenceFile("a" * 32, b"proof")])
    store.close()
    return path


def values(kept: Kept) -> list[object]:
    """All of it that has a checksum: all but agents' names, ids and numbers."""
    return [
        kept.setting,
        list(kept.agents.values()),
        kept.events,
        [publication for _, publication in kept.publications],
        [file.content for file in kept.evidence],
    ]


def opened(path: Path) -> Kept | None:
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


@pytest.mark.parametrize("whole", [False, True], ids=["bits", "bytes"])
def test_a_flip_anywhere_is_found_or_changes_nothing(path: Path, *, whole: bool) -> None:
    content, written = path.read_bytes(), opened(path)
    assert written is not None
    found = 0
    for at, bit in positions(content):
        flip(path, content, at, 0xFF if whole else bit)
        kept = opened(path)
        assert kept is None or values(kept) == values(written), (at, bit)
        found += kept is None
    assert found > 800


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
    for at in range(0, len(log), 7):
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
    store.mend(Setting("me"), Snapshot(b"all", {}), [])
    assert (store.ok, store.problem) == (True, "")
    assert "set aside as cfmon.sqlite.corrupt-1" in caplog.text
    store.close()
    kept = opened(path)
    assert kept is None  # what was set aside lies there still
    kept = opened(path)
    assert kept is not None
    assert kept.setting == Setting("me", common=b"all")


@pytest.mark.parametrize(
    "use",
    [
        lambda journal: journal.read(),
        lambda journal: journal.commit(Batch(b"events")),
        lambda journal: journal.checkpoint(Setting("me"), SNAPSHOT, Batch(), everything=True),
    ],
    ids=["read", "commit", "checkpoint"],
)
def test_whatever_is_done_damage_has_one_name(path: Path, use: Callable[[Journal], object]) -> None:
    journal = Journal(path)
    for table in ("journal", "snapshot"):
        journal._database.execute(f"DROP TABLE {table}")
    with pytest.raises(DamagedError, match="no such table"):
        use(journal)
    journal.close()
