"""Cache of the rows of a counterfactual chain, by observed transition and state: two hash tables over growing arrays.

A row depends on the observed transition of its step, on the state, and on what acts there (docs/semantics.md,
section 3), so it is computed once (`counterfactual_rows.py`, compiled) and kept here. Rules:

- A transition s, a -> s_next observed under one phase of the law has an index; (index, state) has an *entry*; an entry
  has one row for each action that may be taken in the state, or one in all if nothing depends on the action; a row
  has its successors, as in CSR.
- Hash tables are open-addressed, with -1 for a free slot, and at most half full: a probe always ends.
- The loops append and never grow an array. If one is full they return FULL and count no incomplete entry; then `grow`
  enlarges the arrays, or clears this table if all tables of the model would have room for over MAX_SUCCESSORS.
- Clearing changes no answer: a row computed again has the same bits.

Compiled.
"""

from __future__ import annotations

import numpy as np

from monitor.arrays import Ints, longer
from monitor.causal.row import row_memory

EXACT, ANY, STABLE = 0, 1, 2
"""Kind of a row: the Gumbel-Max row, or bounds over a class of causal models (`monitor.types.CausalModel`)."""

FULL = -1
"""Returned in place of an index if an array of the table is full."""

MAX_SUCCESSORS = 4_000_000
"""Successors that the tables of one model may hold together before one is cleared: 64 to 96 MB. A single query that
needs more gets more."""

INITIAL_SIZES = 64, 256, 256, 2048
"""Observed transitions, entries, rows and successors that fit before a table grows."""

MIX = 0x9E3779B97F4A7C1
"""Factor of Fibonacci hashing."""


class RowBudget:
    """Number of successors for which the tables that share this budget have allocated space."""

    def __init__(self) -> None:
        self.allocated = 0


class RowTable:
    """Rows of one kind (EXACT, ANY or STABLE) over `states` states and `actions` actions, in arrays that grow.

    `observed_keys`, `observed_values` and `entry_keys`, `entry_values`: the hash tables. Entry e has the rows
    `entry_begin[e]:entry_begin[e + 1]`, row r the `successors` `row_begin[r]:row_begin[r + 1]`. Of a row: its `action`,
    the `weight` of that action (its probability) and the expected `reward` times the weight. Of a successor: an EXACT
    row has in `lower` its probability itself, times the weight, and no `upper`; bounds have the `lower` and `upper`
    bound of it without the weight, and the part of the reward that depends on it (`successor_reward`), which `reward`
    then leaves out. `observed_count`, `entry_count`, `row_count`, `successor_count`: how much is held; `computed`: the
    counterfactual rows computed so far, with those forgotten.

    The others are working memory for the next row: `observed` [S], the row of the observed pair `held` (-1: none) as a
    dense vector; `place` [S], where in `successors` the last row has a state, if that is within the row and has this
    state; `choice` [A], the probabilities of actions; `memory`, as in `monitor.causal.row`.
    """

    def __init__(self, kind: int, states: int, actions: int, budget: RowBudget | None = None) -> None:
        self.kind, self._budget = kind, budget or RowBudget()
        observed, entries, rows, successors = INITIAL_SIZES
        self.observed_keys, self.observed_values = _hash_table(observed)
        self.entry_keys, self.entry_values = _hash_table(entries)
        self.entry_begin = np.zeros(entries + 1, dtype=np.int64)
        self.action = np.zeros(rows, dtype=np.int64)
        self.weight, self.reward = np.zeros(rows), np.zeros(rows)
        self.row_begin = np.zeros(rows + 1, dtype=np.int64)
        self.successors, self.lower = np.zeros(successors, dtype=np.int32), np.zeros(successors)
        bounded = 0 if kind == EXACT else successors
        self.upper, self.successor_reward = np.zeros(bounded), np.zeros(bounded)
        self.observed_count = self.entry_count = self.row_count = self.successor_count = self.computed = 0
        self.observed, self.held = np.zeros(states), -1
        self.place, self.choice = np.zeros(states, dtype=np.int32), np.zeros(actions)
        self.memory = row_memory(max(states, actions))
        self._budget.allocated += successors

    def grow(self, *, forget: bool) -> None:
        """Double the arrays; beyond MAX_SUCCESSORS clear them instead, if `forget` allows it."""
        rows, successors, entries = len(self.action), len(self.successors), len(self.entry_begin) - 1
        if forget and self.entry_count > 0 and self._budget.allocated + successors > MAX_SUCCESSORS:
            self.observed_keys[:] = -1
            self.entry_keys[:] = -1
            self.observed_count = self.entry_count = self.row_count = self.successor_count = 0
            return
        self._budget.allocated += successors
        if 4 * self.observed_count >= len(self.observed_keys):
            self.observed_keys, self.observed_values = _doubled(self.observed_keys, self.observed_values)
        if 2 * self.entry_count >= entries:
            self.entry_begin = longer(self.entry_begin, 2 * entries + 1)
            self.entry_keys, self.entry_values = _doubled(self.entry_keys, self.entry_values)
        # even if few rows are used: a single state may need more than there are
        self.action, self.row_begin = longer(self.action, 2 * rows), longer(self.row_begin, 2 * rows + 1)
        self.weight, self.reward = longer(self.weight, 2 * rows), longer(self.reward, 2 * rows)
        self.successors, self.lower = longer(self.successors, 2 * successors), longer(self.lower, 2 * successors)
        self.upper = longer(self.upper, 2 * len(self.upper))
        self.successor_reward = longer(self.successor_reward, len(self.upper))

    def close(self) -> None:
        """Return the allocation to the budget; a remaining user continues with its own budget."""
        self._budget.allocated -= len(self.successors)
        self._budget = RowBudget()


class RowTables:
    """Row tables of one world of `states` states and `actions` actions, one for each kind of row in use."""

    def __init__(self, states: int, actions: int, budget: RowBudget) -> None:
        self._states, self._actions, self._budget = states, actions, budget
        self._tables: dict[int, RowTable] = {}

    def __call__(self, kind: int) -> RowTable:
        """Return the table of a kind."""
        if kind not in self._tables:
            self._tables[kind] = RowTable(kind, self._states, self._actions, self._budget)
        return self._tables[kind]

    def close(self) -> None:
        """Return all allocations to the budget."""
        for table in self._tables.values():
            table.close()


def _hash_table(keys: int) -> tuple[Ints, Ints]:
    """Return the slots, keys and values, of a hash table that so many keys fill up to one half."""
    slots = 2 << (keys - 1).bit_length()
    return np.full(slots, -1, dtype=np.int64), np.zeros(slots, dtype=np.int64)


def _doubled(keys: Ints, values: Ints) -> tuple[Ints, Ints]:
    """Return the same hash table with twice as many slots."""
    new_keys, new_values = _hash_table(len(keys))
    rehash(keys, values, new_keys, new_values)
    return new_keys, new_values


def find_slot(keys: Ints, key: int) -> int:
    """Return the slot of a key in a hash table, or the free one where it belongs (linear probing)."""
    mask = len(keys) - 1
    slot = (key * MIX >> 17) & mask  # overflow is dropped
    while keys[slot] != -1 and keys[slot] != key:
        slot = (slot + 1) & mask
    return slot


def rehash(keys: Ints, values: Ints, new_keys: Ints, new_values: Ints) -> None:
    """Insert everything in one hash table into another."""
    for n in range(len(keys)):
        if keys[n] != -1:
            slot = find_slot(new_keys, keys[n])
            new_keys[slot], new_values[slot] = keys[n], values[n]
