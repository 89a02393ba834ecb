"""Hashes of thousands of ended episodes of an agent, eight bytes each, so that no episode is accepted twice.

A broker that was killed may redeliver its whole queue, which may be hours old. For the newest ended episodes,
`ReorderBuffer` has a digest of each step. For the older episodes in this module, every step counts as a duplicate.

Hashes are stored in pages. A full page never changes, so it is stored once, and a snapshot contains only the last page.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from typing import Final

import msgspec
import numpy as np

from monitor.errors import InputError
from monitor.types.stream_events import Episode

PAGE: Final = 512
"""Number of episodes on a page of 4 KiB."""

PAGES: Final = 16
"""Number of pages kept for an agent, including the page being filled: 7,680 to 8,191 episodes in at most 64 KiB."""

_SIZE: Final = 8
_written = msgspec.msgpack.Encoder().encode
_HASH: Final = hashlib.blake2b(digest_size=_SIZE, usedforsecurity=False)


class PastState(msgspec.Struct, frozen=True, array_like=True):
    """State of a `PastEpisodes` as plain data. It lacks the full pages, which `PastEpisodes.pages` returns.

    `first`: number of the oldest kept page. `until`: latest time on each kept full page. `last`: the page being filled.
    """

    first: int = 0
    until: tuple[float, ...] = ()
    last: bytes = b""
    horizon: float = -math.inf


class PastEpisodes:
    """Ended episodes of one agent.

    Two episodes have the same hash with probability 2**-64; then the second episode would be rejected.

    Attributes:
        horizon: latest time of a forgotten episode, in seconds since the epoch; -inf if none is forgotten. A step of an
            unknown episode may belong to a forgotten episode if the step is not later than this time.
    """

    def __init__(self) -> None:
        self.horizon = -math.inf
        self._first = 0
        self._full: list[bytes] = []
        self._until: list[float] = []
        self._last = bytearray()
        self._unkept: set[int] = set()

    def __len__(self) -> int:
        """Return the number of episodes remembered."""
        return len(self._full) * PAGE + len(self._last) // _SIZE

    def __contains__(self, episode: Episode) -> bool:
        if not self._full and not self._last:
            return False
        name = np.frombuffer(_name(episode), np.uint64)[0]
        pages: list[bytes | bytearray] = [self._last, *self._full]
        return any(bool((np.frombuffer(page, np.uint64) == name).any()) for page in pages)

    def add(self, episode: Episode, time: float) -> None:
        """Append an episode; `time`: latest time of the agent's steps so far, seconds since the epoch."""
        self._last += _name(episode)
        if len(self._last) < PAGE * _SIZE:
            return
        self._unkept.add(self._first + len(self._full))
        self._full.append(bytes(self._last))
        self._until.append(time)
        self._last.clear()
        if len(self._full) == PAGES:
            self._unkept.add(self._first)
            self._first += 1
            del self._full[0]
            self.horizon = max(self.horizon, self._until.pop(0))

    def pages(self, *, everything: bool = False) -> dict[int, bytes | None]:
        """Return number -> content of full pages new since the last call, or of all full pages; None: deleted page."""
        kept = {self._first + n: page for n, page in enumerate(self._full)}
        numbers = kept.keys() if everything else self._unkept
        pages = {number: kept.get(number) for number in sorted(numbers)}
        self._unkept = set()
        return pages

    def dump(self) -> PastState:
        """Return the state as plain data, without the full pages."""
        return PastState(self._first, tuple(self._until), bytes(self._last), self.horizon)

    @classmethod
    def load(cls, state: PastState, pages: Mapping[int, bytes]) -> PastEpisodes:
        """Return the episodes of a dumped state. Raises InputError (`bad_snapshot`) if a page is missing."""
        past = cls()
        past._first, past._until, past._last = state.first, list(state.until), bytearray(state.last)
        past.horizon = state.horizon
        for number in range(state.first, state.first + len(state.until)):
            page = pages.get(number)
            if page is None or len(page) != PAGE * _SIZE:
                raise InputError(
                    "bad_snapshot", f"page {number} of an agent's past episodes is missing; start anew without it"
                )
            past._full.append(page)
        return past


def _name(episode: Episode) -> bytes:
    hashed = _HASH.copy()
    hashed.update(_written(episode))  # msgpack distinguishes 1 and "1"
    return hashed.digest()
