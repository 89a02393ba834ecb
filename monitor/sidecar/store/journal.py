"""What must outlive the process, in one SQLite database: a snapshot, what happened since, and what is still to be sent.

One transaction a batch, on the disk before `commit` returns (WAL, synchronous=FULL). SQLite's pages carry no checksum,
so each value carries its own: a flipped byte is found, not believed. Transactions are numbered, and the newest has a
checksum over all there is (`ledger`): rows of different moments are found too. What is missing at the end cannot be
seen from here; for that there is the `mark`.
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
from monitor.sidecar.store.alarm_history import Alarm, Changes
from monitor.sidecar.store.ledger import (
    BEGINNING,
    SIZE,
    Ledger,
    link,
)
from monitor.types import FormulaSpec

__all__ = ["STORE_ERRORS", "Batch", "DamagedError", "Journal", "Kept", "Setting"]

_T = TypeVar("_T")
_K = TypeVar("_K", str, int)
HEAD: Final = 2 * SIZE
"""Bytes of checksums in front of a setting (number, all rows) and of events (all rows, the chain)."""

APPLICATION: Final = 0x63666D6E
"""`cfmn`: whose database it is, at the place SQLite has for that."""

FORMAT: Final = 3
"""Format 2 had no list of alarms. It is read, and becomes the newer one when everything is written."""

UNNUMBERED: Final = 1
"""The format in which transactions had no numbers either."""

PATIENCE: Final = 1.0
"""Seconds to wait for a sidecar that is just ending."""

TABLES: Final = (
    "CREATE TABLE setting (n INTEGER PRIMARY KEY, content BLOB NOT NULL)",
    "CREATE TABLE snapshot (agent TEXT PRIMARY KEY, state BLOB NOT NULL)",
    "CREATE TABLE journal (n INTEGER PRIMARY KEY, events BLOB NOT NULL)",
    "CREATE TABLE outbox (n INTEGER PRIMARY KEY, message BLOB NOT NULL)",
    "CREATE TABLE evidence (id TEXT PRIMARY KEY, content BLOB NOT NULL) WITHOUT ROWID",
    "CREATE TABLE alarms (n INTEGER PRIMARY KEY, alarm BLOB NOT NULL)",
)
ALARMS: Final = TABLES[-1]

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
    of evidence that lies in files by now. `alarms`: what becomes of the list of alarms.
    """

    events: bytes = b""
    publications: Sequence[tuple[int, Publication]] = ()
    evidence: Sequence[EvidenceFile] = ()
    sent: Sequence[int] = ()
    filed: Sequence[str] = ()
    alarms: Changes = Changes()


class Kept(msgspec.Struct, frozen=True):
    """All that the database holds. `agents`, `pages`: of `Snapshot`. `events`: packed, of one transaction each."""

    setting: Setting | None
    agents: Mapping[str, bytes]
    pages: Mapping[str, bytes]
    events: Sequence[bytes]
    publications: Sequence[tuple[int, Publication]]
    evidence: Sequence[EvidenceFile]
    alarms: Sequence[tuple[int, Alarm]] = ()


