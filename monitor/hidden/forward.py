"""Carry the pair chain forward over one observed pair, for all start points at once.

A *start point* is a pair of the window at which the intervention may begin; its offset is the number of later pairs. A
*node* is a place of the factual world together with one of the counterfactual world. A *column* is an offset together
with an obligation that may be pending there. The weight of a node in a column is the joint probability of the two
places, the obligation and all observations since the start point, given the observations before the start point. Rules:

- `read_labels` moves each column to the column of the obligation that remains after the labels of the counterfactual
  state. Weight that is decided as TRUE leaves the nodes and is stored by true place, because later observations still
  change its probability.
- `push` sums the weights of the next nodes, one true place after another. Before `push`, `push_apart` does the same for
  rows that are equal for all true successors.
- Nodes ascend by place and counterfactual place, and sums have a fixed order. So the answer of a start point has the
  same bits with or without other start points, whose weights only add zeros.

Compiled.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from monitor.arrays import Floats, Ints, Shorts, longer
from monitor.exact.forward.unroll import FIRST_COLUMN
from monitor.hidden.couplings import Couplings, LatentTable
from monitor.logic import TRUE


@dataclass(eq=False)
class Nodes:
    """Weights of nodes.

    True place i has the nodes `begin[i]:begin[i + 1]`, and `done[i]` [offsets], the weight decided or the reward
    collected. Each node has its counterfactual place in `other`, and `weights` [columns]. A counterfactual place is
    state * L + m, where `live[m]` is the policy's memory, and `live` [L] are the possible memories at this pair;
    `local`: the m of each memory.
    """

    begin: Ints
    other: Ints
    weights: Floats
    done: Floats
    live: Ints
    local: Ints

    def grow(self) -> None:
        """Double the space for nodes."""
        size = 2 * len(self.other)
        self.other, self.weights = longer(self.other, size), longer(self.weights, size)


@dataclass(eq=False)
class Edges:
    """Edges from the places of one pair to the places of the next pair, grouped by the place of the next pair.

    The edges `begin[i]:begin[i + 1]` lead to place i. Each has the `latent` step at the first pair, the `rank` of the
    successor in its row, and the `chance`, the probability of both.
    """

    begin: Ints
    latent: Ints
    rank: Ints
    chance: Floats


@dataclass(eq=False)
class Part:
    """Columns in which one policy acts, and the policy's decisions.

    The decisions for step g are `found[first[g]:]`, one entry for each node of its place. `begin` to `end`: the
    columns; `offset_begin` to `offset_end`: the offsets whose rewards are collected. `push_apart` divides the nodes of
    step g by whether their rows depend on the true successor (`depends`: 1 or 0). It writes them to `chosen[depends,
    first[g]:]`, and their number to `count[depends, g]`.
    """

    table: Couplings
    first: Ints
    found: Ints
    chosen: Ints
    count: Ints
    begin: int
    end: int
    offset_begin: int
    offset_end: int


class Sums:
    """Working memory of `push`: `weights` of the next nodes of one place, valid if `stamp` equals `clock`.

    The places from `low` to `high` are in use.
    """

    def __init__(self) -> None:
        self.stamp, self.weights = np.zeros(0, np.int64), np.zeros((0, 1))
        self.clock = self.low = self.high = 0

    def fit(self, places: int, columns: int) -> None:
        """Make space for `places` places and `columns` columns."""
        if places > len(self.stamp) or columns > self.weights.shape[1]:
            places, columns = max(places, len(self.stamp)), max(columns, self.weights.shape[1])
            self.stamp, self.weights = np.zeros(places, np.int64), np.zeros((places, columns))


# ---- compiled ----


def read_labels(nodes: Nodes, kinds: Shorts, steps: Ints, offsets: Ints, moved: Nodes, rewarded: Ints) -> None:
    """Write to `moved` the weights of all nodes after the labels of their counterfactual states.

    Args:
        nodes: the nodes before the labels are read.
        kinds: [S] the number of each state's label set.
        steps: [label sets, columns] the obligation that remains: FALSE, TRUE, or FIRST_COLUMN + the index of a column.
        offsets: [columns] the offset of each column.
        moved: the nodes after the labels are read, for the offsets that are kept. Its `done` includes the `done` of
            `nodes`. With rewards, its last columns have the weights whose reward is collected, by offset.
        rewarded: [columns] the column of `moved` for a weight whose reward is collected, or -1.
    """
    width, memories = nodes.weights.shape[1], len(nodes.live)
    for place in range(len(nodes.begin) - 1):
        for offset in range(moved.done.shape[1]):
            moved.done[place, offset] = nodes.done[place, offset]
        for n in range(nodes.begin[place], nodes.begin[place + 1]):
            kind = kinds[nodes.other[n] // memories]
            for column in range(moved.weights.shape[1]):
                moved.weights[n, column] = 0.0
            for column in range(width):
                weight, to = nodes.weights[n, column], steps[kind, column]
                if to >= FIRST_COLUMN:
                    moved.weights[n, to - FIRST_COLUMN] += weight
                elif to == TRUE:
                    moved.done[place, offsets[column]] += weight
                if rewarded[column] >= 0:
                    moved.weights[n, rewarded[column]] += weight


def push_apart(seen: LatentTable, moved: Nodes, first: Part, then: Part, apart: Nodes, sums: Sums, latent: int) -> int:
    """Write the next nodes of each latent step that do not depend on the true successor, from step `latent` on.

    These nodes come from rows that share no successor with the true row, so these nodes are computed once for all true
    successors. Returns the first step for which there is no space, or the number of steps.

    Args:
        seen: the latent steps of the pair.
        moved: the result of `read_labels`. Its column c leads to column c + 1, its offset o to offset o + 1.
        first, then: the parts of the policies that act.
        apart: the next nodes of each latent step. In `apart`, latent steps take the role of places.
        sums: working memory.
        latent: the first latent step to process.
    """
    while latent < len(seen.place):
        source = seen.place[latent]
        begin_place(apart, sums, latent)
        for offset in range(1, apart.done.shape[1]):
            apart.done[latent, offset] = moved.done[source, offset - 1]
        choose_nodes(moved, source, latent, first, first.table)
        choose_nodes(moved, source, latent, then, then.table)
        spread(moved, source, latent, -1, 1.0, first, first.table, apart, latent, sums)
        spread(moved, source, latent, -1, 1.0, then, then.table, apart, latent, sums)
        if not collect(apart, sums, latent):
            return latent
        latent += 1
    return latent


def push(
    seen: LatentTable,
    edges: Edges,
    moved: Nodes,
    apart: Nodes,
    first: Part,
    then: Part,
    fresh: Nodes,
    following: Nodes,
    sums: Sums,
    place: int,
) -> int:
    """Write the next nodes, from true place `place` on.

    Returns the first place for which there is no space, or the number of places.

    Args:
        seen: the latent steps of the pair.
        edges: the edges to the places of the next pair.
        moved, apart: the results of `read_labels` and `push_apart`.
        first, then: the parts of the policies that act.
        fresh: the nodes of the start point at the next pair, for column 0.
        following: the next nodes, written here.
        sums: working memory.
        place: the first place to process.
    """
    others, weights, summed, stamp = apart.other, apart.weights, sums.weights, sums.stamp
    columns = following.weights.shape[1]
    while place < len(edges.begin) - 1:
        begin_place(following, sums, place)
        for n in range(fresh.begin[place], fresh.begin[place + 1]):
            other = fresh.other[n]
            if stamp[other] != sums.clock:
                begin_sums(sums, other, columns)
            summed[other, 0] += fresh.weights[n, 0]
        for edge in range(edges.begin[place], edges.begin[place + 1]):
            latent, chance, rank = edges.latent[edge], edges.chance[edge], edges.rank[edge]
            source = seen.place[latent]
            for offset in range(following.done.shape[1]):
                following.done[place, offset] += chance * apart.done[latent, offset]
            for n in range(apart.begin[latent], apart.begin[latent + 1]):
                other = others[n]
                if stamp[other] != sums.clock:
                    begin_sums(sums, other, columns)
                for column in range(1, columns):
                    summed[other, column] += chance * weights[n, column]
            spread(moved, source, latent, rank, chance, first, first.table, following, place, sums)
            spread(moved, source, latent, rank, chance, then, then.table, following, place, sums)
        if not collect(following, sums, place):
            return place
        place += 1
    return place


def begin_place(nodes: Nodes, sums: Sums, place: int) -> None:
    """Begin the sums of one place."""
    sums.clock += 1
    sums.low, sums.high = len(sums.stamp), 0
    for offset in range(nodes.done.shape[1]):
        nodes.done[place, offset] = 0.0


def choose_nodes(moved: Nodes, source: int, latent: int, part: Part, table: Couplings) -> None:
    """Select the nodes of one latent step that have weights in one part; `source`: the place of the step."""
    if part.begin == part.end and part.offset_begin == part.offset_end:
        return
    begin, first, weights = moved.begin[source], part.first[latent], moved.weights
    shift, alone, depending = weights.shape[1] - moved.done.shape[1], first, first
    for n in range(begin, moved.begin[source + 1]):
        some = False
        for column in range(part.begin, part.end):
            some = some or weights[n, column] > 0.0
        for offset in range(part.offset_begin, part.offset_end):
            some = some or weights[n, shift + offset] > 0.0
        if not some:
            continue
        entry, rows = part.found[first + n - begin], 0
        for d in range(table.begin[entry], table.begin[entry + 1]):
            rows |= 1 + table.rows[d] % 2
        part.chosen[0, alone] = part.chosen[1, depending] = n
        alone += rows % 2
        depending += rows // 2
    part.count[0, latent], part.count[1, latent] = alone - first, depending - first


def spread(
    moved: Nodes,
    source: int,
    latent: int,
    rank: int,
    chance: float,
    part: Part,
    table: Couplings,
    nodes: Nodes,
    place: int,
    sums: Sums,
) -> None:
    """Add the next weights of one latent step, in the columns of one part, to the sums of a place.

    `source`: the place of the step. `rank`: the rank of the true successor, to use the rows that depend on it; -1: use
    the rows that do not depend on it. `chance`: a factor. `table`: the table of the part.
    """
    if part.begin == part.end and part.offset_begin == part.offset_end:
        return
    memories, begin, first, depends = len(nodes.live), moved.begin[source], part.first[latent], int(rank >= 0)
    weights, summed, successors, chances = moved.weights, sums.weights, table.successors, table.chances
    shift, columns = weights.shape[1] - moved.done.shape[1], nodes.weights.shape[1]
    stamp, clock, low, high = sums.stamp, sums.clock, part.begin, part.end
    for at in range(first, first + part.count[depends, latent]):
        n = part.chosen[depends, at]
        entry = part.found[first + n - begin]
        for d in range(table.begin[entry], table.begin[entry + 1]):
            if table.rows[d] % 2 != depends:
                continue
            likely, row, after = (
                chance * table.likely[d],
                table.rows[d] // 2 + depends * rank,
                nodes.local[table.after[d]],
            )
            for offset in range(part.offset_begin, part.offset_end):
                nodes.done[place, offset + 1] += likely * table.row_reward[row] * weights[n, shift + offset]
            if part.begin == part.end:
                continue
            for k in range(table.row_begin[row], table.row_begin[row + 1]):
                other, weight = successors[k] * memories + after, likely * chances[k]
                if stamp[other] != clock:
                    begin_sums(sums, other, columns)
                for column in range(low, high):
                    summed[other, column + 1] += weight * weights[n, column]


def begin_sums(sums: Sums, other: int, columns: int) -> None:
    """Begin the sums of a counterfactual place."""
    sums.stamp[other] = sums.clock
    for column in range(columns):
        sums.weights[other, column] = 0.0
    sums.low, sums.high = min(sums.low, other), max(sums.high, other + 1)


def collect(following: Nodes, sums: Sums, place: int) -> bool:
    """Append the nodes of one true place; return False if there is no space."""
    count = following.begin[place]
    for other in range(sums.low, sums.high):
        if sums.stamp[other] != sums.clock:
            continue
        if count == len(following.other):
            return False
        following.other[count] = other
        for column in range(following.weights.shape[1]):
            following.weights[count, column] = sums.weights[other, column]
        count += 1
    following.begin[place + 1] = count
    return True


def add_values(
    seen: LatentTable,
    nodes: Nodes,
    part: Part,
    table: Couplings,
    offsets: Ints,
    live: Ints,
    local: Ints,
    position: Ints,
    worth: Floats,
    first: int,
    end: int,
    values: Floats,
) -> None:
    """Add the values of all nodes of the true places `first` to `end`, at the last pair, to `values` [offsets].

    Args:
        seen: the latent steps of the pair.
        nodes: the nodes before the labels are read.
        part: the part of the policy that acts.
        table: the table of the part.
        offsets: [columns] the offset of each column.
        live, local: the possible memories after the pair, as in `Nodes`.
        position: the index in `worth` of each place, state * memories + memory in `live`; -1 if it is not there.
        worth: [places, actions, columns] the value of an action in a place.
        first, end: the range of true places.
        values: [offsets] the sums, added to here.
    """
    before, memories = len(nodes.live), len(live)
    for place in range(first, end):
        begin = nodes.begin[place]
        for latent in range(seen.begin[place], seen.begin[place + 1]):
            for n in range(begin, nodes.begin[place + 1]):
                state = nodes.other[n] // before
                entry = part.found[part.first[latent] + n - begin]
                for d in range(table.begin[entry], table.begin[entry + 1]):
                    at, action = position[state * memories + local[table.after[d]]], table.action[d]
                    chance = seen.weight[latent] * table.likely[d]
                    for column in range(part.begin, part.end):
                        weight = chance * nodes.weights[n, column]
                        values[offsets[column]] += weight * worth[at, action, column - part.begin]
