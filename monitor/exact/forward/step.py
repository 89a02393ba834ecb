"""The inner loops of an answer, compiled: weights pushed along rows, step by step, for all start points at once.

See docs/semantics.md, section 6.1. A *walk* holds where each obligation is owed by now, and for each such node a weight
per start point: the probability that the world which sets in there has come here. Start points stand next to each
other by age (*lanes*), so one pass over a row serves all of them. One observed transition advances a walk (`advance`);
what lies ahead closes it (`closing.close`). Where an array is too small or a table not yet there, the loop stops
*before* it changes anything, says what it needs, and is called again. Nothing is allocated and nothing computed twice.

Nodes are added up by ascending strand and state, so no number depends on when a start point was joined by others.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from monitor.arrays import Floats, Ints, Shorts
from monitor.exact.forward.row_table import Memory, place
from monitor.exact.forward.rows import (
    NO_ROOM,
    Dynamics,
    moves,
    regime_end,
    seen_before,
)
from monitor.exact.forward.unroll import FIRST_STRAND
from monitor.jit import inlined

__all__ = [
    "AGE",
    "DONE",
    "FULL_MEMO",
    "FULL_SCRATCH",
    "FULL_WALK",
    "KEEP",
    "NO_TABLE",
    "ONLY",
    "SEEN",
    "SEGMENTS",
    "STARTS",
    "TAKEN",
    "UNANSWERED",
    "UNKNOWN",
    "Engine",
    "Forward",
    "Future",
    "Machine",
    "Scratch",
    "advance",
    "order",
    "read",
    "take",
]


FALSE, TRUE = 0, 1
"""What a span may lead to, as in `monitor.logic`; FIRST_STRAND and above: a strand."""

DONE, FULL_MEMO, FULL_SCRATCH, FULL_WALK, NO_TABLE = range(5)
"""What a call comes to. `Scratch.lacks`: FULL_WALK: segments, nodes; NO_TABLE: offset, strand."""

UNKNOWN = -1
MANY = 64
"""From so many numbers on, sorting by insertion is slow."""

STARTS, SEGMENTS, SEEN, TAKEN, AGE, KEEP, ONLY, UNANSWERED = range(8)
"""`Forward.now`: start points and segments held, the newest pair, its distance from the newest start point; start
points to hold at most (0: the first pair alone), the one asked about, counted from the oldest (-1: all); whether the
newest pair has been taken in but not answered."""


class Machine(NamedTuple):
    """A program in strands (see `Unrolled`); `reading` [S], or [S * A] if `by_action`: what a pair shows."""

    known: Ints
    spans: Ints
    reading: Shorts
    by_action: bool


class Future(NamedTuple):
    """What lies ahead: `values` [n, S], of which `row` [offsets, strands] (UNKNOWN: not there); and plain rows."""

    values: Floats
    row: Ints
    indptr: Ints
    successors: Ints
    probabilities: Floats
    rewards: Floats


class Forward(NamedTuple):
    """Where each obligation is owed. Lane 0 is the newest start point, lane j the one j pairs older.

    Segment g is of the strand `strand[g]` and has the nodes `first[g]:first[g + 1]`, by ascending `states`; these have
    `weights` [nodes, lanes], of which those in `lanes` [nodes, 2] (from, to) count. `gained` [starts]: what
    is decided or collected; `values` [starts]: the answers.
    """

    now: Ints
    strand: Ints
    first: Ints
    states: Shorts
    lanes: Ints
    weights: Floats
    gained: Floats
    values: Floats


class Scratch(NamedTuple):
    """Room to work in, shared.

    `mark`, `where` [S]; `evidence` [S], empty for small models: what the observed step could have led to; `ends`
    [strands, 3]: mark, first and last item; `items` [n, 5]: node, move, from and to lane, next item; then a walk in the
    making, its nodes as they were met and, ascending, their `places`. `clock` [2], `lacks` [2].
    """

    mark: Ints
    where: Shorts
    evidence: Ints
    ends: Ints
    items: Ints
    strand: Ints
    first: Ints
    states: Shorts
    places: Ints
    lanes: Ints
    weights: Floats
    gained: Floats
    rows: Ints
    clock: Ints
    lacks: Ints


class Engine(NamedTuple):
    """Everything an answer needs beside its walk."""

    dynamics: Dynamics
    memory: Memory
    machine: Machine
    future: Future
    scratch: Scratch


@inlined
def take(engine: Engine, walk: Forward, state: int, action: int) -> int:
    """Take one observed pair in; what it comes to is DONE or says what is lacking."""
    now = walk.now
    if now[STARTS] == 0:
        walk.strand[0], walk.first[0], walk.first[1], walk.states[0] = 0, 0, 1, state
        walk.lanes[0, 0], walk.lanes[0, 1], walk.weights[0, 0], walk.gained[0] = 0, 1, 1.0, 0.0
        now[STARTS], now[SEGMENTS], now[AGE] = 1, 1, 0
    else:
        came_to = advance(engine, walk, state)
        if came_to != DONE:
            return came_to
    now[SEEN], now[TAKEN] = state, action
    return DONE


@inlined
def advance(engine: Engine, walk: Forward, outcome: int) -> int:
    """Advance every start point by the observed transition to `outcome`, and begin one there."""
    dynamics, memory, machine, _, scratch = engine
    now, gained = walk.now, walk.gained
    keep = now[KEEP]
    shift = 1 if keep else 0
    kept = min(now[STARTS], keep - 1) if keep else 1
    if kept > len(scratch.gained):
        return FULL_SCRATCH
    scratch.gained[:kept] = gained[:kept]
    came_to = read(dynamics, memory, machine, scratch, walk, outcome, kept)
    if came_to != DONE:
        return came_to
    segments = gather(memory, scratch, walk, machine.known.shape[0], shift, outcome)
    if segments < 0:
        return FULL_SCRATCH
    nodes = scratch.first[segments]
    if segments > len(walk.strand) or nodes > len(walk.states):
        scratch.lacks[0], scratch.lacks[1] = segments, nodes
        return FULL_WALK
    walk.strand[:segments] = scratch.strand[:segments]
    walk.first[: segments + 1] = scratch.first[: segments + 1]
    for node in range(nodes):
        source = scratch.places[node]
        walk.states[node] = scratch.states[source]
        walk.lanes[node, 0], walk.lanes[node, 1] = scratch.lanes[source, 0], scratch.lanes[source, 1]
        for lane in range(np.uint64(scratch.lanes[source, 0]), np.uint64(scratch.lanes[source, 1])):
            walk.weights[node, lane] = scratch.weights[source, lane]
    for lane in range(kept):
        gained[lane + shift] = scratch.gained[lane]
    now[SEGMENTS] = segments
    if keep:
        gained[0] = 0.0
        now[STARTS] = kept + 1
    else:
        now[AGE] += 1
    return DONE


@inlined
def read(
    dynamics: Dynamics, memory: Memory, machine: Machine, scratch: Scratch, walk: Forward, outcome: int, kept: int
) -> int:
    """Read what each node shows: lists of items by what is owed next; what is decided is added to `gained`."""
    now, first, states, lanes, weights = walk.now, walk.first, walk.states, walk.lanes, walk.weights
    ends, items, gained = scratch.ends, scratch.items, scratch.gained
    known, spans, reading, by_action = machine.known, machine.spans, machine.reading, machine.by_action
    keys, entries, entry_begin = memory.entry_keys, memory.entry_values, memory.entry_begin
    size, actions = dynamics.rewards.shape
    scratch.clock[0] += 1
    clock, age, count = scratch.clock[0], now[AGE], 0
    evidence = scratch.evidence
    if dynamics.local:
        o = now[SEEN] * actions + now[TAKEN]
        for k in range(dynamics.observed_indptr[o], dynamics.observed_indptr[o + 1]):
            evidence[dynamics.observed_successors[k]] = clock
    for r in range(len(dynamics.first)):
        begin, end = max(dynamics.first[r] - age, 0), min(regime_end(dynamics, r) - age, kept)
        if begin >= end:
            continue
        transition = seen_before(dynamics, memory, r, now[SEEN], now[TAKEN], outcome)
        if transition == NO_ROOM:
            return FULL_MEMO
        for g in range(now[SEGMENTS]):
            strand = walk.strand[g]
            for node in range(first[g], first[g + 1]):
                low, high = max(lanes[node, 0], begin), min(lanes[node, 1], end)
                while low < high and weights[node, low] == 0.0:
                    low += 1
                if low >= high:
                    continue
                state = states[node]
                key, told = transition * size + state, True
                if dynamics.local:
                    at = place(keys, r * size + state)
                    entry = entries[at]
                    if keys[at] != r * size + state:
                        entry = moves(dynamics, memory, 0, r, r, -1, -1, -1, state)
                        if entry == NO_ROOM:
                            return FULL_MEMO
                    told = state == now[SEEN] or touched(memory, entry, evidence, clock)
                if told:
                    at = place(keys, key)
                    entry = entries[at]
                    if keys[at] != key:
                        entry = moves(dynamics, memory, 0, r, transition, now[SEEN], now[TAKEN], outcome, state)
                        if entry == NO_ROOM:
                            return FULL_MEMO
                for move in range(entry_begin[entry], entry_begin[entry + 1]):
                    shown = reading[state * actions + memory.action[move] if by_action else state]
                    for span in range(known[strand, shown, 0], known[strand, shown, 1]):
                        here, there = max(low, spans[span, 0] - age), min(high, spans[span, 1] - age)
                        if here >= there:
                            continue
                        target = spans[span, 2]
                        if spans[span, 3]:
                            for lane in range(here, there):
                                gained[lane] += weights[node, lane] * memory.gain[move]
                        if target == TRUE:
                            for lane in range(here, there):
                                gained[lane] += weights[node, lane] * memory.share[move]
                        elif target >= FIRST_STRAND:
                            if count == len(items):
                                return FULL_SCRATCH
                            target -= FIRST_STRAND
                            if ends[target, 0] != clock:
                                ends[target, 0], ends[target, 1] = clock, count
                            else:
                                items[ends[target, 2], 4] = count
                            ends[target, 2] = count
                            items[count, 0], items[count, 1], items[count, 2] = node, move, here
                            items[count, 3], items[count, 4] = there, -1
                            count += 1
    return DONE


@inlined
def touched(memory: Memory, entry: int, evidence: Ints, clock: int) -> bool:
    """Whether a row shares a successor with that of the observed step: else this says nothing about it (locality)."""
    begin, end = memory.row_begin[memory.entry_begin[entry]], memory.row_begin[memory.entry_begin[entry + 1]]
    found = False
    for k in range(begin, end):
        found |= evidence[memory.states[k]] == clock
    return found


@inlined
def gather(memory: Memory, scratch: Scratch, walk: Forward, strands: int, shift: int, outcome: int) -> int:
    """Add up the items, and begin a start point; returns the number of segments, or -1: no room."""
    mark, where, ends, items, places = scratch.mark, scratch.where, scratch.ends, scratch.items, scratch.places
    states, lanes, weights, old = scratch.states, scratch.lanes, scratch.weights, walk.weights
    row_begin, successors, row = memory.row_begin, memory.states, memory.low
    clock, room, width = scratch.clock[0], len(states) - 1, old.shape[1]
    segments, nodes = 0, 0
    ushift = np.uint64(shift)  # in the innermost loops: signed places are checked for being counted from the end
    scratch.first[0] = 0
    for strand in range(strands):
        begins = shift == 1 and strand == 0
        item = ends[strand, 1] if ends[strand, 0] == clock else -1
        if item < 0 and not begins:
            continue
        if segments + 2 > len(scratch.first):
            return -1
        scratch.clock[1] += 1
        tick, start = scratch.clock[1], nodes
        if begins:
            if nodes >= room:
                return -1
            mark[outcome], where[outcome], states[nodes], places[nodes] = tick, nodes, outcome, nodes
            lanes[nodes, 0], lanes[nodes, 1] = 0, 1
            for lane in range(width):
                weights[nodes, lane] = 0.0
            weights[nodes, 0] = 1.0
            nodes += 1
        while item >= 0:
            source, move, low, high = items[item, 0], items[item, 1], items[item, 2], items[item, 3]
            for k in range(row_begin[move], row_begin[move + 1]):
                state, share = successors[k], row[k]
                if mark[state] != tick:
                    if nodes >= room:
                        return -1
                    mark[state], where[state], states[nodes], places[nodes] = tick, nodes, state, nodes
                    lanes[nodes, 0], lanes[nodes, 1] = low + shift, high + shift
                    for lane in range(np.uint64(width)):
                        weights[nodes, lane] = 0.0
                    for lane in range(np.uint64(low), np.uint64(high)):
                        weights[nodes, lane + ushift] = share * old[source, lane]
                    nodes += 1
                    continue
                node = where[state]
                lanes[node, 0] = min(lanes[node, 0], low + shift)
                lanes[node, 1] = max(lanes[node, 1], high + shift)
                for lane in range(np.uint64(low), np.uint64(high)):
                    weights[node, lane + ushift] += share * old[source, lane]
            item = items[item, 4]
        if nodes > start:
            order(mark, where, states, places, start, nodes)
        scratch.strand[segments] = strand
        segments += 1
        scratch.first[segments] = nodes
    return segments


@inlined
def order(mark: Ints, where: Shorts, states: Shorts, places: Ints, start: int, end: int) -> None:
    """Sort places `start:end` by their states: looking through all states that are marked, where they are not few."""
    if 8 * (end - start) > len(mark):
        tick, n = mark[states[start]], start
        for state in range(len(mark)):
            if mark[state] == tick:
                places[n] = where[state]
                n += 1
    elif end - start > MANY:
        places[start:end] = start + np.argsort(states[start:end])
    else:
        for n in range(start + 1, end):  # what comes out of ascending nodes is nearly sorted
            place, m = places[n], n
            state = states[place]
            while m > start and states[places[m - 1]] > state:
                places[m] = places[m - 1]
                m -= 1
            places[m] = place
