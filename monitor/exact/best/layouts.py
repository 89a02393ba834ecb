"""The obligations that may remain at each step of a path, and the next obligations after each label set."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, NamedTuple

import numpy as np

from monitor.arrays import AnyArray, Bools, Ints
from monitor.errors import LimitError
from monitor.logic import FALSE, TRUE, Automaton

FIRST_SLOT = 2
"""Smallest target that is a slot. The target of a transition is FALSE, TRUE, or FIRST_SLOT + a slot at the next
level."""
NEVER = 1 << 62
"""A number of steps that no path has."""

MAX_SLOTS: Final = 500_000
"""Largest number of slots of one layout, over all levels. Building such a layout takes about a second."""
MAX_LAYOUTS: Final = 16
"""Largest number of cached layouts. A stream needs one layout for the usual length of its paths, and more layouts for
the shorter paths at the beginning of an episode."""


class LayoutNode(NamedTuple):
    """The obligation of a slot. `age`: steps since the intervention state, at most `until` (see `layout`)."""

    obligation: int
    age: int


class Layout(NamedTuple):
    """Obligations at the L levels of one path. Each obligation has a *slot* at its level.

    `target` [L, slots, labels]: the slot at the next level after a label, or TRUE or FALSE (see FIRST_SLOT).
    `rewarded` [L, slots]: whether the reward of the step counts. `used` [L]: number of slots in use. `nodes`: the node
    of each level and slot, for L + 1 levels. `age` [L, slots]: the ages of the nodes. `start` [L]: the slot of a path
    that begins at this level, -1 if none begins there.
    """

    target: Ints
    rewarded: Bools
    used: Ints
    nodes: list[list[LayoutNode]]
    age: Ints
    start: Ints


class ObligationLayouts:
    """Obligations of one automaton over the label sets of a model.

    Args:
        automaton: the automaton of a path formula without nested quantities, or of a reward.
        masks: label sets [S] of all states.

    `label_of` [S]: the index of each state's label set among the `labels` distinct label sets.
    """

    def __init__(self, automaton: Automaton, masks: AnyArray) -> None:
        self.automaton = automaton
        different, labels = np.unique(masks, return_inverse=True)
        self._label_sets: list[int] = different.tolist()
        self.label_of: Ints = labels.astype(np.int64)
        self.labels = len(different)
        self._unfolded: dict[int | None, _Unfolded] = {}
        self._layouts: OrderedDict[tuple[int, int | None], Layout] = OrderedDict()

    def rests(self, obligation: int) -> list[int]:
        """Return the obligation that remains after each label."""
        return [self.automaton.step(obligation, label_set) for label_set in self._label_sets]

    def below(self, obligation: int) -> list[int]:
        """Return the obligation and all its later obligations, in an order in which successors come first."""
        found, pending = {obligation}, [obligation]
        while pending:
            ahead = set(self.rests(pending.pop())) - {FALSE, TRUE} - found
            found |= ahead
            pending += ahead
        return sorted(found, key=lambda each: (self.automaton.horizon(each), each))

    def layout(self, levels: int, until: int | None = None) -> Layout:
        """Return the obligations of a path of `levels` pairs, up to the level after which none remains.

        `until`: None if only the first pair is an intervention state. If it is a number, every pair is an intervention
        state. Ages of `until` or more steps are then not distinguished, and nodes with the same obligation and age
        share a slot.

        Raises LimitError for more than `MAX_SLOTS` slots.
        """
        key = levels, until
        if key not in self._layouts:
            if until not in self._unfolded:
                self._unfolded[until] = _Unfolded(self, until)
            self._layouts[key] = self._unfolded[until].layout(levels)
            if len(self._layouts) > MAX_LAYOUTS:
                self._layouts.popitem(last=False)
        self._layouts.move_to_end(key)
        return self._layouts[key]

    def targets(self, nodes: list[LayoutNode], oldest: int) -> list[list[LayoutNode | int]]:
        """Return the successor of each node after each label: FALSE, TRUE, or a node."""
        return [
            [
                rest if rest in (FALSE, TRUE) else LayoutNode(rest, min(node.age + 1, oldest))
                for rest in self.rests(node[0])
            ]
            for node in nodes
        ]


class _Unfolded:
    """The nodes of paths of any length, level by level.

    The nodes of a short path are the first levels of a longer path.

    Args:
        layouts: the obligations.
        until: see `ObligationLayouts.layout`.
    """

    def __init__(self, layouts: ObligationLayouts, until: int | None) -> None:
        self._layouts, self._until = layouts, until
        self._begun = LayoutNode(layouts.automaton.start, 0)
        self._nodes, self._count = [[self._begun]], 1
        self._targets: list[Ints] = []

    def layout(self, levels: int) -> Layout:
        """Return the layout of a path of `levels` pairs. Raises LimitError for more than `MAX_SLOTS` slots."""
        while len(self._targets) < levels and self._nodes[-1]:
            self._extend(levels)
        targets, nodes = self._targets[:levels], self._nodes[: levels + 1]
        if self._until is not None:
            nodes[-1] = nodes[-1][:-1]  # no path begins after the last pair
        shape = len(targets), max(map(len, nodes))
        target = np.zeros((*shape, self._layouts.labels), dtype=np.int64)
        rewarded, ages = np.zeros(shape, dtype=np.bool_), np.zeros(shape, dtype=np.int64)
        for level, (rows, here) in enumerate(zip(targets, nodes, strict=False)):
            target[level, : len(rows)] = rows
            rewarded[level, : len(rows)] = [self._layouts.automaton.rewards(node.obligation) for node in here]
            ages[level, : len(rows)] = [node.age for node in here]
        start = [here.index(self._begun) if self._begun in here else -1 for here in nodes[: len(targets)]]
        return Layout(target, rewarded, np.array(list(map(len, targets))), nodes, ages, np.array(start))

    def _extend(self, levels: int) -> None:
        """Add one level."""
        oldest = NEVER if self._until is None else self._until
        rests = self._layouts.targets(self._nodes[-1], oldest)
        ahead = {node for each in rests for node in each if isinstance(node, LayoutNode)}
        if self._count + len(ahead) > MAX_SLOTS:
            raise LimitError(
                f"the best decisions on {levels} pairs would need more than {MAX_SLOTS:,} obligations, all pairs "
                "together (limit MAX_SLOTS); look back fewer steps, or shorten the formula's intervals"
            )
        self._count += len(ahead)
        self._nodes.append(sorted(ahead))
        if self._until is not None:
            self._nodes[-1].append(self._begun)  # not in `ahead`: no node leads to age 0
        slot: dict[LayoutNode | int, int] = {FALSE: FALSE, TRUE: TRUE}
        slot |= {node: FIRST_SLOT + n for n, node in enumerate(self._nodes[-1])}
        self._targets.append(np.array([[slot[rest] for rest in each] for each in rests]))
