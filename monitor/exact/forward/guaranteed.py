"""Bounds over every causal model and every row of a confidence set: one offset of backward induction. Compiled.

See docs/semantics.md, section 13.4. Arrays are over [column, state] of one offset: `reached` says which nodes count.
Rules:

- At an offset whose transition was observed, a row is one of those that the observation leaves
  (`monitor.causal.interval_row`); the very pair observed leads to the observed successor with certainty.
- Elsewhere, at the last observed pair and beyond, a row is any in its bounds.
- In the state `elsewhere` nothing is known: an obligation that remains has the value `unknown`, and a transition into
  it may earn any reward of the model.
- The row is chosen for each (offset, state, obligation) by itself, as in `bounds.py`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from monitor.arrays import Bools, Floats, Ints, Shorts
from monitor.causal.interval_row import extreme_given, least_probability
from monitor.causal.row import choose, greedy
from monitor.exact.forward.rows import Dynamics, phase_at
from monitor.exact.forward.unroll import FIRST_COLUMN
from monitor.jit import compiled, inlined
from monitor.model.confidence import IntervalRows

__all__ = ["IntervalProblem", "interval", "level"]

TRUE = 1
UNOBSERVED = -1


class IntervalProblem(NamedTuple):
    """A measure under a law, over a confidence set of rows.

    `dynamics`: what acts; its rows are not used. `target`, `observed`: bounds of the rows of the counterfactual and of
    the observed world. `rewards` [S, A]; `extremes` [2]: least and greatest reward of a transition. `ranges`,
    `transitions`, `label_of`: the unrolled automaton, see `CompiledAutomaton`. `alive` [offsets, columns]: whether an
    obligation may remain. `unknown` [offsets, columns, 2]: its least and greatest value in the state `elsewhere`
    (-1: there is none).
    """

    dynamics: Dynamics
    target: IntervalRows
    observed: IntervalRows
    rewards: Floats
    extremes: Floats
    ranges: Ints
    transitions: Ints
    label_of: Shorts
    alive: Bools
    unknown: Floats
    elsewhere: int


class Observed(NamedTuple):
    """The pair observed at an offset (-1: none), its successor (-1: not observed), and `least`, p* of it."""

    state: int
    action: int
    successor: int
    least: float


@compiled
def least_observed(rows: IntervalRows, row: int, successor: int) -> float:
    """Return p* of an observed successor; 0 if the row lacks it."""
    begin, end = rows.indptr[row], rows.indptr[row + 1]
    for k in range(begin, end):
        if rows.successors[k] == successor:
            return least_probability(rows.lower[begin:end], rows.upper[begin:end], k - begin)
    return 0.0


@inlined
def choose_actions(dynamics: Dynamics, offset: int, seen: Observed, state: int, choice: Floats) -> None:
    """Write the distribution [A] of the action in `state` to `choice`."""
    phase = phase_at(dynamics, offset)
    choice[:] = 0.0
    if seen.action >= 0 and dynamics.is_nominal[phase] and state == seen.state:
        choice[seen.action] = 1.0
    elif not dynamics.stochastic[phase]:
        choice[dynamics.policy_actions[phase, state]] = 1.0
    else:
        policy = dynamics.policy_probabilities[phase, state]
        choice[:] = policy
        if seen.action >= 0 and len(dynamics.nominal_policy_probabilities):
            choose(dynamics.nominal_policy_probabilities[phase, seen.state], seen.action, policy, choice)


@inlined
def transition_at(problem: IntervalProblem, offset: int, column: int, state: int) -> int:
    """Return the automaton's transition of a column at an offset, on the label of a state."""
    transition = int(problem.ranges[column, problem.label_of[state], 0])
    while problem.transitions[transition, 1] <= offset:
        transition += 1
    return transition


@inlined
def is_certain(problem: IntervalProblem, seen: Observed, state: int, action: int) -> bool:
    """Return whether the pair is the one observed, in the same model: its successor is the observed one."""
    same = state == seen.state and action == seen.action
    return seen.successor >= 0 and same and problem.dynamics.same_model


