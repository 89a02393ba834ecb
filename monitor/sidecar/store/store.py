"""Durable state of the sidecar. When the disk fails, monitoring continues and the failure is reported.

`journal` is the database, `high_water` the number of its last transaction, `evidence_folder` the files beside it.
Evidence is first written to the database, in the transaction of its alarm, and later to a file, so no alert waits for
the file.
"""

from __future__ import annotations

import logging
import sqlite3
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Final

from monitor.errors import ConfigError
from monitor.evidence.signing import Signer
from monitor.sidecar.effects import EvidenceFile, Publication
from monitor.sidecar.events import Event
from monitor.sidecar.pipeline import Snapshot
from monitor.sidecar.recording import pack_event
from monitor.sidecar.store.alarm_history import HistoryChanges
from monitor.sidecar.store.evidence_folder import EvidenceFolder, is_full
from monitor.sidecar.store.high_water import HighWaterMark
from monitor.sidecar.store.journal import STORE_ERRORS, Batch, DamagedError, Journal, SnapshotSetting, StoreContent
from monitor.sidecar.tasks import in_thread

LOG: Final = logging.getLogger("monitor.store")
SNAPSHOT_EVENTS: Final = 20_000
"""Number of events after which a snapshot replaces them. This number of events can be replayed in seconds."""

SNAPSHOT_BYTES: Final = 32 << 20
"""Total bytes of events after which a snapshot replaces them."""

MAX_PENDING_BYTES: Final = 64 << 20
"""Maximum number of bytes of evidence waiting for a failing disk."""

FILES: Final = 64
"""Maximum number of evidence files written together. They share one thread and one flush of the folder."""

NOTHING: Final = StoreContent(None, {}, {}, (), (), ())
UNCHANGED: Final = HistoryChanges()


