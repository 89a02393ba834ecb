"""The backward pass over a path, which computes the best decisions at every (level, state, obligation). Compiled.

Level k is the k-th pair of the path. v are the values at the next level. rho_k(. | x, a) is the counterfactual row of
(x, a) given the observed transition of the level (docs/semantics/worlds.md, section 3.1); at the last pair it is the
model's own row. o' is the obligation after the labels of x. The decision for action a has the value
(docs/semantics/decisions.md, section 14.2)

    q(a) = sum over y of rho_k(y | x, a) (R(x, a, y) + v(y, o')).

A *lane* (`lanes.py`) determines which decisions are allowed: the best decision, the unchanged decision
(docs/semantics/worlds.md, section 2.3; docs/semantics/formulas.md, section 7 for a stochastic nominal policy), or the
decision of a given policy. Rules:

- Only states that allowed decisions can reach from the first pair have values (`reach`).
- Actions with the same row and reward are evaluated once (`options.py`), except in the observed state. There the
  observed action has a certain outcome, while an action with the same row may have another outcome under other causal
  models.
- For a class of causal models (ANY, STABLE) only bounds of a row are known (`scratch_row.py`). `greatest` says whether
  a pass uses the greatest or the least mean within the bounds; this does not depend on whether decisions maximise or
  minimise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from monitor.arrays import Bytes, Floats, Ints
from monitor.causal.row import choose, greedy
from monitor.exact.best.layouts import FIRST_SLOT
from monitor.exact.best.options import TIE, Acting, Options
from monitor.exact.best.scratch_row import Posteriors, ScratchRow, prepare, scratch_row

BLOCK: Final = 4
"""Number of lanes whose means are computed together; the lanes of each node are padded to a multiple of this number."""
INFINITY = float("inf")


@dataclass(eq=False)
class HeldPath:
    """The observed path of a pass: `states` [L], `actions` [L] (-1: not yet taken), `outcomes` [L] (-1: not observed).

    `acted` [L]: the index of the policy that acted. `along` [L]: the slot of the obligation on the observed path at
    each level, -1 after the obligation is decided. `end`: the state in which the episode has ended, or -1; it is
    absorbing at levels without an observed outcome. `repeats`: whether an unchanged decision takes the observed action
    in every state in which this action is available.
    """

    states: Ints
    actions: Ints
    outcomes: Ints
    acted: Ints
    along: Ints
    end: int
    repeats: bool


@dataclass(eq=False)
class BackwardProblem:
    """The obligations to evaluate, and the optimal policy.

    `target`, `rewarded`, `used`, `age`, `start`: as in `Layout`. `label_of` [S]: as in `ObligationLayouts`.
    `policy` [n, S]: the actions of the optimal policy for n obligations; `policy_of` [L, slots]: the index of each
    slot's obligation in `policy`.
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
    """The n lanes of a pass: one for each decision rule, and the lanes in which the path may continue.

    `spends` [n]: the lane in which the path continues after a best decision, -1 if best decisions are not allowed.
    `since`, `until` [n]: a best decision is allowed from `since` steps after the intervention state on, but before
    `until` steps. `holds` [n]: whether a decision before `until` may also be unchanged; later decisions are always
    unchanged. `common`: number of lanes to which best decisions can lead; these lanes come first. `follows`: whether
    the last lane follows the optimal policy.
    """

    spends: Ints
    since: Ints
    until: Ints
    holds: Bytes
    common: int
    follows: bool


@dataclass(eq=False)
class DecisionValues:
    """Values of the decisions on the observed path, and the best decisions in all states.

    `held` [L, lanes]: the value if the decision is unchanged.
    `actions` [L, A, lanes]: the value if the decision is this action and later decisions follow the lane; nan if the
    action is unavailable, no obligation remains, or no lane allows a best decision.
    `chosen` [L, S, slots, lanes]: the best action if it is better than the unchanged decision, else -1; the array is
    empty if it was not requested.
    `begun` [L, lanes]: the values if the intervention begins at this pair.
    """

    held: Floats
    actions: Floats
    chosen: Ints
    begun: Floats


@dataclass(eq=False)
class Scratch:
    """Working memory of a pass. Only `active` and `counts` stay valid after the pass moves to another state.

    `row`: the row of the current pair. `weight` [A]: the distribution of the unchanged decision. `mean` [lanes and
    padding]: the means of the current pair in one slot.

    For each slot: `picks` and `followed` are the optimal policy's action (-1 if no lane follows this policy) and its
    value; `active` and `counts` are the lanes in which the best decision is allowed, and the number of these lanes. For
    each slot and lane: `kept` is the value of the unchanged decision; `best` and `best_action` are the value and the
    action of the best decision.
    """

    row: ScratchRow
    weight: Floats
    mean: Floats
    picks: Ints
    followed: Floats
    active: Ints
    counts: Ints
    kept: Floats
    best: Floats
    best_action: Ints


