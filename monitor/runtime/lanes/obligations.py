"""The automaton of a followed forecast as compiled code reads it: a table that grows as obligations are computed."""

from __future__ import annotations

from array import array
from typing import Final

from monitor.errors import LimitError
from monitor.runtime.forecasts import Obligation, Target
from monitor.runtime.lanes.layout import AFTER, CAME_TRUE, COLUMN_OF, COLUMNS, HORIZON, LABEL_SETS, TARGET

__all__ = ["ObligationTable"]

ENTRIES: Final = 16_384
"""Entries of the table: obligations times label sets."""
OPEN: Final = -1


class ObligationTable:
    """Obligations of one followed forecast by number, and what each becomes after a label set.

    Args:
        target: the forecast that is followed.

    Attributes:
        obligations: by number.
    """

    def __init__(self, target: Target) -> None:
        self._target = target
        label_sets = list(target.label_sets)
        self._label_sets = array("q", label_sets)
        self._masks = list(dict.fromkeys(label_sets))
        columns = {mask: column for column, mask in enumerate(self._masks)}
        self._column_of = array("q", (columns[mask] for mask in label_sets))
        self._most = ENTRIES // len(self._masks)
        self._after = array("q", (-1,)) * (self._most * len(self._masks))
        self._came_true = array("q", (OPEN,)) * self._most
        self._numbers: dict[int, int] = {}
        self.obligations: list[Obligation] = []

    def number(self, obligation: Obligation) -> int | None:
        """Return the number of an obligation; None if there are too many."""
        number = self._numbers.get(obligation.number)
        if number is None and len(self.obligations) < self._most:
            number = self._numbers[obligation.number] = len(self.obligations)
            self.obligations.append(obligation)
            self._came_true[number] = OPEN if obligation.came_true is None else int(obligation.came_true)
        return number

    def compute(self, number: int, column: int) -> bool:
        """Compute what an obligation becomes after a label set; return whether that has a number now."""
        obligation, mask = self.obligations[number], self._masks[column]
        try:
            following = obligation.after.get(mask) or self._target.after(obligation, mask)
        except LimitError:
            return False
        after = self.number(following)
        if after is None:
            return False
        self._after[number * len(self._masks) + column] = after
        return True

    def words(self) -> dict[int, int]:
        """Return the words of a lane's block that lead here."""
        addresses = {
            LABEL_SETS: self._label_sets,
            COLUMN_OF: self._column_of,
            AFTER: self._after,
            CAME_TRUE: self._came_true,
        }
        found = {word: column.buffer_info()[0] for word, column in addresses.items()}
        return {**found, COLUMNS: len(self._masks), HORIZON: self._target.horizon, TARGET: 1}
