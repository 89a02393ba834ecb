"""Bounds of a value over a class of causal models: forward reachability, then backward induction. Compiled.

See docs/semantics.md, section 6.3. Each row is known up to bounds of its entries; backward induction takes, at each
(offset, state, obligation), the distribution between them with the smallest (largest) value. Rules:

- The row is chosen for each (offset, state, obligation) by itself. So the interval is attained if at most one
  obligation remains at each (offset, state), as for U, F and G over state formulas; otherwise it may be wider
  than necessary, never narrower.
- Level o holds the nodes (column, state) that some causal model of the class reaches at offset o, by column; its edges
  lead to level o + 1, listed by target column as in `step.py`.
- Forward, a node's `low` and `high` collect what its edges decide at once; backward, they get the rest.
- If a level is full the loop stops with LEVELS_FULL and begins anew when it is called again.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from monitor.arrays import Floats, Ints, Shorts
from monitor.causal.row import greedy
from monitor.exact.forward.close import closing_value
from monitor.exact.forward.row_table import find_slot
from monitor.exact.forward.rows import FULL, find_entry, find_observed, phase_at
from monitor.exact.forward.step import DONE, NOT_COMPUTED, TABLE_FULL, TRUE, Context
from monitor.exact.forward.unroll import FIRST_COLUMN
from monitor.jit import compiled, inlined

__all__ = ["LEVELS_FULL", "WORD", "Levels", "backward", "forward", "interval"]


LEVELS_FULL = 5
"""Status besides those of `step.py`: a part of `Levels` is full; `Scratch.missing`: the part, the length it needs."""
OFFSETS, NODES, EDGES = range(3)
"""The parts: `first_node`, the arrays of nodes, `edges`."""
SHORT = 8
"""Up to this length a row's best successors are found one by one, without ranks."""
WORD, DE_BRUIJN = 32, 0x077CB531
"""Bits of an entry of `Levels.marked`; a number whose shifts by 0 to 31 differ in bits 27 to 31."""
LOWEST_BIT = np.argsort([DE_BRUIJN << shift >> 27 & (WORD - 1) for shift in range(WORD)])
"""Which bit a power of two is, by bits 27 to 31 of its product with DE_BRUIJN."""


class Levels(NamedTuple):
    """Reached nodes and the edges between them, offset by offset.

    Level o has the nodes `first_node[o]:first_node[o + 1]`, each with a `column`, a `state` and the bounds `low`,
    `high` of its value. `edges` [n, 4]: source node, row, next edge into the same column, whether a reward is
    collected; `edge_count[o]`: edges before level o. `first_edge` [nodes]: for the first node of a column in its level,
    the first edge into that column. `row_values` [2, S]: of one row's successors `low`, and `high` negated. Of one
    column of a level, by ascending `low` and by descending `high`: `rank` [S, 2] of each state, and `by_rank` [2, S],
    the value of each rank; and of one row, `marked` [2, S / 32], the ranks that it has as a set of bits, and `place`
    [2, S], the successor of each.
    """

    first_node: Ints
    edge_count: Ints
    column: Ints
    state: Shorts
    first_edge: Ints
    low: Floats
    high: Floats
    edges: Ints
    row_values: Floats
    rank: Ints
    by_rank: Floats
    marked: Ints
    place: Ints


@compiled
def interval(context: Any, levels: Any, kind: int, states: Ints, actions: Ints, bounds: Floats) -> int:
    """Write the lowest and the highest value from the first pair into `bounds` [2]; return a status."""
    inner, reached = context.value, levels.value
    status = reach(inner, reached, kind, states, actions)
    if status != DONE:
        return status
    last = len(states) - 1
    status = close_level(inner, reached, last, states[last], actions[last])
    if status != DONE:
        return status
    induct_backward(inner, reached, last, bounds)
    return DONE


@compiled
def forward(context: Any, levels: Any, kind: int, states: Ints, actions: Ints) -> int:
    """Do the first half of `interval`; the caller fills in the values of the last level's nodes. Return a status."""
    return reach(context.value, levels.value, kind, states, actions)


