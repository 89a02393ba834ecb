"""Backward induction for bounds over every causal model and every row of a confidence set. Compiled.

See docs/semantics/learned-models.md, section 13.4. Arrays are over the [column, state] nodes of one offset; `reached`
marks the nodes that are evaluated. Rules:

- At an offset with an observed transition, a row may be any row that is possible given the observation
  (`monitor.causal.interval_row`). The observed pair itself leads to the observed successor with certainty.
- At the last observed pair and beyond, a row may be any row within its bounds.
- Nothing is known about the state `elsewhere`. There an obligation that remains has the value `unknown`, and a
  transition into this state may earn any reward of the model.
- The row is chosen independently for each (offset, state, obligation), as in `bounds.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from monitor.arrays import Bytes, Floats, Ints, Shorts
from monitor.causal.interval_row import extreme_given, least_probability
from monitor.causal.row import RowMemory, choose, greedy
from monitor.exact.forward.counterfactual_rows import Dynamics, phase_at
from monitor.exact.forward.unroll import FIRST_COLUMN

TRUE = 1

ObservedTransition = tuple[int, int, int, float]
"""The pair observed at an offset (-1: none), its successor (-1: not observed), and the lower bound p* of its
probability."""


@dataclass(eq=False)
class RowBounds:
    """`monitor.model.confidence.IntervalRows`, for compiled code."""

    indptr: Ints
    successors: Ints
    lower: Floats
    upper: Floats
    extra: Floats


@dataclass(eq=False)
class IntervalProblem:
    """A measure under a law, over a confidence set of rows.

    `dynamics`: the policies in force; the rows in it are not used. `target`, `observed`: bounds of the rows of the
    counterfactual and of the factual world. `extremes` [2]: least and greatest reward of a transition. `ranges`,
    `transitions`, `label_of`: the unrolled automaton, see `TransitionTable`. `alive` [offsets, columns]: whether an
    obligation may remain. `elsewhere`: the state about which nothing is known, -1 if there is none. `unknown` [offsets,
    columns, 2]: the least and the greatest value of the obligation in this state.

    Working memory: `choice` [A], probabilities of actions; `low`, `high` [S], values of a row's successors; `memory`.
    """

    dynamics: Dynamics
    target: RowBounds
    observed: RowBounds
    extremes: Floats
    ranges: Ints
    transitions: Ints
    label_of: Shorts
    alive: Bytes
    unknown: Floats
    elsewhere: int
    choice: Floats
    low: Floats
    high: Floats
    memory: RowMemory


def interval(
    problem: IntervalProblem, states: Ints, actions: Ints, reached: Bytes, values: Floats
) -> tuple[float, float]:
    """Return the bounds from the first pair of a path on.

    Let c be the number of offsets that have a pair and are below the horizon. `reached` [c + 1, columns, S]: zeros,
    filled here. `values` [2, columns, S, 2]: at index c modulo 2, the bounds at offset c without observations.
    """
    count = len(reached) - 1
    reached[0, 0, states[0]] = 1
    for offset in range(count - 1):
        spread(problem, offset, observed_at(problem, states, actions, offset), reached[offset], reached[offset + 1])
    for offset in range(count - 1, -1, -1):
        seen, ahead, here = observed_at(problem, states, actions, offset), values[(offset + 1) & 1], values[offset & 1]
        fill(problem, offset, seen, reached[offset], ahead, here)
    return values[0, 0, states[0], 0], values[0, 0, states[0], 1]


def level(problem: IntervalProblem, offset: int, reached: Bytes, ahead: Floats, here: Floats) -> None:
    """Write the bounds at an offset without an observation; see `fill`."""
    fill(problem, offset, (-1, -1, -1, 1.0), reached, ahead, here)


def observed_at(problem: IntervalProblem, states: Ints, actions: Ints, offset: int) -> ObservedTransition:
    """Return the observation at an offset of the path."""
    if offset + 1 == len(states):
        return states[offset], actions[offset], -1, 1.0
    row = states[offset] * problem.dynamics.rewards.shape[1] + actions[offset]
    least = least_observed(problem.observed, row, states[offset + 1])
    return states[offset], actions[offset], states[offset + 1], least


def least_observed(rows: RowBounds, row: int, successor: int) -> float:
    """Return the lower bound p* of an observed successor's probability; 0 if the row lacks the successor."""
    begin, end = rows.indptr[row], rows.indptr[row + 1]
    for k in range(begin, end):
        if rows.successors[k] == successor:
            return least_probability(rows.lower[begin:end], rows.upper[begin:end], k - begin)
    return 0.0


def choose_actions(problem: IntervalProblem, offset: int, seen: ObservedTransition, state: int) -> None:
    """Write the distribution [A] of the action in `state` to `problem.choice`."""
    s, a, _, _ = seen
    choice, phase = problem.choice, phase_at(problem.dynamics, offset)
    for action in range(len(choice)):
        choice[action] = 0.0
    if a >= 0 and problem.dynamics.is_nominal[phase] and state == s:
        choice[a] = 1.0
    elif not problem.dynamics.stochastic[phase]:
        choice[problem.dynamics.policy_actions[phase, state]] = 1.0
    else:
        policy = problem.dynamics.policy_probabilities[phase, state]
        for action in range(len(choice)):
            choice[action] = policy[action]
        if a >= 0 and len(problem.dynamics.nominal_policy_probabilities):
            choose(problem.dynamics.nominal_policy_probabilities[phase, s], a, policy, choice, problem.memory)


