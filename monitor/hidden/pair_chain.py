"""The pair chain: the hidden factual world together with the counterfactual world, under the same noise.

A *node* is a place of the factual world together with a place of the counterfactual world. `monitor.hidden.forward`
carries the weights of nodes, by offset and pending obligation, forward along the observed pairs. No smoother is needed,
because every weight includes the probability of all observations so far (docs/semantics/hidden.md, section 16.3).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from monitor.arrays import AnyArray, Floats, Ints
from monitor.errors import LimitError
from monitor.exact.forward.unroll import FIRST_COLUMN
from monitor.hidden.couplings import Couplings, LatentTable, find_all
from monitor.hidden.filtering import summed
from monitor.hidden.forward import Nodes, Part, add_values, push, push_apart, read_labels
from monitor.hidden.latent_steps import entries
from monitor.hidden.shared_tables import Tables
from monitor.hidden.tails import Column, Tail
from monitor.hidden.trace import Trace
from monitor.logic import FALSE, TRUE, Automaton
from monitor.model.mdp import MDP
from monitor.policy.controller import Reader

NONE: Final = np.zeros(0, np.int64)
MAX_NODES: Final = 20_000
"""Largest number of nodes of one pair with a recurrent network."""


@dataclass(frozen=True)
class Change:
    """An intervention: another policy for `steps` steps (None: for good), or other rows; with neither, no change."""

    reader: Reader | None = None
    steps: int | None = None
    dynamics: MDP | None = None

    def takes_over(self, offset: int) -> bool:
        """Return whether the other policy is in force at an offset from the intervention on."""
        return self.reader is not None and (self.steps is None or offset < self.steps)


@dataclass(frozen=True)
class Remaining:
    """The columns that remain after labels are read.

    `before`: the columns before the labels are read, and the number of offsets kept. `columns`: the columns that
    remain. `steps`, `rewarded`: as for `read_labels`. `collected`: number of offsets whose rewards are collected.
    """

    before: tuple[list[Column], int]
    columns: list[Column]
    steps: Ints
    rewarded: Ints
    collected: int


class PairChain:
    """Values of one measure under one change, at all offsets of a path. The chain advances with the path.

    Args:
        trace: the path.
        change: the intervention.
        automaton, masks: the automaton of the measure, and the label sets [S] of states.
        tables: the tables shared by all chains on one model.
        tail: the values beyond the path; None if no values are needed.
        deepest: the largest offset; None for all offsets of the path.
    """

    def __init__(
        self,
        trace: Trace,
        change: Change,
        *,
        automaton: Automaton,
        masks: AnyArray,
        tables: Tables,
        tail: Tail | None,
        deepest: int | None,
    ) -> None:
        self._trace, self._change, self._automaton, self._masks = trace, change, automaton, masks
        self._tables, self._tail, self._deepest = tables, tail, deepest
        sets, kinds = np.unique(masks, return_inverse=True)
        self._sets, self._kinds = sets.tolist(), kinds.astype(np.int32)
        dynamics = change.dynamics or trace.model
        self._couplings = [tables.couplings(each, dynamics) for each in dict.fromkeys((change.reader, None))]
        """Couplings of the policy that takes over, and of the policy that acts otherwise."""
        self._policy = trace.filter.readings(change.reader or trace.filter.nominal)
        """Readings of the policy whose memory is a part of a counterfactual place."""
        self._at = -1
        self._columns: list[Column] = []
        self._nodes: Nodes | None = None
        self._found: dict[Couplings, tuple[LatentTable, Nodes, int, Ints, Ints]] = {}
        self._remaining: Remaining | None = None
        self._answered: tuple[int, bool, int | None] | None = None
        self._values: list[float] = []

    def values(self, *, terminated: bool, only: int | None = None) -> list[float]:
        """Return the values of the measure at offsets 0, 1, ..., given all that was observed.

        `only`: the offset that is needed; None for all. Raises LimitError if a network may have too many memories.
        """
        asked = self._trace.last, terminated, only
        if self._answered != asked:
            nodes = self._at_last()
            self._values, self._answered = self._close(nodes, only, terminated=terminated), asked
        return self._values

    def pairs(self) -> Iterator[tuple[int, Nodes]]:
        """Yield the number of each remaining pair, and its nodes. The last column belongs to the oldest offset."""
        nodes = self._begin()
        yield self._at, nodes
        while self._at < self._trace.last:
            nodes = self._advance()
            yield self._at, nodes

    def departures(self, nodes: Nodes) -> Iterator[tuple[int, int, int, int, float]]:
        """Yield the possible decisions at the last pair, in the last column.

        Each has the index of the true place, the counterfactual state, the action, the memory after it, and the
        probability.
        """
        last, seen = self._trace[self._trace.last], self._trace.at_last()
        column = len(self._columns) - 1
        for part in self._parts(nodes, seen, self._columns, 0):
            if part.begin <= column < part.end:
                latents, node, decision = _decisions(nodes, seen, part)
                table = part.table
                weights = np.asarray(nodes.weights)[node, column] * np.asarray(seen.weight)[latents]
                weights *= np.asarray(table.likely)[decision] / last.share
                found = (
                    np.asarray(seen.place)[latents],
                    np.asarray(nodes.other)[node] // len(nodes.live),
                    np.asarray(table.action)[decision],
                    np.asarray(table.after)[decision],
                    weights,
                )
                yield from zip(*(each[weights > 0.0].tolist() for each in found), strict=True)

    def _at_last(self) -> Nodes:
        """Return the nodes at the last pair, and advance the chain to it."""
        nodes = self._begin()
        while self._at < self._trace.last:
            nodes = self._advance()
        return nodes

    def _begin(self) -> Nodes:
        """Return the nodes at the chain's newest pair; if it must begin again, those of the oldest start point."""
        trace = self._trace
        oldest = trace.first if self._deepest is None else max(trace.first, trace.last - self._deepest)
        if self._nodes is None or self._at < oldest:
            starts = trace[oldest].starts(self._change.reader)
            self._at, self._columns = oldest, [(0, self._automaton.start)]
            self._nodes = self._fresh(oldest, starts, self._policy.live(starts[2]))
        return self._nodes

    def _advance(self) -> Nodes:
        """Advance to the next pair, and return its nodes."""
        assert self._nodes is not None
        self._nodes = self._step(self._nodes)
        self._at += 1
        return self._nodes

    def _fresh(self, number: int, starts: tuple[Ints, Ints, Ints, Floats], live: Ints) -> Nodes:
        """Return the nodes of the start points at pair `number`."""
        states, places, memories, weights = starts
        count, size = len(self._trace[number].places), self._trace.model.states * len(live)
        others = states * len(live) + self._policy.numbered(live, memories)
        nodes, weights = summed(places * size + others, weights)
        places, others = np.divmod(nodes, size)
        begin = np.searchsorted(places, np.arange(count + 1))
        return Nodes(begin, others, weights[:, np.newaxis], np.zeros((count, 1)), live, self._policy.inverse(live))

    def _step(self, nodes: Nodes) -> Nodes:
        """Return the nodes at the next pair."""
        trace, number = self._trace, self._at
        seen, edges, starts = trace[number].seen, trace.onward(number), trace[number + 1].starts(self._change.reader)
        held = min(len(nodes.done[0]), number + 1 - trace.first)  # number of offsets kept at the next pair
        held = held if self._deepest is None else min(held, self._deepest)
        if self._remaining is None or self._remaining.before != (self._columns, held):
            self._remaining = remain(self._automaton, self._sets, self._columns, held)
        columns, moved = self._remaining.columns, self._moved(nodes, self._remaining)
        first, then = self._parts(nodes, seen, columns, self._remaining.collected)
        live = self._afterwards((first, then), starts[2])
        fresh = self._fresh(number + 1, starts, live)
        width, size = len(columns) + 1, nodes.begin[-1]
        sums = self._tables.sums(trace.model.states * len(live), width)
        apart = _empty(fresh, len(seen.place), size, (width, held + 1))
        _filled(lambda at: push_apart(seen, moved, first, then, apart, sums, at), apart)
        following = _empty(fresh, len(edges.begin) - 1, size + len(fresh.other), (width, held + 1))
        _filled(lambda at: push(seen, edges, moved, apart, first, then, fresh, following, sums, at), following)
        if (self._policy.reader.width or trace[number].acting.width) and following.begin[-1] > MAX_NODES:
            raise LimitError(
                "a recurrent network may remember too much: what happened and what would have happened has more "
                f"than {MAX_NODES:,} possible courses at a step of the path (limit MAX_NODES); use a smaller offset"
            )
        self._columns = [(0, self._automaton.start), *((offset + 1, rest) for offset, rest in columns)]
        return following

    def _afterwards(self, parts: tuple[Part, Part], memories: Ints) -> Ints:
        """Return the possible memories after a pair; `memories`: some of these."""
        if self._policy.listed:
            return self._policy.live(memories)
        found = [memories]
        for part in parts:
            _, decisions = entries(np.asarray(part.table.begin), np.unique(np.asarray(part.found)))
            found.append(np.asarray(part.table.after)[decisions])
        return self._policy.live(np.concatenate(found))

    def _moved(self, nodes: Nodes, remaining: Remaining) -> Nodes:
        """Return the nodes with their weights after labels are read."""
        width = len(remaining.columns) + remaining.collected
        done = np.empty((len(nodes.begin) - 1, remaining.before[1]))
        moved = Nodes(nodes.begin, nodes.other, np.empty((nodes.begin[-1], width)), done, nodes.live, nodes.local)
        offsets = np.array([offset for offset, _ in self._columns])
        read_labels(nodes, self._kinds, remaining.steps, offsets, moved, remaining.rewarded)
        return moved

    def _parts(
        self,
        nodes: Nodes,
        seen: LatentTable,
        columns: list[Column],
        collected: int,
        wanted: tuple[int, int] | None = None,
    ) -> tuple[Part, Part]:
        """Return the parts: which policy acts in which columns.

        `collected`: number of offsets whose rewards are collected. `wanted`: the first and last (exclusive) column that
        is needed; None for all.
        """
        low, high = wanted or (0, len(columns))
        steps = self._change.steps
        split = len(columns) if steps is None else sum(offset < steps for offset, _ in columns)
        over = collected if steps is None else min(steps, collected)
        split = min(max(split, low), high)
        first = self._part(nodes, seen, self._couplings[0], (low, split, 0, over))
        return first, self._part(nodes, seen, self._couplings[-1], (split, high, over, collected))

    def _part(self, nodes: Nodes, seen: LatentTable, couplings: Couplings, its: tuple[int, int, int, int]) -> Part:
        """Return a part; `its`: first and last (exclusive) column, then offset. An empty part needs no decisions."""
        acts = its[0] < its[1] or its[2] < its[3]
        first, found = self._located(couplings, nodes, seen) if acts else (NONE, NONE)
        chosen, count = np.empty((2, len(found)), np.int64), np.empty((2, len(first)), np.int64)
        return Part(couplings, first, found, chosen, count, *its)

    def _located(self, couplings: Couplings, nodes: Nodes, seen: LatentTable) -> tuple[Ints, Ints]:
        """Return `Part.first` and `Part.found`: the decisions for each latent step and each node of its place."""
        known = self._found.get(couplings)
        if known is not None and known[0] is seen and known[1] is nodes and known[2] == couplings.epoch:
            return known[3], known[4]
        counts = np.diff(nodes.begin)[np.asarray(seen.place)]
        ends = np.cumsum(counts)
        first, found = ends - counts, np.empty(int(counts.sum()), np.int64)
        at, forget = 0, True
        while (at := find_all(couplings, seen, nodes.begin, nodes.other, nodes.live, first, found, at)) < len(first):
            epoch, full = couplings.epoch, couplings.unknown < 0
            couplings.make_space(seen, forget=forget)
            at, forget = at if couplings.epoch == epoch else 0, forget and not full
        self._found[couplings] = seen, nodes, couplings.epoch, first, found
        return first, found

    def _close(self, nodes: Nodes, only: int | None, *, terminated: bool) -> list[float]:
        """Return the value of each offset at the last pair; with `only`, only the value of this offset is defined."""
        last, seen = self._trace[self._trace.last], self._trace.at_last()
        chances = np.bincount(np.asarray(seen.place), np.asarray(seen.weight), len(last.places))
        values: Floats = (np.asarray(nodes.done) * chances[:, np.newaxis]).sum(axis=0)
        offsets = np.array([offset for offset, _ in self._columns])
        ends: list[tuple[int | None, int, int]] = [(None, 0, len(last.places))]
        if terminated:  # in the state of each place
            ended, begins = np.unique(last.split()[0], return_index=True)
            bounds = [*begins.tolist(), len(last.places)]
            ends = list(zip(ended.tolist(), bounds[:-1], bounds[1:], strict=True))
        wanted = (0, len(offsets)) if only is None else np.searchsorted(offsets, [only, only + 1]).tolist()
        parts = self._parts(nodes, seen, self._columns, 0, wanted)
        live = self._afterwards(parts, NONE)
        local = self._policy.inverse(live)
        for part in parts:
            if part.begin == part.end:
                continue
            columns = self._columns[part.begin : part.end]
            for end, first, stop in ends:
                worths, position = self._worths(nodes, seen, part, live, (columns, end, first, stop))
                add_values(seen, nodes, part, part.table, offsets, live, local, position, worths, first, stop, values)
        return [value / last.share for value in values.tolist()]

    def _worths(
        self, nodes: Nodes, seen: LatentTable, part: Part, live: Ints, its: tuple[list[Column], int | None, int, int]
    ) -> tuple[Floats, Ints]:
        """Return the values of actions, and the index of each place in these values, as for `add_values`.

        `its`: the columns, the absorbing state (None if there is none), and the range of true places.
        """
        (columns, end, first, stop), tail, size = its, self._tail, len(nodes.live)
        assert tail is not None
        if self._policy.listed:
            others = np.asarray(nodes.other)[: nodes.begin[-1]] // size
            states, position = self._tables.positions(others, len(live))
            return tail.worths(columns, self._masks[states], states, end), position
        latents, node, decision = _decisions(nodes, seen, part)
        place = np.asarray(seen.place)[latents]
        kept = (place >= first) & (place < stop)
        node, decision = node[kept], decision[kept]
        states, after = np.asarray(nodes.other)[node] // size, np.asarray(part.table.after)[decision]
        places = states * len(live) + self._policy.numbered(live, after)
        different, which = np.unique(places, return_inverse=True)
        # A value may be expensive, so it is not computed for a node without weight in the column.
        wanted = np.zeros((max(len(different), 1), self._trace.model.actions, len(columns)), np.bool_)
        chosen, at = np.nonzero(np.asarray(nodes.weights)[node, part.begin : part.end])
        wanted[which[chosen], np.asarray(part.table.action)[decision][chosen], at] = True
        position = np.zeros(self._trace.model.states * len(live), np.int64)
        position[different] = np.arange(len(different))
        pairs = np.stack([different // len(live), live[different % len(live)]], axis=1)
        return tail.network_worths(columns, pairs, wanted, end), position


def remain(automaton: Automaton, sets: Sequence[int], columns: list[Column], held: int) -> Remaining:
    """Return the columns that remain after labels are read; only the first `held` offsets are kept.

    `sets`: the different label sets.
    """
    index = dict[Column, int]()
    steps, rewarded = np.full((len(sets), len(columns)), FALSE), np.full(len(columns), -1)
    for n, (offset, obligation) in enumerate(columns):
        if offset >= held:
            continue
        for kind, mask in enumerate(sets):
            rest = automaton.step(obligation, mask)
            if rest not in (FALSE, TRUE):
                rest = FIRST_COLUMN + index.setdefault((offset, rest), len(index))
            steps[kind, n] = rest
        if automaton.rewards(obligation):
            rewarded[n] = offset
    collects = bool((rewarded >= 0).any())
    rewarded[rewarded >= 0] += len(index)
    return Remaining((columns, held), list(index), steps, rewarded, held * collects)


def _decisions(nodes: Nodes, seen: LatentTable, part: Part) -> tuple[Ints, Ints, Ints]:
    """Return the latent step, the node and the index of each decision of a part."""
    of, node = entries(np.asarray(nodes.begin), np.asarray(seen.place))
    which, decision = entries(np.asarray(part.table.begin), np.asarray(part.found))
    return of[which], node[which], decision


def _empty(like: Nodes, places: int, nodes: int, widths: tuple[int, int]) -> Nodes:
    """Return empty nodes with space for `places` places and about `nodes` nodes; `widths`: columns and offsets."""
    fit, (columns, offsets) = nodes + nodes // 2 + 64, widths
    weights = np.empty((fit, columns)), np.empty((places, offsets))
    return Nodes(np.zeros(places + 1, np.int64), np.empty(fit, np.int64), *weights, like.live, like.local)


def _filled(write: Callable[[int], int], nodes: Nodes) -> None:
    """Write the nodes of all places, and enlarge `nodes` whenever there is no space."""
    at = write(0)
    while at < len(nodes.begin) - 1:
        nodes.grow()
        at = write(at)
