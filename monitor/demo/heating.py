"""Simulate the house of the scenario `heating`: a world with numbers, a controller, recorded weather, and noise.

The house is the same world that the monitor uses. The demo can therefore run the house again, with the same noise,
under the other controller. It compares the result with the state that the monitor infers from the published numbers
alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from monitor.arrays import Floats
from monitor.evidence.document import Evidence
from monitor.evidence.rederivation import Policies, given_of
from monitor.logic.syntax import InterventionRef
from monitor.referee.numbers import drawn_states
from monitor.worlds import CheckedWorld
from monitor.worlds.world_policies import WorldPolicy

WEATHER: Final = "weather.csv"
"""Recorded inputs, beside the world's manifest."""
DAY: Final = 96
"""Number of steps of an episode, each a quarter of an hour."""
FIRST_DAY: Final = 4
"""The day of the recording on which the demo begins: the first day that is cold from the morning on."""
START: Final = (20.5, 54.0)
"""Temperatures of room and store at the beginning of a day."""


def weather_beside(model: str) -> Path:
    """Return the file of recorded inputs beside a world's manifest."""
    return Path(model).with_name(WEATHER)


@dataclass(frozen=True)
class House:
    """A controlled house. `seed`: seed of its noise. `sha256`: published SHA-256 of the controller."""

    world: CheckedWorld
    controller: WorldPolicy
    weather: Floats
    seed: int
    sha256: str

    @classmethod
    def of(cls, world: CheckedWorld, controller: WorldPolicy, file: Path, seed: int, sha256: str) -> House:
        """Return the house with the weather of a file."""
        return cls(world, controller, np.loadtxt(file, delimiter=",", skiprows=1), seed, sha256)

    def noise(self, day: int) -> Floats:
        """Return the noise [DAY, m] of a day."""
        return np.random.default_rng([self.seed, day]).uniform(size=(DAY, self.world.noise))

    def inputs(self, day: int, step: int) -> tuple[float, ...]:
        """Return the recorded inputs of a step."""
        row = self.weather[((FIRST_DAY + day) * DAY + step) % len(self.weather)]
        return tuple(map(float, row))

    def messages(self, steps: int) -> Iterator[dict[str, object]]:
        """Yield the messages of whole days, without `time`, until there are at least `steps`; with 0, without end."""
        sent = day = 0
        names, actions = [each.name for each in self.world.features], self.world.action_names
        while steps == 0 or sent < steps:
            state, noise = np.array([[*START, self.inputs(day, 0)[1]]]), self.noise(day)
            for step in range(DAY):
                inputs = self.inputs(day, step)
                chosen = self.controller.decide(self.controller.observed(state, inputs))
                yield {
                    "v": 1,
                    "episode": f"seed{self.seed}-{day}",
                    "seq": step,
                    "state": dict(zip(names, state[0].tolist(), strict=True)),
                    "action": actions[int(chosen[0])],
                    "inputs": list(inputs),
                    "policy": self.sha256,
                    **({"truncated": True} if step == DAY - 1 else {}),
                }
                sent += 1
                state = self.world.step(state, chosen, noise[step : step + 1], inputs)
            day += 1

    def run_again(self, evidence: Evidence, policies: Policies, name: str, offset: int) -> tuple[Floats, Floats]:
        """Return the inferred and the simulated state at an alarm's last step, with another policy from an offset on.

        The monitor's code infers the first state from the published numbers. The second state is simulated with the
        true noise of the house.
        """
        world = self.world
        begins, states = drawn_states(
            InterventionRef("policy", name), offset, given_of(evidence, world, policies, {}), offset
        )
        day, first = int(str(evidence.episode).rpartition("-")[2]), evidence.seq - (len(evidence.path) - 1)
        state, noise = np.array([evidence.path[begins][0]]), self.noise(day)
        policy = policies[name]
        assert isinstance(policy, WorldPolicy)
        for step in range(first + begins, evidence.seq):
            inputs = self.inputs(day, step)
            state = world.step(state, policy.decide(policy.observed(state, inputs)), noise[step : step + 1], inputs)
        return states[evidence.seq - first - begins][0], state[0]
