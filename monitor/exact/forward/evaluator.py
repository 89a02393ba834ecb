"""One law and one measure, made ready for the kernel: arrays shared by every path, agent and offset.

Nothing is laid out in advance that no path has asked for: steps of the automaton, rows of the world and tables of what
lies ahead are added when the kernel says that it lacks them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from monitor.arrays import AnyArray, Floats, Ints, Shorts
from monitor.causal import Law, conditional_choices
from monitor.errors import LimitError
from monitor.exact.forward import bounds as chain_bounds
from monitor.exact.forward import close, step
from monitor.exact.forward.buffers import ForwardBuffers, Workspace
from monitor.exact.forward.row_table import EXACT, RowTable, RowTables
from monitor.exact.forward.rows import Dynamics
from monitor.exact.forward.unroll import Unrolled
from monitor.exact.value_table import SMALL, ValueTable, is_large
from monitor.jit import held, typed
from monitor.model import MDP
from monitor.policy import PolicyTable

__all__ = ["Evaluator", "Reading", "ahead", "dynamics", "reading"]

Pairs = tuple[Ints, Ints]
_SOME_WALK = ForwardBuffers(0, 0, 1)
Reading = tuple[Unrolled, Shorts]
"""An automaton in strands, and what each state (or each pair, where quantities are nested) shows it."""


def dynamics(nominal: Law, law: Law, *, merged: bool) -> Dynamics:
    """What the kernel needs of the world after an intervention, up to the last observed pair."""
    ends = {end for end, _ in (*law.phases, *nominal.phases) if end is not None}
    first = sorted({0, *ends} | ({law.default_from} if law.default_from else set()))
    chosen = [law.table(offset) for offset in first]
    observed = [nominal.table(offset) for offset in first]
    asked, seen = law.dynamics, nominal.dynamics
    uncertain = any(table.actions is None for table in observed)
    return Dynamics(
        *_rows(asked),
        *_rows(seen),
        _fixed(asked.rewards),
        _fixed(np.zeros(0) if asked.transition_rewards is None else asked.transition_rewards),
        np.array(first),
        np.array([law.default_from is not None and offset >= law.default_from for offset in first]),
        np.array([table.actions is None for table in chosen]),
        _stack([np.zeros(asked.states, dtype=np.int64) if t.actions is None else t.actions for t in chosen]),
        _choices(chosen, asked) if any(t.actions is None for t in chosen) else _nothing(asked),
        _choices(observed, seen) if uncertain else _nothing(seen),
        asked is seen,
        merged,
        is_large(asked) and not uncertain,  # an action observed under chance says something about every state
    )


def _rows(model: MDP) -> tuple[Ints, Ints, Floats]:
    return _fixed(model.indptr), _fixed(model.successors), _fixed(model.probabilities)


def _choices(tables: list[PolicyTable], model: MDP) -> Floats:
    """[R, S, A]; one table is not copied."""
    one = [t.probabilities for t in tables if t.probabilities is not None]
    if len(tables) == 1:
        return _stack(one)
    return _fixed(np.stack([[table.distribution(s, model.actions) for s in range(model.states)] for table in tables]))


def _nothing(model: MDP) -> Floats:
    return _fixed(np.zeros((0, model.states, model.actions)))


def _stack(arrays: list[Any]) -> AnyArray:
    return _fixed(arrays[0][np.newaxis] if len(arrays) == 1 else np.stack(arrays))


def _fixed(array: AnyArray) -> AnyArray:
    """A read-only view: numba takes writeable arrays for another type, and would compile everything twice."""
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view


class Evaluator:
    """A law and a measure: answers for any path.

    Args:
        nominal: the law in force without the intervention.
        tail: what lies ahead, with the law, the automaton and its letters.
        read: see `reading`; shared between laws where nothing is nested.
        world: the dynamics up to the last observed pair, and the rows known there by kind; shared between measures.
        workspace: shared too.
    """

    def __init__(
        self, nominal: Law, tail: ValueTable, read: Reading, world: tuple[Dynamics, RowTables], workspace: Workspace
    ) -> None:
        self.nominal, self.tail = nominal, tail
        self.strands, self._reading = read
        self._dynamics, self._memos = world
        self._workspace = workspace
        self._engines: dict[int, tuple[RowTable, Any, Any]] = {}
        self._scratch = workspace.scratch
        self._known: Ints | None = None
        self._forgot = False
        self.lazy = not tail.law.explicit  # the kernel reads rows as they stand

    @property
    def computed(self) -> int:
        """Counterfactual rows computed so far."""
        return self._memos(EXACT).computed

    def push(self, progress: ForwardBuffers, state: int, action: int, *, answered: bool) -> None:
        """Take one observed pair in (action -1: not yet taken); if it is to be `answered`, into `progress.values`."""
        scratch = self._workspace.scratch
        if progress.fits is not scratch or self._scratch is not scratch or self._known is not self.strands.known:
            self._fit(progress, 1)
        engines = self._engines
        engine = engines[EXACT][2] if EXACT in engines else self._engine(EXACT)
        came_to = self._push(engine, progress.held, state, action, answered and not self.lazy)
        if came_to:
            self._forgot = False
        while came_to:
            self._mend(came_to, EXACT, progress)
            came_to = self._push(self._engine(EXACT), progress.held, state, action, answered and not self.lazy)
        if answered and self.lazy:
            self._close(progress, progress.values)

    def along(self, progress: ForwardBuffers, pairs: Pairs, values: Floats | None = None) -> None:
        """Take pairs in, states and actions [n] each; answer after each into `values` [n, starts], if given."""
        states, actions = pairs
        self._fit(progress, len(states))
        if values is None:
            values = np.zeros((0, 0))
        elif self.lazy:
            self._one_by_one(progress, pairs, values)
            return
        done = 0
        while True:
            before = done
            done, came_to = close.along(self._engine(EXACT), progress.held, states, actions, values, done)
            if came_to == step.DONE:
                return
            if done > before:
                self._forgot = False
            self._mend(came_to, EXACT, progress)
            if self.lazy and len(values):
                self._one_by_one(progress, (states[done:], actions[done:]), values[done:])
                return

    def answer(self, progress: ForwardBuffers) -> None:
        """Answer where a path stands, without another pair, as this arm's law goes on from there."""
        self._fit(progress, 0)
        while not self.lazy:
            came_to = close.answer(self._engine(EXACT), progress.held)
            if came_to == step.DONE:
                return
            self._mend(came_to, EXACT, progress)
        self._close(progress, progress.values)

    def interval(self, pairs: Pairs, kind: int) -> tuple[float, float]:
        """Lowest and highest value from the first of the pairs, over the causal models of a class (ANY, STABLE)."""
        bounds = np.zeros(2)
        self._forgot = False
        self._reach(len(pairs[0]) + 1)
        self._work(1)
        while True:
            engine = self._engine(kind)
            levels = self._workspace.lent_levels  # another arm may have made new ones: the old are gone then
            if self.lazy:
                came_to = chain_bounds.forward(engine, levels, kind, *pairs)
            else:
                came_to = chain_bounds.interval(engine, levels, kind, *pairs, bounds)
            if came_to == step.DONE:
                break
            if came_to == chain_bounds.FULL_LEVELS:
                self._workspace.grow_levels(*self._scratch.lacks.tolist())
            else:
                self._mend(came_to, kind, None)
        if self.lazy:
            self._close_levels(pairs)
            chain_bounds.backward(engine, levels, len(pairs[0]) - 1, bounds)
        return float(bounds[0]), float(bounds[1])

    def _fit(self, progress: ForwardBuffers, pairs: int) -> None:
        """Have room for what a walk may come to with so many pairs more."""
        self._forgot = False
        offsets = progress.keep + 1 if progress.keep else int(progress.now[step.AGE]) + pairs + 2
        if offsets > self.strands.reach or self._known is not self.strands.known:
            self._reach(offsets)
        self._work(progress.lanes)
        if progress.keep:  # else it looks one offset further with each pair
            progress.fits = self._scratch

    def _work(self, lanes: int) -> None:
        """Have room to work in; it is shared, so it may be another one than last time."""
        if lanes > self._workspace.lanes or len(self.strands.owed) > self._workspace.strands:
            self._workspace.fit(len(self.strands.owed), lanes)
        if self._scratch is not self._workspace.scratch:
            self._scratch = self._workspace.scratch
            self._engines.clear()

    def _reach(self, offsets: int) -> None:
        """Have spans and rows of tables for so many offsets."""
        self.strands.extend(offsets)
        if self._known is not self.strands.known:
            self._known = self.strands.known
            self._rows = np.full((self.strands.reach + 2, len(self.strands.owed)), step.UNKNOWN)
            self._know_tables()

    def _engine(self, kind: int) -> Any:  # noqa: ANN401 - numba's box
        if kind not in self._engines:
            memo = self._memos(kind)
            future = self.tail.law.future
            parts = step.Engine(
                self._dynamics,
                memo.arrays,
                step.Machine(self.strands.known, self.strands.spans, self._reading, self.tail.labelling.by_action),
                step.Future(_fixed(self._values), self._rows, *_rows(future), _fixed(future.expected_rewards)),
                self._scratch,
            )
            self._engines[kind] = memo, parts, held(parts)
            if kind == EXACT:
                self._push = typed(close.push, self._engines[kind][2], _SOME_WALK.held, 0, 0, True)  # noqa: FBT003
        return self._engines[kind][2]

    def _mend(self, came_to: int, kind: int, progress: ForwardBuffers | None) -> None:
        """Give the kernel what it said it lacks."""
        memo, parts, _ = self._engines[kind]
        first, second = self._scratch.lacks.tolist()
        if came_to == step.FULL_MEMO:
            if parts.memory is memo.arrays:  # else another arm has made room meanwhile
                memo.make_room(forget=not self._forgot)  # once a question: one that needs more is given more
                self._forgot = True
        elif came_to == step.FULL_SCRATCH:
            self._workspace.grow()
            self._work(1)
        elif came_to == step.FULL_WALK:
            assert progress is not None
            progress.grow(first, second)
            return
        elif came_to == step.NO_TABLE:
            try:
                self._table(first, self.strands.owed[second][first])
            except LimitError:
                if progress is not None:
                    progress.now[step.UNANSWERED] = 0  # the pair is taken in all the same; the next one is another
                raise
        self._engines.clear()

    def _table(self, offset: int, owed: int) -> None:
        """One more row of the table; where the model is too large for one, answers are closed around their states."""
        if self._dynamics.rewards.shape[0] > SMALL and not self.tail.tabled(offset, owed):
            self.lazy = True
            return
        self.tail.all_values(offset, owed)
        self._know_tables()

    def _know_tables(self) -> None:
        self._values = self.tail.table if len(self.tail.table) else self._workspace.no_table
        settled = self.tail.law.stationary_from()
        for strand, cells in enumerate(self.strands.owed):
            for offset, owed in cells.items():
                self._rows[offset, strand] = self.tail.rows.get((min(offset, settled), owed), step.UNKNOWN)
        self._engines.clear()

    def _one_by_one(self, progress: ForwardBuffers, pairs: Pairs, values: Floats) -> None:
        for n, (state, action) in enumerate(zip(*pairs, strict=True)):
            self.push(progress, int(state), int(action), answered=True)
            starts = int(progress.now[step.STARTS])
            values[n, :starts] = progress.values[:starts]

    def _close(self, progress: ForwardBuffers, values: Floats) -> None:
        """What the kernel's `close` does, around the states reached; each is looked up or computed by itself."""
        now = progress.now
        starts, last = int(now[step.STARTS]), (int(now[step.SEEN]), int(now[step.TAKEN]))
        only = int(now[step.ONLY])
        oldest = starts - 1
        for lane in range(starts) if only < 0 else [oldest - min(only, oldest)]:
            offset = int(now[step.AGE]) + lane
            total = float(progress.arrays.gained[lane])
            for strand, states, weights in progress.spreads(lane):
                total = _add(total, weights * self._ahead(offset, strand, states, last))
            values[lane if only < 0 else 0] = total

    def _close_levels(self, pairs: Pairs) -> None:
        """The same for what bounds have reached at the last pair."""
        levels, offset = self._workspace.levels, len(pairs[0]) - 1
        nodes = slice(levels.node_first[offset], levels.node_first[offset + 1])
        last = int(pairs[0][-1]), int(pairs[1][-1])
        for strand in np.unique(levels.strand[nodes]).tolist():
            here = np.flatnonzero(levels.strand[nodes] == strand) + nodes.start
            levels.low[here] = self._ahead(offset, strand, levels.state[here].astype(np.int64), last)
        levels.high[nodes] = levels.low[nodes]

    def _ahead(self, offset: int, strand: int, states: Ints, last: tuple[int, int]) -> Floats:
        return ahead(self.nominal, self.tail, offset, self.strands.owed[strand][offset], states, last)


