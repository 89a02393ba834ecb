"""SQLite database of the durable state: a snapshot, the later events, and the messages still to be sent.

Each batch is one transaction, which is on the disk before `commit` returns (WAL, synchronous=FULL). SQLite's pages have
no checksum, so each stored value has a checksum of its own. Transactions are numbered. The newest transaction has a
checksum over the whole database (`ledger`), which reveals rows of different transactions. The mark (`high_water`)
reveals that the last transactions are missing.
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
from monitor.sidecar.store.alarm_history import AlarmRecord, HistoryChanges
from monitor.sidecar.store.ledger import BEGINNING, SIZE, Ledger, link
from monitor.types.specs import FormulaSpec

_T = TypeVar("_T")
_K = TypeVar("_K", str, int)
HEAD: Final = 2 * SIZE
"""Number of bytes before the content of a setting (transaction number, checksum of all rows) or of events (checksum of
all rows, chain)."""

APPLICATION: Final = 0x63666D6E
"""SQLite's `application_id`: `cfmn`."""

FORMAT: Final = 3
"""The current format. Format 2 had no alarm history; a database in format 2 can be read, and is converted when
everything is written."""

UNNUMBERED: Final = 1
"""The format in which transactions had no numbers."""

PATIENCE: Final = 1.0
"""Seconds to wait for a sidecar that is shutting down."""

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
"""SQLite's error codes for failures of the disk and for locks of other processes. Any other code means damage, because
our statements are correct for these tables."""


class DamagedError(Exception):
    """The database does not contain what was written to it."""


STORE_ERRORS: Final = (OSError, sqlite3.Error, DamagedError)
"""Errors of the disk or of the database's content."""


class SnapshotSetting(msgspec.Struct, frozen=True, array_like=True):
    """Settings and times that belong to a snapshot.

    `inputs_digest`: `Loaded.inputs_digest`. `ticks`: last ticks of the process.

    `shard`: the configured shard; empty if the monitor watches all agents of the fleet.
    """

    client_id: str
    inputs_digest: str = ""
    formulas: tuple[FormulaSpec, ...] = ()
    ticks: float = 0.0
    common: bytes | None = None
    shard: str = ""


class Batch(msgspec.Struct, frozen=True):
    """Changes of one transaction.

    `events`: concatenated packed events. `sent`: numbers of publications that were sent. `filed`: ids of evidence that
    was written to files. `alarms`: changes of the alarm history.
    """

    events: bytes = b""
    publications: Sequence[tuple[int, Publication]] = ()
    evidence: Sequence[EvidenceFile] = ()
    sent: Sequence[int] = ()
    filed: Sequence[str] = ()
    alarms: HistoryChanges = HistoryChanges()


class StoreContent(msgspec.Struct, frozen=True):
    """Content of the database. `agents`, `pages`: as in `Snapshot`.

    `events`: packed events, one element per transaction.
    """

    setting: SnapshotSetting | None
    agents: Mapping[str, bytes]
    pages: Mapping[str, bytes]
    events: Sequence[bytes]
    publications: Sequence[tuple[int, Publication]]
    evidence: Sequence[EvidenceFile]
    alarms: Sequence[tuple[int, AlarmRecord]] = ()


