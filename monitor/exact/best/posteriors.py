"""Cache of the counterfactual rows of a model, given each observed transition. All measures share these rows.

A path that grows by one pair loses at most its oldest transition, so most rows that it needs are in the cache.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

import numpy as np

from monitor.arrays import Ints
from monitor.exact.best.options import Options
from monitor.exact.best.scratch_row import Posteriors

MOST: Final = 16
"""Largest number of transitions with cached rows. The rows of other transitions are computed each time."""
MAX_NUMBERS: Final = 4_000_000
"""Largest count of numbers in the cached rows of one model: 32 MB."""


class Transitions:
    """Cache of the counterfactual rows of one model, for the most recently used observed transitions.

    Args:
        options: the rows of the model.
    """

    def __init__(self, options: Options) -> None:
        entries, pairs = len(options.probabilities), len(options.alike)
        self._most = min(MOST, MAX_NUMBERS // max(entries, 1))
        self._weights = np.zeros((self._most, entries))
        self._filled = np.zeros((self._most, pairs), dtype=np.uint8)
        self._slots: OrderedDict[tuple[int, int, int], int] = OrderedDict()

    def none(self, levels: int) -> Posteriors:
        """Return posteriors for a path of `levels` pairs that neither read nor fill the cache of rows."""
        return Posteriors(self._weights, self._filled, np.full(levels, -1))

    def of(self, states: Ints, actions: Ints, outcomes: Ints) -> Posteriors:
        """Return the cached rows for a path: states, actions and outcomes [L] (-1 if no outcome was observed)."""
        path = list(zip(states.tolist(), actions.tolist(), outcomes.tolist(), strict=True))
        wanted = [key for key in dict.fromkeys(reversed(path)) if key[2] >= 0][: self._most]
        for key in wanted:
            if key in self._slots:
                self._slots.move_to_end(key)
        for key in wanted:
            if key not in self._slots:
                self._slots[key] = self._free()
                self._filled[self._slots[key]] = 0
        slot_of = np.array([self._slots[key] if key in wanted else -1 for key in path], dtype=np.int64)
        return Posteriors(self._weights, self._filled, slot_of)

    def _free(self) -> int:
        """Return a free slot; if no slot is free, the slot of the least recently used transition."""
        return len(self._slots) if len(self._slots) < self._most else self._slots.popitem(last=False)[1]
