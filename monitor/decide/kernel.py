"""The inner loops of an answer, compiled: weights pushed along rows, step by step, for all start points at once.

Semantics, section 6. A *walk* holds, for each start point, where each obligation is owed by now and with which
probability; one observed transition advances all of them (`advance`), and the table of what lies ahead closes them
(`close`). Bounds over a class of causal models go backward instead (`interval`). Nothing is allocated per message and
nothing computed twice; where an array is too small, a number not yet known or a table not yet there, the loop stops
*before* it changes anything, says what it needs in `status`, and is called again.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from monitor.causal.compiled import compiled
from monitor.causal.moves import NO_ROOM, Dynamics, Memory, moves, place, regime, seen_before
from monitor.causal.row import choose, greedy

__all__ = [
    "DONE",
    "FULL_MEMO",
    "FULL_SCRATCH",
    "FULL_WALK",
    "NOTHING",
    "NO_STEP",
    "NO_TABLE",
    "UNKNOWN",
    "Engine",
    "Future",
    "Machine",
    "Scratch",
    "Walk",
    "closing",
    "follow",
    "interval",
]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Shorts = npt.NDArray[np.int32]

FALSE, TRUE = 0, 1
"""The final obligations, as in `monitor.logic`."""

DONE, FULL_MEMO, FULL_SCRATCH, FULL_WALK, NO_STEP, NO_TABLE = range(6)
"""What `status[0]` says. NO_STEP: obligation `status[1]` at letter `status[2]`; NO_TABLE: that offset, obligation."""

UNKNOWN = -1
NOTHING = -2
"""For `close`: no start point at all, the pairs are only taken in."""
STARTS, SEEN, TAKEN, AGE, TAKEN_IN = range(5)
"""`Walk.now`: start points held, the newest pair, its distance from the newest start point, and whether the next pair
has been taken in but not yet answered."""


class Machine(NamedTuple):
    """A program over letters.

    `step` [O, L] (UNKNOWN: not yet asked for), `pays` [O]; `letters` [offsets, S], or [offsets, S * A] if `by_action`:
    the number of the letter; the last row holds for all later offsets.
    """

    start: int
    step: Shorts
    pays: npt.NDArray[np.bool_]
    letters: Shorts
    by_action: bool


class Future(NamedTuple):
    """What lies ahead: `values` [n, S], `row` [offsets, O] says which one (UNKNOWN: not there); and plain rows."""

    values: Floats
    row: Ints
    indptr: Ints
    successors: Ints
    probabilities: Floats
    rewards: Floats


class Walk(NamedTuple):
    """Start points, oldest first, and where each obligation is owed.

    Start point i has segments `first[i]:first[i + 1]`; a segment has an obligation, and entries `begin[g]:begin[g + 1]`
    of states with weights. `gained` [starts]: what is decided or collected.
    """

    now: Ints
    first: Ints
    gained: Floats
    owed: Ints
    begin: Ints
    states: Shorts
    weights: Floats


class Scratch(NamedTuple):
    """Room to work in, shared.

    Sizes: `mark`, `total`, `other`, `touched` [S]; `target_mark`, `target_of` [O]; the rest grow.
    """

    mark: Ints
    total: Floats
    other: Floats
    touched: Shorts
    target_mark: Ints
    target_of: Ints
    target_owed: Ints
    target_first: Ints
    head: Ints
    tail: Ints
    item_node: Ints
    item_move: Ints
    item_next: Ints
    certain: Floats
    first: Ints
    owed: Ints
    begin: Ints
    states: Shorts
    weights: Floats
    low: Floats
    high: Floats
    clock: Ints


class Engine(NamedTuple):
    """Everything an answer needs beside its walk."""

    dynamics: Dynamics
    memory: Memory
    machine: Machine
    future: Future
    scratch: Scratch


@compiled
def letter_of(machine: Machine, offset: int, state: int, action: int, actions: int) -> int:
    """The number of the letter of a pair at an offset."""
    layer = min(offset, len(machine.letters) - 1)
    return machine.letters[layer, state * actions + action if machine.by_action else state]


@compiled
def collect(
    dynamics: Dynamics,
    memory: Memory,
    kind: int,
    machine: Machine,
    scratch: Scratch,
    pair: tuple[int, int, int],
    starts: tuple[int, int],
    newest: int,
    first: Ints,
    owed: Ints,
    begin: Ints,
    states: Shorts,
    status: Ints,
) -> int:
    """Read one letter everywhere: lists of (node, move) by start point and by what is owed next.

    Start points `starts[0]:starts[1]`, the last of them at offset `newest`, the others one further each. Fills
    `certain`: what each node yields for good; `target_first` [starts + 1] and `target_owed`: what is owed next.
    Returns the number of nodes, or -1 with `status` set. One call for all start points, for handing tuples of arrays
    over costs as much as the work on a start point.
    """
    seen, taken, outcome = pair
    size, actions = dynamics.rewards.shape
    step, pays, by_action = machine.step, machine.pays, machine.by_action
    keys, entries, entry_begin = memory.entry_keys, memory.entry_values, memory.entry_begin
    move_action, share, gain = memory.action, memory.share, memory.gain
    mark, number, head, tail = scratch.target_mark, scratch.target_of, scratch.head, scratch.tail
    item_node, item_move, item_next = scratch.item_node, scratch.item_move, scratch.item_next
    certain, target_first, target_owed = scratch.certain, scratch.target_first, scratch.target_owed
    clock = scratch.clock[0]
    scratch.clock[0] += starts[1] - starts[0]  # at once: marks made before a stop must not be met again
    items, targets, base, r, transition = 0, 0, begin[first[starts[0]]], -1, -1
    room = len(item_node)
    for i in range(starts[0], starts[1]):
        offset = newest + starts[1] - 1 - i
        letters = machine.letters[min(offset, len(machine.letters) - 1)]
        if regime(dynamics, offset) != r:
            r = regime(dynamics, offset)
            transition = seen_before(dynamics, memory, r, seen, taken, outcome)
            if transition == NO_ROOM:
                status[0] = FULL_MEMO
                return -1
        clock += 1
        target_first[i - starts[0]] = targets
        for g in range(first[i], first[i + 1]):
            owes = owed[g]
            for node in range(begin[g], begin[g + 1]):
                state = states[node]
                key = transition * size + state
                at = place(keys, key)
                entry = entries[at]
                if keys[at] != key:
                    entry = moves(dynamics, memory, kind, r, transition, seen, taken, outcome, state)
                    if entry == NO_ROOM:
                        status[0] = FULL_MEMO
                        return -1
                if node - base >= room or items + entry_begin[entry + 1] - entry_begin[entry] > room:
                    status[0] = FULL_SCRATCH
                    return -1
                yielded = 0.0
                for move in range(entry_begin[entry], entry_begin[entry + 1]):
                    letter = letters[state * actions + move_action[move] if by_action else state]
                    rest = step[owes, letter]
                    if rest == UNKNOWN:
                        status[0], status[1], status[2] = NO_STEP, owes, letter
                        return -1
                    if pays[owes]:
                        yielded += gain[move]
                    if rest == TRUE:
                        yielded += share[move]
                    elif rest != FALSE:
                        if mark[rest] != clock:
                            mark[rest], number[rest] = clock, targets
                            target_owed[targets], head[targets] = rest, items
                            targets += 1
                        else:
                            item_next[tail[number[rest]]] = items
                        tail[number[rest]] = items
                        item_node[items], item_move[items], item_next[items] = node, move, -1
                        items += 1
                certain[node - base] = yielded
    target_first[starts[1] - starts[0]] = targets
    return targets


@compiled
def advance(
    dynamics: Dynamics,
    memory: Memory,
    machine: Machine,
    scratch: Scratch,
    walk: Walk,
    outcome: int,
    keep: int,
    status: Ints,
) -> bool:
    """Advance every start point by the observed transition to `outcome`, and begin one there; False: see `status`."""
    drop = 1 if walk.now[STARTS] == keep and keep else 0
    kept = walk.now[STARTS] - drop
    segments, nodes = 0, 0
    if kept:
        if kept + 2 > len(scratch.first):
            status[0] = FULL_SCRATCH
            return False
        segments = collect(
            dynamics,
            memory,
            0,
            machine,
            scratch,
            (walk.now[SEEN], walk.now[TAKEN], outcome),
            (drop, drop + kept),
            walk.now[AGE],
            walk.first,
            walk.owed,
            walk.begin,
            walk.states,
            status,
        )
        if segments < 0:
            return False
        nodes = add_up(memory, scratch, walk.weights, segments)
        if nodes < 0:
            status[0] = FULL_SCRATCH
            return False
    if kept + 2 > len(walk.first) or segments + 2 > len(walk.begin) or nodes + 1 > len(walk.states):
        status[0], status[1], status[2], status[3] = FULL_WALK, kept + 2, segments + 2, nodes + 1
        return False
    gained, certain, base = walk.gained, scratch.certain, walk.begin[walk.first[drop]]
    for i in range(kept):
        total = gained[drop + i]
        for node in range(walk.begin[walk.first[drop + i]], walk.begin[walk.first[drop + i + 1]]):
            total += walk.weights[node] * certain[node - base]
        gained[i] = total
    walk.first[:kept] = scratch.target_first[:kept]
    walk.owed[:segments] = scratch.target_owed[:segments]
    walk.begin[: segments + 1] = scratch.begin[: segments + 1]
    walk.states[:nodes] = scratch.states[:nodes]
    walk.weights[:nodes] = scratch.weights[:nodes]
    walk.first[kept] = segments
    if keep == 0:  # one question from the first pair on
        walk.now[AGE] += 1
        return True
    walk.gained[kept] = 0.0
    walk.owed[segments], walk.states[nodes], walk.weights[nodes] = machine.start, outcome, 1.0
    walk.first[kept + 1], walk.begin[segments + 1] = segments + 1, nodes + 1
    walk.now[STARTS] = kept + 1
    return True


@compiled
def add_up(memory: Memory, scratch: Scratch, weights: Floats, targets: int) -> int:
    """The weights of what is owed next, into `begin`, `states`, `weights`; returns their number, -1: no room."""
    mark, total, touched, clock = scratch.mark, scratch.total, scratch.touched, scratch.clock[1]
    head, item_node, item_move, item_next = scratch.head, scratch.item_node, scratch.item_move, scratch.item_next
    row_begin, successors, row = memory.row_begin, memory.states, memory.low
    begin, states, sums = scratch.begin, scratch.states, scratch.weights
    nodes, room = 0, len(scratch.states)
    scratch.clock[1] += targets
    if targets + 2 > len(begin):
        return -1
    begin[0] = 0
    for target in range(targets):
        clock += 1
        reached, item = 0, head[target]
        while item >= 0:
            weight, move = weights[item_node[item]], item_move[item]
            for k in range(row_begin[move], row_begin[move + 1]):
                state = successors[k]
                if mark[state] == clock:
                    total[state] += weight * row[k]
                else:
                    mark[state], total[state] = clock, weight * row[k]
                    touched[reached] = state
                    reached += 1
            item = item_next[item]
        if nodes + reached + 1 > room:
            return -1
        for n in range(reached):
            state = touched[n]
            if total[state] > 0.0:
                states[nodes], sums[nodes] = state, total[state]
                nodes += 1
        begin[target + 1] = nodes
    return nodes


@compiled
def ahead(
    dynamics: Dynamics,
    machine: Machine,
    future: Future,
    offset: int,
    owed: int,
    state: int,
    seen: int,
    taken: int,
    status: Ints,
) -> float:
    """The value of an obligation in a state at the last observed pair; NaN: see `status`."""
    r = regime(dynamics, offset)
    if taken >= 0 and dynamics.default[r] and state == seen:
        return after(machine, future, offset, owed, state, taken, status)
    if taken >= 0 and dynamics.stochastic[r] and len(dynamics.nominal_probabilities):
        observed = dynamics.nominal_probabilities[r, seen]
        if 0.0 < observed[taken] < 1.0:
            choice = dynamics.probabilities[r, state].copy()
            choose(observed, taken, dynamics.probabilities[r, state], choice)
            total = 0.0
            for action in range(len(choice)):
                if choice[action] > 0.0:
                    total += choice[action] * after(machine, future, offset, owed, state, action, status)
            return total
    row = future.row[min(offset, len(future.row) - 1), owed]
    if row == UNKNOWN:
        status[0], status[1], status[2] = NO_TABLE, offset, owed
        return np.nan
    return future.values[row, state]


@compiled
def after(machine: Machine, future: Future, offset: int, owed: int, state: int, action: int, status: Ints) -> float:
    """The value of an obligation in a state where an action is taken, and nothing observed from there on."""
    actions = future.rewards.shape[1]
    letter = letter_of(machine, offset, state, action, actions)
    rest = machine.step[owed, letter]
    gain = future.rewards[state, action] if machine.pays[owed] else 0.0
    if rest == UNKNOWN:
        status[0], status[1], status[2] = NO_STEP, owed, letter
        return np.nan
    if rest in (FALSE, TRUE):
        return gain + rest
    row = future.row[min(offset + 1, len(future.row) - 1), rest]
    if row == UNKNOWN:
        status[0], status[1], status[2] = NO_TABLE, offset + 1, rest
        return np.nan
    a = state * actions + action
    total = 0.0
    for k in range(future.indptr[a], future.indptr[a + 1]):
        total += future.probabilities[k] * future.values[row, future.successors[k]]
    return gain + total


@compiled
def close(
    dynamics: Dynamics, machine: Machine, future: Future, walk: Walk, only: int, values: Floats, status: Ints
) -> bool:
    """The value from each start point (`values` [starts], newest first), or from the `only`-th oldest alone."""
    starts, seen, taken = walk.now[STARTS], walk.now[SEEN], walk.now[TAKEN]
    table, row = future.values, future.row
    for i in range(starts) if only < 0 else range(min(only, starts - 1), min(only, starts - 1) + 1):
        offset = walk.now[AGE] + starts - 1 - i
        r = regime(dynamics, offset)
        default = taken >= 0 and dynamics.default[r]
        told = taken >= 0 and dynamics.stochastic[r] and len(dynamics.nominal_probabilities) > 0
        total = walk.gained[i]
        for g in range(walk.first[i], walk.first[i + 1]):
            owed = walk.owed[g]
            at = row[min(offset, len(row) - 1), owed]
            for node in range(walk.begin[g], walk.begin[g + 1]):
                state = walk.states[node]
                if told or at == UNKNOWN or (default and state == seen):
                    value = ahead(dynamics, machine, future, offset, owed, state, seen, taken, status)
                else:
                    value = table[at, state]  # most of them: what `ahead` comes to, without asking it
                total += walk.weights[node] * value
        if status[0] != DONE:
            return False
        values[starts - 1 - i if only < 0 else 0] = total
    return True


@compiled
def take(
    dynamics: Dynamics,
    memory: Memory,
    machine: Machine,
    scratch: Scratch,
    walk: Walk,
    state: int,
    action: int,
    keep: int,
    status: Ints,
) -> bool:
    """Take one observed pair in; False: see `status`."""
    now = walk.now
    if now[STARTS] == 0:
        walk.first[0], walk.first[1], walk.gained[0] = 0, 1, 0.0
        walk.owed[0], walk.begin[0], walk.begin[1] = machine.start, 0, 1
        walk.states[0], walk.weights[0] = state, 1.0
        now[STARTS], now[AGE] = 1, 0
    elif not advance(dynamics, memory, machine, scratch, walk, state, keep, status):
        return False
    now[SEEN], now[TAKEN] = state, action
    return True


@compiled
def follow(
    engine: Any, walk: Any, states: Ints, actions: Ints, taken: int, keep: int, only: int, values: Floats, status: Ints
) -> int:
    """Take pairs in and answer after each, from pair `taken` on; returns how many are done.

    Args:
        engine: `Held` Engine; walk: `Held` Walk.
        states, actions: [n] observed pairs; an action of -1 is not known.
        taken: pairs done already.
        keep: start points to hold at most; only: see `close`.
        values: [n, starts] answers, newest start first; what is not answered stays as it was.
        status: [4]; `status[0]` says why not all pairs are done.
    """
    dynamics, memory, machine, future, scratch = engine.value
    spread = walk.value
    status[0] = DONE
    for n in range(taken, len(states)):
        if spread.now[TAKEN_IN] == 0:
            if not take(dynamics, memory, machine, scratch, spread, states[n], actions[n], keep, status):
                return n
            spread.now[TAKEN_IN] = 1
        if only != NOTHING and not close(dynamics, machine, future, spread, only, values[n], status):
            return n
        spread.now[TAKEN_IN] = 0
    return len(states)


@compiled
def closing(engine: Any, walk: Any, only: int, values: Floats, status: Ints) -> bool:
    """`close` with another engine's future, for an episode that has ended."""
    dynamics, _, machine, future, _ = engine.value
    status[0] = DONE
    return close(dynamics, machine, future, walk.value, only, values, status)


