"""What the kernel's walk comes to, given what lies ahead; and whole recordings, compiled."""

from __future__ import annotations

from typing import Any

import numpy as np

from monitor.arrays import Floats, Ints
from monitor.causal.row import choose
from monitor.exact.forward.rows import Dynamics, regime, regime_end
from monitor.exact.forward.step import (
    AGE,
    DONE,
    NO_TABLE,
    ONLY,
    SEEN,
    SEGMENTS,
    STARTS,
    TAKEN,
    UNANSWERED,
    UNKNOWN,
    Engine,
    Forward,
    Future,
    Machine,
    take,
)
from monitor.exact.forward.unroll import FIRST_STRAND
from monitor.jit import compiled, inlined

__all__ = ["ahead", "along", "answer", "push"]


@compiled
def ahead(
    dynamics: Dynamics,
    machine: Machine,
    future: Future,
    offset: int,
    strand: int,
    state: int,
    seen: int,
    taken: int,
    lacks: Ints,
) -> tuple[float, int]:
    """The value of an obligation in a state at the last observed pair (action -1: not known)."""
    r = regime(dynamics, offset)
    if taken >= 0 and dynamics.default[r] and state == seen:
        return after(machine, future, offset, strand, state, taken, lacks)
    if taken >= 0 and dynamics.stochastic[r] and len(dynamics.nominal_probabilities):
        observed = dynamics.nominal_probabilities[r, seen]
        if 0.0 < observed[taken] < 1.0:
            choice = dynamics.probabilities[r, state].copy()
            choose(observed, taken, dynamics.probabilities[r, state], choice)
            total = 0.0
            for action in range(len(choice)):
                if choice[action] > 0.0:
                    value, came_to = after(machine, future, offset, strand, state, action, lacks)
                    if came_to != DONE:
                        return value, came_to
                    total += choice[action] * value
            return total, DONE
    row = future.row[offset, strand]
    if row == UNKNOWN:
        lacks[0], lacks[1] = offset, strand
        return np.nan, NO_TABLE
    return future.values[row, state], DONE


@compiled
def after(
    machine: Machine, future: Future, offset: int, strand: int, state: int, action: int, lacks: Ints
) -> tuple[float, int]:
    """The value of an obligation in a state where an action is taken, and nothing observed from there on."""
    a = state * future.rewards.shape[1] + action
    shown = machine.reading[a if machine.by_action else state]
    span = machine.known[strand, shown, 0]
    while machine.spans[span, 1] <= offset:
        span += 1
    gain = future.rewards[state, action] if machine.spans[span, 3] else 0.0
    target = machine.spans[span, 2]
    if target < FIRST_STRAND:
        return gain + target, DONE
    row = future.row[offset + 1, target - FIRST_STRAND]
    if row == UNKNOWN:
        lacks[0], lacks[1] = offset + 1, target - FIRST_STRAND
        return np.nan, NO_TABLE
    total = 0.0
    for k in range(future.indptr[a], future.indptr[a + 1]):
        total += future.probabilities[k] * future.values[row, future.successors[k]]
    return gain + total, DONE


@inlined
def close(engine: Engine, walk: Forward, values: Floats) -> int:
    """The value from each start point (`values` [starts], newest first), or from the one asked about, at 0."""
    dynamics, _, machine, future, scratch = engine
    now, first, lanes, weights, states = walk.now, walk.first, walk.lanes, walk.weights, walk.states
    table, row, rows, lacks = future.values, future.row, scratch.rows, scratch.lacks
    starts, seen, taken, age = now[STARTS], now[SEEN], now[TAKEN], now[AGE]
    lowest, highest = 0, starts
    if now[ONLY] >= 0:
        lowest = starts - 1 - min(now[ONLY], starts - 1)
        highest = lowest + 1
    values[: highest - lowest] = walk.gained[lowest:highest]
    for r in range(len(dynamics.first)):
        begin = max(dynamics.first[r] - age, lowest)
        end = min(regime_end(dynamics, r) - age, highest)
        if begin >= end:
            continue
        default = taken >= 0 and dynamics.default[r]
        told = taken >= 0 and dynamics.stochastic[r] and len(dynamics.nominal_probabilities) > 0
        for g in range(now[SEGMENTS]):
            strand = walk.strand[g]
            for lane in range(begin, min(end, len(rows), len(row) - age)):
                rows[lane] = row[age + lane, strand]
            for node in range(first[g], first[g + 1]):
                state = states[node]
                if told or (default and state == seen):
                    for lane in range(max(lanes[node, 0], begin), min(lanes[node, 1], end)):
                        if weights[node, lane] > 0.0:
                            value, came_to = ahead(
                                dynamics, machine, future, age + lane, strand, state, seen, taken, lacks
                            )
                            if came_to != DONE:
                                return came_to
                            values[lane - lowest] += weights[node, lane] * value
                    continue
                for lane in range(max(lanes[node, 0], begin), min(lanes[node, 1], end)):
                    if rows[lane] == UNKNOWN and weights[node, lane] > 0.0:
                        lacks[0], lacks[1] = age + lane, strand
                        return NO_TABLE
                    # Most of them: what `ahead` comes to, without asking it. Row -1 is some row: its weight is 0.
                    values[lane - lowest] += weights[node, lane] * table[rows[lane], state]
    return DONE


@compiled
def push(engine: Any, walk: Any, state: int, action: int, answered: bool) -> int:
    """Take one pair in and, if it is to be `answered`, write the walk's values; DONE, or what is lacking."""
    parts, spread = engine.value, walk.value
    if spread.now[UNANSWERED] == 0:
        came_to = take(parts, spread, state, action)
        if came_to != DONE:
            return came_to
    if answered:
        spread.now[UNANSWERED] = 1
        came_to = close(parts, spread, spread.values)
        if came_to != DONE:
            return came_to
    spread.now[UNANSWERED] = 0
    return DONE


@compiled
def answer(engine: Any, walk: Any) -> int:
    """Answer where a walk stands, without another pair."""
    return close(engine.value, walk.value, walk.value.values)


@compiled
def along(engine: Any, walk: Any, states: Ints, actions: Ints, values: Floats, done: int) -> tuple[int, int]:
    """Take pairs in from pair `done` on, and answer after each, into `values` [n, starts]; how many are done, and why.

    With no room for values ([0, starts]) nothing is answered.
    """
    parts, spread = engine.value, walk.value
    now = spread.now
    for n in range(done, len(states)):
        if now[UNANSWERED] == 0:
            came_to = take(parts, spread, states[n], actions[n])
            if came_to != DONE:
                return n, came_to
        if len(values):
            now[UNANSWERED] = 1
            came_to = close(parts, spread, values[n])
            if came_to != DONE:
                return n, came_to
            now[UNANSWERED] = 0
    return len(states), DONE
