"""Cache of the rows of a counterfactual chain. Rows are found by observed transition and state, in two hash tables.

A row depends only on the observed transition of its step, on the state, and on the policy in force
(docs/semantics/worlds.md, section 3). So it is computed once (`counterfactual_rows.py`) and cached here, in growing
arrays. Rules:

- A transition s, a -> s_next observed under one phase of the law has an index. Each (index, state) has an *entry*. An
  entry has one row for each action that may be taken in the state, or a single row if nothing depends on the action.
  Each row has its successors, as in CSR.
- The loops append and never grow an array. If an array is full, the loops return FULL and do not count the incomplete
  entry. Then `grow` enlarges the arrays of this table. If all tables of the model together would then have space for
  more than MAX_SUCCESSORS successors, `grow` clears this table instead.
- Clearing changes no answer, because a row computed again has the same bits.

Compiled.
"""

from __future__ import annotations

import numpy as np

from monitor.arrays import longer
from monitor.causal.row import row_memory
from monitor.exact.hash_table import doubled, empty_table

EXACT, ANY, STABLE = 0, 1, 2
"""Kind of a row: the Gumbel-Max row, or bounds over a class of causal models (`monitor.types.CausalModel`)."""

FULL = -1
"""Returned in place of an index if an array of the table is full."""

MAX_SUCCESSORS = 4_000_000
"""If the tables of one model have more successors than this (64 to 96 MB), a table is cleared. A single query that
needs more space may exceed this limit."""

INITIAL_SIZES = 64, 256, 256, 2048
"""Observed transitions, entries, rows and successors that fit before a table grows."""


class RowBudget:
    """Shared count of the successors for which tables have allocated space."""

    def __init__(self) -> None:
        self.allocated = 0


class RowTable:
    """Rows of one kind (EXACT, ANY or STABLE) over `states` states and `actions` actions, in arrays that grow.

    `observed_keys`, `observed_values` and `entry_keys`, `entry_values`: the hash tables. Entry e has the rows
    `entry_begin[e]:entry_begin[e + 1]`, and row r has the `successors` `row_begin[r]:row_begin[r + 1]`. A row has its
    `action`, the `weight` (the probability of this action) and the expected `reward` times the weight.

    For each successor of an EXACT row, `lower` has the probability times the weight, and `upper` is unused. For each
    successor of a row of bounds, `lower` and `upper` have the bounds of the probability without the weight, and
    `successor_reward` has the part of the reward that depends on the successor; `reward` then excludes this part.

    `observed_count`, `entry_count`, `row_count`, `successor_count`: the numbers in use. `computed`: number of
    counterfactual rows computed so far, including cleared rows.

    The other fields are working memory for the next row. `observed` [S]: the row of the observed pair `held` (-1: none)
    as a dense vector. `place` [S]: the position of a state in `successors`, valid only if the position is within the
    last row and `successors` has the state at this position. `choice` [A]: the probabilities of actions. `memory`: as
    in `monitor.causal.row`.
    """

    def __init__(self, kind: int, states: int, actions: int, budget: RowBudget | None = None) -> None:
        self.kind, self._budget = kind, budget or RowBudget()
        observed, entries, rows, successors = INITIAL_SIZES
        self.observed_keys, self.observed_values = empty_table(observed)
        self.entry_keys, self.entry_values = empty_table(entries)
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
        """Double the arrays. If `forget`, clear them instead when they would exceed MAX_SUCCESSORS."""
        rows, successors, entries = len(self.action), len(self.successors), len(self.entry_begin) - 1
        if forget and self.entry_count > 0 and self._budget.allocated + successors > MAX_SUCCESSORS:
            self.observed_keys[:] = -1
            self.entry_keys[:] = -1
            self.observed_count = self.entry_count = self.row_count = self.successor_count = 0
            return
        self._budget.allocated += successors
        if 4 * self.observed_count >= len(self.observed_keys):
            self.observed_keys, self.observed_values = doubled(self.observed_keys, self.observed_values)
        if 2 * self.entry_count >= entries:
            self.entry_begin = longer(self.entry_begin, 2 * entries + 1)
            self.entry_keys, self.entry_values = doubled(self.entry_keys, self.entry_values)
        # Double the arrays even if few rows are used, because a single state may need more rows than fit.
        self.action, self.row_begin = longer(self.action, 2 * rows), longer(self.row_begin, 2 * rows + 1)
        self.weight, self.reward = longer(self.weight, 2 * rows), longer(self.reward, 2 * rows)
        self.successors, self.lower = longer(self.successors, 2 * successors), longer(self.lower, 2 * successors)
        self.upper = longer(self.upper, 2 * len(self.upper))
        self.successor_reward = longer(self.successor_reward, len(self.upper))

    def close(self) -> None:
        """Return the allocation to the budget. Code that still uses this table continues with a separate budget."""
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
