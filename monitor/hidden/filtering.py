"""The belief of a stream: carried from pair to pair, so it knows what has left the window (docs/semantics.md, 16.2).

As plain data a belief is a tuple (place, weight, place, weight, ...), places ascending, weights of sum 1. A place is
the hidden state with what every policy that remembers would remember there, as one number: mixed radix, the state
first, then the policies in the order of their contents (`Reader.content`), equal ones once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from monitor.arrays import Floats
from monitor.hidden.glances import Pair, Place, glances, sights
from monitor.model.mdp import MDP
from monitor.policy.controller import Reader

MOST_STEPS: Final = 256
"""Steps without observation after which a belief changes no more: what was not seen then was long ago."""

ROUNDING: Final = 1e-9
"""By how much the weights of a belief may miss 1."""

Weights = tuple[float, ...]
NOTHING: Final[Weights] = ()
"""In place of a belief where there is none: states are seen, but what a policy remembers is not known."""


class Filter:
    """Beliefs on one model.

    Args:
        model: with emissions, or without: then the state is seen.
        readers: name -> policy, equal ones once; `nominal` is the deployed one.
    """

    def __init__(self, model: MDP, readers: Mapping[str, Reader]) -> None:
        self.model, self._nominal = model, readers["nominal"]
        remembering = {reader for reader in readers.values() if reader.memories > 1}
        self._rememberers = sorted(remembering, key=Reader.content)  # an order that does not depend on names
        self._unseen: list[Weights] = []

    def start(self, seq: int) -> Weights:
        """Return the belief before step `seq` of an episode of which nothing was observed; NOTHING: there is none."""
        model = self.model
        if model.initial is None:
            return NOTHING
        if not self._unseen:
            memories = [0] * len(self._rememberers)
            here = enumerate(model.initial.tolist())
            self._unseen.append(
                _plain({self._place(state, memories): chance for state, chance in here if chance > 0.0})
            )
        while len(self._unseen) <= min(seq, MOST_STEPS):
            after = self.following(self._unseen[-1], (None, None), self._nominal)
            assert after is not None, "some observation and some action are always possible"
            self._unseen.append(after)
        return self._unseen[min(seq, MOST_STEPS)]

    def begun(self, state: int) -> Weights:
        """Return the belief before the first step of an episode that begins in a seen state."""
        return float(self._place(state, [0] * len(self._rememberers))), 1.0

    def problem(self, before: Weights) -> str:
        """Return what is wrong with a belief from elsewhere; empty if nothing is."""
        places, weights = before[::2], before[1::2]
        states = self.model.states
        for reader in self._rememberers:
            states *= reader.memories
        if not before or len(places) != len(weights) or list(places) != sorted(set(places)):
            return "is not place, weight, place, weight, ... with places that ascend"
        if not all(0 <= place < states and place == int(place) for place in places):
            return f"has a place that is none of 0..{states - 1}"
        if not all(weight > 0.0 for weight in weights) or abs(sum(weights) - 1.0) > ROUNDING:
            return "has weights that are not positive, or not of sum 1"
        return ""

    def explains(self, before: Weights, pair: Pair) -> bool:
        """Return whether a pair is possible after what was observed before."""
        observed, action = pair
        for place, _ in _entries(before):
            state = self._state(place)
            shown = observed is None or any(observed == each for each, _ in self.model.shown(state))
            if shown and (action is None or self.model.available(state)[action]):
                return True
        return False

    def following(self, before: Weights, pair: Pair, acting: Reader | None) -> Weights | None:
        """Return the belief after a pair whose action was taken, before the next one; None: the pair is impossible.

        `acting`: None: the policy that acted is not known, so its action says nothing about the state.
        """
        # one that began in memory 0 when it took over remembers something else than if it had watched all along
        restarted = acting is not None and acting.memories > 1 and not acting.shadows and acting is not self._nominal
        silent = acting is None or restarted
        after = self._after(before, pair, acting or self._nominal, silent=silent)
        if after is None and pair[1] is not None:
            after = self._after(before, pair, acting or self._nominal, silent=True)
        return after

    def likely(self, before: Weights, observed: int | None) -> Floats | None:
        """Return the probabilities [A] of nominal's actions, given an observation; None: that is impossible."""
        total, chosen = 0.0, np.zeros(self.model.actions)
        for place, weight in _entries(before):
            where = self._state(place), self._memory(place, self._nominal)
            for seen in sights(self.model, self._nominal, observed, where):
                total += weight * seen.weight
                chosen += weight * seen.weight * seen.choice
        return chosen / total if total > 0.0 else None

    def predicted(self, before: Weights) -> dict[int, float]:
        """Return the distribution of the next observation."""
        chances: dict[int, float] = {}
        for place, weight in _entries(before):
            for shown, chance in self.model.shown(self._state(place)):
                chances[shown] = chances.get(shown, 0.0) + weight * chance
        return chances

    def places(self, before: Weights, watching: Reader) -> dict[Place, float]:
        """Return the weights of places, for one policy that watches."""
        places: dict[Place, float] = {}
        for place, weight in _entries(before):
            key = self._state(place), self._memory(place, self._nominal), self._memory(place, watching)
            places[key] = places.get(key, 0.0) + weight
        return places

    def _after(self, before: Weights, pair: Pair, acting: Reader, *, silent: bool) -> Weights | None:
        ahead: dict[int, float] = {}
        share = 0.0
        for place, weight in _entries(before):
            state, recalled = self._state(place), self._memory(place, acting)
            for glance in glances(self.model, acting, pair, (state, recalled), silent=silent):
                assert glance.action is not None
                seen = weight * glance.weight
                share += seen
                memories = self._memories_after(place, state, glance.shown)
                states, chances = self.model.row(state, glance.action)
                for after, chance in zip(states.tolist(), chances.tolist(), strict=True):
                    key = self._place(after, memories)
                    ahead[key] = ahead.get(key, 0.0) + seen * chance
        if share == 0.0:
            return None
        return _plain({place: weight / share for place, weight in ahead.items()})

    def _memories_after(self, place: int, state: int, shown: int) -> list[int]:
        return [
            int(reader.following[self._memory(place, reader), state if reader.sees_state else shown])
            for reader in self._rememberers
        ]

    def _place(self, state: int, memories: Sequence[int]) -> int:
        number = state
        for reader, memory in zip(self._rememberers, memories, strict=True):
            number = number * reader.memories + memory
        return number

    def _state(self, place: int) -> int:
        for reader in self._rememberers:
            place //= reader.memories
        return place

    def _memory(self, place: int, wanted: Reader) -> int:
        """Return what a policy remembers at a place: nothing, 0, where it has no memory."""
        for reader in reversed(self._rememberers):
            place, memory = divmod(place, reader.memories)
            if reader is wanted:
                return memory
        return 0


def _plain(places: dict[int, float]) -> Weights:
    return tuple(part for place in sorted(places) for part in (float(place), places[place]))


def _entries(weights: Weights) -> Iterator[tuple[int, float]]:
    for n in range(0, len(weights), 2):
        yield int(weights[n]), weights[n + 1]
