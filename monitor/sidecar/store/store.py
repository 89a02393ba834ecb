"""What outlives the process, and what to do when the disk does not want to: watching goes on, and it is told.

`journal` is the database, `mark` how far it was written, `archive` the files beside it. Evidence is noted in the
transaction of its alarm and becomes a file afterwards, so that no alert waits for the file.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Final

from monitor.errors import ConfigError
from monitor.sidecar.effects import EvidenceFile, Publication
from monitor.sidecar.events import Event
from monitor.sidecar.evidence.signing import Signer
from monitor.sidecar.pipeline import Snapshot
from monitor.sidecar.recording import pack_event
from monitor.sidecar.store.alarm_history import Changes
from monitor.sidecar.store.archive import Archive, is_full
from monitor.sidecar.store.high_water import HighWaterMark
from monitor.sidecar.store.journal import (
    STORE_ERRORS,
    Batch,
    DamagedError,
    Journal,
    Kept,
    Setting,
)
from monitor.sidecar.tasks import in_thread

__all__ = ["Store"]

LOG: Final = logging.getLogger("monitor.store")
SNAPSHOT_EVENTS: Final = 20_000
"""Events from which on a snapshot takes their place: few enough to be gone through again in seconds."""

SNAPSHOT_BYTES: Final = 32 << 20
"""Bytes of events, likewise."""

MAX_PENDING_BYTES: Final = 64 << 20
"""Bytes of evidence that may wait for a disk that does not take it."""

NOTHING: Final = Kept(None, {}, {}, (), (), ())
UNCHANGED: Final = Changes()


class Store:
    """The database at `path`, and `evidence/` and `objects/` beside it; `signer` signs the evidence, if there is one.

    Used from one thread, `read_evidence` and `read_signature` from any.

    Once it is open, nothing raises: what fails stands in `problem` until it has been made good, and what is not noted
    meanwhile is in the whole snapshot that `mend` writes. `grown`: bytes of evidence filed since the last `prune`.

    What was written and is not there any more, or is not what was written, is damage: `damage` says what was found
    last, `damages` how often something was. `incomplete`: why what was `kept` is older than what was written, so that
    steps and alerts since then are not known; empty if it is not.

    Raises:
        ConfigError: it cannot be written to, is in use, not ours, or of a later version. A damaged database is set
            aside, which is told, and a new one begun; a full disk is no reason not to watch, and stands in `problem`.
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
        self._archive = Archive(path.parent, signer)
        self._journal: Journal | None = None
        self._events: list[bytes] = []
        self._count = self._size = 0
        self._pending: dict[str, bytes] = {}
        self._filed: list[str] = []
        self._unfiled = self._unwritten = ""
        self._objects: Callable[[], Mapping[str, bytes]] | None = None
        self.filed_bytes = 0
        self.kept = self._open()
        self._pending = {file.id: file.content for file in self.kept.evidence}

    # ---- the database ----

    @property
    def ok(self) -> bool:
        """Whether all there is to keep is kept."""
        return not (self.problem or self._unfiled or self._unwritten)

    @property
    def snapshot_due(self) -> bool:
        """Whether so much has happened since the last snapshot that it is time for one."""
        return self._count >= SNAPSHOT_EVENTS or self._size >= SNAPSHOT_BYTES

    def note(self, event: Event) -> None:
        """Let the next `commit` note this event; if there is none, it never happened."""
        if not self.problem:
            self._events.append(pack_event(event))

    def commit(
        self,
        publications: Sequence[tuple[int, Publication]] = (),
        evidence: Sequence[EvidenceFile] = (),
        sent: Sequence[int] = (),
        alarms: Changes = UNCHANGED,
    ) -> None:
        """Note in one transaction all events since the last, what is to be sent for them, and what has been sent.

        `alarms`: what becomes of the list of alarms.
        """
        self._add_pending(evidence)
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

    def checkpoint(self, setting: Setting, snapshot: Snapshot, sent: Sequence[int] = ()) -> None:
        """Put a snapshot of what changed in the place of the events since the last one."""
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
        """Notice files that were taken away, exchanged or cut off, and have the mark on the disk; now and then."""
        if self.problem or self._journal is None:
            return
        try:
            self._journal.check_files()
            if not self._mark.intact():
                raise DamagedError(f"{self._mark.path.name} was removed or exchanged while it was in use")
            self._mark.sync()
        except STORE_ERRORS as error:
            self._fail(error)

    def replace(
        self,
        setting: Setting,
        snapshot: Snapshot,
        waiting: Sequence[tuple[int, Publication]],
        alarms: Mapping[int, bytes] = MappingProxyType({}),
    ) -> None:
        """Write everything anew: the whole state, what is still to be sent, evidence in no file yet, all `alarms`."""
        evidence = [EvidenceFile(name, content) for name, content in self._pending.items()]
        try:
            if self._journal is None:
                self._journal = self._open_journal()
            self._journal.number = self._number
            self._write_mark(self._number)  # there is a mark before there is anything that it could be missing for
            batch = Batch(publications=waiting, evidence=evidence, alarms=Changes(alarms))
            self._journal.checkpoint(setting, snapshot, batch, everything=True)
            self._write_mark(self._journal.number)
        except (*STORE_ERRORS, ConfigError) as error:
            self._fail(error)
            return
        self._clear_batch()
        self._unsaved = False
        if self.problem:
            LOG.warning("the store works again; nothing is missing in it")
        self.problem = ""

    def start_over(self, reason: str) -> None:
        """Set the database aside: it can be read, but not taken up. Evidence in it stays ours. ConfigError if not."""
        if self._journal is not None:
            self._journal.close()
        try:
            self._set_aside(reason)
            self._journal = self._open_journal()
        except STORE_ERRORS as error:
            self._continue_without(error)
        self.kept, self.incomplete = NOTHING, ""

    def close(self) -> None:
        """Let go; what was committed stays."""
        if self._journal is not None:
            self._journal.close()
            self._journal = None
        self._mark.close()

    def _open(self) -> Kept:
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
        """Hold what is there against how much was written: what SQLite leaves out at the end it does not tell."""
        marked, found = self._mark.number, journal.number
        self._number = max(self._number, found)
        if marked is None and journal.numbered and found:
            self.incomplete = f"{self._mark.path.name} is missing or damaged, so the end may be missing too"
        elif marked is not None and journal.numbered and found < marked:
            missing = f"{marked - found} of {marked}" if found else f"all {marked}"
            self.incomplete = f"{missing} transactions that were written are missing"
        if self.damages:
            self.incomplete = ""  # all of it was set aside, and that was told
        elif self.incomplete:
            self._report_damage(self.incomplete)

    def _write_mark(self, number: int) -> None:
        """This transaction is on the disk."""
        self._mark.write(number)
        self._number = number

    def _mark_unsaved(self) -> None:
        """What happens now is acknowledged and not kept: should we end before that is made good, it is to be seen."""
        if not self._unsaved:
            self._unsaved = True
            with suppress(OSError):
                self._write_mark(self._number + 1)
                self._mark.sync()

    def _report_damage(self, what: str) -> None:
        self.damage = what
        self.damages += 1
        LOG.error("the store is not what was written: %s: %s", self._path, what)

    def _set_aside(self, reason: str) -> None:
        n = 1
        while (aside := self._path.with_name(f"{self._path.name}.corrupt-{n}")).exists():
            n += 1
        for suffix in ("-wal", "-shm", ""):
            part = self._path.with_name(self._path.name + suffix)
            if part.exists():
                part.rename(f"{aside}{suffix}")
        LOG.error("%s cannot be used (%s): set aside as %s, and begun anew", self._path, reason, aside.name)
        self.damage = f"{reason}: set aside as {aside.name}, and begun anew"
        self.damages += 1

    def _continue_without(self, error: Exception) -> None:
        """A disk that is full will have room again, and `mend` tries; what else is wrong is refused: ConfigError."""
        code = getattr(error, "sqlite_errorcode", None)
        if code != sqlite3.SQLITE_FULL and not (isinstance(error, OSError) and is_full(error)):
            raise ConfigError(f"store.path: {self._path} cannot be written to: {error}") from error
        self._fail(error)

    def _clear_batch(self) -> None:
        self._events.clear()
        self._filed.clear()
        self._count = self._size = 0

    def _fail(self, error: Exception) -> None:
        """Go on without; the connection to the database is made anew, for it may know wrong things of the file."""
        self.failures += 1
        if not self.problem:  # else it was said; what fails first, of two files on one disk, may change with each try
            LOG.error("nothing is kept from here on, a restart would begin anew: %s: %s", self._path, error)
        if isinstance(error, DamagedError):
            self._report_damage(str(error))
        self.problem = str(error) or type(error).__name__
        self._clear_batch()
        self.close()

    # ---- the files ----

    def keep_objects(self, objects: Callable[[], Mapping[str, bytes]]) -> None:
        """Keep the models and policies that evidence will refer to; on a full disk once there is room, see `ok`.

        One that is there and not what its name says is written anew, now and in `file_evidence`, and that is told.
        Raises ConfigError where they cannot be kept for another reason.
        """
        self._objects = objects
        try:
            self._report_altered(self._archive.keep_objects(objects()))
        except ConfigError as error:
            if not (isinstance(error.__cause__, OSError) and is_full(error.__cause__)):
                raise
            self._objects_failed(error)

    def read_evidence(self, name: str) -> bytes | None:
        """The content of `/evidence/<name>`, wherever it is by now; None if there is none."""
        waiting = self._pending.get(name)
        return waiting if waiting is not None else self._archive.read_evidence(name)

    def read_object(self, sha256: str) -> bytes:
        """A model or policy that evidence names; ConfigError if it is not there."""
        return self._archive.read_object(sha256)

    def read_signature(self, name: str) -> bytes | None:
        """The content of `/evidence/<name>.sig`; None if there is no such evidence, or it was never signed."""
        waiting = self._pending.get(name)
        if waiting is None:
            return self._archive.read_signature(name)
        return None if self._signer is None else self._signer.sign(waiting)

    async def file_evidence(self) -> None:
        """Make files of the evidence that is noted, one after the other, in a thread; and see to what it refers to."""
        await self._restore_objects()
        for name, content in list(self._pending.items()):
            try:
                await in_thread(partial(self._archive.keep_evidence, EvidenceFile(name, content)))
            except OSError as error:  # it stays in the database, and in memory
                self._filing_failed(f"evidence {name}", error.strerror or str(error))
                return
            self._pending.pop(name, None)
            self._filed.append(name)
            self.filed_bytes += len(content)
        self._unfiled = ""

    def _filing_failed(self, what: str, reason: str) -> None:
        if self._unfiled != reason:
            self.failures += 1
            LOG.error("%s could not be kept: %s", what, reason)
        self._unfiled = reason

    async def _restore_objects(self) -> None:
        """Write models and policies that found no room, or that were removed or altered since we last looked."""
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
            LOG.error("models and policies that evidence refers to could not be kept: %s", error)
        self._unwritten = str(error)

    def _report_altered(self, names: Sequence[str]) -> None:
        for name in names:
            self._report_damage(f"objects/{name} was removed or altered, and is written anew")

    async def prune(self, *, keep: float, size: int, needed: Collection[str] = ()) -> None:
        """Remove evidence that is too old (seconds) or too much (bytes), but not what is `needed`."""
        self.filed_bytes = 0
        try:
            removed = await in_thread(partial(self._archive.prune, keep=keep, size=size, needed=needed))
        except OSError as error:
            LOG.warning("old evidence could not be removed: %s", error)
            return
        if removed:
            LOG.info("the evidence of %d alarms was removed: older than store.keep, or beyond store.size", removed)

    def _add_pending(self, evidence: Sequence[EvidenceFile]) -> None:
        self._pending.update((file.id, file.content) for file in evidence)
        if not evidence or sum(map(len, self._pending.values())) <= MAX_PENDING_BYTES:
            return
        while sum(map(len, self._pending.values())) > MAX_PENDING_BYTES:
            lost = next(iter(self._pending))
            del self._pending[lost]
            self._filed.append(lost)  # nor shall it fill the database
            self.failures += 1
            LOG.error("evidence %s is given up: the disk takes none", lost)
