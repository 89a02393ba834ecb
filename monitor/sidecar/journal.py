"""What must outlive the process, in one SQLite database: a snapshot, what happened since, and what is still to be sent.

One transaction a batch, on the disk before `commit` returns (WAL, synchronous=FULL). SQLite's pages carry no checksum,
so each value carries its own: a flipped byte is found, not believed.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from monitor.errors import ConfigError
from monitor.sidecar.effects import EvidenceFile, Publication
from monitor.sidecar.pipeline import Snapshot
from monitor.types import FormulaSpec

__all__ = ["STORE_ERRORS", "Batch", "DamagedError", "Journal", "Kept", "Setting"]

_T = TypeVar("_T")
APPLICATION: Final = 0x63666D6E
"""`cfmn`: whose database it is, at the place SQLite has for that."""

FORMAT: Final = 1
PATIENCE: Final = 1.0
"""Seconds to wait for a sidecar that is just ending."""

TABLES: Final = """
CREATE TABLE setting (n INTEGER PRIMARY KEY, content BLOB NOT NULL);
CREATE TABLE snapshot (agent TEXT PRIMARY KEY, state BLOB NOT NULL);
CREATE TABLE journal (n INTEGER PRIMARY KEY, events BLOB NOT NULL);
CREATE TABLE outbox (n INTEGER PRIMARY KEY, message BLOB NOT NULL);
CREATE TABLE evidence (id TEXT PRIMARY KEY, content BLOB NOT NULL) WITHOUT ROWID;
"""


class DamagedError(Exception):
    """The database does not hold what was written to it."""


STORE_ERRORS: Final = (OSError, sqlite3.Error, DamagedError)
"""All that a disk and what lies on it can do to us."""


class Setting(msgspec.Struct, frozen=True, array_like=True):
    """Under which circumstances the snapshot was taken.

    `world`: digest of model and policies. `formulas`: what was watched. `ticks`: the latest.
    """

    client_id: str
    world: str = ""
    formulas: tuple[FormulaSpec, ...] = ()
    ticks: float = 0.0
    common: bytes | None = None


class Batch(msgspec.Struct, frozen=True):
    """What one transaction adds and takes away.

    `events`: packed, one after the other. `sent`: numbers of publications that need not be sent any more. `filed`: ids
    of evidence that lies in files by now.
    """

    events: bytes = b""
    publications: Sequence[tuple[int, Publication]] = ()
    evidence: Sequence[EvidenceFile] = ()
    sent: Sequence[int] = ()
    filed: Sequence[str] = ()


class Kept(msgspec.Struct, frozen=True):
    """All that the database holds. `events`: packed, of one transaction each."""

    setting: Setting | None
    agents: Mapping[str, bytes]
    events: Sequence[bytes]
    publications: Sequence[tuple[int, Publication]]
    evidence: Sequence[EvidenceFile]


class Journal:
    """The database at `path`, made if there is none. Nobody else can have it open at the same time.

    Raises:
        ConfigError: in use, of a later version, or not ours.
        STORE_ERRORS: it cannot be read or written; DamagedError or sqlite3.DatabaseError where its content is why.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        # Made in one thread, used in another, never in two at once: HTTP looks at `Store` only.
        self._database = sqlite3.connect(path, isolation_level=None, timeout=PATIENCE, check_same_thread=False)
        try:
            self._prepare()
        except BaseException:
            self.close()
            raise

    def read(self) -> Kept:
        """All of it; DamagedError if a value is not what was written."""
        rows = self._database.execute
        settings = [_decoded(content, Setting) for (content,) in rows("SELECT content FROM setting")]
        return Kept(
            setting=settings[0] if settings else None,
            agents={agent: _opened(state) for agent, state in rows("SELECT agent, state FROM snapshot")},
            events=[_opened(events) for (events,) in rows("SELECT events FROM journal ORDER BY n")],
            publications=[
                (n, _decoded(content, Publication)) for n, content in rows("SELECT n, message FROM outbox ORDER BY n")
            ],
            evidence=[
                EvidenceFile(name, _opened(content)) for name, content in rows("SELECT id, content FROM evidence")
            ],
        )

    def commit(self, batch: Batch) -> None:
        """Note a batch; STORE_ERRORS if that fails: then nothing of it was noted."""
        self._database.execute("BEGIN IMMEDIATE")
        try:
            self._add(batch)
            self._database.execute("COMMIT")
        except BaseException:
            self._undo()
            raise

    def checkpoint(self, setting: Setting, snapshot: Snapshot, batch: Batch, *, everything: bool) -> None:
        """Note a batch and then a snapshot in place of the events up to here; errors as for `commit`.

        `everything`: snapshot and batch are all there is, so forget whatever was noted before.
        """
        self._database.execute("BEGIN IMMEDIATE")
        try:
            if everything:
                for table in ("snapshot", "outbox", "evidence"):
                    self._database.execute(f"DELETE FROM {table}")  # noqa: S608 - one of three words
            self._add(batch)
            self._database.execute("DELETE FROM journal")
            self._put(setting, snapshot)
            self._database.execute("COMMIT")
        except BaseException:
            self._undo()
            raise

    def close(self) -> None:
        """Let go of the database; what was committed stays."""
        with suppress(sqlite3.Error):
            self._database.close()

    def _prepare(self) -> None:
        execute = self._database.execute
        execute("PRAGMA locking_mode=EXCLUSIVE")
        try:
            [(application,)] = execute("PRAGMA application_id")
            [(version,)] = execute("PRAGMA user_version")
            [(tables,)] = execute("SELECT count(*) FROM sqlite_master")
        except sqlite3.OperationalError as error:
            raise self._in_use(error) from error
        if (application, version, tables) != (0, 0, 0):
            self._check(application, version)
        try:
            execute("PRAGMA journal_mode=WAL")
            execute("PRAGMA synchronous=FULL")
            execute(f"PRAGMA journal_size_limit={64 << 20}")
            execute("BEGIN EXCLUSIVE")
        except sqlite3.OperationalError as error:
            raise self._in_use(error) from error
        if not tables:
            for statement in TABLES.strip().split("\n"):
                execute(statement)
        execute(f"PRAGMA application_id={APPLICATION}")
        execute(f"PRAGMA user_version={FORMAT}")  # also shows that it can be written to
        execute("COMMIT")
        if tables and (problems := execute("PRAGMA quick_check(1)").fetchall()) != [("ok",)]:
            raise DamagedError(str(problems[0][0]))

    def _check(self, application: int, version: int) -> None:
        if application != APPLICATION:
            raise ConfigError(f"store.path: {self._path} is a database of another program; give another path")
        if version > FORMAT:
            problem = f"was written by a later version of this program (format {version}, this one knows {FORMAT})"
            raise ConfigError(f"store.path: {self._path} {problem}; upgrade, or give another path")

    def _in_use(self, error: sqlite3.OperationalError) -> Exception:
        if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY:
            problem = f"store.path: {self._path} is in use by another sidecar; give each of them a store of its own"
            return ConfigError(problem)
        return error

    def _add(self, batch: Batch) -> None:
        write, write_all = self._database.execute, self._database.executemany
        if batch.events:
            write("INSERT INTO journal (events) VALUES (?)", (_sealed(batch.events),))
        if batch.evidence:
            files = [(file.id, _sealed(file.content)) for file in batch.evidence]
            write_all("INSERT OR REPLACE INTO evidence VALUES (?, ?)", files)
        if batch.publications:
            messages = [(n, _sealed(msgspec.msgpack.encode(message))) for n, message in batch.publications]
            write_all("INSERT OR REPLACE INTO outbox VALUES (?, ?)", messages)
        if batch.sent:
            write_all("DELETE FROM outbox WHERE n = ?", [(n,) for n in batch.sent])
        if batch.filed:
            write_all("DELETE FROM evidence WHERE id = ?", [(name,) for name in batch.filed])

    def _put(self, setting: Setting, snapshot: Snapshot) -> None:
        gone = [(agent,) for agent, state in snapshot.agents.items() if state is None]
        held = [(agent, _sealed(state)) for agent, state in snapshot.agents.items() if state is not None]
        self._database.executemany("DELETE FROM snapshot WHERE agent = ?", gone)
        self._database.executemany("INSERT OR REPLACE INTO snapshot VALUES (?, ?)", held)
        setting = msgspec.structs.replace(setting, common=snapshot.common)
        content = _sealed(msgspec.msgpack.encode(setting))
        self._database.execute("INSERT OR REPLACE INTO setting VALUES (1, ?)", (content,))

    def _undo(self) -> None:
        with suppress(sqlite3.Error):  # SQLite may have rolled back by itself
            self._database.execute("ROLLBACK")


def _sealed(content: bytes) -> bytes:
    return zlib.crc32(content).to_bytes(4, "big") + content


def _opened(sealed: bytes) -> bytes:
    content = sealed[4:]
    if zlib.crc32(content).to_bytes(4, "big") != sealed[:4]:
        raise DamagedError("a value is not what was written")
    return content


def _decoded(sealed: bytes, kind: type[_T]) -> _T:
    try:
        return msgspec.msgpack.decode(_opened(sealed), type=kind)
    except msgspec.DecodeError as error:
        raise DamagedError(str(error)) from error
