"""A Gymnasium environment as a world. A step sets the environment's state and random numbers, then calls `env.step`."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from monitor.arrays import Floats
from monitor.errors import ModelError
from monitor.user_code import explained
from monitor.worlds.checked import TOLERANCE
from monitor.worlds.given_noise import GivenNoise
from monitor.worlds.simulator_world import SimulatorWorld

COMPARED: Final = 1000
"""Number of steps that the environment runs by itself; a new world is compared with each of these steps."""


class _Run(NamedTuple):
    """A step that the environment runs by itself; `ended`: whether the environment terminated."""

    state: Floats
    action: int
    noise: Floats
    successor: Floats
    ended: bool


class GymnasiumWorld(SimulatorWorld):
    """Base class of a `World` that is a Gymnasium environment. A subclass has `make`, the description and the labels.

    When the world is made, the environment is compared with itself. It runs for 1,000 random steps. Then it is set to
    each visited state and makes one step from there, which must have the same result. At each step of the world,
    everything in the environment except state and random numbers is as after `reset(seed=0)`.

    Raises:
        ModelError: actions are not discrete, or their number differs from the names; the state cannot be read or set;
            the environment depends on more than state, action and its random numbers; or it ends episodes in other
            states than `terminal` says.
    """

    actions: Sequence[str]

    def __init__(self) -> None:
        self.env = self.make()
        self.env.reset(seed=0)
        space = self.env.action_space
        if type(space).__name__ != "Discrete" or space.n != len(self.actions):
            raise ModelError(
                f"{self}: the environment's actions are {space}, and the world names {len(self.actions)}: name one for "
                "each; if they are not Discrete, choose some of them by gymnasium.wrappers.TransformAction"
            )
        self._first_action = int(space.start)
        self._kept = dict(vars(self.env.unwrapped))
        for run in list(self._runs()):
            self._compare(run)

    @abstractmethod
    def make(self) -> Any:  # noqa: ANN401 - Gymnasium is optional, so is its type
        """Return the environment."""

    def read_state(self) -> Any:  # noqa: ANN401 - a user's numbers
        """Return the environment's state [f]. By default this is its attribute `state`."""
        return self.env.unwrapped.state

    def write_state(self, x: Floats) -> None:
        """Set the environment's state [f]."""
        self.env.unwrapped.state = x

    def write_generator(self, rng: Any) -> None:  # noqa: ANN401 - in place of a `numpy.random.Generator`
        """Set the generator from which the environment draws. By default this is its attribute `np_random`."""
        self.env.unwrapped.np_random = rng

    def move(self, x: Floats, a: int, rng: Any, w: Floats) -> Floats:  # noqa: ANN401 - in place of a generator
        """Return the next state [f]."""
        del w
        vars(self.env.unwrapped).update(self._kept)
        self._access(self.write_state, x)
        self.write_generator(rng)
        self.env.step(self._first_action + a)
        return self._state()

    def _state(self) -> Floats:
        state: Floats = self._access(lambda: np.array(self.read_state(), dtype=np.float64))
        if state.shape != (len(self.features),):
            raise ModelError(f"{self}: the environment's state has shape {state.shape}, features are {self.features!r}")
        return state

    def _access(self, way: Callable[..., Any], *state: Floats) -> Any:  # noqa: ANN401 - what `way` returns
        try:
            return way(*state)
        except (AttributeError, TypeError, ValueError) as error:
            problem = f"{self}: the environment's state cannot be read and set ({explained(error)})"
            raise ModelError(f"{problem}; write read_state() and write_state(x)") from error

    def _runs(self) -> Iterator[_Run]:
        """Yield random steps in episodes that begin with `reset(seed=0)`, `reset(seed=1)`, ..."""
        rng, over, episodes = np.random.default_rng(0), True, 0
        for _ in range(COMPARED):
            if over:
                self.env.reset(seed=episodes)
                episodes += 1
            state, action, noise = self._state(), int(rng.integers(len(self.actions))), rng.uniform(size=self.noise)
            self.write_generator(GivenNoise(noise, str(self)))
            _, _, terminated, truncated, _ = self.env.step(self._first_action + action)
            over = terminated or truncated
            yield _Run(state, action, noise, self._state(), bool(terminated))

    def _compare(self, run: _Run) -> None:
        """Raise ModelError unless the world's step has the same next state and end as the environment's step."""
        for state, ended in ((run.state, False), (run.successor, run.ended)):
            if ended != bool(self.ended(state[np.newaxis])[0]):
                ends, holds = ("ends", "no label") if ended else ("does not end", "a label")
                raise ModelError(
                    f"{self}: the environment {ends} an episode in {state.tolist()}, where {holds} of terminal "
                    f"{tuple(self.terminal)} holds; name labels that hold where it ends and nowhere else"
                )
        (again,) = self.step(run.state[np.newaxis], np.array([run.action]), run.noise[np.newaxis], np.zeros((1, 0)))
        if not np.allclose(again, run.successor, rtol=TOLERANCE, atol=TOLERANCE):
            raise ModelError(
                f"{self}: the environment went from {run.state.tolist()} by {self.actions[run.action]!r} to "
                f"{run.successor.tolist()}; set to that state, and with the same random numbers, it goes to "
                f"{again.tolist()}: it depends on something that read_state and write_state leave out"
            )
