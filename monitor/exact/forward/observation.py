"""Advance the forward weights of all start points at once by one observed pair. Compiled.

See docs/semantics/formulas.md, section 6.2. The rows do the abduction: each row is conditioned on the step's observed
transition in closed form (`counterfactual_rows.py`; docs/semantics/worlds.md, section 3.1), so no noise is represented.
A *start point* is an observed pair at which the intervention may begin. Start 0 is the newest pair; start j is j pairs
older, so its offset is larger by j. A *node* is a state in a column of the unrolled automaton (`unroll.py`). The
*forward weight* of a node for a start is the probability that the counterfactual chain from this start is now in the
node's state with the column's obligation remaining. The weights of all starts are adjacent in memory, so each row is
read once for all starts. Rules:

- A step has two halves. `label_step` reads each node's labels and turns the node into *edges* (node, row, range of
  starts), listed by the column to which they lead. `push_rows` pushes the weights along the rows of these edges.
- If an obligation becomes TRUE, its weight is accumulated and leaves the nodes. Expected reward is accumulated too. If
  an obligation becomes FALSE, its weight is dropped.
- Sums have a fixed order: by phase, column and state of the source, then by action. Nodes ascend by column and state.
  So the answer of a start has the same bits with or without other starts.
- If an array is too small, a function returns a status before it changes the forward weights. The caller grows the
  array and calls again. For FORWARD_FULL, `Workspace.missing` has the sizes needed.
"""

from __future__ import annotations

from dataclasses import dataclass

from monitor.arrays import Floats, Ints, Shorts
from monitor.causal.row import sort_pairs
from monitor.exact.forward.buffers import ForwardBuffers, Workspace
from monitor.exact.forward.codes import DONE, FORWARD_FULL, SCRATCH_FULL, TABLE_FULL
from monitor.exact.forward.counterfactual_rows import Dynamics, find_entry, find_observed, phase_end
from monitor.exact.forward.row_table import FULL, RowTable
from monitor.exact.forward.unroll import FIRST_COLUMN
from monitor.logic import TRUE


@dataclass(eq=False)
class TransitionTable:
    """Transitions of an unrolled automaton (see `Unrolled`), and `label_of` [S], or [S * A] if `by_action`."""

    ranges: Ints
    transitions: Ints
    label_of: Shorts
    by_action: bool


@dataclass(eq=False)
class Future:
    """Value function beyond the last observed pair, and the model's rows.

    `values` [n, S]: n vectors of values; `vector` [offsets, columns]: the index of a vector in `values`.
    """

    values: Floats
    vector: Ints
    indptr: Ints
    successors: Ints
    probabilities: Floats
    rewards: Floats


@dataclass(eq=False)
class Context:
    """All data on which an answer depends, except the forward weights."""

    dynamics: Dynamics
    table: RowTable
    automaton: TransitionTable
    future: Future
    workspace: Workspace


def observe(context: Context, forward: ForwardBuffers, state: int, action: int) -> int:
    """Update the forward weights by one observed pair; return a status."""
    if forward.start_count == 0:
        forward.column[0], forward.first_node[0], forward.first_node[1], forward.states[0] = 0, 0, 1, state
        forward.start_range[0, 0], forward.start_range[0, 1] = 0, 1
        forward.weights[0, 0], forward.accumulated[0] = 1.0, 0.0
        forward.start_count, forward.segment_count, forward.base_offset = 1, 1, 0
    else:
        status = advance_weights(context, forward, context.workspace, state)
        if status != DONE:
            return status
    forward.last_state, forward.last_action = state, action
    return DONE


def advance_weights(context: Context, forward: ForwardBuffers, workspace: Workspace, s_next: int) -> int:
    """Advance all starts by the observed transition to `s_next`, and add a start at `s_next`; return a status."""
    shift, kept = 0, 1
    if forward.max_starts:
        shift, kept = 1, min(forward.start_count, forward.max_starts - 1)
    if kept > len(workspace.accumulated):
        return SCRATCH_FULL
    for start in range(kept):
        workspace.accumulated[start] = forward.accumulated[start]
    status = label_step(context.dynamics, context.table, context.automaton, workspace, forward, s_next, kept)
    if status != DONE:
        return status
    segments = push_rows(context.table, workspace, forward, context.automaton.ranges.shape[0], shift, s_next)
    if segments < 0:
        return SCRATCH_FULL
    nodes = workspace.first_node[segments]
    if segments > len(forward.column) or nodes > len(forward.states):
        workspace.missing[0], workspace.missing[1] = segments, nodes
        return FORWARD_FULL
    forward.first_node[0] = 0
    for segment in range(segments):
        forward.column[segment] = workspace.column[segment]
        forward.first_node[segment + 1] = workspace.first_node[segment + 1]
    for node in range(nodes):
        source = workspace.by_state[node]
        first, last = workspace.start_range[source, 0], workspace.start_range[source, 1]
        forward.states[node] = workspace.states[source]
        forward.start_range[node, 0], forward.start_range[node, 1] = first, last
        for start in range(first, last):
            forward.weights[node, start] = workspace.weights[source, start]
    for start in range(kept):
        forward.accumulated[start + shift] = workspace.accumulated[start]
    forward.segment_count = segments
    if forward.max_starts:
        forward.accumulated[0] = 0.0
        forward.start_count = kept + 1
    else:
        forward.base_offset += 1
    return DONE