@compiled
def backward(context: Any, levels: Any, last: int, bounds: Floats) -> None:
    """Do the second half of `interval`; `last`: the last level."""
    induct_backward(context.value, levels.value, last, bounds)


@inlined
def close_level(context: Context, levels: Levels, last: int, s: int, a: int) -> int:
    """Give the nodes of the last level their values at the last observed pair s, a; return a status."""
    dynamics, _, automaton, future, scratch = context
    states, columns, low, high, values = levels.state, levels.column, levels.low, levels.high, future.values
    phase = phase_at(dynamics, last)
    unchanged = a >= 0 and dynamics.is_nominal[phase]
    conditioned = a >= 0 and dynamics.stochastic[phase] and len(dynamics.nominal_policy_probabilities) > 0
    for node in range(levels.first_node[last], levels.first_node[last + 1]):
        state, column = states[node], columns[node]
        vector = future.vector[last, column]
        if conditioned or (unchanged and state == s) or vector == NOT_COMPUTED:
            value, status = closing_value(dynamics, automaton, future, last, column, state, s, a, scratch.missing)
            if status != DONE:
                return status
            low[node] = high[node] = value
        else:  # as `closing_value`, inlined: most nodes
            low[node] = high[node] = values[vector, state]
    return DONE


@inlined
def reach(context: Context, levels: Levels, kind: int, states: Ints, actions: Ints) -> int:
    """Fill the levels up to the last observed pair with all that some causal model reaches; return a status."""
    if len(states) + 1 > len(levels.first_node):
        context.scratch.missing[0], context.scratch.missing[1] = OFFSETS, len(states) + 1
        return LEVELS_FULL
    levels.first_node[0], levels.first_node[1], levels.edge_count[0] = 0, 1, 0
    levels.column[0], levels.state[0] = 0, states[0]
    for offset in range(len(states) - 1):
        status = label_level(context, levels, kind, offset, states[offset], actions[offset], states[offset + 1])
        if status == DONE:
            status = next_level(context, levels, offset)
        if status != DONE:
            return status
    return DONE


@inlined
def label_level(context: Context, levels: Levels, kind: int, offset: int, s: int, a: int, s_next: int) -> int:
    """Read the labels of a level's nodes: list its edges by target column, collect what is decided; return a status."""
    dynamics, table, automaton, _, scratch = context
    edges, edge_lists, low, high = levels.edges, scratch.edge_lists, levels.low, levels.high
    keys, entries = table.entry_keys, table.entry_values
    size, actions = dynamics.rewards.shape
    scratch.clock[0] += 1
    count = levels.edge_count[offset]
    phase = phase_at(dynamics, offset)
    observed = find_observed(dynamics, table, phase, s, a, s_next)
    if observed == FULL:
        return TABLE_FULL
    for node in range(levels.first_node[offset], levels.first_node[offset + 1]):
        state, column = levels.state[node], levels.column[node]
        low[node] = high[node] = 0.0
        key = observed * size + state
        slot = find_slot(keys, key)
        entry = entries[slot]
        if keys[slot] != key:
            entry = find_entry(dynamics, table, kind, phase, observed, s, a, s_next, state)
            if entry == FULL:
                return TABLE_FULL
        for row in range(table.entry_begin[entry], table.entry_begin[entry + 1]):
            label = automaton.label_of[state * actions + table.action[row] if automaton.by_action else state]
            transition = automaton.ranges[column, label, 0]
            while automaton.transitions[transition, 1] <= offset:
                transition += 1
            target, rewarded = automaton.transitions[transition, 2], automaton.transitions[transition, 3]
            if rewarded:
                low[node] += table.reward[row]
                high[node] += table.reward[row]
            if target == TRUE:
                low[node] += table.weight[row]
                high[node] += table.weight[row]
            elif target >= FIRST_COLUMN:
                if count == len(edges):
                    scratch.missing[0], scratch.missing[1] = EDGES, count + 1
                    return LEVELS_FULL
                target -= FIRST_COLUMN
                if edge_lists[target, 0] != scratch.clock[0]:
                    edge_lists[target, 0], edge_lists[target, 1] = scratch.clock[0], count
                else:
                    edges[edge_lists[target, 2], 2] = count
                edge_lists[target, 2] = count
                edges[count, 0], edges[count, 1], edges[count, 2], edges[count, 3] = node, row, -1, rewarded
                count += 1
            elif rewarded:  # no obligation remains: only the rewards of the successors depend on the row
                begin, end = table.row_begin[row], table.row_begin[row + 1]
                lower, upper, extra = table.lower[begin:end], table.upper[begin:end], table.successor_reward[begin:end]
                low[node] += table.weight[row] * greedy(lower, upper, extra, False)
                high[node] += table.weight[row] * greedy(lower, upper, extra, True)
    levels.edge_count[offset + 1] = count
    return DONE


