"""Shared verdicts as compiled code finds them: a hash table from the newest pairs of a path to a number."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Final

from monitor.alarm.machine import Judgement
from monitor.runtime.lanes.layout import (
    ASKED,
    BAD,
    BREACH,
    EXAMINED,
    GOOD,
    JUDGED,
    KEYS,
    LENGTH,
    LENGTHS,
    MASK,
    NEUTRAL,
    SLOTS,
)

__all__ = ["VerdictTable"]

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
        self.number = 0

    def enter(self, held: Sequence[tuple[int, int | None]], judgement: Judgement, *, examined: bool) -> None:
        """Enter the verdict on the newest of the held pairs under the next number. `examined`: as `EXAMINED` says."""
        rows = [state * self._actions + action for state, action in reversed(held) if action is not None]
        assert 0 < len(rows) <= self._length, "as many as a verdict depends on"
        assert self.number < len(self._lengths), "cleared before it is full"
        number, first = self.number, self.number * self._length
        self._keys[first : first + len(rows)] = array("q", rows)
        self._lengths[number] = len(rows)
        self._judged[number] = CODES[judgement] + EXAMINED * examined
        place = _hash(rows) & self._mask
        while self._slots[place] >= 0:
            place = (place + 1) & self._mask
        self._slots[place] = number
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


def _hash(rows: Sequence[int]) -> int:
    """Return the hash of rows, the newest first, that `monitor.runtime.lanes.take` computes."""
    mixed = len(rows)
    for row in rows:
        mixed = (mixed * 1_000_003 + row) & 0xFF_FFFF_FFFF
        mixed ^= mixed >> 17
    return mixed