class Journal:
    """The database at `path`, made if there is none. Nobody else can have it open at the same time.

    Attributes:
        number: of the last transaction, once they were read; the next has the number that follows.
        numbered: whether the database has numbers, which one of an earlier version has not.
        current: whether it is of our own format.

    Raises:
        ConfigError: in use, of a later version, or not ours.
        STORE_ERRORS: it cannot be read or written; DamagedError where its content is why, here as in all that follows.
    """

    def __init__(self, path: Path) -> None:
        self.number = 0
        self.numbered = self.current = True
        self._ledger: Ledger | None = None
        self._chain = BEGINNING
        self._file_stats: dict[str, os.stat_result] = {}
        self._files = (str(path), f"{path}-wal")
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        # Made in one thread, used in another, never in two at once: HTTP looks at `Store` only.
        self._database = sqlite3.connect(path, isolation_level=None, timeout=PATIENCE, check_same_thread=False)
        try:
            with self._as_damage():
                self._prepare()
        except BaseException as error:
            self.close()
            if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY:
                problem = f"{path} is in use by another sidecar; give each of them a store of its own"
                raise ConfigError(f"store.path: {problem}") from error
            raise

    def read(self) -> Kept:
        """All of it; DamagedError if a value is not what was written."""
        with self._as_damage():
            return self._read()

    def commit(self, batch: Batch) -> None:
        """Note a batch; STORE_ERRORS if that fails: then nothing of it was noted."""
        assert self.current, "the first that is written to a database of an earlier version is everything"
        with self._transaction() as ledger:
            self._add(batch, ledger)
            chain = link(self._chain, self.number + 1, batch.events)
            content = _sealed(ledger.total + chain + batch.events)
            self._database.execute("INSERT INTO journal VALUES (?, ?)", (self.number + 1, content))
        self._chain = chain

    def checkpoint(self, setting: Setting, snapshot: Snapshot, batch: Batch, *, everything: bool) -> None:
        """Note a batch and then a snapshot in place of the events up to here; errors as for `commit`.

        `everything`: snapshot and batch are all there is, so forget whatever was noted before.
        """
        assert not batch.events, "they would be noted and taken away again"
        with self._transaction(everything=everything) as ledger:
            if everything:
                if not self.current:
                    self._database.execute(ALARMS.replace("TABLE", "TABLE IF NOT EXISTS", 1))
                    self._database.execute(f"PRAGMA user_version={FORMAT}")
                for table in ("snapshot", "outbox", "evidence", "alarms"):
                    self._database.execute(f"DELETE FROM {table}")  # noqa: S608 - one of four words
            self._add(batch, ledger)
            self._database.execute("DELETE FROM journal")
            chain = self._put(setting, snapshot, ledger)
        self._chain, self.numbered, self.current = chain, True, True

    def check_files(self) -> None:
        """DamagedError if our files are not the ones that we wrote: removed, exchanged, or shorter than we left them.

        SQLite would not notice: it goes on with the files that it has open, and they are gone when it closes them.
        """
        for file, left in self._file_stats.items():
            try:
                there = os.stat(file)  # noqa: PTH116 - twice for each transaction: a Path takes as long again
            except FileNotFoundError:
                raise DamagedError(f"{Path(file).name} was removed while it was in use") from None
            if not os.path.samestat(there, left):
                raise DamagedError(f"{Path(file).name} was exchanged while it was in use")
            if there.st_size < left.st_size:
                raise DamagedError(f"{Path(file).name} was cut off while it was in use")

    def close(self) -> None:
        """Let go of the database; what was committed stays."""
        with suppress(sqlite3.Error):
            self._database.close()

    @contextmanager
    def _as_damage(self) -> Iterator[None]:
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
    def _transaction(self, *, everything: bool = False) -> Iterator[Ledger]:
        """All of it or nothing, on the disk at the end; the ledger is for its rows. `everything`: there are no others.

        In a ledger there is no going back: after a failure it is made anew.
        """
        with self._as_damage():
            self.check_files()
            if self._ledger is None and not everything:
                self._read()
            ledger, self._ledger = Ledger() if everything or self._ledger is None else self._ledger, None
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield ledger
                self._database.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):  # SQLite may have rolled back by itself
                    self._database.execute("ROLLBACK")
                raise
        self._ledger = ledger
        self.number += 1
        self._remember_files()

    def _remember_files(self) -> None:
        """Remember our files as they are now, for `check_files`."""
        for file in self._files:
            with suppress(FileNotFoundError):
                self._file_stats[file] = os.stat(file)  # noqa: PTH116 - as in `check_files`

    def _read(self) -> Kept:
        rows = self._database.execute
        settings = dict(rows("SELECT n, content FROM setting"))
        if settings.keys() - {1}:
            raise DamagedError("a setting is not where it was written")
        states = {_name(name): state for name, state in rows("SELECT agent, state FROM snapshot")}
        outbox = dict(rows("SELECT n, message FROM outbox ORDER BY n"))
        evidence = {_name(name): content for name, content in rows("SELECT id, content FROM evidence")}
        alarms = dict(rows("SELECT n, alarm FROM alarms ORDER BY n")) if self.current else {}
        kept = Kept(
            setting=_decoded(self._without_head(settings[1]), Setting) if settings else None,
            agents={name: _opened(state) for name, state in states.items() if "/" not in name},
            pages={name: _opened(state) for name, state in states.items() if "/" in name},
            events=[self._without_head(events) for (events,) in rows("SELECT events FROM journal ORDER BY n")],
            publications=[(n, _decoded(_opened(message), Publication)) for n, message in outbox.items()],
            evidence=[EvidenceFile(name, _opened(content)) for name, content in evidence.items()],
            alarms=[(n, _decoded(_opened(alarm), Alarm)) for n, alarm in alarms.items()],
        )
        if self.numbered:
            ledger = Ledger()
            tables = {"snapshot": states, "outbox": outbox, "evidence": evidence, "alarms": alarms}
            for table, held in tables.items():
                for key, content in held.items():
                    ledger.put(table, key, content)
            self._check_consistent(settings.get(1), ledger)
            self._ledger = ledger
        return kept

    def _without_head(self, sealed: object) -> bytes:
        """A setting or events without the checksums in front."""
        return _opened(sealed)[HEAD if self.numbered else 0 :]

    def _check_consistent(self, setting: bytes | None, ledger: Ledger) -> None:
        """DamagedError unless setting, events and all other rows are those of one moment; notes its number."""
        number, total, chain = None, Ledger().total, BEGINNING
        if setting is not None:
            head = _opened(setting)[:HEAD]
            number, total, chain = int.from_bytes(head[:SIZE], "big"), head[SIZE:], link(BEGINNING, 0, setting)
        for n, sealed in self._database.execute("SELECT n, events FROM journal ORDER BY n"):
            head, events = _opened(sealed)[:HEAD], _opened(sealed)[HEAD:]
            if n != (n if number is None else number + 1) or head[SIZE:] != link(chain, n, events):
                raise DamagedError(f"transaction {n} does not follow the one before it")
            number, total, chain = n, head[:SIZE], head[SIZE:]
        if total != ledger.total:
            raise DamagedError("it holds parts of different moments")
        self.number, self._chain = number or 0, chain

    def _prepare(self) -> None:
        execute = self._database.execute
        execute("PRAGMA locking_mode=EXCLUSIVE")
        [(application,)] = execute("PRAGMA application_id")
        [(version,)] = execute("PRAGMA user_version")
        [(tables,)] = execute("SELECT count(*) FROM sqlite_master")
        new = (application, version, tables) == (0, 0, 0)
        if not new:
            self._check_version(application, version)
            self.numbered, self.current = version != UNNUMBERED, version == FORMAT
        execute("PRAGMA journal_mode=WAL")
        execute("PRAGMA synchronous=FULL")
        execute(f"PRAGMA journal_size_limit={64 << 20}")
        execute("BEGIN EXCLUSIVE")  # also shows that the file is not read-only
        if new:  # else nothing is written: what was kept can be taken up from a full disk
            self._make()
        execute("COMMIT")
        self._check_tables()
        self._remember_files()

    def _make(self) -> None:
        for statement in (*TABLES, f"PRAGMA application_id={APPLICATION}", f"PRAGMA user_version={FORMAT}"):
            self._database.execute(statement)

    def _check_tables(self) -> None:
        """Tables and pages; values are looked at when they are read."""
        made = self._database.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY rowid").fetchall()
        known = [(statement,) for statement in TABLES]
        if made != known and (self.current or made != known[:-1]):
            raise DamagedError("its tables are not those of a store")
        if (problems := self._database.execute("PRAGMA quick_check(1)").fetchall()) != [("ok",)]:
            raise DamagedError(str(problems[0][0]))

    def _check_version(self, application: int, version: int) -> None:
        if application != APPLICATION:
            raise ConfigError(f"store.path: {self._path} is a database of another program; give another path")
        if version > FORMAT:
            problem = f"was written by a later version of this program (format {version}, this one knows {FORMAT})"
            raise ConfigError(f"store.path: {self._path} {problem}; upgrade, or give another path")

    def _add(self, batch: Batch, ledger: Ledger) -> None:
        self._write("evidence", {file.id: _sealed(file.content) for file in batch.evidence}, ledger)
        messages = {n: _sealed(msgspec.msgpack.encode(message)) for n, message in batch.publications}
        self._write("outbox", messages, ledger)
        self._remove("outbox", "n", batch.sent, ledger)
        self._remove("evidence", "id", batch.filed, ledger)
        self._write("alarms", {n: _sealed(row) for n, row in batch.alarms.rows.items()}, ledger)
        self._remove("alarms", "n", tuple(batch.alarms.gone), ledger)

    def _put(self, setting: Setting, snapshot: Snapshot, ledger: Ledger) -> bytes:
        """Write a setting and what changed of the agents; returns the beginning of the chain that follows."""
        states = {**snapshot.agents, **snapshot.pages}  # an agent is one level of a topic: no `/` in its name
        self._remove("snapshot", "agent", [name for name, state in states.items() if state is None], ledger)
        held = {name: _sealed(state) for name, state in states.items() if state is not None}
        self._write("snapshot", held, ledger)
        setting = msgspec.structs.replace(setting, common=snapshot.common)
        head = (self.number + 1).to_bytes(SIZE, "big") + ledger.total
        content = _sealed(head + msgspec.msgpack.encode(setting))
        self._database.execute("INSERT OR REPLACE INTO setting VALUES (1, ?)", (content,))
        return link(BEGINNING, 0, content)

    def _write(self, table: str, rows: Mapping[_K, bytes], ledger: Ledger) -> None:
        if rows:
            self._database.executemany(f"INSERT OR REPLACE INTO {table} VALUES (?, ?)", rows.items())  # noqa: S608
        for key, content in rows.items():
            ledger.put(table, key, content)

    def _remove(self, table: str, column: str, keys: Sequence[_K], ledger: Ledger) -> None:
        if keys:
            self._database.executemany(f"DELETE FROM {table} WHERE {column} = ?", [(key,) for key in keys])  # noqa: S608
        ledger.drop(table, keys)


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


def _decoded(content: bytes, kind: type[_T]) -> _T:
    try:
        return msgspec.msgpack.decode(content, type=kind)
    except msgspec.DecodeError as error:
        raise DamagedError(str(error)) from error
