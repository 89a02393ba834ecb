"""One law and one measure, ready to answer: the arrays of compiled code, shared by all paths, agents and offsets.

An `Evaluator` calls the compiled loops and grows what they report as full or missing. Rules:

- Nothing is computed before a path needs it: offsets of the automaton, rows of the chain and vectors of values are
  added when a loop stops for lack of them; then it is called again. Each call makes progress or raises LimitError.
- A `Context` holds arrays by reference, so it is made anew whenever one of them was replaced (`_contexts`).
- The row table may be cleared once in a query; a query that needs more than the limit gets more (`RowTable.grow`).
- For a model that is too large for vectors over all states (`lazy`), the loops only advance the weights, and the answer
  is closed in Python around the states reached, in the same order of additions.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from monitor.arrays import AnyArray, Floats, Ints, Shorts
from monitor.causal import Law, conditional_choices
from monitor.errors import LimitError
from monitor.exact.forward import bounds as compiled_bounds
from monitor.exact.forward import close, step
from monitor.exact.forward.buffers import ForwardBuffers, Workspace
from monitor.exact.forward.row_table import EXACT, RowTable, RowTables
from monitor.exact.forward.rows import Dynamics
from monitor.exact.forward.unroll import Unrolled
from monitor.exact.value_table import SMALL, ValueTable, is_large
from monitor.jit import lend, specialized
from monitor.model import MDP
from monitor.policy import PolicyTable

__all__ = ["Evaluator", "LabelledAutomaton", "closing_values", "dynamics", "labelled_automaton"]

Pairs = tuple[Ints, Ints]
_ANY_FORWARD = ForwardBuffers(0, 0, 1)
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
    uncertain = any(table.actions is None for table in observed)
    return Dynamics(
        *_rows(model),
        *_rows(observed_model),
        _fixed(model.rewards),
        _fixed(np.zeros(0) if model.transition_rewards is None else model.transition_rewards),
        np.array(begin),
        np.array([law.nominal_from is not None and offset >= law.nominal_from for offset in begin]),
        np.array([table.actions is None for table in chosen]),
        _stack([np.zeros(model.states, dtype=np.int64) if t.actions is None else t.actions for t in chosen]),
        _choices(chosen, model) if any(t.actions is None for t in chosen) else _no_choices(model),
        _choices(observed, observed_model) if uncertain else _no_choices(observed_model),
        model is observed_model,
        merge_actions,
        is_large(model) and not uncertain,  # a stochastic action, once observed, conditions the rows of all states
    )


def _rows(model: MDP) -> tuple[Ints, Ints, Floats]:
    return _fixed(model.indptr), _fixed(model.successors), _fixed(model.probabilities)


def _choices(tables: list[PolicyTable], model: MDP) -> Floats:
    """Return [H, S, A]; a single table is not copied."""
    one = [t.probabilities for t in tables if t.probabilities is not None]
    if len(tables) == 1:
        return _stack(one)
    return _fixed(np.stack([[table.distribution(s, model.actions) for s in range(model.states)] for table in tables]))


def _no_choices(model: MDP) -> Floats:
    return _fixed(np.zeros((0, model.states, model.actions)))


def _stack(arrays: list[Any]) -> AnyArray:
    return _fixed(arrays[0][np.newaxis] if len(arrays) == 1 else np.stack(arrays))


def _fixed(array: AnyArray) -> AnyArray:
    """Return a read-only view: to numba a writeable array has another type, for which it would compile again."""
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view


class Evaluator:
    """Values of one measure under one law, for any path.

    Args:
        nominal: the law in force without the intervention.
        value_table: the value function beyond the observed path, with the law, the automaton and its labelling.
        automaton: see `labelled_automaton`; shared between laws if nothing is nested.
        chain: the dynamics up to the last observed pair and their rows by kind; shared between measures.
        workspace: scratch memory; shared by all evaluators of a model.
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
        self.unrolled, self._label_of = automaton
        self._dynamics, self._row_tables = chain
        self._workspace = workspace
        self._contexts: dict[int, tuple[RowTable, step.Context, Any]] = {}
        self._scratch = workspace.scratch
        self._bounds = np.zeros(2)
        self._ranges: Ints | None = None
        self._cleared = False
        self.lazy = not value_table.law.explicit  # compiled code reads the model's rows as they are written

    @property
    def computed(self) -> int:
        """Number of counterfactual rows computed so far."""
        return self._row_tables(EXACT).computed

    def push(self, forward: ForwardBuffers, state: int, action: int, *, answered: bool) -> None:
        """Observe one pair (action -1: not yet taken); if `answered`, write the answers into `forward.values`."""
        scratch = self._workspace.scratch
        if forward.fitted is not scratch or self._scratch is not scratch or self._ranges is not self.unrolled.ranges:
            self._fit(forward, 1)
        contexts = self._contexts
        context = contexts[EXACT][2] if EXACT in contexts else self._context(EXACT)
        status = self._push(context, forward.lent, state, action, answered and not self.lazy)
        if status:
            self._cleared = False
        while status:
            self._provide(status, EXACT, forward)
            status = self._push(self._context(EXACT), forward.lent, state, action, answered and not self.lazy)
        if answered and self.lazy:
            self._close(forward, forward.values)

    def push_all(self, forward: ForwardBuffers, pairs: Pairs, values: Floats | None = None, plan: Ints = _ALL) -> None:
        """Observe pairs (states and actions [n]); write the answers after each into `values` [n, starts], if given.

        `plan` [n]: what to do with each pair, as in `close.push_all`; where there is no table of values it is not used.
        """
        states, actions = pairs
        self._fit(forward, len(states))
        if values is None:
            values = np.zeros((0, 0))
        elif self.lazy:
            self._push_each(forward, pairs, values)
            return
        done = 0
        while True:
            before = done
            done, status = close.push_all(self._context(EXACT), forward.lent, states, actions, values, plan, done)
            if status == step.DONE:
                return
            if done > before:
                self._cleared = False
            self._provide(status, EXACT, forward)
            if self.lazy and len(values):
                if len(plan):
                    forward.restart()
                    done = 0
                self._push_each(forward, (states[done:], actions[done:]), values[done:])
                return

    def answer(self, forward: ForwardBuffers) -> None:
        """Write the answers under this evaluator's law, without another pair, into `forward.values`."""
        self._fit(forward, 0)
        while not self.lazy:
            status = close.answer(self._context(EXACT), forward.lent)
            if status == step.DONE:
                return
            self._provide(status, EXACT, forward)
        self._close(forward, forward.values)

    def interval(self, pairs: Pairs, kind: int) -> tuple[float, float]:
        """Return the lowest and highest value from the first pair, over a class of causal models (ANY or STABLE)."""
        bounds = self._bounds
        self._cleared = False
        self._unroll(len(pairs[0]) + 1)
        self._fit_workspace(1)
        while True:
            context = self._context(kind)
            levels = self._workspace.lent_levels  # anew each time: another evaluator may have replaced the arrays
            if self.lazy:
                status = compiled_bounds.forward(context, levels, kind, *pairs)
            else:
                status = self._interval(context, levels, kind, *pairs, bounds)
            if status == step.DONE:
                break
            if status == compiled_bounds.LEVELS_FULL:
                self._workspace.grow_levels(*self._scratch.missing.tolist())
            else:
                self._provide(status, kind, None)
        if self.lazy:
            self._close_levels(pairs)
            compiled_bounds.backward(context, levels, len(pairs[0]) - 1, bounds)
        low, high = bounds.tolist()
        return low, high

    def _fit(self, forward: ForwardBuffers, pairs: int) -> None:
        """Make space for what the weights may need after so many more pairs."""
        self._cleared = False
        offsets = forward.max_starts + 1 if forward.max_starts else int(forward.scalars[step.BASE_OFFSET]) + pairs + 2
        if offsets > self.unrolled.depth or self._ranges is not self.unrolled.ranges:
            self._unroll(offsets)
        self._fit_workspace(forward.live_starts)
        if forward.max_starts:  # else each pair needs one offset more
            forward.fitted = self._scratch

    def _fit_workspace(self, starts: int) -> None:
        """Make space in the workspace, and notice that another evaluator has made it grow."""
        if starts > self._workspace.starts or len(self.unrolled.obligations) > self._workspace.columns:
            self._workspace.fit(len(self.unrolled.obligations), starts)
        if self._scratch is not self._workspace.scratch:
            self._scratch = self._workspace.scratch
            self._contexts.clear()

    def _unroll(self, offsets: int) -> None:
        """Have transitions, and indices of vectors, for at least so many offsets."""
        self.unrolled.extend(offsets)
        if self._ranges is not self.unrolled.ranges:
            self._ranges = self.unrolled.ranges
            self._vectors = np.full((self.unrolled.depth + 2, len(self.unrolled.obligations)), step.NOT_COMPUTED)
            self._find_vectors()

    def _context(self, kind: int) -> Any:  # noqa: ANN401 - numba's box
        if kind not in self._contexts:
            table, unrolled = self._row_tables(kind), self.unrolled
            future, by_action = self.value_table.law.future, self.value_table.labelling.by_action
            context = step.Context(
                self._dynamics,
                table.arrays,
                step.CompiledAutomaton(unrolled.ranges, unrolled.transitions, self._label_of, by_action),
                step.Future(_fixed(self._values), self._vectors, *_rows(future), _fixed(future.expected_rewards)),
                self._scratch,
            )
            self._contexts[kind] = table, context, lend(context)
            if kind == EXACT:
                lent = self._contexts[kind][2]
                self._push = specialized(close.push, lent, _ANY_FORWARD.lent, 0, 0, True)  # noqa: FBT003
            elif not self.lazy:
                examples = self._contexts[kind][2], self._workspace.lent_levels, kind, _ALL, _ALL, self._bounds
                self._interval = specialized(compiled_bounds.interval, *examples)
        return self._contexts[kind][2]

    def _provide(self, status: int, kind: int, forward: ForwardBuffers | None) -> None:
        """Grow or compute what a loop has reported as full or missing."""
        table, context, _ = self._contexts[kind]
        first, second = self._scratch.missing.tolist()
        if status == step.TABLE_FULL:
            if context.table is table.arrays:  # else another evaluator has grown it meanwhile
                table.grow(forget=not self._cleared)
                self._cleared = True
        elif status == step.SCRATCH_FULL:
            self._workspace.grow()
            self._fit_workspace(1)
        elif status == step.FORWARD_FULL:
            assert forward is not None
            forward.grow(first, second)
            return
        elif status == step.VALUES_MISSING:
            try:
                self._compute_values(first, self.unrolled.obligations[second][first])
            except LimitError:
                if forward is not None:
                    forward.scalars[step.UNANSWERED] = 0  # the pair was observed all the same; the next is another one
                raise
        self._contexts.clear()

    def _compute_values(self, offset: int, obligation: int) -> None:
        """Add one vector of values; turn `lazy` if the model is too large for it."""
        if self._dynamics.rewards.shape[0] > SMALL and not self.value_table.tabled(offset, obligation):
            self.lazy = True
            return
        self.value_table.all_values(offset, obligation)
        self._find_vectors()

    def _find_vectors(self) -> None:
        self._values = self.value_table.table if len(self.value_table.table) else self._workspace.zero_values
        last = self.value_table.law.stationary_from()
        for column, cells in enumerate(self.unrolled.obligations):
            for offset, obligation in cells.items():
                cell = min(offset, last), obligation
                self._vectors[offset, column] = self.value_table.rows.get(cell, step.NOT_COMPUTED)
        self._contexts.clear()

    def _push_each(self, forward: ForwardBuffers, pairs: Pairs, values: Floats) -> None:
        for n, (state, action) in enumerate(zip(*pairs, strict=True)):
            self.push(forward, int(state), int(action), answered=True)
            starts = int(forward.scalars[step.START_COUNT])
            values[n, :starts] = forward.values[:starts]

    def _close(self, forward: ForwardBuffers, values: Floats) -> None:
        """Do what the compiled `close` does, around the states reached, each looked up or computed by itself."""
        scalars = forward.scalars
        starts, last = int(scalars[step.START_COUNT]), (int(scalars[step.LAST_STATE]), int(scalars[step.LAST_ACTION]))
        queried = int(scalars[step.QUERIED_START])
        oldest = starts - 1
        for start in range(starts) if queried < 0 else [oldest - min(queried, oldest)]:
            offset = int(scalars[step.BASE_OFFSET]) + start
            total = float(forward.arrays.accumulated[start])
            for column, states, weights in forward.of_start(start):
                total = _add(total, weights * self._closing_values(offset, column, states, last))
            values[start if queried < 0 else 0] = total

    def _close_levels(self, pairs: Pairs) -> None:
        """Do the same for the nodes that bounds reach at the last pair."""
        levels, offset = self._workspace.levels, len(pairs[0]) - 1
        nodes = slice(levels.first_node[offset], levels.first_node[offset + 1])
        last = int(pairs[0][-1]), int(pairs[1][-1])
        for column in np.unique(levels.column[nodes]).tolist():
            here = np.flatnonzero(levels.column[nodes] == column) + nodes.start
            levels.low[here] = self._closing_values(offset, column, levels.state[here].astype(np.int64), last)
        levels.high[nodes] = levels.low[nodes]

    def _closing_values(self, offset: int, column: int, states: Ints, last: tuple[int, int]) -> Floats:
        obligation = self.unrolled.obligations[column][offset]
        return closing_values(self.nominal, self.value_table, offset, obligation, states, last)


def closing_values(  # noqa: PLR0917 - the six things it is a function of
    nominal: Law, value_table: ValueTable, offset: int, obligation: int, states: Ints, last: tuple[int, int]
) -> Floats:
    """Return the values [n] of an obligation in n states at the last observed pair (action -1: not known)."""
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
    """Add terms one after the other, as compiled code does: pairwise or exact summation may differ in the last bit."""
    for term in terms.tolist():
        total += term
    return total


def labelled_automaton(value_table: ValueTable) -> LabelledAutomaton:
    """Return the automaton, not yet unrolled, and the label of each state (of each pair, if quantities are nested)."""
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
