"""The labelling function says which atoms of a path formula hold in each state.

Atoms are labels of the model and nested quantities. A *label set* is the set of atoms that hold, as a bit mask: bit n
is atom n of the automaton. Source: Baier & Katoen 2008, chapter 10.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Protocol

import numpy as np

from monitor.arrays import AnyArray, Bools, Floats, Ints
from monitor.causal import Law, conditional_choices
from monitor.logic import Automaton
from monitor.logic.syntax import Goal, InterventionRef, Label, Test
from monitor.model import MDP
from monitor.policy import PolicyTable

NEAR = 1e-9
"""Relative distance from a bound within which values are compared one by one."""


class StateLabels:
    """Label sets with the labels of the model only, not with nested quantities; shared by all laws.

    `masks` [S] is computed on first use, because a query about a few states does not need it.
    """

    def __init__(self, automaton: Automaton, model: MDP) -> None:
        self._labels = [
            (bit, model.labels[atom.name]) for bit, atom in enumerate(automaton.atoms) if isinstance(atom, Label)
        ]
        self._states = model.states

    @cached_property
    def masks(self) -> AnyArray:
        """Label sets [S] of all states, in the smallest unsigned type with enough bits."""
        kind = np.min_scalar_type(1 << max((bit for bit, _ in self._labels), default=0))
        masks = np.zeros(self._states, dtype=kind)
        for bit, label in self._labels:
            masks |= label.astype(kind) << kind.type(bit)
        return masks

    def many(self, states: Ints) -> Ints:
        """Return the label sets [n] of n states."""
        masks = np.zeros(len(states), dtype=np.int64)
        for bit, label in self._labels:
            masks |= label[states].astype(np.int64) << bit
        return masks

    def one(self, state: int) -> int:
        """Return the label set of one state."""
        return sum(int(label[state]) << bit for bit, label in self._labels)


class Labelling:
    """Label sets of (state, action) pairs at an offset, under one law.

    A label depends on the state alone. A nested quantity also depends on the offset (through the law) and on the action
    just taken (docs/semantics/formulas.md, section 5.6).

    Args:
        state_labels: the label sets of states.
        nested: bit of an atom -> nested goal of the atom.
        stationary_from: the offset from which neither the law nor any label set changes.
    """

    def __init__(self, state_labels: StateLabels, nested: Mapping[int, NestedGoal], stationary_from: int) -> None:
        self._state_labels = state_labels
        self._nested = nested
        self._stationary_from = stationary_from
        self._cache: dict[tuple[int, int, int], int] = {}

    @property
    def by_action(self) -> bool:
        """True if label sets depend on the action just taken."""
        return bool(self._nested)

    def many(self, offset: int, states: Ints, actions: Ints) -> Ints:
        """Return the label sets [n] of n pairs at an offset."""
        masks = self._state_labels.many(states)
        for bit, goal in self._nested.items():
            masks |= goal.holds(offset, states, actions).astype(np.int64) << bit
        return masks

    def all(self, offset: int, states: Ints, actions: Ints) -> AnyArray:
        """Return the label sets [n] of n pairs, like `many`; faster if the pairs cover most states.

        The array has a small unsigned type if no quantity is nested.
        """
        if self._nested:
            return self.many(offset, states, actions)
        masks = self._state_labels.masks
        return masks if len(states) == len(masks) else masks[states]

    def one(self, offset: int, state: int, action: int) -> int:
        """Return the label set of one pair."""
        if not self._nested:
            return self._state_labels.one(state)
        key = (min(offset, self._stationary_from), state, action)
        if key not in self._cache:
            self._cache[key] = int(self.many(offset, np.array([state]), np.array([action]))[0])
        return self._cache[key]


class ValueFunction(Protocol):
    """Values of an automaton's obligations without observations (a `ValueTable`)."""

    automaton: Automaton

    def action_values(self, offset: int, obligation: int, states: Ints, actions: Ints) -> Floats:
        """Return the values [n] of an obligation in n states where `actions` are taken."""
        ...


class NestedGoal:
    """Truth of a goal nested in a path formula. The outer law stays in force, and nothing is observed about the noise.

    Inner `nominal` means "carry on as now": the action just taken, then the outer law (docs/semantics/formulas.md,
    section 5.6).

    Args:
        goal: a goal with a test.
        world_at: (offset, intervention) -> the outer law from the offset on, this law under the intervention, and the
            value function of the law under the intervention.
    """

    def __init__(self, goal: Goal, world_at: Callable[[int, InterventionRef], tuple[Law, Law, ValueFunction]]) -> None:
        assert goal.test is not None
        self._world, self._test = goal.world, goal.test
        self._world_at = world_at

    def holds(self, offset: int, states: Ints, actions: Ints) -> Bools:
        """Return the truth [n] of the goal at `offset` in n states in which `actions` were just taken."""
        values = self._values(offset, self._world.change, states, actions)
        if self._world.baseline is not None:
            values = values - self._values(offset, self._world.baseline, states, actions)
        return _passes(self._test, values)

    def _values(self, offset: int, change: InterventionRef, states: Ints, actions: Ints) -> Floats:
        before, law, function = self._world_at(offset, change)
        start, table = function.automaton.start, law.table(0)
        if law.nominal_from == 0:
            return function.action_values(0, start, states, actions)
        if table.actions is not None:
            return function.action_values(0, start, states, table.actions[states])
        pairs = zip(states, actions, strict=True)
        return np.array([self._mean(before, table, function, int(s), int(a)) for s, a in pairs])

    @staticmethod
    def _mean(before: Law, table: PolicyTable, function: ValueFunction, state: int, action: int) -> float:
        """Return the mean value over the table's action, given the action just taken.

        See docs/semantics/formulas.md, section 7.
        """
        count = before.future.actions
        prior = before.table(0).distribution(state, count)
        weights = conditional_choices(prior, action, table.distribution(state, count))
        chosen = np.flatnonzero(weights)
        values = function.action_values(0, function.automaton.start, np.full(len(chosen), state), chosen)
        return float(weights[chosen] @ values)


def _passes(test: Test, values: Floats) -> Bools:
    """Return `test.holds` for many values [n]. It is called only for distinct values near the bound."""
    below = test.comparison in ("<", "<=")
    holds: Bools = values < test.bound if below else values > test.bound
    near = np.abs(values - test.bound) <= NEAR * max(1.0, abs(test.bound))
    different, where = np.unique(values[near], return_inverse=True)
    holds[near] = np.array([test.holds(value) for value in different.tolist()], dtype=np.bool_)[where]
    return holds
