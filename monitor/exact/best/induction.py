"""Backward pass over a path: the values of the best decisions at every (level, state, obligation). Compiled.

Level k is the k-th held pair. With v the values one level on, rho_k(. | x, a) the counterfactual row of (x, a) given
the observed transition of the level (docs/semantics.md, section 3.1), the model's own row at the last pair, and o' the
obligation after the labels of x, a decision for a has the value (docs/semantics.md, section 14.2)

    q(a) = sum over y of rho_k(y | x, a) (R(x, a, y) + v(y, o')).

A *lane* (`lanes.py`) says which decisions are allowed: the best one, the unchanged one (docs/semantics.md, section 2.3;
docs/semantics.md, section 7 for a stochastic nominal policy), or that of a given policy. Rules:

- Only states that some allowed decision reaches from the first pair have values (`reach`).
- Actions with the same row and reward are evaluated once (`options.py`), except in the observed state: there the
  observed action has a certain outcome, which under other causal models its equals have not.
- For a class of causal models (ANY, STABLE) a row is known up to bounds (`rows.py`), and the least or the greatest mean
  within them is taken, whatever the direction of the decisions.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from monitor.arrays import Bools, Floats, Ints
from monitor.causal.row import choose, greedy
from monitor.exact.best.lanes import Lanes
from monitor.exact.best.options import Acting, Options
from monitor.exact.best.posteriors import Posteriors
from monitor.exact.best.prior import TIE
from monitor.exact.best.rows import Row, prepare, scratch_row
from monitor.exact.best.stages import FIRST_SLOT
from monitor.jit import compiled, inlined

__all__ = ["BLOCK", "Decisions", "Held", "Plan", "induct", "reach"]

BLOCK: Final = 4
"""Lanes whose means are computed together; the numbers of each node are padded to a multiple of it."""


class Held(NamedTuple):
    """A held path: `states`, `actions` [L] (-1: not yet taken), and `outcomes` [L], -1 where none was observed.

    `end`: the state in which the episode has ended, absorbing where no outcome was observed, or -1. `acted` [L]: the
    index of the policy that acted. `repeats`: an unchanged decision is the observed action in every state that has it.
    """

    states: Ints
    actions: Ints
    outcomes: Ints
    end: int
    acted: Ints
    repeats: bool


class Plan(NamedTuple):
    """What is evaluated: `target`, `rewarded`, `used` of a `Layout`, `label_of` [S], and the optimal policy.

    `policy` [n, S]: its actions for n obligations; `policy_of` [L, slots]: which of them a slot has. `along` [L]: the
    slot of each level on the observed path, -1 once nothing remains. `age`, `start`: as in `Layout`.
    """

    target: Ints
    rewarded: Bools
    used: Ints
    label_of: Ints
    policy: Ints
    policy_of: Ints
    along: Ints
    age: Ints
    start: Ints


class Decisions(NamedTuple):
    """Values of the decisions on the observed path, and what is decided elsewhere.

    `held` [L, lanes]: if the decision is unchanged. `actions` [L, A, lanes]: if it is a given action, and later ones
    are those of the lane; nan if the action is unavailable, nothing remains, or no lane decides. `chosen` [L, S, slots,
    lanes]: the best action where it is better than the unchanged decision, else -1; empty: not wanted. `begun` [L,
    lanes]: the values from a pair on at which the intervention begins.
    """

    held: Floats
    actions: Floats
    chosen: Ints
    begun: Floats


@compiled
def reach(options: Options, acting: Acting, plan: Plan, lanes: Lanes, held: Held, reached: Bools) -> None:
    """Mark in `reached` [L, S] the states that the allowed decisions reach, and those observed.

    Successors count too that the observations exclude.
    """
    states, actions = options.rewards.shape
    weight, picks = np.zeros(actions), np.zeros(plan.target.shape[1], dtype=np.int64)
    for level in range(len(held.states)):
        reached[level, held.states[level]] = True
        if level + 1 == len(held.states):
            return
        every = False
        for slot in range(plan.used[level]):
            every = every or best_allowed(lanes, plan.age[level, slot])
        for state in range(states):
            if not reached[level, state]:
                continue
            unchanged(options, acting, held, level, state, weight)
            pick(options, plan, lanes, level, state, False, picks)
            for action in range(actions):
                pair = state * actions + action
                if options.alike[pair] < 0:
                    continue
                if (every and options.alike[pair] == action) or weight[action] > 0.0 or is_picked(picks, action):
                    for k in range(options.indptr[pair], options.indptr[pair + 1]):
                        reached[level + 1, options.successors[k]] = True


@compiled
def best_allowed(lanes: Lanes, age: int) -> bool:
    """Return whether some lane may take the best decision so many steps after the intervention state."""
    return bool(((lanes.spends >= 0) & (lanes.since <= age) & (age < lanes.until)).any())


@compiled
def deciding(lanes: Lanes, age: int, active: Ints) -> int:
    """Write the lanes that may take the best decision at an age to `active`; return their number."""
    count = 0
    for lane in range(len(lanes.spends)):
        if lanes.spends[lane] >= 0 and lanes.since[lane] <= age < lanes.until[lane]:
            active[count] = lane
            count += 1
    return count


@compiled
def unchanged(options: Options, acting: Acting, held: Held, level: int, state: int, weight: Floats) -> None:
    """Write the distribution of the unchanged decision to `weight` [A]."""
    s, a = held.states[level], held.actions[level]
    weight[:] = 0.0
    repeated = held.repeats and a >= 0 and options.alike[state * len(weight) + a] >= 0
    if a >= 0 and (state == s or repeated):
        weight[a] = 1.0
        return
    policy = held.acted[level]
    row = acting.row[policy]
    if row < 0:
        weight[acting.actions[policy, state]] = 1.0
    elif a >= 0:
        choose(acting.choices[row, s], a, acting.choices[row, state], weight)
    else:
        weight[:] = acting.choices[row, state]


@compiled
def merge(options: Options, state: int, weight: Floats) -> None:
    """Move the weights [A] of actions to the least action with the same row."""
    actions = len(weight)
    for action in range(actions):
        alike = options.alike[state * actions + action]
        if weight[action] > 0.0 and alike != action:
            weight[alike] += weight[action]
            weight[action] = 0.0


@compiled
def pick(options: Options, plan: Plan, lanes: Lanes, level: int, state: int, merged: bool, picks: Ints) -> None:
    """Write the optimal policy's action at each slot to `picks`; -1 without such a lane."""
    picks[:] = -1
    if lanes.follows.any():
        for slot in range(plan.used[level]):
            picks[slot] = plan.policy[plan.policy_of[level, slot], state]
            if merged:
                picks[slot] = options.alike[state * options.rewards.shape[1] + picks[slot]]