def transition_at(problem: IntervalProblem, offset: int, column: int, state: int) -> int:
    """Return the index of the transition of a column at an offset, for the label of `state`."""
    transition = problem.ranges[column, problem.label_of[state], 0]
    while problem.transitions[transition, 1] <= offset:
        transition += 1
    return transition


def is_certain(problem: IntervalProblem, seen: ObservedTransition, state: int, action: int) -> bool:
    """Return whether the pair and the model are as observed, so that the successor is as observed too."""
    s, a, s_next, _ = seen
    return s_next >= 0 and state == s and action == a and problem.dynamics.same_model


def pair_values(
    problem: IntervalProblem, seen: ObservedTransition, transition: int, state: int, action: int, ahead: Floats
) -> tuple[float, float]:
    """Return the least and the greatest value of a pair over its rows."""
    _, _, s_next, least = seen
    low, high = problem.low, problem.high
    goal, rewarded = problem.transitions[transition, 2], problem.transitions[transition, 3] == 1
    fixed = problem.dynamics.rewards[state, action] if rewarded else 0.0
    decided = 1.0 if goal == TRUE else 0.0
    if goal < FIRST_COLUMN and not rewarded:
        return decided, decided
    row = state * problem.dynamics.rewards.shape[1] + action
    begin, end = problem.target.indptr[row], problem.target.indptr[row + 1]
    certain = is_certain(problem, seen, state, action)
    for k in range(begin, end):
        successor = problem.target.successors[k]
        extra = problem.target.extra[k] if rewarded and len(problem.target.extra) else 0.0
        low[k - begin] = high[k - begin] = decided + fixed + extra
        if goal >= FIRST_COLUMN:
            low[k - begin] += ahead[goal - FIRST_COLUMN, successor, 0]
            high[k - begin] += ahead[goal - FIRST_COLUMN, successor, 1]
        if successor == problem.elsewhere and rewarded:
            low[k - begin] += problem.extremes[0] - fixed - extra
            high[k - begin] += problem.extremes[1] - fixed - extra
        if certain and successor == s_next:
            return low[k - begin], high[k - begin]
    lower, upper = problem.target.lower[begin:end], problem.target.upper[begin:end]
    if s_next < 0:
        keys, order = problem.memory.keys, problem.memory.order
        return greedy(lower, upper, low, False, keys, order), greedy(lower, upper, high, True, keys, order)
    return (
        extreme_given(lower, upper, least, low, False, problem.memory),
        extreme_given(lower, upper, least, high, True, problem.memory),
    )


def spread(problem: IntervalProblem, offset: int, seen: ObservedTransition, reached: Bytes, following: Bytes) -> None:
    """Mark in `following` [columns, S] all nodes of the next offset that can be reached from the nodes in `reached`."""
    _, _, s_next, _ = seen
    choice = problem.choice
    for column in range(reached.shape[0]):
        for state in range(reached.shape[1]):
            if not reached[column, state] or state == problem.elsewhere:
                continue
            goal = problem.transitions[transition_at(problem, offset, column, state), 2] - FIRST_COLUMN
            if goal < 0:
                continue
            choose_actions(problem, offset, seen, state)
            for action in range(len(choice)):
                if choice[action] == 0.0:
                    continue
                if is_certain(problem, seen, state, action):
                    following[goal, s_next] = 1
                    continue
                row = state * len(choice) + action
                for k in range(problem.target.indptr[row], problem.target.indptr[row + 1]):
                    if problem.target.upper[k] > 0.0:
                        following[goal, problem.target.successors[k]] = 1


def fill(
    problem: IntervalProblem, offset: int, seen: ObservedTransition, reached: Bytes, ahead: Floats, here: Floats
) -> None:
    """Write the bounds of the reached nodes at an offset to `here` [columns, S, 2].

    `ahead` [columns, S, 2]: the bounds at the next offset.
    """
    choice = problem.choice
    for column in range(reached.shape[0]):
        for state in range(reached.shape[1]):
            here[column, state, 0] = here[column, state, 1] = 0.0
            if not reached[column, state] or not problem.alive[offset, column]:
                continue
            if state == problem.elsewhere:
                here[column, state, 0] = problem.unknown[offset, column, 0]
                here[column, state, 1] = problem.unknown[offset, column, 1]
                continue
            transition = transition_at(problem, offset, column, state)
            choose_actions(problem, offset, seen, state)
            for action in range(len(choice)):
                if choice[action] == 0.0:
                    continue
                least, most = pair_values(problem, seen, transition, state, action, ahead)
                here[column, state, 0] += choice[action] * least
                here[column, state, 1] += choice[action] * most
