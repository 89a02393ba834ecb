"""The answer: the forward weights times the value function at the last observed pair. Compiled.

The value from a start point is what it has accumulated plus the sum, over the nodes, of weight times the value of the
node's obligation in its state (docs/semantics.md, section 6.1). Rules for that value:

- The outcome of the last action is not observed, so from the last pair on rows are those of the model.
- Where nominal is in force, the observed action is used in the observed state (docs/semantics.md, section 2.3).
- An action observed under a stochastic nominal policy conditions the choice of action in every state
  (docs/semantics.md, section 7).
- Otherwise the value is read from a table, one vector over states for each obligation and offset. If the vector is not
  there the loop stops with VALUES_MISSING (offset and column in `Scratch.missing`); the caller adds it and calls again.

Closing changes no weights, so it may be repeated, and an unanswered pair is not observed again (UNANSWERED).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from monitor.arrays import Floats, Ints
from monitor.causal.row import choose
from monitor.exact.forward.rows import Dynamics, phase_at, phase_end
from monitor.exact.forward.step import (
    BASE_OFFSET,
    DONE,
    LAST_ACTION,
    LAST_STATE,
    NOT_COMPUTED,
    QUERIED_START,
    SEGMENT_COUNT,
    START_COUNT,
    UNANSWERED,
    VALUES_MISSING,
    CompiledAutomaton,
    Context,
    Forward,
    Future,
    observe,
)
from monitor.exact.forward.unroll import FIRST_COLUMN
from monitor.jit import compiled, inlined

__all__ = ["ANSWER", "BEGIN", "OBSERVE", "SKIP", "answer", "closing_value", "push", "push_all"]

SKIP, OBSERVE, ANSWER, BEGIN = 0, 1, 3, 4
"""What `push_all` does with a pair, in bits: nothing; observe it; observe it and answer; forget what was before it."""


@compiled
def closing_value(
    dynamics: Dynamics,
    automaton: CompiledAutomaton,
    future: Future,
    offset: int,
    column: int,
    state: int,
    s: int,
    a: int,
    missing: Ints,
) -> tuple[float, int]:
    """Return the value of an obligation in `state` at the last observed pair s, a (a = -1: not known), and a status."""
    phase = phase_at(dynamics, offset)
    if a >= 0 and dynamics.is_nominal[phase] and state == s:
        return action_value(automaton, future, offset, column, state, a, missing)
    if a >= 0 and dynamics.stochastic[phase] and len(dynamics.nominal_policy_probabilities):
        observed = dynamics.nominal_policy_probabilities[phase, s]
        if 0.0 < observed[a] < 1.0:
            choice = dynamics.policy_probabilities[phase, state].copy()
            choose(observed, a, dynamics.policy_probabilities[phase, state], choice)
            total = 0.0
            for action in range(len(choice)):
                if choice[action] > 0.0:
                    value, status = action_value(automaton, future, offset, column, state, action, missing)
                    if status != DONE:
                        return value, status
                    total += choice[action] * value
            return total, DONE
    vector = future.vector[offset, column]
    if vector == NOT_COMPUTED:
        missing[0], missing[1] = offset, column
        return np.nan, VALUES_MISSING
    return future.values[vector, state], DONE


@compiled
def action_value(
    automaton: CompiledAutomaton, future: Future, offset: int, column: int, state: int, action: int, missing: Ints
) -> tuple[float, int]:
    """Return the value of an obligation in `state` if `action` is taken and nothing is observed, and a status."""
    pair = state * future.rewards.shape[1] + action
    label = automaton.label_of[pair if automaton.by_action else state]
    transition = automaton.ranges[column, label, 0]
    while automaton.transitions[transition, 1] <= offset:
        transition += 1
    reward = future.rewards[state, action] if automaton.transitions[transition, 3] else 0.0
    target = automaton.transitions[transition, 2]
    if target < FIRST_COLUMN:
        return reward + target, DONE
    vector = future.vector[offset + 1, target - FIRST_COLUMN]
    if vector == NOT_COMPUTED:
        missing[0], missing[1] = offset + 1, target - FIRST_COLUMN
        return np.nan, VALUES_MISSING
    total = 0.0
    for k in range(future.indptr[pair], future.indptr[pair + 1]):
        total += future.probabilities[k] * future.values[vector, future.successors[k]]
    return reward + total, DONE


@inlined
def close(context: Context, forward: Forward, answers: Floats) -> int:
    """Write the value from each start into `answers` [starts], or that of the queried one at 0; return a status."""
    dynamics, _, automaton, future, scratch = context
    scalars, first_node, start_range = forward.scalars, forward.first_node, forward.start_range
    weights, states = forward.weights, forward.states
    values, vector, vectors, missing = future.values, future.vector, scratch.vectors, scratch.missing
    starts, s, a, base = scalars[START_COUNT], scalars[LAST_STATE], scalars[LAST_ACTION], scalars[BASE_OFFSET]
    lowest, highest = 0, starts
    if scalars[QUERIED_START] >= 0:
        lowest = starts - 1 - min(scalars[QUERIED_START], starts - 1)
        highest = lowest + 1
    answers[: highest - lowest] = forward.accumulated[lowest:highest]
    for phase in range(len(dynamics.phase_begin)):
        begin = max(dynamics.phase_begin[phase] - base, lowest)
        end = min(phase_end(dynamics, phase) - base, highest)
        if begin >= end:
            continue
        unchanged = a >= 0 and dynamics.is_nominal[phase]
        conditioned = a >= 0 and dynamics.stochastic[phase] and len(dynamics.nominal_policy_probabilities) > 0
        for segment in range(scalars[SEGMENT_COUNT]):
            column = forward.column[segment]
            for start in range(begin, min(end, len(vectors), len(vector) - base)):
                vectors[start] = vector[base + start, column]
            for node in range(first_node[segment], first_node[segment + 1]):
                state = states[node]
                if conditioned or (unchanged and state == s):
                    for start in range(max(start_range[node, 0], begin), min(start_range[node, 1], end)):
                        if weights[node, start] > 0.0:
                            value, status = closing_value(
                                dynamics, automaton, future, base + start, column, state, s, a, missing
                            )
                            if status != DONE:
                                return status
                            answers[start - lowest] += weights[node, start] * value
                    continue
                for start in range(max(start_range[node, 0], begin), min(start_range[node, 1], end)):
                    if vectors[start] == NOT_COMPUTED and weights[node, start] > 0.0:
                        missing[0], missing[1] = base + start, column
                        return VALUES_MISSING
                    # As `closing_value`, inlined: most nodes. Vector -1 is some vector, read with weight 0.
                    answers[start - lowest] += weights[node, start] * values[vectors[start], state]
    return DONE


@compiled
def push(context: Any, forward: Any, state: int, action: int, answered: bool) -> int:
    """Observe one pair and answer: if `answered`, write the values into `Forward.values`. Return a status."""
    inner, arrays = context.value, forward.value
    if arrays.scalars[UNANSWERED] == 0:
        status = observe(inner, arrays, state, action)
        if status != DONE:
            return status
    if answered:
        arrays.scalars[UNANSWERED] = 1
        status = close(inner, arrays, arrays.values)
        if status != DONE:
            return status
    arrays.scalars[UNANSWERED] = 0
    return DONE


@compiled
def answer(context: Any, forward: Any) -> int:
    """Write the answers after the pairs observed so far into `Forward.values`; return a status."""
    return close(context.value, forward.value, forward.value.values)


@compiled
def push_all(
    context: Any, forward: Any, states: Ints, actions: Ints, values: Floats, plan: Ints, done: int
) -> tuple[int, int]:
    """Observe pairs from pair `done` on, answer after each into `values` [n, starts]; return how many, and a status.

    `plan` [n]: what to do with each pair (SKIP); if it is empty, every pair is observed and answered. If `values` is
    [0, starts], nothing is answered.
    """
    inner, arrays = context.value, forward.value
    scalars = arrays.scalars
    for n in range(done, len(states)):
        todo = plan[n] if len(plan) else ANSWER
        if todo == SKIP:
            continue
        if scalars[UNANSWERED] == 0:
            if todo & BEGIN:
                scalars[START_COUNT] = 0
            status = observe(inner, arrays, states[n], actions[n])
            if status != DONE:
                return n, status
        if len(values) and todo & ANSWER == ANSWER:
            scalars[UNANSWERED] = 1
            status = close(inner, arrays, values[n])
            if status != DONE:
                return n, status
            scalars[UNANSWERED] = 0
    return len(states), DONE
