"""Belief of a stream, updated with each pair; it also uses pairs before the window.

Definitions: docs/semantics/hidden.md, section 16.2.

As plain data, a belief is a tuple (place, weight, place, weight, ...) with ascending places and weights of sum 1. A
place is the hidden state, with the memory that every policy with memory would have there, as one number in mixed radix.
The state comes first, then the policies in the order of their contents (`Reader.content`); policies with equal content
count once. The memory of a recurrent network is not a whole number. So each weight is followed by the numbers of these
memories (`Reader.numbers`), which also order entries with equal places.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import numpy as np

from monitor.arrays import Floats, Ints
from monitor.errors import LimitError
from monitor.hidden.latent_steps import LatentSteps, entries, latent_observations, latent_steps
from monitor.hidden.readings import Readings
from monitor.model.mdp import MDP
from monitor.policy.controller import Reader
from monitor.policy.recurrent import RecurrentReader
from monitor.types.stream_events import ObservedPair

MOST_STEPS: Final = 256
"""Number of steps without observations after which the belief is no longer updated."""

ROUNDING: Final = 1e-9
"""Tolerance for the sum of a belief's weights, which must be 1."""

MAX_PLACES: Final = 10_000
"""Largest number of places of one belief with a recurrent network; missing observations multiply the places."""

Weights = tuple[float, ...]
NOTHING: Final[Weights] = ()
"""No belief: states are observed, but the memory of a policy is unknown."""


