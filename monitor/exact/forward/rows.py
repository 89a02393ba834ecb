"""What can be done in a state, given an observed transition: the rows that abduction leaves, remembered.

The rows of a counterfactual world depend only on the transition observed at that step, on the state, and on what acts
there (docs/semantics.md, section 3); agents meet the same transitions again and again, so each row is computed once.
Compiled; the arrays live in a `RowTable` that grows to a limit and then starts anew.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from monitor.arrays import Bools, Floats, Ints
from monitor.causal.row import align, bound, choose, reweigh
from monitor.exact.forward.row_table import (
    COMPUTED,
    ENTRIES,
    EXACT,
    MOVES,
    NUMBERS,
    STABLE,
    TRANSITIONS,
    Memory,
    place,
)
from monitor.jit import compiled, inlined

__all__ = ["NO_ROOM", "Dynamics", "moves", "regime", "regime_end", "seen_before"]


NO_ROOM = -1
FOR_GOOD = 1 << 62
"""Where a regime ends that has none after it."""


class Dynamics(NamedTuple):
    """What acts, and under which rows, where something was observed. Regimes: phases of the law, by offset.

    `first` [R]: a regime's first offset; `default` [R]: whether nothing was changed there; `stochastic` [R];
    `actions` [R, S] for the deterministic ones; `probabilities` [R, S, A] for the others. `nominal_probabilities`
    [R, S, A]: the choice of which one action was observed, empty where it was certain. `asked_*`, `observed_*`: CSR
    rows of the world asked about, and of the one observed; `same`: they are one. `rewards` [S, A] and
    `asked_extra` [N], empty if there is none: the reward of the world asked about, and the part of it that depends on
    the successor. `merged`: a state's
    actions may all be added up, for nothing that is asked depends on the action. `local`: states are so many that the
    rows of those that a transition says nothing about are better kept once for all transitions.
    """

    asked_indptr: Ints
    asked_successors: Ints
    asked_probabilities: Floats
    observed_indptr: Ints
    observed_successors: Ints
    observed_probabilities: Floats
    rewards: Floats
    asked_extra: Floats
    first: Ints
    default: Bools
    stochastic: Bools
    actions: Ints
    probabilities: Floats
    nominal_probabilities: Floats
    same: bool
    merged: bool
    local: bool


@inlined
def regime(dynamics: Dynamics, offset: int) -> int:
    """The regime in force at an offset."""
    r = len(dynamics.first) - 1
    while dynamics.first[r] > offset:
        r -= 1
    return r


@inlined
def regime_end(dynamics: Dynamics, r: int) -> int:
    """The first offset after a regime."""
    return dynamics.first[r + 1] if r + 1 < len(dynamics.first) else FOR_GOOD


@inlined
def seen_before(dynamics: Dynamics, memory: Memory, r: int, seen: int, taken: int, outcome: int) -> int:
    """The number of an observed transition under a regime; NO_ROOM where there is none for a new one.

    Numbers below that of regimes stand for nothing observed.
    """
    states, actions = dynamics.rewards.shape
    key = ((seen * actions + taken) * states + outcome) * len(dynamics.first) + r
    at = place(memory.transition_keys, key)
    if memory.transition_keys[at] != key:
        if 2 * (memory.used[TRANSITIONS] + 1) > len(memory.transition_keys):
            return NO_ROOM
        memory.transition_keys[at] = key
        memory.transition_values[at] = memory.used[TRANSITIONS]
        memory.used[TRANSITIONS] += 1
    return len(dynamics.first) + memory.transition_values[at]


@compiled
def moves(
    dynamics: Dynamics,
    memory: Memory,
    kind: int,
    r: int,
    transition: int,
    seen: int,
    taken: int,
    outcome: int,
    state: int,
) -> int:
    """The entry of what can be done in `state`: moves `entry_begin[e]:entry_begin[e + 1]`; NO_ROOM: make some.

    An `outcome` of -1: nothing was observed. A move: an action, its probability (`share`), its share of the reward
    (`gain`; for bounds without the part that a successor brings, `extra`), and a row already times the share (EXACT) or
    bounds of the row (ANY, STABLE). `merged` dynamics have all actions of a state in one EXACT move.
    """
    states = dynamics.rewards.shape[0]
    key = transition * states + state
    at = place(memory.entry_keys, key)
    if memory.entry_keys[at] == key:
        return memory.entry_values[at]
    used = memory.used
    if used[ENTRIES] + 2 > len(memory.entry_begin):  # the table has room for twice as many
        return NO_ROOM
    before = used[MOVES], used[NUMBERS]
    if not fill(dynamics, memory, kind, r, seen, taken, outcome, state):
        used[MOVES], used[NUMBERS] = before
        return NO_ROOM
    entry = used[ENTRIES]
    used[ENTRIES] += 1
    memory.entry_begin[entry + 1] = used[MOVES]
    memory.entry_keys[at], memory.entry_values[at] = key, entry
    return entry


@inlined
def fill(
    dynamics: Dynamics, memory: Memory, kind: int, r: int, seen: int, taken: int, outcome: int, state: int
) -> bool:
    """Write the moves of one state; False where the room does not suffice."""
    if dynamics.default[r] and state == seen:
        # Nothing was changed here: the action really taken, off-policy ones too.
        return put(dynamics, memory, kind, seen, taken, outcome, state, taken, 1.0)
    if not dynamics.stochastic[r]:
        return put(dynamics, memory, kind, seen, taken, outcome, state, dynamics.actions[r, state], 1.0)
    choice = dynamics.probabilities[r, state].copy()
    if outcome >= 0 and len(dynamics.nominal_probabilities):  # else the choice observed was certain: it says nothing
        choose(dynamics.nominal_probabilities[r, seen], taken, dynamics.probabilities[r, state], choice)
    first, begin = memory.used[MOVES], memory.used[NUMBERS]
    for action in range(len(choice)):
        if choice[action] > 0.0 and not put(
            dynamics, memory, kind, seen, taken, outcome, state, action, choice[action]
        ):
            return False
    if dynamics.merged and kind == EXACT:
        merge(memory, first, begin)
    return True


@inlined
def put(
    dynamics: Dynamics,
    memory: Memory,
    kind: int,
    seen: int,
    taken: int,
    outcome: int,
    state: int,
    action: int,
    share: float,
) -> bool:
    """Write one move and its row; False where the room does not suffice."""
    used, actions = memory.used, dynamics.rewards.shape[1]
    move, begin = used[MOVES], used[NUMBERS]
    a = state * actions + action
    q_states = dynamics.asked_successors[dynamics.asked_indptr[a] : dynamics.asked_indptr[a + 1]]
    q = dynamics.asked_probabilities[dynamics.asked_indptr[a] : dynamics.asked_indptr[a + 1]]
    if move + 2 > len(memory.row_begin) or begin + len(q) + 1 > len(memory.states):
        return False
    memory.action[move], memory.share[move] = action, share
    gain = dynamics.rewards[state, action]
    rewarded, first = len(dynamics.asked_extra) > 0, dynamics.asked_indptr[a]
    n = begin
    if dynamics.same and state == seen and action == taken:
        # The very same state, action and model as observed: the same outcome, under every causal model.
        memory.states[n], memory.low[n] = outcome, share if kind == EXACT else 1.0
        if kind != EXACT:
            memory.high[n], memory.extra[n] = 1.0, 0.0
        if rewarded:
            for k in range(len(q)):
                if q_states[k] == outcome:
                    gain += dynamics.asked_extra[first + k]
        n += 1
    elif outcome < 0:
        for k in range(len(q)):
            memory.states[n], memory.low[n] = q_states[k], share * q[k]
            if rewarded:
                gain += q[k] * dynamics.asked_extra[first + k]
            n += 1
    else:
        o = seen * actions + taken
        p_states = dynamics.observed_successors[dynamics.observed_indptr[o] : dynamics.observed_indptr[o + 1]]
        p_row = dynamics.observed_probabilities[dynamics.observed_indptr[o] : dynamics.observed_indptr[o + 1]]
        p, low, high = np.empty(len(q)), np.empty(len(q)), np.empty(len(q))
        p_outcome, at = align(p_states, p_row, outcome, q_states, p)
        used[COMPUTED] += p.sum() > 0.0
        if kind == EXACT:
            reweigh(p, q, p_outcome, at, high)
        else:
            bound(p, q, p_outcome, at, kind == STABLE, low, high)
        for k in range(len(q)):
            if high[k] > 0.0:
                memory.states[n], memory.low[n] = q_states[k], share * high[k] if kind == EXACT else low[k]
                if kind != EXACT:
                    memory.high[n] = high[k]
                    memory.extra[n] = dynamics.asked_extra[first + k] if rewarded else 0.0
                elif rewarded:
                    gain += high[k] * dynamics.asked_extra[first + k]
                n += 1
    memory.gain[move] = share * gain
    used[NUMBERS] = n
    memory.row_begin[move + 1] = n
    used[MOVES] = move + 1
    return True


@compiled
def merge(memory: Memory, first: int, begin: int) -> None:
    """Make one move of those from `first` on: their rows added up, their shares and gains too."""
    used = memory.used
    if used[MOVES] == first + 1:
        return
    order = np.argsort(memory.states[begin : used[NUMBERS]], kind="mergesort")
    states, low = memory.states[begin : used[NUMBERS]][order], memory.low[begin : used[NUMBERS]][order]
    n = begin
    for k in range(len(states)):
        if k and states[k] == states[k - 1]:
            memory.low[n - 1] += low[k]
        else:
            memory.states[n], memory.low[n] = states[k], low[k]
            n += 1
    for move in range(first + 1, used[MOVES]):
        memory.share[first] += memory.share[move]
        memory.gain[first] += memory.gain[move]
    used[MOVES], used[NUMBERS] = first + 1, n
    memory.row_begin[first + 1] = n
