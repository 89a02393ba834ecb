"""One observed pair, for all start points at once: the forward weights advanced by one step. Compiled.

See docs/semantics.md, section 6.2. Abduction is in the rows: each is conditioned on the step's observed transition in
closed form (`rows.py`; docs/semantics.md, section 3.1), and no noise is represented. A *start point* is an observed
pair at which the intervention may begin; start 0 is the newest, start j is j pairs older and j offsets further. A
*node* is a state in a column of the unrolled automaton (`unroll.py`); its *forward weight* for a start is the
probability that the counterfactual chain begun there is now in that state with the column's obligation remaining. The
weights of all starts lie next to each other, so that a row is read once for all of them. Rules:

- A step has two halves. `label_step` reads each node's labels and turns the node into *edges* (node, row, range of
  starts), listed by the column they lead to. `push_rows` pushes the weights along the rows of those edges.
- Weight that reaches TRUE, and expected reward, leaves the nodes and is accumulated; weight that reaches FALSE is
  dropped.
- Sums run in a fixed order: by phase, column and state of the source, then action; nodes ascend by column and state.
  So a start's answer has the same bits whether or not other starts are held.
- A function that finds an array too small returns a status before it changes the forward weights; the caller grows the
  array and calls again. For FORWARD_FULL, `Scratch.missing` has the sizes needed. Arrays are never grown here.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from monitor.arrays import Floats, Ints, Shorts
from monitor.exact.forward.row_table import RowArrays, find_slot
from monitor.exact.forward.rows import FULL, Dynamics, find_entry, find_observed, phase_end
from monitor.exact.forward.unroll import FIRST_COLUMN
from monitor.jit import inlined

__all__ = [
    "BASE_OFFSET",
    "DONE",
    "FORWARD_FULL",
    "LAST_ACTION",
    "LAST_STATE",
    "MAX_STARTS",
    "NOT_COMPUTED",
    "QUERIED_START",
    "SCRATCH_FULL",
    "SEGMENT_COUNT",
    "START_COUNT",
    "TABLE_FULL",
    "UNANSWERED",
    "VALUES_MISSING",
    "CompiledAutomaton",
    "Context",
    "Forward",
    "Future",
    "Scratch",
    "advance",
    "label_step",
    "observe",
    "sort_nodes",
]

FALSE, TRUE = 0, 1
"""Targets of a transition, as in `monitor.logic`; FIRST_COLUMN and above: a column."""

DONE, TABLE_FULL, SCRATCH_FULL, FORWARD_FULL, VALUES_MISSING = range(5)
"""Status of a call. `Scratch.missing`: FORWARD_FULL: segments, nodes; VALUES_MISSING: offset, column."""

NOT_COMPUTED = -1
"""In `Future.vector`: the values are not there yet."""
INSERTION_SORT_LIMIT = 64
"""More nodes than this are sorted by NumPy."""

START_COUNT, SEGMENT_COUNT, LAST_STATE, LAST_ACTION, BASE_OFFSET, MAX_STARTS, QUERIED_START, UNANSWERED = range(8)
"""Indices of `Forward.scalars`: starts and segments held; the newest pair; the offset of start 0 at that pair; starts
to hold at most (0: the first pair alone); the start to answer, counted from the oldest (-1: all); 1 if the newest pair
is observed and its answer stopped for missing values."""


class CompiledAutomaton(NamedTuple):
    """Transitions of an unrolled automaton (see `Unrolled`), and `label_of` [S], or [S * A] if `by_action`."""

    ranges: Ints
    transitions: Ints
    label_of: Shorts
    by_action: bool


class Future(NamedTuple):
    """Value function beyond the last observed pair: `values` [n, S] at `vector` [offsets, columns], and prior rows."""

    values: Floats
    vector: Ints
    indptr: Ints
    successors: Ints
    probabilities: Floats
    rewards: Floats


class Forward(NamedTuple):
    """Forward weights after the newest observed pair: `weights` [nodes, min(starts, horizon)].

    A segment holds the nodes of one column: segment g those of `column[g]`, `first_node[g]:first_node[g + 1]`, by
    ascending `states`. Of a node's weights those of `start_range` [nodes, 2] (first, last exclusive) are valid, the
    others undefined; older starts are decided. `accumulated` [starts]: probability that the formula is decided true, or
    reward collected. `values` [starts]: the answers. `scalars` [8]: see START_COUNT.
    """

    scalars: Ints
    column: Ints
    first_node: Ints
    states: Shorts
    start_range: Ints
    weights: Floats
    accumulated: Floats
    values: Floats


class Scratch(NamedTuple):
    """Working memory of a step, shared by all forward weights of a model.

    `state_stamp`, `state_node` [S]: the node of a state in the column at hand, valid if the stamp is the current one;
    `observed_stamp` [S] (empty unless `share_prior_rows`): likewise, successors of the observed pair. `edge_lists`
    [columns, 3]: stamp, first and last edge into a column; `edges` [n, 5]: source node, row, first and last (exclusive)
    start, next edge into the same column. `column` to `accumulated`: the next weights, their nodes in the order in
    which they were met, and `by_state`, their order by state. `vectors` [starts]: indices in `Future.values`, for one
    column. `clock` [2]: the current stamps, of edge lists and of states; they only grow. `missing` [2]: see DONE.
    """

    state_stamp: Ints
    state_node: Shorts
    observed_stamp: Ints
    edge_lists: Ints
    edges: Ints
    column: Ints
    first_node: Ints
    states: Shorts
    by_state: Ints
    start_range: Ints
    weights: Floats
    accumulated: Floats
    vectors: Ints
    clock: Ints
    missing: Ints


class Context(NamedTuple):
    """Everything an answer depends on besides the forward weights."""

    dynamics: Dynamics
    table: RowArrays
    automaton: CompiledAutomaton
    future: Future
    scratch: Scratch


@inlined
def observe(context: Context, forward: Forward, state: int, action: int) -> int:
    """Take in one observed pair; return a status."""
    scalars = forward.scalars
    if scalars[START_COUNT] == 0:
        forward.column[0], forward.first_node[0], forward.first_node[1], forward.states[0] = 0, 0, 1, state
        forward.start_range[0, 0], forward.start_range[0, 1] = 0, 1
        forward.weights[0, 0], forward.accumulated[0] = 1.0, 0.0
        scalars[START_COUNT], scalars[SEGMENT_COUNT], scalars[BASE_OFFSET] = 1, 1, 0
    else:
        status = advance(context, forward, state)
        if status != DONE:
            return status
    scalars[LAST_STATE], scalars[LAST_ACTION] = state, action
    return DONE


@inlined
def advance(context: Context, forward: Forward, s_next: int) -> int:
    """Advance all starts by the observed transition to `s_next`, and add one that begins there; return a status."""
    dynamics, table, automaton, _, scratch = context
    scalars, accumulated = forward.scalars, forward.accumulated
    max_starts = scalars[MAX_STARTS]
    shift = 1 if max_starts else 0
    kept = min(scalars[START_COUNT], max_starts - 1) if max_starts else 1
    if kept > len(scratch.accumulated):
        return SCRATCH_FULL
    scratch.accumulated[:kept] = accumulated[:kept]
    status = label_step(dynamics, table, automaton, scratch, forward, s_next, kept)
    if status != DONE:
        return status
    segments = push_rows(table, scratch, forward, automaton.ranges.shape[0], shift, s_next)
    if segments < 0:
        return SCRATCH_FULL
    nodes = scratch.first_node[segments]
    if segments > len(forward.column) or nodes > len(forward.states):
        scratch.missing[0], scratch.missing[1] = segments, nodes
        return FORWARD_FULL
    forward.column[:segments] = scratch.column[:segments]
    forward.first_node[: segments + 1] = scratch.first_node[: segments + 1]
    for node in range(nodes):
        source = scratch.by_state[node]
        first, last = scratch.start_range[source, 0], scratch.start_range[source, 1]
        forward.states[node] = scratch.states[source]
        forward.start_range[node, 0], forward.start_range[node, 1] = first, last
        for start in range(np.uint64(first), np.uint64(last)):
            forward.weights[node, start] = scratch.weights[source, start]
    for start in range(kept):
        accumulated[start + shift] = scratch.accumulated[start]
    scalars[SEGMENT_COUNT] = segments
    if max_starts:
        accumulated[0] = 0.0
        scalars[START_COUNT] = kept + 1
    else:
        scalars[BASE_OFFSET] += 1
    return DONE


@inlined
def label_step(
    dynamics: Dynamics,
    table: RowArrays,
    automaton: CompiledAutomaton,
    scratch: Scratch,
    forward: Forward,
    s_next: int,
    kept: int,
) -> int:
    """Read the labels of all nodes: list edges by target column, accumulate what is decided; return a status.

    With w_j(x, o) the weight of state x and obligation o for start j, pi(a|x) the probability of action a and
    rho(y|x, a) the row of (x, a), both given the observed transition, and o' the obligation after the labels of (x, a),
    a step computes (here and in `push_rows`)

        w'_j(y, o') = sum over x, o, a of w_j(x, o) pi(a|x) rho(y|x, a).

    An edge is one (x, o), a and o' for a range of j. What is decided has o' = TRUE: w_j(x, o) pi(a|x) is accumulated.
    `kept`: starts from this one on are dropped, as they are older than any that may be queried.
    """
    scalars, first_node, states = forward.scalars, forward.first_node, forward.states
    start_range, weights, accumulated = forward.start_range, forward.weights, scratch.accumulated
    edge_lists, edges, observed_stamp = scratch.edge_lists, scratch.edges, scratch.observed_stamp
    ranges, transitions = automaton.ranges, automaton.transitions
    label_of, by_action = automaton.label_of, automaton.by_action
    keys, entries, entry_begin = table.entry_keys, table.entry_values, table.entry_begin
    size, actions = dynamics.rewards.shape
    s, a = scalars[LAST_STATE], scalars[LAST_ACTION]
    scratch.clock[0] += 1
    stamp, base, count = scratch.clock[0], scalars[BASE_OFFSET], 0
    if dynamics.share_prior_rows:
        pair = s * actions + a
        for k in range(dynamics.observed_row_indptr[pair], dynamics.observed_row_indptr[pair + 1]):
            observed_stamp[dynamics.observed_row_successors[k]] = stamp
    for phase in range(len(dynamics.phase_begin)):
        begin, end = max(dynamics.phase_begin[phase] - base, 0), min(phase_end(dynamics, phase) - base, kept)
        if begin >= end:
            continue
        observed = find_observed(dynamics, table, phase, s, a, s_next)
        if observed == FULL:
            return TABLE_FULL
        for segment in range(scalars[SEGMENT_COUNT]):
            column = forward.column[segment]
            for node in range(first_node[segment], first_node[segment + 1]):
                low, high = max(start_range[node, 0], begin), min(start_range[node, 1], end)
                while low < high and weights[node, low] == 0.0:
                    low += 1
                if low >= high:
                    continue
                state = states[node]
                key, informed = observed * size + state, True
                if dynamics.share_prior_rows:
                    slot = find_slot(keys, phase * size + state)
                    entry = entries[slot]
                    if keys[slot] != phase * size + state:
                        entry = find_entry(dynamics, table, 0, phase, phase, -1, -1, -1, state)
                        if entry == FULL:
                            return TABLE_FULL
                    informed = state == s or shares_successor(table, entry, observed_stamp, stamp)
                if informed:
                    slot = find_slot(keys, key)
                    entry = entries[slot]
                    if keys[slot] != key:
                        entry = find_entry(dynamics, table, 0, phase, observed, s, a, s_next, state)
                        if entry == FULL:
                            return TABLE_FULL
                for row in range(entry_begin[entry], entry_begin[entry + 1]):
                    label = label_of[state * actions + table.action[row] if by_action else state]
                    for transition in range(ranges[column, label, 0], ranges[column, label, 1]):
                        first = max(low, transitions[transition, 0] - base)
                        last = min(high, transitions[transition, 1] - base)
                        if first >= last:
                            continue
                        target = transitions[transition, 2]
                        if transitions[transition, 3]:
                            for start in range(first, last):
                                accumulated[start] += weights[node, start] * table.reward[row]
                        if target == TRUE:
                            for start in range(first, last):
                                accumulated[start] += weights[node, start] * table.weight[row]
                        elif target >= FIRST_COLUMN:
                            if count == len(edges):
                                return SCRATCH_FULL
                            target -= FIRST_COLUMN
                            if edge_lists[target, 0] != stamp:
                                edge_lists[target, 0], edge_lists[target, 1] = stamp, count
                            else:
                                edges[edge_lists[target, 2], 4] = count
                            edge_lists[target, 2] = count
                            edges[count, 0], edges[count, 1], edges[count, 2] = node, row, first
                            edges[count, 3], edges[count, 4] = last, -1
                            count += 1
    return DONE


@inlined
def shares_successor(table: RowArrays, entry: int, observed_stamp: Ints, stamp: int) -> bool:
    """Return whether a row has a successor in common with the observed pair; else it stays as it is (locality)."""
    begin, end = table.row_begin[table.entry_begin[entry]], table.row_begin[table.entry_begin[entry + 1]]
    found = False
    for k in range(begin, end):
        found |= observed_stamp[table.successors[k]] == stamp
    return found


@inlined
def push_rows(table: RowArrays, scratch: Scratch, forward: Forward, columns: int, shift: int, s_next: int) -> int:
    """Push weights along the edges, column by column; return the number of segments, or -1 if scratch is full.

    This is the sum of the formula in `label_step`; `probability`: pi(a|x) rho(y|x, a), over all a if rows are merged.
    `shift`: 1 if a start is added at `s_next`, which makes every other start one older; else 0.
    """
    state_stamp, state_node, by_state = scratch.state_stamp, scratch.state_node, scratch.by_state
    edge_lists, edges = scratch.edge_lists, scratch.edges
    states, start_range, weights, old = scratch.states, scratch.start_range, scratch.weights, forward.weights
    row_begin, successors, probabilities = table.row_begin, table.successors, table.lower
    list_stamp, capacity, width = scratch.clock[0], len(states) - 1, old.shape[1]
    segments, nodes = 0, 0
    ushift = np.uint64(shift)  # in the innermost loops a signed index would be checked for counting from the end
    scratch.first_node[0] = 0
    for column in range(columns):
        begins = shift == 1 and column == 0
        edge = edge_lists[column, 1] if edge_lists[column, 0] == list_stamp else -1
        if edge < 0 and not begins:
            continue
        if segments + 2 > len(scratch.first_node):
            return -1
        scratch.clock[1] += 1
        stamp, first_node = scratch.clock[1], nodes
        if begins:
            if nodes >= capacity:
                return -1
            state_stamp[s_next], state_node[s_next], states[nodes], by_state[nodes] = stamp, nodes, s_next, nodes
            start_range[nodes, 0], start_range[nodes, 1] = 0, 1
            for start in range(width):
                weights[nodes, start] = 0.0
            weights[nodes, 0] = 1.0
            nodes += 1
        while edge >= 0:
            source, row, first, last = edges[edge, 0], edges[edge, 1], edges[edge, 2], edges[edge, 3]
            for k in range(row_begin[row], row_begin[row + 1]):
                state, probability = successors[k], probabilities[k]
                if state_stamp[state] != stamp:
                    if nodes >= capacity:
                        return -1
                    state_stamp[state], state_node[state], states[nodes], by_state[nodes] = stamp, nodes, state, nodes
                    start_range[nodes, 0], start_range[nodes, 1] = first + shift, last + shift
                    for start in range(np.uint64(width)):
                        weights[nodes, start] = 0.0
                    for start in range(np.uint64(first), np.uint64(last)):
                        weights[nodes, start + ushift] = probability * old[source, start]
                    nodes += 1
                    continue
                node = state_node[state]
                start_range[node, 0] = min(start_range[node, 0], first + shift)
                start_range[node, 1] = max(start_range[node, 1], last + shift)
                for start in range(np.uint64(first), np.uint64(last)):
                    weights[node, start + ushift] += probability * old[source, start]
            edge = edges[edge, 4]
        if nodes > first_node:
            sort_nodes(state_stamp, state_node, states, by_state, first_node, nodes)
        scratch.column[segments] = column
        segments += 1
        scratch.first_node[segments] = nodes
    return segments


@inlined
def sort_nodes(state_stamp: Ints, state_node: Shorts, states: Shorts, by_state: Ints, begin: int, end: int) -> None:
    """Sort `by_state[begin:end]`, the nodes of one column, by state: by a scan of all states if they are many."""
    if 8 * (end - begin) > len(state_stamp):
        stamp, n = state_stamp[states[begin]], begin
        for state in range(len(state_stamp)):
            if state_stamp[state] == stamp:
                by_state[n] = state_node[state]
                n += 1
    elif end - begin > INSERTION_SORT_LIMIT:
        by_state[begin:end] = begin + np.argsort(states[begin:end])
    else:
        for n in range(begin + 1, end):  # successors of ascending nodes are nearly sorted
            node, m = by_state[n], n
            state = states[node]
            while m > begin and states[by_state[m - 1]] > state:
                by_state[m] = by_state[m - 1]
                m -= 1
            by_state[m] = node
