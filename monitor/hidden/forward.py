"""The pair chain carried forward over one observed pair, for all start points at once.

A *start point* is a held pair at which the intervention may begin; its offset counts the pairs since. A *node* is a
place of the true world and one of the counterfactual world; a *column* an offset with an obligation that may be pending
there. The weight of a node in a column is the probability of that place, pair of places and obligation, and of all that
was observed since the start point, given what was observed before. Rules:

- `read_labels` takes each column to the one that remains once the labels of the counterfactual state have been read.
  What is decided as TRUE leaves the nodes, and is kept by place of the true world: later observations weigh it.
- `push` sums up the weights of the next nodes, one place of the true world after the other; before it, `push_apart`
  does so for rows that are the same for all true successors.
- Nodes ascend by place and counterfactual place, and sums run in a fixed order. So a start point's answer has the same
  bits whether or not others are held: their weights add zeros.

Compiled.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from monitor.arrays import Floats, Ints, Shorts, longer
from monitor.exact.forward.unroll import FIRST_COLUMN
from monitor.hidden.couplings import Couplings, Glances
from monitor.logic import TRUE


@dataclass(eq=False)
class Nodes:
    """Weights of nodes.

    Of true place i: the nodes `begin[i]:begin[i + 1]`, and `done[i]` [offsets], what was decided or collected. Of a
    node: its counterfactual place in `other`, and `weights` [columns]. A counterfactual place is state * L + m, where
    the policy remembers `live[m]` of the memories `live` [L] that there may be at this pair; `local`: the m of each.
    """

    begin: Ints
    other: Ints
    weights: Floats
    done: Floats
    live: Ints
    local: Ints

    def grow(self) -> None:
        """Double the number of nodes that fit."""
        size = 2 * len(self.other)
        self.other, self.weights = longer(self.other, size), longer(self.weights, size)


@dataclass(eq=False)
class Edges:
    """Ways from the places of one pair to those of the next, by the latter.

    Into place i lead the edges `begin[i]:begin[i + 1]`. Of each: the `glance` at the first pair, the `rank` of the
    successor in its row, and the `chance`, the probability of both.
    """

    begin: Ints
    glance: Ints
    rank: Ints
    chance: Floats


@dataclass(eq=False)
class Part:
    """Columns in which one policy acts, and its decisions: from `found[first[g]]` on those of glance g, by node.

    `begin` to `end`: the columns; `offset_begin` to `offset_end`: the offsets whose rewards are collected. Written by
    `push_apart`: of glance g, the nodes from which rows lead that depend on the true successor, or that do not, in
    `chosen[depends, first[g]:]`, and their number, `count[depends, g]`.
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
    """Working memory of `push`: `weights` of the next nodes of one place, valid where `stamp` is the `clock`.

    Places from `low` to `high` are in use.
    """

    def __init__(self) -> None:
        self.stamp, self.weights = np.zeros(0, np.int64), np.zeros((0, 1))
        self.clock = self.low = self.high = 0

    def fit(self, places: int, columns: int) -> None:
        """Make space for so many places and columns."""
        if places > len(self.stamp) or columns > self.weights.shape[1]:
            places, columns = max(places, len(self.stamp)), max(columns, self.weights.shape[1])
            self.stamp, self.weights = np.zeros(places, np.int64), np.zeros((places, columns))


# ---- compiled ----


