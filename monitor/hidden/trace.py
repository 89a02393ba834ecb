"""The held pairs of one path as evidence: what each says about the hidden state, given all that was observed before."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

from monitor.errors import PathError
from monitor.hidden.filtering import Filter, Weights
from monitor.hidden.glances import Glance, Pair, Place, glances, impossible, sights
from monitor.policy.controller import Reader


@dataclass(frozen=True)
class Held:
    """One pair.

    `acting`: the policy that acted. `before`: the belief before it. `share`: its probability, given what was observed
    before. `silent`: no policy explains its action anywhere, so that says nothing about the state: the agent deviates.
    """

    pair: Pair
    acting: Reader
    before: Weights
    share: float
    silent: bool


class Trace:
    """The held pairs, numbered for good: `first` is the number of the oldest one."""

    def __init__(self, beliefs: Filter) -> None:
        self.filter, self.model = beliefs, beliefs.model
        self.first = 0
        self._held: list[Held] = []

    def __len__(self) -> int:
        return len(self._held)

    @property
    def last(self) -> int:
        """Number of the newest pair."""
        return self.first + len(self._held) - 1

    @property
    def evidence(self) -> float:
        """Probability of all that was observed on the path, given what was before it."""
        return prod(held.share for held in self._held)

    def __getitem__(self, number: int) -> Held:
        return self._held[number - self.first]

    def extend(self, path: Sequence[Pair], acting: Sequence[Reader], beliefs: Sequence[Weights], added: int) -> None:
        """Take a path of which the last `added` pairs are new; all: it is another path. Raises PathError."""
        if added >= len(path):
            self.first += len(self._held)
            self._held = []
        for n in range(len(path) - added, len(path)):
            self._held.append(self._weighed(n, path[n], acting[n], beliefs[n]))
        dropped = len(self._held) - len(path)
        del self._held[:dropped]
        self.first += dropped

    def glances(self, number: int, state: int, memory: int) -> Iterator[Glance]:
        """Yield the ways in which a pair may have come about in a state, for a memory of the acting policy."""
        held = self[number]
        if held.pair[1] is None and number == self.last:
            return sights(self.model, held.acting, held.pair[0], (state, memory))
        return glances(self.model, held.acting, held.pair, (state, memory), silent=held.silent)

    def places(self, number: int, watching: Reader) -> dict[Place, float]:
        """Return the belief before a pair, for a policy that watches."""
        return self.filter.places(self[number].before, watching)

    def states(self) -> dict[int, float]:
        """Return the belief about the state of the last pair, given all of the path."""
        last, weights = self[self.last], dict[int, float]()
        for (state, memory, _), weight in self.places(self.last, last.acting).items():
            seen = sum(glance.weight for glance in self.glances(self.last, state, memory))
            if seen > 0.0:
                weights[state] = weights.get(state, 0.0) + weight * seen / last.share
        return weights

    def _weighed(self, n: int, pair: Pair, acting: Reader, before: Weights) -> Held:
        places = self.filter.places(before, acting)
        for silent in (False, True):
            share = sum(
                weight * glance.weight
                for (state, memory, _), weight in places.items()
                for glance in glances(self.model, acting, pair, (state, memory), silent=silent)
            )
            if share > 0.0:
                return Held(pair, acting, before, share, silent)
        raise PathError(f"pair {n}: {impossible(self.model, *pair)}")