@inlined
def next_level(context: Context, levels: Levels, offset: int) -> int:
    """Collect the nodes of the next level, column by column, from the edges into it; return a status."""
    _, table, automaton, _, scratch = context
    state_stamp, edge_lists, edges = scratch.state_stamp, scratch.edge_lists, levels.edges
    nodes = levels.first_node[offset + 1]
    for column in range(automaton.ranges.shape[0]):
        if edge_lists[column, 0] != scratch.clock[0]:
            continue
        scratch.clock[1] += 1
        first_node, edge = nodes, edge_lists[column, 1]
        while edge >= 0:
            row = edges[edge, 1]
            for k in range(table.row_begin[row], table.row_begin[row + 1]):
                state = table.successors[k]
                if state_stamp[state] != scratch.clock[1]:
                    if nodes == len(levels.state):
                        scratch.missing[0], scratch.missing[1] = NODES, nodes + 1
                        return LEVELS_FULL
                    state_stamp[state], levels.state[nodes], levels.column[nodes] = scratch.clock[1], state, column
                    nodes += 1
            edge = edges[edge, 2]
        levels.first_edge[first_node] = edge_lists[column, 1]
    levels.first_node[offset + 2] = nodes
    return DONE


@inlined
def induct_backward(context: Context, levels: Levels, last: int, bounds: Floats) -> None:
    """Add to all nodes the values of their successors, from the last level to the first; write `bounds` [2]."""
    table, state_node = context.table, context.scratch.state_node
    row_begin, successors, extra, weight = table.row_begin, table.successors, table.successor_reward, table.weight
    low, high, edges, values = levels.low, levels.high, levels.edges, levels.row_values
    states, columns, lower, upper = levels.state, levels.column, table.lower, table.upper
    rank, by_rank, marked, place = levels.rank, levels.by_rank, levels.marked, levels.place
    for offset in range(last - 1, -1, -1):
        node, end = levels.first_node[offset + 1], levels.first_node[offset + 2]
        while node < end:
            column, edge, first, ranked = columns[node], levels.first_edge[node], node, False
            while node < end and columns[node] == column:
                state_node[states[node]] = node
                node += 1
            while edge >= 0:
                source, row, rewarded = edges[edge, 0], edges[edge, 1], edges[edge, 3]
                begin, stop = row_begin[row], row_begin[row + 1]
                if not rewarded and stop - begin > SHORT and node - first <= WORD * (stop - begin):
                    if not ranked:
                        rank_states(states[first:node], low[first:node], high[first:node], rank, by_rank)
                        ranked = True
                    least, most = ranked_means(
                        successors[begin:stop],
                        lower[begin:stop],
                        upper[begin:stop],
                        node - first,
                        rank,
                        by_rank,
                        marked,
                        place,
                    )
                else:
                    for k in range(begin, stop):
                        successor = state_node[successors[k]]
                        reward = extra[k] if rewarded else 0.0
                        values[0, k - begin], values[1, k - begin] = low[successor] + reward, -high[successor] - reward
                    if stop - begin <= SHORT:
                        least, most = short_means(lower, upper, begin, stop, values)
                    else:
                        least = greedy(lower[begin:stop], upper[begin:stop], values[0], False)
                        most = -greedy(lower[begin:stop], upper[begin:stop], values[1], False)
                low[source] += weight[row] * least
                high[source] += weight[row] * most
                edge = edges[edge, 2]
    bounds[0], bounds[1] = low[0], high[0]


