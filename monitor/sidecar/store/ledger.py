"""Checksums over the whole database, updated with each transaction.

A row's own checksum reveals that the row is damaged, but not that a row is missing or outdated. A sum over the digests
of all rows also reveals missing and outdated rows. Events are only appended, so their checksums form a chain.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Final

SIZE: Final = 8
"""Number of bytes of a checksum."""

BEGINNING: Final = bytes(SIZE)
"""Start of an empty chain."""

_ALL: Final = 1 << 8 * SIZE


class Ledger:
    """Order-independent sum over the digests of all rows, each identified by its table and key."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str | int], int] = {}
        self._total = 0

    @property
    def total(self) -> bytes:
        """Checksum over all rows."""
        return self._total.to_bytes(SIZE, "big")

    def put(self, table: str, key: str | int, content: bytes) -> None:
        """Add a row, or replace the one with this key."""
        name = str(key)
        digest = int.from_bytes(_digest(f"{table} {len(name)} {name}".encode(), content), "big")
        self._total = (self._total - self._rows.get((table, key), 0) + digest) % _ALL
        self._rows[table, key] = digest

    def drop(self, table: str, keys: Iterable[str | int]) -> None:
        """Remove the rows that exist."""
        for key in keys:
            self._total = (self._total - self._rows.pop((table, key), 0)) % _ALL


def link(before: bytes, number: int, content: bytes) -> bytes:
    """Return the checksum of the chain `before` extended by a member with this number and content."""
    return _digest(before + number.to_bytes(SIZE, "big"), content)


def _digest(head: bytes, content: bytes) -> bytes:
    """Return the digest of `head` and `content`. `head` identifies the content. No head is a prefix of another head."""
    return hashlib.blake2b(head + content, digest_size=SIZE).digest()
