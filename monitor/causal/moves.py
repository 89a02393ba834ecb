"""What can be done in a state, given an observed transition: the rows that abduction leaves, remembered.

The rows of a counterfactual world depend only on the transition observed at that step, on the state, and on what acts
there (semantics, section 3); agents meet the same transitions again and again, so each row is computed once. Compiled;
the arrays live in a `Memo` that grows to a limit and then starts anew.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from monitor.causal.compiled import compiled, inlined
from monitor.causal.row import align, bound, choose, reweigh

__all__ = [
    "ANY",
    "EXACT",
    "NO_ROOM",
    "STABLE",
    "Allowance",
    "Dynamics",
    "Memo",
    "Memory",
    "Memos",
    "moves",
    "place",
    "regime",
    "regime_end",
    "seen_before",
]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Shorts = npt.NDArray[np.int32]

EXACT, ANY, STABLE = 0, 1, 2
"""Which rows: the Gumbel-Max row, or bounds over a class of causal models (`monitor.types.CausalModel`)."""

NO_ROOM = -1
FOR_GOOD = 1 << 62
"""Where a regime ends that has none after it."""
MAX_NUMBERS = 4_000_000
"""Probabilities the memos of one model may hold together before one of them starts anew: 64 to 96 MB. One question that
needs more is given more."""

TRANSITIONS, ENTRIES, MOVES, NUMBERS, COMPUTED = range(5)
"""What `Memory.used` counts: the first four in use, the last: counterfactual rows ever computed."""


class Dynamics(NamedTuple):
    """What acts, and under which rows, where something was observed. Regimes: phases of the law, by offset.

    `first` [R]: a regime's first offset; `default` [R]: whether nothing was changed there; `stochastic` [R];
    `actions` [R, S] for the deterministic ones; `probabilities` [R, S, A] for the others. `nominal_probabilities`
    [R, S, A]: the choice of which one action was observed, empty where it was certain. `asked_*`, `observed_*`: CSR
    rows of the world asked about, and of the one observed; `same`: they are one. `rewards` [S, A]. `merged`: a state's
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
    first: Ints
    default: npt.NDArray[np.bool_]
    stochastic: npt.NDArray[np.bool_]
    actions: Ints
    probabilities: Floats
    nominal_probabilities: Floats
    same: bool
    merged: bool
    local: bool


class Memory(NamedTuple):
    """The arrays of a memo. Two hash tables (open addressing, -1: free), then moves, then the numbers of their rows."""

    transition_keys: Ints
    transition_values: Ints
    entry_keys: Ints
    entry_values: Ints
    entry_begin: Ints
    action: Ints
    share: Floats
    gain: Floats
    row_begin: Ints
    states: Shorts
    low: Floats
    high: Floats
    used: Ints


class Allowance:
    """What the memos that share it hold together."""

    def __init__(self) -> None:
        self.held = 0


