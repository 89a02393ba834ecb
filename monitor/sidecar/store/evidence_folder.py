"""Files for people: the evidence of alarms, and the models and policies that the evidence refers to.

`evidence/<id>` and `objects/<sha256>` are beside the store. The files in both folders are named after their content and
never change, so writing a file twice is harmless. `evidence/<id>.sig` is the signature of signed evidence.
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

from monitor.atomic import remove_abandoned, write_files
from monitor.errors import ConfigError
from monitor.evidence.signing import Signer
from monitor.sidecar.effects import EvidenceFile
from monitor.sidecar.store.retention import SeenTime

_NAME: Final = re.compile(r"[0-9a-f]{8,64}")
_SIGNATURE: Final = ".sig"
_MODE: Final = 0o644
"""Access rights of files: readable by all."""


class EvidenceFolder:
    """The folders `evidence` and `objects` in `folder`, created if missing. `signer` signs new evidence, if given.

    Raises ConfigError if the folders cannot be written to. A full disk is no error, because it may have space later.
    """

    def __init__(self, folder: Path, signer: Signer | None = None) -> None:
        self._signer = signer
        self.evidence = folder / "evidence"
        self.objects = folder / "objects"
        self._time = SeenTime(folder / "evidence.time")
        self._states: dict[str, tuple[int, ...] | None] = {}
        for place in (self.evidence, self.objects):
            try:
                place.mkdir(parents=True, exist_ok=True)
                remove_abandoned(place)
                with tempfile.TemporaryFile(dir=place):
                    pass
            except OSError as error:
                if not (is_full(error) and place.is_dir()):
                    raise ConfigError(f"store.path: {folder} cannot be written to: {error.strerror}") from error

    def keep_objects(self, objects: Mapping[str, bytes]) -> list[str]:
        """Write the models and policies that evidence refers to (SHA-256 -> bytes); return the names of damaged files.

        A file is damaged if it was altered or removed after it was written. Raises ConfigError if a file cannot be read
        or written.
        """
        damaged = []
        for name, content in objects.items():
            path = self.objects / name
            try:
                found = _digest(path)
                if found != hashlib.sha256(content).hexdigest():
                    if found is not None or name in self._states:
                        damaged.append(name)
                    write_files(self.objects, {name: content}, mode=_MODE, tidy=False)
                self._states[name] = _state(path)
            except OSError as error:
                raise ConfigError(f"store.path: {self.objects} cannot be written to: {error.strerror}") from error
        return damaged

    def changed(self) -> bool:
        """Return whether the file of an object changed since `keep_objects`. Only file attributes are compared."""
        known = tuple(self._states.items())  # another thread may add to them
        return any(_state(self.objects / name) != state for name, state in known)

    def keep_evidence(self, *files: EvidenceFile) -> None:
        """Write evidence. Each signature is written before its evidence, so that after a crash no evidence is unsigned.

        Raises OSError; some of the files may then have been written.
        """
        contents: dict[str, bytes] = {}
        for file in files:
            if self._signer is not None:
                contents[f"{file.id}{_SIGNATURE}"] = self._signer.sign(file.content)
            contents[file.id] = file.content
        write_files(self.evidence, contents, mode=_MODE, tidy=False)

    def read_evidence(self, name: str) -> bytes | None:
        """Return the content of `evidence/<name>`; None if there is no such file, or `name` is not an id."""
        return self._read(name)

    def read_object(self, sha256: str) -> bytes:
        """Return the content of `objects/<sha256>`, without checking its digest.

        Raises ConfigError if it cannot be read.
        """
        try:
            return (self.objects / Path(sha256).name).read_bytes()
        except OSError as error:
            raise ConfigError(f"objects/{sha256} cannot be read: {error.strerror}") from error

    def read_signature(self, name: str) -> bytes | None:
        """Return the content of `evidence/<name>.sig`; None if there is no such file, or `name` is not an id."""
        return self._read(name, _SIGNATURE)

    def prune(self, *, keep: float, size: int, needed: Collection[str] = ()) -> int:
        """Remove evidence older than `keep` seconds, then the oldest beyond `size` bytes; return the number removed.

        Ages are measured in `SeenTime`, so a jump of the clock removes nothing. Signatures are removed with their
        evidence. Evidence in `needed` stays, because firing alarms refer to it. Objects stay too, because any evidence,
        even a copy elsewhere, may refer to them. Raises OSError if removing a file fails.
        """
        stored = sorted(self._stored())
        now = self._time.now(stored[-1][0] if stored else None)
        oldest, remaining, removed = now - keep, sum(length for _, length, _ in stored), 0
        for written, length, name in stored:
            if written >= oldest and remaining <= size:
                break
            if name in needed:
                continue
            for part in (name, f"{name}{_SIGNATURE}"):
                (self.evidence / part).unlink(missing_ok=True)
            remaining -= length
            removed += 1
        return removed

    def _stored(self) -> Iterator[tuple[float, int, str]]:
        """Yield the time, the bytes including the signature, and the name of each piece of evidence."""
        parts_of: dict[str, list[tuple[float, int]]] = {}
        for written, length, path in self._files():
            parts_of.setdefault(path.name.removesuffix(_SIGNATURE), []).append((written, length))
        for name, parts in parts_of.items():
            yield max(written for written, _ in parts), sum(length for _, length in parts), name

    def _read(self, name: str, suffix: str = "") -> bytes | None:
        if not _NAME.fullmatch(name):
            return None
        try:
            return (self.evidence / f"{name}{suffix}").read_bytes()
        except OSError:
            return None

    def _files(self) -> Iterator[tuple[float, int, Path]]:
        """Yield the time, bytes and path of each file. Folders are skipped, for example a disk's `lost+found`."""
        with os.scandir(self.evidence) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):  # it was just renamed to its final name
                    if entry.is_file(follow_symlinks=False):
                        found = entry.stat(follow_symlinks=False)
                        yield found.st_mtime, found.st_size, Path(entry.path)


def is_full(error: OSError) -> bool:
    """Return whether the disk or this user's quota is full."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def _digest(path: Path) -> str | None:
    """Return a file's SHA-256; None if there is no file, empty if the path is a folder."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        return None
    except IsADirectoryError:
        return ""


def _state(path: Path) -> tuple[int, ...] | None:
    """Return attributes that change with the content and that only root can forge; None if the file is gone."""
    try:
        found = path.lstat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
