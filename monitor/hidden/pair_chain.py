"""The pair chain: what was, which is not seen, together with what would have been, under the same noise.

A *node* is a place of the true world beside one of the counterfactual world; its weights, by offset and pending
obligation, are carried forward along the observed pairs by `monitor.hidden.forward`: no smoother is needed, since every
weight is that of everything observed so far (docs/semantics.md, section 16.3).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from monitor.arrays import AnyArray, Floats, Ints
from monitor.exact.forward.unroll import FIRST_COLUMN
from monitor.hidden.couplings import Couplings, Glances, find_all
from monitor.hidden.filtering import summed
from monitor.hidden.forward import Nodes, Part, add_values, push, push_apart, read_labels
from monitor.hidden.tables import Tables
from monitor.hidden.tails import Column, Tail
from monitor.hidden.trace import Trace
from monitor.logic import FALSE, TRUE, Automaton
from monitor.model.mdp import MDP
from monitor.policy.controller import Reader

NONE: Final = np.zeros(0, np.int64)


@dataclass(frozen=True)
class Change:
    """An intervention: another policy, for so many `steps` (None: for good), or other rows; neither: what happened."""

    reader: Reader | None = None
    steps: int | None = None
    dynamics: MDP | None = None


@dataclass(frozen=True)
class _Remaining:
    """What remains of columns once labels are read; `before`: these columns, and how many offsets are held then.

    `columns`: those that remain. `steps`, `rewarded`: for `read_labels`. `collected`: number of offsets whose rewards
    are collected.
    """

    before: tuple[list[Column], int]
    columns: list[Column]
    steps: Ints
    rewarded: Ints
    collected: int


class PairChain:
    """One measure under one change, at all offsets of a path; it goes on with the path.

    Args:
        trace: the path.
        change: the intervention.
        automaton, masks: of the measure, and the label sets [S] of its states.
        tables: shared by all chains on one model.
        tail: the values beyond the path.
        deepest: the largest offset; None: as far back as the path goes.
    """

    def __init__(
        self,
        trace: Trace,
        change: Change,
        *,
        automaton: Automaton,
        masks: AnyArray,
        tables: Tables,
        tail: Tail,
        deepest: int | None,
    ) -> None:
        self._trace, self._change, self._automaton, self._masks = trace, change, automaton, masks
        self._tables, self._tail, self._deepest = tables, tail, deepest
        sets, kinds = np.unique(masks, return_inverse=True)
        self._sets, self._kinds = sets.tolist(), kinds.astype(np.int32)
        dynamics = change.dynamics or trace.model
        self._couplings = [tables.couplings(each, dynamics) for each in dict.fromkeys((change.reader, None))]
        """Of the policy that takes over, and of the one that acts where it does not."""
        self._memories = self._couplings[0].memories
        self._at = -1
        self._columns: list[Column] = []
        self._nodes: Nodes | None = None
        self._found: dict[Couplings, tuple[Glances, Nodes, int, Ints, Ints]] = {}
        self._remaining: _Remaining | None = None
        self._answered: tuple[int, bool] | None = None
        self._values: list[float] = []

    def values(self, *, terminated: bool) -> list[float]:
        """Return the values of the measure at offsets 0, 1, ..., given all that was observed."""
        asked = self._trace.last, terminated
        if self._answered != asked:
            nodes = self._at_last()
            self._values, self._answered = self._close(nodes, terminated=terminated), asked
        return self._values

    def _at_last(self) -> Nodes:
        """Return the nodes at the last pair, from where the chain is, or from the oldest start point."""
        trace, nodes = self._trace, self._nodes
        oldest = trace.first if self._deepest is None else max(trace.first, trace.last - self._deepest)
        if nodes is None or self._at < oldest:
            self._at, self._columns, nodes = oldest, [(0, self._automaton.start)], self._fresh(oldest)
        self._nodes = nodes
        while self._at < trace.last:
            nodes = self._nodes = self._step(nodes)
            self._at += 1
        return nodes

    def _fresh(self, number: int) -> Nodes:
        """Return the nodes of a start point at its pair: both worlds are in the same state."""
        held, reader = self._trace[number], self._change.reader
        belief, size = held.belief, self._trace.model.states * self._memories
        memory = belief.memory(held.acting)
        watched = memory if reader is None else belief.memory(reader) * reader.shadows
        places = np.searchsorted(held.places, belief.states * held.acting.memories + memory)
        nodes, weights = summed(places * size + belief.states * self._memories + watched, belief.weights)
        places, others = np.divmod(nodes, size)
        begin = np.searchsorted(places, np.arange(len(held.places) + 1))
        return Nodes(begin, others, weights[:, np.newaxis], np.zeros((len(held.places), 1)))

    def _step(self, nodes: Nodes) -> Nodes:
        """Return the nodes at the next pair."""
        trace, number = self._trace, self._at
        seen, edges, fresh = trace[number].seen, trace.onward(number), self._fresh(number + 1)
        held = min(len(nodes.done[0]), number + 1 - trace.first)  # offsets that are still held at the next pair
        held = held if self._deepest is None else min(held, self._deepest)
        if self._remaining is None or self._remaining.before != (self._columns, held):
            self._remaining = self._remain(held)
        columns, moved = self._remaining.columns, self._moved(nodes, self._remaining)
        first, then = self._parts(nodes, seen, columns, self._remaining.collected)
        width, size = len(columns) + 1, nodes.begin[-1]
        sums = self._tables.sums(self._memories, width)
        apart = _empty(len(seen.place), size, width, held + 1)
        _filled(lambda at: push_apart(seen, moved, first, then, apart, sums, at), apart)
        following = _empty(len(edges.begin) - 1, size + len(fresh.other), width, held + 1)
        _filled(lambda at: push(seen, edges, moved, apart, first, then, fresh, following, sums, at), following)
        self._columns = [(0, self._automaton.start), *((offset + 1, rest) for offset, rest in columns)]
        return following

    def _moved(self, nodes: Nodes, remaining: _Remaining) -> Nodes:
        """Return the nodes with their weights once labels have been read."""
        width = len(remaining.columns) + remaining.collected
        done = np.empty((len(nodes.begin) - 1, remaining.before[1]))
        moved = Nodes(nodes.begin, nodes.other, np.empty((nodes.begin[-1], width)), done)
        offsets = np.array([offset for offset, _ in self._columns])
        read_labels(nodes, self._memories, self._kinds, remaining.steps, offsets, moved, remaining.rewarded)
        return moved

    def _remain(self, held: int) -> _Remaining:
        """Return what remains of the columns of `held` offsets once labels are read."""
        automaton, index = self._automaton, dict[Column, int]()
        steps = np.full((len(self._sets), len(self._columns)), FALSE)
        rewarded = np.full(len(self._columns), -1)
        for n, (offset, obligation) in enumerate(self._columns):
            if offset >= held:
                continue
            for kind, mask in enumerate(self._sets):
                rest = automaton.step(obligation, mask)
                if rest not in (FALSE, TRUE):
                    rest = FIRST_COLUMN + index.setdefault((offset, rest), len(index))
                steps[kind, n] = rest
            if automaton.rewards(obligation):
                rewarded[n] = offset
        collects = bool((rewarded >= 0).any())
        rewarded[rewarded >= 0] += len(index)
        return _Remaining((self._columns, held), list(index), steps, rewarded, held * collects)

    def _parts(self, nodes: Nodes, seen: Glances, columns: list[Column], collected: int) -> tuple[Part, Part]:
        """Return who acts in which columns; `collected`: number of offsets whose rewards are collected."""
        steps = self._change.steps
        split = len(columns) if steps is None else sum(offset < steps for offset, _ in columns)
        over = collected if steps is None else min(steps, collected)
        first = self._part(nodes, seen, self._couplings[0], (0, split, 0, over))
        return first, self._part(nodes, seen, self._couplings[-1], (split, len(columns), over, collected))

    def _part(self, nodes: Nodes, seen: Glances, couplings: Couplings, its: tuple[int, int, int, int]) -> Part:
        """Return the part with these columns and offsets; one that has none needs no decisions."""
        acts = its[0] < its[1] or its[2] < its[3]
        first, found = self._located(couplings, nodes, seen) if acts else (NONE, NONE)
        chosen, count = np.empty((2, len(found)), np.int64), np.empty((2, len(first)), np.int64)
        return Part(couplings, first, found, chosen, count, *its)

    def _located(self, couplings: Couplings, nodes: Nodes, seen: Glances) -> tuple[Ints, Ints]:
        """Return where the decisions of each glance begin, and these, for all nodes beside its place."""
        known = self._found.get(couplings)
        if known is not None and known[0] is seen and known[1] is nodes and known[2] == couplings.epoch:
            return known[3], known[4]
        counts = np.diff(nodes.begin)[np.asarray(seen.place)]
        ends = np.cumsum(counts)
        first, found = ends - counts, np.empty(int(counts.sum()), np.int64)
        forget = True
        while not find_all(couplings, seen, nodes.begin, nodes.other, first, found):
            couplings.grow(forget=forget)
            forget = False
        self._found[couplings] = seen, nodes, couplings.epoch, first, found
        return first, found

    def _close(self, nodes: Nodes, *, terminated: bool) -> list[float]:
        """Return the values at the last pair, of each offset."""
        last, seen = self._trace[self._trace.last], self._trace.at_last()
        chances = np.bincount(np.asarray(seen.place), np.asarray(seen.weight), len(last.places))
        values: Floats = (np.asarray(nodes.done) * chances[:, np.newaxis]).sum(axis=0)
        offsets = np.array([offset for offset, _ in self._columns])
        states, position = self._tables.positions(np.asarray(nodes.other)[: nodes.begin[-1]] // self._memories)
        ends: list[tuple[int | None, int, int]] = [(None, 0, len(last.places))]
        if terminated:  # in the state of each place
            ended, begins = np.unique(last.places // last.acting.memories, return_index=True)
            bounds = [*begins.tolist(), len(last.places)]
            ends = list(zip(ended.tolist(), bounds[:-1], bounds[1:], strict=True))
        parts = self._parts(nodes, seen, self._columns, 0)
        for end, first, stop in ends:
            worths = self._tail.worths(self._columns, self._masks[states], states, end)
            for part in parts:
                if part.begin == part.end:
                    continue
                add_values(seen, nodes, part, part.table, offsets, position, worths, first, stop, values)
        return [value / last.share for value in values.tolist()]


def _empty(places: int, nodes: int, columns: int, offsets: int) -> Nodes:
    """Return nodes to be written: more fit than are expected."""
    fit = nodes + nodes // 2 + 64
    weights = np.empty((fit, columns)), np.empty((places, offsets))
    return Nodes(np.zeros(places + 1, np.int64), np.empty(fit, np.int64), *weights)


def _filled(write: Callable[[int], int], nodes: Nodes) -> None:
    """Write the nodes of all places, and make space where they find none."""
    at = write(0)
    while at < len(nodes.begin) - 1:
        nodes.grow()
        at = write(at)
