"""How far the database was written, in a file of its own: what SQLite cannot say of itself.

At the first frame of its log that does not check SQLite stops reading and takes what came before for all there is: a
flipped bit, a shortened or a removed log looks like a process that ended earlier. So the number of each transaction is
written down beside it, once it is on the disk. A database that has fewer than its mark has lost some.
"""

from __future__ import annotations

import os
import struct
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Final

__all__ = ["HighWaterMark"]

_MAGIC: Final = b"cfmk"
_NUMBER: Final = struct.Struct(">4sQ")
_CHECK: Final = struct.Struct(">I")
_SIZE: Final = _NUMBER.size + _CHECK.size


class HighWaterMark:
    """The file at `path`, made with the first number that is written. Raises OSError where the disk does.

    A number is handed to the operating system, so it outlives this process; `sync` has it outlive the system. Before
    the first `sync` after it, a mark may be too low after a power failure, and never too high.

    Attributes:
        number: the number in the file, as last read or written; None: there is none, or no file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.number: int | None = None
        self._descriptor: int | None = None
        self._written = False

    def read(self) -> None:
        """Look what an earlier process wrote."""
        try:
            self.number = _read(self.path.read_bytes())
        except FileNotFoundError:
            self.number = None

    def write(self, number: int) -> None:
        """Put this number in place of the one before."""
        if self._descriptor is None:
            self._descriptor = self._open(number)
        os.pwrite(self._descriptor, _sealed(number), 0)
        self.number, self._written = number, True

    def sync(self) -> None:
        """Have what was written on the disk."""
        if self._written and self._descriptor is not None:
            os.fdatasync(self._descriptor)
            self._written = False

    def intact(self) -> bool:
        """Whether the file that was written is the one that is there."""
        if self._descriptor is None:
            return True
        ours = os.fstat(self._descriptor)
        try:
            there = self.path.stat()
        except FileNotFoundError:
            return False
        return (ours.st_dev, ours.st_ino) == (there.st_dev, there.st_ino) and there.st_size >= _SIZE

    def close(self) -> None:
        """Let go of the file; the next `write` opens the one that is there then."""
        if self._descriptor is not None:
            with suppress(OSError):
                self.sync()
            os.close(self._descriptor)
            self._descriptor = None

    def _open(self, number: int) -> int:
        """The file, which is there after a power failure too before a number is written into it."""
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            if os.fstat(descriptor).st_size < _SIZE:
                os.pwrite(descriptor, _sealed(number), 0)
                os.fsync(descriptor)
                folder = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY)
                try:
                    os.fsync(folder)
                finally:
                    os.close(folder)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor


def _sealed(number: int) -> bytes:
    head = _NUMBER.pack(_MAGIC, number)
    return head + _CHECK.pack(zlib.crc32(head))


def _read(content: bytes) -> int | None:
    """The number in a file's content; None if it is not what was written."""
    if len(content) != _SIZE or content[_NUMBER.size :] != _CHECK.pack(zlib.crc32(content[: _NUMBER.size])):
        return None
    magic, number = _NUMBER.unpack(content[: _NUMBER.size])
    return int(number) if magic == _MAGIC else None
