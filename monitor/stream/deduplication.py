"""Digests of the newest accepted steps of an episode, eight bytes each, in a ring buffer.

A step with a known seq is a duplicate if it has the stored digest, and a conflict if it has another digest.
"""

from __future__ import annotations

import hashlib
import math

import msgspec

from monitor.stream.digests import plain_digest, policy_word
from monitor.types.stream_events import Observation

DigestsState = tuple[bytes, int, bytes, int]
"""State of a `Deduplicator` as plain data; the arguments of `load`."""

REMEMBERED = 512
"""Number of newest steps whose digests are kept (4 KiB). A message of an older step counts as a duplicate."""

_SIZE = 8
_SEQS = REMEMBERED
_ABSENT = math.nan
_NOTHING = bytes(_SIZE)
CONFLICTED = b"\xff" * _SIZE
"""Stored instead of a digest if a seq was received with different contents, because it is unknown which is correct."""
_written = msgspec.msgpack.Encoder().encode
_HASH = hashlib.blake2b(digest_size=_SIZE, usedforsecurity=False)


def digest(observation: Observation) -> bytes:
    """Return an eight-byte hash of the fields that duplicates have in common. It is never all zero, nor `CONFLICTED`.

    Two different contents have the same digest with probability 2**-64; then the second content would count as a
    duplicate. Plain contents that differ in only one field never have the same digest (`monitor.stream.digests`).
    """
    o = observation
    content = (o.state, o.action, o.time, o.reward, o.terminated, o.truncated, o.policy)
    state, action, time, reward, terminated, truncated, policy = content
    more = o.inputs is not None or terminated or truncated
    if type(state) is int and type(action) is int and state >= 0 and action >= 0 and not more:
        time, reward = _ABSENT if time is None else time, _ABSENT if reward is None else reward
        return int(plain_digest(state, action, time, reward, policy_word(policy))).to_bytes(_SIZE, "little")
    if o.inputs is not None or o.observation is not None:
        content = (*content, o.inputs)  # type: ignore[assignment]
    if o.observation is not None:
        content = (*content, o.observation)  # type: ignore[assignment]
    hashed = _HASH.copy()
    hashed.update(_written(content))  # msgpack distinguishes 1, 1.0, true and "1"
    found = hashed.digest()
    return found if found not in (_NOTHING, CONFLICTED) else b"\x01" * _SIZE


class Deduplicator:
    """Digests of the last `REMEMBERED` seqs of one episode, and of its seq 0 until the episode ends.

    Seq 0 is kept so that an agent that restarts under the same episode is detected at any time.
    """

    def __init__(self) -> None:
        self._ring = bytearray()
        self._end = 0
        self._first = _NOTHING
        self._begin = 0

    def put(self, seq: int, hashed: bytes) -> None:
        """Store the digest of `seq`, which must be larger than all stored seqs.

        Skipped seqs count as never accepted.
        """
        if seq != self._end:
            skipped = min(seq - self._end, _SEQS)
            for missing in range(seq - skipped, seq):
                self._write(missing, _NOTHING)
        place = seq % _SEQS * _SIZE
        if place < len(self._ring):
            self._ring[place : place + _SIZE] = hashed
        else:
            self._write(seq, hashed)
        self._end = seq + 1
        if seq == 0:
            self._first = hashed

    def get(self, seq: int) -> bytes | None:
        """Return the digest of `seq`; None if the seq was never accepted or its digest is no longer stored."""
        if seq == 0:
            found = self._first
        elif max(0, self._end - REMEMBERED) <= seq < self._end:
            place = seq % _SEQS * _SIZE
            found = bytes(self._ring[place : place + _SIZE])
        else:
            found = _NOTHING
        return found if found.strip(b"\0") else None

    def forgot(self, seq: int) -> bool:
        """Return whether `seq` is older than the stored seqs, so that it is unknown whether it was accepted."""
        return seq != 0 and self._begin <= seq < self._end - REMEMBERED

    def clear(self, end: int = 0) -> None:
        """Delete all digests. `end`: the next seq."""
        self._ring.clear()
        self._begin = self._end = end
        self._first = _NOTHING

    @property
    def size(self) -> int:
        """Number of bytes in the ring buffer."""
        return len(self._ring)

    def dump(self) -> DigestsState:
        """Return the state as plain data, for a snapshot."""
        return bytes(self._ring), self._end, self._first, self._begin

    @staticmethod
    def load(ring: bytes, end: int, first: bytes, begin: int) -> Deduplicator:
        """Return the deduplicator of a dumped state."""
        deduplicator = Deduplicator()
        deduplicator._ring, deduplicator._end = bytearray(ring), end
        deduplicator._first, deduplicator._begin = first, begin
        return deduplicator

    def _write(self, seq: int, hashed: bytes) -> None:
        place = seq % _SEQS * _SIZE
        if len(self._ring) < place + _SIZE:  # grows with the episode, so a short episode needs few bytes
            self._ring.extend(bytes(place + _SIZE - len(self._ring)))
        self._ring[place : place + _SIZE] = hashed
