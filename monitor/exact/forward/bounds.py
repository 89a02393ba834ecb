"""Bounds of a value over a class of causal models, by forward reachability and backward induction. Compiled.

See docs/semantics/formulas.md, section 6.3. Only bounds on the entries of each row are known. At each (offset, state,
obligation), backward induction uses the distribution within these bounds with the smallest (largest) value. Rules:

- The row is chosen independently for each (offset, state, obligation). So some causal model attains each end of the
  interval if at most one obligation remains at each (offset, state), as for U, F and G over state formulas. Otherwise
  the interval may be wider than necessary, but never narrower.
- Level o holds the nodes (column, state) that some causal model of the class reaches at offset o, by column. The edges
  of level o lead to level o + 1 and are listed by target column, as in `observation.py`.
- In the forward pass, a node's `low` and `high` collect the part of the value that the node's own step decides. The
  backward pass adds the part that depends on later nodes.
- If a level is full, the loop stops with LEVELS_FULL. The next call begins anew.
"""

from __future__ import annotations

import numpy as np

from monitor.arrays import Floats, Ints
from monitor.causal.row import greedy, sort_pairs
from monitor.exact.forward.answers import value_at_last_pair
from monitor.exact.forward.buffers import EDGES, NODES, OFFSETS, Levels, Workspace
from monitor.exact.forward.codes import DONE, LEVELS_FULL, TABLE_FULL
from monitor.exact.forward.counterfactual_rows import find_entry, find_observed, phase_at
from monitor.exact.forward.observation import Context, TransitionTable
from monitor.exact.forward.row_table import FULL, RowTable
from monitor.exact.forward.unroll import FIRST_COLUMN
from monitor.logic import TRUE

SHORT = 8
"""Up to this row length, the best successors are found one by one, without the ranks of `rank_states`."""
SPARSE = 32
"""Ranks are not used if the number of a column's nodes divided by the length of the row is larger than this."""
DE_BRUIJN = 0x03F79D71B4CB0A89
"""A number whose shifts by 0 to 63 differ in their highest six bits."""
LOWEST_BIT = np.argsort([(DE_BRUIJN << shift & (1 << 64) - 1) >> 58 for shift in range(64)])
"""The exponent of a power of two, indexed by the highest six of the 64 bits of its product with DE_BRUIJN."""
INFINITY = float("inf")


def interval(context: Context, levels: Levels, states: Ints, actions: Ints, bounds: Floats) -> int:
    """Write the lowest and the highest value from the first pair into `bounds` [2]; return a status."""
    last = len(states) - 1
    status = forward(context, levels, states, actions)
    if status == DONE:
        status = close_level(context, levels, last, states[last], actions[last])
    if status == DONE:
        backward(context, levels, last, bounds)
    return status


def forward(context: Context, levels: Levels, states: Ints, actions: Ints) -> int:
    """Fill the levels up to the last observed pair with the nodes that some causal model reaches; return a status.

    This is the first part of `interval`. Then the values of the nodes of the last level are written (`close_level`).
    """
    if len(states) + 1 > len(levels.first_node):
        return lacking(context.workspace, OFFSETS, len(states) + 1)
    levels.first_node[0], levels.first_node[1], levels.edge_count[0] = 0, 1, 0
    levels.column[0], levels.state[0] = 0, states[0]
    for offset in range(len(states) - 1):
        s, a, s_next = states[offset], actions[offset], states[offset + 1]
        status = label_level(context, context.table, context.automaton, levels, offset, s, a, s_next)
        if status == DONE:
            status = next_level(context.table, context.workspace, levels, offset, context.automaton.ranges.shape[0])
        if status != DONE:
            return status
    return DONE


def lacking(workspace: Workspace, part: int, length: int) -> int:
    """Record which part of the levels is full, and the length that it needs; return the status."""
    workspace.missing[0], workspace.missing[1] = part, length
    return LEVELS_FULL


def close_level(context: Context, levels: Levels, last: int, s: int, a: int) -> int:
    """Write the values of the nodes of the last level, at the last observed pair s, a; return a status."""
    for node in range(levels.first_node[last], levels.first_node[last + 1]):
        value, status = value_at_last_pair(context, last, levels.column[node], levels.state[node], s, a)
        if status != DONE:
            return status
        levels.low[node] = levels.high[node] = value
    return DONE


