"""Cache of the rows of a counterfactual chain, by observed transition and state: two hash tables over growing arrays.

A row depends on the observed transition of its step, on the state, and on what acts there (docs/semantics.md,
section 3), so it is computed once (`rows.py`, compiled) and kept here. Rules:

- A transition s, a -> s_next observed under one phase of the law has an index; (index, state) has an *entry*; an entry
  has one row for each action that may be taken in the state, or one in all if nothing depends on the action; a row
  has its successors, as in CSR.
- Hash tables are open-addressed, with -1 for a free slot, and at most half full: a probe always ends.
- Compiled code appends and never grows an array. If one is full it returns FULL and counts no incomplete entry; then
  `grow` enlarges the arrays, or clears this table if all tables of the model would have room for over MAX_SUCCESSORS.
- Clearing changes no answer: a row computed again has the same bits.
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
    "HELD",
    "OBSERVED",
    "ROWS",
    "STABLE",
    "SUCCESSORS",
    "Budget",
    "RowArrays",
    "RowTable",
    "RowTables",
    "find_slot",
]


EXACT, ANY, STABLE = 0, 1, 2
"""Kind of a row: the Gumbel-Max row, or bounds over a class of causal models (`monitor.types.CausalModel`)."""

MAX_SUCCESSORS = 4_000_000
"""Successors that the tables of one model may hold together before one is cleared: 64 to 96 MB. A single query that
needs more gets more."""

INITIAL_SIZES = 64, 256, 256, 2048
"""Observed transitions, entries, rows and successors that fit before a table grows."""

USED = OBSERVED, ENTRIES, ROWS, SUCCESSORS, COMPUTED, HELD = range(6)
"""Indices of `RowArrays.used`: four counts of what is held; the counterfactual rows computed so far; 1 + the pair whose
row is in `RowArrays.observed`, 0 if there is none."""


class RowArrays(NamedTuple):
    """Arrays of a table: two hash tables, then rows, then the successors of rows.

    Entry e has the rows `entry_begin[e]:entry_begin[e + 1]`, row r the `successors` `row_begin[r]:row_begin[r + 1]`.
    Of a row: its `action`, the `weight` of that action (its probability) and the expected `reward` times the weight.
    Of a successor: an EXACT row has in `lower` its probability itself, times the weight, and no `upper`; bounds have
    the `lower` and `upper` bound of it without the weight, and the part of the reward that depends on it
    (`successor_reward`), which `reward` then leaves out.

    The others are working memory for the next row: `observed` [S], the row of an observed pair as a dense vector;
    `place` [S], where in `successors` the last row has a state, if that is within the row and has this state; `p`,
    `shared` and `breaks` [S], as in `monitor.causal.row`.
    """

    observed_keys: Ints
    observed_values: Ints
    entry_keys: Ints
    entry_values: Ints
    entry_begin: Ints
    action: Ints
    weight: Floats
    reward: Floats
    row_begin: Ints
    successors: Shorts
    lower: Floats
    upper: Floats
    successor_reward: Floats
    used: Ints
    observed: Floats
    place: Shorts
    p: Floats
    shared: Ints
    breaks: Floats


class Budget:
    """Number of successors for which the tables that share this budget have allocated space."""

    def __init__(self) -> None:
        self.allocated = 0


class RowTable:
    """Rows of one kind (EXACT, ANY or STABLE) over `states` states; `arrays` is replaced when the table grows."""

    def __init__(self, kind: int, states: int, budget: Budget | None = None) -> None:
        self.kind, self._budget = kind, budget or Budget()
        self._working_memory = (
            np.zeros(states),
            np.zeros(states, dtype=np.int32),
            np.zeros(states),
            np.zeros(states, dtype=np.int64),
            np.zeros(states),
        )
        self.arrays = self._allocate(*INITIAL_SIZES)
        self._budget.allocated += len(self.arrays.successors)

    @property
    def computed(self) -> int:
        """Number of counterfactual rows computed so far."""
        return int(self.arrays.used[COMPUTED])

    def grow(self, *, forget: bool) -> None:
        """Double the arrays; beyond MAX_SUCCESSORS clear them instead, if `forget` allows it."""
        old = self.arrays
        observed, entries = len(old.observed_keys) // 2, len(old.entry_begin) - 1
        rows, successors, used = len(old.action), len(old.successors), old.used
        if forget and used[ENTRIES] > 0 and self._budget.allocated + successors > MAX_SUCCESSORS:
            old.observed_keys.fill(-1)
            old.entry_keys.fill(-1)
            used[: SUCCESSORS + 1] = 0
            return
        self._budget.allocated += successors
        new = self._allocate(
            observed * (2 if 2 * used[OBSERVED] >= observed else 1),
            entries * (2 if 2 * used[ENTRIES] >= entries else 1),
            rows * 2,  # even if few are used: a single state may need more than there are
            successors * 2,
        )
        for name in RowArrays._fields[RowArrays._fields.index("entry_begin") :]:  # all but the hash tables
            source: npt.NDArray[np.generic] = getattr(old, name)
            getattr(new, name)[: len(source)] = source
        rehash(old.observed_keys, old.observed_values, new.observed_keys, new.observed_values)
        rehash(old.entry_keys, old.entry_values, new.entry_keys, new.entry_values)
        self.arrays = new

    def close(self) -> None:
        """Return the allocation to the budget; a remaining user continues with its own budget."""
        self._budget.allocated -= len(self.arrays.successors)
        self._budget = Budget()

    def _allocate(self, observed: int, entries: int, rows: int, successors: int) -> RowArrays:
        observed_keys, entry_keys = np.full(2 * observed, -1), np.full(2 * _power_of_two(entries), -1)
        return RowArrays(
            observed_keys,
            np.zeros_like(observed_keys),
            entry_keys,
            np.zeros_like(entry_keys),
            np.zeros(entries + 1, dtype=np.int64),
            np.zeros(rows, dtype=np.int64),
            np.zeros(rows),
            np.zeros(rows),
            np.zeros(rows + 1, dtype=np.int64),
            np.zeros(successors, dtype=np.int32),
            np.zeros(successors),
            np.zeros(successors if self.kind != EXACT else 0),
            np.zeros(successors if self.kind != EXACT else 0),
            np.zeros(len(USED), dtype=np.int64),
            *self._working_memory,
        )


class RowTables:
    """Row tables of one world of `states` states, one for each kind of row in use."""

    def __init__(self, states: int, budget: Budget) -> None:
        self._states, self._budget = states, budget
        self._tables: dict[int, RowTable] = {}

    def __call__(self, kind: int) -> RowTable:
        """Return the table of a kind."""
        if kind not in self._tables:
            self._tables[kind] = RowTable(kind, self._states, self._budget)
        return self._tables[kind]

    def close(self) -> None:
        """Return all allocations to the budget."""
        for table in self._tables.values():
            table.close()


def _power_of_two(number: int) -> int:
    return 1 << (number - 1).bit_length()


@inlined
def find_slot(keys: Ints, key: int) -> int:
    """Return the slot of a key in a hash table, or the free one where it belongs (linear probing)."""
    mask = len(keys) - 1
    slot = int(np.int64(key) * 0x9E3779B97F4A7C1 >> 17) & mask  # Fibonacci hashing; overflow is dropped
    while keys[slot] != -1 and keys[slot] != key:
        slot = (slot + 1) & mask
    return slot


@compiled
def rehash(keys: Ints, values: Ints, new_keys: Ints, new_values: Ints) -> None:
    """Insert everything in one hash table into another."""
    for n in range(len(keys)):
        if keys[n] != -1:
            slot = find_slot(new_keys, keys[n])
            new_keys[slot], new_values[slot] = keys[n], values[n]
