"""An `Evaluator` calls the compiled loops for one law and one measure, for all paths, agents and offsets.

If a loop reports that an array is full or a value is missing, the evaluator grows the array or computes the value, and
calls the loop again. Rules:

- Offsets of the automaton, rows of the chain and vectors of values are added only when a loop stops because they are
  missing. Each call makes progress or raises LimitError.
- The row table may be cleared once in a query. If the query needs more rows than the limit, the table then grows beyond
  the limit (`RowTable.grow`).
- A model may be too large for vectors over all states (`lazy`). Then the loops only advance the weights, and Python
  code computes the answer from the reached states. The order of additions is the same.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from monitor.arrays import AnyArray, Floats, Ints, Shorts
from monitor.causal import Law, conditional_choices
from monitor.errors import LimitError
from monitor.exact.forward import bounds
from monitor.exact.forward.answers import answer, push, push_all
from monitor.exact.forward.buffers import ForwardBuffers, Workspace
from monitor.exact.forward.codes import (
    DONE,
    FORWARD_FULL,
    LEVELS_FULL,
    NOT_COMPUTED,
    SCRATCH_FULL,
    TABLE_FULL,
    VALUES_MISSING,
)
from monitor.exact.forward.counterfactual_rows import Dynamics
from monitor.exact.forward.observation import Context, Future, TransitionTable
from monitor.exact.forward.row_table import EXACT, RowTables
from monitor.exact.forward.unroll import Unrolled
from monitor.exact.value_table import SMALL, ValueTable, is_large
from monitor.model import MDP
from monitor.policy import PolicyTable

Pairs = tuple[Ints, Ints]
_ALL: Ints = np.zeros(0, dtype=np.int64)
LabelledAutomaton = tuple[Unrolled, Shorts]
"""An unrolled automaton, and the label of each state (of each state-action pair, if quantities are nested)."""


def dynamics(nominal: Law, law: Law, *, merge_actions: bool) -> Dynamics:
    """Return the dynamics of the world of `law` up to the last observed pair, observed under `nominal`."""
    ends = {end for end, _ in (*law.phases, *nominal.phases) if end is not None}
    begin = sorted({0, *ends} | ({law.nominal_from} if law.nominal_from else set()))
    chosen = [law.table(offset) for offset in begin]
    observed = [nominal.table(offset) for offset in begin]
    model, observed_model = law.dynamics, nominal.dynamics
    mixed, uncertain = (any(table.actions is None for table in tables) for tables in (chosen, observed))
    nobody = np.zeros(model.states, dtype=np.int64)
    return Dynamics(
        model.indptr,
        model.successors,
        model.probabilities,
        observed_model.indptr,
        observed_model.successors,
        observed_model.probabilities,
        model.rewards,
        np.zeros(0) if model.transition_rewards is None else model.transition_rewards,
        np.array(begin),
        np.array([law.nominal_from is not None and offset >= law.nominal_from for offset in begin], dtype=np.uint8),
        np.array([table.actions is None for table in chosen], dtype=np.uint8),
        _stack([nobody if table.actions is None else table.actions for table in chosen]),
        _choices(chosen if mixed else [], model),
        _choices(observed if uncertain else [], observed_model),
        model is observed_model,
        merge_actions,
        is_large(model) and not uncertain,  # an observed stochastic action conditions the rows of all states
    )


def _choices(tables: list[PolicyTable], model: MDP) -> Floats:
    """Return the probabilities [H, S, A] of H tables; the array of a single stochastic table is not copied."""
    if len(tables) == 1:
        return _stack([table.probabilities for table in tables])
    rows = [[table.distribution(s, model.actions) for s in range(model.states)] for table in tables]
    return np.array(rows).reshape(-1, model.states, model.actions)


def _stack(arrays: list[Any]) -> AnyArray:
    return arrays[0][np.newaxis] if len(arrays) == 1 else np.stack(arrays)


class Evaluator:
    """Values of one measure under one law, for any path.

    Args:
        nominal: the law in force without the intervention.
        value_table: the value function beyond the observed path, with the law, the automaton and its labelling.
        automaton: see `labelled_automaton`; shared between laws if nothing is nested.
        chain: the dynamics up to the last observed pair, and their rows by kind; shared between measures.
        workspace: working memory, shared by all evaluators of a model.
    """

    def __init__(
        self,
        nominal: Law,
        value_table: ValueTable,
        automaton: LabelledAutomaton,
        chain: tuple[Dynamics, RowTables],
        workspace: Workspace,
    ) -> None:
        self.nominal, self.value_table = nominal, value_table
        self.unrolled, label_of = automaton
        self._dynamics, self._row_tables = chain
        self._workspace = workspace
        self._automaton = TransitionTable(
            self.unrolled.ranges, self.unrolled.transitions, label_of, value_table.labelling.by_action
        )
        future = value_table.law.future
        self._future = Future(
            value_table.table,
            np.zeros((0, 0), dtype=np.int64),
            future.indptr,
            future.successors,
            future.probabilities,
            future.expected_rewards,
        )
        self._contexts: dict[int, Context] = {}
        self._offsets = 0
        """Number of offsets for which there are transitions and indices of vectors."""
        self._cleared = False
        self.lazy = not value_table.law.explicit  # compiled code reads only rows that the model stores explicitly

    @property
    def computed(self) -> int:
        """Number of counterfactual rows computed so far."""
        return self._row_tables(EXACT).computed

    def push(self, forward: ForwardBuffers, state: int, action: int, answered: bool) -> None:  # noqa: FBT001 - a C function
        """Observe one pair (action -1: not yet taken). If `answered`, write the answers into `forward.values`."""
        context = self._fit(forward, 1)
        while status := push(context, forward, state, action, answered and not self.lazy):
            self._provide(status, context, forward)
        if answered and self.lazy:
            self._write_answers(forward, forward.values)

    def push_all(self, forward: ForwardBuffers, pairs: Pairs, values: Floats | None = None, plan: Ints = _ALL) -> None:
        """Observe pairs (states and actions [n]). If `values` is given, write the answers after each pair into it.

        `values`: [n, starts]. `plan` [n]: bits for each pair, as in `answers.push_all`; ignored if `lazy` is True.
        """
        states, actions = pairs
        context, done = self._fit(forward, len(states)), 0
        if values is None:
            values = np.zeros((0, 0))
        elif self.lazy:
            self._push_each(forward, pairs, values)
            return
        while True:
            before = done
            done, status = push_all(context, forward, states, actions, values, plan, done)
            if status == DONE:
                return
            if done > before:
                self._cleared = False
            self._provide(status, context, forward)
            if self.lazy and len(values):
                if len(plan):
                    forward.restart()
                    done = 0
                self._push_each(forward, (states[done:], actions[done:]), values[done:])
                return

    def answer(self, forward: ForwardBuffers) -> None:
        """Write the answers under this evaluator's law into `forward.values`, without observing another pair."""
        context = self._fit(forward, 0)
        while not self.lazy:
            status = answer(context, forward)
            if status == DONE:
                return
            self._provide(status, context, forward)
        self._write_answers(forward, forward.values)

    def interval(self, pairs: Pairs, kind: int) -> tuple[float, float]:
        """Return the lowest and the highest value from the first pair on, over a causal model class (ANY or STABLE)."""
        found = np.zeros(2)
        self._cleared = False
        self._unroll(len(pairs[0]) + 1)
        context, levels = self._context(kind), self._workspace.levels
        while True:
            if self.lazy:
                status = bounds.forward(context, levels, *pairs)
            else:
                status = bounds.interval(context, levels, *pairs, found)
            if status == DONE:
                break
            self._provide(status, context, None)
        if self.lazy:
            self._bound_last_level(pairs)
            bounds.backward(context, levels, len(pairs[0]) - 1, found)
        low, high = found.tolist()
        return low, high

    def _fit(self, forward: ForwardBuffers, pairs: int) -> Context:
        """Make space for the weights after `pairs` more pairs."""
        self._cleared = False
        offsets = forward.max_starts + 1 if forward.max_starts else forward.base_offset + pairs + 2
        if offsets > self._offsets:
            self._unroll(offsets)
        if forward.live_starts > self._workspace.starts:
            self._workspace.fit(0, forward.live_starts)
        return self._context(EXACT)

    def _unroll(self, offsets: int) -> None:
        """Extend transitions and indices of vectors to at least `offsets` offsets."""
        if offsets > self._offsets:
            self.unrolled.extend(offsets)
            self._find_vectors()

    def _context(self, kind: int) -> Context:
        context = self._contexts.get(kind)
        if context is None:
            table = self._row_tables(kind)
            context = Context(self._dynamics, table, self._automaton, self._future, self._workspace)
            self._contexts[kind] = context
        return context

    def _provide(self, status: int, context: Context, forward: ForwardBuffers | None) -> None:
        """Grow the array that a loop reported as full, or compute the values that it reported as missing."""
        first, second = self._workspace.missing
        if status == TABLE_FULL:
            context.table.grow(forget=not self._cleared)
            self._cleared = True
        elif status == SCRATCH_FULL:
            self._workspace.grow()
        elif status == FORWARD_FULL:
            assert forward is not None
            forward.grow(first, second)
        elif status == LEVELS_FULL:
            self._workspace.levels.grow(first, second)
        else:
            assert status == VALUES_MISSING, f"a loop ended with {status}"
            try:
                self._compute_values(first, self.unrolled.obligations[second][first])
            except LimitError:
                if forward is not None:
                    forward.unanswered = False  # the pair was observed, so the next call observes a new pair
                raise

    def _compute_values(self, offset: int, obligation: int) -> None:
        """Add one vector of values, or set `lazy` if the model is too large for it."""
        if self.value_table.law.dynamics.states > SMALL and not self.value_table.tabled(offset, obligation):
            self.lazy = True
            return
        self.value_table.all_values(offset, obligation)
        self._find_vectors()

    def _find_vectors(self) -> None:
        """Refresh the transitions and the indices of values, because another evaluator may have unrolled further."""
        unrolled, future = self.unrolled, self._future
        self._automaton.ranges, self._automaton.transitions = unrolled.ranges, unrolled.transitions
        self._offsets = unrolled.depth if unrolled.depth < unrolled.horizon else sys.maxsize
        self._workspace.fit(len(unrolled.obligations), 1)
        future.values = self.value_table.table
        future.vector = np.full((unrolled.depth + 2, len(unrolled.obligations)), NOT_COMPUTED)
        last = self.value_table.law.stationary_from()
        for column, cells in enumerate(unrolled.obligations):
            for offset, obligation in cells.items():
                future.vector[offset, column] = self.value_table.rows.get((min(offset, last), obligation), NOT_COMPUTED)

    def _push_each(self, forward: ForwardBuffers, pairs: Pairs, values: Floats) -> None:
        for n, (state, action) in enumerate(zip(*pairs, strict=True)):
            self.push(forward, int(state), int(action), True)  # noqa: FBT003
            starts = forward.start_count
            values[n, :starts] = forward.values[:starts]

    def _write_answers(self, forward: ForwardBuffers, values: Floats) -> None:
        """Write the answers as the compiled `write_answers` does, but look up or compute the value of each state."""
        last, queried, oldest = (
            (forward.last_state, forward.last_action),
            forward.queried_start,
            forward.start_count - 1,
        )
        for start in range(oldest + 1) if queried < 0 else [oldest - min(queried, oldest)]:
            total = forward.accumulated[start]
            for column, states, weights in forward.of_start(start):
                total = _add(
                    total, weights * self._values_at_last_pair(forward.base_offset + start, column, states, last)
                )
            values[start if queried < 0 else 0] = total

    def _bound_last_level(self, pairs: Pairs) -> None:
        """Look up or compute the value of each node of the last level, and write it to both `low` and `high`."""
        levels, offset = self._workspace.levels, len(pairs[0]) - 1
        nodes = slice(levels.first_node[offset], levels.first_node[offset + 1])
        last = int(pairs[0][offset]), int(pairs[1][offset])
        columns, states, low = (
            np.asarray(levels.column)[nodes],
            np.asarray(levels.state)[nodes],
            np.asarray(levels.low)[nodes],
        )
        for column in np.unique(columns).tolist():
            here = columns == column
            low[here] = self._values_at_last_pair(offset, column, states[here].astype(np.int64), last)
        np.asarray(levels.high)[nodes] = low

    def _values_at_last_pair(self, offset: int, column: int, states: Ints, last: tuple[int, int]) -> Floats:
        obligation = self.unrolled.obligations[column][offset]
        return closing_values(self.nominal, self.value_table, offset, obligation, states, last)


