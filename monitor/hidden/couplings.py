"""Cache of the counterfactual decisions and successor rows, given what happened in the factual world.

A *place* is a hidden state with a memory, as one number: state * memories + memory. A latent step is one possible
explanation of an observed pair. For a latent step and a counterfactual place there are *decisions*. A decision is an
observation, a memory and an action in the counterfactual place, under the noise of the true observation and action.
Each decision has rows of successors, one for each true successor, by the closed form of `monitor.causal.row`
(docs/semantics/hidden.md, section 16.3). Rules:

- Decisions are cached by (latent step, block of places), and within a block by place. Rows are cached by the true
  state and action and the counterfactual state and action. Both caches are hash tables (`monitor.exact.hash_table`)
  over growing arrays, as in `monitor.exact.forward.row_table`.
- If a row shares no successor with the true row, nothing is known about the noise of this row. So there is a single row
  for all true successors, and it is cached once for all such true rows.
- A function that finds no space returns FULL and does not count incomplete entries. Then `make_space` enlarges the
  arrays, or evaluates the network for a row that is missing (`unknown`).

Compiled.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from monitor.arrays import Floats, Ints, longer
from monitor.causal.row import align, choose, reweigh_within, row_memory
from monitor.exact.forward.row_table import FULL
from monitor.exact.hash_table import doubled, empty_table, find_slot
from monitor.hidden.readings import Readings, find_reading
from monitor.model.mdp import MDP

MAX_SUCCESSORS = 4_000_000
"""Number of cached successors and decisions of one policy and one model, beyond which the cache is cleared: 150 MB."""
INITIAL = 1024
"""Initial size of each array."""
BLOCK = 8
"""Number of adjacent places that are looked up together: one line of a processor's cache."""


@dataclass(eq=False)
class LatentTable:
    """The G possible latent steps of one pair, by ascending place, as arrays.

    For each: `place`, an index into the possible places; `state`, the state of the place; `before`, the memory of the
    policy that acted; `shown`, the observation of the sensor; `reading`, a row of the `policy` that acted; `after`, the
    memory of this policy after reading; `action`, -1 if not yet taken; `weight`, the probability of this step given the
    place. `begin` [places + 1]: index of the first step of each place. `number`: number of each step, the key of cached
    decisions.
    """

    place: Ints
    state: Ints
    before: Ints
    shown: Ints
    reading: Ints
    after: Ints
    action: Ints
    weight: Floats
    begin: Ints
    number: Ints
    policy: Readings


