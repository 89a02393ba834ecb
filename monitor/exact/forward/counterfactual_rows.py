"""Rows of the counterfactual chain: one for each action that may be taken in a state, given an observed transition.

The row combines abduction and prediction in one closed form. The posterior of the exogenous noise is integrated out and
never represented (docs/semantics/worlds.md, sections 2.1 and 3.1). With D(u) = sum_j max(p_j, u q_j):

    P(i) = 1 / D(p_i/q_i),    P(k) = q_k * integral of du / D(u)^2 from p_k/q_k to p_i/q_i, or 0 if that is empty.

Here s, a -> s_next is the observed transition of the step, p is the row of (s, a), and i = s_next. The counterfactual
chain is in `state` and takes `action`; q is the row of this pair. Rules, in this order:

- Where nominal is in force, the observed action is taken in the observed state (docs/semantics/worlds.md, section 2.3).
- If state, action and model are as observed, the successor is certainly the observed successor.
- Without an observation (s_next = -1) the row is the row of the model.
- Otherwise the row is the closed form, or bounds over causal models (docs/semantics/formulas.md, section 6.3).
- An action observed under a stochastic nominal policy conditions the choice of action in every state, by the same
  closed form (docs/semantics/formulas.md, section 7).

The functions append rows to a `RowTable`. If they return FULL, the caller makes the table larger. Only complete entries
are counted. Compiled.
"""

from __future__ import annotations

from dataclasses import dataclass

from monitor.arrays import Bytes, Floats, Ints
from monitor.causal.row import bound, choose, reweigh_within
from monitor.exact.forward.row_table import EXACT, FULL, STABLE, RowTable
from monitor.exact.hash_table import find_slot

NO_END = 1 << 62
"""End of the last phase."""


