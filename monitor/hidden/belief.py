"""The belief: where the hidden state, and what the policies remember, may be along an observed path.

A *place* is a hidden state with the memories of the policies that act or watch. Its weight is the probability of that
place and of all that was observed so far, divided by that of what was observed: the filter of a hidden Markov model
whose actions are chosen by a policy that may see more than we do (docs/semantics.md, section 16.2).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

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


def glances(model: MDP, reader: Reader, pair: Pair, place: tuple[int, int], *, silent: bool) -> Iterator[Glance]:
    """Yield the ways in which a pair may have come about, where its action was taken, known or not.

    Args:
        model: with emissions, or without: then the state is seen.
        reader: the policy that acted.
        pair: what was observed.
        place: hidden state, and the policy's memory before it reads.
        silent: the action says nothing about the state, since the policy takes it nowhere.
    """
    (observed, action), state = pair, place[0]
    for seen in sights(model, reader, observed, place):
        if action is None:
            for taken, likely in enumerate(seen.choice.tolist()):
                if likely > 0.0:
                    yield replace(seen, action=taken, weight=seen.weight * likely)
        else:
            likely = 1.0 if silent else float(seen.choice[action])
            if likely > 0.0 and model.available(state)[action]:
                yield replace(seen, action=action, weight=seen.weight * likely)


def sights(model: MDP, reader: Reader, observed: int | None, place: tuple[int, int]) -> Iterator[Glance]:
    """Yield the ways in which an observation may have come about, where no action was taken yet."""
    state, memory = place
    for shown, chance in model.shown(state):
        if observed is None or shown == observed:
            read = state if reader.sees_state else shown
            after = int(reader.following[memory, read])
            yield Glance(shown, after, reader.choice[after, read], None, chance)


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
        pair, reader = self.path[position], self.acting[position]
        if pair[1] is None and position == len(self.path) - 1:
            return sights(self.model, reader, pair[0], (state, memory))
        return glances(self.model, reader, pair, (state, memory), silent=position in self.silent)


Place = tuple[int, int, int]
"""Hidden state, memory of the policy that acts, memory of the one that watches; both before they read."""


class Belief:
    """The filter along one path, for a policy that watches it. `start`: weights before the first pair is read.

    `places[k]`: weights before pair k is read, summing to 1. `shares[k]`: probability of pair k given those before it.
    """

    def __init__(self, sensor: Sensor, start: dict[Place, float], watching: Reader) -> None:
        self.sensor = sensor
        self.places: list[dict[Place, float]] = [start]
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
            raise PathError(f"pair {position}: {impossible(self.sensor.model, observed, action)}")
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


def impossible(model: MDP, observed: int | None, action: int | None) -> str:
    """Return a sentence on a pair that has probability 0."""
    what = "state" if model.emissions is None else "observation"
    return (
        f"{what} {observed} with action {action} is impossible after what was observed before; the path or the model "
        "is wrong"
    )
