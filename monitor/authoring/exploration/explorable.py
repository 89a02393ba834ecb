"""The values that simulators and the search exchange."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from monitor.arrays import Floats
from monitor.model.annotations import Valuation

Environment = Any
"""An environment, or a part of one: Gymnasium is optional, so are its types."""

Snapshot = Any
"""What a simulator continues from: its own type."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A state that a step, or the start of an episode, leads to.

    Attributes:
        key: identifies the state; equal keys are one state.
        observation: [D] float64, flattened; None if the observation space cannot be flattened.
        snapshot: what `Explorable.step` continues from.
        terminated: the episode ends here.
        rewards: smallest and largest reward of the step; (0, 0) at the start.
        probability: of this arrival.
    """

    key: Valuation
    observation: Floats | None
    snapshot: Snapshot
    terminated: bool = False
    rewards: tuple[float, float] = (0.0, 0.0)
    probability: float = 1.0


class Explorable(Protocol):
    """An environment whose states can be kept and returned to.

    Attributes:
        actions: number of actions.
        action_names: their names, or empty.
        variables: names of the key's entries, or empty.
        aliasing: True if several situations may have one key by mistake, so that a second one is compared.
        identified: what identifies a state, for messages.
    """

    actions: int
    action_names: Sequence[str]
    variables: Sequence[str]
    aliasing: bool
    identified: str

    def starts(self) -> list[Arrival]:
        """Return the states in which an episode starts, with their probabilities."""
        ...

    def step(self, snapshot: Snapshot, action: int) -> list[Arrival]:
        """Return where `action` leads from a snapshot; empty if it is unavailable there."""
        ...

    def labels(self, snapshot: Snapshot) -> Iterable[str]:
        """Return the labels of a state by the user's function."""
        ...
