"""What a policy does with what it reads, as rows of arrays: of a table all of them, of a network those that arose.

Compiled.
"""

from __future__ import annotations

import numpy as np

from monitor.arrays import Ints, longer
from monitor.errors import LimitError
from monitor.exact.forward.row_table import find_slot, rehash
from monitor.model.mdp import MDP
from monitor.policy.controller import Reader, TableReader

MOST_MEMORIES = 1 << 24
"""Numbers of a recurrent network's memories are below this one."""
INITIAL = 64
"""Rows of a network that fit at first."""


class Readings:
    """Rows of one policy on one model.

    The row of a memory and what is read has the memory `after` it, and the `choice` [A] of an action. Of a table
    (`listed`) it is memory * width + read; of a network it is found by this key in an open-addressed hash table, `keys`
    and `values`, at most half full. `memories`: a number above all memories.
    """

    def __init__(self, reader: Reader, model: MDP) -> None:
        self.reader, self.sees_state = reader, reader.sees_state or model.emissions is None
        self.width = model.states if model.emissions is None or reader.sees_state else model.emissions.signals
        self.listed = isinstance(reader, TableReader)
        self.keys, self.values = np.full(2 * INITIAL, -1, np.int64), np.zeros(2 * INITIAL, np.int64)
        self.count, self.everything = 0, np.arange(reader.memories)
        if isinstance(reader, TableReader):
            self.memories = reader.memories
            self.after = reader.following.flatten()
            self.choice = reader.choice[reader.following, np.arange(self.width)].reshape(-1, model.actions)
        else:
            self.memories = MOST_MEMORIES
            self.after, self.choice = np.zeros(INITIAL, np.int64), np.zeros((INITIAL, model.actions))

    def rows(self, memories: Ints, read: Ints) -> Ints:
        """Return the rows [n] of memories and of what is read; those that are new are made."""
        if self.listed:
            found: Ints = memories * self.width + read
            return found
        pairs = zip(memories.tolist(), read.tolist(), strict=True)
        return np.array([self.row(memory, seen) for memory, seen in pairs], np.int64)

    def row(self, memory: int, read: int) -> int:
        """Return one row, made if it is new. Raises PolicyError as the network does; LimitError: too many memories."""
        known = find_reading(self, memory, read)
        if known >= 0:
            return known
        after, choice = self.reader.read(memory, read)
        if max(memory, after) >= self.memories:
            raise LimitError(f"a recurrent network remembers more than {self.memories:,} different things")
        if self.count == len(self.after):
            self.after, self.choice = longer(self.after, 2 * self.count), longer(self.choice, 2 * self.count)
            keys, values = np.full(4 * self.count, -1, np.int64), np.zeros(4 * self.count, np.int64)
            rehash(self.keys, self.values, keys, values)
            self.keys, self.values = keys, values
        np.asarray(self.choice)[self.count], self.after[self.count] = choice, after
        key = memory * self.width + read
        slot = find_slot(self.keys, key)
        self.keys[slot], self.values[slot] = key, self.count
        self.count += 1
        return self.count - 1

    def live(self, memories: Ints) -> Ints:
        """Return the memories to be numbered where these may be: all of a table, else these.

        Their order depends on what they are, and not on which arose first: sums that run in it have the same bits in
        every process.
        """
        if self.listed:
            return self.everything
        return np.array(sorted(np.unique(memories).tolist(), key=self.reader.numbers), np.int64)

    def inverse(self, live: Ints, size: int = 0) -> Ints:
        """Return where each memory is in `live`, in an array of `size` or more; -1: not there."""
        if self.listed:
            return live
        where = np.full(max(size, int(live.max(initial=0)) + 1), -1)
        where[live] = np.arange(len(live))
        return where

    def numbered(self, live: Ints, memories: Ints) -> Ints:
        """Return where memories are in `live`; -1: not there."""
        return memories if self.listed else self.inverse(live, int(memories.max(initial=0)) + 1)[memories]


# ---- compiled ----


def find_reading(policy: Readings, memory: int, read: int) -> int:
    """Return the row of a memory and of what is read; -1: it is not known yet."""
    key = memory * policy.width + read
    if policy.listed:
        return key
    slot = find_slot(policy.keys, key)
    return policy.values[slot] if policy.keys[slot] == key else -1