@compiled
def short_means(lower: Floats, upper: Floats, begin: int, stop: int, values: Floats) -> tuple[float, float]:
    """Return the least and the largest mean of a short row, `begin:stop`, as `greedy` does.

    `values` [2, S]: the row's values to make least, and those to make largest, negated.
    """
    least = most = 0.0
    for side in range(2):
        rest, total = 1.0, 0.0
        for k in range(begin, stop):
            rest -= lower[k]
            total += lower[k] * values[side, k - begin]
        used, worst, last = begin, -np.inf, -1
        while rest > 0.0 and used < stop:
            best, found = used, np.inf
            for k in range(begin, stop):
                value = values[side, k - begin]
                if value < found and (value > worst or (value == worst and k > last)):
                    best, found = k, value
            given = min(rest, upper[best] - lower[best])
            total += given * values[side, best - begin]
            rest -= given
            used, worst, last = used + 1, found, best
        if side == 0:
            least = total
        else:
            most = -total
    return least, most


@compiled
def rank_states(states: Shorts, low: Floats, high: Floats, rank: Ints, by_rank: Floats) -> None:
    """Rank states [n] by ascending `low` and by descending `high`, on ties by number, into `rank` and `by_rank`."""
    by_state = np.argsort(states)
    states, low, high = states[by_state], low[by_state], high[by_state]
    order = np.argsort(low, kind="mergesort")
    for n in range(len(order)):
        rank[states[order[n]], 0], by_rank[0, n] = n, low[order[n]]
    if (low == high).all():  # the reverse order, but for ties
        begin = len(order)
        while begin > 0:
            end, value = begin, low[order[begin - 1]]
            while begin > 0 and low[order[begin - 1]] == value:
                begin -= 1
            for n in range(begin, end):
                place = len(order) - end + n - begin
                rank[states[order[n]], 1], by_rank[1, place] = place, value
        return
    order = np.argsort(-high, kind="mergesort")
    for n in range(len(order)):
        rank[states[order[n]], 1], by_rank[1, n] = n, high[order[n]]


@compiled
def ranked_means(
    successors: Shorts,
    lower: Floats,
    upper: Floats,
    states: int,
    rank: Ints,
    by_rank: Floats,
    marked: Ints,
    place: Ints,
) -> tuple[float, float]:
    """Return the least and the largest mean of a row, as `greedy` does, by the ranks of its successors among `states`.

    Marking the ranks in a set of bits sorts them.
    """
    free, least, most = 1.0, 0.0, 0.0
    for k in range(len(successors)):
        state = successors[k]
        first, last = rank[state, 0], rank[state, 1]
        marked[0, first >> 5] |= 1 << (first & (WORD - 1))
        marked[1, last >> 5] |= 1 << (last & (WORD - 1))
        place[0, first], place[1, last] = k, k
        if lower[k] > 0.0:
            free -= lower[k]
            least += lower[k] * by_rank[0, first]
            most += lower[k] * by_rank[1, last]
    for side in range(2):
        rest, total = free, least if side == 0 else most
        for word in range((states + WORD - 1) >> 5):
            bits = marked[side, word]
            marked[side, word] = 0
            while bits and rest > 0.0:
                n = (word << 5) + LOWEST_BIT[((bits & -bits) * DE_BRUIJN >> 27) & (WORD - 1)]
                bits &= bits - 1
                k = place[side, n]
                given = min(rest, upper[k] - lower[k])
                total += given * by_rank[side, n]
                rest -= given
        if side == 0:
            least = total
        else:
            most = total
    return least, most
