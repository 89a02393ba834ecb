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

from dataclasses import dataclass
from typing import Final

import numpy as np

from monitor.arrays import Bytes, Floats, Ints
from monitor.causal.row import choose, greedy
from monitor.exact.best.options import TIE, Acting, Options
from monitor.exact.best.rows import Posteriors, Row, prepare, scratch_row
from monitor.exact.best.stages import FIRST_SLOT

__all__ = ["BLOCK", "Decisions", "Held", "Lanes", "Plan", "Scratch", "induct", "reach", "scratch_of"]

BLOCK: Final = 4
"""Lanes whose means are computed together; the numbers of each node are padded to a multiple of it."""
INFINITY = float("inf")


@dataclass(eq=False)
class Held:
    """A held path: `states`, `actions` [L] (-1: not yet taken), and `outcomes` [L], -1 where none was observed.

    `acted` [L]: the index of the policy that acted. `along` [L]: the slot of each level on the path, -1 once nothing
    remains. `end`: the state in which the episode has ended, absorbing where no outcome was observed, or -1. `repeats`:
    an unchanged decision is the observed action in every state that has it.
    """

    states: Ints
    actions: Ints
    outcomes: Ints
    acted: Ints
    along: Ints
    end: int
    repeats: bool


@dataclass(eq=False)
class Plan:
    """What is evaluated: `target`, `rewarded`, `used` of a `Layout`, `label_of` [S], and the optimal policy.

    `policy` [n, S]: its actions for n obligations; `policy_of` [L, slots]: which of them a slot has. `age`, `start`: as
    in `Layout`.
    """

    target: Ints
    rewarded: Bytes
    used: Ints
    label_of: Ints
    policy: Ints
    policy_of: Ints
    age: Ints
    start: Ints


@dataclass(eq=False)
class Lanes:
    """One lane for each way to decide, and those that they lead to; n of them.

    `spends` [n]: the lane in which the path goes on after a best decision, -1 if none is allowed; `since`, `until` [n]:
    how many steps after the intervention state it is for the first time, and no longer. `holds` [n]: whether a decision
    may be unchanged below `until`; from it on each is. `follows` [n]: whether the optimal policy decides, which the
    last lane alone may do. `common`: the first lanes, to which best decisions lead.
    """

    spends: Ints
    since: Ints
    until: Ints
    holds: Bytes
    follows: Bytes
    common: int


@dataclass(eq=False)
class Decisions:
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


@dataclass(eq=False)
class Scratch:
    """Working memory of a pass; its contents mean nothing between two states, except `active` and `counts`.

    `row`: of the pair. `weight` [A]: the unchanged decision. `mean` [lanes and padding]: of a pair in one slot.

    By slot: `picks` and `followed`, the optimal policy's action (-1: no lane follows it) and its value; `active` and
    `counts`, the lanes in which the best decision is allowed, and their number. By slot and lane: `kept`, the value of
    the unchanged decision; `best` and `best_action`, the best one.
    """

    row: Row
    weight: Floats
    mean: Floats
    picks: Ints
    followed: Floats
    active: Ints
    counts: Ints
    kept: Floats
    best: Floats
    best_action: Ints


def scratch_of(options: Options, plan: Plan, lanes: Lanes) -> Scratch:
    """Return working memory for a pass."""
    slots, width = plan.target.shape[1], len(lanes.spends)
    shape = slots, width
    return Scratch(
        scratch_row(options),
        np.zeros(options.rewards.shape[1]),
        np.zeros(width + BLOCK),
        np.full(slots, -1),
        np.zeros(slots),
        np.zeros(shape, dtype=np.int64),
        np.zeros(slots, dtype=np.int64),
        np.zeros(shape),
        np.zeros(shape),
        np.zeros(shape, dtype=np.int64),
    )


# ---- compiled ----


def reach(
    options: Options, acting: Acting, plan: Plan, lanes: Lanes, held: Held, reached: Bytes, scratch: Scratch
) -> None:
    """Mark in `reached` [L, S] the states that the allowed decisions reach, and those observed.

    Successors count too that the observations exclude.
    """
    states, actions = options.rewards.shape[0], options.rewards.shape[1]
    for level in range(len(held.states)):
        reached[level, held.states[level]] = 1
    for level in range(len(held.states) - 1):
        every = allow(plan, lanes, level, scratch)
        for state in range(states):
            if not reached[level, state]:
                continue
            unchanged(options, acting, held, level, state, scratch)
            pick(options, plan, lanes, level, state, False, scratch)
            for action in range(actions):
                pair = state * actions + action
                if options.alike[pair] < 0:
                    continue
                best = every and options.alike[pair] == action
                if best or scratch.weight[action] > 0.0 or is_picked(plan, lanes, level, action, scratch):
                    for k in range(options.indptr[pair], options.indptr[pair + 1]):
                        reached[level + 1, options.successors[k]] = 1


