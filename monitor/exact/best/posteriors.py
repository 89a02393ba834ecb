"""Counterfactual rows given an observed transition, kept: they depend on the transition alone.

A path that grows by one pair has all but one transition of the path before, so that most of its rows are known.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

import numpy as np

from monitor.arrays import Ints
from monitor.exact.best.options import Options
from monitor.exact.best.scratch_row import Posteriors

MOST: Final = 16
"""Transitions whose rows are kept; the others are computed each time."""
MAX_NUMBERS: Final = 4_000_000
"""Numbers in the kept rows of one model: 32 MB."""


class Transitions:
    """The transitions of one model whose rows are kept, the newest ones.

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
        """Return that no rows are kept of a path of so many levels."""
        return Posteriors(self._weights, self._filled, np.full(levels, -1))

    def of(self, states: Ints, actions: Ints, outcomes: Ints) -> Posteriors:
        """Return the rows of a path: states, actions and outcomes [L], -1 where no outcome was observed."""
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
        """Return a slot without a transition; if there is none, that of the transition not used for longest."""
        return len(self._slots) if len(self._slots) < self._most else self._slots.popitem(last=False)[1]
