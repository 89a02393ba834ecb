"""Rows remembered by observed transition and state: two hash tables over arrays that grow to a limit.

The arrays are those compiled code reads and writes (`monitor.exact.forward.rows`); here is who makes room for them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from monitor.arrays import Floats, Ints, Shorts
from monitor.jit import compiled, inlined

__all__ = [
    "ANY",
    "COMPUTED",
    "ENTRIES",
    "EXACT",
    "MOVES",
    "NUMBERS",
    "STABLE",
    "TRANSITIONS",
    "Allowance",
    "Memory",
    "RowTable",
    "RowTables",
    "place",
]


EXACT, ANY, STABLE = 0, 1, 2
"""Which rows: the Gumbel-Max row, or bounds over a class of causal models (`monitor.types.CausalModel`)."""

MAX_NUMBERS = 4_000_000
"""Probabilities the memos of one model may hold together before one of them starts anew: 64 to 96 MB. One question that
needs more is given more."""

FIRST_ROOM = 64, 256, 256, 2048
"""Transitions, entries, moves and numbers that a memo has room for before it grows."""

USED = TRANSITIONS, ENTRIES, MOVES, NUMBERS, COMPUTED = range(5)
"""What `Memory.used` counts: the first four in use, the last: counterfactual rows ever computed."""


class Memory(NamedTuple):
    """The arrays of a memo. Two hash tables (open addressing, -1: free), then moves, then the numbers of their rows.

    `gain` is the reward expected of a move, times its share; of bounds only the part that no successor changes, the
    rest being `extra`, the part of each successor.
    """

    transition_keys: Ints
    transition_values: Ints
    entry_keys: Ints
    entry_values: Ints
    entry_begin: Ints
    action: Ints
    share: Floats
    gain: Floats
    row_begin: Ints
    states: Shorts
    low: Floats
    high: Floats
    extra: Floats
    used: Ints


class Allowance:
    """What the memos that share it hold together."""

    def __init__(self) -> None:
        self.held = 0


class RowTable:
    """Rows by observed transition and state; `arrays` changes where it grows. `kind`: EXACT, ANY or STABLE."""

    def __init__(self, kind: int, allowance: Allowance | None = None) -> None:
        self.kind, self._allowance = kind, allowance or Allowance()
        self.arrays = self._allocate(*FIRST_ROOM)
        self._allowance.held += len(self.arrays.states)

    @property
    def computed(self) -> int:
        """Counterfactual rows ever computed."""
        return int(self.arrays.used[COMPUTED])

    def make_room(self, *, forget: bool) -> None:
        """Twice the room; beyond MAX_NUMBERS the same, with everything forgotten, if that is allowed."""
        old = self.arrays
        transitions, entries = len(old.transition_keys) // 2, len(old.entry_begin) - 1
        held, numbers, used = len(old.action), len(old.states), old.used
        if forget and used[ENTRIES] > 0 and self._allowance.held + numbers > MAX_NUMBERS:
            computed = used[COMPUTED]
            self.arrays = self._allocate(transitions, entries, held, numbers)
            self.arrays.used[COMPUTED] = computed
            return
        self._allowance.held += numbers
        new = self._allocate(
            transitions * (2 if 2 * used[TRANSITIONS] >= transitions else 1),
            entries * (2 if 2 * used[ENTRIES] >= entries else 1),
            held * 2,  # not only where they are many: one state may have more than there is room for
            numbers * 2,
        )
        for name in Memory._fields[Memory._fields.index("entry_begin") :]:  # behind the tables
            source: npt.NDArray[np.generic] = getattr(old, name)
            getattr(new, name)[: len(source)] = source
        rehash(old.transition_keys, old.transition_values, new.transition_keys, new.transition_values)
        rehash(old.entry_keys, old.entry_values, new.entry_keys, new.entry_values)
        self.arrays = new

    def close(self) -> None:
        """Give its share back; whoever still asks it has it for himself."""
        self._allowance.held -= len(self.arrays.states)
        self._allowance = Allowance()

    def _allocate(self, transitions: int, entries: int, held: int, numbers: int) -> Memory:
        transition_keys, entry_keys = np.full(2 * transitions, -1), np.full(2 * _power(entries), -1)
        return Memory(
            transition_keys,
            np.zeros_like(transition_keys),
            entry_keys,
            np.zeros_like(entry_keys),
            np.zeros(entries + 1, dtype=np.int64),
            np.zeros(held, dtype=np.int64),
            np.zeros(held),
            np.zeros(held),
            np.zeros(held + 1, dtype=np.int64),
            np.zeros(numbers, dtype=np.int32),
            np.zeros(numbers),
            np.zeros(numbers if self.kind != EXACT else 0),
            np.zeros(numbers if self.kind != EXACT else 0),
            np.zeros(len(USED), dtype=np.int64),
        )


class RowTables:
    """The memos of one world, one for each kind of row that is asked for."""

    def __init__(self, allowance: Allowance) -> None:
        self._allowance = allowance
        self._memos: dict[int, RowTable] = {}

    def __call__(self, kind: int) -> RowTable:
        """That of a kind."""
        if kind not in self._memos:
            self._memos[kind] = RowTable(kind, self._allowance)
        return self._memos[kind]

    def close(self) -> None:
        """Give all shares back."""
        for memo in self._memos.values():
            memo.close()


def _power(number: int) -> int:
    return 1 << (number - 1).bit_length()


@inlined
def place(keys: Ints, key: int) -> int:
    """Where a key stands in a hash table, or where it would."""
    mask = len(keys) - 1
    at = int(np.int64(key) * 0x9E3779B97F4A7C1 >> 17) & mask  # what overflows is dropped
    while keys[at] != -1 and keys[at] != key:
        at = (at + 1) & mask
    return at


@compiled
def rehash(keys: Ints, values: Ints, new_keys: Ints, new_values: Ints) -> None:
    """Everything from one hash table into another."""
    for n in range(len(keys)):
        if keys[n] != -1:
            at = place(new_keys, keys[n])
            new_keys[at], new_values[at] = keys[n], values[n]
