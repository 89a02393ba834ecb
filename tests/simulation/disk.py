"""A disk: a power failure keeps any of the sectors written since the last flush, and a full disk takes no transaction.

SQLite's log is flushed at the end of each transaction, so only the sectors of the last one can be missing. The mark
beside the database is flushed at times only.
"""

from __future__ import annotations

import sqlite3
from itertools import zip_longest
from pathlib import Path
from random import Random
from typing import Final

from monitor.sidecar.store.high_water import HighWaterMark

SECTOR: Final = 512


class Disk:
    """The disk of the sidecar.

    `full`: it takes nothing more; `refused`: it has refused a transaction, and has taken none since; `flushed`: the
    mark as it was flushed last.
    """

    def __init__(self) -> None:
        self.full = self.refused = False
        self.flushed = b""

    def take(self) -> None:
        """Take a transaction. Raises sqlite3.OperationalError if the disk is full."""
        self.refused = self.full
        if self.full:
            error = sqlite3.OperationalError("database or disk is full")
            error.sqlite_errorcode = sqlite3.SQLITE_FULL
            raise error

    def empty(self) -> None:
        self.full = False

    def flush(self, mark: HighWaterMark) -> None:
        """Note what the mark says when it is flushed."""
        self.flushed = mark.path.read_bytes()


def files_of(database: Path) -> tuple[bytes, bytes]:
    """Return the content of a database and of its log."""
    log = database.with_name(f"{database.name}-wal")
    return database.read_bytes(), log.read_bytes() if log.exists() else b""


def lose_power(database: Path, before: tuple[bytes, bytes], flushed: bytes, draw: Random) -> None:
    """Leave some of the sectors in which the log differs from `before`, and the mark as `flushed`.

    If SQLite has moved its log into the database, the log was flushed before, and all of it is there.
    """
    content, log = files_of(database)
    if content == before[0]:
        torn = bytearray()
        for new, old in zip_longest(_sectors(log), _sectors(before[1]), fillvalue=b""):
            torn += new if new == old or draw.random() < 0.7 else old.ljust(len(new), b"\0")
        database.with_name(f"{database.name}-wal").write_bytes(torn)
    if flushed:
        database.with_name(f"{database.name}-mark").write_bytes(flushed)


def _sectors(content: bytes) -> list[bytes]:
    return [content[at : at + SECTOR] for at in range(0, len(content), SECTOR)]
