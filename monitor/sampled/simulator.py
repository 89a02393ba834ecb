"""Models that cannot be enumerated. Their successors are computed on demand, for one state or for many states at once.

States are arbitrary int64 numbers. These numbers are keys of the noise, so a state must always have the same number.
`NumberedSimulator` assigns numbers to states that are not numbers.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from hashlib import blake2b
from typing import Generic, Protocol, TypeVar, runtime_checkable

from monitor.arrays import Bools, Floats, Ints
from monitor.errors import LimitError, ModelError

MAX_NUMBERED = 10_000_000
"""Largest number of distinct states of one `NumberedSimulator`."""


@runtime_checkable
class Simulator(Protocol):
    """A model called for one state at a time. Its rows are cached, so each (state, action) needs only one call."""

    @property
    def actions(self) -> int:
        """Number of actions."""
        ...

    @property
    def labels(self) -> Collection[str]:
        """The label names that `holds` accepts."""
        ...

    def successors(self, state: int, action: int) -> tuple[Sequence[int] | Ints, Sequence[float] | Floats]:
        """Return distinct next states and their probabilities; both are empty if the action is unavailable."""
        ...

    def holds(self, label: str, state: int) -> bool:
        """Return whether a state has a label."""
        ...

    def reward(self, state: int, action: int) -> float:
        """Return R(s, a)."""
        ...


@runtime_checkable
class VectorSimulator(Protocol):
    """A model called for many states at once; nothing is cached."""

    @property
    def actions(self) -> int:
        """Number of actions."""
        ...

    @property
    def labels(self) -> Collection[str]:
        """The label names that `holds` accepts."""
        ...

    def rows(self, states: Ints, actions: Ints) -> tuple[Ints, Floats]:
        """Return next states and their probabilities, both [n, K]; entries of probability 0 are padding."""
        ...

    def holds(self, label: str, states: Ints) -> Bools:
        """Return whether the states have a label, [n]."""
        ...

    def rewards(self, states: Ints, actions: Ints) -> Floats:
        """Return R(s, a), [n]."""
        ...


State = TypeVar("State", bound=Hashable)


class HashableSimulator(Protocol[State]):
    """A `Simulator` whose states are not numbers."""

    @property
    def actions(self) -> int:
        """Number of actions."""
        ...

    @property
    def labels(self) -> Collection[str]:
        """The label names that `holds` accepts."""
        ...

    def successors(self, state: State, action: int) -> tuple[Sequence[State], Sequence[float]]:
        """As in `Simulator`."""
        ...

    def holds(self, label: str, state: State) -> bool:
        """As in `Simulator`."""
        ...

    def reward(self, state: State, action: int) -> float:
        """As in `Simulator`."""
        ...


class NumberedSimulator(Generic[State]):
    """A `Simulator` over numbers, made from a simulator whose states are hashable and have a unique, stable `repr`.

    The number of a state is computed from its `repr`, because noise must not depend on the order in which states occur.

    >>> number_of(("bishop", 3)) == number_of(("bishop", 3))
    True
    """

    def __init__(self, simulator: HashableSimulator[State]) -> None:
        self.actions, self.labels = simulator.actions, simulator.labels
        self._simulator = simulator
        self._states: dict[int, State] = {}

    def number(self, state: State) -> int:
        """Return the number of a state, for paths. Raises LimitError beyond `MAX_NUMBERED` states."""
        number = number_of(state)
        known = self._states.setdefault(number, state)
        if known != state:
            raise ModelError(f"the states {known!r} and {state!r} have the same number; give them a longer repr")
        if len(self._states) > MAX_NUMBERED:
            raise LimitError(
                f"more than {MAX_NUMBERED} different states were met (limit MAX_NUMBERED); number the states yourself, "
                "so that none has to be remembered"
            )
        return number

    def successors(self, state: int, action: int) -> tuple[Sequence[int], Sequence[float]]:
        """Return the successors of the state with this number."""
        states, probabilities = self._simulator.successors(self._known(state), action)
        return [self.number(one) for one in states], probabilities

    def holds(self, label: str, state: int) -> bool:
        """Return whether the state with this number has a label."""
        return self._simulator.holds(label, self._known(state))

    def reward(self, state: int, action: int) -> float:
        """Return the reward in the state with this number."""
        return self._simulator.reward(self._known(state), action)

    def _known(self, number: int) -> State:
        if number not in self._states:
            raise ModelError(f"no state met so far has the number {number}; take those of a path from `number(state)`")
        return self._states[number]


def number_of(state: Hashable) -> int:
    """Return 63 bits of a hash of a state's `repr`, the same in every process."""
    return int.from_bytes(blake2b(repr(state).encode(), digest_size=8).digest(), "little") >> 1
