"""Readings: the memory and the action of a policy after each observation, as rows of arrays.

A table has all rows; a network has the rows that were needed so far. Compiled.
"""

from __future__ import annotations

import numpy as np

from monitor.arrays import Ints, longer
from monitor.errors import LimitError
from monitor.exact.hash_table import doubled, empty_table, find_slot
from monitor.model.mdp import MDP
from monitor.policy.controller import Reader, TableReader

MOST_MEMORIES = 1 << 24
"""The memories of a recurrent network have numbers below this limit."""
INITIAL = 64
"""Initial space for rows of a network."""


class Readings:
    """Rows of one policy on one model.

    The row of a memory and an observation has the memory `after` reading, and the `choice` [A], the distribution of the
    action. If the policy is a table (`listed`), the index of the row is memory * width + read. If it is a network, the
    row is found by this key in a hash table, `keys` and `values`. `memories`: a number larger than all memories.
    """

    def __init__(self, reader: Reader, model: MDP) -> None:
        self.reader, self.sees_state = reader, reader.sees_state or model.emissions is None
        self.width = model.states if model.emissions is None or reader.sees_state else model.emissions.signals
        self.listed = isinstance(reader, TableReader)
        self.keys, self.values = empty_table(INITIAL)
        self.count, self.everything = 0, np.arange(reader.memories)
        if isinstance(reader, TableReader):
            self.memories = reader.memories
            self.after = reader.following.flatten()
            self.choice = reader.choice[reader.following, np.arange(self.width)].reshape(-1, model.actions)
        else:
            self.memories = MOST_MEMORIES
            self.after, self.choice = np.zeros(INITIAL, np.int64), np.zeros((INITIAL, model.actions))

    def rows(self, memories: Ints, read: Ints) -> Ints:
        """Return the rows [n] of memories [n] and observations [n]; new rows are computed."""
        if self.listed:
            found: Ints = memories * self.width + read
            return found
        pairs = zip(memories.tolist(), read.tolist(), strict=True)
        return np.array([self.row(memory, seen) for memory, seen in pairs], np.int64)

    def row(self, memory: int, read: int) -> int:
        """Return one row; a new row is computed.

        Raises PolicyError if the network fails, and LimitError if there are too many memories.
        """
        known = find_reading(self, memory, read)
        if known >= 0:
            return known
        after, choice = self.reader.read(memory, read)
        if max(memory, after) >= self.memories:
            raise LimitError(f"a recurrent network remembers more than {self.memories:,} different things")
        if self.count == len(self.after):
            self.after, self.choice = longer(self.after, 2 * self.count), longer(self.choice, 2 * self.count)
            self.keys, self.values = doubled(self.keys, self.values)
        np.asarray(self.choice)[self.count], self.after[self.count] = choice, after
        key = memory * self.width + read
        slot = find_slot(self.keys, key)
        self.keys[slot], self.values[slot] = key, self.count
        self.count += 1
        return self.count - 1

    def live(self, memories: Ints) -> Ints:
        """Return the distinct memories in `memories`, in the order of their indices; for a table, all its memories.

        The order depends on the contents of the memories, not on which memory was found first. So sums in this order
        have the same bits in every process.
        """
        if self.listed:
            return self.everything
        return np.array(sorted(np.unique(memories).tolist(), key=self.reader.numbers), np.int64)

    def inverse(self, live: Ints, size: int = 0) -> Ints:
        """Return the index of each memory in `live`, in an array of at least `size` entries; -1 if it is not there."""
        if self.listed:
            return live
        where = np.full(max(size, int(live.max(initial=0)) + 1), -1)
        where[live] = np.arange(len(live))
        return where

    def numbered(self, live: Ints, memories: Ints) -> Ints:
        """Return the indices of memories in `live`; -1 for a memory that is not there."""
        return memories if self.listed else self.inverse(live, int(memories.max(initial=0)) + 1)[memories]


# ---- compiled ----


def find_reading(policy: Readings, memory: int, read: int) -> int:
    """Return the row of a memory and an observation; -1 if it is not computed yet."""
    key = memory * policy.width + read
    if policy.listed:
        return key
    slot = find_slot(policy.keys, key)
    return policy.values[slot] if policy.keys[slot] == key else -1


def same_reading(policy: Readings, one: int, other: int) -> bool:
    """Return whether two rows have the same memory and the same choice."""
    if one == other:
        return True
    for action in range(policy.choice.shape[1]):
        if policy.choice[one, action] != policy.choice[other, action]:
            return False
    same: bool = policy.after[one] == policy.after[other]
    return same
