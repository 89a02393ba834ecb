"""The types that simulators and the search exchange."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from monitor.arrays import Floats
from monitor.model.annotations import Valuation

Environment = Any
"""An environment or a part of one. It has no type here, because Gymnasium is optional."""

SimulatorSnapshot = Any
"""A saved situation from which a simulator can continue. Each simulator has its own type."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A state that is reached by a step, or at the start of an episode.

    Attributes:
        key: identifies the state; equal keys mean the same state.
        observation: [D] float64, flattened; None if the observation space cannot be flattened.
        snapshot: argument of `Explorable.step` to continue from this state.
        terminated: True if the episode ends in this state.
        rewards: smallest and largest reward of the step; (0, 0) at the start.
        probability: probability of reaching this state by the step or at the start.
    """

    key: Valuation
    observation: Floats | None
    snapshot: SimulatorSnapshot
    terminated: bool = False
    rewards: tuple[float, float] = (0.0, 0.0)
    probability: float = 1.0


class Explorable(Protocol):
    """An environment whose states can be saved and restored.

    Attributes:
        actions: number of actions.
        action_names: names of the actions, or empty.
        variables: names of the key's entries, or empty.
        aliasing: True if different situations may wrongly have the same key. The search then compares such situations.
        identified: description of what identifies a state, for messages.
    """

    actions: int
    action_names: Sequence[str]
    variables: Sequence[str]
    aliasing: bool
    identified: str

    def starts(self) -> list[Arrival]:
        """Return the initial states with their probabilities."""
        ...

    def step(self, snapshot: SimulatorSnapshot, action: int) -> list[Arrival]:
        """Return the successors of `action` from a snapshot; an empty list if the action is unavailable there."""
        ...

    def labels(self, snapshot: SimulatorSnapshot) -> Iterable[str]:
        """Return the labels that the user's function gives to a state."""
        ...
