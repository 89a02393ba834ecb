"""Bounds over a class of causal models, compiled: forward over what can be reached, backward choosing rows.

See docs/semantics.md, section 6.3. At each (offset, state, obligation) a row is chosen for itself, so the interval is
attained where at most one obligation is live at each (offset, state), as for U, F and G over state formulas; elsewhere
it may be wider than necessary.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from monitor.arrays import Floats, Ints, Shorts
from monitor.causal.row import greedy
from monitor.exact.forward.close import ahead
from monitor.exact.forward.row_table import place
from monitor.exact.forward.rows import (
    NO_ROOM,
    moves,
    regime,
    seen_before,
)
from monitor.exact.forward.step import DONE, FULL_MEMO, TRUE, Engine
from monitor.exact.forward.unroll import FIRST_STRAND
from monitor.jit import compiled, inlined

__all__ = ["FULL_LEVELS", "Levels", "backward", "forward", "interval"]


FULL_LEVELS = 5
"""Result of a call, beside those of the kernel: a part of `Levels` is too small; `Scratch.lacks` says which."""
PLACES, NODES, ITEMS = range(3)
"""The parts: `node_first`, the arrays of nodes, `items`."""


class Levels(NamedTuple):
    """All that is reached, offset by offset, and how.

    Level o has the nodes `node_first[o]:node_first[o + 1]`, each with a strand and a state, by strand. Its
    items lead to the next level: `items` [n, 4] node, move, next item that leads to the same strand, whether the reward
    counts. `entry` [nodes]: for the first node of a strand in its level, the first item that leads there.
    `low`, `high` [nodes]. `below`, `above` [S]: the values of one row's successors.
    """

    node_first: Ints
    item_count: Ints
    strand: Ints
    state: Shorts
    entry: Ints
    low: Floats
    high: Floats
    items: Ints
    below: Floats
    above: Floats


@compiled
def interval(engine: Any, levels: Any, kind: int, states: Ints, actions: Ints, bounds: Floats) -> int:
    """Lowest and highest value, into `bounds` [2], from the first of the observed pairs; DONE, or what is lacking."""
    parts, reached = engine.value, levels.value
    came_to = reach(parts, reached, kind, states, actions)
    if came_to != DONE:
        return came_to
    last = len(states) - 1
    for node in range(reached.node_first[last], reached.node_first[last + 1]):
        value, came_to = ahead(
            parts.dynamics,
            parts.machine,
            parts.future,
            last,
            reached.strand[node],
            reached.state[node],
            states[last],
            actions[last],
            parts.scratch.lacks,
        )
        if came_to != DONE:
            return came_to
        reached.low[node] = reached.high[node] = value
    draw_back(parts, reached, last, bounds)
    return DONE


@compiled
def forward(engine: Any, levels: Any, kind: int, states: Ints, actions: Ints) -> int:
    """The first half of `interval`; the caller fills the values of the last level's nodes."""
    return reach(engine.value, levels.value, kind, states, actions)


@compiled
def backward(engine: Any, levels: Any, last: int, bounds: Floats) -> None:
    """The second half."""
    draw_back(engine.value, levels.value, last, bounds)


@inlined
def reach(parts: Engine, reached: Levels, kind: int, states: Ints, actions: Ints) -> int:
    """All that some causal model of the class reaches up to the last observed pair; DONE, or what is lacking."""
    if len(states) + 1 > len(reached.node_first):
        parts.scratch.lacks[0], parts.scratch.lacks[1] = PLACES, len(states) + 1
        return FULL_LEVELS
    reached.node_first[0], reached.node_first[1], reached.item_count[0] = 0, 1, 0
    reached.strand[0], reached.state[0] = 0, states[0]
    for offset in range(len(states) - 1):
        came_to = read_level(parts, reached, kind, offset, states[offset], actions[offset], states[offset + 1])
        if came_to == DONE:
            came_to = join_levels(parts, reached, offset)
        if came_to != DONE:
            return came_to
    return DONE


