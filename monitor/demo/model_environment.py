"""A simulator for the demo: its true dynamics are a model's rows, and its sensor has the model's emissions."""

from __future__ import annotations

import numpy as np

from monitor.errors import ModelError
from monitor.model.mdp import MDP


class ModelEnvironment:
    """Environment that samples transitions and observations from a model. If states are not hidden, they are observed.

    Args:
        model: transition distributions; it must have an initial distribution.
        rng: random generator; the same seed and actions give the same trajectory.

    Raises:
        ModelError: the model has no initial distribution.
    """

    def __init__(self, model: MDP, rng: np.random.Generator) -> None:
        if model.initial is None:
            raise ModelError(f"model {model.source}: no initial distribution, so no episode can start; add one")
        self._model = model
        self._initial = model.initial
        self._rng = rng
        self.state = 0

    def reset(self) -> int:
        """Start an episode; return the observation of its first state."""
        self.state = int(self._rng.choice(self._model.states, p=self._initial))
        return self._shown()

    def step(self, action: int) -> int:
        """Take an action; return the observation of the next state. Raises ModelError if the action is unavailable."""
        successors, probabilities = self._model.row(self.state, action)
        if len(successors) == 0:
            raise ModelError(f"model {self._model.source}: action {action} is not available in state {self.state}")
        self.state = int(self._rng.choice(successors, p=probabilities))
        return self._shown()

    @property
    def hidden(self) -> bool:
        """True if the state is hidden."""
        return self._model.emissions is not None

    @property
    def over(self) -> bool:
        """True if no available action leaves the state, so that the episode has terminated."""
        rows = (self._model.row(self.state, action)[0] for action in range(self._model.actions))
        return all(len(row) == 0 or (len(row) == 1 and int(row[0]) == self.state) for row in rows)

    def _shown(self) -> int:
        emissions = self._model.emissions
        if emissions is None:
            return self.state
        observed, chances = emissions.row(self.state)
        return int(self._rng.choice(observed, p=chances))