@dataclass(eq=False)
class Task:
    """Input, output and working memory of one pass.

    `reached` [L, S], zero at first: whether a state was observed at a level, or an allowed decision reaches it.
    `buffers` [2, S, slots, lanes and padding]: values of two levels; at the start, `buffers[0]` has the values after
    the last pair. `kind`: EXACT, ANY or STABLE. `greatest`: for ANY and STABLE, whether means are as large as possible.
    `largest`: whether decisions maximise.
    """

    options: Options
    posteriors: Posteriors
    acting: Acting
    plan: BackwardProblem
    lanes: Lanes
    held: HeldPath
    decisions: DecisionValues
    scratch: Scratch
    reached: Bytes
    buffers: Floats
    kind: int
    greatest: bool
    largest: bool


def scratch_of(options: Options, plan: BackwardProblem, lanes: Lanes) -> Scratch:
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


def induct(task: Task) -> int:
    """Compute all values and decisions; return the index in `buffers` of the values of the first level."""
    states, actions, now = task.options.rewards.shape[0], task.options.rewards.shape[1], 0
    successors, observed = task.options.successors, task.scratch.row.observed
    reach(task)
    for level in range(len(task.held.states) - 1, -1, -1):
        ahead, here = task.buffers[now], task.buffers[1 - now]
        s, start, first, last = task.held.states[level], task.plan.start[level], 0, 0
        if task.held.outcomes[level] >= 0:
            pair = s * actions + task.held.actions[level]
            first, last = task.options.indptr[pair], task.options.indptr[pair + 1]
        for k in range(first, last):
            observed[successors[k]] = task.options.probabilities[k]
        decided = allow(task, level)
        for state in range(states):
            if not task.reached[level, state]:
                continue
            along = task.held.along[level] if state == s and decided else -1
            if task.held.outcomes[level] < 0 and state == task.held.end:
                stay(task, level, state, along, ahead, here)
            else:
                decide(task, level, state, along, decided, ahead, here)
            if state == s and start >= 0:
                for lane in range(len(task.lanes.spends)):
                    task.decisions.begun[level, lane] = here[state, start, lane]
        for k in range(first, last):
            observed[successors[k]] = 0.0
        now = 1 - now
    return now


def reach(task: Task) -> None:
    """Mark in `reached` the observed states and the states that allowed decisions reach.

    Successors that the observations exclude are marked too.
    """
    states, actions = task.options.rewards.shape[0], task.options.rewards.shape[1]
    alike, indptr, weight = task.options.alike, task.options.indptr, task.scratch.weight
    for level in range(len(task.held.states)):
        task.reached[level, task.held.states[level]] = 1
    for level in range(len(task.held.states) - 1):
        every = allow(task, level)
        for state in range(states):
            if not task.reached[level, state]:
                continue
            unchanged(task, level, state)
            pick(task, level, state, False)
            for action in range(actions):
                pair = state * actions + action
                if alike[pair] < 0:
                    continue
                if (every and alike[pair] == action) or weight[action] > 0.0 or is_picked(task, level, action):
                    for k in range(indptr[pair], indptr[pair + 1]):
                        task.reached[level + 1, task.options.successors[k]] = 1


def allow(task: Task, level: int) -> bool:
    """Write the lanes in which the best decision is allowed at each slot; return whether any lane allows it."""
    spends, since, until, found = task.lanes.spends, task.lanes.since, task.lanes.until, False
    for slot in range(task.plan.used[level]):
        count, age = 0, task.plan.age[level, slot]
        for lane in range(len(spends)):
            if spends[lane] >= 0 and since[lane] <= age < until[lane]:
                task.scratch.active[slot, count] = lane
                count += 1
        task.scratch.counts[slot] = count
        found = found or count > 0
    return found


def unchanged(task: Task, level: int, state: int) -> None:
    """Write the distribution of the unchanged decision to `weight`."""
    weight, choices = task.scratch.weight, task.acting.choices
    s, a, policy = task.held.states[level], task.held.actions[level], task.held.acted[level]
    row = task.acting.row[policy]
    for action in range(len(weight)):
        weight[action] = 0.0
    if a >= 0 and (state == s or (task.held.repeats and task.options.alike[state * len(weight) + a] >= 0)):
        weight[a] = 1.0
    elif row < 0:
        weight[task.acting.actions[policy, state]] = 1.0
    elif a >= 0:
        choose(choices[row, s], a, choices[row, state], weight, task.scratch.row.memory)
    else:
        for action in range(len(weight)):
            weight[action] = choices[row, state, action]


def merge(options: Options, state: int, weight: Floats) -> None:
    """Move the weight [A] of each action to the lowest-numbered action with the same row."""
    actions = len(weight)
    for action in range(actions):
        alike = options.alike[state * actions + action]
        if weight[action] > 0.0 and alike != action:
            weight[alike] += weight[action]
            weight[action] = 0.0


def pick(task: Task, level: int, state: int, merged: bool) -> None:
    """Write the optimal policy's action at each slot to `picks`, if a lane follows it."""
    if not task.lanes.follows:
        return
    for slot in range(task.plan.used[level]):
        action = task.plan.policy[task.plan.policy_of[level, slot], state]
        alike = task.options.alike[state * task.options.rewards.shape[1] + action]
        task.scratch.picks[slot] = alike if merged else action


