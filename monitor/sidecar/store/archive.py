"""Files that people look into: the evidence of alarms, and the models and policies it refers to.

`evidence/<id>` and `objects/<sha256>` lie beside the store. Both kinds are named after their content and never changed,
so that writing one twice is harmless. Where evidence is signed, `evidence/<id>.sig` is its signature.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import tempfile
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Final

from monitor.errors import ConfigError
from monitor.sidecar.effects import EvidenceFile
from monitor.sidecar.evidence.signing import Signer
from monitor.sidecar.store.retention import SeenTime

__all__ = ["Archive", "is_full"]

_NAME: Final = re.compile(r"[0-9a-f]{8,64}")
_SIGNATURE: Final = ".sig"


class Archive:
    """The folders below `folder`, made if need be. Raises ConfigError if they cannot be written to.

    `signer`: signs all evidence that is kept from now on; None: none is signed.

    A full disk is no such error: it may have room again by the time there is something to write.
    """

    def __init__(self, folder: Path, signer: Signer | None = None) -> None:
        self._signer = signer
        self.evidence = folder / "evidence"
        self.objects = folder / "objects"
        self._time = SeenTime(folder / "evidence.time")
        self._left: dict[str, tuple[int, ...] | None] = {}
        for place in (self.evidence, self.objects):
            try:
                place.mkdir(parents=True, exist_ok=True)
                with tempfile.TemporaryFile(dir=place):
                    pass
            except OSError as error:
                if not (is_full(error) and place.is_dir()):
                    raise ConfigError(f"store.path: {folder} cannot be written to: {error.strerror}") from error

    def keep_objects(self, objects: Mapping[str, bytes]) -> list[str]:
        """Keep the models and policies that evidence will refer to, by their sha256.

        Returns the names of those that had been altered, or removed since they were kept, and are written anew. Raises
        ConfigError where one cannot be read or written.
        """
        wrong = []
        for name, content in objects.items():
            path = self.objects / name
            try:
                there = _digest(path)
                if there != hashlib.sha256(content).hexdigest():
                    if there is not None or name in self._left:
                        wrong.append(name)
                    _write(path, content)
                self._left[name] = _state(path)
            except OSError as error:
                raise ConfigError(f"store.path: {self.objects} cannot be written to: {error.strerror}") from error
        return wrong

    def changed(self) -> bool:
        """Whether something happened to an object since `keep_objects` wrote it or read it; looks at no content."""
        return any(_state(self.objects / name) != left for name, left in self._left.items())

    def keep_evidence(self, file: EvidenceFile) -> None:
        """Keep one alarm's evidence; an OSError says that it was not kept.

        The signature is written first: whoever finds the evidence finds it signed, also after a crash in between.
        """
        if self._signer is not None:
            _write(self.evidence / f"{file.id}{_SIGNATURE}", self._signer.sign(file.content))
        _write(self.evidence / file.id, file.content)

    def read_evidence(self, name: str) -> bytes | None:
        """The content of `evidence/<name>`; None if there is none, or if the name could lead anywhere else."""
        return self._read(name)

    def read_object(self, sha256: str) -> bytes:
        """The content of `objects/<sha256>`, not compared with it; ConfigError if it cannot be read."""
        try:
            return (self.objects / Path(sha256).name).read_bytes()
        except OSError as error:
            raise ConfigError(f"objects/{sha256} cannot be read: {error.strerror}") from error

    def read_signature(self, name: str) -> bytes | None:
        """The content of `evidence/<name>.sig`; None as for `read_evidence`."""
        return self._read(name, _SIGNATURE)

    def prune(self, *, keep: float, size: int, needed: Collection[str] = ()) -> int:
        """Remove evidence older than `keep` seconds, then the oldest until `size` bytes are left; how many went.

        Age is time that was seen to pass (`SeenTime`), not what the clock makes of it after a jump.

        A signature goes with its evidence, and counts as part of it. What a crash left unfinished goes with them; of
        `needed`, which alarms that fire refer to, nothing goes. Objects stay: any evidence, also a copy that lies
        elsewhere, may refer to them. OSError if a file cannot go.
        """
        kept = sorted(self._kept())
        now = self._time.now(kept[-1][0] if kept else None)
        oldest, left, removed = now - keep, sum(length for _, length, _ in kept), 0
        for written, length, name in kept:
            if written >= oldest and left <= size:
                break
            if name in needed:
                continue
            for part in (name, f"{name}{_SIGNATURE}"):
                (self.evidence / part).unlink(missing_ok=True)
            left -= length
            removed += 1
        return removed

    def _kept(self) -> Iterator[tuple[float, int, str]]:
        """When each piece of evidence was written, its bytes, and its name, the signature taken together with it."""
        together: dict[str, list[tuple[float, int]]] = {}
        for written, length, path in self._files():
            together.setdefault(path.name.removesuffix(_SIGNATURE), []).append((written, length))
        for name, parts in together.items():
            yield max(written for written, _ in parts), sum(length for _, length in parts), name

    def _read(self, name: str, suffix: str = "") -> bytes | None:
        if not _NAME.fullmatch(name):
            return None
        try:
            return (self.evidence / f"{name}{suffix}").read_bytes()
        except OSError:
            return None

    def _files(self) -> Iterator[tuple[float, int, Path]]:
        """When each was written, its bytes, and where. Folders are none of ours: a disk's `lost+found`, say."""
        with os.scandir(self.evidence) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):  # just finished, under its own name now
                    if entry.is_file(follow_symlinks=False):
                        found = entry.stat(follow_symlinks=False)
                        yield found.st_mtime, found.st_size, Path(entry.path)


def is_full(error: OSError) -> bool:
    """Whether there is no room, on the disk or for us."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def _digest(path: Path) -> str | None:
    """The sha256 of a file, None if there is none; of anything but a file an empty text."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        return None
    except IsADirectoryError:
        return ""


def _state(path: Path) -> tuple[int, ...] | None:
    """What changes whenever the content does, as nobody but root can hide; None if it is gone."""
    try:
        found = path.lstat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _write(path: Path, content: bytes) -> None:
    """All or nothing, and on the disk before it returns: neither a reader nor a crash ever meets half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)  # somebody may have removed the whole folder
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".new-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