@compiled
def interval(engine: Any, kind: int, states: Ints, actions: Ints, bounds: Floats, status: Ints) -> bool:
    """Lowest and highest value, into `bounds` [2], from the first of the observed pairs; False: see `status`.

    Forward over what some causal model of the class can reach, then backward choosing a row for each (offset, state,
    obligation): attained where at most one obligation is live at each (offset, state), as for U, F and G over state
    formulas; otherwise bounds that may be wider than need be.
    """
    dynamics, _, machine, future, scratch = engine.value
    status[0] = DONE
    last = len(states) - 1
    first, owed, begin, reached = scratch.first, scratch.owed, scratch.begin, scratch.states
    if last + 2 >= len(first) or len(begin) < 2 or len(reached) < 1:
        status[0] = FULL_SCRATCH
        return False
    first[0], first[1], owed[0], begin[0], begin[1], reached[0] = 0, 1, machine.start, 0, 1, states[0]
    for offset in range(last):
        if not reach(engine.value, kind, states, actions, offset, status):
            return False
    low, high = scratch.low, scratch.high
    for g in range(first[last], first[last + 1]):
        for node in range(begin[g], begin[g + 1]):
            low[node] = ahead(
                dynamics, machine, future, last, owed[g], reached[node], states[last], actions[last], status
            )
            high[node] = low[node]
    if status[0] != DONE:
        return False
    for offset in range(last - 1, -1, -1):
        if not draw_back(engine.value, kind, states, actions, offset, status):
            return False
    bounds[0], bounds[1] = low[0], high[0]
    return True


