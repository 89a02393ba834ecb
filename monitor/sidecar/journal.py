"""What must outlive the process, in one SQLite database: a snapshot, what happened since, and what is still to be sent.

One transaction a batch, on the disk before `commit` returns (WAL, synchronous=FULL). SQLite's pages carry no checksum,
so each value carries its own: a flipped byte is found, not believed.
"""

from __future__ import annotations

import os
import sqlite3
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
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

TABLES: Final = (
    "CREATE TABLE setting (n INTEGER PRIMARY KEY, content BLOB NOT NULL)",
    "CREATE TABLE snapshot (agent TEXT PRIMARY KEY, state BLOB NOT NULL)",
    "CREATE TABLE journal (n INTEGER PRIMARY KEY, events BLOB NOT NULL)",
    "CREATE TABLE outbox (n INTEGER PRIMARY KEY, message BLOB NOT NULL)",
    "CREATE TABLE evidence (id TEXT PRIMARY KEY, content BLOB NOT NULL) WITHOUT ROWID",
)

DISK: Final = frozenset(
    {
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_INTERRUPT,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_PROTOCOL,
    }
)
"""What SQLite says of the disk, or of others at it. Whatever else it says is of the content: our statements fit our
tables."""


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
        STORE_ERRORS: it cannot be read or written; DamagedError where its content is why, here as in all that follows.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        # Made in one thread, used in another, never in two at once: HTTP looks at `Store` only.
        self._database = sqlite3.connect(path, isolation_level=None, timeout=PATIENCE, check_same_thread=False)
        try:
            with self._damage_told():
                self._prepare()
        except BaseException as error:
            self.close()
            if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY:
                problem = f"{path} is in use by another sidecar; give each of them a store of its own"
                raise ConfigError(f"store.path: {problem}") from error
            raise

    def read(self) -> Kept:
        """All of it; DamagedError if a value is not what was written."""
        with self._damage_told():
            return self._read()

    def commit(self, batch: Batch) -> None:
        """Note a batch; STORE_ERRORS if that fails: then nothing of it was noted."""
        with self._transaction():
            self._add(batch)

    def checkpoint(self, setting: Setting, snapshot: Snapshot, batch: Batch, *, everything: bool) -> None:
        """Note a batch and then a snapshot in place of the events up to here; errors as for `commit`.

        `everything`: snapshot and batch are all there is, so forget whatever was noted before.
        """
        with self._transaction():
            if everything:
                for table in ("snapshot", "outbox", "evidence"):
                    self._database.execute(f"DELETE FROM {table}")  # noqa: S608 - one of three words
            self._add(batch)
            self._database.execute("DELETE FROM journal")
            self._put(setting, snapshot)

    def close(self) -> None:
        """Let go of the database; what was committed stays."""
        with suppress(sqlite3.Error):
            self._database.close()

    @contextmanager
    def _damage_told(self) -> Iterator[None]:
        """Whatever sqlite3 raises because of what the file holds becomes DamagedError; what the disk does, stays."""
        try:
            yield
        except (sqlite3.Error, UnicodeDecodeError) as error:
            code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF  # none: a text that is no UTF-8
            # A write version in the file's head that SQLite does not know looks like a file that cannot be written to.
            pretended = code == sqlite3.SQLITE_READONLY and os.access(self._path, os.W_OK)
            if code in DISK and not pretended:
                raise
            raise DamagedError(str(error)) from error

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """All of it or nothing, on the disk at the end."""
        with self._damage_told():
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._database.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):  # SQLite may have rolled back by itself
                    self._database.execute("ROLLBACK")
                raise

    def _read(self) -> Kept:
        rows = self._database.execute
        settings = {n: _decoded(content, Setting) for n, content in rows("SELECT n, content FROM setting")}
        if settings.keys() - {1}:
            raise DamagedError("a setting is not where it was written")
        return Kept(
            setting=settings.get(1),
            agents={_name(agent): _opened(state) for agent, state in rows("SELECT agent, state FROM snapshot")},
            events=[_opened(events) for (events,) in rows("SELECT events FROM journal ORDER BY n")],
            publications=[
                (n, _decoded(content, Publication)) for n, content in rows("SELECT n, message FROM outbox ORDER BY n")
            ],
            evidence=[
                EvidenceFile(_name(name), _opened(content))
                for name, content in rows("SELECT id, content FROM evidence")
            ],
        )

    def _prepare(self) -> None:
        execute = self._database.execute
        execute("PRAGMA locking_mode=EXCLUSIVE")
        [(application,)] = execute("PRAGMA application_id")
        [(version,)] = execute("PRAGMA user_version")
        [(tables,)] = execute("SELECT count(*) FROM sqlite_master")
        new = (application, version, tables) == (0, 0, 0)
        if not new:
            self._check(application, version)
        execute("PRAGMA journal_mode=WAL")
        execute("PRAGMA synchronous=FULL")
        execute(f"PRAGMA journal_size_limit={64 << 20}")
        execute("BEGIN EXCLUSIVE")  # also shows that the file is not read-only
        if new:  # else nothing is written: what was kept can be taken up from a full disk
            self._make()
        execute("COMMIT")
        self._examine()

    def _make(self) -> None:
        for statement in (*TABLES, f"PRAGMA application_id={APPLICATION}", f"PRAGMA user_version={FORMAT}"):
            self._database.execute(statement)

    def _examine(self) -> None:
        """Tables and pages; values are looked at when they are read."""
        made = self._database.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY rowid").fetchall()
        if made != [(statement,) for statement in TABLES]:
            raise DamagedError("its tables are not those of a store")
        if (problems := self._database.execute("PRAGMA quick_check(1)").fetchall()) != [("ok",)]:
            raise DamagedError(str(problems[0][0]))

    def _check(self, application: int, version: int) -> None:
        if application != APPLICATION:
            raise ConfigError(f"store.path: {self._path} is a database of another program; give another path")
        if version > FORMAT:
            problem = f"was written by a later version of this program (format {version}, this one knows {FORMAT})"
            raise ConfigError(f"store.path: {self._path} {problem}; upgrade, or give another path")

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


def _sealed(content: bytes) -> bytes:
    return zlib.crc32(content).to_bytes(4, "big") + content


def _name(key: object) -> str:
    if not isinstance(key, str):
        raise DamagedError("a name is not of the kind that was written")
    return key


def _opened(sealed: object) -> bytes:
    if not isinstance(sealed, bytes):
        raise DamagedError("a value is not of the kind that was written")
    content = sealed[4:]
    if zlib.crc32(content).to_bytes(4, "big") != sealed[:4]:
        raise DamagedError("a value is not what was written")
    return content


def _decoded(sealed: object, kind: type[_T]) -> _T:
    try:
        return msgspec.msgpack.decode(_opened(sealed), type=kind)
    except msgspec.DecodeError as error:
        raise DamagedError(str(error)) from error