def is_picked(task: Task, level: int, action: int) -> bool:
    """Return whether the optimal policy takes an action at some slot."""
    if task.lanes.follows:
        for slot in range(task.plan.used[level]):
            if task.scratch.picks[slot] == action:
                return True
    return False


def stay(task: Task, level: int, state: int, along: int, ahead: Floats, here: Floats) -> None:
    """Write the values of the state in which the episode has ended. They equal the values at the next level."""
    actions = task.options.rewards.shape[1]
    for slot in range(task.plan.used[level]):
        target = task.plan.target[level, slot, task.plan.label_of[state]]
        for lane in range(here.shape[2]):
            here[state, slot, lane] = target if target < FIRST_SLOT else ahead[state, target - FIRST_SLOT, lane]
    if along < 0:
        return
    for lane in range(len(task.lanes.spends)):
        task.decisions.held[level, lane] = here[state, along, lane]
        for action in range(actions):
            if task.options.alike[state * actions + action] >= 0:
                task.decisions.actions[level, action, lane] = here[state, along, lane]


def decide(task: Task, level: int, state: int, along: int, decided: bool, ahead: Floats, here: Floats) -> None:
    """Write the values of one state to `here`, and its decisions to `task.decisions`.

    `along`: the slot of the observed path, -1 if the path is not in this state; `decided`: whether any lane allows the
    best decision.
    """
    actions, width, used = task.options.rewards.shape[1], len(task.lanes.spends), task.plan.used[level]
    outcome, label, sign = task.held.outcomes[level], task.plan.label_of[state], 1.0 if task.largest else -1.0
    merged = outcome < 0 or state != task.held.states[level]
    weight, mean, picks, followed = task.scratch.weight, task.scratch.mean, task.scratch.picks, task.scratch.followed
    kept, best, best_action = task.scratch.kept, task.scratch.best, task.scratch.best_action
    values, chosen = task.decisions.actions, task.decisions.chosen
    for slot in range(used):
        for lane in range(width):
            kept[slot, lane], best[slot, lane], best_action[slot, lane] = 0.0, -INFINITY, -1
    unchanged(task, level, state)
    if merged:
        merge(task.options, state, weight)
    pick(task, level, state, merged)
    for action in range(actions):
        alike = task.options.alike[state * actions + action]
        if alike < 0:
            continue
        if merged and alike != action:
            if along >= 0:
                for lane in range(width):
                    values[level, action, lane] = values[level, alike, lane]
            continue
        if not (decided or weight[action] > 0.0 or is_picked(task, level, action)):
            continue
        certain = not merged and action == task.held.actions[level]
        reward, length, point = prepare(
            task.options, task.posteriors, level, state, action, outcome, certain, task.kind, task.scratch.row
        )
        for slot in range(used):
            every = weight[action] > 0.0 or picks[slot] == action or slot == along
            needed = width if every else task.lanes.common
            target, earns = task.plan.target[level, slot, label], task.plan.rewarded[level, slot]
            row_means(task.scratch.row, reward, length, point, target, earns, ahead, needed, task.greatest, mean)
            if slot == along:
                for lane in range(width):
                    values[level, action, lane] = mean[lane]
            if weight[action] > 0.0:
                for lane in range(width):
                    kept[slot, lane] += weight[action] * mean[lane]
            if picks[slot] == action:
                followed[slot] = mean[width - 1]
            for n in range(task.scratch.counts[slot]):
                lane = task.scratch.active[slot, n]
                value = sign * mean[task.lanes.spends[lane]]
                if value > best[slot, lane]:
                    if best_action[slot, lane] < 0 or exceeds(value, best[slot, lane]):
                        best_action[slot, lane] = action
                    best[slot, lane] = value
    for slot in range(used):
        for lane in range(width):
            value = kept[slot, lane]
            if task.lanes.follows and lane == width - 1:
                value = followed[slot]
            elif best_action[slot, lane] >= 0 and (not task.lanes.holds[lane] or best[slot, lane] > sign * value):
                value = sign * best[slot, lane]
            here[state, slot, lane] = value
            if len(chosen) > 0:
                gains = best_action[slot, lane] >= 0 and exceeds(best[slot, lane], sign * kept[slot, lane])
                chosen[level, state, slot, lane] = best_action[slot, lane] if gains else -1
    if along >= 0:
        for lane in range(width):
            task.decisions.held[level, lane] = kept[along, lane]


def exceeds(value: float, other: float) -> bool:
    """Return whether `value` is larger than `other` by more than the tolerance for ties."""
    return value - other > TIE * max(1.0, abs(other))


def row_means(
    row: ScratchRow,
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
    """Write the reward plus the mean of the values ahead over a row to the first `needed` lanes of `mean`.

    Some further lanes may be overwritten. `length`: number of successors of the row; `point`: whether the row is known
    exactly; `earns`: whether the reward counts.
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
