"""Files that must outlive the process: the evidence of alarms, and the models and policies it refers to.

`evidence/<id>` and `objects/<sha256>` lie beside the configured `store.path`. Both kinds are named after their content
and never changed, so that writing one twice is harmless.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path

from monitor.errors import ConfigError
from monitor.sidecar.pipeline import EvidenceFile

__all__ = ["Store"]

_NAME = re.compile(r"[0-9a-f]{8,64}")


class Store:
    """The folders beside `path`, made if need be. Raises ConfigError if they cannot be written to."""

    def __init__(self, path: Path) -> None:
        self.evidence = path.parent / "evidence"
        self.objects = path.parent / "objects"
        try:
            for folder in (self.evidence, self.objects):
                folder.mkdir(parents=True, exist_ok=True)
                with tempfile.TemporaryFile(dir=folder):
                    pass
        except OSError as error:
            raise ConfigError(f"store.path: {path.parent} cannot be written to: {error.strerror}") from error

    def keep_objects(self, objects: Mapping[str, bytes]) -> None:
        """Keep the models and policies that evidence will refer to; raises ConfigError where that fails."""
        for name, content in objects.items():
            if not (self.objects / name).exists():
                try:
                    _write(self.objects / name, content)
                except OSError as error:
                    raise ConfigError(f"store.path: {self.objects} cannot be written to: {error.strerror}") from error

    def keep_evidence(self, file: EvidenceFile) -> None:
        """Keep one alarm's evidence; an OSError says that it was not kept."""
        _write(self.evidence / file.id, file.content)

    def read_evidence(self, name: str) -> bytes | None:
        """The content of `/evidence/<name>`; None if there is none, or if the name could lead anywhere else."""
        if not _NAME.fullmatch(name):
            return None
        try:
            return (self.evidence / name).read_bytes()
        except OSError:
            return None


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
