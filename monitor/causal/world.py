"""The world after an intervention: a time-inhomogeneous Markov chain that knows what was observed.

Kazemi & Paoletti, Section 3.2 (Definition of the counterfactual model), with abduction in closed form: the noise of
different steps is independent and each step's noise is used once on a path, so conditioning acts row by row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from monitor.arrays import Floats, Ints
from monitor.causal.law import Intervention, Law
from monitor.causal.row import Row, conditional_choices, counterfactual_row, row_bounds
from monitor.model import MDP

__all__ = ["Bounds", "RowCache", "World"]

Bounds = tuple[Ints, Floats, Floats]
RowCache = dict[tuple[MDP, MDP, int | None, int, int, int, int, int], Row]
MAX_ROWS = 50_000
"""Counterfactual rows remembered between questions; consecutive messages share nearly all of them."""

Path = Sequence[tuple[int, int | None]]


@dataclass(frozen=True, eq=False)
class World:
    """What would have happened from a position of the observed path on, under an intervention.

    Attributes:
        path: the observed pairs (state, action) from the intervention state on, d + 1 of them; the last action may be
            None (not yet taken).
        nominal: the law in force without the intervention, from the intervention state on.
        law: `nominal` under the intervention.
        cache: counterfactual rows known already; shared between worlds over the same models.
    """

    path: Path
    nominal: Law
    law: Law
    cache: RowCache

    @classmethod
    def at(cls, path: Path, position: int, nominal: Law, change: Intervention, cache: RowCache | None = None) -> World:
        """The world after `change` at `path[position]`; `nominal` counts its offsets from there."""
        return cls(tuple(path[position:]), nominal, nominal.under(change), {} if cache is None else cache)

    @property
    def observed(self) -> int:
        """d: the number of observed transitions at or after the intervention state."""
        return len(self.path) - 1

    def choices(self, offset: int, state: int) -> list[tuple[int, float]]:
        """The actions taken at an offset in a state, with their probabilities given the observation."""
        table = self.law.table(offset)
        if offset > self.observed:
            return table.choices(state)
        seen, taken = self.path[offset]
        default = self.law.default_from is not None and offset >= self.law.default_from
        if taken is None:
            return table.choices(state)
        if default and state == seen:
            return [(taken, 1.0)]  # nothing was changed here: the action really taken, off-policy ones too
        if table.actions is not None:
            return table.choices(state)
        before = self.nominal.table(offset).distribution(seen, self.nominal.dynamics.actions)
        after = conditional_choices(before, taken, table.distribution(state, self.nominal.dynamics.actions))
        return [(int(a), float(after[a])) for a in np.flatnonzero(after)]

    def row(self, offset: int, state: int, action: int) -> Row:
        """Successors and their probabilities at an offset, for (state, action): counterfactual, then plain."""
        if offset >= self.observed:
            return self.law.row(offset, state, action)
        seen, taken = self.path[offset]
        outcome = self.path[offset + 1][0]
        if self._replayed(offset, state, action):
            return np.array([outcome]), np.ones(1)
        assert taken is not None
        before, now = self.nominal.model_at(offset), self.law.model_at(offset)
        ended = self.law.ended(offset)  # the same for both laws
        key = (before, now, ended, seen, taken, outcome, state, action)  # models compare by identity, and stay alive
        if key not in self.cache:
            if len(self.cache) >= MAX_ROWS:
                self.cache.clear()  # rarer and simpler than keeping an order
            asked = self.law.row(offset, state, action)
            self.cache[key] = asked[0], counterfactual_row(self.nominal.row(offset, seen, taken), outcome, asked)
        return self.cache[key]

    def row_bounds(self, offset: int, state: int, action: int, causal_model: Literal["any", "stable"]) -> Bounds:
        """Successors with the lowest and highest probability of each over a class of causal models."""
        if offset >= self.observed or self._replayed(offset, state, action):
            states, weights = self.row(offset, state, action)
            return states, weights, weights
        seen, taken = self.path[offset]
        assert taken is not None
        asked = self.law.row(offset, state, action)
        observed = self.nominal.row(offset, seen, taken)
        return asked[0], *row_bounds(observed, self.path[offset + 1][0], asked, causal_model)

    def rewards(self, offset: int, state: int, action: int, successors: Ints) -> Floats:
        """R(s, a, s') in this world at an offset, [n] for n successors."""
        return self.law.rewards(offset, state, action, successors)

    def _replayed(self, offset: int, state: int, action: int) -> bool:
        """The very same state, action and model as observed: the same outcome, under every causal model."""
        same = self.law.model_at(offset) is self.nominal.model_at(offset)
        return same and (state, action) == self.path[offset]