@compiled
def level(value: Any, kind: int, states: Ints, actions: Ints, offset: int, status: Ints) -> int:
    """`collect` for one offset of `interval`: what is owed next from the nodes reached there."""
    dynamics, memory, machine, _, scratch = value
    pair = states[offset], actions[offset], states[offset + 1]
    return collect(
        dynamics,
        memory,
        kind,
        machine,
        scratch,
        pair,
        (offset, offset + 1),
        offset,
        scratch.first,
        scratch.owed,
        scratch.begin,
        scratch.states,
        status,
    )


@compiled
def reach(value: Any, kind: int, states: Ints, actions: Ints, offset: int, status: Ints) -> bool:
    """Add the nodes that some causal model of the class reaches one offset on."""
    _, memory, _, _, scratch = value
    targets = level(value, kind, states, actions, offset, status)
    if targets < 0:
        return False
    segments = scratch.first[offset + 1]
    nodes = scratch.begin[segments]
    if segments + targets + 2 > len(scratch.begin):
        status[0] = FULL_SCRATCH
        return False
    for t in range(targets):
        scratch.clock[1] += 1
        item = scratch.head[t]
        while item >= 0:
            move = scratch.item_move[item]
            for k in range(memory.row_begin[move], memory.row_begin[move + 1]):
                state = memory.states[k]
                if scratch.mark[state] != scratch.clock[1]:
                    if nodes + 1 > len(scratch.low):
                        status[0] = FULL_SCRATCH
                        return False
                    scratch.mark[state] = scratch.clock[1]
                    scratch.states[nodes] = state
                    nodes += 1
            item = scratch.item_next[item]
        scratch.owed[segments] = scratch.target_owed[t]
        segments += 1
        scratch.begin[segments] = nodes
    scratch.first[offset + 2] = segments
    return True


