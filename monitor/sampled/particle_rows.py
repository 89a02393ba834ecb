"""Rows of many particles at once, for models of any kind."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

import numpy as np

from monitor.arrays import Bools, Floats, Ints
from monitor.errors import ModelError, PolicyError
from monitor.model import MDP
from monitor.model.rewards import transition_keys
from monitor.sampled.decisions import CachedFunction
from monitor.sampled.noise import ParticleRows
from monitor.sampled.simulator import Simulator, VectorSimulator

ROW_SUM_TOLERANCE = 1e-9
PADDING = np.iinfo(np.int64).max
"""Replaces each state of probability 0 in a row; it is larger than all other states."""
MAX_CACHED = 1 << 18
"""Largest number of rows of a simulator in the cache. If there are more, the cache is cleared."""


class RowSource(Protocol):
    """Rows, labels and rewards for particles in states [n]."""

    @property
    def labels(self) -> Collection[str]:
        """The label names that `holds` accepts."""
        ...

    def entries(self, states: Ints, actions: Ints) -> ParticleRows:
        """Return the rows of n pairs. Raises PolicyError if an action is unavailable."""
        ...

    def holds(self, label: str, states: Ints) -> Bools:
        """Return whether n states have a label, [n]."""
        ...

    def rewards(self, states: Ints, actions: Ints, successors: Ints) -> Floats:
        """Return the rewards R(s, a, s'), [n]."""
        ...


class ModelRows:
    """Rows of an enumerated model; nothing is copied."""

    def __init__(self, model: MDP) -> None:
        self.model, self.labels = model, model.labels.keys()
        rows = model.indptr, model.successors, model.probabilities
        self._keys = None if model.transition_rewards is None else transition_keys(rows)

    def entries(self, states: Ints, actions: Ints) -> ParticleRows:
        """Return the rows as slices of the model's own arrays."""
        rows = states * self.model.actions + actions
        begin, end = self.model.indptr[rows], self.model.indptr[rows + 1]
        _refuse(begin == end, states, actions, None)
        return ParticleRows(begin, end, self.model.successors, self.model.probabilities)

    def holds(self, label: str, states: Ints) -> Bools:
        """Return whether n states have a label, [n]."""
        marks: Bools = self.model.labels[label][states]
        return marks

    def rewards(self, states: Ints, actions: Ints, successors: Ints) -> Floats:
        """Return R(s, a, s') [n]; r(s, a) for a transition that the model does not have."""
        rewards: Floats = self.model.rewards[states, actions]
        if self._keys is None:
            return rewards
        assert self.model.transition_rewards is not None
        wanted = ((states * self.model.actions + actions) << 32) + successors
        places = np.minimum(np.searchsorted(self._keys, wanted), len(self._keys) - 1)
        return rewards + np.where(self._keys[places] == wanted, self.model.transition_rewards[places], 0.0)


class VectorRows:
    """Rows of a model that is called for many states at once. A wrong row raises ModelError, which names the pair."""

    def __init__(self, simulator: VectorSimulator) -> None:
        self.simulator, self.labels = simulator, simulator.labels

    def entries(self, states: Ints, actions: Ints) -> ParticleRows:
        """Return the rows, each with ascending successors, including their padding (probability 0)."""
        keys, chances = self.simulator.rows(states, actions)
        keys, chances = np.asarray(keys, dtype=np.int64), np.asarray(chances, dtype=np.float64)
        if keys.ndim != 2 or keys.shape != chances.shape or len(keys) != len(states):
            raise ModelError(f"rows: {keys.shape} states and {chances.shape} probabilities for {len(states)} pairs")
        keys, chances = _checked(keys, chances, states, actions)
        ends = np.arange(1, len(keys) + 1) * keys.shape[1]
        return ParticleRows(ends - keys.shape[1], ends, keys.ravel(), chances.ravel())

    def holds(self, label: str, states: Ints) -> Bools:
        """Return whether n states have a label, [n]."""
        marks = np.asarray(self.simulator.holds(label, states), dtype=np.bool_)
        if marks.shape != states.shape:  # NumPy might broadcast the wrong shape to all states
            raise ModelError(f"label {label!r}: {marks.shape} truths for {len(states)} states")
        return marks

    def rewards(self, states: Ints, actions: Ints, successors: Ints) -> Floats:
        """Return R(s, a) [n]."""
        del successors
        rewards = np.asarray(self.simulator.rewards(states, actions), dtype=np.float64)
        if rewards.shape != states.shape:
            raise ModelError(f"rewards: {rewards.shape} for {len(states)} pairs")
        return rewards


class SimulatorRows:
    """Rows of a simulator that is called for one pair at a time. Each row is computed once, if the cache has space."""

    def __init__(self, simulator: Simulator, limit: int = MAX_CACHED) -> None:
        self.simulator, self.labels, self._limit = simulator, simulator.labels, limit
        self._holds = {label: CachedFunction(_HoldsLabel(simulator, label)) for label in simulator.labels}
        self._clear()

    def entries(self, states: Ints, actions: Ints) -> ParticleRows:
        """Return the rows as slices of the cache. Rows that it lacks are added first."""
        slots = self._slots(states, actions)
        ends = self._ends[slots]
        return ParticleRows(ends - self._lengths[slots], ends, self._keys, self._chances)

    def holds(self, label: str, states: Ints) -> Bools:
        """Return whether n states have a label, [n]."""
        return self._holds[label](states)

    def rewards(self, states: Ints, actions: Ints, successors: Ints) -> Floats:
        """Return R(s, a) [n], computed once for each distinct pair."""
        del successors
        pairs, back = different_pairs(states, actions)
        return np.array([self.simulator.reward(s, a) for s, a in pairs.tolist()], dtype=np.float64)[back]

    def _clear(self) -> None:
        self._index: dict[tuple[int, int], int] = {}
        self._keys, self._chances = np.zeros(0, dtype=np.int64), np.zeros(0)
        self._lengths, self._ends = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)

    def _slots(self, states: Ints, actions: Ints) -> Ints:
        pairs, back = different_pairs(states, actions)
        wanted: list[tuple[int, int]] = [(state, action) for state, action in pairs.tolist()]
        missing = [pair for pair in wanted if pair not in self._index]
        if len(self._index) + len(missing) > self._limit:
            self._clear()
            missing = wanted
        if missing:
            self._add(missing)
        return np.array([self._index[pair] for pair in wanted], dtype=np.int64)[back]

    def _add(self, pairs: list[tuple[int, int]]) -> None:
        rows = [self._row(state, action) for state, action in pairs]
        self._index.update(zip(pairs, range(len(self._index), len(self._index) + len(pairs)), strict=True))
        self._keys = np.concatenate([self._keys, *(keys for keys, _ in rows)])
        self._chances = np.concatenate([self._chances, *(chances for _, chances in rows)])
        self._lengths = np.concatenate([self._lengths, [len(keys) for keys, _ in rows]])
        self._ends = np.cumsum(self._lengths)

    def _row(self, state: int, action: int) -> tuple[Ints, Floats]:
        successors, probabilities = self.simulator.successors(state, action)
        keys = np.asarray(successors, dtype=np.int64)
        chances = np.asarray(probabilities, dtype=np.float64)
        if keys.ndim != 1 or keys.shape != chances.shape:
            raise ModelError(f"{_name(state, action)}: {keys.size} successors but {chances.size} probabilities")
        pair = np.array([state]), np.array([action])
        keys, chances = _checked(keys[np.newaxis], chances[np.newaxis], *pair)
        return keys[0], chances[0]