def label_level(
    context: Context,
    table: RowTable,
    automaton: TransitionTable,
    levels: Levels,
    offset: int,
    s: int,
    a: int,
    s_next: int,
) -> int:
    """Read the labels of a level's nodes, list their edges by target column, and add up decided values.

    Return a status.
    """
    actions, count, phase = (
        context.dynamics.rewards.shape[1],
        levels.edge_count[offset],
        phase_at(context.dynamics, offset),
    )
    context.workspace.edge_clock += 1
    observed = find_observed(context.dynamics, table, phase, s, a, s_next)
    if observed == FULL:
        return TABLE_FULL
    for node in range(levels.first_node[offset], levels.first_node[offset + 1]):
        state, column = levels.state[node], levels.column[node]
        levels.low[node] = levels.high[node] = 0.0
        entry = find_entry(context.dynamics, table, phase, observed, s, a, s_next, state)
        if entry == FULL:
            return TABLE_FULL
        for row in range(table.entry_begin[entry], table.entry_begin[entry + 1]):
            label = automaton.label_of[state * actions + table.action[row] if automaton.by_action else state]
            transition = automaton.ranges[column, label, 0]
            while automaton.transitions[transition, 1] <= offset:
                transition += 1
            target, rewarded = automaton.transitions[transition, 2], automaton.transitions[transition, 3]
            if rewarded:
                levels.low[node] += table.reward[row]
                levels.high[node] += table.reward[row]
            if target == TRUE:
                levels.low[node] += table.weight[row]
                levels.high[node] += table.weight[row]
            elif target >= FIRST_COLUMN:
                if count == len(levels.edges):
                    return lacking(context.workspace, EDGES, count + 1)
                add_edge(context.workspace, levels, target - FIRST_COLUMN, count, node, row, rewarded)
                count += 1
            elif rewarded:  # no obligation remains, so only the rewards of the successors depend on the row
                begin, stop = table.row_begin[row], table.row_begin[row + 1]
                for k in range(begin, stop):
                    levels.row_values[0, k - begin] = table.successor_reward[k]
                    levels.row_values[1, k - begin] = -table.successor_reward[k]
                least, most = greedy_means(table, levels, begin, stop)
                levels.low[node] += table.weight[row] * least
                levels.high[node] += table.weight[row] * most
    levels.edge_count[offset + 1] = count
    return DONE


def add_edge(workspace: Workspace, levels: Levels, column: int, edge: int, node: int, row: int, rewarded: int) -> None:
    """Write an edge and append it to the list of its column."""
    edge_lists, edges = workspace.edge_lists, levels.edges
    if edge_lists[column, 0] == workspace.edge_clock:
        edges[edge_lists[column, 2], 2] = edge
    else:
        edge_lists[column, 0], edge_lists[column, 1] = workspace.edge_clock, edge
    edge_lists[column, 2] = edge
    edges[edge, 0], edges[edge, 1], edges[edge, 2], edges[edge, 3] = node, row, -1, rewarded


def next_level(table: RowTable, workspace: Workspace, levels: Levels, offset: int, columns: int) -> int:
    """Collect the nodes of the next level, column by column, from the edges into it; return a status."""
    nodes = levels.first_node[offset + 1]
    for column in range(columns):
        if workspace.edge_lists[column, 0] != workspace.edge_clock:
            continue
        workspace.node_clock += 1
        first_node, edge = nodes, workspace.edge_lists[column, 1]
        while edge >= 0:
            row = levels.edges[edge, 1]
            for k in range(table.row_begin[row], table.row_begin[row + 1]):
                state = table.successors[k]
                if workspace.state_stamp[state] != workspace.node_clock:
                    if nodes == len(levels.state):
                        return lacking(workspace, NODES, nodes + 1)
                    workspace.state_stamp[state] = workspace.node_clock
                    levels.state[nodes], levels.column[nodes] = state, column
                    nodes += 1
            edge = levels.edges[edge, 2]
        levels.first_edge[first_node] = workspace.edge_lists[column, 1]
    levels.first_node[offset + 2] = nodes
    return DONE


def backward(context: Context, levels: Levels, last: int, bounds: Floats) -> None:
    """Add to all nodes the values of their successors, from the last level to the first; write `bounds` [2].

    This is the last part of `interval`. `last`: the last level.
    """
    for offset in range(last - 1, -1, -1):
        node, end = levels.first_node[offset + 1], levels.first_node[offset + 2]
        while node < end:
            first, column = node, levels.column[node]
            while node < end and levels.column[node] == column:
                context.workspace.state_node[levels.state[node]] = node
                node += 1
            pull_values(context.table, context.workspace, levels, first, node)
    bounds[0], bounds[1] = levels.low[0], levels.high[0]


