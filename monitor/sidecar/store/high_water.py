"""The high-water mark: the number of the last transaction, in a file beside the database. It reveals lost transactions.

SQLite stops reading its log at the first frame with a wrong checksum. A log that was shortened or removed, or that has
a flipped bit, therefore looks like the log of a process that ended earlier. The mark is written after each transaction.
A database whose number is below the mark has lost transactions.
"""

from __future__ import annotations

import os
import struct
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Final

_MAGIC: Final = b"cfmk"
_NUMBER: Final = struct.Struct(">4sQ")
_CHECK: Final = struct.Struct(">I")
_SIZE: Final = _NUMBER.size + _CHECK.size


class HighWaterMark:
    """The file at `path`, created by the first `write`. The methods raise OSError if the disk fails.

    A written number survives the process. After `sync` it also survives a power failure. Without `sync`, a power
    failure may leave an older (lower) number. `number`: the number last read or written; None if there is no valid
    file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.number: int | None = None
        self._descriptor: int | None = None
        self._written = False

    def read(self) -> None:
        """Read the number an earlier process wrote."""
        try:
            self.number = _read(self.path.read_bytes())
        except FileNotFoundError:
            self.number = None

    def write(self, number: int) -> None:
        """Replace the number in the file."""
        if self._descriptor is None:
            self._descriptor = self._open(number)
        os.pwrite(self._descriptor, _sealed(number), 0)
        self.number, self._written = number, True

    def sync(self) -> None:
        """Flush the number to the disk."""
        if self._written and self._descriptor is not None:
            os.fdatasync(self._descriptor)
            self._written = False

    def intact(self) -> bool:
        """Return whether the file at `path` is still the file that this object wrote."""
        if self._descriptor is None:
            return True
        try:
            found = self.path.stat()
        except FileNotFoundError:
            return False
        return os.path.samestat(os.fstat(self._descriptor), found) and found.st_size >= _SIZE

    def close(self) -> None:
        """Close the file. The next `write` opens the file that is then at `path`."""
        if self._descriptor is not None:
            with suppress(OSError):
                self.sync()
            os.close(self._descriptor)
            self._descriptor = None

    def _open(self, number: int) -> int:
        """Open the file. If it is new, first make it durable."""
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
    """Return the number in a file's content; None if it is damaged."""
    if len(content) != _SIZE or content[_NUMBER.size :] != _CHECK.pack(zlib.crc32(content[: _NUMBER.size])):
        return None
    magic, number = _NUMBER.unpack(content[: _NUMBER.size])
    return int(number) if magic == _MAGIC else None
