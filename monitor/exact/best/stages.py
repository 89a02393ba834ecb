"""The obligations that may remain at each step of a path, and what each label set makes of them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from monitor.arrays import AnyArray, Bools, Ints
from monitor.logic import FALSE, TRUE, Automaton

__all__ = ["FIRST_SLOT", "Layout", "Stages"]

FIRST_SLOT = 2
"""Target of a transition: FALSE, TRUE, or FIRST_SLOT + the index of a slot at the next level."""


class Layout(NamedTuple):
    """Obligations by level, L levels of one path; each has a *slot* at its level.

    `target` [L, slots, labels]: what remains after a label (see FIRST_SLOT); `rewarded` [L, slots]: whether the reward
    of the step counts; `used` [L]: slots in use. `obligations`: by level and slot, one level more than L.
    """

    target: Ints
    rewarded: Bools
    used: Ints
    obligations: list[list[int]]


class Stages:
    """Obligations of one automaton over the label sets of a model.

    Args:
        automaton: of a path formula without nested quantities, or of a reward.
        masks: label sets [S] of all states.

    `label_of` [S]: the index of each state's label set among the different ones.
    """

    def __init__(self, automaton: Automaton, masks: AnyArray) -> None:
        self.automaton = automaton
        different, labels = np.unique(masks, return_inverse=True)
        self._label_sets: list[int] = different.tolist()
        self.label_of: Ints = labels.astype(np.int64)
        self._layouts: dict[int, Layout] = {}

    def rests(self, obligation: int) -> list[int]:
        """Return what remains of an obligation after each label."""
        return [self.automaton.step(obligation, label_set) for label_set in self._label_sets]

    def below(self, obligation: int) -> list[int]:
        """Return the obligation and all that may remain of it later, each after those that it leads to."""
        found, pending = {obligation}, [obligation]
        while pending:
            ahead = set(self.rests(pending.pop())) - {FALSE, TRUE} - found
            found |= ahead
            pending += ahead
        return sorted(found, key=lambda each: (self.automaton.horizon(each), each))

    def layout(self, levels: int) -> Layout:
        """Return the obligations of a path of `levels` pairs, up to the level after which none remains."""
        if levels not in self._layouts:
            self._layouts[levels] = self._laid_out(levels)
        return self._layouts[levels]

    def _laid_out(self, levels: int) -> Layout:
        obligations = [[self.automaton.start]]
        targets: list[list[list[int]]] = []
        while len(targets) < levels and obligations[-1]:
            rests = [self.rests(obligation) for obligation in obligations[-1]]
            ahead = sorted({rest for each in rests for rest in each} - {FALSE, TRUE})
            slot = {FALSE: FALSE, TRUE: TRUE} | {o: FIRST_SLOT + n for n, o in enumerate(ahead)}
            targets.append([[slot[rest] for rest in each] for each in rests])
            obligations.append(ahead)
        widest = max(map(len, obligations))
        target = np.zeros((len(targets), widest, len(self._label_sets)), dtype=np.int64)
        rewarded = np.zeros((len(targets), widest), dtype=np.bool_)
        for level, rows in enumerate(targets):
            target[level, : len(rows)] = rows
            rewarded[level, : len(rows)] = [self.automaton.rewards(o) for o in obligations[level]]
        return Layout(target, rewarded, np.array([len(rows) for rows in targets]), obligations)
