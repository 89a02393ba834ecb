"""Which episodes of an agent are over: eight bytes for each of the last thousands, so that none is taken twice.

A broker that was killed may deliver again all that waited in it, and that may be hours old. Of the newest episodes
`ReorderBuffer` still has what was taken, step by step; of the older ones it is enough to know them again.

They lie in pages. A full page never changes, so a snapshot holds the last page only and the others are kept once.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from typing import Final

import msgspec
import numpy as np

from monitor.errors import InputError
from monitor.types import Episode

__all__ = ["PAGE", "PAGES", "PastEpisodes", "PastState"]

PAGE: Final = 512
"""Episodes on a page: 4 KiB."""

PAGES: Final = 16
"""Pages kept for an agent, the one that is being filled included: 7,680 to 8,191 episodes, in 64 KiB at most."""

_SIZE: Final = 8
_written = msgspec.msgpack.Encoder().encode
_HASH: Final = hashlib.blake2b(digest_size=_SIZE, usedforsecurity=False)


class PastState(msgspec.Struct, frozen=True, array_like=True):
    """A `PastEpisodes` as plain data, without the pages that are full; their contents are given by `pages`.

    `first`: number of the oldest page that is kept. `until`: of each full page kept, the latest time on it.
    """

    first: int = 0
    until: tuple[float, ...] = ()
    last: bytes = b""
    horizon: float = -math.inf


class PastEpisodes:
    """The episodes of one agent that are over.

    Two names share their eight bytes with probability 2**-64; the later one would be taken for over.

    Attributes:
        horizon: seconds since the epoch, the latest time of those forgotten; -inf while none is. A step of an unknown
            episode that is not later than this may belong to one of them.
    """

    def __init__(self) -> None:
        self.horizon = -math.inf
        self._first = 0
        self._full: list[bytes] = []
        self._until: list[float] = []
        self._last = bytearray()
        self._unkept: set[int] = set()

    def __len__(self) -> int:
        """Episodes remembered."""
        return len(self._full) * PAGE + len(self._last) // _SIZE

    def __contains__(self, episode: Episode) -> bool:
        if not self._full and not self._last:
            return False
        name = np.frombuffer(_name(episode), np.uint64)[0]
        pages: list[bytes | bytearray] = [self._last, *self._full]
        return any(bool((np.frombuffer(page, np.uint64) == name).any()) for page in pages)

    def add(self, episode: Episode, time: float) -> None:
        """Remember an episode; `time`: the latest of the agent's steps until now, seconds since the epoch."""
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
        """Number -> content of the full pages that were not given before, or of all; None: a page that went."""
        kept = {self._first + n: page for n, page in enumerate(self._full)}
        numbers = kept.keys() if everything else self._unkept
        found = {number: kept.get(number) for number in sorted(numbers)}
        self._unkept = set()
        return found

    def dump(self) -> PastState:
        """Plain data; `pages` gives the rest."""
        return PastState(self._first, tuple(self._until), bytes(self._last), self.horizon)

    @classmethod
    def load(cls, state: PastState, pages: Mapping[int, bytes]) -> PastEpisodes:
        """The inverse of `dump`.

        Raises:
            InputError: `bad_snapshot`, if a page is missing.
        """
        past = cls()
        past._first, past._until, past._last = state.first, list(state.until), bytearray(state.last)
        past.horizon = state.horizon
        for number in range(state.first, state.first + len(state.until)):
            page = pages.get(number)
            if page is None or len(page) != PAGE * _SIZE:
                raise InputError("bad_snapshot", f"page {number} of an agent's past episodes is not there")
            past._full.append(page)
        return past


def _name(episode: Episode) -> bytes:
    hashed = _HASH.copy()
    hashed.update(_written(episode))  # msgpack tells 1 and "1" apart
    return hashed.digest()
