"""Find where given policies change their choices on recorded rows, and which states mix different choices.

If the agent acts differently on rows of the same state, the outcomes of its actions were recorded in different
situations. Comparing these outcomes is then misleading (confounding, as in Pearl 2009, chapter 3). If the alternative
acts differently on rows of the same state, the state does not determine the action of the alternative.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from monitor.arrays import AnyArray, Bools, Ints
from monitor.authoring.learning.abstraction import Numbering
from monitor.authoring.learning.batch import RowBatch
from monitor.authoring.learning.model_problem import ModelProblem

FEW: Final = 0.05
"""An action that a policy chooses on at most this fraction of a state's rows does not make the state mixed."""

MOST_MIXED: Final = 0.1
"""Largest fraction of the steps that are in mixed states if the model is good.

A table gives a policy one choice in each state, the most frequent one. If a policy chooses between two actions, this
choice differs from the policy on at most half of the rows of a mixed state, and on at most the fraction `FEW` of the
rows of any other state. At the limit, it therefore differs on at most 9.5 % of the steps.
"""

ROWS: Final = 40_000
"""Number of rows that are searched for changes of choices."""

LEAST_GAIN: Final = 0.005
"""Smallest fraction of a policy's impurity that a split must remove."""

LEAST_APART: Final = 0.005
"""Smallest fraction of the rows between two edges of a column."""

LEAST_ROWS: Final = 20
"""Smallest number of rows on either side of a split."""


@dataclass(frozen=True, eq=False)
class PolicyChoices:
    """Choices of policies on recorded rows [n].

    Attributes:
        rows: the columns of the state. No value is missing.
        actions: name of a policy -> its action on each row [n]; -1: not known.
        given: names of the policies that the user gave. For any other policy, `actions` has the recorded actions.
    """

    rows: RowBatch
    actions: Mapping[str, Ints]
    given: frozenset[str]

    def mixed(self, states: Numbering) -> dict[str, float]:
        """Return for each given policy the fraction of its rows in states in which the policy's choices differ.

        `states` may get new states, so pass a copy.
        """
        of = states.encode(self.rows, states.columns)
        return {name: mixed(of[known], at[known]) for name in sorted(self.given) for at, known in [self._known(name)]}

    def _known(self, name: str) -> tuple[Ints, Bools]:
        return self.actions[name], self.actions[name] >= 0


def mixed(states: Ints, actions: Ints) -> float:
    """Return the fraction of rows [n] in states in which at least two actions each have over `FEW` of the rows.

    >>> mixed(np.array([0, 0, 1, 1]), np.array([0, 1, 1, 1]))
    0.5
    """
    if not len(states):
        return 0.0
    kinds, of = np.unique(states, return_inverse=True)
    counts = np.zeros((len(kinds), int(actions.max()) + 1))
    np.add.at(counts, (of, actions), 1)
    several = (counts > FEW * counts.sum(axis=1, keepdims=True)).sum(axis=1) > 1
    return float(several[of].mean())


def mixed_problem(name: str, share: float) -> ModelProblem | None:
    """Return the problem that states mix rows on which a policy acts differently; None if they mix few rows."""
    if share <= MOST_MIXED:
        return None
    who, why = {
        "nominal": (
            "the agent",
            "its actions were recorded in different situations, so comparing their outcomes in the state misleads",
        ),
        "fallback": ("the fallback", "what it would do there is not known from the state"),
    }[name]
    return ModelProblem(
        f"in {share:.0%} of the recorded steps the state mixes rows on which {who} acts differently",
        f": {why}; use edges of bins where its choice changes (--bins), or columns that it reads",
    )


@dataclass
class _Edge:
    """A change of a choice between the recorded values `low` and `high`. Its edge may be any number in (low, high]."""

    column: str
    low: float
    high: float


