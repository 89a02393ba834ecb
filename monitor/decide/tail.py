"""What lies beyond the observed path: values of obligations, for all states at once.

Where nothing is observed any more, rows are plain and only the law, the program and the remaining horizon matter.
Each table is therefore computed once per law and formula and shared by every path, agent and offset.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from monitor.causal import Law, conditional_choices
from monitor.errors import LimitError
from monitor.logic import FALSE, TRUE, Program
from monitor.logic.syntax import Change, Goal, Label
from monitor.model import MDP
from monitor.policy import PolicyTable

__all__ = ["Letters", "NestedGoal", "Tail", "transition_matrix"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

MAX_CELLS = 20_000_000
"""Numbers (obligations x states) a table may hold: 160 MB."""


def transition_matrix(model: MDP) -> csr_array:
    """All rows of the model, [S*A, S]; shares the model's arrays."""
    shape = (model.states * model.actions, model.states)
    return csr_array((model.probabilities, model.successors, model.indptr), shape=shape, copy=False)


class Letters:
    """Which atoms of a program hold, for states at an offset: labels, and nested quantities.

    `nested`: bit of the atom -> its evaluator. A nested quantity depends on the offset (through the law), the state and
    the action just taken (semantics, section 5); a label on the state alone. `settled`: the offset from which the law,
    and with it every letter, stays as it is.
    """

    def __init__(self, program: Program, model: MDP, nested: dict[int, NestedGoal], settled: int) -> None:
        static = np.zeros(model.states, dtype=np.int64)
        for bit, atom in enumerate(program.atoms):
            if isinstance(atom, Label):
                static |= model.labels[atom.name].astype(np.int64) << bit
        self._static = static
        self._nested = nested
        self._settled = settled
        self._known: dict[tuple[int, int, int], int] = {}

    def many(self, offset: int, states: Ints, actions: Ints) -> Ints:
        """The letters [n] of n (state, action) pairs at an offset."""
        letters = self._static[states]
        for bit, goal in self._nested.items():
            letters = letters | (goal.holds(offset, states, actions).astype(np.int64) << bit)
        return letters

    def one(self, offset: int, state: int, action: int) -> int:
        """The letter of one pair."""
        if not self._nested:
            return int(self._static[state])
        key = (min(offset, self._settled), state, action)
        if key not in self._known:
            self._known[key] = int(self.many(offset, np.array([state]), np.array([action]))[0])
        return self._known[key]


class NestedGoal:
    """Whether a quantity nested in a path holds, where the outer law stays in force and noise is fresh.

    Inner `nominal` is "carry on as now": the action just taken, then the outer law (semantics, section 5).
    """

    def __init__(self, goal: Goal, arm: Callable[[int, Change], tuple[Law, Law, Tail]]) -> None:
        assert goal.test is not None
        self._world, self._test = goal.world, goal.test
        self._arm = arm

    def holds(self, offset: int, states: Ints, actions: Ints) -> npt.NDArray[np.bool_]:
        """For n states at `offset` in which `actions` were just taken: [n]."""
        values = self._values(offset, self._world.change, states, actions)
        if self._world.baseline is not None:
            values = values - self._values(offset, self._world.baseline, states, actions)
        return np.fromiter((self._test.holds(float(v)) for v in values), dtype=np.bool_, count=len(values))

    def _values(self, offset: int, change: Change, states: Ints, actions: Ints) -> Floats:
        before, law, tail = self._arm(offset, change)
        table = law.table(0)
        if law.default_from == 0:
            return tail.after(0, tail.program.start, states, actions)
        if table.actions is not None:
            return tail.after(0, tail.program.start, states, table.actions[states])
        return np.array([self._mean(before, table, tail, int(s), int(a)) for s, a in zip(states, actions, strict=True)])

    @staticmethod
    def _mean(before: Law, table: PolicyTable, tail: Tail, state: int, action: int) -> float:
        """One state, the action just taken having told something about the action noise (semantics, section 7)."""
        count = before.future.actions
        prior = before.table(0).distribution(state, count)
        weights = conditional_choices(prior, action, table.distribution(state, count))
        chosen = np.flatnonzero(weights)
        return float(weights[chosen] @ tail.after(0, tail.program.start, np.full(len(chosen), state), chosen))


