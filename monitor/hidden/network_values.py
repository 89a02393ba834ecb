"""Values beyond the observed path under a recurrent network, over pairs (state, memory) that are found on demand.

The memories are the actual memories of the network after each possible observation, with equal memories merged. So the
values are exact.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np

from monitor.arrays import AnyArray, Floats, Ints
from monitor.errors import LimitError
from monitor.logic import FALSE, TRUE, Automaton
from monitor.model.mdp import MDP
from monitor.policy.controller import Reader

MAX_PAIRS: Final = 20_000
"""Largest number of pairs (state, memory), each with an obligation, that one value may reach."""
MAX_KEPT: Final = 10 * MAX_PAIRS
"""Number of cached values beyond which the cache is cleared."""


class NetworkNode(NamedTuple):
    """A state whose labels are read next, the memory of the network there, and the pending obligation."""

    obligation: int
    state: int
    memory: int


class NetworkValues:
    """Values of obligations under one recurrent network.

    Args:
        model: the MDP, whose rows and rewards are used.
        reader: the network.
        automaton, masks: the automaton of the measure, and the label sets [S] of states.
        end: the absorbing state in which the episode has ended; None if it has not ended.
    """

    def __init__(self, model: MDP, reader: Reader, automaton: Automaton, masks: AnyArray, end: int | None) -> None:
        self._model, self._reader, self._end = model, reader, end
        self._automaton, self._masks = automaton, masks
        self._known: dict[NetworkNode, float] = {}
        self._met = 0

    def begin(self) -> None:
        """Begin the values of another world; `MAX_PAIRS` limits each world separately."""
        self._met = 0

    def worth(self, obligation: int, state: int, action: int, memory: int) -> float:
        """Return the value of an action in a state, before the labels of the state are read.

        `memory`: the memory after the action was chosen. Raises LimitError as `values` does.
        """
        rest = self._automaton.step(obligation, int(self._masks[state]))
        if state == self._end:
            return float(self.values(rest, np.array([state]), memory)[0])
        successors, chances = self._model.row(state, action)
        value = float(chances @ self.values(rest, successors, memory))
        rewarded = self._automaton.rewards(obligation)
        return value + self._reward(state, action, successors, chances) if rewarded else value

    def values(self, obligation: int, states: Ints, memory: int) -> Floats:
        """Return the values [n] of an obligation in n states, before the states' labels are read, with one memory.

        Raises LimitError if more than `MAX_PAIRS` pairs are reachable since `begin`.
        """
        if obligation in (FALSE, TRUE):
            return np.full(len(states), float(obligation == TRUE))
        if len(self._known) > MAX_KEPT:
            self._known.clear()
        roots = [NetworkNode(obligation, state, memory) for state in states.tolist()]
        layers: list[dict[NetworkNode, tuple[float, dict[NetworkNode, float]]]] = []
        wanted = {each for each in roots if each not in self._known}
        while wanted:
            self._met += len(wanted)
            if self._met > MAX_PAIRS:
                raise LimitError(
                    f"a recurrent network may remember too much: more than {MAX_PAIRS:,} pairs of a state and what it "
                    "remembers there lie ahead (limit MAX_PAIRS); use a shorter horizon, or one that remembers less"
                )
            layer = {pair: self._edges(pair) for pair in wanted}
            layers.append(layer)
            wanted = {after for _, to in layer.values() for after in to if after not in self._known}
        for layer in reversed(layers):
            for pair, (settled, to) in layer.items():
                self._known[pair] = settled + sum(weight * self._known[after] for after, weight in to.items())
        return np.array([self._known[each] for each in roots])

    def _edges(self, pair: NetworkNode) -> tuple[float, dict[NetworkNode, float]]:
        """Return the decided part of a pair's value, and the weights of the pairs on which it depends."""
        rest = self._automaton.step(pair.obligation, int(self._masks[pair.state]))
        rewarded = self._automaton.rewards(pair.obligation)
        ended = rest in (FALSE, TRUE)
        settled = float(rest == TRUE)
        to: dict[NetworkNode, float] = defaultdict(float)
        if ended and not rewarded:
            return settled, to
        if pair.state == self._end:
            return settled, to if ended else {NetworkNode(rest, pair.state, pair.memory): 1.0}
        for action, memory, chance in self._decisions(pair):
            successors, chances = self._model.row(pair.state, action)
            if rewarded:
                settled += chance * self._reward(pair.state, action, successors, chances)
            if not ended:
                for successor, likely in zip(successors.tolist(), chances.tolist(), strict=True):
                    to[NetworkNode(rest, successor, memory)] += chance * likely
        return settled, to

    def _decisions(self, pair: NetworkNode) -> Iterator[tuple[int, int, float]]:
        """Yield action, memory after it, and probability."""
        for shown, chance in self._reader.readings(self._model, pair.state):
            memory, choice = self._reader.read(pair.memory, shown)
            for action in np.flatnonzero(choice).tolist():
                yield action, memory, chance * float(choice[action])

    def _reward(self, state: int, action: int, successors: Ints, chances: Floats) -> float:
        extra = self._model.extra_rewards(state, action, successors)
        return float(self._model.rewards[state, action]) + float(chances @ np.asarray(extra + np.zeros(len(chances))))