class Filter:
    """Beliefs on one model.

    Args:
        model: the MDP; without emissions, the state is observed.
        readers: name -> policy; equal policies are the same object; `nominal` is the deployed one.
    """

    def __init__(self, model: MDP, readers: Mapping[str, Reader]) -> None:
        self.model, self.nominal = model, readers["nominal"]
        remembering = {reader for reader in readers.values() if reader.remembers}
        self._rememberers = sorted(remembering, key=lambda each: each.content())  # independent of the order of names
        self._width = sum(reader.width for reader in self._rememberers)
        self._unseen: list[Weights] = []
        self._networks = [reader for reader in remembering if isinstance(reader, RecurrentReader)]
        self._generation = -1
        self._begin()

    def _begin(self) -> None:
        """Drop data that use numbers of network memories, if the tables of these networks were cleared."""
        generation = sum(network.generation for network in self._networks)
        if generation != self._generation:
            self._generation, self._readings = generation, dict[Reader, Readings]()
            self._last = NOTHING, Belief(np.zeros(0, np.int64), {}, np.zeros(0))

    def readings(self, reader: Reader) -> Readings:
        """Return the readings of a policy: its memory and action after each observation."""
        self._begin()
        if reader not in self._readings:
            self._readings[reader] = Readings(reader, self.model)
        return self._readings[reader]

    def start(self, seq: int) -> Weights:
        """Return the belief before step `seq` of an episode in which nothing was observed so far.

        Return NOTHING if the model has no `initial`, or if a recurrent network may have too many memories before the
        step.
        """
        model = self.model
        if model.initial is None:
            return NOTHING
        if not self._unseen:
            self._unseen.append(self._plain(np.arange(model.states), self._fresh(model.states), model.initial))
        while len(self._unseen) <= min(seq, MOST_STEPS):
            self._unseen.append(self._unobserved(self._unseen[-1]))
        return self._unseen[min(seq, MOST_STEPS)]

    def _unobserved(self, before: Weights) -> Weights:
        """Return the belief after a step without observations; NOTHING if a network may have too many memories."""
        try:
            after = None if before == NOTHING else self.following(before, (None, None), self.nominal)
        except LimitError:
            return NOTHING
        assert after is not None or before == NOTHING, "some observation and some action are always possible"
        return after or NOTHING

    def begun(self, state: int) -> Weights:
        """Return the belief before the first step of an episode that begins in an observed state."""
        return self._plain(np.array([state]), self._fresh(1), np.ones(1))

    def begins(self, before: Weights) -> bool:
        """Return whether a belief is the one at the start of an episode."""
        start = self.start(0)
        return len(start) == len(before) and all(
            abs(one - other) <= ROUNDING for one, other in zip(start, before, strict=True)
        )

    def problem(self, before: Weights) -> str:
        """Return why a belief from outside is invalid; empty if it is valid."""
        size = 2 + self._width
        parts = [before[n : n + size] for n in range(0, len(before) - size + 1, size)]
        keys = [(place, *numbers) for place, _, *numbers in parts]
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

    def explains(self, before: Weights, pair: ObservedPair) -> bool:
        """Return whether a pair is possible given the belief before it."""
        observed, action = pair
        states = self.read(before).states
        if action is not None:
            states = states[self.model.availability[states, action]]
        if observed is not None and self.model.emissions is not None:
            _, at = entries(self.model.emissions.indptr, states)
            return bool((self.model.emissions.observed[at] == observed).any())
        return bool(len(states) if observed is None else (states == observed).any())

    def following(self, before: Weights, pair: ObservedPair, acting: Reader | None) -> Weights | None:
        """Return the belief before the next pair, after a pair whose action was taken; None if the pair is impossible.

        `acting`: the policy that acted, or None if it is unknown. The action of an unknown policy gives no information
        about the state. Raises LimitError if the belief has more than `MAX_PLACES` places.
        """
        explained = self._explained(before, pair, acting)
        if explained is None:
            return None
        model, (belief, seen, weights) = self.model, explained
        of, at = entries(model.indptr, seen.state * model.actions + seen.action)
        memories = dict[Reader, Ints]()
        for reader in self._rememberers:
            policy = self.readings(reader)
            read = policy.rows(belief.memories[reader][seen.place], seen.state if policy.sees_state else seen.shown)
            memories[reader] = np.asarray(policy.after)[read][of]
        return self._plain(model.successors[at], memories, weights[of] * model.probabilities[at])

    def given(self, before: Weights, pair: ObservedPair, acting: Reader | None) -> tuple[Ints, Floats] | None:
        """Return the possible states [n], ascending, at a pair, with their probabilities given all pairs up to it.

        None if the pair is impossible. `acting`: as for `following`.
        """
        explained = self._explained(before, pair, acting)
        return None if explained is None else summed(explained[1].state, explained[2])

    def likely(self, before: Weights, observed: int | None) -> Floats | None:
        """Return the probabilities [A] of nominal's actions given an observation; None if it is impossible."""
        belief, policy = self.read(before), self.readings(self.nominal)
        seen = latent_observations(self.model, policy, observed, (belief.states, belief.memory(self.nominal)))
        weights = belief.weights[seen.place] * seen.weight
        total = weights.sum()
        if not total > 0.0:
            return None
        chosen: Floats = (weights[:, np.newaxis] * np.asarray(policy.choice)[seen.reading]).sum(axis=0) / total
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
        self._begin()
        known, belief = self._last
        if known is before:  # there are several calls for each step
            return belief
        given, memories = np.array(before).reshape(-1, 2 + self._width), dict[Reader, Ints]()
        places, end = given[:, 0].astype(np.int64), given.shape[1]
        for reader in reversed(self._rememberers):
            places, memories[reader] = np.divmod(places, reader.memories)
            if reader.width:
                numbers = given[:, end - reader.width : end].tolist()
                memories[reader] = np.array([reader.memory_of(tuple(each)) for each in numbers], np.int64)
                end -= reader.width
        belief = Belief(places, memories, given[:, 1].copy())
        self._last = before, belief
        return belief

    def _explained(
        self, before: Weights, pair: ObservedPair, acting: Reader | None
    ) -> tuple[Belief, LatentSteps, Floats] | None:
        """Return a belief, and the possible explanations of a pair with probabilities [n]; None if there is none."""
        belief, policy = self.read(before), acting or self.nominal
        # A policy that began with memory 0 at its takeover has another memory than if it had watched from the start.
        restarted = policy.remembers and not policy.shadows and policy is not self.nominal
        places = belief.states, belief.memory(policy)
        for silent in (acting is None or restarted, True):
            seen = latent_steps(self.model, self.readings(policy), pair, places, silent=silent)
            weights = belief.weights[seen.place] * seen.weight
            share = weights.sum()
            if share > 0.0:
                return belief, seen, weights / share
        return None

    def _fresh(self, count: int) -> dict[Reader, Ints]:
        return {reader: np.zeros(count, np.int64) for reader in self._rememberers}

    def _plain(self, states: Ints, memories: Mapping[Reader, Ints], weights: Floats) -> Weights:
        """Return a belief as plain data; equal places are merged. Raises LimitError beyond `MAX_PLACES`."""
        networks = [reader for reader in self._rememberers if reader.width]
        number = states
        for reader in self._rememberers:
            number = number * reader.memories + (0 if reader.width else memories[reader])
        if not networks:
            places, chances = summed(number, weights)
            plain = np.stack([places, chances], axis=1)
            return tuple(plain[chances > 0.0].reshape(-1).tolist())
        keys = np.stack([number, *(memories[reader] for reader in networks)], axis=1)
        different, which = np.unique(keys, axis=0, return_inverse=True)
        chances = np.bincount(which.reshape(-1), weights, len(different)).astype(np.float64, copy=False)
        if len(different) > MAX_PLACES:
            raise LimitError(
                f"what the agent saw and remembers may have come about in more than {MAX_PLACES:,} ways "
                "(limit MAX_PLACES), since a recurrent network acts or watches and observations are missing"
            )
        found = [
            (float(place), sum((each.numbers(m) for each, m in zip(networks, there, strict=True)), ()), chance)
            for (place, *there), chance in zip(different.tolist(), chances.tolist(), strict=True)
            if chance > 0.0
        ]
        return tuple(part for place, numbers, chance in sorted(found) for part in (place, chance, *numbers))


class Belief(NamedTuple):
    """A belief as arrays [n], places ascending: hidden `states`, and the memory of each policy with memory."""

    states: Ints
    memories: dict[Reader, Ints]
    weights: Floats

    def memory(self, wanted: Reader) -> Ints:
        """Return the memories [n] of a policy; 0 if the policy has no memory."""
        return self.memories.get(wanted, np.zeros(len(self.states), np.int64))


def summed(places: Ints, weights: Floats) -> tuple[Ints, Floats]:
    """Return the distinct places, ascending, and the sum of the weights of each."""
    different, which = np.unique(places, return_inverse=True)
    return different, np.bincount(which, weights, len(different)).astype(np.float64, copy=False)