def read_labels(nodes: Nodes, kinds: Shorts, steps: Ints, offsets: Ints, moved: Nodes, rewarded: Ints) -> None:
    """Write the weights of all nodes, once the labels of their counterfactual states have been read, to `moved`.

    Args:
        nodes: before.
        kinds: [S] the label set of each state, by number.
        steps: [label sets, columns] what remains: FALSE, TRUE, or FIRST_COLUMN + the index of a column.
        offsets: [columns] of each column.
        moved: after, of the offsets that are held on; what it has `done` includes what `nodes` had. With rewards, its
            last columns have the weights whose reward is collected, by offset.
        rewarded: [columns] the column of `moved` for such a weight, or -1.
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


def push_apart(seen: Glances, moved: Nodes, first: Part, then: Part, apart: Nodes, sums: Sums, glance: int) -> int:
    """Write what follows from each glance whatever the true successor was, from one glance on.

    Such are rows that share no successor with the row that was: they are read once for all true successors. Returns
    the first glance that found no space, or their number.

    Args:
        seen: the pair.
        moved: from `read_labels`. Its column c leads to column c + 1, its offset o to offset o + 1.
        first, then: who acts.
        apart: the nodes beside each glance, as if these were places.
        sums: working memory.
        glance: where to begin.
    """
    while glance < len(seen.place):
        source = seen.place[glance]
        begin_place(apart, sums, glance)
        for offset in range(1, apart.done.shape[1]):
            apart.done[glance, offset] = moved.done[source, offset - 1]
        choose_nodes(moved, source, glance, first, first.table)
        choose_nodes(moved, source, glance, then, then.table)
        spread(moved, source, glance, -1, 1.0, first, first.table, apart, glance, sums)
        spread(moved, source, glance, -1, 1.0, then, then.table, apart, glance, sums)
        if not collect(apart, sums, glance):
            return glance
        glance += 1
    return glance


def push(
    seen: Glances,
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
    """Write the next nodes, from a true place on; return the first place that found no space, or their number.

    Args:
        seen: the pair.
        edges: to the places of the next pair.
        moved, apart: from `read_labels` and `push_apart`.
        first, then: who acts.
        fresh: the nodes of the start point at the next pair: column 0.
        following: the next nodes.
        sums: working memory.
        place: where to begin.
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
            glance, chance, rank = edges.glance[edge], edges.chance[edge], edges.rank[edge]
            source = seen.place[glance]
            for offset in range(following.done.shape[1]):
                following.done[place, offset] += chance * apart.done[glance, offset]
            for n in range(apart.begin[glance], apart.begin[glance + 1]):
                other = others[n]
                if stamp[other] != sums.clock:
                    begin_sums(sums, other, columns)
                for column in range(1, columns):
                    summed[other, column] += chance * weights[n, column]
            spread(moved, source, glance, rank, chance, first, first.table, following, place, sums)
            spread(moved, source, glance, rank, chance, then, then.table, following, place, sums)
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


def choose_nodes(moved: Nodes, source: int, glance: int, part: Part, table: Couplings) -> None:
    """Choose the nodes beside one glance that have weights in one part; `source`: place of the glance."""
    if part.begin == part.end and part.offset_begin == part.offset_end:
        return
    begin, first, weights = moved.begin[source], part.first[glance], moved.weights
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
    part.count[0, glance], part.count[1, glance] = alone - first, depending - first


def spread(
    moved: Nodes,
    source: int,
    glance: int,
    rank: int,
    chance: float,
    part: Part,
    table: Couplings,
    nodes: Nodes,
    place: int,
    sums: Sums,
) -> None:
    """Add what follows from one glance, in the columns of one part, to the sums of a place.

    `source`: place of the glance. `rank`: of the true successor; -1: along the rows that do not depend on it, else
    along the others. `chance`: a factor. `table`: that of the part.
    """
    if part.begin == part.end and part.offset_begin == part.offset_end:
        return
    memories, begin, first, depends = len(nodes.live), moved.begin[source], part.first[glance], int(rank >= 0)
    weights, summed, successors, chances = moved.weights, sums.weights, table.successors, table.chances
    shift, columns = weights.shape[1] - moved.done.shape[1], nodes.weights.shape[1]
    stamp, clock, low, high = sums.stamp, sums.clock, part.begin, part.end
    for at in range(first, first + part.count[depends, glance]):
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
    """Append the nodes of one true place; False: there is no space."""
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
    seen: Glances,
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
        seen: the pair.
        nodes: before its labels are read.
        part: who acts. table: that of the part.
        offsets: [columns] of each column.
        live, local: of the memories that there may be after the pair, as of nodes.
        position: where `worth` has a place, state * memories + memory of these; -1: nowhere.
        worth: [places, actions, columns] the value of an action in such a place.
        first, end: places of the true world.
        values: [offsets] sums.
    """
    before, memories = len(nodes.live), len(live)
    for place in range(first, end):
        begin = nodes.begin[place]
        for glance in range(seen.begin[place], seen.begin[place + 1]):
            for n in range(begin, nodes.begin[place + 1]):
                state = nodes.other[n] // before
                entry = part.found[part.first[glance] + n - begin]
                for d in range(table.begin[entry], table.begin[entry + 1]):
                    at, action = position[state * memories + local[table.after[d]]], table.action[d]
                    chance = seen.weight[glance] * table.likely[d]
                    for column in range(part.begin, part.end):
                        weight = chance * nodes.weights[n, column]
                        values[offsets[column]] += weight * worth[at, action, column - part.begin]