class Couplings:
    """Decisions of one policy, with their rows, given latent steps on one model.

    Args:
        model: the model of the factual world.
        dynamics: the model with the rows of the counterfactual world; may be `model` itself.
        policy: the policy in force.
        carries_on: whether this policy acted. If so, it takes the observed action if the counterfactual place is the
            true place.

    Entry e, for one latent step and place, has the decisions `begin[e]:begin[e + 1]`. Each decision has an `action`,
    the memory `after` this action, the probability `likely`, and `rows`: twice the index of its first row, plus 1 if
    there is a row for each true successor. Row r has the `successors` `row_begin[r]:row_begin[r + 1]` with their
    `chances`, and the mean reward `row_reward`. `epoch`: number of times that the cache was cleared. `unknown`: the
    key, memory * width + read, for which a network has no row yet; -1 if there is none.
    """

    def __init__(self, model: MDP, dynamics: MDP, policy: Readings, *, carries_on: bool) -> None:
        emissions = model.emissions
        self.states, self.actions, self.memories = model.states, model.actions, policy.memories
        self.carries_on, self.same_model = carries_on, dynamics is model
        none, nothing = np.zeros(0, np.int64), np.zeros(0)
        self.policy, self.unknown = policy, -1
        self.taken_indptr, self.taken_successors, self.taken_chances = (
            model.indptr,
            model.successors,
            model.probabilities,
        )
        self.indptr, self.target_successors, self.target_chances = (
            dynamics.indptr,
            dynamics.successors,
            dynamics.probabilities,
        )
        self.rewards = dynamics.rewards
        self.extra = nothing if dynamics.transition_rewards is None else dynamics.transition_rewards
        self.shown_indptr = none if emissions is None else emissions.indptr
        self.shown = none if emissions is None else emissions.observed
        self.shown_chances = nothing if emissions is None else emissions.probabilities
        self.widest = max(int(np.diff(each.indptr).max()) for each in (model, dynamics))
        readings = 1 if emissions is None else int(np.diff(emissions.indptr).max())
        self.most = model.actions * readings  # largest number of decisions in one place
        widest = max(self.widest, model.actions, readings)
        self.memory = row_memory(widest)
        self.read_chances, self.chosen = np.zeros(widest), np.zeros(model.actions)
        self.epoch = 0
        self._allocate()

    def _allocate(self) -> None:
        self.keys, self.values = empty_table(2 * INITIAL)
        self.blocks = np.zeros((INITIAL, BLOCK), np.int64)
        self.row_keys, self.row_values = empty_table(2 * INITIAL)
        self.begin, self.row_begin = np.zeros(INITIAL + 1, np.int64), np.zeros(INITIAL + 1, np.int64)
        self.action, self.after, self.rows = (np.zeros(INITIAL, np.int64) for _ in range(3))
        self.likely, self.row_reward = np.zeros(INITIAL), np.zeros(INITIAL)
        self.successors, self.chances = np.zeros(INITIAL, np.int64), np.zeros(INITIAL)
        self.block_count = self.key_count = self.decision_count = 0
        self.row_key_count = self.row_count = self.successor_count = 0

    def make_space(self, seen: LatentTable, *, forget: bool) -> None:
        """If a row of a network is missing (`unknown`), evaluate the network; otherwise enlarge or clear the arrays."""
        if self.unknown < 0:
            self._grow(forget=forget)
            return
        policy = seen.policy if self.carries_on else self.policy
        policy.row(*divmod(self.unknown, policy.width))
        self.unknown = -1

    def _grow(self, *, forget: bool) -> None:
        """Double the arrays that are at least half full.

        If `forget` and doubling would exceed MAX_SUCCESSORS, clear all arrays instead.
        """
        if forget and self.key_count and 2 * max(len(self.successors), len(self.action)) > MAX_SUCCESSORS:
            self.epoch += 1
            self._allocate()
            return
        if 2 * self.block_count >= len(self.blocks):
            self.blocks = longer(self.blocks, 2 * len(self.blocks))
            self.keys, self.values = doubled(self.keys, self.values)
        if 2 * self.key_count >= len(self.begin) - 1:
            self.begin = longer(self.begin, 2 * len(self.begin))
        if 4 * self.row_key_count >= len(self.row_keys):
            self.row_keys, self.row_values = doubled(self.row_keys, self.row_values)
        # Even if less than half is used, one place may need more decisions, or more rows, than the free space.
        size = len(self.action)
        if 2 * self.decision_count >= size or size < 2 * self.most:
            self.action, self.after = longer(self.action, 2 * size), longer(self.after, 2 * size)
            self.rows, self.likely = longer(self.rows, 2 * size), longer(self.likely, 2 * size)
        size = len(self.row_reward)
        if 2 * self.row_count >= size or size < 2 * self.widest:
            self.row_begin, self.row_reward = longer(self.row_begin, 2 * size + 1), longer(self.row_reward, 2 * size)
        size = len(self.successors)
        if 2 * self.successor_count >= size or size < 2 * self.widest**2:
            self.successors, self.chances = longer(self.successors, 2 * size), longer(self.chances, 2 * size)


# ---- compiled ----


def find_all(
    table: Couplings, seen: LatentTable, begin: Ints, places: Ints, live: Ints, first: Ints, found: Ints, latent: int
) -> int:
    """Write the indices of the decisions for latent steps and their counterfactual places, from step `latent` on.

    `begin`, `places`: the counterfactual places for each true place, as CSR. A place is here state * L + m, where
    `live[m]` of L memories is the memory, as in `forward.Nodes`. The indices for step g are written to
    `found[first[g]:]`. Returns the first step for which there is no space, or the number of steps.
    """
    while latent < len(seen.place):
        at = begin[seen.place[latent]]
        for n in range(begin[seen.place[latent] + 1] - at):
            state, memory = places[at + n] // len(live), live[places[at + n] % len(live)]
            entry = find(table, seen, latent, state * table.memories + memory)
            if entry == FULL:
                return latent
            found[first[latent] + n] = entry
        latent += 1
    return latent


