"""The pair chain: what was, which is not seen, together with what would have been, under the same noise.

A *node* is a place of the true world, the counterfactual state with what the alternative remembers, and the obligation
that is pending there. Its weight is carried forward along the observed pairs: no smoother is needed, since every weight
is that of everything observed so far (docs/semantics.md, section 16.3).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from monitor.arrays import Floats, Ints
from monitor.causal.row import Row, conditional_choices, counterfactual_row
from monitor.errors import LimitError
from monitor.hidden.glances import Glance
from monitor.hidden.tails import Tail
from monitor.hidden.trace import Trace
from monitor.logic import FALSE, TRUE, Automaton
from monitor.model.emissions import Emissions
from monitor.model.mdp import MDP
from monitor.policy.controller import Reader

MAX_ROWS: Final = 200_000
"""Rows that are kept for one model, 100 bytes and more each."""
MAX_NODES: Final = 20_000
"""Nodes of one pair where a recurrent network remembers."""
CHOICE, SIGHT, STEP = range(3)
"""Kinds of rows, as the keys begin."""


class Caches:
    """What chains on one model have computed, by what it depends on; when they are full they begin anew."""

    def __init__(self) -> None:
        self._rows: dict[tuple[int, ...], list[tuple[int, float]]] = {}

    def get(self, key: tuple[int, ...], compute: Callable[[], Iterable[tuple[int, float]]]) -> list[tuple[int, float]]:
        """Return a row, (what, probability) for each that is possible."""
        if key not in self._rows:
            if len(self._rows) >= MAX_ROWS:
                self._rows.clear()
            self._rows[key] = [each for each in compute() if each[1] > 0.0]
        return self._rows[key]


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
    """One measure under one change, from a pair of a path on; it goes on with the path.

    Args:
        trace: the path.
        change: the intervention.
        automaton, masks: of the measure, and the label sets [S] of its states.
        caches: shared by all chains on one model.
        start: number of the pair at which the change comes.
    """

    def __init__(
        self,
        trace: Trace,
        change: Change,
        automaton: Automaton,
        masks: Ints,
        caches: Caches,
        *,
        start: int,
    ) -> None:
        self._trace, self._change, self._model = trace, change, trace.model
        self._dynamics = change.dynamics or self._model
        self._automaton, self._masks, self._caches = automaton, masks, caches
        self._start = self._at = start
        self._network = any(reader.width for reader in (trace[start].acting, change.reader) if reader is not None)
        self._nodes: Mapping[Node, float] = self._begin(start)
        self._done: Mapping[tuple[int, int], float] = {}

    def value(self, tail: Tail, *, terminated: bool = False) -> float:
        """Return the value of the measure, given all that was observed."""
        last = self._trace.last
        while self._at < last:
            self._nodes, self._done = self._step(self._at, self._at - self._start, self._nodes, self._done)
            self._at += 1
        tail.begin()
        total = 0.0
        for (state, memory), weight in self._done.items():
            total += weight * sum(glance.weight for glance in self._trace.glances(last, state, memory))
        for node, weight in self._nodes.items():
            total += weight * self._close(last, last - self._start, node, tail, terminated=terminated)
        return total / self._trace[last].share

    def pairs(self) -> Iterator[Mapping[Node, float]]:
        """Yield the weights of nodes at each pair from the start on, given what was observed before it."""
        nodes = self._begin(self._start)
        for number in range(self._start, self._trace.last):
            yield nodes
            nodes, _ = self._step(number, number - self._start, nodes, {})
        yield nodes

    def departures(self) -> Iterator[tuple[Node, int, int, float]]:
        """Yield what is done at the last pair: node, action, what is remembered afterwards, probability."""
        last = self._trace.last
        *_, nodes = self.pairs()
        for node, weight in nodes.items():
            for glance in self._trace.glances(last, node.state, node.memory):
                for action, memory, chance in self._decisions(node, glance, last, last - self._start):
                    yield node, action, memory, weight * glance.weight * chance / self._trace[last].share

    def _begin(self, number: int) -> Mapping[Node, float]:
        reader = self._change.reader
        resets = reader is not None and not reader.shadows
        start: dict[Node, float] = defaultdict(float)
        for (state, memory, watch), weight in self._trace.places(number, reader or self._trace[number].acting).items():
            recalled = memory if self._change.reader is None else 0 if resets else watch
            start[Node(state, memory, state, recalled, self._automaton.start)] += weight
        return start

    def _step(
        self, place: int, offset: int, nodes: Mapping[Node, float], done: Mapping[tuple[int, int], float]
    ) -> tuple[Mapping[Node, float], Mapping[tuple[int, int], float]]:
        """Advance over an observed pair; `done`: what has been decided or collected, by place of the true world."""
        model, share = self._model, self._trace[place].share
        ahead: dict[Node, float] = defaultdict(float)
        gained: dict[tuple[int, int], float] = defaultdict(float)
        for (state, memory), weight in done.items():
            for glance in self._trace.glances(place, state, memory):
                assert glance.action is not None
                for after, chance in _entries(model.row(state, glance.action)):
                    gained[after, glance.memory] += weight * glance.weight * chance / share
        for node, weight in nodes.items():
            rest = self._automaton.step(node.obligation, int(self._masks[node.other]))
            rewarded = self._automaton.rewards(node.obligation)
            for glance in self._trace.glances(place, node.state, node.memory):
                assert glance.action is not None
                seen = weight * glance.weight / share
                for after, chance in _entries(model.row(node.state, glance.action)):
                    if rest == TRUE:
                        gained[after, glance.memory] += seen * chance
                    if rest in (FALSE, TRUE) and not rewarded:
                        continue
                    for action, recalled, likely in self._decisions(node, glance, place, offset):
                        row = self._row(node, glance.action, after, action)
                        if rewarded:
                            mean = sum(share_of * self._reward(node.other, action, other) for other, share_of in row)
                            gained[after, glance.memory] += seen * chance * likely * mean
                        if rest not in (FALSE, TRUE):
                            for other, share_of in row:
                                key = Node(after, glance.memory, other, recalled, rest)
                                ahead[key] += seen * chance * likely * share_of
            if self._network and len(ahead) > MAX_NODES:
                raise LimitError(
                    "a recurrent network may remember too much: what happened and what would have happened has more "
                    f"than {MAX_NODES:,} possible courses at a step of the path (limit MAX_NODES); use a smaller offset"
                )
        return ahead, gained

    def _close(self, last: int, offset: int, node: Node, tail: Tail, *, terminated: bool) -> float:
        """Return the value of a node at the last pair, weighted by the probability of that pair."""
        rest = self._automaton.step(node.obligation, int(self._masks[node.other]))
        rewarded = self._automaton.rewards(node.obligation)
        end = node.state if terminated else None
        total = 0.0
        for glance in self._trace.glances(last, node.state, node.memory):
            if rest in (FALSE, TRUE) and not rewarded:
                total += glance.weight * float(rest == TRUE)
                continue
            for action, recalled, likely in self._decisions(node, glance, last, offset):
                total += glance.weight * likely * tail.worth(recalled, rest, node.other, action, end, rewarded)
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
            chosen = self._trace[place].acting
        acting = self._trace[place].acting
        was = node.state if acting.sees_state else glance.shown
        for read, chance in self._read(node, glance, chosen):
            after, choice = chosen.read(node.recalled, read)
            if glance.action is None:
                likely = list(enumerate(choice.tolist()))
            else:
                key = CHOICE, id(acting), node.memory, was, glance.action, id(chosen), node.recalled, read
                taken, observed = glance.action, glance.choice
                likely = self._caches.get(key, partial(_conditional, observed, taken, choice))
            yield from ((action, after, chance * share) for action, share in likely if share > 0.0)

    def _read(self, node: Node, glance: Glance, chosen: Reader) -> Iterable[tuple[int, float]]:
        """Return what a policy reads in the counterfactual world, with the noise of the sensor that was."""
        emissions = self._model.emissions
        if chosen.sees_state or emissions is None:
            return [(node.other, 1.0)]
        if node.other == node.state:
            return [(glance.shown, 1.0)]
        key = SIGHT, node.state, glance.shown, node.other
        return self._caches.get(key, lambda: _shown(emissions, node.state, glance.shown, node.other))

    def _row(self, node: Node, taken: int, after: int, action: int) -> Iterable[tuple[int, float]]:
        """Return the counterfactual successors of a node, given that the true step led to `after`."""
        if self._dynamics is self._model and (node.other, action) == (node.state, taken):
            return [(after, 1.0)]
        key = STEP, id(self._dynamics), node.state, taken, after, node.other, action
        return self._caches.get(key, lambda: self._successors(node, taken, after, action))

    def _successors(self, node: Node, taken: int, after: int, action: int) -> Iterable[tuple[int, float]]:
        target = self._dynamics.row(node.other, action)
        chances = counterfactual_row(self._model.row(node.state, taken), after, target)
        return zip(target[0].tolist(), chances.tolist(), strict=True)

    def _reward(self, state: int, action: int, successor: int) -> float:
        return self._dynamics.reward(state, action, successor)


def _shown(emissions: Emissions, state: int, shown: int, other: int) -> Iterable[tuple[int, float]]:
    target = emissions.row(other)
    chances = counterfactual_row(emissions.row(state), shown, target)
    return zip(target[0].tolist(), chances.tolist(), strict=True)


def _entries(row: Row) -> Iterator[tuple[int, float]]:
    yield from zip(row[0].tolist(), row[1].tolist(), strict=True)


def _conditional(observed: Floats, taken: int, choice: Floats) -> Iterable[tuple[int, float]]:
    return enumerate(conditional_choices(observed, taken, choice).tolist())
