"""What tests reach and how long they take, kept between runs while neither they nor the source have changed."""

from __future__ import annotations

import hashlib
import pickle
from dataclasses import dataclass
from functools import cache
from pathlib import Path

__all__ = ["Known", "Learned"]


@dataclass(frozen=True)
class Known:
    """One test: seconds of work, the lines reached by file, and whether it is of use (it passes and is quick)."""

    seconds: float
    lines: dict[str, frozenset[int]]
    useful: bool


class Learned:
    """A file of what is known about tests, by their names and the state of the source."""

    def __init__(self, path: Path, root: Path) -> None:
        self._path, self._root = path, root
        self._known: dict[tuple[str, str], Known] = {}
        if path.is_file():
            self._known = pickle.loads(path.read_bytes())

    def get(self, test: str) -> Known | None:
        """Return what is known about a test as it is now."""
        return self._known.get((test, self._state(test)))

    def put(self, test: str, known: Known) -> None:
        """Remember a test."""
        self._known[test, self._state(test)] = known

    def save(self) -> None:
        """Write all down."""
        self._path.parent.mkdir(exist_ok=True)
        self._path.write_bytes(pickle.dumps(self._known))

    def _state(self, test: str) -> str:
        return _digest(self._root, "monitor") + _digest(self._root, test.split("::", 1)[0])


@cache
def _digest(root: Path, what: str) -> str:
    path = root / what
    files = sorted(path.rglob("*.py")) if path.is_dir() else [path]
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()
