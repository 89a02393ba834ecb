"""Rows of the counterfactual chain: one for each action that may be taken in a state, given an observed transition.

Such a row is abduction and prediction in one closed form: the noise that the observed transition leaves is integrated
out, never represented (docs/semantics.md, sections 2.1 and 3.1). With D(u) = sum_j max(p_j, u q_j):

    P(i) = 1 / D(p_i/q_i),    P(k) = q_k * integral of du / D(u)^2 from p_k/q_k to p_i/q_i, or 0 if that is empty.

The transition s, a -> s_next of a step was observed under row p; the chain is in `state` and takes `action`, whose row
is q; i = s_next. Rules, in this order:

- Where nominal is in force, the observed action is used in the observed state (docs/semantics.md, section 2.3).
- The same state, action and model as observed lead to the observed successor with certainty.
- Without an observation (s_next = -1) a row is that of the model.
- Otherwise it is the closed form, or bounds over causal models (docs/semantics.md, section 6.3).
- An action observed under a stochastic nominal policy conditions the choice of action in every state, by the same
  closed form (docs/semantics.md, section 7).

All functions are compiled. They append to a `RowTable`, which the caller grows when they return FULL; only complete
entries are counted as used.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from monitor.arrays import Bools, Floats, Ints, Shorts
from monitor.causal.row import bound, choose, reweigh_within
from monitor.exact.forward.row_table import (
    COMPUTED,
    ENTRIES,
    EXACT,
    HELD,
    OBSERVED,
    ROWS,
    STABLE,
    SUCCESSORS,
    RowArrays,
    find_slot,
)
from monitor.jit import compiled, inlined

__all__ = ["FULL", "Dynamics", "find_entry", "find_observed", "phase_at", "phase_end"]

FULL = -1
"""Returned in place of an index if an array of the table is full."""
NO_END = 1 << 62
"""End of the last phase."""


class Dynamics(NamedTuple):
    """What acts, and under which rows, up to the last observed pair.

    Rows of the counterfactual world and of the observed one, both CSR: `counterfactual_row_*`, `observed_row_*`;
    `same_model`: they are the same. `rewards` [S, A] and `transition_rewards` [N] (or empty): the reward of the
    counterfactual world and the part of it that depends on the successor. Phases of the law, H of them: `phase_begin`
    [H], the first offset of each; `is_nominal` [H], whether nothing is changed there; `stochastic` [H], the kind of the
    policy in force; `policy_actions` [H, S] if deterministic, `policy_probabilities` [H, S, A] if not;
    `nominal_policy_probabilities` [H, S, A], the distribution of the observed action, empty if it is certain.
    `merge_actions`: a state's rows are added up over its actions, as nothing depends on the action.
    `share_prior_rows`: there are so many states that rows on which an observation says nothing are kept once, for all
    observed transitions.
    """

    counterfactual_row_indptr: Ints
    counterfactual_row_successors: Ints
    counterfactual_row_probabilities: Floats
    observed_row_indptr: Ints
    observed_row_successors: Ints
    observed_row_probabilities: Floats
    rewards: Floats
    transition_rewards: Floats
    phase_begin: Ints
    is_nominal: Bools
    stochastic: Bools
    policy_actions: Ints
    policy_probabilities: Floats
    nominal_policy_probabilities: Floats
    same_model: bool
    merge_actions: bool
    share_prior_rows: bool


@inlined
def phase_at(dynamics: Dynamics, offset: int) -> int:
    """Return the phase in force at an offset."""
    phase = len(dynamics.phase_begin) - 1
    while dynamics.phase_begin[phase] > offset:
        phase -= 1
    return phase


@inlined
def phase_end(dynamics: Dynamics, phase: int) -> int:
    """Return the first offset after a phase."""
    return dynamics.phase_begin[phase + 1] if phase + 1 < len(dynamics.phase_begin) else NO_END


@inlined
def find_observed(dynamics: Dynamics, table: RowArrays, phase: int, s: int, a: int, s_next: int) -> int:
    """Return the index of an observed transition under a phase, a new one if it is new; FULL if there is no space.

    Index r below the number of phases stands for no observation under phase r.
    """
    states, actions = dynamics.rewards.shape
    key = ((s * actions + a) * states + s_next) * len(dynamics.phase_begin) + phase
    slot = find_slot(table.observed_keys, key)
    if table.observed_keys[slot] != key:
        if 2 * (table.used[OBSERVED] + 1) > len(table.observed_keys):
            return FULL
        table.observed_keys[slot] = key
        table.observed_values[slot] = table.used[OBSERVED]
        table.used[OBSERVED] += 1
    return len(dynamics.phase_begin) + table.observed_values[slot]


@compiled
def find_entry(
    dynamics: Dynamics,
    table: RowArrays,
    kind: int,
    phase: int,
    observed: int,
    s: int,
    a: int,
    s_next: int,
    state: int,
) -> int:
    """Return the entry with the rows of `state` given s, a -> s_next (abduction), computed if new; FULL if no space.

    `observed`: the index from `find_observed`; s_next = -1: nothing was observed. Under `merge_actions` an EXACT entry
    has a single row, the sum over actions.
    """
    states = dynamics.rewards.shape[0]
    key = observed * states + state
    slot = find_slot(table.entry_keys, key)
    if table.entry_keys[slot] == key:
        return table.entry_values[slot]
    used = table.used
    if used[ENTRIES] + 2 > len(table.entry_begin):  # the hash table has space for twice as many
        return FULL
    before = used[ROWS], used[SUCCESSORS]
    if not append_rows(dynamics, table, kind, phase, s, a, s_next, state):
        used[ROWS], used[SUCCESSORS] = before
        return FULL
    entry = used[ENTRIES]
    used[ENTRIES] += 1
    table.entry_begin[entry + 1] = used[ROWS]
    table.entry_keys[slot], table.entry_values[slot] = key, entry
    return entry


@inlined
def append_rows(
    dynamics: Dynamics, table: RowArrays, kind: int, phase: int, s: int, a: int, s_next: int, state: int
) -> bool:
    """Append the rows of one state; False if they have no space.

    One loop for all cases: `append_row` is inlined once, which halves the time to compile.
    """
    lowest, highest, choice = 0, dynamics.rewards.shape[1], np.empty(0)
    if dynamics.is_nominal[phase] and state == s:
        # Nothing is changed here: the action really taken, even if the nominal policy would not take it.
        lowest, highest = a, a + 1
    elif not dynamics.stochastic[phase]:
        lowest = dynamics.policy_actions[phase, state]
        highest = lowest + 1
    else:
        choice = dynamics.policy_probabilities[phase, state].copy()
        policy = dynamics.nominal_policy_probabilities
        if s_next >= 0 and len(policy):  # a deterministic choice says nothing about its noise
            choose(policy[phase, s], a, dynamics.policy_probabilities[phase, state], choice)
    merge, first = dynamics.merge_actions and kind == EXACT, table.used[ROWS]
    if s_next >= 0:
        hold_observed(dynamics, table, s * dynamics.rewards.shape[1] + a)
    for action in range(lowest, highest):
        weight = choice[action] if len(choice) else 1.0
        if weight > 0.0:
            row = first if merge else table.used[ROWS]
            if not append_row(dynamics, table, kind, s, a, s_next, state, action, weight, row):
                return False
    return True


@inlined
def append_row(
    dynamics: Dynamics,
    table: RowArrays,
    kind: int,
    s: int,
    a: int,
    s_next: int,
    state: int,
    action: int,
    weight: float,
    row: int,
) -> bool:
    """Append the row of one action, of probability `weight`, or add it to `row`, the last; False if it has no space.

    An observation (s_next >= 0) is abduced here: `reweigh` gives the posterior row, `bound` its bounds.
    """
    used, successors, lower, upper, place = table.used, table.successors, table.lower, table.upper, table.place
    begin, rewarded = used[SUCCESSORS], len(dynamics.transition_rewards) > 0
    pair = state * dynamics.rewards.shape[1] + action
    first, end = dynamics.counterfactual_row_indptr[pair], dynamics.counterfactual_row_indptr[pair + 1]
    q_states = dynamics.counterfactual_row_successors[first:end]
    q = dynamics.counterfactual_row_probabilities[first:end]
    if row + 2 > len(table.row_begin) or begin + len(q) + 1 > len(successors):
        return False
    if row == used[ROWS]:
        table.action[row], table.weight[row], table.reward[row], table.row_begin[row] = action, 0.0, 0.0, begin
        used[ROWS] += 1
    row_begin, n, reward = table.row_begin[row], begin, dynamics.rewards[state, action]
    if dynamics.same_model and state == s and action == a:
        # The same state, action and model as observed: the same successor, under every causal model.
        for k in range(len(q) if rewarded else 0):
            if q_states[k] == s_next:
                reward += dynamics.transition_rewards[first + k]
        if kind == EXACT:
            n = add(successors, lower, place, (row_begin, n), s_next, weight)
        else:
            successors[n], lower[n], upper[n], table.successor_reward[n] = s_next, 1.0, 1.0, 0.0
            n += 1
    else:
        posterior = lower[begin : begin + len(q)]
        if s_next < 0:
            posterior[:] = q
        else:
            p, at, observed = table.p[: len(q)], -1, table.observed
            for k in range(len(q)):
                p[k] = observed[q_states[k]]
                at = k if q_states[k] == s_next else at
            p_s_next = observed[s_next]
            if kind == EXACT:
                used[COMPUTED] += reweigh_within(p, q, p_s_next, at, posterior, table.shared, table.breaks)
            else:
                used[COMPUTED] += p.max() > 0.0
                bound(p, q, p_s_next, at, kind == STABLE, posterior, upper[begin : begin + len(q)])
        # Entries move to the front, or to where the row has the successor: never behind what is still to be read.
        for k in range(len(q)):
            if kind == EXACT:
                if posterior[k] > 0.0:
                    if rewarded:
                        reward += posterior[k] * dynamics.transition_rewards[first + k]
                    n = add(successors, lower, place, (row_begin, n), q_states[k], weight * posterior[k])
            elif upper[begin + k] > 0.0:
                successors[n], lower[n], upper[n] = q_states[k], posterior[k], upper[begin + k]
                table.successor_reward[n] = dynamics.transition_rewards[first + k] if rewarded else 0.0
                n += 1
    table.weight[row] += weight
    table.reward[row] += weight * reward
    used[SUCCESSORS] = n
    table.row_begin[row + 1] = n
    return True


@inlined
def add(
    successors: Shorts, lower: Floats, place: Shorts, row: tuple[int, int], successor: int, probability: float
) -> int:
    """Append a successor to a row (its begin and end), or add to its probability if the row has it; return the end."""
    begin, end = row
    known = place[successor]
    if begin <= known < end and successors[known] == successor:
        lower[known] += probability
        return end
    place[successor], successors[end], lower[end] = end, successor, probability
    return end + 1


@inlined
def hold_observed(dynamics: Dynamics, table: RowArrays, pair: int) -> None:
    """Write the row of the observed pair into `table.observed`, if it is not there."""
    indptr, successors = dynamics.observed_row_indptr, dynamics.observed_row_successors
    held = table.used[HELD] - 1
    if held == pair:
        return
    if held >= 0:
        for k in range(indptr[held], indptr[held + 1]):
            table.observed[successors[k]] = 0.0
    for k in range(indptr[pair], indptr[pair + 1]):
        table.observed[successors[k]] = dynamics.observed_row_probabilities[k]
    table.used[HELD] = pair + 1