def allow(plan: Plan, lanes: Lanes, level: int, scratch: Scratch) -> bool:
    """Write the lanes in which the best decision is allowed at each slot; return whether there are any."""
    found = False
    for slot in range(plan.used[level]):
        count, age = 0, plan.age[level, slot]
        for lane in range(len(lanes.spends)):
            if lanes.spends[lane] >= 0 and lanes.since[lane] <= age < lanes.until[lane]:
                scratch.active[slot, count] = lane
                count += 1
        scratch.counts[slot] = count
        found = found or count > 0
    return found


def unchanged(options: Options, acting: Acting, held: Held, level: int, state: int, scratch: Scratch) -> None:
    """Write the distribution of the unchanged decision to `scratch.weight`."""
    weight, s, a = scratch.weight, held.states[level], held.actions[level]
    policy = held.acted[level]
    row = acting.row[policy]
    for action in range(len(weight)):
        weight[action] = 0.0
    if a >= 0 and (state == s or (held.repeats and options.alike[state * len(weight) + a] >= 0)):
        weight[a] = 1.0
    elif row < 0:
        weight[acting.actions[policy, state]] = 1.0
    elif a >= 0:
        choose(acting.choices[row, s], a, acting.choices[row, state], weight, scratch.row.memory)
    else:
        for action in range(len(weight)):
            weight[action] = acting.choices[row, state, action]


def merge(options: Options, state: int, weight: Floats) -> None:
    """Move the weights [A] of actions to the least action with the same row."""
    actions = len(weight)
    for action in range(actions):
        alike = options.alike[state * actions + action]
        if weight[action] > 0.0 and alike != action:
            weight[alike] += weight[action]
            weight[action] = 0.0


def pick(options: Options, plan: Plan, lanes: Lanes, level: int, state: int, merged: bool, scratch: Scratch) -> None:
    """Write the optimal policy's action at each slot to `scratch.picks`, if a lane follows it."""
    if not lanes.follows[len(lanes.follows) - 1]:
        return
    for slot in range(plan.used[level]):
        action = plan.policy[plan.policy_of[level, slot], state]
        scratch.picks[slot] = options.alike[state * options.rewards.shape[1] + action] if merged else action


def is_picked(plan: Plan, lanes: Lanes, level: int, action: int, scratch: Scratch) -> bool:
    """Return whether the optimal policy takes an action at some slot."""
    if lanes.follows[len(lanes.follows) - 1]:
        for slot in range(plan.used[level]):
            if scratch.picks[slot] == action:
                return True
    return False


