"""Checksums over what a database holds, kept up with each transaction, so that what is read is what was written last.

A row's own checksum finds a row that is damaged, not one that is missing or of another moment. A sum over the digests
of all rows finds those; and events, which only ever follow one another, are chained.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Final

__all__ = ["BEGINNING", "SIZE", "Ledger", "link"]

SIZE: Final = 8
"""Bytes of a checksum."""

BEGINNING: Final = bytes(SIZE)
"""What a chain begins with where there is nothing else."""

_ALL: Final = 1 << 8 * SIZE


class Ledger:
    """The sum over rows that come and go, each known by its table and key; in whatever order they came."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str | int], int] = {}
        self._total = 0

    @property
    def total(self) -> bytes:
        """The checksum over all rows there are."""
        return self._total.to_bytes(SIZE, "big")

    def put(self, table: str, key: str | int, content: bytes) -> None:
        """A row is there, in place of the one with this key."""
        self.drop(table, [key])
        name = str(key)
        digest = int.from_bytes(_digest(f"{table} {len(name)} {name}".encode(), content), "big")
        self._rows[table, key] = digest
        self._total = (self._total + digest) % _ALL

    def drop(self, table: str, keys: Iterable[str | int]) -> None:
        """These rows are gone, if they were there."""
        for key in keys:
            self._total = (self._total - self._rows.pop((table, key), 0)) % _ALL


def link(before: bytes, number: int, content: bytes) -> bytes:
    """The checksum over a chain that this is the newest member of; `before`: that over the members before it."""
    return _digest(before + number.to_bytes(SIZE, "big"), content)


def _digest(head: bytes, content: bytes) -> bytes:
    """`head` says of what the content is; none is the beginning of another, so no two things look the same."""
    return hashlib.blake2b(head + content, digest_size=SIZE).digest()