class Memo:
    """Rows by observed transition and state; `arrays` changes where it grows. `kind`: EXACT, ANY or STABLE."""

    def __init__(self, kind: int, allowance: Allowance | None = None) -> None:
        self.kind, self._allowance = kind, allowance or Allowance()
        self.arrays = self._allocate(64, 256, 256, 2048)
        self._allowance.held += len(self.arrays.states)

    @property
    def computed(self) -> int:
        """Counterfactual rows ever computed."""
        return int(self.arrays.used[COMPUTED])

    def make_room(self, *, forget: bool) -> None:
        """Twice the room; beyond MAX_NUMBERS the same, with everything forgotten, if that is allowed."""
        old = self.arrays
        transitions, entries, held, numbers = (
            len(old.transition_keys),
            len(old.entry_begin),
            len(old.action),
            len(old.states),
        )
        used = old.used
        if forget and used[ENTRIES] > 0 and self._allowance.held + numbers > MAX_NUMBERS:
            computed = used[COMPUTED]
            self.arrays = self._allocate(transitions // 2, entries - 1, held, numbers)
            self.arrays.used[COMPUTED] = computed
            return
        self._allowance.held += numbers
        new = self._allocate(
            transitions // 2 * (2 if 4 * used[TRANSITIONS] >= transitions else 1),
            (entries - 1) * (2 if 2 * used[ENTRIES] >= entries - 1 else 1),
            held * 2,  # not only where they are many: one state may have more than there is room for
            numbers * 2,
        )
        for name in Memory._fields[4:]:
            source: npt.NDArray[np.generic] = getattr(old, name)
            getattr(new, name)[: len(source)] = source
        rehash(old.transition_keys, old.transition_values, new.transition_keys, new.transition_values)
        rehash(old.entry_keys, old.entry_values, new.entry_keys, new.entry_values)
        self.arrays = new

    def close(self) -> None:
        """Give its share back; whoever still asks it has it for himself."""
        self._allowance.held -= len(self.arrays.states)
        self._allowance = Allowance()

    def _allocate(self, transitions: int, entries: int, held: int, numbers: int) -> Memory:
        return Memory(
            np.full(2 * transitions, -1),
            np.zeros(2 * transitions, dtype=np.int64),
            np.full(2 * _power(entries), -1),
            np.zeros(2 * _power(entries), dtype=np.int64),
            np.zeros(entries + 1, dtype=np.int64),
            np.zeros(held, dtype=np.int64),
            np.zeros(held),
            np.zeros(held),
            np.zeros(held + 1, dtype=np.int64),
            np.zeros(numbers, dtype=np.int32),
            np.zeros(numbers),
            np.zeros(numbers if self.kind != EXACT else 0),
            np.zeros(5, dtype=np.int64),
        )


class Memos:
    """The memos of one world, one for each kind of row that is asked for."""

    def __init__(self, allowance: Allowance) -> None:
        self._allowance = allowance
        self._memos: dict[int, Memo] = {}

    def __call__(self, kind: int) -> Memo:
        """That of a kind."""
        if kind not in self._memos:
            self._memos[kind] = Memo(kind, self._allowance)
        return self._memos[kind]

    def close(self) -> None:
        """Give all shares back."""
        for memo in self._memos.values():
            memo.close()


def _power(number: int) -> int:
    return 1 << (number - 1).bit_length()


# ---- compiled ----


@inlined
def place(keys: Ints, key: int) -> int:
    """Where a key stands in a hash table, or where it would."""
    mask = len(keys) - 1
    at = (key * 0x9E3779B97F4A7C1 >> 17) & mask
    while keys[at] != -1 and keys[at] != key:
        at = (at + 1) & mask
    return at


@compiled
def rehash(keys: Ints, values: Ints, new_keys: Ints, new_values: Ints) -> None:
    """Everything from one hash table into another."""
    for n in range(len(keys)):
        if keys[n] != -1:
            at = place(new_keys, keys[n])
            new_keys[at], new_values[at] = keys[n], values[n]


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
    (`gain`), and a row already times the share (EXACT) or bounds of the row (ANY, STABLE). `merged` dynamics have all
    actions of a state in one EXACT move.
    """
    states = dynamics.rewards.shape[0]
    key = transition * states + state
    at = place(memory.entry_keys, key)
    if memory.entry_keys[at] == key:
        return memory.entry_values[at]
    used = memory.used
    if used[ENTRIES] + 2 > len(memory.entry_begin) or 2 * (used[ENTRIES] + 1) > len(memory.entry_keys):
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
    memory.action[move], memory.share[move], memory.gain[move] = action, share, share * dynamics.rewards[state, action]
    n = begin
    if dynamics.same and state == seen and action == taken:
        # The very same state, action and model as observed: the same outcome, under every causal model.
        memory.states[n], memory.low[n] = outcome, share if kind == EXACT else 1.0
        if kind != EXACT:
            memory.high[n] = 1.0
        n += 1
    elif outcome < 0:
        for k in range(len(q)):
            memory.states[n], memory.low[n] = q_states[k], share * q[k]
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
                n += 1
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
