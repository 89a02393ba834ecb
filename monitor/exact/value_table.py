"""Values beyond the observed path, by backward induction over (offset, obligation) cells.

Beyond the observed path nothing is observed, so a value depends only on the law, the automaton and the remaining
horizon. Each value is computed once for a law and a measure, and shared by all paths, agents and offsets.

Two methods give the same results. A table has the values of all states; it is used for a small model or a monitored
formula. `LazyValues` computes the values of requested states only; it is used if a table is too large or would serve
only one query.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from monitor.arrays import Floats, Ints
from monitor.causal import Law
from monitor.errors import LimitError
from monitor.exact.bellman import (
    Entries,
    Layer,
    layers,
    means_over_rows,
)
from monitor.exact.labelling import Labelling, NestedGoal, StateLabels
from monitor.exact.lazy_values import Cell, LazyValues
from monitor.logic import FALSE, TRUE, Automaton
from monitor.model import MDP

__all__ = ["Labelling", "NestedGoal", "StateLabels", "ValueTable", "is_large", "numbers"]


MAX_TABLE_NUMBERS = 20_000_000
"""Largest number of values (obligations x states) in a table: 160 MB. The limit is twice the numbers that the model
stores, if this is more."""
SMALL = 4_096
"""Up to this number of states, it costs less to compute a whole table than to find the part that is needed."""
MAX_GATHERED = 1_000_000
"""Largest number of row entries gathered into arrays while a table is filled. If there are more, rows are read in
place."""
MAX_PLANNED = 1_000_000
"""Largest number of cells that one pass over all states may compute."""
MANY = 100_000
"""With more pairs than this, a table is tried first. Pairs are processed in blocks of this size."""


def is_large(model: MDP) -> bool:
    """Return whether values are computed only for reachable states, because the model has many states."""
    return model.states > SMALL


def numbers(model: MDP) -> int:
    """Return how many numbers a model stores."""
    return int(model.indptr.size + model.successors.size + model.probabilities.size + model.rewards.size)


@dataclass(frozen=True)
class _LabelledLayer:
    """A layer over all states.

    `masks` [n]: the label sets of the pairs; `different`: the distinct label sets; `entries`: the row entries, None if
    they are not gathered.
    """

    layer: Layer
    masks: npt.NDArray[np.generic]
    different: tuple[int, ...]
    entries: Entries | None


class ValueTable:
    """Values of an automaton's obligations under a law, without observations.

    `table` [n, S], read-only: the values computed so far; `rows`: cell -> row of the table. An offset after the law's
    last change is replaced by the offset of this change.
    """

    def __init__(self, law: Law, automaton: Automaton, labelling: Labelling) -> None:
        self.law, self.automaton, self.labelling = law, automaton, labelling
        self._stationary_from = law.stationary_from()
        self._states = law.future.states
        self.table: Floats = np.zeros((0, self._states))
        self.rows: dict[Cell, int] = {}
        self._lazy = LazyValues(law, automaton, labelling)
        self._layer_cache: dict[tuple[object, ...], list[_LabelledLayer]] = {}

    @property
    def _limit(self) -> int:
        """Largest number of values in the table."""
        return max(MAX_TABLE_NUMBERS, 2 * numbers(self.law.future))

    def tabled(self, offset: int, obligation: int) -> bool:
        """Return whether the table has `all_values` of an obligation. If not, `values` may cost less."""
        return obligation in (FALSE, TRUE) or (min(offset, self._stationary_from), obligation) in self.rows

    def prepare(self) -> bool:
        """Fill the table for every reachable obligation, if it fits; return whether it was filled.

        Raises LimitError if the table of a small model does not fit. In a small model the reachable part of the table
        would probably not fit either.
        """
        try:
            self.all_values(0, self.automaton.start)
        except LimitError:
            if self._states <= SMALL:
                raise
            return False
        return True

    def action_values(self, offset: int, obligation: int, states: Ints, actions: Ints) -> Floats:
        """Return the values [n] of `obligation` at `offset` in n states in which `actions` are taken."""
        if obligation in (FALSE, TRUE):
            return np.full(len(states), float(obligation == TRUE))
        if len(states) > MANY:
            with suppress(LimitError):
                self.all_values(offset, obligation)
            blocks = [slice(begin, begin + MANY) for begin in range(0, len(states), MANY)]
            return np.concatenate([self.action_values(offset, obligation, states[b], actions[b]) for b in blocks])
        masks = self.labelling.many(offset, states, actions)
        values = np.zeros(len(states))
        for mask in np.unique(masks):
            rest = self.automaton.step(obligation, int(mask))
            here = np.flatnonzero(masks == mask)
            if rest in (FALSE, TRUE):
                values[here] = float(rest == TRUE)
                continue
            entries = Entries.gather(self.law, offset, states[here], actions[here])
            values[here] = entries.means(self.values(offset + 1, rest, entries.successors))
        if self.automaton.rewards(obligation):
            values += self.law.expected_rewards(offset, states, actions)
        return values

    def values(self, offset: int, obligation: int, states: Ints) -> Floats:
        """Return the values [n] of `obligation` at `offset` in n states, with the law's choice of action."""
        if obligation in (FALSE, TRUE):
            return np.full(len(states), float(obligation == TRUE))
        if self._states <= SMALL or self.tabled(offset, obligation):
            return self.all_values(offset, obligation)[states]
        return self._lazy.values(offset, obligation, states)

    def all_values(self, offset: int, obligation: int) -> Floats:
        """Return the values [S] of `obligation` at `offset` in all states, as a read-only row of the table.

        Raises LimitError if the table would be too large.
        """
        if obligation in (FALSE, TRUE):
            constant: Floats = np.broadcast_to(np.float64(obligation == TRUE), (self._states,))
            return constant
        root = (min(offset, self._stationary_from), obligation)
        if root not in self.rows:
            try:
                self._fill(self._plan(root, self._limit // self._states, self._refusal))
            finally:
                self._layer_cache.clear()
        row: Floats = self.table[self.rows[root]]
        return row

    def compute_once(self, obligation: int) -> Floats:
        """Return the values [S] of `obligation` at offset 0, as a new array that is not added to the table.

        Each cell is dropped after its last use, so a long horizon costs time but no memory. Raises LimitError if too
        many cells are needed at once.
        """
        if obligation in (FALSE, TRUE):
            return np.full(self._states, float(obligation == TRUE))
        if self.rows:
            return self.all_values(0, obligation).copy()
        try:
            plan = self._plan((0, obligation), MAX_PLANNED, _too_many)
            needed = Counter(need for cell in plan for need in self._needs(cell))
            held: dict[Cell, Floats] = {}
            limit = self._limit
            for cell in plan:
                held[cell] = np.zeros(self._states)
                if len(held) * self._states > limit:
                    raise LimitError(self._refusal(len(held)))
                self._compute(cell, held[cell], held.__getitem__)
                for need in self._needs(cell):
                    needed[need] -= 1
                    if not needed[need]:
                        del held[need]
            return held[0, obligation]
        finally:
            self._layer_cache.clear()

    def _plan(self, root: Cell, most: int, refusal: Callable[[int], str]) -> list[Cell]:
        """Return the missing cells below `root`, each after all cells that it needs.

        Raises LimitError, with the message of `refusal`, if there are more than `most` cells.
        """
        plan: dict[Cell, None] = {}
        open_cells = {root: iter(self._needs(root))}
        while open_cells:
            cell, needs = next(reversed(open_cells.items()))
            need = next((c for c in needs if c not in plan and c not in self.rows), None)
            if need is None:
                plan[cell] = None
                del open_cells[cell]
                continue
            open_cells[need] = iter(self._needs(need))
            count = len(self.rows) + len(plan) + len(open_cells)
            if count > most:
                raise LimitError(refusal(count))
        return list(plan)

    def _refusal(self, cells: int) -> str:
        return (
            f"a table of values would need more than {self._limit} numbers (limit MAX_TABLE_NUMBERS): at least {cells} "
            f"obligations for {self._states} states; shorten the formula's intervals"
        )

    def _fill(self, plan: list[Cell]) -> None:
        """Compute cells in the order of `plan`, and add them to a new, larger table."""
        held = len(self.rows)
        block = np.zeros((held + len(plan), self._states))
        block[:held] = self.table
        rows = dict(self.rows)
        for row, cell in enumerate(plan, held):
            rows[cell] = row
            self._compute(cell, block[row], lambda ahead: block[rows[ahead]])
        block.flags.writeable = False
        self.table, self.rows = block, rows

    def _needs(self, cell: Cell) -> list[Cell]:
        offset, obligation = cell
        rests = {self.automaton.step(obligation, mask) for layer in self._layers(offset) for mask in layer.different}
        return sorted((min(offset + 1, self._stationary_from), rest) for rest in rests - {FALSE, TRUE})

    def _compute(self, cell: Cell, out: Floats, known: Callable[[Cell], Floats]) -> None:
        """Add a cell's values to `out` [S]; `known` returns the values of the cells that it needs."""
        offset, obligation = cell
        step = {m: self.automaton.step(obligation, m) for labelled in self._layers(offset) for m in labelled.different}
        ahead = {
            rest: known((min(offset + 1, self._stationary_from), rest)) for rest in {*step.values()} - {FALSE, TRUE}
        }
        for labelled in self._layers(offset):
            layer = labelled.layer
            values = out if layer.places is None else np.zeros(len(layer.states))
            self._backup(offset, labelled, step, ahead, values)
            if self.automaton.rewards(obligation):
                values += self.law.expected_rewards(offset, layer.states, layer.actions)
            if layer.places is not None:
                layer.add(out, values)

    def _backup(
        self, offset: int, labelled: _LabelledLayer, step: dict[int, int], ahead: dict[int, Floats], values: Floats
    ) -> None:
        """Write the expected next values of a layer's pairs to `values` [n], without the rewards of the pairs."""
        by_rest: dict[int, list[int]] = {}
        for mask in labelled.different:
            by_rest.setdefault(step[mask], []).append(mask)
        for rest, masks in by_rest.items():
            if rest == FALSE:
                continue
            here = labelled.masks == masks[0]
            for mask in masks[1:]:
                here |= labelled.masks == mask
            if rest == TRUE:
                values[here] = 1.0
            elif labelled.entries is None:
                means_over_rows(self.law, offset, labelled.layer, here, ahead[rest], values)
            else:
                values[here] = labelled.entries.means(ahead[rest][labelled.entries.successors])[here]

    def _layers(self, offset: int) -> list[_LabelledLayer]:
        """Return the law's layers over all states at an offset; they are cached only while a table is filled."""
        offset = min(offset, self._stationary_from)
        law = self.law
        model = law.model_at(offset)
        key = model, law.ended(offset), law.table(offset), offset if self.labelling.by_action else 0
        if key not in self._layer_cache:
            chosen = layers(law, offset, np.arange(self._states))
            self._layer_cache[key] = [self._labelled(offset, model, layer) for layer in chosen]
        return self._layer_cache[key]

    def _labelled(self, offset: int, model: MDP, layer: Layer) -> _LabelledLayer:
        masks = self.labelling.all(offset, layer.states, layer.actions)
        small = masks.dtype.itemsize <= 2
        different = np.flatnonzero(np.bincount(masks)) if small else np.unique(masks)
        entries = None
        if model.successors.size <= MAX_GATHERED:
            entries = Entries.gather(self.law, offset, layer.states, layer.actions)
        return _LabelledLayer(layer, masks, tuple(different.tolist()), entries)


def _too_many(cells: int) -> str:
    return f"at least {cells} obligations are reachable (limit MAX_PLANNED); shorten the formula's intervals"