class Journal:
    """The database at `path`, created if missing, and locked against other processes.

    `number`: number of the last transaction, known after `read`. `numbered`: whether the format has transaction
    numbers. `current`: whether the database has the newest format.

    Raises:
        ConfigError: the database is in use, of a later version, or not of this program.
        STORE_ERRORS: the database cannot be read or written; DamagedError if its content is damaged. All methods raise
            these errors.
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
        # The connection is created in one thread and used in another, never in two at once; HTTP uses only `Store`.
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

    def read(self) -> StoreContent:
        """Return the whole content. Raises DamagedError if a value differs from the value that was written."""
        with self._as_damage():
            return self._read()

    def commit(self, batch: Batch) -> None:
        """Write a batch. If STORE_ERRORS are raised, nothing of the batch was written."""
        assert self.current, "a database of an earlier version is first written by `checkpoint(everything=True)`"
        with self._transaction() as ledger:
            self._add(batch, ledger)
            chain = link(self._chain, self.number + 1, batch.events)
            content = _sealed(ledger.total + chain + batch.events)
            self._database.execute("INSERT INTO journal VALUES (?, ?)", (self.number + 1, content))
        self._chain = chain

    def checkpoint(self, setting: SnapshotSetting, snapshot: Snapshot, batch: Batch, *, everything: bool) -> None:
        """Write a batch, and a snapshot that replaces the earlier events. Errors are those of `commit`.

        `everything`: snapshot and batch replace the whole content of the database.
        """
        assert not batch.events, "they would be written and removed again"
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
        """Raise DamagedError if the database's files were removed, replaced or truncated.

        SQLite does not notice this. It continues to use the open files, whose content is lost when SQLite closes them.
        """
        for file, known in self._file_stats.items():
            try:
                found = os.stat(file)  # noqa: PTH116 - twice a transaction: a Path would double its time
            except FileNotFoundError:
                raise DamagedError(f"{Path(file).name} was removed while it was in use") from None
            if not os.path.samestat(found, known):
                raise DamagedError(f"{Path(file).name} was replaced while it was in use")
            if found.st_size < known.st_size:
                raise DamagedError(f"{Path(file).name} was truncated while it was in use")

    def close(self) -> None:
        """Close the database; committed transactions are durable."""
        with suppress(sqlite3.Error):
            self._database.close()

    @contextmanager
    def _as_damage(self) -> Iterator[None]:
        """Convert sqlite3's errors about the file's content to DamagedError. Errors of the disk pass unchanged."""
        try:
            yield
        except (sqlite3.Error, UnicodeDecodeError) as error:
            code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF  # no code: a text is not UTF-8
            # An unknown write version in the file's header makes SQLite report a read-only file.
            writable = code == sqlite3.SQLITE_READONLY and os.access(self._path, os.W_OK)
            if code in DISK and not writable:
                raise
            raise DamagedError(str(error)) from error

    @contextmanager
    def _transaction(self, *, everything: bool = False) -> Iterator[Ledger]:
        """Open a transaction that is durable at its end, and yield the ledger; for `everything`, an empty ledger.

        A ledger cannot be rolled back, so it is rebuilt after a failure.
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
                with suppress(sqlite3.Error):  # SQLite may have rolled back already
                    self._database.execute("ROLLBACK")
                raise
        self._ledger = ledger
        self.number += 1
        self._remember_files()

    def _remember_files(self) -> None:
        """Record the state of our files, for `check_files`."""
        for file in self._files:
            with suppress(FileNotFoundError):
                self._file_stats[file] = os.stat(file)  # noqa: PTH116 - as in `check_files`

    def _read(self) -> StoreContent:
        rows = self._database.execute
        settings = dict(rows("SELECT n, content FROM setting"))
        if settings.keys() - {1}:
            raise DamagedError("a setting is in the wrong row")
        states = {_name(name): state for name, state in rows("SELECT agent, state FROM snapshot")}
        outbox = dict(rows("SELECT n, message FROM outbox ORDER BY n"))
        evidence = {_name(name): content for name, content in rows("SELECT id, content FROM evidence")}
        alarms = dict(rows("SELECT n, alarm FROM alarms ORDER BY n")) if self.current else {}
        kept = StoreContent(
            setting=_decoded(self._without_head(settings[1]), SnapshotSetting) if settings else None,
            agents={name: _opened(state) for name, state in states.items() if "/" not in name},
            pages={name: _opened(state) for name, state in states.items() if "/" in name},
            events=[self._without_head(events) for (events,) in rows("SELECT events FROM journal ORDER BY n")],
            publications=[(n, _decoded(_opened(message), Publication)) for n, message in outbox.items()],
            evidence=[EvidenceFile(name, _opened(content)) for name, content in evidence.items()],
            alarms=[(n, _decoded(_opened(alarm), AlarmRecord)) for n, alarm in alarms.items()],
        )
        if self.numbered:
            ledger = Ledger()
            tables = {"snapshot": states, "outbox": outbox, "evidence": evidence, "alarms": alarms}
            for table, stored in tables.items():
                for key, content in stored.items():
                    ledger.put(table, key, content)
            self._check_consistent(settings.get(1), ledger)
            self._ledger = ledger
        return kept

    def _without_head(self, sealed: object) -> bytes:
        """Return the content of a setting or of events, without the checksums before it."""
        return _opened(sealed)[HEAD if self.numbered else 0 :]

    def _check_consistent(self, setting: bytes | None, ledger: Ledger) -> None:
        """Raise DamagedError unless all rows belong to the same transaction; record the transaction's number."""
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
            raise DamagedError("it has rows of different transactions")
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
        execute("BEGIN EXCLUSIVE")  # fails if the file is read-only
        if new:  # an existing database is not written to here, so that it can be read on a full disk
            for statement in (*TABLES, f"PRAGMA application_id={APPLICATION}", f"PRAGMA user_version={FORMAT}"):
                execute(statement)
        execute("COMMIT")
        self._check_tables()
        self._remember_files()

    def _check_tables(self) -> None:
        """Check tables and pages. Values are checked when they are read."""
        found = self._database.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY rowid").fetchall()
        known = [(statement,) for statement in TABLES]
        if found != known and (self.current or found != known[:-1]):
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

    def _put(self, setting: SnapshotSetting, snapshot: Snapshot, ledger: Ledger) -> bytes:
        """Write a setting and the changed agents; return the start of the chain of the following events."""
        states = {**snapshot.agents, **snapshot.pages}  # an agent's name is one level of a topic, so it contains no `/`
        self._remove("snapshot", "agent", [name for name, state in states.items() if state is None], ledger)
        self._write("snapshot", {name: _sealed(state) for name, state in states.items() if state is not None}, ledger)
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
        raise DamagedError("a name has the wrong type")
    return key


def _opened(sealed: object) -> bytes:
    if not isinstance(sealed, bytes):
        raise DamagedError("a value has the wrong type")
    content = sealed[4:]
    if zlib.crc32(content).to_bytes(4, "big") != sealed[:4]:
        raise DamagedError("a value has a wrong checksum")
    return content


def _decoded(content: bytes, kind: type[_T]) -> _T:
    try:
        return msgspec.msgpack.decode(content, type=kind)
    except msgspec.DecodeError as error:
        raise DamagedError(str(error)) from error
