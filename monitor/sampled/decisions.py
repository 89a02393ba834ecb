"""Policies as batched decisions: many states at once, and nothing asked for states that nobody is in."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn, Protocol, runtime_checkable

import numpy as np

from monitor.arrays import AnyArray, Floats, Ints
from monitor.errors import PolicyError
from monitor.policy import PolicyTable
from monitor.policy.network import Network
from monitor.policy.table import ROW_SUM_TOLERANCE

__all__ = ["Decisions", "Held", "Remembered", "TableDecisions", "as_decisions"]


MAX_REMEMBERED = 1 << 20
"""States a policy's decisions are remembered for before the memo starts anew."""


@runtime_checkable
class Decisions(Protocol):
    """What a policy does in the states it is asked about."""

    def decide(self, states: Ints) -> Ints | Floats:
        """Actions [n] of a deterministic policy, distributions [n, A] of a stochastic one, in states [n]."""
        ...


class TableDecisions:
    """The decisions of a table over an enumerated model."""

    def __init__(self, table: PolicyTable) -> None:
        self.table = table

    def decide(self, states: Ints) -> Ints | Floats:
        """Looked up."""
        if self.table.actions is not None:
            actions: Ints = self.table.actions[states]
            return actions
        assert self.table.probabilities is not None
        chances: Floats = self.table.probabilities[states]
        return chances


class Held:
    """One action, wherever one is: `do(action)`."""

    def __init__(self, action: int) -> None:
        self.action = action

    def decide(self, states: Ints) -> Ints:
        """The action, n times."""
        return np.full(len(states), self.action, dtype=np.int64)


class Remembered:
    """A function of states, in batches, asked once for each state as long as there is room.

    Args:
        function: states [m] -> values [m] or [m, k].
        batch: how many states it takes at once; None: any number.
    """

    def __init__(
        self, function: Callable[[Ints], AnyArray], batch: int | None = None, limit: int = MAX_REMEMBERED
    ) -> None:
        self._function, self._batch, self._limit = function, batch, limit
        self._states: Ints = np.zeros(0, dtype=np.int64)
        self._values: AnyArray | None = None

    def __call__(self, states: Ints) -> AnyArray:
        """The values for states [n], with repetitions."""
        if self._values is None or not np.array_equal(self._states[self._places(states)], states):
            self._learn(np.unique(states))
        assert self._values is not None
        values: AnyArray = self._values[self._places(states)]
        return values

    def _places(self, states: Ints) -> Ints:
        return np.minimum(np.searchsorted(self._states, states), len(self._states) - 1)

    def _learn(self, states: Ints) -> None:
        """Add what is missing; `states` ascending, each once."""
        if self._values is None or len(self._states) + len(states) > self._limit:
            values = self._ask(states)
        else:
            missing = np.setdiff1d(states, self._states, assume_unique=True)
            states = np.concatenate([self._states, missing])
            order = np.argsort(states)
            states, values = states[order], np.concatenate([self._values, self._ask(missing)])[order]
        self._states, self._values = states, values  # only now: a function that raises leaves what was known as it was

    def _ask(self, states: Ints) -> AnyArray:
        size = self._batch or max(len(states), 1)
        return np.concatenate([self._function(states[i : i + size]) for i in range(0, len(states), size)])


class _Asked:
    """Decisions of a function in batches, remembered by state."""

    def __init__(self, function: Callable[[Ints], AnyArray], batch: int | None) -> None:
        self._known = Remembered(function, batch)

    def decide(self, states: Ints) -> Ints | Floats:
        """What the function said of these states."""
        return self._known(states)


class _Checked:
    """A function of states, each answer of which is a choice of one of so many actions; else PolicyError.

    Of distributions those within rounding of 1 stay as they are, to the bit, as in a table.
    """

    def __init__(self, function: Callable[[Ints], object], actions: int, name: str) -> None:
        self._function, self._actions, self._name = function, actions, name

    def decide(self, states: Ints) -> Ints | Floats:
        """What the function says of these states."""
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


def as_decisions(policy: object, actions: int | None = None, name: str = "") -> Decisions:
    """A policy in any form it may be given in.

    Args:
        policy: a `PolicyTable`, an ONNX `Network`, anything with `decide(states)`, or a function of states [n] that
            gives actions [n] or distributions [n, A]; networks and functions are asked once for each state.
        actions: how many there are; what is neither a table nor a network is then held to it: PolicyError names the
            policy and the state.
        name: of the policy.
    """
    match policy:
        case PolicyTable():
            return TableDecisions(policy)
        case Network():
            return _Asked(policy.choose, policy.batch)
        case Decisions():
            return policy if actions is None else _Checked(policy.decide, actions, name)
        case _ if callable(policy):
            return _Asked(policy if actions is None else _Checked(policy, actions, name).decide, None)
        case _:
            raise TypeError(f"a policy is a table, a network or a function of states, not {type(policy).__name__}")