@inlined
def is_picked(picks: Ints, action: int) -> bool:
    """Return whether the optimal policy takes an action at some slot."""
    found = False
    for slot in range(len(picks)):
        found = found or picks[slot] == action
    return found


@compiled
def induct(
    options: Options,
    posteriors: Posteriors,
    acting: Acting,
    plan: Plan,
    lanes: Lanes,
    held: Held,
    reached: Bools,
    buffers: Floats,
    decisions: Decisions,
    kind: int,
    greatest: bool,
    largest: bool,
) -> int:
    """Compute all values; return the index n of `buffers` with those of the first level.

    Args:
        options, posteriors, acting, plan, lanes, held: see there.
        reached: [L, S], from `reach`.
        buffers: [2, S, slots, lanes and padding]; the first has the values after the last pair.
        decisions: filled.
        kind: EXACT, ANY or STABLE.
        greatest: for ANY and STABLE, whether means are as large as possible.
        largest: whether decisions maximise.
    """
    states, actions = options.rewards.shape
    slots, width, padded = buffers.shape[2], len(lanes.spends), buffers.shape[3]
    sign, now = 1.0 if largest else -1.0, 0
    row, observed = scratch_row(options), np.zeros(states)
    weight, picks, mean = np.zeros(actions), np.zeros(slots, dtype=np.int64), np.zeros(padded)
    kept, followed, best = np.zeros((slots, width)), np.zeros(slots), np.zeros((slots, width))
    best_action, active = np.zeros((slots, width), dtype=np.int64), np.zeros((slots, width), dtype=np.int64)
    counts = np.zeros(slots, dtype=np.int64)
    for level in range(len(held.states) - 1, -1, -1):
        ahead, here = buffers[now], buffers[1 - now]
        now = 1 - now
        s, a, outcome = held.states[level], held.actions[level], held.outcomes[level]
        first, last = 0, 0
        if outcome >= 0:
            first, last = options.indptr[s * actions + a], options.indptr[s * actions + a + 1]
        for k in range(first, last):
            observed[options.successors[k]] = options.probabilities[k]
        for slot in range(plan.used[level]):
            counts[slot] = deciding(lanes, plan.age[level, slot], active[slot])
        most, start = counts[: plan.used[level]].max(), plan.start[level]
        for state in range(states):
            if not reached[level, state]:
                continue
            label = plan.label_of[state]
            along = plan.along[level] if state == s and most > 0 else -1
            if outcome < 0 and state == held.end:
                for slot in range(plan.used[level]):
                    stay(ahead, here, state, slot, plan.target[level, slot, label])
                if along >= 0:
                    decisions.held[level] = here[state, along, :width]
                    for action in range(actions):
                        if options.alike[state * actions + action] >= 0:
                            decisions.actions[level, action] = here[state, along, :width]
                if state == s and start >= 0:
                    decisions.begun[level] = here[state, start, :width]
                continue
            kept[:], best[:], best_action[:] = 0.0, -np.inf, -1
            merged = outcome < 0 or state != s
            unchanged(options, acting, held, level, state, weight)
            if merged:
                merge(options, state, weight)
            pick(options, plan, lanes, level, state, merged, picks)
            for action in range(actions):
                alike = options.alike[state * actions + action]
                if alike < 0 or (merged and alike != action):
                    if alike >= 0 and along >= 0:
                        decisions.actions[level, action] = decisions.actions[level, alike]
                    continue
                if not (most > 0 or weight[action] > 0.0 or is_picked(picks, action)):
                    continue
                certain = state == s and action == a
                reward, length, point = prepare(
                    options, posteriors, level, state, action, outcome, certain, observed, kind, row
                )
                for slot in range(plan.used[level]):
                    every = weight[action] > 0.0 or picks[slot] == action or slot == along
                    needed = width if every else lanes.common
                    then, earns = plan.target[level, slot, label], plan.rewarded[level, slot]
                    row_means(row, reward, length, point, then, earns, ahead, needed, greatest, mean)
                    if slot == along:
                        decisions.actions[level, action] = mean[:width]
                    if weight[action] > 0.0:
                        for lane in range(width):
                            kept[slot, lane] += weight[action] * mean[lane]
                    if picks[slot] == action:
                        followed[slot] = mean[width - 1]
                    for n in range(counts[slot]):
                        lane = active[slot, n]
                        value = sign * mean[lanes.spends[lane]]
                        if value > best[slot, lane]:
                            if best_action[slot, lane] < 0 or exceeds(value, best[slot, lane]):
                                best_action[slot, lane] = action
                            best[slot, lane] = value
            for slot in range(plan.used[level]):
                for lane in range(width):
                    value = kept[slot, lane]
                    if lanes.follows[lane]:
                        value = followed[slot]
                    elif best_action[slot, lane] >= 0:
                        better = best[slot, lane] > sign * value
                        value = value if lanes.holds[lane] and not better else sign * best[slot, lane]
                    here[state, slot, lane] = value
                    if len(decisions.chosen):
                        gains = best_action[slot, lane] >= 0 and exceeds(best[slot, lane], sign * kept[slot, lane])
                        decisions.chosen[level, state, slot, lane] = best_action[slot, lane] if gains else -1
            if along >= 0:
                decisions.held[level] = kept[along]
            if state == s and start >= 0:
                decisions.begun[level] = here[state, start, :width]
        for k in range(first, last):
            observed[options.successors[k]] = 0.0
    return now


