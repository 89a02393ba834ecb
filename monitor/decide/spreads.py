"""What a path has come to so far, kept from one message to the next: each costs one step, nothing is done again.

A world's path grows by one pair with every message, and all that its past contributes to an answer is where each
obligation is owed by now. Kept under the path itself, that is found again as long as it is wanted, for every start
point, formula and agent; forgotten, it is computed anew from the path, with the same result to the bit.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["Spread", "Spreads", "Standing"]

Spread = dict[int, tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]]
"""Obligation -> the states (ascending) it is owed in, and the probability of each."""

MAX_NUMBERS = 4_000_000
"""Probabilities kept at most, with their states: 64 MB."""
OVERHEAD = 100
"""What an entry takes up beside its numbers, in numbers: 1.6 kB, measured with a path of 64 pairs for a key."""


@dataclass(frozen=True)
class Standing:
    """At an offset, before its pair is read: what is gained for good, and where the rest is owed."""

    gained: float
    spread: Spread

    @property
    def size(self) -> int:
        """Numbers held, with as many again as the entry and its key (a path) take up."""
        return OVERHEAD + sum(len(states) for states, _ in self.spread.values())


class Spreads:
    """Standings by what they depend on; the ones not wanted for longest go first."""

    def __init__(self) -> None:
        self._known: OrderedDict[Hashable, Standing] = OrderedDict()
        self._size = 0

    def __len__(self) -> int:
        """Standings held."""
        return len(self._known)

    def get(self, key: Hashable) -> Standing | None:
        """The standing under a key, if it is still held."""
        standing = self._known.get(key)
        if standing is not None:
            self._known.move_to_end(key)
        return standing

    def put(self, key: Hashable, standing: Standing) -> None:
        """Keep a standing, and let others go where there is no room."""
        if key in self._known:
            return
        self._known[key] = standing
        self._size += standing.size
        while self._size > MAX_NUMBERS:
            self._size -= self._known.popitem(last=False)[1].size
