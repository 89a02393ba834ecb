"""What outlives the process, and what to do when the disk does not want to: watching goes on, and it is told.

`journal` is the database, `archive` the files beside it. Evidence is noted in the transaction of its alarm and becomes
a file afterwards, so that no alert waits for the file.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from monitor.errors import ConfigError
from monitor.sidecar.archive import Archive, is_full
from monitor.sidecar.effects import EvidenceFile, Publication
from monitor.sidecar.events import Event
from monitor.sidecar.journal import STORE_ERRORS, Batch, DamagedError, Journal, Kept, Setting
from monitor.sidecar.pipeline import Snapshot
from monitor.sidecar.recording import pack_event
from monitor.sidecar.signing import Signer
from monitor.sidecar.tasks import in_thread

__all__ = ["Store"]

LOG: Final = logging.getLogger("monitor.store")
LONG: Final = 20_000
"""Events from which on a snapshot takes their place: few enough to be gone through again in seconds."""

LARGE: Final = 32 << 20
"""Bytes of events, likewise."""

PENDING: Final = 64 << 20
"""Bytes of evidence that may wait for a disk that does not take it."""

NOTHING: Final = Kept(None, {}, (), (), ())


class Store:
    """The database at `path`, and `evidence/` and `objects/` beside it; `signer` signs the evidence, if there is one.

    Used from one thread, `read_evidence` and `read_signature` from any.

    Once it is open, nothing raises: what fails stands in `problem` until it has been made good, and what is not noted
    meanwhile is in the whole snapshot that `mend` writes. `grown`: bytes of evidence filed since the last `clear_out`.

    Raises:
        ConfigError: it cannot be written to, is in use, not ours, or of a later version. A damaged database is set
            aside, which is told, and a new one begun; a full disk is no reason not to watch, and stands in `problem`.
    """

    def __init__(self, path: Path, signer: Signer | None = None) -> None:
        self.problem = ""
        self.failures = 0
        self._path = path
        self._signer = signer
        self._archive = Archive(path.parent, signer)
        self._journal: Journal | None = None
        self._events: list[bytes] = []
        self._count = self._size = 0
        self._pending: dict[str, bytes] = {}
        self._filed: list[str] = []
        self._unfiled = ""
        self.grown = 0
        self.kept = self._open()
        self._pending = {file.id: file.content for file in self.kept.evidence}

    # ---- the database ----

    @property
    def ok(self) -> bool:
        """Whether all there is to keep is kept."""
        return not self.problem and not self._unfiled

    @property
    def long(self) -> bool:
        """Whether so much has happened since the last snapshot that it is time for one."""
        return self._count >= LONG or self._size >= LARGE

    def note(self, event: Event) -> None:
        """Let the next `commit` note this event; if there is none, it never happened."""
        if not self.problem:
            self._events.append(pack_event(event))

    def commit(
        self,
        publications: Sequence[tuple[int, Publication]] = (),
        evidence: Sequence[EvidenceFile] = (),
        sent: Sequence[int] = (),
    ) -> None:
        """Note in one transaction all events since the last, what is to be sent for them, and what has been sent."""
        self._expect(evidence)
        if self.problem or self._journal is None:
            return
        batch = Batch(b"".join(self._events), publications, evidence, sent, tuple(self._filed))
        try:
            self._journal.commit(batch)
        except STORE_ERRORS as error:
            self._fail(error)
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
        except STORE_ERRORS as error:
            self._fail(error)
            return
        self._forget()

    def mend(self, setting: Setting, snapshot: Snapshot, waiting: Sequence[tuple[int, Publication]]) -> None:
        """Write everything anew: the whole state, what is still to be sent, and evidence that is in no file yet."""
        evidence = [EvidenceFile(name, content) for name, content in self._pending.items()]
        try:
            if self._journal is None:
                self._journal = self._open_or_begin()
            self._journal.checkpoint(setting, snapshot, Batch(publications=waiting, evidence=evidence), everything=True)
        except (*STORE_ERRORS, ConfigError) as error:
            self._fail(error)
            return
        self._forget()
        if self.problem:
            LOG.warning("the store works again; nothing is missing in it")
        self.problem = ""

    def begin_anew(self, reason: str) -> None:
        """Set the database aside: it can be read, but not taken up. Evidence in it stays ours. ConfigError if not."""
        if self._journal is not None:
            self._journal.close()
        try:
            self._set_aside(reason)
            self._journal = self._open_or_begin()
        except STORE_ERRORS as error:
            self._begin_without(error)
        self.kept = NOTHING

    def close(self) -> None:
        """Let go; what was committed stays."""
        if self._journal is not None:
            self._journal.close()
            self._journal = None

    def _open(self) -> Kept:
        try:
            self._journal = self._open_or_begin()
            return self._journal.read()
        except DamagedError as error:
            self.begin_anew(str(error))
        except STORE_ERRORS as error:
            self._begin_without(error)
        return NOTHING

    def _open_or_begin(self) -> Journal:
        try:
            return Journal(self._path)
        except DamagedError as error:
            self._set_aside(str(error))
            return Journal(self._path)

    def _set_aside(self, reason: str) -> None:
        n = 1
        while (aside := self._path.with_name(f"{self._path.name}.corrupt-{n}")).exists():
            n += 1
        for suffix in ("-wal", "-shm", ""):
            part = self._path.with_name(self._path.name + suffix)
            if part.exists():
                part.rename(f"{aside}{suffix}")
        LOG.error("%s cannot be used (%s): set aside as %s, and begun anew", self._path, reason, aside.name)

    def _begin_without(self, error: Exception) -> None:
        """A disk that is full will have room again, and `mend` tries; what else is wrong is refused: ConfigError."""
        code = getattr(error, "sqlite_errorcode", None)
        if code != sqlite3.SQLITE_FULL and not (isinstance(error, OSError) and is_full(error)):
            raise ConfigError(f"store.path: {self._path} cannot be written to: {error}") from error
        self._fail(error)

    def _forget(self) -> None:
        self._events.clear()
        self._filed.clear()
        self._count = self._size = 0

    def _fail(self, error: Exception) -> None:
        """Go on without; the connection to the database is made anew, for it may know wrong things of the file."""
        self.failures += 1
        if self.problem != str(error):
            LOG.error("nothing is kept from here on, a restart would begin anew: %s: %s", self._path, error)
        self.problem = str(error) or type(error).__name__
        self._forget()
        self.close()

    # ---- the files ----

    def keep_objects(self, objects: Mapping[str, bytes]) -> None:
        """Keep the models and policies that evidence will refer to; raises ConfigError where that fails."""
        self._archive.keep_objects(objects)

    def read_evidence(self, name: str) -> bytes | None:
        """The content of `/evidence/<name>`, wherever it is by now; None if there is none."""
        waiting = self._pending.get(name)
        return waiting if waiting is not None else self._archive.read_evidence(name)

    def read_signature(self, name: str) -> bytes | None:
        """The content of `/evidence/<name>.sig`; None if there is no such evidence, or it was never signed."""
        waiting = self._pending.get(name)
        if waiting is None:
            return self._archive.read_signature(name)
        return None if self._signer is None else self._signer.sign(waiting)

    async def file_evidence(self) -> None:
        """Make files of the evidence that is noted, one after the other, in a thread."""
        for name, content in list(self._pending.items()):
            try:
                await in_thread(partial(self._archive.keep_evidence, EvidenceFile(name, content)))
            except OSError as error:  # it stays in the database, and in memory
                reason = error.strerror or str(error)
                if self._unfiled != reason:
                    self.failures += 1
                    LOG.error("evidence %s could not be kept: %s", name, reason)  # noqa: TRY400 - no bug, no traceback
                self._unfiled = reason
                return
            self._pending.pop(name, None)
            self._filed.append(name)
            self.grown += len(content)
        self._unfiled = ""

    async def clear_out(self, *, keep: float, size: int, needed: Collection[str] = ()) -> None:
        """Remove evidence that is too old (seconds) or too much (bytes), but not what is `needed`."""
        self.grown = 0
        try:
            removed = await in_thread(partial(self._archive.clear_out, keep=keep, size=size, needed=needed))
        except OSError as error:
            LOG.warning("old evidence could not be removed: %s", error)
            return
        if removed:
            LOG.info("the evidence of %d alarms was removed: older than store.keep, or beyond store.size", removed)

    def _expect(self, evidence: Sequence[EvidenceFile]) -> None:
        self._pending.update((file.id, file.content) for file in evidence)
        if not evidence or sum(map(len, self._pending.values())) <= PENDING:
            return
        while sum(map(len, self._pending.values())) > PENDING:
            lost = next(iter(self._pending))
            del self._pending[lost]
            self._filed.append(lost)  # nor shall it fill the database
            self.failures += 1
            LOG.error("evidence %s is given up: the disk takes none", lost)
