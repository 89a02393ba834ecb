"""Exact values of nested goals that look back along the counterfactual path.

An inner `@t`, t != 0, depends on the path from the outer intervention state to the current state. Offset, state and
action do not determine this path (docs/semantics/formulas.md, section 5.6). So each state of the chain here (a *cell*)
includes the last pairs of the path. Values are computed backward over the reachable cells.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from monitor.arrays import Floats, Ints
from monitor.causal import CounterfactualWorld, extreme
from monitor.errors import LimitError
from monitor.exact.value_table import Labelling
from monitor.logic import FALSE, TRUE, Automaton

MAX_HISTORIES = 50_000
"""Largest number of cells of one query. Each cell may need a separate counterfactual query."""

History = tuple[tuple[int, int], ...]
"""The last pairs (state, action) of a counterfactual path, oldest first."""
Class = Literal["any", "stable"]


@dataclass(frozen=True)
class PastAtom:
    """A nested goal that looks back, at `@offset`.

    `holds(position, pairs)`: the possible truth values of the goal, given the `position` of its intervention (counted
    from the outer intervention state) and the `pairs` from this position on. Under Gumbel-Max exactly one truth value
    is possible; over a class of causal models both may be possible.
    """

    offset: int
    holds: Callable[[int, History], frozenset[bool]]

    def position(self, offset: int) -> int:
        """Return the position of the goal's intervention on a path from the outer intervention state to `offset`."""
        used = max(-offset, min(self.offset, offset))
        return offset - used if used >= 0 else -used - 1

    def earliest(self, offset: int) -> int:
        """Return the earliest position to which the goal may refer at `offset` or later."""
        if self.offset >= 0:
            return max(0, offset - self.offset)
        return min(max(offset - 1, 0), -self.offset - 1)


@dataclass(frozen=True)
class _Cell:
    """A state of the chain. `history`: the pairs from position `offset - len(history)` to the previous one."""

    history: History
    state: int
    obligation: int


class HistoryChain:
    """Chain over histories, for a query whose automaton has atoms that look back.

    `causal_model`: None for the Gumbel-Max value, else the class of causal models for the bounds.
    """

    def __init__(
        self,
        world: CounterfactualWorld,
        automaton: Automaton,
        labelling: Labelling,
        past: dict[int, PastAtom],
        causal_model: Class | None = None,
    ) -> None:
        self._world, self._automaton, self._labelling, self._past = world, automaton, labelling, past
        self._class = causal_model

    def value(self) -> float:
        """Return the Gumbel-Max value."""
        return self._solve(largest=True)

    def interval(self) -> tuple[float, float]:
        """Return bounds over a class of causal models.

        The bounds may be wider than necessary, because inner queries are bounded separately.
        """
        return self._solve(largest=False), self._solve(largest=True)

    def _solve(self, *, largest: bool) -> float:
        origin = _Cell((), self._world.path[0][0], self._automaton.start)
        levels = self._levels(origin)
        values: dict[_Cell, float] = {}
        for offset in range(len(levels) - 1, -1, -1):
            values = {cell: self._value(cell, offset, values, largest=largest) for cell in levels[offset]}
        return values[origin]

    def _levels(self, origin: _Cell) -> list[set[_Cell]]:
        """Return the reachable cells, offset by offset, until every obligation is decided."""
        levels = [{origin}]
        count = 1
        while levels[-1]:
            ahead: set[_Cell] = set()
            for cell in levels[-1]:
                ahead |= self._successors(cell, len(levels) - 1)
                if count + len(ahead) > MAX_HISTORIES:  # checked in the loop: a whole level may be many times larger
                    raise LimitError(self._refusal())
            count += len(ahead)
            levels.append(ahead)
        return levels[:-1]

    def _refusal(self) -> str:
        most = max(abs(atom.offset) for atom in self._past.values())
        return (
            f"a nested quantity looks back {most} steps, and more than {MAX_HISTORIES} counterfactual paths would have "
            "to be distinguished (limit MAX_HISTORIES); look back fewer steps, or shorten the intervals"
        )

    def _successors(self, cell: _Cell, offset: int) -> set[_Cell]:
        following: set[_Cell] = set()
        for action, _ in self._world.choices(offset, cell.state):
            rests = self._rests(cell, offset, action) - {FALSE, TRUE}
            if rests:
                states, _, upper = self._row(offset, cell.state, action)
                kept = self._kept(cell, offset, action)
                following |= {_Cell(kept, int(state), rest) for rest in rests for state in states[upper > 0.0]}
        return following

    def _rests(self, cell: _Cell, offset: int, action: int) -> set[int]:
        """Return the possible obligations after the labels of a cell; several if labels depend on the causal model."""
        masks = {self._labelling.one(offset, cell.state, action)}
        path = (*cell.history, (cell.state, action))
        for bit, atom in self._past.items():
            position = atom.position(offset)
            truths = atom.holds(position, path[position - offset - 1 :])
            masks = {mask | (truth << bit) for mask in masks for truth in truths}
        return {self._automaton.step(cell.obligation, mask) for mask in masks}

    def _kept(self, cell: _Cell, offset: int, action: int) -> History:
        """Return the part of the path that a later nested goal may refer to."""
        history = (*cell.history, (cell.state, action))
        keep = offset + 1 - min((atom.earliest(offset + 1) for atom in self._past.values()), default=offset + 1)
        return history[len(history) - keep :] if keep else ()

    def _row(self, offset: int, state: int, action: int) -> tuple[Ints, Floats, Floats]:
        """Return successors with lowest and highest probabilities, which are equal for the Gumbel-Max value."""
        if self._class is not None:
            return self._world.row_bounds(offset, state, action, self._class)
        states, weights = self._world.row(offset, state, action)
        return states, weights, weights

    def _value(self, cell: _Cell, offset: int, ahead: dict[_Cell, float], *, largest: bool) -> float:
        total = 0.0
        rewarded = self._automaton.rewards(cell.obligation)
        for action, weight in self._world.choices(offset, cell.state):
            kept = self._kept(cell, offset, action)
            states, lower, upper = self._row(offset, cell.state, action)
            rewards = self._world.rewards(offset, cell.state, action, states) if rewarded else np.zeros(len(states))
            candidates = []
            for rest in self._rests(cell, offset, action):
                if rest in (FALSE, TRUE):
                    reward = extreme(lower, upper, rewards, largest=largest) if rewarded else 0.0
                    candidates.append(float(rest == TRUE) + reward)
                    continue
                values = np.array([ahead.get(_Cell(kept, int(state), rest), 0.0) for state in states])
                candidates.append(extreme(lower, upper, rewards + values, largest=largest))
            total += weight * (max(candidates) if largest else min(candidates))
        return total
