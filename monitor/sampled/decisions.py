"""Policies as batched decisions: many states at once, and nothing asked for states that nobody is in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from monitor.policy import PolicyTable
from monitor.policy.network import Network

__all__ = ["Decisions", "Held", "Remembered", "TableDecisions", "as_decisions"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

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
        self, function: Callable[[Ints], npt.NDArray[Any]], batch: int | None = None, limit: int = MAX_REMEMBERED
    ) -> None:
        self._function, self._batch, self._limit = function, batch, limit
        self._states: Ints = np.zeros(0, dtype=np.int64)
        self._values: npt.NDArray[Any] | None = None

    def __call__(self, states: Ints) -> npt.NDArray[Any]:
        """The values for states [n], with repetitions."""
        if self._values is None or not np.array_equal(self._states[self._places(states)], states):
            self._learn(np.unique(states))
        assert self._values is not None
        values: npt.NDArray[Any] = self._values[self._places(states)]
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

    def _ask(self, states: Ints) -> npt.NDArray[Any]:
        size = self._batch or max(len(states), 1)
        return np.concatenate([self._function(states[i : i + size]) for i in range(0, len(states), size)])


class _Asked:
    """Decisions of a function in batches, remembered by state."""

    def __init__(self, function: Callable[[Ints], npt.NDArray[Any]], batch: int | None) -> None:
        self._known = Remembered(function, batch)

    def decide(self, states: Ints) -> Ints | Floats:
        """What the function said of these states."""
        return self._known(states)


def as_decisions(policy: object) -> Decisions:
    """A policy in any form it may be given in.

    Args:
        policy: a `PolicyTable`, an ONNX `Network`, anything with `decide(states)`, or a function of states [n] that
            gives actions [n] or distributions [n, A]; networks and functions are asked once for each state.
    """
    match policy:
        case PolicyTable():
            return TableDecisions(policy)
        case Network():
            return _Asked(policy.choose, policy.batch)
        case Decisions():
            return policy
        case _ if callable(policy):
            return _Asked(policy, None)
        case _:
            raise TypeError(f"a policy is a table, a network or a function of states, not {type(policy).__name__}")