def label_step(
    dynamics: Dynamics,
    table: RowTable,
    automaton: TransitionTable,
    workspace: Workspace,
    forward: ForwardBuffers,
    s_next: int,
    kept: int,
) -> int:
    """Read the labels of all nodes, list their edges by target column, and accumulate decided weight.

    w_j(x, o) is the weight of state x and obligation o for start j. pi(a|x) is the probability of action a, and
    rho(y|x, a) is the row of (x, a), both given the observed transition. o' is the obligation after the labels of
    (x, a). A step computes, here and in `push_rows`,

        w'_j(y, o') = sum over x, o, a of w_j(x, o) pi(a|x) rho(y|x, a).

    An edge is one (x, o), a and o' for a range of j. If o' = TRUE, w_j(x, o) pi(a|x) is accumulated.
    `kept`: number of starts to keep; the starts from this index on are too old to be queried, so they are dropped.
    Return a status.
    """
    s, a, base, count, actions = (
        forward.last_state,
        forward.last_action,
        forward.base_offset,
        0,
        dynamics.rewards.shape[1],
    )
    workspace.edge_clock += 1
    stamp = workspace.edge_clock
    if dynamics.share_prior_rows:
        pair = s * actions + a
        for k in range(dynamics.observed_row_indptr[pair], dynamics.observed_row_indptr[pair + 1]):
            workspace.observed_stamp[dynamics.observed_row_successors[k]] = stamp
    for phase in range(len(dynamics.phase_begin)):
        begin, end = max(dynamics.phase_begin[phase] - base, 0), min(phase_end(dynamics, phase) - base, kept)
        if begin >= end:
            continue
        observed = find_observed(dynamics, table, phase, s, a, s_next)
        if observed == FULL:
            return TABLE_FULL
        for segment in range(forward.segment_count):
            column = forward.column[segment]
            for node in range(forward.first_node[segment], forward.first_node[segment + 1]):
                low, high = max(forward.start_range[node, 0], begin), min(forward.start_range[node, 1], end)
                while low < high and forward.weights[node, low] == 0.0:
                    low += 1
                if low >= high:
                    continue
                state, entry, informed = forward.states[node], FULL, True
                if dynamics.share_prior_rows:
                    entry = find_entry(dynamics, table, phase, phase, -1, -1, -1, state)
                    if entry == FULL:
                        return TABLE_FULL
                    informed = state == s or shares_successor(table, workspace, entry)
                if informed:
                    entry = find_entry(dynamics, table, phase, observed, s, a, s_next, state)
                    if entry == FULL:
                        return TABLE_FULL
                for row in range(table.entry_begin[entry], table.entry_begin[entry + 1]):
                    label = automaton.label_of[state * actions + table.action[row] if automaton.by_action else state]
                    for transition in range(automaton.ranges[column, label, 0], automaton.ranges[column, label, 1]):
                        first = max(low, automaton.transitions[transition, 0] - base)
                        last = min(high, automaton.transitions[transition, 1] - base)
                        if first >= last:
                            continue
                        target = automaton.transitions[transition, 2]
                        if automaton.transitions[transition, 3]:
                            for start in range(first, last):
                                workspace.accumulated[start] += forward.weights[node, start] * table.reward[row]
                        if target == TRUE:
                            for start in range(first, last):
                                workspace.accumulated[start] += forward.weights[node, start] * table.weight[row]
                        elif target >= FIRST_COLUMN:
                            if count == len(workspace.edges):
                                return SCRATCH_FULL
                            add_edge(workspace, target - FIRST_COLUMN, count, node, row, first, last)
                            count += 1
    return DONE


