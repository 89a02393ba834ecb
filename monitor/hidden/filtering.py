"""The belief of a stream: carried from pair to pair, so it knows what has left the window (docs/semantics.md, 16.2).

As plain data a belief is a tuple (place, weight, place, weight, ...), places ascending, weights of sum 1. A place is
the hidden state with what every policy that remembers would remember there, as one number: mixed radix, the state
first, then the policies in the order of their contents (`Reader.content`), equal ones once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from monitor.arrays import Floats, Ints
from monitor.hidden.glances import Pair, entries, sights, ways
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
        self._last: tuple[Weights, Belief] = NOTHING, Belief(np.zeros(0, np.int64), {}, np.zeros(0))

    def start(self, seq: int) -> Weights:
        """Return the belief before step `seq` of an episode of which nothing was observed; NOTHING: there is none."""
        model = self.model
        if model.initial is None:
            return NOTHING
        if not self._unseen:
            memories = [0] * len(self._rememberers)
            places = np.array([self._place(state, memories) for state in range(model.states)])
            self._unseen.append(_plain(places, model.initial))
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
        states = self.read(before).states
        if action is not None:
            states = states[self.model.availability[states, action]]
        if observed is not None and self.model.emissions is not None:
            _, at = entries(self.model.emissions.indptr, states)
            return bool((self.model.emissions.observed[at] == observed).any())
        return bool(len(states) if observed is None else (states == observed).any())

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
        belief = self.read(before)
        seen = sights(self.model, self._nominal, observed, (belief.states, belief.memory(self._nominal)))
        weights = belief.weights[seen.place] * seen.weight
        total = weights.sum()
        if not total > 0.0:
            return None
        chosen: Floats = (weights[:, np.newaxis] * self._nominal.choice[seen.after, seen.read]).sum(axis=0) / total
        return chosen

    def predicted(self, before: Weights) -> dict[int, float]:
        """Return the distribution of the next observation."""
        belief, emissions = self.read(before), self.model.emissions
        if emissions is None:
            shown, weights = belief.states, belief.weights
        else:
            of, at = entries(emissions.indptr, belief.states)
            shown, weights = emissions.observed[at], belief.weights[of] * emissions.probabilities[at]
        seen, chances = summed(shown, weights)
        return dict(zip(seen.tolist(), chances.tolist(), strict=True))

    def read(self, before: Weights) -> Belief:
        """Return a belief as arrays."""
        known, belief = self._last
        if known is before:  # several things are asked about one step
            return belief
        given = np.array(before)
        places, memories = given[::2].astype(np.int64), dict[Reader, Ints]()
        for reader in reversed(self._rememberers):
            places, memories[reader] = np.divmod(places, reader.memories)
        belief = Belief(places, memories, given[1::2].copy())
        self._last = before, belief
        return belief

    def _after(self, before: Weights, pair: Pair, acting: Reader, *, silent: bool) -> Weights | None:
        model, belief = self.model, self.read(before)
        seen = ways(model, acting, pair, (belief.states, belief.memory(acting)), silent=silent)
        weights = belief.weights[seen.place] * seen.weight
        share = weights.sum()
        if not share > 0.0:
            return None
        of, at = entries(model.indptr, seen.state * model.actions + seen.action)
        places = model.successors[at]
        for reader in self._rememberers:
            read = seen.state if reader.sees_state else seen.shown
            after = reader.following[belief.memories[reader][seen.place], read]
            places = places * reader.memories + after[of]
        places, chances = summed(places, (weights / share)[of] * model.probabilities[at])
        return _plain(places, chances)

    def _place(self, state: int, memories: Sequence[int]) -> int:
        number = state
        for reader, memory in zip(self._rememberers, memories, strict=True):
            number = number * reader.memories + memory
        return number


class Belief(NamedTuple):
    """A belief as arrays [n], places ascending: hidden `states`, and what each policy that remembers remembers."""

    states: Ints
    memories: dict[Reader, Ints]
    weights: Floats

    def memory(self, wanted: Reader) -> Ints:
        """Return what a policy remembers: nothing, 0, where it has no memory."""
        return self.memories.get(wanted, np.zeros(len(self.states), np.int64))


def summed(places: Ints, weights: Floats) -> tuple[Ints, Floats]:
    """Return the different places, ascending, and the sum of the weights of each."""
    different, which = np.unique(places, return_inverse=True)
    return different, np.bincount(which, weights, len(different)).astype(np.float64, copy=False)


def _plain(places: Ints, weights: Floats) -> Weights:
    plain = np.empty((len(places), 2))
    plain[:, 0], plain[:, 1] = places, weights
    return tuple(plain[weights > 0.0].reshape(-1).tolist())
