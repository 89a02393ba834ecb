"""One law and one measure, made ready for the kernel: arrays shared by every path, agent and offset.

Nothing is laid out in advance that no path has asked for: steps of the program, rows of the world and tables of what
lies ahead are added when the kernel says that it lacks them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from monitor.causal import Law, conditional_choices
from monitor.causal.compiled import held
from monitor.causal.moves import EXACT, Dynamics, Memo
from monitor.decide import kernel
from monitor.decide.tail import SMALL, Tail
from monitor.model import MDP
from monitor.policy import PolicyTable

__all__ = ["Arm", "Progress", "Workspace", "ahead", "dynamics"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Pairs = tuple[Ints, Ints]


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
        np.array(first),
        np.array([law.default_from is not None and offset >= law.default_from for offset in first]),
        np.array([table.actions is None for table in chosen]),
        _stack([np.zeros(asked.states, dtype=np.int64) if t.actions is None else t.actions for t in chosen]),
        _choices(chosen, asked) if any(t.actions is None for t in chosen) else _nothing(asked),
        _choices(observed, seen) if uncertain else _nothing(seen),
        asked is seen,
        merged,
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


def _stack(arrays: list[Any]) -> npt.NDArray[Any]:
    return _fixed(arrays[0][np.newaxis] if len(arrays) == 1 else np.stack(arrays))


def _fixed(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A read-only view: numba takes writeable arrays for another type, and would compile everything twice."""
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view


class Workspace:
    """The kernel's room to work in, for models of `states` states; `arrays` changes where it grows."""

    def __init__(self, states: int) -> None:
        self.states = states
        self.arrays = self._allocate(64, 256)

    def grow(self) -> None:
        """Twice the room."""
        self.arrays = self._allocate(len(self.arrays.target_mark), 2 * len(self.arrays.certain))

    def fit(self, obligations: int) -> None:
        """Room for so many obligations."""
        if obligations > len(self.arrays.target_mark):
            self.arrays = self._allocate(obligations, len(self.arrays.certain))

    def _allocate(self, obligations: int, items: int) -> kernel.Scratch:
        def ints(count: int) -> Ints:
            return np.zeros(count, dtype=np.int64)

        return kernel.Scratch(
            mark=ints(self.states),
            total=np.zeros(self.states),
            other=np.zeros(self.states),
            touched=np.zeros(self.states, dtype=np.int32),
            target_mark=ints(obligations),
            target_of=ints(obligations),
            target_owed=ints(items),
            target_first=ints(items),
            head=ints(items),
            tail=ints(items),
            item_node=ints(items),
            item_move=ints(items),
            item_next=ints(items),
            certain=np.zeros(items),
            first=ints(items),
            owed=ints(items),
            begin=ints(items),
            states=np.zeros(items, dtype=np.int32),
            weights=np.zeros(items),
            low=np.zeros(items),
            high=np.zeros(items),
            clock=ints(2),
        )


class Progress:
    """What one agent's path has come to under an arm: a `kernel.Walk` that grows."""

    def __init__(self) -> None:
        self.arrays = _walk(4, 8, 32)
        self.held = held(self.arrays)

    def restart(self) -> None:
        """Forget the path."""
        self.arrays.now[:] = 0

    def grow(self, starts: int, segments: int, nodes: int) -> None:
        """Room for at least so many, keeping what is held."""
        old = self.arrays
        sizes = zip((len(old.first), len(old.begin), len(old.states)), (starts, segments, nodes), strict=True)
        new = _walk(*(2 * wanted if wanted > size else size for size, wanted in sizes))
        for name in kernel.Walk._fields:
            source: npt.NDArray[np.generic] = getattr(old, name)
            getattr(new, name)[: len(source)] = source
        self.arrays, self.held = new, held(new)

    def spreads(self) -> list[tuple[float, list[tuple[int, Ints, Floats]]]]:
        """For each start point, oldest first: what is gained, and (obligation, states, weights) of what is owed."""
        walk = self.arrays
        return [
            (float(walk.gained[i]), [self._segment(g) for g in range(walk.first[i], walk.first[i + 1])])
            for i in range(walk.now[kernel.STARTS])
        ]

    def _segment(self, g: int) -> tuple[int, Ints, Floats]:
        walk = self.arrays
        span = slice(walk.begin[g], walk.begin[g + 1])
        return int(walk.owed[g]), walk.states[span].astype(np.int64), walk.weights[span]


