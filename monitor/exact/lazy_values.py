"""Values of obligations for requested states only, computed from the states reachable within the horizon.

`LazyValues` is used if a table over all states would be too large, or would be used only once. A forward pass finds the
reachable cells and their states; a backward pass computes the values.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from monitor.arrays import Bools, Floats, Ints
from monitor.causal import Law
from monitor.errors import LimitError
from monitor.exact.bellman import Entries, Layer, layers
from monitor.exact.labelling import Labelling
from monitor.logic import FALSE, TRUE, Automaton

Cell = tuple[int, int]
"""(offset, obligation before labels are read). Offsets after the law's last change are replaced by the offset of this
change."""

MAX_KEPT = 4_000_000
"""Largest number of values cached between queries, with their states: 64 MB. Beyond this, all values are dropped."""
MAX_REACHED = 20_000_000
"""Largest number of values and row entries that one query may need at once: 480 MB."""


@dataclass(frozen=True)
class _LayerPart:
    """The pairs of a layer that lead to the obligation `rest`. `entries` is None if `rest` is FALSE or TRUE."""

    rest: int
    pairs: Ints
    entries: Entries | None


@dataclass(frozen=True)
class _ObligationStep:
    """One step of an obligation in some states. Each layer of pairs is divided into parts by the next obligation."""

    states: Ints
    layers: list[tuple[Layer, list[_LayerPart]]]


@dataclass(frozen=True)
class _Known:
    """Values [n] in n states; the states are ascending."""

    states: Ints
    values: Floats

    def missing(self, states: Ints) -> Ints:
        """Return the states of `states` that have no value yet."""
        return states[~self._held(states)]

    def _held(self, states: Ints) -> Bools:
        if not len(self.states):
            return np.zeros(len(states), dtype=np.bool_)
        at = np.minimum(np.searchsorted(self.states, states), len(self.states) - 1)
        held: Bools = self.states[at] == states
        return held

    def read(self, states: Ints) -> Floats:
        """Return the values of `states`, all of which must have a value."""
        return self.values[np.searchsorted(self.states, states)]

    def with_more(self, states: Ints, values: Floats) -> _Known:
        """Return these values together with `values` of states that had no value."""
        every = np.concatenate([self.states, states])
        order = np.argsort(every, kind="stable")
        return _Known(every[order], np.concatenate([self.values, values])[order])


_NO_VALUES = _Known(np.zeros(0, dtype=np.int64), np.zeros(0))


class LazyValues:
    """Values of an automaton's obligations under a law, computed for requested states."""

    def __init__(self, law: Law, automaton: Automaton, labelling: Labelling) -> None:
        self._law, self._automaton, self._labelling = law, automaton, labelling
        self._stationary_from = law.stationary_from()
        self._known: dict[Cell, _Known] = {}
        self._kept = 0

    @property
    def kept(self) -> int:
        """Number of values cached for later queries."""
        return self._kept

    def values(self, offset: int, obligation: int, states: Ints) -> Floats:
        """Return the values [n] of an obligation at `offset`, before labels are read, in n states.

        Raises LimitError if the computation needs more than `MAX_REACHED` numbers.
        """
        cell = (min(offset, self._stationary_from), obligation)
        if self._kept > MAX_KEPT:
            self._known.clear()
            self._kept = 0
        wanted, places = np.unique(states, return_inverse=True)
        for ahead in reversed(self._expand(cell, wanted)):
            for here, step in ahead.items():
                self._keep(here, step.states, self._evaluate(here, step))
        return self._known.get(cell, _NO_VALUES).read(wanted)[places]

    def _expand(self, cell: Cell, states: Ints) -> list[dict[Cell, _ObligationStep]]:
        """Return the cells to compute: one dictionary for each number of steps ahead."""
        levels: list[dict[Cell, _ObligationStep]] = []
        wanted = {cell: states}
        size = 0
        while wanted:
            level: dict[Cell, _ObligationStep] = {}
            reached: dict[Cell, list[Ints]] = defaultdict(list)
            for here, requested in wanted.items():
                missing = self._known.get(here, _NO_VALUES).missing(requested)
                if not len(missing):
                    continue
                level[here] = self._step(here, missing)
                size += len(missing)
                for rest, entries in _successors(level[here]):
                    size += len(entries.of)
                    reached[min(here[0] + 1, self._stationary_from), rest].append(entries.successors)
                if size > MAX_REACHED:
                    raise LimitError(_refusal())
            levels.append(level)
            wanted = {ahead: np.unique(np.concatenate(pieces)) for ahead, pieces in reached.items()}
        return levels

    def _step(self, cell: Cell, states: Ints) -> _ObligationStep:
        offset, obligation = cell
        chosen = [(layer, list(self._parts(offset, obligation, layer))) for layer in layers(self._law, offset, states)]
        return _ObligationStep(states, chosen)

    def _parts(self, offset: int, obligation: int, layer: Layer) -> Iterator[_LayerPart]:
        masks = self._labelling.many(offset, layer.states, layer.actions)
        pairs: dict[int, list[Ints]] = defaultdict(list)
        for mask in np.unique(masks):
            pairs[self._automaton.step(obligation, int(mask))].append(np.flatnonzero(masks == mask))
        for rest, pieces in pairs.items():
            which = np.concatenate(pieces)
            if rest in (FALSE, TRUE):
                yield _LayerPart(rest, which, None)
            else:
                entries = Entries.gather(self._law, offset, layer.states[which], layer.actions[which])
                yield _LayerPart(rest, which, entries)

    def _evaluate(self, cell: Cell, step: _ObligationStep) -> Floats:
        offset, obligation = cell
        total = np.zeros(len(step.states))
        for layer, parts in step.layers:
            values = np.zeros(len(layer.states))
            for part in parts:
                if part.entries is None:
                    values[part.pairs] = float(part.rest == TRUE)
                else:
                    ahead = self._known[min(offset + 1, self._stationary_from), part.rest].read(part.entries.successors)
                    values[part.pairs] = part.entries.means(ahead)
            if self._automaton.rewards(obligation):
                values += self._law.expected_rewards(offset, layer.states, layer.actions)
            layer.add(total, values)
        return total

    def _keep(self, cell: Cell, states: Ints, values: Floats) -> None:
        before = self._known.get(cell, _NO_VALUES)
        fresh = before.missing(states)  # a cell may occur in several levels of `_expand`
        if len(fresh) < len(states):
            values, states = values[np.searchsorted(states, fresh)], fresh
        self._known[cell] = before.with_more(states, values)
        self._kept += len(states)


def _successors(step: _ObligationStep) -> Iterator[tuple[int, Entries]]:
    for _, parts in step.layers:
        for part in parts:
            if part.entries is not None:
                yield part.rest, part.entries


def _refusal() -> str:
    return (
        f"the states reachable within the horizon need more than {MAX_REACHED} numbers (limit MAX_REACHED); "
        "shorten the formula's intervals"
    )