def add_edge(workspace: Workspace, column: int, edge: int, node: int, row: int, first: int, last: int) -> None:
    """Write an edge and append it to the list of its column."""
    if workspace.edge_lists[column, 0] == workspace.edge_clock:
        workspace.edges[workspace.edge_lists[column, 2], 4] = edge
    else:
        workspace.edge_lists[column, 0], workspace.edge_lists[column, 1] = workspace.edge_clock, edge
    workspace.edge_lists[column, 2] = edge
    workspace.edges[edge, 0], workspace.edges[edge, 1], workspace.edges[edge, 4] = node, row, -1
    workspace.edges[edge, 2], workspace.edges[edge, 3] = first, last


def shares_successor(table: RowTable, workspace: Workspace, entry: int) -> bool:
    """Return whether a row shares a successor with the row of the observed pair.

    If it does not, the observation does not change the row.
    """
    begin, end = table.row_begin[table.entry_begin[entry]], table.row_begin[table.entry_begin[entry + 1]]
    found = False
    for k in range(begin, end):
        found |= workspace.observed_stamp[table.successors[k]] == workspace.edge_clock
    return found


def push_rows(
    table: RowTable, workspace: Workspace, forward: ForwardBuffers, columns: int, shift: int, s_next: int
) -> int:
    """Push weights along the edges, column by column; return the number of segments, or -1 if the workspace is full.

    This computes the sum of the formula in `label_step`. `probability` is pi(a|x) rho(y|x, a), added up over a if rows
    are merged. `shift`: 1 if a start is added at `s_next`, because every other start then has an index larger by 1;
    else 0.
    """
    segments, nodes = 0, 0
    workspace.first_node[0] = 0
    for column in range(columns):
        begins = shift == 1 and column == 0
        edge = workspace.edge_lists[column, 1] if workspace.edge_lists[column, 0] == workspace.edge_clock else -1
        if edge < 0 and not begins:
            continue
        if segments + 2 > len(workspace.first_node):
            return -1
        workspace.node_clock += 1
        first_node = nodes
        if begins:
            if nodes >= len(workspace.states):
                return -1
            add_node(workspace, nodes, s_next, 0, 1, forward.live_starts)
            workspace.weights[nodes, 0] = 1.0
            nodes += 1
        while edge >= 0:
            nodes = push_row(table, workspace, forward, edge, shift, nodes)
            if nodes < 0:
                return -1
            edge = workspace.edges[edge, 4]
        if nodes > first_node:
            sort_nodes(workspace, first_node, nodes)
        workspace.column[segments] = column
        segments += 1
        workspace.first_node[segments] = nodes
    return segments


def push_row(table: RowTable, workspace: Workspace, forward: ForwardBuffers, edge: int, shift: int, nodes: int) -> int:
    """Push weights along one edge; return the new number of nodes, or -1 if there is no space."""
    source, row = workspace.edges[edge, 0], workspace.edges[edge, 1]
    first, last = workspace.edges[edge, 2], workspace.edges[edge, 3]
    for k in range(table.row_begin[row], table.row_begin[row + 1]):
        state, probability = table.successors[k], table.lower[k]
        if workspace.state_stamp[state] != workspace.node_clock:
            if nodes >= len(workspace.states):
                return -1
            add_node(workspace, nodes, state, first + shift, last + shift, forward.live_starts)
            for start in range(first, last):
                workspace.weights[nodes, start + shift] = probability * forward.weights[source, start]
            nodes += 1
            continue
        node = workspace.state_node[state]
        workspace.start_range[node, 0] = min(workspace.start_range[node, 0], first + shift)
        workspace.start_range[node, 1] = max(workspace.start_range[node, 1], last + shift)
        for start in range(first, last):
            workspace.weights[node, start + shift] += probability * forward.weights[source, start]
    return nodes


def add_node(workspace: Workspace, node: int, state: int, first: int, last: int, starts: int) -> None:
    """Add a node with weight 0 to the current column, for a range of starts."""
    workspace.state_stamp[state], workspace.state_node[state] = workspace.node_clock, node
    workspace.states[node], workspace.by_state[node] = state, node
    workspace.start_range[node, 0], workspace.start_range[node, 1] = first, last
    for start in range(starts):
        workspace.weights[node, start] = 0.0


def sort_nodes(workspace: Workspace, begin: int, end: int) -> None:
    """Sort `by_state[begin:end]`, the nodes of one column, by state. Many nodes are sorted by a scan of all states."""
    if end - begin < 2:
        return
    if 8 * (end - begin) > len(workspace.state_stamp):
        n = begin
        for state in range(len(workspace.state_stamp)):
            if workspace.state_stamp[state] == workspace.node_clock:
                workspace.by_state[n] = workspace.state_node[state]
                n += 1
        return
    for n in range(begin, end):
        workspace.keys[n - begin] = workspace.states[n]
    sort_pairs(workspace.keys, workspace.by_state[begin:end], end - begin)