class Tail:
    """Values of a program's obligations from an offset on, under a law, nothing observed."""

    def __init__(self, law: Law, program: Program, letters: Letters) -> None:
        self.law, self.program, self.letters = law, program, letters
        self._settled = law.settled()
        self._states, self._actions = law.future.states, law.future.actions
        self._constant = {FALSE: np.zeros(self._states), TRUE: np.ones(self._states)}
        self._future = transition_matrix(law.future)
        self._past = self._future if law.dynamics is law.future else transition_matrix(law.dynamics)
        self._cells: dict[tuple[int, int], Floats] = {}
        self._rows: dict[int, list[csr_array]] = {}

    def after(self, offset: int, obligation: int, states: Ints, actions: Ints) -> Floats:
        """Values [n] of `obligation`, to be read at `offset`, in n states where `actions` are taken."""
        if obligation in self._constant:
            return self._constant[obligation][states]
        rows = states * self._actions + actions
        return self._read(offset, obligation, states, actions, self._matrix(offset)[rows])

    def value(self, offset: int, obligation: int) -> Floats:
        """Values [S] of `obligation` at `offset`, the law choosing the action."""
        if obligation in self._constant:
            return self._constant[obligation]
        root = (min(offset, self._settled), obligation)
        waiting = [root]
        while waiting:
            cell = waiting[-1]
            missing = [] if cell in self._cells else [c for c in self._needs(cell) if c not in self._cells]
            if missing:
                waiting += missing
                continue
            waiting.pop()
            if cell not in self._cells:
                self._claim_room()
                self._cells[cell] = self._compute(cell)
        return self._cells[root]

    def _claim_room(self) -> None:
        if (len(self._cells) + 1) * self._states > MAX_CELLS:
            msg = (
                f"the table of what lies ahead outgrows {MAX_CELLS} numbers (limit MAX_CELLS): {len(self._cells)} "
                f"obligations for {self._states} states; shorten the formula's intervals"
            )
            raise LimitError(msg)

    def _needs(self, cell: tuple[int, int]) -> list[tuple[int, int]]:
        offset, obligation = cell
        needs: set[tuple[int, int]] = set()
        for states, actions, _ in self._layers(offset):
            letters = np.unique(self.letters.many(offset, states, actions))
            rests = {self.program.step(obligation, int(letter)) for letter in letters} - self._constant.keys()
            needs |= {(min(offset + 1, self._settled), rest) for rest in rests}
        return sorted(needs)

    def _compute(self, cell: tuple[int, int]) -> Floats:
        offset, obligation = cell
        total = np.zeros(self._states)
        for (states, actions, weights), matrix in zip(self._layers(offset), self._matrices(offset), strict=True):
            total[states] += weights * self._read(offset, obligation, states, actions, matrix)
        return total

    def _read(self, offset: int, obligation: int, states: Ints, actions: Ints, matrix: csr_array) -> Floats:
        """One letter read, one move made: `matrix` holds the rows [n, S] of the n pairs."""
        letters = self.letters.many(offset, states, actions)
        kinds = np.unique(letters)
        values = np.zeros(len(states))
        for letter in kinds:
            rest = self.program.step(obligation, int(letter))
            if rest == FALSE:
                continue
            here = letters == letter
            # A kept obligation is worth 1 whatever the row; this also spares a product.
            values[here] = 1.0 if rest == TRUE else (matrix @ self.value(offset + 1, rest))[here]
        if self.program.pays(obligation):
            values += self.law.model_at(offset).rewards[states, actions]
        return values

    def _layers(self, offset: int) -> Iterator[tuple[Ints, Ints, Floats]]:
        """The pairs the law can choose, as layers of at most one action a state: states, actions, weights."""
        table = self.law.table(offset)
        if table.actions is not None:
            yield np.arange(self._states), table.actions, np.ones(self._states)
            return
        assert table.probabilities is not None
        for action in range(self._actions):
            states = np.flatnonzero(table.probabilities[:, action])
            if len(states):
                yield states, np.full(len(states), action), table.probabilities[states, action]

    def _matrix(self, offset: int) -> csr_array:
        return self._past if offset < self.law.until else self._future

    def _matrices(self, offset: int) -> list[csr_array]:
        offset = min(offset, self._settled)
        if offset not in self._rows:
            rows = (states * self._actions + actions for states, actions, _ in self._layers(offset))
            self._rows[offset] = [self._matrix(offset)[r] for r in rows]
        return self._rows[offset]