@inlined
def exceeds(value: float, other: float) -> bool:
    """Return whether a value is larger than another one by more than a tie."""
    return value - other > TIE * max(1.0, abs(other))


@inlined
def stay(ahead: Floats, here: Floats, state: int, slot: int, target: int) -> None:
    """Write the values of a slot in the state in which the episode has ended."""
    if target < FIRST_SLOT:
        here[state, slot] = target
    else:
        here[state, slot] = ahead[state, target - FIRST_SLOT]


@inlined
def row_means(
    row: Row,
    reward: float,
    length: int,
    point: bool,
    target: int,
    earns: bool,
    ahead: Floats,
    needed: int,
    greatest: bool,
    mean: Floats,
) -> None:
    """Write reward and mean of the values ahead over a row to the first `needed` lanes of `mean`, and maybe some more.

    `length`: successors of the row; `point`: it is known, not only up to bounds; `earns`: its reward counts.
    """
    base = reward if earns else 0.0
    if not point:
        for lane in range(needed):
            for k in range(length):
                row.values[k] = row.extra[k] if earns else 0.0
                row.values[k] += target if target < FIRST_SLOT else ahead[row.successors[k], target - FIRST_SLOT, lane]
            mean[lane] = base + greedy(row.weights[:length], row.upper[:length], row.values, greatest)
        return
    if earns:
        for k in range(length):
            base += row.weights[k] * row.extra[k]
    if target < FIRST_SLOT:
        mean[:needed] = base + target
        return
    slot = target - FIRST_SLOT
    for lane in range(0, needed, BLOCK):  # side by side, in registers
        one, two, three, four = base, base, base, base
        for k in range(length):
            weight, successor = row.weights[k], row.successors[k]
            one += weight * ahead[successor, slot, lane]
            two += weight * ahead[successor, slot, lane + 1]
            three += weight * ahead[successor, slot, lane + 2]
            four += weight * ahead[successor, slot, lane + 3]
        mean[lane], mean[lane + 1], mean[lane + 2], mean[lane + 3] = one, two, three, four