def ahead(  # noqa: PLR0917 - the six things it is a function of
    nominal: Law, tail: ValueTable, offset: int, owed: int, states: Ints, last: tuple[int, int]
) -> Floats:
    """Values [n] of an obligation in n states at the last observed pair (action -1: not known)."""
    law, (seen, taken) = tail.law, last
    values = np.array(tail.values(offset, owed, states))
    if taken < 0:
        return values
    table = law.table(offset)
    default = law.default_from is not None and offset >= law.default_from
    here = (states == seen) & default
    if here.any():
        values[here] = tail.action_values(offset, owed, states[here], np.full(int(here.sum()), taken))
    if table.actions is None:
        before = nominal.table(offset).distribution(seen, law.future.actions)
        for n in np.flatnonzero(~here):
            choice = conditional_choices(before, taken, table.distribution(int(states[n]), law.future.actions))
            actions = np.flatnonzero(choice)
            values[n] = _add(
                0.0, choice[actions] * tail.action_values(offset, owed, np.full(len(actions), states[n]), actions)
            )
    return values


def _add(total: float, terms: Floats) -> float:
    """One after the other, as the kernel adds: in another order, or with care for rounding, the last bit may differ."""
    for term in terms.tolist():
        total += term
    return total


def reading(tail: ValueTable) -> Reading:
    """An unrolled automaton, and what shows it which letter: a state, or where goals are nested a pair at an offset."""
    model, letters = tail.law.future, tail.labelling
    if letters.by_action:
        pairs = np.flatnonzero(model.availability)
        layers = [letters.many(o, *np.divmod(pairs, model.actions)) for o in range(tail.law.stationary_from() + 1)]
        kinds, numbers = np.unique(np.stack(layers), axis=1, return_inverse=True)
        shown = np.zeros(model.states * model.actions, dtype=np.int32)
        shown[pairs] = numbers.reshape(-1)
        return Unrolled(tail.automaton, np.ascontiguousarray(kinds.T)), shown
    everywhere = np.arange(model.states)
    kinds, numbers = np.unique(letters.all(0, everywhere, everywhere), return_inverse=True)
    return Unrolled(tail.automaton, kinds.astype(np.int64)[:, np.newaxis]), numbers.astype(np.int32)