@dataclass(eq=False)
class Dynamics:
    """The policies in force and the rows of the model, up to the last observed pair.

    `counterfactual_row_*`, `observed_row_*`: the rows of the counterfactual and of the factual world, both CSR.
    `same_model`: whether both worlds have the same rows. `rewards` [S, A]: the rewards of the counterfactual world.
    `transition_rewards` [N] (or empty): the part of the reward that depends on the successor.

    The law has H phases. `phase_begin` [H]: the first offset of each phase. `is_nominal` [H]: whether the phase has no
    intervention. `stochastic` [H]: whether the policy in force is stochastic. `policy_actions` [H, S]: actions of
    deterministic policies; `policy_probabilities` [H, S, A]: probabilities of stochastic policies.
    `nominal_policy_probabilities` [H, S, A]: the distribution of the observed action, empty if the action is certain.

    `merge_actions`: whether a state's rows are added up over its actions, because nothing depends on the action.
    `share_prior_rows`: whether a row that an observation does not change is stored once for all observed transitions,
    because the model has many states.
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
    is_nominal: Bytes
    stochastic: Bytes
    policy_actions: Ints
    policy_probabilities: Floats
    nominal_policy_probabilities: Floats
    same_model: bool
    merge_actions: bool
    share_prior_rows: bool


def phase_at(dynamics: Dynamics, offset: int) -> int:
    """Return the phase in force at an offset."""
    phase = len(dynamics.phase_begin) - 1
    while dynamics.phase_begin[phase] > offset:
        phase -= 1
    return phase


def phase_end(dynamics: Dynamics, phase: int) -> int:
    """Return the first offset after a phase."""
    return dynamics.phase_begin[phase + 1] if phase + 1 < len(dynamics.phase_begin) else NO_END


def find_observed(dynamics: Dynamics, table: RowTable, phase: int, s: int, a: int, s_next: int) -> int:
    """Return the index of an observed transition under a phase; a new transition gets a new index.

    Return FULL if there is no space. An index h below the number of phases stands for phase h without an observation.
    """
    states, actions, phases = dynamics.rewards.shape[0], dynamics.rewards.shape[1], len(dynamics.phase_begin)
    key = ((s * actions + a) * states + s_next) * phases + phase
    slot = find_slot(table.observed_keys, key)
    if table.observed_keys[slot] != key:
        if 2 * (table.observed_count + 1) > len(table.observed_keys):
            return FULL
        table.observed_keys[slot], table.observed_values[slot] = key, table.observed_count
        table.observed_count += 1
    return phases + table.observed_values[slot]


def find_entry(
    dynamics: Dynamics, table: RowTable, phase: int, observed: int, s: int, a: int, s_next: int, state: int
) -> int:
    """Return the entry with the rows of `state` given s, a -> s_next (abduction); compute it if it is new.

    Return FULL if there is no space. `observed`: the index from `find_observed`. `s_next` is -1 if nothing was
    observed. With `merge_actions` an EXACT entry has a single row, the sum over actions.
    """
    state = int(state)  # without compilation `state` has 32 bits, but the key needs more
    key = observed * dynamics.rewards.shape[0] + state
    slot = find_slot(table.entry_keys, key)
    if table.entry_keys[slot] == key:
        return table.entry_values[slot]
    entry, rows, successors = table.entry_count, table.row_count, table.successor_count
    if entry + 2 > len(table.entry_begin):  # the hash table has space for twice as many entries
        return FULL
    if not append_rows(dynamics, table, phase, s, a, s_next, state):
        table.row_count, table.successor_count = rows, successors
        return FULL
    table.entry_count += 1
    table.entry_begin[entry + 1] = table.row_count
    table.entry_keys[slot], table.entry_values[slot] = key, entry
    return entry


def append_rows(dynamics: Dynamics, table: RowTable, phase: int, s: int, a: int, s_next: int, state: int) -> bool:
    """Append the rows of one state; return False if there is no space."""
    if s_next >= 0:
        hold_observed(dynamics, table, s * dynamics.rewards.shape[1] + a)
    if dynamics.is_nominal[phase] and state == s:
        # There is no intervention here, so the observed action is taken, even if the nominal policy never takes it.
        return append_row(dynamics, table, s, a, s_next, state, a, 1.0, table.row_count)
    if not dynamics.stochastic[phase]:
        action = dynamics.policy_actions[phase, state]
        return append_row(dynamics, table, s, a, s_next, state, action, 1.0, table.row_count)
    policy = dynamics.policy_probabilities[phase, state]
    for action in range(len(policy)):
        table.choice[action] = policy[action]
    if s_next >= 0 and len(dynamics.nominal_policy_probabilities):  # otherwise the action noise has its prior
        choose(dynamics.nominal_policy_probabilities[phase, s], a, policy, table.choice, table.memory)
    merge, first = dynamics.merge_actions and table.kind == EXACT, table.row_count
    for action in range(len(policy)):
        row = first if merge else table.row_count
        weight = table.choice[action]
        if weight > 0.0 and not append_row(dynamics, table, s, a, s_next, state, action, weight, row):
            return False
    return True


def append_row(
    dynamics: Dynamics,
    table: RowTable,
    s: int,
    a: int,
    s_next: int,
    state: int,
    action: int,
    weight: float,
    row: int,
) -> bool:
    """Append the row of one action with probability `weight`, or add it to the last row, `row`.

    Return False if there is no space. Abduction from an observation (s_next >= 0) happens here: `reweigh_within`
    computes the posterior row, and `bound` its bounds.
    """
    pair = state * dynamics.rewards.shape[1] + action
    first, end = dynamics.counterfactual_row_indptr[pair], dynamics.counterfactual_row_indptr[pair + 1]
    begin, size, exact = table.successor_count, end - first, table.kind == EXACT
    rewarded = len(dynamics.transition_rewards) > 0
    if row + 2 > len(table.row_begin) or begin + size + 1 > len(table.successors):
        return False
    if row == table.row_count:
        table.action[row], table.weight[row], table.reward[row], table.row_begin[row] = action, 0.0, 0.0, begin
        table.row_count += 1
    reward = dynamics.rewards[state, action]
    if dynamics.same_model and state == s and action == a:
        # State, action and model are as observed, so the successor is as observed too, under every causal model.
        for k in range(first, end if rewarded else first):
            if dynamics.counterfactual_row_successors[k] == s_next:
                reward += dynamics.transition_rewards[k]
        if exact:
            add(table, row, s_next, weight)
        else:
            append_bounds(table, s_next, 1.0, 1.0, 0.0)
    else:
        q, posterior = dynamics.counterfactual_row_probabilities[first:end], table.lower[begin : begin + size]
        if s_next < 0:
            for k in range(size):
                posterior[k] = q[k]
        else:
            p, at, informed = table.memory.p[:size], -1, False
            for k in range(size):
                successor = dynamics.counterfactual_row_successors[first + k]
                p[k] = table.observed[successor]
                informed = informed or p[k] > 0.0
                at = k if successor == s_next else at
            p_s_next = table.observed[s_next]
            if exact:
                reweigh_within(p, q, p_s_next, at, posterior, table.memory.order, table.memory.keys)
            else:
                bound(p, q, p_s_next, at, table.kind == STABLE, posterior, table.upper[begin : begin + size])
            table.computed += informed
        # Entries only move to lower indices, or into the row's entry for this successor. So no unread entry is lost.
        for k in range(size):
            successor, chance = dynamics.counterfactual_row_successors[first + k], posterior[k]
            extra = dynamics.transition_rewards[first + k] if rewarded else 0.0
            if not exact:
                if table.upper[begin + k] > 0.0:
                    append_bounds(table, successor, chance, table.upper[begin + k], extra)
            elif chance > 0.0:
                reward += chance * extra
                add(table, row, successor, weight * chance)
    table.weight[row] += weight
    table.reward[row] += weight * reward
    table.row_begin[row + 1] = table.successor_count
    return True


def add(table: RowTable, row: int, successor: int, probability: float) -> None:
    """Append a successor to the last row, or add to the successor's probability if the row has it already."""
    known, end = table.place[successor], table.successor_count
    if table.row_begin[row] <= known < end and table.successors[known] == successor:
        table.lower[known] += probability
    else:
        table.place[successor], table.successors[end], table.lower[end] = end, successor, probability
        table.successor_count += 1


def append_bounds(table: RowTable, successor: int, low: float, high: float, reward: float) -> None:
    """Append a successor to the last row of bounds."""
    end = table.successor_count
    table.successors[end], table.lower[end], table.upper[end] = successor, low, high
    table.successor_reward[end] = reward
    table.successor_count += 1


def hold_observed(dynamics: Dynamics, table: RowTable, pair: int) -> None:
    """Write the row of the observed pair into `table.observed`, unless it is already there."""
    indptr, successors = dynamics.observed_row_indptr, dynamics.observed_row_successors
    if table.held == pair:
        return
    if table.held >= 0:
        for k in range(indptr[table.held], indptr[table.held + 1]):
            table.observed[successors[k]] = 0.0
    for k in range(indptr[pair], indptr[pair + 1]):
        table.observed[successors[k]] = dynamics.observed_row_probabilities[k]
    table.held = pair
