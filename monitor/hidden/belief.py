"""The belief: where the hidden state, and what the policies remember, may be along an observed path.

A *place* is a hidden state with the memories of the policies that act or watch. Its weight is the probability of that
place and of all that was observed so far, divided by that of what was observed: the filter of a hidden Markov model
whose actions are chosen by a policy that may see more than we do (docs/semantics.md, section 16.2).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from monitor.arrays import Floats
from monitor.errors import PathError
from monitor.model.mdp import MDP
from monitor.policy.controller import Reader

Pair = tuple[int | None, int | None]
"""What was observed of a step: (observation, action); None: the sensor said nothing, or the action is not known."""


@dataclass(frozen=True)
class Glance:
    """One way in which a pair may have come about in a hidden state.

    `shown`: what the sensor showed there. `memory`: of the acting policy afterwards, and `choice` [A] its distribution.
    `action`: the one taken, None: not yet taken. `weight`: the probability of all this.
    """

    shown: int
    memory: int
    choice: Floats
    action: int | None
    weight: float


class Sensor:
    """How the pairs of one path may have come about.

    Args:
        model: with emissions, or without: then the state is seen.
        path: pairs, oldest first.
        acting: the policies that acted, one for each pair.
    """

    def __init__(self, model: MDP, path: Sequence[Pair], acting: Sequence[Reader]) -> None:
        self.model, self.path, self.acting = model, path, acting
        self.silent: set[int] = set()
        """Pairs whose action no policy explains anywhere: it says nothing about the state (the agent deviates)."""

    def glances(self, position: int, state: int, memory: int) -> Iterator[Glance]:
        """Yield the ways in which a pair may have come about in a state, for a memory of the acting policy."""
        observed, action = self.path[position]
        reader, last = self.acting[position], position == len(self.path) - 1
        for shown, chance in self.model.shown(state):
            if observed is not None and shown != observed:
                continue
            read = state if reader.sees_state else shown
            after = int(reader.following[memory, read])
            choice = reader.choice[after, read]
            if action is None and last:
                yield Glance(shown, after, choice, None, chance)
            elif action is None:
                for taken, likely in enumerate(choice.tolist()):
                    if likely > 0.0:
                        yield Glance(shown, after, choice, taken, chance * likely)
            else:
                likely = 1.0 if position in self.silent else float(choice[action])
                if likely > 0.0 and self.model.available(state)[action]:
                    yield Glance(shown, after, choice, action, chance * likely)


Place = tuple[int, int, int]
"""Hidden state, memory of the policy that acts, memory of the one that watches; both before they read."""


class Belief:
    """The filter along one path, for a policy that watches it.

    `places[k]`: weights before pair k is read, summing to 1. `shares[k]`: probability of pair k given those before it.
    """

    def __init__(self, sensor: Sensor, start: dict[int, float], watching: Reader) -> None:
        self.sensor = sensor
        self.places: list[dict[Place, float]] = [{(state, 0, 0): weight for state, weight in start.items()}]
        self.shares: list[float] = []
        self._watching = watching
        for position in range(len(sensor.path)):
            self._read(position)

    @property
    def evidence(self) -> float:
        """Probability of all that was observed."""
        product = 1.0
        for share in self.shares:
            product *= share
        return product

    def states(self) -> dict[int, float]:
        """Return the belief about the state of the last pair, given all of the path."""
        position = len(self.sensor.path) - 1
        weights: dict[int, float] = {}
        for (state, memory, _), weight in self.places[position].items():
            seen = sum(glance.weight for glance in self.sensor.glances(position, state, memory))
            if seen > 0.0:
                weights[state] = weights.get(state, 0.0) + weight * seen / self.shares[position]
        return weights

    def _read(self, position: int) -> None:
        share = self._share(position)
        if share == 0.0 and self.sensor.path[position][1] is not None:
            self.sensor.silent.add(position)
            share = self._share(position)
        if share == 0.0:
            observed, action = self.sensor.path[position]
            what = "state" if self.sensor.model.emissions is None else "observation"
            raise PathError(
                f"pair {position}: {what} {observed} with action {action} is impossible after what was observed "
                "before; the path or the model is wrong"
            )
        self.shares.append(share)
        if position == len(self.sensor.path) - 1:
            return
        following: dict[Place, float] = {}
        for (state, memory, watch), weight in self.places[position].items():
            for glance in self.sensor.glances(position, state, memory):
                assert glance.action is not None
                seen = int(self._watching.following[watch, state if self._watching.sees_state else glance.shown])
                states, chances = self.sensor.model.row(state, glance.action)
                for after, chance in zip(states.tolist(), chances.tolist(), strict=True):
                    place = after, glance.memory, seen
                    following[place] = following.get(place, 0.0) + weight * glance.weight * chance / share
        self.places.append(following)

    def _share(self, position: int) -> float:
        return sum(
            weight * glance.weight
            for (state, memory, _), weight in self.places[position].items()
            for glance in self.sensor.glances(position, state, memory)
        )
