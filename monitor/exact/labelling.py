"""Which atoms of a formula hold where: labels, and quantities nested in a path."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Protocol

import numpy as np

from monitor.arrays import AnyArray, Bools, Floats, Ints
from monitor.causal import Law, conditional_choices
from monitor.logic import PathProgram
from monitor.logic.syntax import Change, Goal, Label, Test
from monitor.model import MDP
from monitor.policy import PolicyTable

__all__ = ["Ahead", "Labelling", "NestedGoal", "Static"]


NEAR = 1e-9
"""Values no further than this from a bound, relative to it, are compared one by one."""


class Static:
    """The labels of a program's letters, for all states in as few bytes as they need; shared by the laws asked about.

    `letters` [S] is made when a table needs it; a question about a few states does not.
    """

    def __init__(self, program: PathProgram, model: MDP) -> None:
        self._marks = [
            (bit, model.labels[atom.name]) for bit, atom in enumerate(program.atoms) if isinstance(atom, Label)
        ]
        self._states = model.states

    @cached_property
    def letters(self) -> AnyArray:
        """[S], unsigned."""
        kind = np.min_scalar_type(1 << max((bit for bit, _ in self._marks), default=0))
        letters = np.zeros(self._states, dtype=kind)
        for bit, mark in self._marks:
            letters |= mark.astype(kind) << kind.type(bit)
        return letters

    def many(self, states: Ints) -> Ints:
        """Of some states: [n]."""
        letters = np.zeros(len(states), dtype=np.int64)
        for bit, mark in self._marks:
            letters |= mark[states].astype(np.int64) << bit
        return letters

    def one(self, state: int) -> int:
        """Of one state."""
        return sum(int(mark[state]) << bit for bit, mark in self._marks)


class Labelling:
    """Which atoms of a program hold, for states at an offset: labels, and nested quantities.

    `nested`: bit of the atom -> its evaluator. A nested quantity depends on the offset (through the law), the state and
    the action just taken (docs/semantics.md, section 5.6); a label on the state alone. `settled`: the offset from which
    the law, and with it every letter, stays as it is.
    """

    def __init__(self, static: Static, nested: Mapping[int, NestedGoal], settled: int) -> None:
        self._static = static
        self._nested = nested
        self._settled = settled
        self._known: dict[tuple[int, int, int], int] = {}

    @property
    def by_action(self) -> bool:
        """Whether letters depend on the action just taken."""
        return bool(self._nested)

    def many(self, offset: int, states: Ints, actions: Ints) -> Ints:
        """The letters [n] of n (state, action) pairs at an offset."""
        letters = self._static.many(states)
        for bit, goal in self._nested.items():
            letters |= goal.holds(offset, states, actions).astype(np.int64) << bit
        return letters

    def all(self, offset: int, states: Ints, actions: Ints) -> AnyArray:
        """As `many`, for pairs of many states: unsigned numbers in few bytes where no quantity is nested."""
        if self._nested:
            return self.many(offset, states, actions)
        letters = self._static.letters
        return letters if len(states) == len(letters) else letters[states]

    def one(self, offset: int, state: int, action: int) -> int:
        """The letter of one pair."""
        if not self._nested:
            return self._static.one(state)
        key = (min(offset, self._settled), state, action)
        if key not in self._known:
            self._known[key] = int(self.many(offset, np.array([state]), np.array([action]))[0])
        return self._known[key]


class Ahead(Protocol):
    """What a nested quantity asks: values where nothing is observed (a `ValueTable`)."""

    program: PathProgram

    def after(self, offset: int, obligation: int, states: Ints, actions: Ints) -> Floats:
        """Values [n] of an obligation in n states where `actions` are taken."""
        ...


class NestedGoal:
    """Whether a quantity nested in a path holds, where the outer law stays in force and noise is fresh.

    Inner `nominal` is "carry on as now": the action just taken, then the outer law (docs/semantics.md, section 5.6).
    """

    def __init__(self, goal: Goal, arm: Callable[[int, Change], tuple[Law, Law, Ahead]]) -> None:
        assert goal.test is not None
        self._world, self._test = goal.world, goal.test
        self._arm = arm

    def holds(self, offset: int, states: Ints, actions: Ints) -> Bools:
        """For n states at `offset` in which `actions` were just taken: [n]."""
        values = self._values(offset, self._world.change, states, actions)
        if self._world.baseline is not None:
            values = values - self._values(offset, self._world.baseline, states, actions)
        return _holding(self._test, values)

    def _values(self, offset: int, change: Change, states: Ints, actions: Ints) -> Floats:
        before, law, tail = self._arm(offset, change)
        table = law.table(0)
        if law.default_from == 0:
            return tail.after(0, tail.program.start, states, actions)
        if table.actions is not None:
            return tail.after(0, tail.program.start, states, table.actions[states])
        return np.array([self._mean(before, table, tail, int(s), int(a)) for s, a in zip(states, actions, strict=True)])

    @staticmethod
    def _mean(before: Law, table: PolicyTable, tail: Ahead, state: int, action: int) -> float:
        """One state, with the action noise given the action just taken (docs/semantics.md, section 7)."""
        count = before.future.actions
        prior = before.table(0).distribution(state, count)
        weights = conditional_choices(prior, action, table.distribution(state, count))
        chosen = np.flatnonzero(weights)
        return float(weights[chosen] @ tail.after(0, tail.program.start, np.full(len(chosen), state), chosen))


def _holding(test: Test, values: Floats) -> Bools:
    """`test.holds` of many values [n]; it has the last word on those near the bound, each asked once."""
    below = test.comparison in ("<", "<=")
    holds: Bools = values < test.bound if below else values > test.bound
    near = np.abs(values - test.bound) <= NEAR * max(1.0, abs(test.bound))
    asked, where = np.unique(values[near], return_inverse=True)
    holds[near] = np.array([test.holds(value) for value in asked.tolist()], dtype=np.bool_)[where]
    return holds
