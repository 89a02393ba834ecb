"""Hash tables from whole numbers to whole numbers, as two arrays: `keys`, and `values` in the same slots.

They are open-addressed, with -1 for a free slot. The caller counts the keys and doubles a table before more than half
of its slots are taken, so a probe always ends. Compiled.
"""

from __future__ import annotations

import numpy as np

from monitor.arrays import Ints

MIX = 0x9E3779B97F4A7C1
"""Factor of Fibonacci hashing."""


def empty_table(keys: int) -> tuple[Ints, Ints]:
    """Return the keys and values of an empty hash table, of which `keys` keys fill at most one half."""
    slots = 2 << (keys - 1).bit_length()
    return np.full(slots, -1, dtype=np.int64), np.zeros(slots, dtype=np.int64)


def doubled(keys: Ints, values: Ints) -> tuple[Ints, Ints]:
    """Return the same hash table with twice as many slots."""
    new_keys, new_values = empty_table(len(keys))
    rehash(keys, values, new_keys, new_values)
    return new_keys, new_values


def find_slot(keys: Ints, key: int) -> int:
    """Return the slot of a key in a hash table, or the free slot for it (linear probing)."""
    mask = len(keys) - 1
    slot = (key * MIX >> 17) & mask  # overflow is dropped
    while keys[slot] != -1 and keys[slot] != key:
        slot = (slot + 1) & mask
    return slot


def rehash(keys: Ints, values: Ints, new_keys: Ints, new_values: Ints) -> None:
    """Insert all keys and values of one hash table into another."""
    for n in range(len(keys)):
        if keys[n] != -1:
            slot = find_slot(new_keys, keys[n])
            new_keys[slot], new_values[slot] = keys[n], values[n]
