"""Decisions of policies for many states at once, computed only for states that are visited."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn, Protocol, runtime_checkable

import numpy as np

from monitor.arrays import AnyArray, Floats, Ints
from monitor.errors import PolicyError
from monitor.policy import PolicyTable
from monitor.policy.network import Network
from monitor.policy.table import ROW_SUM_TOLERANCE

MAX_CACHED = 1 << 20
"""Largest number of states in the cache of a policy's decisions. If there are more, the cache is cleared."""


@runtime_checkable
class Decisions(Protocol):
    """Decisions of a policy in many states at once. States are joined with inputs if the policy `sees_inputs`."""

    def decide(self, states: AnyArray) -> Ints | Floats:
        """Return the actions [n] in n states, or distributions [n, A] if the policy is stochastic."""
        ...


class TableDecisions:
    """The decisions of a table over an enumerated model."""

    def __init__(self, table: PolicyTable) -> None:
        self.table = table

    def decide(self, states: Ints) -> Ints | Floats:
        """Return the actions, or the distributions, that the table has for the states."""
        if self.table.actions is not None:
            actions: Ints = self.table.actions[states]
            return actions
        assert self.table.probabilities is not None
        chances: Floats = self.table.probabilities[states]
        return chances


class ConstantDecisions:
    """One action in every state: `do(action)`."""

    def __init__(self, action: int) -> None:
        self.action = action

    def decide(self, states: Ints) -> Ints:
        """Return the action, n times."""
        return np.full(len(states), self.action, dtype=np.int64)


class CachedFunction:
    """Cached function of states. Its value in each state is computed once, if the cache has space.

    Args:
        function: states [m] -> values [m] or [m, k].
        batch: number of states that the function takes at once; None if it takes any number.
    """

    def __init__(self, function: Callable[[Ints], AnyArray], batch: int | None = None, limit: int = MAX_CACHED) -> None:
        self._function, self._batch, self._limit = function, batch, limit
        self._states: Ints = np.zeros(0, dtype=np.int64)
        self._values: AnyArray | None = None

    def __call__(self, states: Ints) -> AnyArray:
        """Return the values for states [n], which may repeat."""
        if self._values is None or not np.array_equal(self._states[self._places(states)], states):
            self._learn(np.unique(states))
        assert self._values is not None
        values: AnyArray = self._values[self._places(states)]
        return values

    def _places(self, states: Ints) -> Ints:
        return np.minimum(np.searchsorted(self._states, states), len(self._states) - 1)

    def _learn(self, states: Ints) -> None:
        """Add the values of states that are not in the cache; `states` are ascending and distinct."""
        if self._values is None or len(self._states) + len(states) > self._limit:
            values = self._call(states)
        else:
            missing = np.setdiff1d(states, self._states, assume_unique=True)
            states = np.concatenate([self._states, missing])
            order = np.argsort(states)
            states, values = states[order], np.concatenate([self._values, self._call(missing)])[order]
        self._states, self._values = states, values  # last, because the function may raise

    def _call(self, states: Ints) -> AnyArray:
        size = self._batch or max(len(states), 1)
        return np.concatenate([self._function(states[i : i + size]) for i in range(0, len(states), size)])


class _CachedDecisions:
    """Decisions made by a function, cached by state."""

    def __init__(self, function: Callable[[Ints], AnyArray], batch: int | None) -> None:
        self._cached = CachedFunction(function, batch)

    def decide(self, states: Ints) -> Ints | Floats:
        """Return the cached decisions."""
        return self._cached(states)


class _Checked:
    """Decisions made by a function of states. Raises PolicyError if they are not actions or distributions.

    As in a table, distributions that sum to 1 up to rounding are not changed at all.
    """

    def __init__(
        self, function: Callable[[Ints], object], actions: int, name: str, *, sees_inputs: bool = False
    ) -> None:
        self._function, self._actions, self._name, self.sees_inputs = function, actions, name, sees_inputs

    def decide(self, states: Ints) -> Ints | Floats:
        """Return the checked results for these states."""
        given = np.asarray(self._function(states))
        shapes = (len(states),), (len(states), self._actions)
        if given.shape not in shapes or given.dtype.kind not in ("biu" if given.ndim == 1 else "fiu"):
            self._refuse(f"gives {given.shape} of {given.dtype}, not {shapes[0]} actions or {shapes[1]} probabilities")
        if given.ndim == 1:
            outside = np.flatnonzero((given < 0) | (given >= self._actions))
            if outside.size:
                one = outside[0]
                self._refuse(f"gives action {given[one]} in state {states[one]}, outside 0..{self._actions - 1}")
            return given.astype(np.int64)
        chances: Floats = given.astype(np.float64)
        sums: Floats = chances.sum(axis=1)
        wrong = np.flatnonzero(~((chances >= 0.0).all(axis=1) & (np.abs(sums - 1.0) <= ROW_SUM_TOLERANCE)))
        if wrong.size:
            self._refuse(f"gives {chances[wrong[0]].tolist()} in state {states[wrong[0]]}, which is no distribution")
        loose = np.abs(sums - 1.0) > self._actions * np.finfo(np.float64).eps
        chances[loose] /= sums[loose, np.newaxis]
        return chances

    def _refuse(self, problem: str) -> NoReturn:
        raise PolicyError(f"policy {self._name!r} {problem}")


def sees_inputs(policy: Decisions) -> bool:
    """Return whether a policy decides on states and inputs together, [n, f + i] numbers."""
    return bool(getattr(policy, "sees_inputs", False))


def as_decisions(policy: object, actions: int | None = None, name: str = "") -> Decisions:
    """Convert a policy of any form to decisions.

    Args:
        policy: a `PolicyTable`, an ONNX `Network`, an object with `decide(states)`, or a function of states [n] that
            returns actions [n] or distributions [n, A]. The decisions of networks and functions are cached.
        actions: number of actions. If it is given, the results of every policy except tables and networks are checked.
            The PolicyError for a wrong result names the policy and the state.
        name: name of the policy.
    """
    match policy:
        case PolicyTable():
            return TableDecisions(policy)
        case Network():
            return _CachedDecisions(policy.choose, policy.batch)
        case Decisions():
            seen = sees_inputs(policy)
            return policy if actions is None else _Checked(policy.decide, actions, name, sees_inputs=seen)
        case _ if callable(policy):
            return _CachedDecisions(policy if actions is None else _Checked(policy, actions, name).decide, None)
        case _:
            raise TypeError(f"a policy is a table, a network or a function of states, not {type(policy).__name__}")