def induct(
    options: Options,
    posteriors: Posteriors,
    acting: Acting,
    plan: Plan,
    lanes: Lanes,
    held: Held,
    reached: Bytes,
    buffers: Floats,
    decisions: Decisions,
    kind: int,
    greatest: bool,
    largest: bool,
    scratch: Scratch,
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
        scratch: working memory.
    """
    states, actions = options.rewards.shape[0], options.rewards.shape[1]
    now, observed = 0, scratch.row.observed
    for level in range(len(held.states) - 1, -1, -1):
        ahead, here = buffers[now], buffers[1 - now]
        now = 1 - now
        s, first, last = held.states[level], 0, 0
        if held.outcomes[level] >= 0:
            pair = s * actions + held.actions[level]
            first, last = options.indptr[pair], options.indptr[pair + 1]
        for k in range(first, last):
            observed[options.successors[k]] = options.probabilities[k]
        decided = allow(plan, lanes, level, scratch)
        for state in range(states):
            if not reached[level, state]:
                continue
            along = held.along[level] if state == s and decided else -1
            if held.outcomes[level] < 0 and state == held.end:
                stay(options, plan, lanes, level, state, along, ahead, here, decisions)
            else:
                decide(
                    options, posteriors, acting, plan, lanes, held, level, state, along, decided, ahead, here,
                    decisions, kind, greatest, largest, scratch,
                )  # fmt: skip
            if state == s and plan.start[level] >= 0:
                for lane in range(len(lanes.spends)):
                    decisions.begun[level, lane] = here[state, plan.start[level], lane]
        for k in range(first, last):
            observed[options.successors[k]] = 0.0
    return now


def stay(
    options: Options,
    plan: Plan,
    lanes: Lanes,
    level: int,
    state: int,
    along: int,
    ahead: Floats,
    here: Floats,
    decisions: Decisions,
) -> None:
    """Write the values of the state in which the episode has ended: those ahead, whatever the decision is."""
    actions = options.rewards.shape[1]
    for slot in range(plan.used[level]):
        target = plan.target[level, slot, plan.label_of[state]]
        for lane in range(here.shape[2]):
            here[state, slot, lane] = target if target < FIRST_SLOT else ahead[state, target - FIRST_SLOT, lane]
    if along < 0:
        return
    for lane in range(len(lanes.spends)):
        decisions.held[level, lane] = here[state, along, lane]
        for action in range(actions):
            if options.alike[state * actions + action] >= 0:
                decisions.actions[level, action, lane] = here[state, along, lane]


def decide(
    options: Options,
    posteriors: Posteriors,
    acting: Acting,
    plan: Plan,
    lanes: Lanes,
    held: Held,
    level: int,
    state: int,
    along: int,
    decided: bool,
    ahead: Floats,
    here: Floats,
    decisions: Decisions,
    kind: int,
    greatest: bool,
    largest: bool,
    scratch: Scratch,
) -> None:
    """Write the values of one state to `here`, and its decisions.

    `along`: the slot of the observed path, -1 if it is elsewhere; `decided`: whether a lane allows the best decision.
    """
    actions, width, used = options.rewards.shape[1], len(lanes.spends), plan.used[level]
    outcome, label, sign = held.outcomes[level], plan.label_of[state], 1.0 if largest else -1.0
    merged = outcome < 0 or state != held.states[level]
    weight, mean, kept, best, best_action = (
        scratch.weight,
        scratch.mean,
        scratch.kept,
        scratch.best,
        scratch.best_action,
    )
    for slot in range(used):
        for lane in range(width):
            kept[slot, lane], best[slot, lane], best_action[slot, lane] = 0.0, -INFINITY, -1
    unchanged(options, acting, held, level, state, scratch)
    if merged:
        merge(options, state, weight)
    pick(options, plan, lanes, level, state, merged, scratch)
    for action in range(actions):
        alike = options.alike[state * actions + action]
        if alike < 0:
            continue
        if merged and alike != action:
            if along >= 0:
                for lane in range(width):
                    decisions.actions[level, action, lane] = decisions.actions[level, alike, lane]
            continue
        if not (decided or weight[action] > 0.0 or is_picked(plan, lanes, level, action, scratch)):
            continue
        certain = not merged and action == held.actions[level]
        reward, length, point = prepare(options, posteriors, level, state, action, outcome, certain, kind, scratch.row)
        for slot in range(used):
            every = weight[action] > 0.0 or scratch.picks[slot] == action or slot == along
            needed = width if every else lanes.common
            then, earns = plan.target[level, slot, label], plan.rewarded[level, slot]
            row_means(scratch.row, reward, length, point, then, earns, ahead, needed, greatest, mean)
            if slot == along:
                for lane in range(width):
                    decisions.actions[level, action, lane] = mean[lane]
            if weight[action] > 0.0:
                for lane in range(width):
                    kept[slot, lane] += weight[action] * mean[lane]
            if scratch.picks[slot] == action:
                scratch.followed[slot] = mean[width - 1]
            for n in range(scratch.counts[slot]):
                lane = scratch.active[slot, n]
                value = sign * mean[lanes.spends[lane]]
                if value > best[slot, lane]:
                    if best_action[slot, lane] < 0 or exceeds(value, best[slot, lane]):
                        best_action[slot, lane] = action
                    best[slot, lane] = value
    for slot in range(used):
        for lane in range(width):
            value = kept[slot, lane]
            if lanes.follows[lane]:
                value = scratch.followed[slot]
            elif best_action[slot, lane] >= 0 and (not lanes.holds[lane] or best[slot, lane] > sign * value):
                value = sign * best[slot, lane]
            here[state, slot, lane] = value
            if len(decisions.chosen) > 0:
                gains = best_action[slot, lane] >= 0 and exceeds(best[slot, lane], sign * kept[slot, lane])
                decisions.chosen[level, state, slot, lane] = best_action[slot, lane] if gains else -1
    if along >= 0:
        for lane in range(width):
            decisions.held[level, lane] = kept[along, lane]


def exceeds(value: float, other: float) -> bool:
    """Return whether a value is larger than another one by more than a tie."""
    return value - other > TIE * max(1.0, abs(other))


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
    base, slot = reward if earns else 0.0, target - FIRST_SLOT
    if not point:
        for lane in range(needed):
            for k in range(length):
                row.values[k] = row.extra[k] if earns else 0.0
                row.values[k] += target if target < FIRST_SLOT else ahead[row.successors[k], slot, lane]
            mean[lane] = base + greedy(
                row.weights[:length], row.upper[:length], row.values, greatest, row.memory.keys, row.memory.order
            )
        return
    if earns:
        for k in range(length):
            base += row.weights[k] * row.extra[k]
    if target < FIRST_SLOT:
        for lane in range(needed):
            mean[lane] = base + target
        return
    for lane in range(0, needed, 4):  # BLOCK lanes side by side, in registers
        one, two, three, four = base, base, base, base
        for k in range(length):
            weight, successor = row.weights[k], row.successors[k]
            one += weight * ahead[successor, slot, lane]
            two += weight * ahead[successor, slot, lane + 1]
            three += weight * ahead[successor, slot, lane + 2]
            four += weight * ahead[successor, slot, lane + 3]
        mean[lane], mean[lane + 1], mean[lane + 2], mean[lane + 3] = one, two, three, four
