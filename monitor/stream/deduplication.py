"""Digests of the accepted steps of an episode: eight bytes for each of the last steps, in a ring.

They distinguish a duplicate (equal content) from a conflict (other content).
"""

from __future__ import annotations

import hashlib

import msgspec

from monitor.types import Observation

__all__ = ["CONFLICTED", "REMEMBERED", "Deduplicator", "DigestsState", "digest"]

DigestsState = tuple[bytes, int, bytes, int]
"""`Deduplicator` as plain data."""

REMEMBERED = 512
"""Steps remembered per agent: 4 KiB. Messages of older steps count as duplicates."""

_SIZE = 8
_NOTHING = bytes(_SIZE)
CONFLICTED = b"\xff" * _SIZE
"""In place of a digest: the seq arrived with more than one content, so no content is right, or new."""
_written = msgspec.msgpack.Encoder().encode
_HASH = hashlib.blake2b(digest_size=_SIZE, usedforsecurity=False)


def digest(observation: Observation) -> bytes:
    """Return eight bytes of the content that must not differ between duplicates; never all zero, nor `CONFLICTED`.

    Two different contents collide with probability 2**-64; a collision would count as a duplicate.
    """
    o = observation
    content = (o.state, o.action, o.time, o.reward, o.terminated, o.truncated, o.policy)
    hashed = _HASH.copy()
    hashed.update(_written(content))  # msgpack distinguishes 1, 1.0, true and "1"
    found = hashed.digest()
    return found if found not in (_NOTHING, CONFLICTED) else b"\x01" * _SIZE


class Deduplicator:
    """Deduplicator of the last `REMEMBERED` seqs of one episode, and of its seq 0 for as long as the episode lasts.

    Seq 0 stays because an agent that starts over under the same episode must be noticed however late it is.
    """

    def __init__(self) -> None:
        self._ring = bytearray()
        self._end = 0
        self._first = _NOTHING
        self._begin = 0

    def put(self, seq: int, found: bytes) -> None:
        """Remember `seq`, which is beyond all remembered ones; seqs between are remembered as never accepted."""
        if seq != self._end:
            skipped = min(seq - self._end, REMEMBERED)
            for missing in range(seq - skipped, seq):
                self._write(missing, _NOTHING)
        self._write(seq, found)
        self._end = seq + 1
        if seq == 0:
            self._first = found

    def get(self, seq: int) -> bytes | None:
        """Return the digest of `seq`, None if it was never accepted or is forgotten."""
        if seq == 0:
            found = self._first
        elif max(0, self._end - REMEMBERED) <= seq < self._end:
            place = seq % REMEMBERED * _SIZE
            found = bytes(self._ring[place : place + _SIZE])
        else:
            found = _NOTHING
        return found if found.strip(b"\0") else None

    def forgot(self, seq: int) -> bool:
        """Return whether `seq` is so old that it is unknown whether it was accepted."""
        return seq != 0 and self._begin <= seq < self._end - REMEMBERED

    def clear(self, end: int = 0) -> None:
        """Forget everything; `end` is the seq that comes next."""
        self._ring.clear()
        self._begin = self._end = end
        self._first = _NOTHING

    @property
    def size(self) -> int:
        """Size in bytes."""
        return len(self._ring)

    def dump(self) -> DigestsState:
        """Return the state as plain data, for a snapshot."""
        return bytes(self._ring), self._end, self._first, self._begin

    @classmethod
    def load(cls, ring: bytes, end: int, first: bytes, begin: int) -> Deduplicator:
        """Return the deduplicator that was dumped."""
        digests = cls()
        digests._ring, digests._end, digests._first, digests._begin = bytearray(ring), end, first, begin
        return digests

    def _write(self, seq: int, found: bytes) -> None:
        place = seq % REMEMBERED * _SIZE
        if len(self._ring) < place + _SIZE:  # grows with the episode, so that short ones stay small in a snapshot
            self._ring.extend(bytes(place + _SIZE - len(self._ring)))
        self._ring[place : place + _SIZE] = found
