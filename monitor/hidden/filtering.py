"""The belief of a stream: carried from pair to pair, so it knows what has left the window (docs/semantics.md, 16.2).

As plain data a belief is a tuple (place, weight, place, weight, ...), places ascending, weights of sum 1. A place is
the hidden state with what every policy that remembers would remember there, as one number: mixed radix, the state
first, then the policies in the order of their contents (`Reader.content`), equal ones once. What a recurrent network
remembers is no whole number: each weight is followed by its numbers (`Reader.numbers`), and they break ties of places.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np

from monitor.arrays import Floats
from monitor.errors import LimitError
from monitor.hidden.glances import Pair, Place, glances, sights
from monitor.model.mdp import MDP
from monitor.policy.controller import Reader

MOST_STEPS: Final = 256
"""Steps without observation after which a belief changes no more: what was not seen then was long ago."""

ROUNDING: Final = 1e-9
"""By how much the weights of a belief may miss 1."""

MAX_PLACES: Final = 10_000
"""Places of one belief, where a recurrent network remembers; observations that are missing multiply them."""

Weights = tuple[float, ...]
_Memories = tuple[int, ...]
_Where = tuple[int, _Memories]
"""A place taken apart: the hidden state, and what each policy that remembers would remember there."""
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
        remembering = {reader for reader in readers.values() if reader.remembers}
        self._rememberers = sorted(
            remembering, key=lambda each: each.content()
        )  # an order that does not depend on names
        self._width = sum(reader.width for reader in self._rememberers)
        self._unseen: list[Weights] = []

    def start(self, seq: int) -> Weights:
        """Return the belief before step `seq` of an episode of which nothing was observed.

        NOTHING: there is none, or a recurrent network may remember too much there.
        """
        model = self.model
        if model.initial is None:
            return NOTHING
        if not self._unseen:
            memories = (0,) * len(self._rememberers)
            here = enumerate(model.initial.tolist())
            self._unseen.append(self._plain({(state, memories): chance for state, chance in here if chance > 0.0}))
        while len(self._unseen) <= min(seq, MOST_STEPS):
            self._unseen.append(self._unobserved(self._unseen[-1]))
        return self._unseen[min(seq, MOST_STEPS)]

    def _unobserved(self, before: Weights) -> Weights:
        """Return the belief after a step of which nothing was observed; NOTHING: a network may remember too much."""
        try:
            after = None if before == NOTHING else self.following(before, (None, None), self._nominal)
        except LimitError:
            return NOTHING
        assert after is not None or before == NOTHING, "some observation and some action are always possible"
        return after or NOTHING

    def begun(self, state: int) -> Weights:
        """Return the belief before the first step of an episode that begins in a seen state."""
        return self._plain({(state, (0,) * len(self._rememberers)): 1.0})

    def problem(self, before: Weights) -> str:
        """Return what is wrong with a belief from elsewhere; empty if nothing is."""
        size = 2 + self._width
        entries = [before[n : n + size] for n in range(0, len(before), size)]
        keys = [(place, *numbers) for place, _, *numbers in entries]
        states = self.model.states
        for reader in self._rememberers:
            states *= reader.memories
        if not before or len(before) % size or keys != sorted(set(keys)):
            return f"is not place, weight, place, weight, ... with places that ascend{self._with_numbers()}"
        if not all(0 <= place < states and place == int(place) for place, *_ in keys):
            return f"has a place that is none of 0..{states - 1}"
        weights = before[1::size]
        if not all(weight > 0.0 for weight in weights) or abs(sum(weights) - 1.0) > ROUNDING:
            return "has weights that are not positive, or not of sum 1"
        return ""

    def _with_numbers(self) -> str:
        return f", and {self._width} numbers that networks remember after each weight" if self._width else ""

    def explains(self, before: Weights, pair: Pair) -> bool:
        """Return whether a pair is possible after what was observed before."""
        observed, action = pair
        for state, _, _ in self._entries(before):
            shown = observed is None or any(observed == each for each, _ in self.model.shown(state))
            if shown and (action is None or self.model.available(state)[action]):
                return True
        return False

    def following(self, before: Weights, pair: Pair, acting: Reader | None) -> Weights | None:
        """Return the belief after a pair whose action was taken, before the next one; None: the pair is impossible.

        `acting`: None: the policy that acted is not known, so its action says nothing about the state. Raises
        LimitError: it has more than `MAX_PLACES` places.
        """
        # one that began in memory 0 when it took over remembers something else than if it had watched all along
        restarted = acting is not None and acting.remembers and not acting.shadows and acting is not self._nominal
        silent = acting is None or restarted
        after = self._after(before, pair, acting or self._nominal, silent=silent)
        if after is None and pair[1] is not None:
            after = self._after(before, pair, acting or self._nominal, silent=True)
        return after

    def likely(self, before: Weights, observed: int | None) -> Floats | None:
        """Return the probabilities [A] of nominal's actions, given an observation; None: that is impossible."""
        total, chosen = 0.0, np.zeros(self.model.actions)
        for state, memories, weight in self._entries(before):
            for seen in sights(self.model, self._nominal, observed, (state, self._memory(memories, self._nominal))):
                total += weight * seen.weight
                chosen += weight * seen.weight * seen.choice
        return chosen / total if total > 0.0 else None

    def predicted(self, before: Weights) -> dict[int, float]:
        """Return the distribution of the next observation."""
        chances: dict[int, float] = {}
        for state, _, weight in self._entries(before):
            for shown, chance in self.model.shown(state):
                chances[shown] = chances.get(shown, 0.0) + weight * chance
        return chances

    def places(self, before: Weights, watching: Reader) -> dict[Place, float]:
        """Return the weights of places, for one policy that watches."""
        places: dict[Place, float] = {}
        for state, memories, weight in self._entries(before):
            key = state, self._memory(memories, self._nominal), self._memory(memories, watching)
            places[key] = places.get(key, 0.0) + weight
        return places

    def _after(self, before: Weights, pair: Pair, acting: Reader, *, silent: bool) -> Weights | None:
        ahead: dict[_Where, float] = {}
        share = 0.0
        for state, memories, weight in self._entries(before):
            recalled = self._memory(memories, acting)
            for glance in glances(self.model, acting, pair, (state, recalled), silent=silent):
                assert glance.action is not None
                seen = weight * glance.weight
                share += seen
                remembered = self._memories_after(memories, state, glance.shown)
                states, chances = self.model.row(state, glance.action)
                for after, chance in zip(states.tolist(), chances.tolist(), strict=True):
                    key = after, remembered
                    ahead[key] = ahead.get(key, 0.0) + seen * chance
            if self._width and len(ahead) > MAX_PLACES:
                raise LimitError(
                    f"what the agent saw and remembers may have come about in more than {MAX_PLACES:,} ways "
                    "(limit MAX_PLACES), since a recurrent network acts or watches and observations are missing"
                )
        if share == 0.0:
            return None
        return self._plain({where: weight / share for where, weight in ahead.items()})

    def _memories_after(self, memories: _Memories, state: int, shown: int) -> _Memories:
        return tuple(
            reader.read(memory, state if reader.sees_state else shown)[0]
            for reader, memory in zip(self._rememberers, memories, strict=True)
        )

    def _memory(self, memories: _Memories, wanted: Reader) -> int:
        """Return what a policy remembers at a place: nothing, 0, where it has no memory."""
        return memories[self._rememberers.index(wanted)] if wanted in self._rememberers else 0

    def _plain(self, places: Mapping[_Where, float]) -> Weights:
        """Return a belief as plain data."""
        weights: dict[tuple[float, ...], float] = {}
        for (state, memories), weight in places.items():
            number = state
            numbers: tuple[float, ...] = ()
            for reader, memory in zip(self._rememberers, memories, strict=True):
                number = number * reader.memories + (0 if reader.width else memory)
                numbers = (*numbers, *reader.numbers(memory))
            key = float(number), *numbers
            weights[key] = weights.get(key, 0.0) + weight
        return tuple(part for key in sorted(weights) for part in (key[0], weights[key], *key[1:]))

    def _entries(self, before: Weights) -> Iterator[tuple[int, _Memories, float]]:
        """Yield hidden state, memories and weight of each place of a belief."""
        for n in range(0, len(before), 2 + self._width):
            number, end = int(before[n]), n + 2 + self._width
            memories: list[int] = []
            for reader in reversed(self._rememberers):
                number, memory = divmod(number, reader.memories)
                if reader.width:
                    end, last = end - reader.width, end
                    memory = reader.memory_of(before[end:last])
                memories.append(memory)
            yield number, tuple(memories[::-1]), before[n + 1]