@inlined
def pair_values(
    problem: IntervalProblem,
    seen: Observed,
    transition: int,
    state: int,
    action: int,
    ahead: Floats,
    low: Floats,
    high: Floats,
) -> tuple[float, float]:
    """Return the least and the greatest value of a pair over its rows; `low`, `high`: scratch of S numbers."""
    target, rewarded = problem.target, problem.transitions[transition, 3] == 1
    goal = problem.transitions[transition, 2]
    fixed = problem.rewards[state, action] if rewarded else 0.0
    decided = 1.0 if goal == TRUE else 0.0
    if goal < FIRST_COLUMN and not rewarded:
        return decided, decided
    row = state * problem.rewards.shape[1] + action
    begin, end = target.indptr[row], target.indptr[row + 1]
    certain = is_certain(problem, seen, state, action)
    for k in range(begin, end):
        successor = target.successors[k]
        extra = target.extra[k] if rewarded and len(target.extra) else 0.0
        low[k - begin] = high[k - begin] = decided + fixed + extra
        if goal >= FIRST_COLUMN:
            low[k - begin] += ahead[goal - FIRST_COLUMN, successor, 0]
            high[k - begin] += ahead[goal - FIRST_COLUMN, successor, 1]
        if successor == problem.elsewhere and rewarded:
            low[k - begin] += problem.extremes[0] - fixed - extra
            high[k - begin] += problem.extremes[1] - fixed - extra
        if certain and successor == seen.successor:
            return low[k - begin], high[k - begin]
    lower, upper = target.lower[begin:end], target.upper[begin:end]
    if seen.successor < 0:
        return greedy(lower, upper, low, False), greedy(lower, upper, high, True)
    return extreme_given(lower, upper, seen.least, low, False), extreme_given(lower, upper, seen.least, high, True)


@compiled
def spread(problem: IntervalProblem, offset: int, seen: Observed, reached: Bools, following: Bools) -> None:
    """Mark in `following` [columns, S] all nodes of the next offset that can be reached from those in `reached`."""
    target = problem.target
    choice = np.empty(problem.rewards.shape[1])
    for column in range(reached.shape[0]):
        for state in range(reached.shape[1]):
            if not reached[column, state] or state == problem.elsewhere:
                continue
            goal = problem.transitions[transition_at(problem, offset, column, state), 2] - FIRST_COLUMN
            if goal < 0:
                continue
            choose_actions(problem.dynamics, offset, seen, state, choice)
            for action in range(len(choice)):
                if choice[action] == 0.0:
                    continue
                if is_certain(problem, seen, state, action):
                    following[goal, seen.successor] = True
                    continue
                row = state * len(choice) + action
                for k in range(target.indptr[row], target.indptr[row + 1]):
                    if target.upper[k] > 0.0:
                        following[goal, target.successors[k]] = True


@compiled
def fill(problem: IntervalProblem, offset: int, seen: Observed, reached: Bools, ahead: Floats, here: Floats) -> None:
    """Write the bounds of the reached nodes at an offset to `here` [columns, S, 2]; `ahead`: those of the next."""
    low, high = np.empty(reached.shape[1]), np.empty(reached.shape[1])
    choice = np.empty(problem.rewards.shape[1])
    for column in range(reached.shape[0]):
        if not problem.alive[offset, column]:
            continue
        for state in range(reached.shape[1]):
            if not reached[column, state]:
                continue
            if state == problem.elsewhere:
                here[column, state] = problem.unknown[offset, column]
                continue
            here[column, state] = 0.0
            transition = transition_at(problem, offset, column, state)
            choose_actions(problem.dynamics, offset, seen, state, choice)
            for action in range(len(choice)):
                if choice[action] == 0.0:
                    continue
                least, most = pair_values(problem, seen, transition, state, action, ahead, low, high)
                here[column, state, 0] += choice[action] * least
                here[column, state, 1] += choice[action] * most


@compiled
def level(lent: Any, offset: int, reached: Bools, ahead: Floats, here: Floats) -> None:
    """Do what `fill` does where nothing is observed; `lent`: an `IntervalProblem` in a box (`jit.lend`)."""
    fill(lent.value, offset, Observed(-1, -1, -1, 1.0), reached, ahead, here)


@compiled
def interval(lent: Any, states: Ints, actions: Ints, beyond: Floats) -> tuple[float, float]:
    """Return the bounds from the first of the pairs [d + 1].

    `beyond` [columns, S, 2]: the bounds at offset d + 1, without observations, or at the horizon if that is earlier.
    """
    problem = lent.value
    horizon, columns = problem.alive.shape[0] - 1, problem.alive.shape[1]
    count = min(len(states), horizon)
    reached = np.zeros((count + 1, columns, problem.rewards.shape[0]), dtype=np.bool_)
    reached[0, 0, states[0]] = True
    for offset in range(count - 1):
        spread(problem, offset, observed_at(problem, states, actions, offset), reached[offset], reached[offset + 1])
    ahead = beyond
    for offset in range(count - 1, -1, -1):
        here = np.zeros((columns, problem.rewards.shape[0], 2))
        fill(problem, offset, observed_at(problem, states, actions, offset), reached[offset], ahead, here)
        ahead = here
    return ahead[0, states[0], 0], ahead[0, states[0], 1]


@compiled
def observed_at(problem: IntervalProblem, states: Ints, actions: Ints, offset: int) -> Observed:
    """Return what was observed at an offset of the path."""
    if offset + 1 == len(states):
        return Observed(states[offset], actions[offset], -1, 1.0)
    row = states[offset] * problem.rewards.shape[1] + actions[offset]
    least = least_observed(problem.observed, row, states[offset + 1])
    return Observed(states[offset], actions[offset], states[offset + 1], least)
