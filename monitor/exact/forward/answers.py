"""Answers, which are sums of forward weight times value at the last observed pair. Compiled.

The value from a start point has two parts. The first part is the value accumulated so far. The second part is the sum,
over the nodes, of weight times the value of the node's obligation in the node's state (docs/semantics/formulas.md,
section 6.1). Rules for the value of an obligation:

- The outcome of the last action is not observed, so from the last pair on the rows of the model apply.
- Where nominal is in force, the observed action is taken in the observed state (docs/semantics/worlds.md, section 2.3).
- An action observed under a stochastic nominal policy conditions the choice of action in every state
  (docs/semantics/formulas.md, section 7).
- Otherwise the value is read from a table, which has one vector over states for each obligation and offset. If a vector
  is missing, the loop stops with VALUES_MISSING (offset and column in `Workspace.missing`). The caller then adds the
  vector and calls again.

Writing answers changes no weights, so it may be repeated. If the loop stopped because values were missing
(`ForwardBuffers.unanswered`), the next call does not observe the pair again.
"""

from __future__ import annotations

from monitor.arrays import Floats, Ints
from monitor.causal.row import choose
from monitor.exact.forward.buffers import ForwardBuffers, Workspace
from monitor.exact.forward.codes import ANSWER, BEGIN, DONE, NOT_COMPUTED, SKIP, VALUES_MISSING
from monitor.exact.forward.counterfactual_rows import phase_at, phase_end
from monitor.exact.forward.observation import Context, Future, TransitionTable, observe
from monitor.exact.forward.unroll import FIRST_COLUMN


def value_at_last_pair(context: Context, offset: int, column: int, state: int, s: int, a: int) -> tuple[float, int]:
    """Return the value of an obligation in `state` at the last observed pair s, a (a = -1: unknown), and a status."""
    phase = phase_at(context.dynamics, offset)
    if a >= 0 and context.dynamics.is_nominal[phase] and state == s:
        return action_value(context.automaton, context.future, context.workspace, offset, column, state, a)
    if a >= 0 and context.dynamics.stochastic[phase] and len(context.dynamics.nominal_policy_probabilities):
        observed, choice = context.dynamics.nominal_policy_probabilities[phase, s], context.table.choice
        if 0.0 < observed[a] < 1.0:
            policy, total = context.dynamics.policy_probabilities[phase, state], 0.0
            choose(observed, a, policy, choice, context.table.memory)
            for action in range(len(policy)):
                if choice[action] > 0.0:
                    value, status = action_value(
                        context.automaton, context.future, context.workspace, offset, column, state, action
                    )
                    if status != DONE:
                        return value, status
                    total += choice[action] * value
            return total, DONE
    return value_at(context.future, context.workspace, offset, column, state)


def action_value(
    automaton: TransitionTable,
    future: Future,
    workspace: Workspace,
    offset: int,
    column: int,
    state: int,
    action: int,
) -> tuple[float, int]:
    """Return the value of an obligation in `state` if `action` is taken and nothing is observed, and a status."""
    pair, total = state * future.rewards.shape[1] + action, 0.0
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
        workspace.missing[0], workspace.missing[1] = offset + 1, target - FIRST_COLUMN
        return 0.0, VALUES_MISSING
    for k in range(future.indptr[pair], future.indptr[pair + 1]):
        total += future.probabilities[k] * future.values[vector, future.successors[k]]
    return reward + total, DONE


def value_at(future: Future, workspace: Workspace, offset: int, column: int, state: int) -> tuple[float, int]:
    """Return the value of an obligation in `state` under the law, and a status."""
    vector = future.vector[offset, column]
    if vector == NOT_COMPUTED:
        workspace.missing[0], workspace.missing[1] = offset, column
        return 0.0, VALUES_MISSING
    return future.values[vector, state], DONE


def write_answers(context: Context, forward: ForwardBuffers, answers: Floats) -> int:
    """Write the value from each start into `answers` [starts], and return a status.

    If one start is queried, only its value is written, at index 0.
    """
    lowest, highest = 0, forward.start_count
    if forward.queried_start >= 0:
        lowest = max(forward.start_count - 1 - forward.queried_start, 0)
        highest = lowest + 1
    for start in range(lowest, highest):
        answers[start - lowest] = forward.accumulated[start]
    s, a, base = forward.last_state, forward.last_action, forward.base_offset
    for phase in range(len(context.dynamics.phase_begin)):
        begin = max(context.dynamics.phase_begin[phase] - base, lowest)
        end = min(phase_end(context.dynamics, phase) - base, highest)
        if begin >= end:
            continue
        unchanged = a >= 0 and context.dynamics.is_nominal[phase]
        conditioned = a >= 0 and context.dynamics.stochastic[phase]
        for segment in range(forward.segment_count):
            column = forward.column[segment]
            for node in range(forward.first_node[segment], forward.first_node[segment + 1]):
                state = forward.states[node]
                first, last = max(forward.start_range[node, 0], begin), min(forward.start_range[node, 1], end)
                for start in range(first, last):
                    weight = forward.weights[node, start]
                    if weight > 0.0:
                        if conditioned or (unchanged and state == s):
                            value, status = value_at_last_pair(context, base + start, column, state, s, a)
                        else:  # the case of most nodes; the result is that of `value_at_last_pair`
                            value, status = value_at(context.future, context.workspace, base + start, column, state)
                        if status != DONE:
                            return status
                        answers[start - lowest] += weight * value
    return DONE


def push(context: Context, forward: ForwardBuffers, state: int, action: int, answered: bool) -> int:
    """Observe one pair, write the values into `ForwardBuffers.values` if `answered`, and return a status."""
    if not forward.unanswered:
        status = observe(context, forward, state, action)
        if status != DONE:
            return status
    forward.unanswered = answered
    status = write_answers(context, forward, forward.answers) if answered else DONE
    if status == DONE:
        forward.unanswered = False
    return status


def answer(context: Context, forward: ForwardBuffers) -> int:
    """Write the answers after the pairs observed so far into `ForwardBuffers.values`; return a status."""
    return write_answers(context, forward, forward.answers)


def push_all(
    context: Context, forward: ForwardBuffers, states: Ints, actions: Ints, values: Floats, plan: Ints, done: int
) -> tuple[int, int]:
    """Observe the pairs from pair `done` on, and write the answers after each pair into `values` [n, starts].

    Return the number of pairs done, and a status. `plan` [n]: bits for each pair (see SKIP); if it is empty, every
    pair is observed and answered. If `values` has the shape [0, starts], no answers are written.
    """
    for n in range(done, len(states)):
        todo = plan[n] if len(plan) else ANSWER
        if todo == SKIP:
            continue
        if not forward.unanswered:
            if todo & BEGIN:
                forward.start_count = 0
            status = observe(context, forward, states[n], actions[n])
            if status != DONE:
                return n, status
        if len(values) and todo & ANSWER == ANSWER:
            forward.unanswered = True
            status = write_answers(context, forward, values[n])
            if status != DONE:
                return n, status
            forward.unanswered = False
    return len(states), DONE