def _walk(starts: int, segments: int, nodes: int) -> kernel.Walk:
    return kernel.Walk(
        np.zeros(5, dtype=np.int64),
        np.zeros(starts, dtype=np.int64),
        np.zeros(starts),
        np.zeros(segments, dtype=np.int64),
        np.zeros(segments, dtype=np.int64),
        np.zeros(nodes, dtype=np.int32),
        np.zeros(nodes),
    )


class Arm:
    """A law and a measure: answers for any path (see `follow`).

    Args:
        nominal: the law in force without the intervention.
        tail: what lies ahead, with the law, the program and its letters.
        world: the dynamics up to the last observed pair, and the rows known there by kind; shared between measures.
        workspace: shared too.
    """

    def __init__(self, nominal: Law, tail: Tail, world: Dynamics, memos: dict[int, Memo], workspace: Workspace) -> None:
        self.nominal, self.tail, self.program, self.memos = nominal, tail, tail.program, memos
        self._dynamics, self._workspace = world, workspace
        self._letters, self._machine = _machine(tail, by_action=not world.merged)
        self._rows = np.full((tail.law.settled() + 1, len(self._machine.step)), kernel.UNKNOWN)
        self._values = tail.table
        self._engines: dict[int, tuple[Memo, Any, Any]] = {}
        self._status = np.zeros(4, dtype=np.int64)
        self.lazy = False
        self._know_tables()

    @property
    def computed(self) -> int:
        """Counterfactual rows computed so far."""
        return self.memos[EXACT].computed if EXACT in self.memos else 0

    def follow(self, progress: Progress, pairs: Pairs, keep: int, only: int, values: Floats) -> None:
        """Take pairs in, and answer after each, into `values` [n, starts], newest start point first.

        Args:
            progress: of the path so far.
            pairs: states and actions, [n] each; an action of -1 is not yet taken.
            keep: start points to hold at most; 0: the first pair alone.
            only: the one start point to answer from, counted from the oldest, into column 0; -1: all.
            values: [n, starts], written to.
        """
        states, actions = pairs
        done = 0
        while done < len(states):
            upto = done + 1 if self.lazy else len(states)
            done = kernel.follow(
                self._engine(EXACT),
                progress.held,
                states[:upto],
                actions[:upto],
                done,
                keep,
                kernel.NOTHING if self.lazy else only,
                values,
                self._status,
            )
            if self._status[0] != kernel.DONE:
                self._mend(EXACT, progress)
            elif self.lazy:
                self._close(progress, only, values[done - 1])

    def closing(self, progress: Progress, only: int, values: Floats) -> None:
        """Answer where a path stands, without another pair, as this arm's law goes on from there."""
        while not self.lazy:
            if kernel.closing(self._engine(EXACT), progress.held, only, values, self._status):
                return
            self._mend(EXACT, progress)
        self._close(progress, only, values)

    def interval(self, pairs: Pairs, kind: int) -> tuple[float, float]:
        """Lowest and highest value from the first of the pairs, over the causal models of a class (ANY, STABLE)."""
        bounds = np.zeros(2)
        while not kernel.interval(self._engine(kind), kind, *pairs, bounds, self._status):
            self._mend(kind, None)
        return float(bounds[0]), float(bounds[1])

    def _engine(self, kind: int) -> Any:  # noqa: ANN401 - numba's box
        engine = self._engines[kind][2] if kind in self._engines else None
        if engine is None:
            memo = self.memos.setdefault(kind, Memo(kind))
            future = kernel.Future(
                _fixed(self._values), self._rows, *_rows(self.tail.law.future), _fixed(self.tail.law.future.rewards)
            )
            parts = kernel.Engine(self._dynamics, memo.arrays, self._machine, future, self._workspace.arrays)
            engine = held(parts)
            self._engines[kind] = memo, memo.arrays, engine
        return engine

    def _mend(self, kind: int, progress: Progress | None) -> None:
        """Give the kernel what it said it lacks."""
        what, first, second, third = self._status.tolist()
        memo, memory, _ = self._engines[kind]
        if what == kernel.FULL_MEMO:
            if memory is memo.arrays:  # else another arm has made room meanwhile
                memo.make_room()
        elif what == kernel.FULL_SCRATCH:
            self._workspace.grow()
        elif what == kernel.FULL_WALK:
            assert progress is not None
            progress.grow(first, second, third)
            return
        elif what == kernel.NO_STEP:
            self._step(first, second)
            return
        elif what == kernel.NO_TABLE:
            self._table(first, second)
        self._engines.clear()

    def _step(self, owed: int, letter: int) -> None:
        rest = self.program.step(owed, int(self._letters[letter]))
        if rest >= len(self._machine.step):
            self._widen(rest + 1)
        self._machine.step[owed, letter] = rest

    def _widen(self, obligations: int) -> None:
        """Room for obligations that the program did not have before."""
        old, count = self._machine.step, 2 * obligations
        step = np.full((count, old.shape[1]), kernel.UNKNOWN, dtype=np.int32)
        step[: len(old)] = old
        pays = np.array([self.program.pays(owed) for owed in range(count)])
        self._machine = self._machine._replace(step=step, pays=pays)
        self._rows = np.full((len(self._rows), count), kernel.UNKNOWN)
        self._know_tables()
        self._workspace.fit(count)
        self._engines.clear()

    def _table(self, offset: int, owed: int) -> None:
        """One more row of the table; where the model is too large for one, answers are closed around their states."""
        if self._dynamics.rewards.shape[0] > SMALL and not self.tail.tabled(offset, owed):
            self.lazy = True
            return
        self.tail.value(offset, owed)
        if max(owed for _, owed in self.tail.rows) >= self._rows.shape[1]:
            self._widen(max(owed for _, owed in self.tail.rows) + 1)
        self._know_tables()

    def _know_tables(self) -> None:
        self._values = self.tail.table
        for (offset, owed), row in self.tail.rows.items():
            if owed < self._rows.shape[1]:
                self._rows[offset, owed] = row

    def _close(self, progress: Progress, only: int, values: Floats) -> None:
        """What the kernel's `close` does, around the states reached; each is looked up or computed by itself."""
        now = progress.arrays.now
        seen, taken = int(now[kernel.SEEN]), int(now[kernel.TAKEN])
        spreads = progress.spreads()
        chosen = range(len(spreads)) if only < 0 else [min(only, len(spreads) - 1)]
        for i in chosen:
            place = len(spreads) - 1 - i
            gained, segments = spreads[i]
            offset = int(now[kernel.AGE]) + place
            values[place if only < 0 else 0] = gained + sum(
                float(weights @ ahead(self.nominal, self.tail, offset, owed, states, (seen, taken)))
                for owed, states, weights in segments
            )