def changes(choices: PolicyChoices, most: int) -> list[tuple[str, float]]:
    """Return columns of numbers with values at which the choices of policies change, the largest changes first.

    A decision tree is grown for each policy (Breiman, Friedman, Olshen and Stone 1984, with Gini's impurity). The next
    leaf to split is the leaf whose split removes the largest fraction of a policy's impurity. Splits by text give no
    edges, because each text has its own bin. Splits of one column between the same values give one edge. `most`: number
    of edges.
    """
    found: list[_Edge] = []
    step = -(-len(choices.rows) // ROWS) or 1
    columns = {name: values[::step] for name, values in choices.rows.columns.items()}
    queue = _Queue()
    for actions in choices.actions.values():
        queue.offer(_best(columns, actions[::step], np.flatnonzero(actions[::step] >= 0), None))
    while len(found) < most and (split := queue.best()) is not None:
        if split.edge is not None:
            _merge(found, split.edge, columns[split.edge.column])
        for part in (split.left, split.right):
            queue.offer(_best(columns, split.actions, part, split.whole))
    return [(each.column, short_number(each.low, each.high)) for each in found]


def _merge(found: list[_Edge], new: _Edge, values: AnyArray) -> None:
    """Add an edge, or narrow a known edge of the same column that may be at the same number.

    An edge with few of the column's `values` [n] between it and a known edge is not added.
    """
    known = [each for each in found if each.column == new.column]
    for each in known:
        if max(each.low, new.low) < min(each.high, new.high):
            each.low, each.high = max(each.low, new.low), min(each.high, new.high)
            return
    between = [((values >= min(each.high, new.high)) & (values < max(each.high, new.high))).mean() for each in known]
    if all(share >= LEAST_APART for share in between):
        found.append(new)


@dataclass(frozen=True, eq=False)
class _Split:
    """The best split of a leaf.

    `gain`: fraction of the `whole` impurity of the policy. `edge`: None for a split by text.
    """

    gain: float
    edge: _Edge | None
    left: Ints
    right: Ints
    actions: Ints
    whole: float


class _Queue:
    """Queue of splits: those with the largest gain come first; among equal gains, the one that was offered first."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, _Split]] = []
        self._offered = 0

    def offer(self, split: _Split | None) -> None:
        if split is not None and split.gain >= LEAST_GAIN:
            heapq.heappush(self._heap, (-split.gain, self._offered, split))
            self._offered += 1

    def best(self) -> _Split | None:
        return heapq.heappop(self._heap)[2] if self._heap else None


def _best(columns: Mapping[str, AnyArray], actions: Ints, rows: Ints, whole: float | None) -> _Split | None:
    """Return the best split of the rows of a leaf. `whole`: impurity of all rows; None: these are all rows."""
    if len(rows) < 2 * LEAST_ROWS:
        return None
    kinds, chosen = np.unique(actions[rows], return_inverse=True)
    hot = np.eye(len(kinds))[chosen]
    before = float(_impurity(hot.sum(axis=0)))
    whole = before if whole is None else whole
    best: _Split | None = None
    for name, values in columns.items():
        for gain, edge, left in _splits(name, values[rows], hot, before):
            if gain > 0 and (best is None or gain > best.gain * whole):
                best = _Split(gain / whole, edge, rows[left], rows[~left], actions, whole)
    return best


def _splits(name: str, values: AnyArray, hot: AnyArray, before: float) -> Iterator[tuple[float, _Edge | None, Bools]]:
    """Yield gain, edge and left part of the best split of a column of numbers, or of all splits of a text column."""
    if values.dtype.kind == "U":
        for text in np.unique(values).tolist():
            left = values == text
            if LEAST_ROWS <= left.sum() <= len(left) - LEAST_ROWS:
                parts = _impurity(np.stack([hot[left].sum(axis=0), hot[~left].sum(axis=0)]))
                yield before - float(parts.sum()), None, left
        return
    order = np.argsort(values, kind="stable")
    ordered = values[order].astype(np.float64)
    below = np.cumsum(hot[order], axis=0)
    ends = np.flatnonzero(ordered[1:] > ordered[:-1])  # the last row below each possible edge
    ends = ends[(ends + 1 >= LEAST_ROWS) & (ends + 1 <= len(ordered) - LEAST_ROWS)]
    if not len(ends):
        return
    gains = before - _impurity(below[ends]) - _impurity(below[-1] - below[ends])
    end = int(ends[gains.argmax()])
    edge = _Edge(name, float(ordered[end]), float(ordered[end + 1]))
    yield float(gains.max()), edge, values < ordered[end + 1]


def _impurity(counts: AnyArray) -> AnyArray:
    """Return Gini's impurity times the number of rows, for counts of actions [.., A]."""
    total = counts.sum(axis=-1)
    return np.asarray(total - (counts**2).sum(axis=-1) / np.maximum(total, 1))


def short_number(low: float, high: float) -> float:
    """Return a number in (low, high] with few digits.

    >>> [short_number(*pair) for pair in ((53.9, 54.2), (1.0, 2.0), (112.0, 112.1), (-3.0, -0.5), (0.1, 0.3))]
    [54.0, 2.0, 112.1, -1.0, 0.3]
    """
    size = math.floor(math.log10(max(abs(low), abs(high))))
    for digits in range(-size, 17 - size):
        number = float(f"{math.floor(high * 10.0**digits)}e{-digits}")
        if low < number <= high:
            return number
    return high
