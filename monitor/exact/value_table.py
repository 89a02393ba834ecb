"""What lies beyond the observed path: values of obligations, where nothing is observed any more.

There rows are plain and only the law, the program and the remaining horizon matter, so values are computed once per law
and formula and shared by every path, agent and offset. Two ways, with the same numbers: a table over all states, for a
small model or a formula that is watched; and around the states that are asked for, where a table would be too large
or would serve one question.
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
from monitor.exact.labelling import Labelling, NestedGoal, Static
from monitor.exact.lazy_values import Cell, LazyValues
from monitor.logic import FALSE, TRUE, PathProgram
from monitor.model import MDP

__all__ = ["Labelling", "NestedGoal", "Static", "ValueTable", "is_large", "numbers"]


MAX_CELLS = 20_000_000
"""Numbers (obligations x states) a table may hold, 160 MB; or twice the numbers of the model, if these are more."""
SMALL = 4_096
"""Up to so many states a table costs less than finding out which part of it is needed."""
MAX_GATHERED = 1_000_000
"""Entries of rows that are laid out next to each other while a table is made; beyond it they are read in place."""
MAX_PLANNED = 1_000_000
"""Obligations, by offset, that one pass over all states may take in."""
MANY = 100_000
"""Pairs for which a table costs less than what they reach, and which are taken in blocks of so many."""


def is_large(model: MDP) -> bool:
    """Whether values are computed around the states that are reached rather than for all of them."""
    return model.states > SMALL


def numbers(model: MDP) -> int:
    """The numbers a model holds."""
    return int(model.indptr.size + model.successors.size + model.probabilities.size + model.rewards.size)


@dataclass(frozen=True)
class _Read:
    """A layer over all states while tables are made, with the letters of its pairs and their rows, if these are few."""

    layer: Layer
    letters: npt.NDArray[np.generic]
    kinds: tuple[int, ...]
    entries: Entries | None


class ValueTable:
    """Values of a program's obligations from an offset on, under a law, nothing observed.

    `table` [n, S], read-only: what is tabled so far; `rows`: (offset, obligation) -> row of the table, where offsets
    beyond the law's last change are that.
    """

    def __init__(self, law: Law, program: PathProgram, letters: Labelling) -> None:
        self.law, self.program, self.letters = law, program, letters
        self._settled = law.settled()
        self._states = law.future.states
        self._room = max(MAX_CELLS, 2 * numbers(law.future))
        self.table: Floats = np.zeros((0, self._states))
        self.rows: dict[Cell, int] = {}
        self._reach = LazyValues(law, program, letters)
        self._layers: dict[tuple[object, ...], list[_Read]] = {}

    def tabled(self, offset: int, obligation: int) -> bool:
        """Whether `value` is there already; else `at` may cost less."""
        return obligation in (FALSE, TRUE) or (min(offset, self._settled), obligation) in self.rows

    def prepare(self) -> bool:
        """Make the table of all that can be owed, if it has room; whether it is made.

        Raises LimitError where it has none although the model is small: then what is reached would hardly fit either.
        """
        try:
            self.value(0, self.program.start)
        except LimitError:
            if self._states <= SMALL:
                raise
            return False
        return True

    def after(self, offset: int, obligation: int, states: Ints, actions: Ints) -> Floats:
        """Values [n] of `obligation`, to be read at `offset`, in n states where `actions` are taken."""
        if obligation in (FALSE, TRUE):
            return np.full(len(states), float(obligation == TRUE))
        if len(states) > MANY:
            with suppress(LimitError):
                self.value(offset, obligation)
            blocks = [slice(begin, begin + MANY) for begin in range(0, len(states), MANY)]
            return np.concatenate([self.after(offset, obligation, states[b], actions[b]) for b in blocks])
        letters = self.letters.many(offset, states, actions)
        values = np.zeros(len(states))
        for letter in np.unique(letters):
            rest = self.program.step(obligation, int(letter))
            here = np.flatnonzero(letters == letter)
            if rest in (FALSE, TRUE):
                values[here] = float(rest == TRUE)
                continue
            entries = Entries.gather(self.law, offset, states[here], actions[here])
            values[here] = entries.means(self.at(offset + 1, rest, entries.successors))
        if self.program.pays(obligation):
            values += self.law.gains(offset, states, actions)
        return values

    def at(self, offset: int, obligation: int, states: Ints) -> Floats:
        """Values [n] of `obligation` at `offset` in n states, the law choosing the action."""
        if obligation in (FALSE, TRUE):
            return np.full(len(states), float(obligation == TRUE))
        if self._states <= SMALL or self.tabled(offset, obligation):
            return self.value(offset, obligation)[states]
        return self._reach.at(offset, obligation, states)

    def value(self, offset: int, obligation: int) -> Floats:
        """Values [S] of `obligation` at `offset`, the law choosing the action: a row of the table, read-only.

        Raises LimitError where the table has no room.
        """
        if obligation in (FALSE, TRUE):
            constant: Floats = np.broadcast_to(np.float64(obligation == TRUE), (self._states,))
            return constant
        root = (min(offset, self._settled), obligation)
        if root not in self.rows:
            try:
                self._fill(self._plan(root, self._room // self._states, self._refusal))
            finally:
                self._layers.clear()
        row: Floats = self.table[self.rows[root]]
        return row

    def once(self, obligation: int) -> Floats:
        """Values [S] of `obligation` at offset 0, the caller's own: nothing is kept for the next question.

        A value is let go once nothing needs it any more, so that a long horizon costs time and no memory. Raises
        LimitError where those needed at once are too many.
        """
        if obligation in (FALSE, TRUE):
            return np.full(self._states, float(obligation == TRUE))
        if self.rows:
            return self.value(0, obligation).copy()  # a table is there already
        try:
            plan = self._plan((0, obligation), MAX_PLANNED, _too_many)
            needed = Counter(need for cell in plan for need in self._needs(cell))
            held: dict[Cell, Floats] = {}
            for cell in plan:
                held[cell] = np.zeros(self._states)
                if len(held) * self._states > self._room:
                    raise LimitError(self._refusal(len(held)))
                self._compute(cell, held[cell], held.__getitem__)
                for need in self._needs(cell):
                    needed[need] -= 1
                    if not needed[need]:
                        del held[need]
            return held[0, obligation]
        finally:
            self._layers.clear()

    def _plan(self, root: Cell, most: int, refusal: Callable[[int], str]) -> list[Cell]:
        """What is missing for a cell, each after all that it needs; refused where there are more than `most`."""
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
            f"the table of what lies ahead outgrows {self._room} numbers (limit MAX_CELLS): at least {cells} "
            f"obligations for {self._states} states; shorten the formula's intervals"
        )

    def _fill(self, plan: list[Cell]) -> None:
        """Compute cells in this order, into one block with those that are there."""
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
        rests = {self.program.step(obligation, kind) for read in self._reads(offset) for kind in read.kinds}
        return sorted((min(offset + 1, self._settled), rest) for rest in rests - {FALSE, TRUE})

    def _compute(self, cell: Cell, out: Floats, known: Callable[[Cell], Floats]) -> None:
        """Add a cell's values to `out` [S]; `known`: those of the cells it needs."""
        offset, obligation = cell
        step = {kind: self.program.step(obligation, kind) for read in self._reads(offset) for kind in read.kinds}
        ahead = {rest: known((min(offset + 1, self._settled), rest)) for rest in {*step.values()} - {FALSE, TRUE}}
        for read in self._reads(offset):
            alone = read.layer.places is None
            values = out if alone else np.zeros(len(read.layer.states))
            self._move(offset, read, step, ahead, values)
            if self.program.pays(obligation):
                values += self.law.gains(offset, read.layer.states, read.layer.actions)
            if not alone:
                read.layer.add(out, values)

    def _move(self, offset: int, read: _Read, step: dict[int, int], ahead: dict[int, Floats], values: Floats) -> None:
        """One letter read, one move made, by each pair of a layer, into `values` [n]; without what the pair pays."""
        kinds: dict[int, list[int]] = {}
        for kind in read.kinds:
            kinds.setdefault(step[kind], []).append(kind)
        for rest, letters in kinds.items():
            if rest == FALSE:
                continue
            here = read.letters == letters[0]
            for letter in letters[1:]:
                here |= read.letters == letter
            if rest == TRUE:
                values[here] = 1.0
                continue
            if read.entries is None:
                means_over_rows(self.law, offset, read.layer, here, ahead[rest], values)
            else:
                values[here] = read.entries.means(ahead[rest][read.entries.successors])[here]

    def _reads(self, offset: int) -> list[_Read]:
        """The law's layers over all states at an offset; kept only while tables are made."""
        offset = min(offset, self._settled)
        model = self.law.model_at(offset)
        alike = model, self.law.ended(offset), self.law.table(offset), offset if self.letters.by_action else 0
        if alike not in self._layers:
            chosen = layers(self.law, offset, np.arange(self._states))
            self._layers[alike] = [self._read(offset, model, layer) for layer in chosen]
        return self._layers[alike]

    def _read(self, offset: int, model: MDP, layer: Layer) -> _Read:
        letters = self.letters.all(offset, layer.states, layer.actions)
        few = letters.dtype.itemsize <= 2
        kinds = np.flatnonzero(np.bincount(letters)) if few else np.unique(letters)
        entries = None
        if model.successors.size <= MAX_GATHERED:
            entries = Entries.gather(self.law, offset, layer.states, layer.actions)
        return _Read(layer, letters, tuple(kinds.tolist()), entries)


def _too_many(cells: int) -> str:
    return f"at least {cells} obligations lie ahead (limit MAX_PLANNED); shorten the formula's intervals"
