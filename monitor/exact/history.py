"""Nested quantities that look back along the counterfactual path: exact, by carrying the history they need.

An inner `@t`, t != 0, asks about the path from the outer intervention state to here, which an (offset, state, action)
does not determine (docs/semantics.md, section 5.6). So the state of the chain is the last pairs of that path; values
are solved backward over the reachable ones, and a question for which they are too many is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from monitor.arrays import Floats, Ints
from monitor.causal import World, extreme
from monitor.errors import LimitError
from monitor.exact.value_table import Labelling
from monitor.logic import FALSE, TRUE, Automaton

__all__ = ["History", "HistoryChain", "PastAtom"]

MAX_CELLS = 50_000
"""Histories a question may carry; each may cost a counterfactual question of its own."""

History = tuple[tuple[int, int], ...]
"""The last pairs (state, action) of a counterfactual path, oldest first."""
Class = Literal["any", "stable"]


@dataclass(frozen=True)
class PastAtom:
    """A nested goal that looks back. `offset`: its t; `holds(outer position, pairs from there on)`: what it can be.

    Under Gumbel-Max it is one truth value; over a class of causal models it may be either.
    """

    offset: int
    holds: Callable[[int, History], frozenset[bool]]

    def position(self, offset: int) -> int:
        """Where on the path from the outer intervention state, which has reached `offset`, its intervention lies."""
        used = max(-offset, min(self.offset, offset))
        return offset - used if used >= 0 else -used - 1

    def earliest(self, offset: int) -> int:
        """The earliest position it may ask about at `offset` or later."""
        if self.offset >= 0:
            return max(0, offset - self.offset)
        return min(max(offset - 1, 0), -self.offset - 1)


@dataclass(frozen=True)
class _Cell:
    """Where a path may be: what it carries (from position `offset - len(history)` on), its state, what is owed."""

    history: History
    state: int
    owed: int


class HistoryChain:
    """One question whose automaton has atoms that look back.

    `causal_model`: None for the Gumbel-Max value, else the class over which it is bounded.
    """

    def __init__(
        self,
        world: World,
        automaton: Automaton,
        letters: Labelling,
        past: dict[int, PastAtom],
        causal_model: Class | None = None,
    ) -> None:
        self._world, self._automaton, self._letters, self._past = world, automaton, letters, past
        self._class = causal_model

    def value(self) -> float:
        """The Gumbel-Max value."""
        return self._solve(largest=True)

    def interval(self) -> tuple[float, float]:
        """Bounds over a class of causal models; inner questions are bounded on their own, so they may be wide."""
        return self._solve(largest=False), self._solve(largest=True)

    def _solve(self, *, largest: bool) -> float:
        origin = _Cell((), self._world.path[0][0], self._automaton.start)
        levels = self._levels(origin)
        values: dict[_Cell, float] = {}
        for offset in range(len(levels) - 1, -1, -1):
            values = {cell: self._worth(cell, offset, values, largest=largest) for cell in levels[offset]}
        return values[origin]

    def _levels(self, origin: _Cell) -> list[set[_Cell]]:
        """The reachable cells, offset by offset, until nothing is owed any more."""
        levels = [{origin}]
        count = 1
        while levels[-1]:
            ahead: set[_Cell] = set()
            for cell in levels[-1]:
                ahead |= self._successors(cell, len(levels) - 1)
                if count + len(ahead) > MAX_CELLS:  # at once: the whole level may be many times as large
                    raise LimitError(self._refusal())
            count += len(ahead)
            levels.append(ahead)
        return levels[:-1]

    def _refusal(self) -> str:
        reach = max(abs(atom.offset) for atom in self._past.values())
        return (
            f"a nested quantity looks back {reach} steps, and more than {MAX_CELLS} counterfactual paths would have to "
            "be told apart (limit MAX_CELLS); look back fewer steps, or shorten the intervals"
        )

    def _successors(self, cell: _Cell, offset: int) -> set[_Cell]:
        reached: set[_Cell] = set()
        for action, _ in self._world.choices(offset, cell.state):
            owed = self._rests(cell, offset, action) - {FALSE, TRUE}
            if owed:
                states, _, upper = self._row(offset, cell.state, action)
                kept = self._kept(cell, offset, action)
                reached |= {_Cell(kept, int(state), rest) for rest in owed for state in states[upper > 0.0]}
        return reached

    def _rests(self, cell: _Cell, offset: int, action: int) -> set[int]:
        """What can be owed after the letter here; more than one where a causal model may decide."""
        letters = {self._letters.one(offset, cell.state, action)}
        path = (*cell.history, (cell.state, action))
        for bit, atom in self._past.items():
            position = atom.position(offset)
            truths = atom.holds(position, path[position - offset - 1 :])
            letters = {letter | (truth << bit) for letter in letters for truth in truths}
        return {self._automaton.step(cell.owed, letter) for letter in letters}

    def _kept(self, cell: _Cell, offset: int, action: int) -> History:
        """The part of the path that some later question may still be about."""
        history = (*cell.history, (cell.state, action))
        keep = offset + 1 - min((atom.earliest(offset + 1) for atom in self._past.values()), default=offset + 1)
        return history[len(history) - keep :] if keep else ()

    def _row(self, offset: int, state: int, action: int) -> tuple[Ints, Floats, Floats]:
        """Successors with the lowest and highest probability of each; equal for the Gumbel-Max value."""
        if self._class is not None:
            return self._world.row_bounds(offset, state, action, self._class)
        states, weights = self._world.row(offset, state, action)
        return states, weights, weights

    def _worth(self, cell: _Cell, offset: int, ahead: dict[_Cell, float], *, largest: bool) -> float:
        total = 0.0
        pays = self._automaton.rewards(cell.owed)
        for action, share in self._world.choices(offset, cell.state):
            kept = self._kept(cell, offset, action)
            states, lower, upper = self._row(offset, cell.state, action)
            gains = self._world.rewards(offset, cell.state, action, states) if pays else np.zeros(len(states))
            worths = []
            for rest in self._rests(cell, offset, action):
                if rest in (FALSE, TRUE):
                    worths.append(
                        float(rest == TRUE) + (extreme(lower, upper, gains, largest=largest) if pays else 0.0)
                    )
                    continue
                values = np.array([ahead.get(_Cell(kept, int(state), rest), 0.0) for state in states])
                worths.append(extreme(lower, upper, gains + values, largest=largest))
            total += share * (max(worths) if largest else min(worths))
        return total