@compiled
def draw_back(value: Any, kind: int, states: Ints, actions: Ints, offset: int, status: Ints) -> bool:
    """Lowest and highest values of the nodes at an offset, given those one offset on."""
    _, memory, _, _, scratch = value
    targets = level(value, kind, states, actions, offset, status)
    if targets < 0:
        return False
    low, high, begin = scratch.low, scratch.high, scratch.begin
    base = begin[scratch.first[offset]]
    for node in range(base, begin[scratch.first[offset + 1]]):
        low[node] = high[node] = scratch.certain[node - base]
    for t in range(targets):
        g = scratch.first[offset + 1] + t  # as in `reach`: the same obligations in the same order
        for node in range(begin[g], begin[g + 1]):
            scratch.total[scratch.states[node]], scratch.other[scratch.states[node]] = low[node], high[node]
        item = scratch.head[t]
        while item >= 0:
            node, move = scratch.item_node[item], scratch.item_move[item]
            rows = slice(memory.row_begin[move], memory.row_begin[move + 1])
            least, most = memory.low[rows], memory.high[rows]
            reached = memory.states[rows]
            low[node] += memory.share[move] * greedy(least, most, scratch.total[reached], False)
            high[node] += memory.share[move] * greedy(least, most, scratch.other[reached], True)
            item = scratch.item_next[item]
    return True