@inlined
def read_level(parts: Engine, levels: Levels, kind: int, offset: int, seen: int, taken: int, outcome: int) -> int:
    """Read what the nodes of a level show: its items, linked by strand, and what the nodes yield for good."""
    dynamics, memory, machine, _, scratch = parts
    items, ends, low, high = levels.items, scratch.ends, levels.low, levels.high
    keys, entries = memory.entry_keys, memory.entry_values
    size, actions = dynamics.rewards.shape
    scratch.clock[0] += 1
    count = levels.item_count[offset]
    r = regime(dynamics, offset)
    transition = seen_before(dynamics, memory, r, seen, taken, outcome)
    if transition == NO_ROOM:
        return FULL_MEMO
    for node in range(levels.node_first[offset], levels.node_first[offset + 1]):
        state, strand = levels.state[node], levels.strand[node]
        low[node] = high[node] = 0.0
        key = transition * size + state
        at = place(keys, key)
        entry = entries[at]
        if keys[at] != key:
            entry = moves(dynamics, memory, kind, r, transition, seen, taken, outcome, state)
            if entry == NO_ROOM:
                return FULL_MEMO
        for move in range(memory.entry_begin[entry], memory.entry_begin[entry + 1]):
            shown = machine.reading[state * actions + memory.action[move] if machine.by_action else state]
            span = machine.known[strand, shown, 0]
            while machine.spans[span, 1] <= offset:
                span += 1
            target, pays = machine.spans[span, 2], machine.spans[span, 3]
            if pays:
                low[node] += memory.gain[move]
                high[node] += memory.gain[move]
            if target == TRUE:
                low[node] += memory.share[move]
                high[node] += memory.share[move]
            elif target >= FIRST_STRAND:
                if count == len(items):
                    scratch.lacks[0], scratch.lacks[1] = ITEMS, count + 1
                    return FULL_LEVELS
                target -= FIRST_STRAND
                if ends[target, 0] != scratch.clock[0]:
                    ends[target, 0], ends[target, 1] = scratch.clock[0], count
                else:
                    items[ends[target, 2], 2] = count
                ends[target, 2] = count
                items[count, 0], items[count, 1], items[count, 2], items[count, 3] = node, move, -1, pays
                count += 1
            elif pays:  # nothing is owed any more, so the row matters for what its successors bring alone
                begin, end = memory.row_begin[move], memory.row_begin[move + 1]
                least, most, extra = memory.low[begin:end], memory.high[begin:end], memory.extra[begin:end]
                low[node] += memory.share[move] * greedy(least, most, extra, False)
                high[node] += memory.share[move] * greedy(least, most, extra, True)
    levels.item_count[offset + 1] = count
    return DONE


@inlined
def join_levels(parts: Engine, levels: Levels, offset: int) -> int:
    """The nodes of the next level, strand by strand."""
    _, memory, machine, _, scratch = parts
    mark, ends, items = scratch.mark, scratch.ends, levels.items
    nodes = levels.node_first[offset + 1]
    for strand in range(machine.known.shape[0]):
        if ends[strand, 0] != scratch.clock[0]:
            continue
        scratch.clock[1] += 1
        start, item = nodes, ends[strand, 1]
        while item >= 0:
            move = items[item, 1]
            for k in range(memory.row_begin[move], memory.row_begin[move + 1]):
                state = memory.states[k]
                if mark[state] != scratch.clock[1]:
                    if nodes == len(levels.state):
                        scratch.lacks[0], scratch.lacks[1] = NODES, nodes + 1
                        return FULL_LEVELS
                    mark[state], levels.state[nodes], levels.strand[nodes] = scratch.clock[1], state, strand
                    nodes += 1
            item = items[item, 2]
        levels.entry[start] = ends[strand, 1]
    levels.node_first[offset + 2] = nodes
    return DONE


@inlined
def draw_back(parts: Engine, reached: Levels, last: int, bounds: Floats) -> None:
    """From the values of the last level's nodes to those of the first, into `bounds` [2]."""
    memory, where = parts.memory, parts.scratch.where
    low, high, items, below, above = reached.low, reached.high, reached.items, reached.below, reached.above
    for offset in range(last - 1, -1, -1):
        node, end = reached.node_first[offset + 1], reached.node_first[offset + 2]
        while node < end:
            strand, item = reached.strand[node], reached.entry[node]
            while node < end and reached.strand[node] == strand:
                where[reached.state[node]] = node
                node += 1
            while item >= 0:
                source, move, pays = items[item, 0], items[item, 1], items[item, 3]
                begin, stop = memory.row_begin[move], memory.row_begin[move + 1]
                for k in range(begin, stop):
                    child = where[memory.states[k]]
                    extra = memory.extra[k] if pays else 0.0
                    below[k - begin], above[k - begin] = low[child] + extra, high[child] + extra
                least, most = memory.low[begin:stop], memory.high[begin:stop]
                low[source] += memory.share[move] * greedy(least, most, below, False)
                high[source] += memory.share[move] * greedy(least, most, above, True)
                item = items[item, 2]
    bounds[0], bounds[1] = low[0], high[0]
