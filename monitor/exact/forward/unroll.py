"""Unroll the automaton of a formula over offsets, for loops that advance all start points at once.

An *offset* counts steps from a start point. At one observed pair, older start points are at larger offsets, so start
points have different obligations: `G<=20` at offset 0, `G<=19` at offset 1, and so on. A *column* of the unrolled
automaton has at most one obligation for each offset. A column contains an obligation and its successors; if two
successors are at the same offset, one of them goes to another column. One pass over a column advances every start
point. Most formulas need a single column. Rules:

- An obligation at an offset is in exactly one column. The start is at offset 0 of column 0.
- A successor stays in the column of its predecessor if this column is free at the next offset. Otherwise it takes the
  first free column. So the layout depends on the automaton alone, not on the calls that unrolled it. Sums over columns
  therefore have the same order, and the same bits.
- Unrolling stops at the horizon, where no obligation is left.

See docs/semantics/formulas.md, section 6.1 (obligations).
"""

from __future__ import annotations

import numpy as np

from monitor.arrays import Ints
from monitor.logic import FALSE, TRUE, Automaton

ColumnTransition = tuple[int, int, int, int]

FIRST_COLUMN = 2
"""Smallest target that is a column. The target of a transition is FALSE, TRUE, or FIRST_COLUMN + a column."""


class Unrolled:
    """Columns of an automaton, and the transitions between them.

    Args:
        automaton: the automaton of a path formula or a reward; its states are obligations.
        label_sets: [labels, layers] the label set of each label at each offset; the last layer is valid for all later
            offsets. A label is a class of states (or state-action pairs) with the same label sets at all offsets.

    `obligations`: for each column, offset -> obligation. `transitions` [n, 4]: first offset, last offset (exclusive),
    target, whether a reward is collected. `ranges` [columns, labels, 2]: first and last (exclusive) transition of
    a column for a label. Both arrays are replaced when `depth`, the number of unrolled offsets, grows.
    """

    def __init__(self, automaton: Automaton, label_sets: Ints) -> None:
        self.automaton = automaton
        self.obligations: list[dict[int, int]] = [{0: automaton.start}]
        self.horizon = automaton.horizon(automaton.start)
        self.depth = 0
        self.transitions = np.zeros((0, 4), dtype=np.int64)
        self.ranges = np.zeros((1, len(label_sets), 2), dtype=np.int64)
        self._label_sets = label_sets
        self._columns: dict[tuple[int, int], int] = {}
        self._merged: dict[tuple[int, int], list[ColumnTransition]] = {}

    def extend(self, offsets: int) -> None:
        """Unroll at least `offsets` offsets, or up to the horizon.

        Raises LimitError if the automaton has too many obligations; the columns are then unchanged.
        """
        if min(offsets, self.horizon) <= self.depth:
            return
        begin, end = self.depth, min(max(offsets, 2 * self.depth), self.horizon)
        self._expand(begin, end)
        self.depth = end
        for offset in range(begin, end):
            label_sets = self._label_sets_at(offset)
            for column in range(len(self.obligations)):  # columns added in this loop begin at the next offset
                if offset in self.obligations[column]:
                    self._add_transitions(offset, column, label_sets)
        self.ranges = np.zeros((len(self.obligations), len(self._label_sets), 2), dtype=np.int64)
        transitions: list[ColumnTransition] = []
        for key, merged in self._merged.items():
            self.ranges[key] = len(transitions), len(transitions) + len(merged)
            transitions += merged
        self.transitions = np.array(transitions, dtype=np.int64).reshape(-1, 4)

    def _expand(self, begin: int, end: int) -> None:
        """Take every step of the automaton once before columns are changed, because a step may raise LimitError."""
        obligations = {column[begin] for column in self.obligations if begin in column}
        for offset in range(begin, end):
            label_sets = self._label_sets_at(offset)
            obligations = {self.automaton.step(each, shown) for each in obligations for shown in label_sets}
            obligations -= {FALSE, TRUE}

    def _label_sets_at(self, offset: int) -> list[int]:
        label_sets: list[int] = self._label_sets[:, min(offset, self._label_sets.shape[1] - 1)].tolist()
        return label_sets

    def _add_transitions(self, offset: int, column: int, label_sets: list[int]) -> None:
        """Add a transition of one obligation for each label.

        A transition is merged with an equal transition at the previous offset.
        """
        obligation = self.obligations[column][offset]
        rewarded = int(self.automaton.rewards(obligation))
        for label, label_set in enumerate(label_sets):
            rest = self.automaton.step(obligation, label_set)
            target = rest if rest in (FALSE, TRUE) else FIRST_COLUMN + self._assign(offset + 1, rest, column)
            merged = self._merged.setdefault((column, label), [])
            if merged and merged[-1][1:] == (offset, target, rewarded):
                merged[-1] = merged[-1][0], offset + 1, target, rewarded
            else:
                merged.append((offset, offset + 1, target, rewarded))

    def _assign(self, offset: int, obligation: int, preferred: int) -> int:
        """Return the column of an obligation at an offset: the `preferred` column if it is free at this offset."""
        if (offset, obligation) not in self._columns:
            column = preferred
            if offset in self.obligations[preferred]:
                free = (c for c, cells in enumerate(self.obligations) if offset not in cells)
                column = next(free, len(self.obligations))
            if column == len(self.obligations):
                self.obligations.append({})
            self.obligations[column][offset] = obligation
            self._columns[offset, obligation] = column
        return self._columns[offset, obligation]