def ahead(  # noqa: PLR0917 - the six things it is a function of
    nominal: Law, tail: Tail, offset: int, owed: int, states: Ints, last: tuple[int, int]
) -> Floats:
    """Values [n] of an obligation in n states at the last observed pair (action -1: not known)."""
    law, (seen, taken) = tail.law, last
    values = np.array(tail.at(offset, owed, states))
    if taken < 0:
        return values
    table = law.table(offset)
    default = law.default_from is not None and offset >= law.default_from
    here = (states == seen) & default
    if here.any():
        values[here] = tail.after(offset, owed, states[here], np.full(int(here.sum()), taken))
    if table.actions is None:
        before = nominal.table(offset).distribution(seen, law.future.actions)
        for n in np.flatnonzero(~here):
            choice = conditional_choices(before, taken, table.distribution(int(states[n]), law.future.actions))
            actions = np.flatnonzero(choice)
            values[n] = choice[actions] @ tail.after(offset, owed, np.full(len(actions), states[n]), actions)
    return values


def _machine(tail: Tail, *, by_action: bool) -> tuple[Ints, kernel.Machine]:
    """The letters that occur, in order, and the program over their numbers; of its steps none is known yet."""
    model, program = tail.law.future, tail.program
    if by_action:
        pairs = np.flatnonzero(model.availability)
        layers = [tail.letters.many(o, *np.divmod(pairs, model.actions)) for o in range(tail.law.settled() + 1)]
        kinds, numbers = np.unique(np.stack(layers), return_inverse=True)
        letters = np.zeros((len(layers), model.states * model.actions), dtype=np.int32)
        letters[:, pairs] = numbers.reshape(len(layers), -1)
    else:
        everywhere = np.arange(model.states)
        kinds, numbers = np.unique(tail.letters.all(0, everywhere, everywhere), return_inverse=True)
        letters = numbers.astype(np.int32)[np.newaxis]
    count = 64
    while count <= program.start:
        count *= 2
    pays = np.array([program.pays(owed) for owed in range(count)])
    step = np.full((count, len(kinds)), kernel.UNKNOWN, dtype=np.int32)
    return kinds.astype(np.int64), kernel.Machine(program.start, step, pays, letters, by_action)
