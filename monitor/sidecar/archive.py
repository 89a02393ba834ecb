"""Files that people look into: the evidence of alarms, and the models and policies it refers to.

`evidence/<id>` and `objects/<sha256>` lie beside the store. Both kinds are named after their content and never changed,
so that writing one twice is harmless. Where evidence is signed, `evidence/<id>.sig` is its signature.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Final

from monitor.errors import ConfigError
from monitor.sidecar.effects import EvidenceFile
from monitor.sidecar.signing import Signer

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
        for place in (self.evidence, self.objects):
            try:
                place.mkdir(parents=True, exist_ok=True)
                with tempfile.TemporaryFile(dir=place):
                    pass
            except OSError as error:
                if not (is_full(error) and place.is_dir()):
                    raise ConfigError(f"store.path: {folder} cannot be written to: {error.strerror}") from error

    def keep_objects(self, objects: Mapping[str, bytes]) -> None:
        """Keep the models and policies that evidence will refer to; raises ConfigError where that fails."""
        for name, content in objects.items():
            if not (self.objects / name).exists():
                try:
                    _write(self.objects / name, content)
                except OSError as error:
                    raise ConfigError(f"store.path: {self.objects} cannot be written to: {error.strerror}") from error

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

    def read_signature(self, name: str) -> bytes | None:
        """The content of `evidence/<name>.sig`; None as for `read_evidence`."""
        return self._read(name, _SIGNATURE)

    def clear_out(self, *, keep: float, size: int, needed: Collection[str] = ()) -> int:
        """Remove evidence older than `keep` seconds, then the oldest until `size` bytes are left; how many went.

        A signature goes with its evidence, and counts as part of it. What a crash left unfinished goes with them; of
        `needed`, which alarms that fire refer to, nothing goes. Objects stay: any evidence, also a copy that lies
        elsewhere, may refer to them. OSError if a file cannot go.
        """
        kept = sorted(self._kept())
        oldest, left, removed = time.time() - keep, sum(length for _, length, _ in kept), 0
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


def _write(path: Path, content: bytes) -> None:
    """All or nothing, and on the disk before it returns: neither a reader nor a crash ever meets half a file."""
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