class _HoldsLabel:
    """One label of a simulator, evaluated state by state."""

    def __init__(self, simulator: Simulator, label: str) -> None:
        self._simulator, self._label = simulator, label

    def __call__(self, states: Ints) -> Bools:
        return np.array([self._simulator.holds(self._label, state) for state in states.tolist()], dtype=np.bool_)


def as_rows(model: MDP | Simulator | VectorSimulator) -> RowSource:
    """Return the rows of a model of any kind; a simulator with `rows` is called for many states at once."""
    if isinstance(model, MDP):
        return ModelRows(model)
    if isinstance(model, VectorSimulator):
        return VectorRows(model)
    return SimulatorRows(model)


def different_pairs(states: Ints, actions: Ints) -> tuple[Ints, Ints]:
    """Return the distinct pairs [m, 2], and for each of the n pairs its index among the distinct pairs."""
    order = np.lexsort((actions, states))
    pairs = np.stack([states[order], actions[order]], axis=1)
    first = np.ones(len(order), dtype=np.bool_)
    first[1:] = (pairs[1:] != pairs[:-1]).any(axis=1)
    back = np.empty(len(order), dtype=np.int64)
    back[order] = np.cumsum(first) - 1
    return pairs[first], back


def _checked(keys: Ints, chances: Floats, states: Ints, actions: Ints) -> tuple[Ints, Floats]:
    """Return rows [n, K], each ascending. Raises ModelError if a row is no distribution or lists a state twice."""
    total: Floats = chances.sum(axis=1)
    _refuse(total == 0.0, states, actions, None)
    _refuse(~(np.abs(total - 1.0) <= ROW_SUM_TOLERANCE), states, actions, "its probabilities do not sum to 1")
    _refuse(np.any(chances < 0.0, axis=1), states, actions, "it holds a negative probability")
    keys = np.where(chances > 0.0, keys, PADDING)
    order = np.argsort(keys, axis=1)
    keys, chances = np.take_along_axis(keys, order, axis=1), np.take_along_axis(chances, order, axis=1)
    twice = ((keys[:, 1:] == keys[:, :-1]) & (chances[:, 1:] > 0.0)).any(axis=1)
    _refuse(twice, states, actions, "it lists a state twice; add its probabilities up")
    return keys, chances


def _refuse(bad: Bools, states: Ints, actions: Ints, problem: str | None) -> None:
    if bad.any():
        first = int(np.flatnonzero(bad)[0])
        where = _name(int(states[first]), int(actions[first]))
        if problem is None:
            raise PolicyError(f"{where} has no successors: the action is unavailable there, yet it was chosen")
        raise ModelError(f"{where}: {problem}")


def _name(state: int, action: int) -> str:
    return f"the row of (state {state}, action {action})"