class Store:
    """The database at `path`, with `evidence/` and `objects/` beside it; `signer` signs the evidence, if given.

    A store is used from one thread; only `read_evidence` and `read_signature` may be called from any thread. After
    opening, no method raises if the disk fails. Instead `problem` describes the failure until `replace` writes the
    whole state.

    `filed_bytes`: bytes of evidence written to files since the last `prune`. `damage`: description of the last damage
    found. `damages`: number of damages found. `incomplete`: why `kept` is older than the state that was written last;
    empty if `kept` is not older.

    Raises:
        ConfigError: the database cannot be written to, is in use, not of this program, or of a later version. A damaged
            database is set aside and a new one is created. A full disk is reported in `problem`.
    """

    def __init__(self, path: Path, signer: Signer | None = None) -> None:
        self.problem = ""
        self.failures = 0
        self.damage = ""
        self.damages = 0
        self.incomplete = ""
        self._path = path
        self._mark = HighWaterMark(path.with_name(f"{path.name}-mark"))
        self._number = 0
        self._unsaved = False
        self._signer = signer
        self._archive = EvidenceFolder(path.parent, signer)
        self._journal: Journal | None = None
        self._events: list[bytes] = []
        self._count = self._size = 0
        self._pending: OrderedDict[str, bytes] = OrderedDict()
        self._filed: list[str] = []
        self._unfiled = self._unwritten = ""
        self._objects: Callable[[], Mapping[str, bytes]] | None = None
        self.filed_bytes = 0
        self.kept = self._open()
        self._pending.update((file.id, file.content) for file in self.kept.evidence)

    # ---- the database ----

    @property
    def ok(self) -> bool:
        """True if everything that must be stored is stored."""
        return not (self.problem or self._unfiled or self._unwritten)

    @property
    def snapshot_due(self) -> bool:
        """True if there were enough events since the last snapshot to write a new one."""
        return self._count >= SNAPSHOT_EVENTS or self._size >= SNAPSHOT_BYTES

    def note(self, event: Event) -> None:
        """Add an event to the next `commit`."""
        if not self.problem:
            self._events.append(pack_event(event))

    def commit(
        self,
        publications: Sequence[tuple[int, Publication]] = (),
        evidence: Sequence[EvidenceFile] = (),
        sent: Sequence[int] = (),
        alarms: HistoryChanges = UNCHANGED,
    ) -> None:
        """Write all events since the last commit, their publications, evidence and alarms, and the numbers `sent`."""
        self.hold(evidence)
        if self.problem or self._journal is None:
            self._mark_unsaved()
            return
        batch = Batch(b"".join(self._events), publications, evidence, sent, tuple(self._filed), alarms)
        try:
            self._journal.commit(batch)
            self._write_mark(self._journal.number)
        except STORE_ERRORS as error:
            self._fail(error)
            self._mark_unsaved()
            return
        self._count += len(self._events)
        self._size += len(batch.events)
        self._events.clear()
        self._filed.clear()

    def checkpoint(self, setting: SnapshotSetting, snapshot: Snapshot, sent: Sequence[int] = ()) -> None:
        """Replace the events since the last snapshot by a snapshot of the agents that changed."""
        if self.problem or self._journal is None:
            return
        try:
            self._journal.checkpoint(setting, snapshot, Batch(sent=sent, filed=tuple(self._filed)), everything=False)
            self._write_mark(self._journal.number)
        except STORE_ERRORS as error:
            self._fail(error)
            return
        self._clear_batch()

    def check_files(self) -> None:
        """Detect files that were removed, replaced or truncated, and flush the mark. Call this periodically."""
        if self.problem or self._journal is None:
            return
        try:
            self._journal.check_files()
            if not self._mark.intact():
                raise DamagedError(f"{self._mark.path.name} was removed or replaced while it was in use")
            self._mark.sync()
        except STORE_ERRORS as error:
            self._fail(error)

    def replace(
        self,
        setting: SnapshotSetting,
        snapshot: Snapshot,
        waiting: Sequence[tuple[int, Publication]],
        alarms: Mapping[int, bytes] = MappingProxyType({}),
    ) -> None:
        """Write everything: state, messages `waiting` to be sent, evidence not in files yet, and all `alarms`."""
        evidence = [EvidenceFile(name, content) for name, content in self._pending.items()]
        try:
            if self._journal is None:
                self._journal = self._open_journal()
            self._journal.number = self._number
            self._write_mark(self._number)  # first, so that a database with content always has a mark
            batch = Batch(publications=waiting, evidence=evidence, alarms=HistoryChanges(alarms))
            self._journal.checkpoint(setting, snapshot, batch, everything=True)
            self._write_mark(self._journal.number)
        except (*STORE_ERRORS, ConfigError) as error:
            self._fail(error)
            return
        self._clear_batch()
        self._unsaved = False
        if self.problem:
            LOG.warning("the store works again and is complete")
        self.problem = ""

    def start_over(self, reason: str) -> None:
        """Set aside a database whose content cannot be restored, and create a new one. Pending evidence is kept."""
        if self._journal is not None:
            self._journal.close()
        try:
            self._set_aside(reason)
            self._journal = self._open_journal()
        except STORE_ERRORS as error:
            self._continue_without(error)
        self.kept, self.incomplete = NOTHING, ""

    def close(self) -> None:
        """Close the database; committed transactions are durable."""
        if self._journal is not None:
            self._journal.close()
            self._journal = None
        self._mark.close()

    def _open(self) -> StoreContent:
        try:
            self._journal = self._open_journal()
            self._mark.read()
            self._number = self._mark.number or 0
            kept = self._journal.read()
        except DamagedError as error:
            self.start_over(str(error))
        except STORE_ERRORS as error:
            self._continue_without(error)
        else:
            self._compare(self._journal)
            return kept
        return NOTHING

    def _open_journal(self) -> Journal:
        try:
            return Journal(self._path)
        except DamagedError as error:
            self._set_aside(str(error))
            return Journal(self._path)

    def _compare(self, journal: Journal) -> None:
        """Compare the number of the last transaction with the high-water mark, to detect lost transactions.

        SQLite does not report that the newest transactions are missing.
        """
        marked, found = self._mark.number, journal.number
        self._number = max(self._number, found)
        if marked is None and journal.numbered and found:
            self.incomplete = f"{self._mark.path.name} is missing or damaged, so the end may be missing too"
        elif marked is not None and journal.numbered and found < marked:
            missing = f"{marked - found} of {marked}" if found else f"all {marked}"
            self.incomplete = f"{missing} transactions that were written are missing"
        if self.damages:
            self.incomplete = ""  # the report that the database was set aside is enough
        elif self.incomplete:
            self._report_damage(self.incomplete)

    def _write_mark(self, number: int) -> None:
        """Record that this transaction is on the disk."""
        self._mark.write(number)
        self._number = number

    def _mark_unsaved(self) -> None:
        """Advance the mark, so that the next process detects messages that were acknowledged but not stored."""
        if not self._unsaved:
            self._unsaved = True
            with suppress(OSError):
                self._write_mark(self._number + 1)
                self._mark.sync()

    def _report_damage(self, what: str) -> None:
        self.damage = what
        self.damages += 1
        LOG.error("the store is damaged: %s: %s", self._path, what)

    def _set_aside(self, reason: str) -> None:
        n = 1
        while (aside := self._path.with_name(f"{self._path.name}.corrupt-{n}")).exists():
            n += 1
        for suffix in ("-wal", "-shm", ""):
            part = self._path.with_name(self._path.name + suffix)
            if part.exists():
                part.rename(f"{aside}{suffix}")
        self._report_damage(f"{reason}: set aside as {aside.name}; a new one is created")

    def _continue_without(self, error: Exception) -> None:
        """Continue without the database if the disk is full, because this may pass.

        Raise ConfigError for any other error.
        """
        code = getattr(error, "sqlite_errorcode", None)
        if code != sqlite3.SQLITE_FULL and not (isinstance(error, OSError) and is_full(error)):
            raise ConfigError(f"store.path: {self._path} cannot be written to: {error}") from error
        self._fail(error)

    def _clear_batch(self) -> None:
        self._events.clear()
        self._filed.clear()
        self._count = self._size = 0

    def _fail(self, error: Exception) -> None:
        """Continue without the database, whose connection may be in an inconsistent state.

        `replace` reopens the database.
        """
        self.failures += 1
        if not self.problem:  # log the failure only once; at each try, another of the two files may fail first
            LOG.error("the store fails, until it works again a restart would lose state: %s: %s", self._path, error)
        if isinstance(error, DamagedError):
            self._report_damage(str(error))
        self.problem = str(error) or type(error).__name__
        self._clear_batch()
        self.close()

    # ---- the files ----

    def keep_objects(self, objects: Callable[[], Mapping[str, bytes]]) -> None:
        """Write the models and policies that evidence refers to.

        If the disk is full, they are written later (see `ok`).

        Altered or removed files are rewritten and reported, here and in `file_evidence`. Raises ConfigError for errors
        other than a full disk.
        """
        self._objects = objects
        try:
            self._report_altered(self._archive.keep_objects(objects()))
        except ConfigError as error:
            if not (isinstance(error.__cause__, OSError) and is_full(error.__cause__)):
                raise
            self._objects_failed(error)

    def read_evidence(self, name: str) -> bytes | None:
        """Return the content of `/evidence/<name>`, from a file or from memory; None if there is no such evidence."""
        pending = self._pending.get(name)
        return pending if pending is not None else self._archive.read_evidence(name)

    def read_object(self, sha256: str) -> bytes:
        """Return a model or policy that evidence refers to. Raises ConfigError if it is missing."""
        return self._archive.read_object(sha256)

    def read_signature(self, name: str) -> bytes | None:
        """Return the content of `/evidence/<name>.sig`; None if there is no such evidence, or if it is not signed."""
        pending = self._pending.get(name)
        if pending is None:
            return self._archive.read_signature(name)
        return None if self._signer is None else self._signer.sign(pending)

    async def file_evidence(self) -> None:
        """Write pending evidence to files, in a thread. First restore the objects that the evidence refers to."""
        await self._restore_objects()
        pending = [EvidenceFile(name, content) for name, content in self._pending.items()]
        groups = deque(pending[start : start + FILES] for start in range(0, len(pending), FILES))
        while groups:
            files = groups.popleft()
            try:
                await in_thread(partial(self._archive.keep_evidence, *files))
            except OSError as error:  # the evidence stays in the database and in memory
                if len(files) > 1:  # only one of the files may have failed
                    groups.extendleft([file] for file in reversed(files))
                    continue
                if files[0].id in self._pending:
                    self._pending.move_to_end(files[0].id)  # at the next attempt, this file does not delay other files
                self._filing_failed(f"evidence {files[0].id}", error.strerror or str(error))
                return
            for file in files:
                self._pending.pop(file.id, None)
                self.filed_bytes += len(file.content)
            self._filed += [file.id for file in files]
        self._unfiled = ""

    def _filing_failed(self, what: str, reason: str) -> None:
        if self._unfiled != reason:
            self.failures += 1
            LOG.error("%s could not be saved: %s", what, reason)
        self._unfiled = reason

    async def _restore_objects(self) -> None:
        """Write models and policies that could not be written before, or that were removed or altered since."""
        if self._objects is None or not (self._unwritten or self._archive.changed()):
            return
        try:
            self._report_altered(await in_thread(partial(self._archive.keep_objects, self._objects())))
        except (ConfigError, OSError) as error:
            self._objects_failed(error)
        else:
            self._unwritten = ""

    def _objects_failed(self, error: Exception) -> None:
        if self._unwritten != str(error):
            self.failures += 1
            LOG.error("models and policies that evidence refers to could not be saved: %s", error)
        self._unwritten = str(error)

    def _report_altered(self, names: Sequence[str]) -> None:
        for name in names:
            self._report_damage(f"objects/{name} was removed or altered, and is rewritten")

    async def prune(self, *, keep: float, size: int, needed: Collection[str] = ()) -> None:
        """Remove evidence older than `keep` seconds or beyond `size` bytes, except `needed`."""
        self.filed_bytes = 0
        try:
            removed = await in_thread(partial(self._archive.prune, keep=keep, size=size, needed=needed))
        except OSError as error:
            LOG.warning("old evidence could not be removed: %s", error)
            return
        if removed:
            LOG.info("removed the evidence of %d alarms: older than store.keep, or beyond store.size", removed)

    def hold(self, evidence: Sequence[EvidenceFile]) -> None:
        """Hold evidence in memory for `read_evidence`. A later `commit` writes it."""
        added = {file.id: file.content for file in evidence if file.id not in self._pending}
        self._pending.update(added)
        while added and sum(map(len, self._pending.values())) > MAX_PENDING_BYTES:
            lost = next(iter(self._pending))
            del self._pending[lost]
            self._filed.append(lost)  # so that it is also removed from the database
            self.failures += 1
            LOG.error("evidence %s is discarded: too much waits for a failing disk", lost)
