"""Shared verdicts as compiled code finds them: a hash table from the newest pairs of a path to a number."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Final

from monitor.alarm.machine import Judgement
from monitor.arrays import Ints
from monitor.jit import compiled, helper, ints_at, specialized
from monitor.runtime.lanes.layout import (
    ASKED,
    BAD,
    BLOCK,
    BREACH,
    EXAMINED,
    GOOD,
    JUDGED,
    KEYS,
    LENGTH,
    LENGTHS,
    MASK,
    NEUTRAL,
    PAIRS,
    PUSHED,
    RING,
    SLOTS,
)

__all__ = ["VerdictTable", "find_verdict"]

CODES: Final[dict[Judgement, int]] = {"good": GOOD, "neutral": NEUTRAL, "breach": BREACH, "bad": BAD}


class VerdictTable:
    """Numbers of verdicts by the rows of their newest pairs.

    Args:
        length: pairs that a verdict depends on.
        most: verdicts held at most; the table has twice as many slots.
        actions: of the model; the row of a pair is its number.

    Attributes:
        asked: questions that compiled code answered: all of them had been asked before.
    """

    def __init__(self, length: int, most: int, actions: int) -> None:
        self._actions, self._mask = actions, (1 << (2 * most - 1).bit_length()) - 1
        self._length = length
        self._keys = array("q", bytes(8 * length * most))
        self._lengths = array("q", bytes(8 * most))
        self._judged = array("q", bytes(8 * most))
        self._slots = array("q", (-1,)) * (self._mask + 1)
        self.asked = array("q", (0, 0))
        self._block = array("q", bytes(8 * BLOCK))
        for word, value in self.words().items():
            self._block[word] = value
        self._enter = specialized(enter, 1, 1, 1, 1)
        self.number = 0

    def enter(self, held: Sequence[tuple[int, int | None]], judgement: Judgement, *, examined: bool) -> None:
        """Enter the verdict on the newest of the held pairs under the next number. `examined`: as `EXAMINED` says."""
        actions, number = self._actions, self.number
        rows = array("q", [state * actions + action for state, action in held if action is not None])
        assert 0 < len(rows) <= self._length, "as many as a verdict depends on"
        assert number < len(self._lengths), "cleared before it is full"
        self._judged[number] = CODES[judgement] + EXAMINED * examined
        self._enter(self._block.buffer_info()[0], rows.buffer_info()[0], len(rows), number)
        self.number = number + 1

    def clear(self) -> None:
        """Forget all verdicts, and how often they were asked for."""
        self._slots[:] = array("q", (-1,)) * len(self._slots)
        self.asked[:] = array("q", (0, 0))
        self.number = 0

    def words(self) -> dict[int, int]:
        """Return the words of a lane's block that lead here."""
        addresses = {
            KEYS: self._keys,
            LENGTHS: self._lengths,
            SLOTS: self._slots,
            JUDGED: self._judged,
            ASKED: self.asked,
        }
        found = {word: column.buffer_info()[0] for word, column in addresses.items()}
        return {**found, LENGTH: self._length, MASK: self._mask}


@compiled
def enter(table: int, rows: int, count: int, number: int) -> int:
    """Enter the verdict on these rows under a number; return its slot.

    `table`: address of the words of a block that lead to the table; `rows`: address of the rows, the oldest first.
    """
    block, pairs = ints_at(table, BLOCK), ints_at(rows, count)
    keys = ints_at(block[KEYS] + 8 * number * block[LENGTH], count)
    for back in range(count):
        keys[back] = pairs[count - 1 - back]
    ints_at(block[LENGTHS], number + 1)[number] = count
    mask = block[MASK]
    slots, place = ints_at(block[SLOTS], mask + 1), _hash_of(pairs, count - 1, count) & mask
    while slots[place] >= 0:
        place = (place + 1) & mask
    slots[place] = number
    return int(place)


@helper
def find_verdict(words: Ints, block: Ints, held: int) -> int:
    """Return the number of the verdict on the path with the new pair, -1 if none was kept."""
    if block[LENGTH] == 0:
        return -1
    length, ring, newest = min(block[LENGTH], held), words[RING], words[PUSHED]
    pairs = ints_at(words[PAIRS], ring)
    mask = block[MASK]
    slots, place = ints_at(block[SLOTS], mask + 1), _hash_of(pairs, newest, length) & mask
    while slots[place] >= 0:
        verdict = slots[place]
        keys = ints_at(block[KEYS] + 8 * verdict * block[LENGTH], length)
        if ints_at(block[LENGTHS], verdict + 1)[verdict] == length:
            same = 0
            while same < length and keys[same] == pairs[(newest - same) % ring]:
                same += 1
            if same == length:
                return int(verdict)
        place = (place + 1) & mask
    return -1


@helper
def _hash_of(pairs: Ints, newest: int, length: int) -> int:
    """Return a hash, at least 0, of the newest pairs in a ring, from `newest` backwards."""
    mixed = int(length)
    for back in range(length):
        mixed = (mixed * 1_000_003 + pairs[(newest - back) % len(pairs)]) & 0xFF_FFFF_FFFF
        mixed ^= mixed >> 17
    return mixed
