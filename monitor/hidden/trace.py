"""The pairs of one path as evidence about the hidden state, each given all earlier observations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from monitor.arrays import Floats, Ints
from monitor.errors import PathError
from monitor.hidden.couplings import LatentTable
from monitor.hidden.filtering import Belief, Filter, Weights, summed
from monitor.hidden.forward import Edges
from monitor.hidden.latent_steps import LatentSteps, entries, impossible, latent_observations, latent_steps
from monitor.hidden.pair_bounds import TrueSide
from monitor.hidden.readings import Readings
from monitor.hidden.shared_tables import Tables
from monitor.policy.controller import Reader
from monitor.types.stream_events import ObservedPair


@dataclass(eq=False)
class HeldPair:
    """One pair of the window.

    `acting`: the policy that acted. `belief`: the belief before the pair. `places` [T]: the possible places, ascending,
    as state * L + m, where `live[m]` of L memories is the memory of the acting policy; `weights` [T]: their weights.
    `share`: the probability of the pair given all earlier observations. `seen`: the latent steps of the pair with its
    action taken; the action may be unknown. `onward`: the edges to the places of the next pair; `side`: the result of
    `Trace.true_side`; None until they are needed.
    """

    pair: ObservedPair
    acting: Reader
    belief: Belief
    live: Ints
    places: Ints
    weights: Floats
    share: float
    seen: LatentTable
    onward: Edges | None = None
    side: TrueSide | None = None

    def split(self) -> tuple[Ints, Ints]:
        """Return the state [T] of each place, and the memory [T] of the acting policy."""
        states, memories = np.divmod(self.places, len(self.live))
        return states, self.live[memories]

    def starts(self, reader: Reader | None) -> tuple[Ints, Ints, Ints, Floats]:
        """Return the start points of an intervention here: state (of both worlds), true place, memory, and weight.

        The memory is that of `reader`, the policy that takes over; None: that of the acting policy.
        """
        belief = self.belief
        memory = belief.memory(self.acting)
        watched = memory if reader is None else belief.memory(reader) * reader.shadows
        places = belief.states * len(self.live) + self.seen.policy.numbered(self.live, memory)
        return belief.states, np.searchsorted(self.places, places), watched, belief.weights


class Trace:
    """The pairs of the window. Each pair keeps its number; `first` is the number of the oldest pair."""

    def __init__(self, beliefs: Filter, tables: Tables) -> None:
        self.filter, self.model, self._tables = beliefs, beliefs.model, tables
        self.first = 0
        self._held: list[HeldPair] = []

    def __len__(self) -> int:
        return len(self._held)

    @property
    def last(self) -> int:
        """The number of the newest pair."""
        return self.first + len(self._held) - 1

    @property
    def evidence(self) -> float:
        """Probability of all observations on the path, given the observations before the path."""
        return prod(held.share for held in self._held)

    def __getitem__(self, number: int) -> HeldPair:
        return self._held[number - self.first]

    def extend(
        self, path: Sequence[ObservedPair], acting: Sequence[Reader], beliefs: Sequence[Weights], added: int
    ) -> None:
        """Process a path whose last `added` pairs are new.

        If all pairs are new, this is another path. Raises PathError.
        """
        if added >= len(path):
            self.first += len(self._held)
            self._held = []
        for n in range(len(path) - added, len(path)):
            self._held.append(self._weighed(n, path[n], acting[n], beliefs[n]))
        dropped = len(self._held) - len(path)
        del self._held[:dropped]
        self.first += dropped

    def at_last(self) -> LatentTable:
        """Return the latent steps of the last pair, whose action may be not yet taken."""
        held = self[self.last]
        if held.pair[1] is not None:
            return held.seen
        policy = self.filter.readings(held.acting)
        return self._numbered(policy, latent_observations(self.model, policy, held.pair[0], held.split()), held.places)

    def onward(self, number: int) -> Edges:
        """Return the edges from the places of a pair to the places at which the next pair is possible."""
        held, ahead = self[number], self[number + 1]
        if held.onward is None:
            model, seen = self.model, held.seen
            rows = np.asarray(seen.state) * model.actions + np.asarray(seen.action)
            of, at = entries(model.indptr, rows)
            memories = seen.policy.numbered(ahead.live, np.asarray(seen.after)[of])
            places = model.successors[at] * len(ahead.live) + memories
            into = np.minimum(np.searchsorted(ahead.places, places), len(ahead.places) - 1)
            possible = np.diff(ahead.seen.begin) > 0
            kept = np.flatnonzero((ahead.places[into] == places) & (memories >= 0) & possible[into])
            kept = kept[np.argsort(into[kept], kind="stable")]
            begin = np.searchsorted(into[kept], np.arange(len(ahead.places) + 1))
            chance = np.asarray(seen.weight)[of[kept]] * model.probabilities[at[kept]] / held.share
            held.onward = Edges(begin, of[kept], at[kept] - model.indptr[rows][of[kept]], chance)
        return held.onward

    def hindsight(self, start: int) -> list[Floats]:
        """Return the factors [T] by which each pair and all later pairs change the belief before this pair.

        There is one array for each pair from pair `start` on, with one factor for each of the T places possible there.
        """
        last, seen = self[self.last], self.at_last()
        found: list[Floats] = [np.bincount(seen.place, seen.weight, len(last.places)) / last.share]
        for number in range(self.last - 1, start - 1, -1):
            edges, latents = self.onward(number), np.asarray(self[number].seen.place)
            ahead = np.repeat(found[-1], np.diff(edges.begin))
            chances = np.asarray(edges.chance) * ahead
            factors = np.bincount(latents[np.asarray(edges.latent)], chances, len(self[number].places))
            found.append(factors.astype(np.float64, copy=False))
        return found[::-1]

    def true_side(self, number: int) -> TrueSide:
        """Return what may have happened at a pair, for bounds over causal models."""
        held, is_last = self[number], number == self.last
        if held.side is not None and not is_last:
            return held.side
        seen = self.at_last() if is_last else held.seen
        shown = np.ones(len(seen.place))
        if (emissions := self.model.emissions) is not None:
            states, width = np.arange(self.model.states), emissions.signals
            keys = np.repeat(states, np.diff(emissions.indptr)) * width + emissions.observed  # ascending
            asked = np.asarray(seen.state) * width + np.asarray(seen.shown)
            shown = emissions.probabilities[np.searchsorted(keys, asked)]
        begin, into = np.zeros(len(shown), np.int64), np.zeros(0, np.int64)
        if not is_last:
            edges = self.onward(number)
            lengths = np.diff(self.model.indptr)[np.asarray(seen.state) * self.model.actions + np.asarray(seen.action)]
            begin, into = np.cumsum(lengths) - lengths, np.full(int(lengths.sum()), -1)
            places = np.repeat(np.arange(len(edges.begin) - 1), np.diff(edges.begin))
            into[begin[np.asarray(edges.latent)] + np.asarray(edges.rank)] = places
        side = TrueSide(seen, shown, np.asarray(seen.weight) / shown, held.share, begin, into)
        held.side = None if is_last else side
        return side

    def states(self) -> tuple[Ints, Floats]:
        """Return the possible states at the last pair, ascending, with the belief given the whole path."""
        last, seen = self[self.last], self.at_last()
        weights = last.weights[np.asarray(seen.place)] * np.asarray(seen.weight) / last.share
        return summed(np.asarray(seen.state), weights)

    def _weighed(self, n: int, pair: ObservedPair, acting: Reader, before: Weights) -> HeldPair:
        belief, policy = self.filter.read(before), self.filter.readings(acting)
        live = policy.live(belief.memory(acting))
        memories = policy.numbered(live, belief.memory(acting))
        places, weights = summed(belief.states * len(live) + memories, belief.weights)
        states, memories = np.divmod(places, len(live))
        for silent in (False, True):
            found = latent_steps(self.model, policy, pair, (states, live[memories]), silent=silent)
            share = float((weights[found.place] * found.weight).sum())
            if share > 0.0:
                seen = self._numbered(policy, found, places)
                return HeldPair(pair, acting, belief, live, places, weights, share, seen)
        raise PathError(f"pair {n}: {impossible(self.model, *pair)}")

    def _numbered(self, policy: Readings, found: LatentSteps, places: Ints) -> LatentTable:
        begin = np.searchsorted(found.place, np.arange(len(places) + 1))
        return LatentTable(*found, begin, self._tables.numbers(policy.reader, found), policy)
