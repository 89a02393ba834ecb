"""The pair chain: what was, which is not seen, together with what would have been, under the same noise.

A *node* is a place of the true world, the counterfactual state with what the alternative remembers, and the obligation
that is pending there. Its weight is carried forward along the observed pairs: no smoother is needed, since every weight
is that of everything observed so far (docs/semantics.md, section 16.3).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from monitor.arrays import Floats, Ints
from monitor.causal.row import Row, conditional_choices, counterfactual_row
from monitor.hidden.belief import Belief, Glance
from monitor.logic import FALSE, TRUE, Automaton
from monitor.model.mdp import MDP
from monitor.policy.controller import Reader


class Tail(Protocol):
    """Values beyond the path."""

    def values(self, memory: int, obligation: int, states: Ints, end: int | None) -> Floats:
        """Return the values [n] of an obligation in n states, to be read there; `end`: the state that is absorbing."""
        ...


class Node(NamedTuple):
    """A place of the true world, and beside it a state and a memory of the counterfactual world."""

    state: int
    memory: int
    other: int
    recalled: int
    obligation: int


@dataclass(frozen=True)
class Change:
    """An intervention: another policy, for so many `steps` (None: for good), or other rows; neither: what happened."""

    reader: Reader | None = None
    steps: int | None = None
    dynamics: MDP | None = None

    def takes_over(self, offset: int) -> bool:
        """Return whether the other policy is in force at an offset from the intervention on."""
        return self.reader is not None and (self.steps is None or offset < self.steps)


class PairChain:
    """One measure under one change, from a position of a path on.

    Args:
        belief: along the whole path, with the alternative watching.
        change: the intervention.
        automaton, masks: of the measure, and the label sets [S] of its states.
        rows: counterfactual rows computed so far; shared by all chains on one model.
    """

    def __init__(
        self, belief: Belief, change: Change, automaton: Automaton, masks: Ints, rows: dict[tuple[int, ...], Floats]
    ) -> None:
        self._belief, self._sensor, self._change = belief, belief.sensor, change
        self._model = belief.sensor.model
        self._dynamics = change.dynamics or self._model
        self._automaton, self._masks, self._rows = automaton, masks, rows

    def value(self, position: int, tail: Tail, *, terminated: bool = False) -> float:
        """Return the value of the measure if the change came at a position of the path."""
        nodes: Mapping[Node, float] = self._start(position)
        done: Mapping[tuple[int, int], float] = {}
        last = len(self._sensor.path) - 1
        for place in range(position, last):
            nodes, done = self._step(place, place - position, nodes, done)
        total = 0.0
        for (state, memory), weight in done.items():
            total += weight * sum(glance.weight for glance in self._sensor.glances(last, state, memory))
        for node, weight in nodes.items():
            total += weight * self._close(last, last - position, node, tail, terminated=terminated)
        return total / self._belief.shares[last]

    def _start(self, position: int) -> Mapping[Node, float]:
        resets = self._change.reader is not None and not self._change.reader.shadows
        start: dict[Node, float] = defaultdict(float)
        for (state, memory, watch), weight in self._belief.places[position].items():
            recalled = memory if self._change.reader is None else 0 if resets else watch
            start[Node(state, memory, state, recalled, self._automaton.start)] += weight
        return start

    def _step(
        self, place: int, offset: int, nodes: Mapping[Node, float], done: Mapping[tuple[int, int], float]
    ) -> tuple[Mapping[Node, float], Mapping[tuple[int, int], float]]:
        """Advance over an observed pair; `done`: what has been decided or collected, by place of the true world."""
        model, share = self._model, self._belief.shares[place]
        ahead: dict[Node, float] = defaultdict(float)
        gained: dict[tuple[int, int], float] = defaultdict(float)
        for (state, memory), weight in done.items():
            for glance in self._sensor.glances(place, state, memory):
                assert glance.action is not None
                for after, chance in _entries(model.row(state, glance.action)):
                    gained[after, glance.memory] += weight * glance.weight * chance / share
        for node, weight in nodes.items():
            rest = self._automaton.step(node.obligation, int(self._masks[node.other]))
            rewarded = self._automaton.rewards(node.obligation)
            for glance in self._sensor.glances(place, node.state, node.memory):
                assert glance.action is not None
                seen = weight * glance.weight / share
                for after, chance in _entries(model.row(node.state, glance.action)):
                    if rest == TRUE:
                        gained[after, glance.memory] += seen * chance
                    if rest in (FALSE, TRUE) and not rewarded:
                        continue
                    for action, recalled, likely in self._decisions(node, glance, place, offset):
                        others, chances = self._row(node, glance.action, after, action)
                        if rewarded:
                            mean = float(chances @ self._rewards(node.other, action, others))
                            gained[after, glance.memory] += seen * chance * likely * mean
                        if rest not in (FALSE, TRUE):
                            for other, share_of in zip(others.tolist(), chances.tolist(), strict=True):
                                if share_of > 0.0:
                                    key = Node(after, glance.memory, other, recalled, rest)
                                    ahead[key] += seen * chance * likely * share_of
        return ahead, gained

    def _close(self, last: int, offset: int, node: Node, tail: Tail, *, terminated: bool) -> float:
        """Return the value of a node at the last pair, weighted by the probability of that pair."""
        rest = self._automaton.step(node.obligation, int(self._masks[node.other]))
        rewarded = self._automaton.rewards(node.obligation)
        end = node.state if terminated else None
        total = 0.0
        for glance in self._sensor.glances(last, node.state, node.memory):
            if rest in (FALSE, TRUE) and not rewarded:
                total += glance.weight * float(rest == TRUE)
                continue
            for action, recalled, likely in self._decisions(node, glance, last, offset):
                if node.other == end:
                    others, chances, rewards = np.array([end]), np.ones(1), np.zeros(1)
                else:
                    others, chances = self._dynamics.row(node.other, action)
                    rewards = self._rewards(node.other, action, others)
                values = tail.values(recalled, rest, others, end)
                if rewarded:
                    values = values + rewards
                total += glance.weight * likely * float(chances @ values)
        return total

    def _decisions(self, node: Node, glance: Glance, place: int, offset: int) -> Iterator[tuple[int, int, float]]:
        """Yield the counterfactual actions at a node: action, what is remembered afterwards, probability."""
        chosen = self._change.reader
        if chosen is None and self._change.dynamics is None:  # what happened
            if glance.action is not None:
                yield glance.action, glance.memory, 1.0
                return
            yield from ((a, glance.memory, p) for a, p in enumerate(glance.choice.tolist()) if p > 0.0)
            return
        if chosen is None or not self._change.takes_over(offset):
            if glance.action is not None and (node.other, node.recalled) == (node.state, node.memory):
                yield glance.action, glance.memory, 1.0  # the action really taken, whether its policy would or not
                return
            chosen = self._sensor.acting[place]
        for read, chance in self._read(node, glance, chosen):
            after = int(chosen.following[node.recalled, read])
            choice = chosen.choice[after, read]
            if glance.action is not None:
                choice = conditional_choices(glance.choice, glance.action, choice)
            for action, likely in enumerate(choice.tolist()):
                if likely > 0.0:
                    yield action, after, chance * likely

    def _read(self, node: Node, glance: Glance, chosen: Reader) -> Iterator[tuple[int, float]]:
        """Yield what a policy reads in the counterfactual world, with the noise of the sensor that was."""
        emissions = self._model.emissions
        if chosen.sees_state or emissions is None:
            yield node.other, 1.0
            return
        if node.other == node.state:
            yield glance.shown, 1.0
            return
        observed, _ = target = emissions.row(node.other)
        key = (node.state, glance.shown, node.other)
        if key not in self._rows:
            self._rows[key] = counterfactual_row(emissions.row(node.state), glance.shown, target)
        yield from ((o, p) for o, p in zip(observed.tolist(), self._rows[key].tolist(), strict=True) if p > 0.0)

    def _row(self, node: Node, taken: int, after: int, action: int) -> Row:
        """Return the counterfactual successors of a node, given that the true step led to `after`."""
        if self._dynamics is self._model and (node.other, action) == (node.state, taken):
            return np.array([after]), np.ones(1)
        target = self._dynamics.row(node.other, action)
        key = (id(self._dynamics), node.state, taken, after, node.other, action)
        if key not in self._rows:
            self._rows[key] = counterfactual_row(self._model.row(node.state, taken), after, target)
        return target[0], self._rows[key]

    def _rewards(self, state: int, action: int, successors: Ints) -> Floats:
        extra = self._dynamics.extra_rewards(state, action, successors)
        return float(self._dynamics.rewards[state, action]) + extra


def _entries(row: Row) -> Iterator[tuple[int, float]]:
    yield from zip(row[0].tolist(), row[1].tolist(), strict=True)