def closing_values(  # noqa: PLR0917 - the values depend on all six
    nominal: Law, value_table: ValueTable, offset: int, obligation: int, states: Ints, last: tuple[int, int]
) -> Floats:
    """Return the values [n] of an obligation in n states at the last observed pair (action -1: unknown)."""
    law, (s, a) = value_table.law, last
    values = np.array(value_table.values(offset, obligation, states))
    if a < 0:
        return values
    table = law.table(offset)
    unchanged = law.nominal_from is not None and offset >= law.nominal_from
    here = (states == s) & unchanged
    if here.any():
        values[here] = value_table.action_values(offset, obligation, states[here], np.full(int(here.sum()), a))
    if table.actions is None:
        observed = nominal.table(offset).distribution(s, law.future.actions)
        for n in np.flatnonzero(~here):
            choice = conditional_choices(observed, a, table.distribution(int(states[n]), law.future.actions))
            actions = np.flatnonzero(choice)
            means = value_table.action_values(offset, obligation, np.full(len(actions), states[n]), actions)
            values[n] = _add(0.0, choice[actions] * means)
    return values


def _add(total: float, terms: Floats) -> float:
    """Add terms one by one, as compiled code does. Other orders of summation may differ in the last bit."""
    for term in terms.tolist():
        total += term
    return total


def labelled_automaton(value_table: ValueTable) -> LabelledAutomaton:
    """Return the automaton, not yet unrolled, and the label of each state (of each pair if quantities are nested)."""
    model, labelling = value_table.law.future, value_table.labelling
    if labelling.by_action:
        pairs = np.flatnonzero(model.availability)
        offsets = range(value_table.law.stationary_from() + 1)
        layers = [labelling.many(offset, *np.divmod(pairs, model.actions)) for offset in offsets]
        label_sets, labels = np.unique(np.stack(layers), axis=1, return_inverse=True)
        label_of = np.zeros(model.states * model.actions, dtype=np.int32)
        label_of[pairs] = labels.reshape(-1)
        return Unrolled(value_table.automaton, np.ascontiguousarray(label_sets.T)), label_of
    states = np.arange(model.states)
    label_sets, labels = np.unique(labelling.all(0, states, states), return_inverse=True)
    return Unrolled(value_table.automaton, label_sets.astype(np.int64)[:, np.newaxis]), labels.astype(np.int32)