def find(table: Couplings, seen: LatentTable, latent: int, place: int) -> int:
    """Return the index of the decisions for a latent step in a counterfactual place, or FULL.

    Decisions that are not cached are computed. `place`: state * memories + memory.
    """
    places = table.states * table.memories
    block = find_block(table, seen.number[latent] * (places // BLOCK + 1) + place // BLOCK)
    if block == FULL:
        return FULL
    entry, at = table.blocks[block, place % BLOCK], table.key_count
    if entry >= 0:
        return entry
    decisions = table.decision_count
    if at + 2 > len(table.begin):
        return FULL
    table.begin[at] = decisions
    if not decide(table, seen, latent, place // table.memories, place % table.memories):
        table.decision_count = decisions
        return FULL
    table.key_count += 1
    table.begin[at + 1] = table.decision_count
    table.blocks[block, place % BLOCK] = at
    return at


def find_block(table: Couplings, key: int) -> int:
    """Return the block of adjacent places for a key, or FULL. If the key has no block, an empty block is added."""
    slot = find_slot(table.keys, key)
    if table.keys[slot] == key:
        return table.values[slot]
    block = table.block_count
    if block == len(table.blocks):  # the hash table has space for twice as many blocks
        return FULL
    table.keys[slot], table.values[slot] = key, block
    for k in range(BLOCK):
        table.blocks[block, k] = -1
    table.block_count += 1
    return block


def decide(table: Couplings, seen: LatentTable, latent: int, state: int, recalled: int) -> bool:
    """Append the decisions in a counterfactual state with the memory `recalled`; return False if there is no space."""
    was, action = seen.state[latent], seen.action[latent]
    if table.carries_on:
        if action >= 0 and state == was and recalled == seen.before[latent]:
            # the observed action, even if the policy would not take it
            return add_decision(table, action, seen.after[latent], 1.0) and find_rows_of(table, was, action, state)
        return decide_by(table, seen, latent, seen.policy, state, recalled)
    return decide_by(table, seen, latent, table.policy, state, recalled)


def decide_by(table: Couplings, seen: LatentTable, latent: int, policy: Readings, state: int, recalled: int) -> bool:
    """Append the decisions of a policy; return False if there is no space."""
    was, action = seen.state[latent], seen.action[latent]
    if policy.sees_state:
        if not read_one(table, seen, latent, policy, recalled, state, 1.0):
            return False
    elif state == was:
        if not read_one(table, seen, latent, policy, recalled, seen.shown[latent], 1.0):
            return False
    else:
        first, end = table.shown_indptr[state], table.shown_indptr[state + 1]
        taken, taken_end = table.shown_indptr[was], table.shown_indptr[was + 1]
        size, outcome = end - first, seen.shown[latent]
        targets, chances = table.shown[first:end], table.read_chances[:size]
        p_outcome, at = align(
            table.shown[taken:taken_end], table.shown_chances[taken:taken_end], outcome, targets, table.memory.p
        )
        reweigh_within(
            table.memory.p,
            table.shown_chances[first:end],
            p_outcome,
            at,
            chances,
            table.memory.order,
            table.memory.keys,
        )
        for n in range(size):
            if chances[n] > 0.0 and not read_one(table, seen, latent, policy, recalled, targets[n], chances[n]):
                return False
    return find_rows_of(table, was, action, state)


def read_one(
    table: Couplings,
    seen: LatentTable,
    latent: int,
    policy: Readings,
    recalled: int,
    read: int,
    chance: float,
) -> bool:
    """Append the decisions after `read` was read with probability `chance`.

    Return False if there is no space, or if the row of the network is missing.
    """
    row = find_reading(policy, recalled, read)
    if row < 0:
        table.unknown = recalled * policy.width + read
        return False
    after, target, chosen = policy.after[row], policy.choice[row], table.chosen
    if seen.action[latent] < 0:
        for action in range(table.actions):
            chosen[action] = target[action]
    else:
        observed = seen.policy.choice[seen.reading[latent]]
        choose(observed, seen.action[latent], target, chosen, table.memory)
    for action in range(table.actions):
        if chosen[action] > 0.0 and not add_decision(table, action, after, chance * chosen[action]):
            return False
    return True


def add_decision(table: Couplings, action: int, after: int, chance: float) -> bool:
    """Append a decision, or add its probability to an equal decision of this entry; return False if no space."""
    count = table.decision_count
    for n in range(table.begin[table.key_count], count):
        if table.action[n] == action and table.after[n] == after:
            table.likely[n] += chance
            return True
    if count == len(table.action):
        return False
    table.action[count], table.after[count], table.likely[count] = action, after, chance
    table.decision_count += 1
    return True


def find_rows_of(table: Couplings, was: int, action: int, state: int) -> bool:
    """Find the rows of the last decisions, if an action was taken; return False if there is no space."""
    for n in range(table.begin[table.key_count], table.decision_count):
        table.rows[n] = -1
        if action >= 0:
            table.rows[n] = find_rows(table, was * table.actions + action, state * table.actions + table.action[n])
            if table.rows[n] == FULL:
                return False
    return True


def find_rows(table: Couplings, taken: int, other: int) -> int:
    """Return the rows of the pair `other`, given the true pair `taken`, or FULL. Rows that are not cached are computed.

    Pairs are state * actions + action. If `taken` is larger than every pair, no action was taken.
    """
    pairs = table.states * table.actions
    key = taken * pairs + other
    slot = find_slot(table.row_keys, key)
    if table.row_keys[slot] == key:
        return table.row_values[slot]
    if 2 * (table.row_key_count + 2) > len(table.row_keys):
        return FULL
    rows, successors = table.row_count, table.successor_count
    value = append_rows(table, taken, other)
    if value == FULL:
        table.row_count, table.successor_count = rows, successors
        return FULL
    slot = find_slot(table.row_keys, key)
    table.row_key_count += 1
    table.row_keys[slot], table.row_values[slot] = key, value
    return value


def append_rows(table: Couplings, taken: int, other: int) -> int:
    """Append the rows that `find_rows` returns, or return rows that are cached for another key."""
    pairs, row = table.states * table.actions, table.row_count
    first, end = table.indptr[other], table.indptr[other + 1]
    targets, q = table.target_successors[first:end], table.target_chances[first:end]
    if taken == pairs:
        return 2 * row if append_row(table, other, q) else FULL
    begin, stop = table.taken_indptr[taken], table.taken_indptr[taken + 1]
    states, p = table.taken_successors[begin:stop], table.taken_chances[begin:stop]
    same, chances = table.same_model and taken == other, table.memory.after[: len(q)]
    for n in range(len(states)):
        if same:  # the same successor
            for k in range(len(q)):
                chances[k] = 1.0 if k == n else 0.0
        else:
            p_outcome, at = align(states, p, states[n], targets, table.memory.p)
            if not reweigh_within(table.memory.p, q, p_outcome, at, chances, table.memory.order, table.memory.keys):
                return find_rows(table, pairs, other)  # no true successor gives information about this row
        if not append_row(table, other, chances):
            return FULL
    return 2 * row + 1


def append_row(table: Couplings, other: int, chances: Floats) -> bool:
    """Append one row, with `chances` for the successors of a pair; return False if there is no space."""
    row, at, first = table.row_count, table.successor_count, table.indptr[other]
    if row + 2 > len(table.row_begin) or at + len(chances) > len(table.successors):
        return False
    table.row_begin[row] = at
    reward = table.rewards[other // table.actions, other % table.actions]
    for k in range(len(chances)):
        if chances[k] > 0.0:
            table.successors[at], table.chances[at] = table.target_successors[first + k], chances[k]
            at += 1
            if len(table.extra):
                reward += chances[k] * table.extra[first + k]
    table.row_reward[row] = reward
    table.row_count, table.successor_count, table.row_begin[row + 1] = row + 1, at, at
    return True