def pull_values(table: RowTable, workspace: Workspace, levels: Levels, first: int, end: int) -> None:
    """Add the values of a column's nodes, `first:end`, to the sources of the edges into this column."""
    edge, ranked = levels.first_edge[first], False
    while edge >= 0:
        source, row, rewarded = levels.edges[edge, 0], levels.edges[edge, 1], levels.edges[edge, 3]
        begin, stop = table.row_begin[row], table.row_begin[row + 1]
        if not rewarded and stop - begin > SHORT and end - first <= SPARSE * (stop - begin):
            if not ranked:
                rank_states(workspace, levels, first, end)
                ranked = True
            least, most = ranked_means(table, workspace, levels, begin, stop, end - first)
        else:
            for k in range(begin, stop):
                node = workspace.state_node[table.successors[k]]
                reward = table.successor_reward[k] if rewarded else 0.0
                levels.row_values[0, k - begin] = levels.low[node] + reward
                levels.row_values[1, k - begin] = -levels.high[node] - reward
            if stop - begin <= SHORT:
                least, most = short_means(table, levels, begin, stop)
            else:
                least, most = greedy_means(table, levels, begin, stop)
        levels.low[source] += table.weight[row] * least
        levels.high[source] += table.weight[row] * most
        edge = levels.edges[edge, 2]


def greedy_means(table: RowTable, levels: Levels, begin: int, stop: int) -> tuple[float, float]:
    """Return the least and the largest mean of a row, `begin:stop`, over `Levels.row_values`."""
    lower, upper = table.lower[begin:stop], table.upper[begin:stop]
    least = greedy(lower, upper, levels.row_values[0], False, table.memory.keys, table.memory.order)
    return least, -greedy(lower, upper, levels.row_values[1], False, table.memory.keys, table.memory.order)


def short_means(table: RowTable, levels: Levels, begin: int, stop: int) -> tuple[float, float]:
    """Return the same means as `greedy_means`, to the bit; faster for a short row."""
    least = most = 0.0
    for side in range(2):
        rest, total = 1.0, 0.0
        for k in range(begin, stop):
            rest -= table.lower[k]
            total += table.lower[k] * levels.row_values[side, k - begin]
        used, worst, last = begin, -INFINITY, -1
        while rest > 0.0 and used < stop:
            best, found = used, INFINITY
            for k in range(begin, stop):
                value = levels.row_values[side, k - begin]
                if value < found and (value > worst or (value == worst and k > last)):
                    best, found = k, value
            given = min(rest, table.upper[best] - table.lower[best])
            total += given * levels.row_values[side, best - begin]
            rest -= given
            used, worst, last = used + 1, found, best
        least, most = (total, most) if side == 0 else (least, -total)
    return least, most


def rank_states(workspace: Workspace, levels: Levels, first: int, end: int) -> None:
    """Rank the states of a column by ascending `low` and by descending `high`; ties are ranked by state number."""
    ranked, by_rank, count, one = levels.ranked, levels.by_rank, end - first, 1
    for n in range(count):
        ranked[0, n], by_rank[0, n] = levels.state[first + n], levels.low[first + n]
    sort_pairs(by_rank[0], ranked[0], count)
    for n in range(count):  # the reverse order is a good start for sorting by `high`
        ranked[1, n] = ranked[0, count - 1 - n]
        by_rank[1, n] = -levels.high[workspace.state_node[ranked[1, n]]]
    sort_pairs(by_rank[1], ranked[1], count)
    for n in range(count):
        by_rank[1, n] = -by_rank[1, n]
        for side in range(2):
            levels.word[ranked[side, n], side], levels.bit[ranked[side, n], side] = n >> 6, one << (n & 63)


def ranked_means(
    table: RowTable, workspace: Workspace, levels: Levels, begin: int, stop: int, states: int
) -> tuple[float, float]:
    """Return the same means as `greedy_means`, to the bit, from the ranks of a row's successors among `states`.

    The ranks are sorted by marking them in a set of bits.
    """
    marked, free, least, most = levels.marked, 1.0, 0.0, 0.0
    for k in range(begin, stop):
        state = table.successors[k]
        table.place[state] = k
        marked[0, levels.word[state, 0]] |= levels.bit[state, 0]
        marked[1, levels.word[state, 1]] |= levels.bit[state, 1]
        if table.lower[k] > 0.0:
            node = workspace.state_node[state]
            free -= table.lower[k]
            least += table.lower[k] * levels.low[node]
            most += table.lower[k] * levels.high[node]
    for side in range(2):
        rest, total, words = free, most if side else least, (states + 63) >> 6
        for word in range(words):
            bits = int(marked[side, word])
            while bits and rest > 0.0:
                n = (word << 6) + LOWEST_BIT[((bits & -bits) * DE_BRUIJN >> 58) & 63]
                bits &= bits - 1
                k = table.place[levels.ranked[side, n]]
                given = min(rest, table.upper[k] - table.lower[k])
                total += given * levels.by_rank[side, n]
                rest -= given
            if rest <= 0.0:
                break
        for word in range(words):
            marked[side, word] = 0
        least, most = (least, total) if side else (total, most)
    return least, most
