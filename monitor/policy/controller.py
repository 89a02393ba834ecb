"""Policies that do not see the state or that have a memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from monitor.arrays import AnyArray, Floats, Ints
from monitor.errors import PolicyError
from monitor.model.mdp import MDP
from monitor.policy.table import ROW_SUM_TOLERANCE, PolicyTable

__all__ = ["Controller", "Policy", "Reader", "TableReader", "as_reader", "is_hidden"]

Sees = Literal["observation", "state"]
MemoryMode = Literal["shadow", "reset"]


@dataclass(frozen=True)
class Policy:
    """A policy without memory. `table`: for each observation or state (`sees`), an action or a distribution of actions.

    On a model with hidden states, a table alone is a policy that sees the observation.
    """

    table: object
    sees: Sees = "observation"


@dataclass(frozen=True)
class Controller:
    """A policy with finite memory. It reads z (an observation, or the state), updates its memory, and then acts.

    From memory m it changes to memory n = `next[m, z]` and takes an action from the distribution `choice[n, z]`. The
    shapes are [M, Z] and [M, Z, A]. An episode begins in memory 0. `memory`: when the policy takes over, it has read
    all earlier inputs (`shadow`), or begins in memory 0 (`reset`).
    """

    choice: object
    next: object
    memory: MemoryMode = "shadow"
    sees: Sees = "observation"


class Reader(ABC):
    """Any policy that reads an observation or the state and may have a memory, checked against a model.

    A memory is a whole number here, 0 at the start of an episode. `memories`: number of memories, 1 without memory.
    `width`: length of the vector that a belief stores for a memory (`RecurrentReader`); 0 if a memory is only its
    number. `shadows`: whether the policy has read all earlier inputs when it takes over.
    """

    memories: int
    width: int
    sees_state: bool
    shadows: bool

    @property
    def remembers(self) -> bool:
        """True if the choice depends on earlier inputs."""
        return self.memories > 1 or self.width > 0

    @abstractmethod
    def content(self) -> bytes:
        """Return bytes that are equal for equal policies."""

    @abstractmethod
    def read(self, memory: int, seen: int) -> tuple[int, Floats]:
        """Return the memory after reading `seen`, and the distribution [A] of the action."""

    @abstractmethod
    def numbers(self, memory: int) -> tuple[float, ...]:
        """Return a memory as `width` numbers."""

    @abstractmethod
    def memory_of(self, numbers: tuple[float, ...]) -> int:
        """Return the memory that has these numbers."""

    def choices(self, seen: int) -> list[tuple[int, float]]:
        """Return (action, probability) for each possible action after the observation `seen`.

        The list is empty if the choice depends on a memory or on the state.
        """
        if self.remembers or self.sees_state:
            return []
        return [(action, chance) for action, chance in enumerate(self.read(0, seen)[1].tolist()) if chance > 0.0]

    def readings(self, model: MDP, state: int) -> list[tuple[int, float]]:
        """Return the values that the policy may read in a state, with probabilities."""
        return [(state, 1.0)] if self.sees_state else model.shown(state)


@dataclass(frozen=True, eq=False)
class TableReader(Reader):
    """Policy as tables; without memory M is 1. `following` [M, Z] int64, `choice` [M, Z, A] float64."""

    following: Ints
    choice: Floats
    sees_state: bool
    shadows: bool = True
    width = 0

    @property
    def memories(self) -> int:  # type: ignore[override]
        """M: number of memories."""
        return len(self.following)

    def content(self) -> bytes:
        """Return bytes that are equal for equal policies."""
        shape = np.array([*self.choice.shape, self.sees_state, self.shadows])
        return shape.tobytes() + self.following.tobytes() + self.choice.tobytes()

    def read(self, memory: int, seen: int) -> tuple[int, Floats]:
        """Return the memory after reading `seen`, and the distribution [A] of the action."""
        after = int(self.following[memory, seen])
        return after, self.choice[after, seen]

    def numbers(self, memory: int) -> tuple[float, ...]:
        """Return an empty tuple: this memory is a single integer, not a vector of numbers."""
        del memory
        return ()

    def memory_of(self, numbers: tuple[float, ...]) -> int:
        """Return 0, because `numbers` is empty."""
        del numbers
        return 0

    def blind_choice(self, model: MDP) -> Floats:
        """Return the joint probability [M, S, M', A] of the next memory M' and the action, for memory M in state S.

        The observation of the state is not read yet; it is averaged out.
        """
        joint = np.zeros((self.memories, model.states, self.memories, model.actions))
        for state in range(model.states):
            for shown, chance in self.readings(model, state):
                for m in range(self.memories):
                    after = self.following[m, shown]
                    joint[m, state, after] += chance * self.choice[after, shown]
        return joint


def is_hidden(model: MDP, policies: Mapping[str, object]) -> bool:
    """Return whether states are hidden, or a policy has a memory or does not see the state."""
    unlike = Controller | Policy | Reader
    return model.emissions is not None or any(isinstance(each, unlike) for each in policies.values())


def as_reader(value: object, model: MDP) -> Reader:
    """Check a policy and return it as a `Reader`, for hidden states or policies with memory. Raises PolicyError."""
    if isinstance(value, Reader):
        return value
    if isinstance(value, Controller):
        if value.memory not in get_args(MemoryMode):
            raise PolicyError(f"memory {value.memory!r}: use {', '.join(get_args(MemoryMode))}")
        width = _width(value.sees, model)
        following = _numbers(value.next, "next")
        if following.ndim != 2 or following.shape[1] != width or following.dtype.kind not in "iu":
            raise PolicyError(
                f"next has shape {following.shape} ({following.dtype}), not [memories, {width}] of whole numbers"
            )
        if following.min() < 0 or following.max() >= len(following):
            raise PolicyError(f"next leads outside the memories 0..{len(following) - 1}")
        choice = _choices(value.choice, (len(following), width), model)
        following = following.astype(np.int64, order="C")
        return _checked(TableReader(following, choice, value.sees == "state", value.memory == "shadow"), model)
    sees: Sees = "observation" if model.emissions is not None else "state"
    if isinstance(value, Policy):
        sees, value = value.sees, value.table
    if isinstance(value, PolicyTable):
        value, sees = (value.probabilities if value.actions is None else value.actions), "state"
    width = _width(sees, model)
    choice = _choices(value, (width,), model)[np.newaxis]
    return _checked(TableReader(np.zeros((1, width), dtype=np.int64), choice, sees == "state"), model)


def _width(sees: str, model: MDP) -> int:
    if sees not in get_args(Sees):
        raise PolicyError(f"sees {sees!r}: use {', '.join(get_args(Sees))}")
    if sees == "observation" and model.emissions is not None:
        return model.emissions.signals
    return model.states


def _choices(value: object, shape: tuple[int, ...], model: MDP) -> Floats:
    """Return the distributions [*shape, A] of a table of actions or of distributions."""
    given = _numbers(value, "the policy")
    if given.shape == shape and given.dtype.kind in "iu":
        if given.size and (given.min() < 0 or given.max() >= model.actions):
            raise PolicyError(f"the policy has an action outside 0..{model.actions - 1}")
        return np.ascontiguousarray(np.eye(model.actions)[given])
    if given.shape != (*shape, model.actions) or given.dtype.kind not in "fiu":
        wanted = ", ".join(map(str, shape))
        raise PolicyError(f"the policy has shape {given.shape}, not [{wanted}] or [{wanted}, {model.actions}]")
    table = given.astype(np.float64)
    sums = table.sum(axis=-1)
    if not np.isfinite(table).all() or (table < 0).any() or (np.abs(sums - 1) > ROW_SUM_TOLERANCE).any():
        raise PolicyError("the policy's action probabilities must be distributions: not negative, and of sum 1")
    return np.ascontiguousarray(table / sums[..., np.newaxis])


def _checked(reader: TableReader, model: MDP) -> TableReader:
    """Return the policy. Raise PolicyError if in some state it may take an action that is unavailable there."""
    for state in range(model.states):
        missing = ~model.available(state)
        for shown, _ in reader.readings(model, state):
            if missing.any() and reader.choice[:, shown, missing].any():
                raise PolicyError(
                    f"state {state} may be seen as {shown}, where the policy takes an action that is unavailable there"
                )
    return reader


def _numbers(value: object, what: str) -> AnyArray:
    try:
        return np.asarray(value)
    except (ValueError, TypeError, OverflowError) as error:
        raise PolicyError(f"{what} is no table of numbers: {error}") from error
