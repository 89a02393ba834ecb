"""The world after an intervention is a time-inhomogeneous Markov chain, conditioned on the observed path.

Source: Kazemi & Paoletti, Section 3.2 (Definition of the counterfactual model). Here abduction has a closed form. The
noise of different steps is independent, and a path uses each step's noise once, so each row is conditioned separately.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from monitor.arrays import Floats, Ints
from monitor.causal.law import Intervention, Law
from monitor.causal.row import Row, conditional_choices, counterfactual_row, row_bounds
from monitor.model import MDP
from monitor.types.stream_events import PathPairs

CounterfactualBounds = tuple[Ints, Floats, Floats]
RowCache = dict[tuple[MDP, MDP, int | None, int, int, int, int, int], Row]
MAX_ROWS = 50_000
"""Largest number of cached counterfactual rows. The queries of consecutive messages share nearly all rows."""


@dataclass(frozen=True, eq=False)
class CounterfactualWorld:
    """The counterfactual chain from a position of the observed path on, under an intervention.

    Attributes:
        path: the observed pairs (state, action) from the intervention state on, d + 1 pairs; the last action may be
            None (not yet taken).
        nominal: the law in force without the intervention, from the intervention state on.
        law: `nominal` under the intervention.
        cache: counterfactual rows computed so far; shared between worlds over the same models.
    """

    path: PathPairs
    nominal: Law
    law: Law
    cache: RowCache

    @classmethod
    def at(
        cls, path: PathPairs, position: int, nominal: Law, change: Intervention, cache: RowCache | None = None
    ) -> CounterfactualWorld:
        """Return the world after `change` at `path[position]`, which is offset 0 of `nominal`."""
        return cls(tuple(path[position:]), nominal, nominal.under(change), {} if cache is None else cache)

    @property
    def observed(self) -> int:
        """d: the number of observed transitions at or after the intervention state."""
        return len(self.path) - 1

    def choices(self, offset: int, state: int) -> list[tuple[int, float]]:
        """Return the actions in a state at an offset, with their probabilities given the observation."""
        table = self.law.table(offset)
        if offset > self.observed:
            return table.choices(state)
        s, a = self.path[offset]
        unchanged = self.law.nominal_from is not None and offset >= self.law.nominal_from
        if a is None:
            return table.choices(state)
        if unchanged and state == s:
            return [(a, 1.0)]  # nominal is in force, so this is the observed action, whatever the policy says
        if table.actions is not None:
            return table.choices(state)
        before = self.nominal.table(offset).distribution(s, self.nominal.dynamics.actions)
        after = conditional_choices(before, a, table.distribution(state, self.nominal.dynamics.actions))
        return [(int(chosen), float(after[chosen])) for chosen in np.flatnonzero(after)]

    def row(self, offset: int, state: int, action: int) -> Row:
        """Return the row of (state, action) at an offset: counterfactual along the path, the law's own row after it."""
        if offset >= self.observed:
            return self.law.row(offset, state, action)
        s, a = self.path[offset]
        s_next = self.path[offset + 1][0]
        if self._replayed(offset, state, action):
            return np.array([s_next]), np.ones(1)
        assert a is not None
        before, now = self.nominal.model_at(offset), self.law.model_at(offset)
        ended = self.law.ended(offset)  # the same for both laws
        key = (before, now, ended, s, a, s_next, state, action)  # models compare by identity; the key keeps them alive
        if key not in self.cache:
            if len(self.cache) >= MAX_ROWS:
                self.cache.clear()  # this is rare, and simpler than an order of last use
            row = self.law.row(offset, state, action)
            self.cache[key] = row[0], counterfactual_row(self.nominal.row(offset, s, a), s_next, row)
        return self.cache[key]

    def row_bounds(
        self, offset: int, state: int, action: int, causal_model: Literal["any", "stable"]
    ) -> CounterfactualBounds:
        """Return successors, with the lowest and highest probability of each over a class of causal models."""
        if offset >= self.observed or self._replayed(offset, state, action):
            states, weights = self.row(offset, state, action)
            return states, weights, weights
        s, a = self.path[offset]
        assert a is not None
        row = self.law.row(offset, state, action)
        observed = self.nominal.row(offset, s, a)
        return row[0], *row_bounds(observed, self.path[offset + 1][0], row, causal_model)

    def rewards(self, offset: int, state: int, action: int, successors: Ints) -> Floats:
        """Return R(s, a, s') in this world at an offset, [n] for n successors."""
        return self.law.rewards(offset, state, action, successors)

    def _replayed(self, offset: int, state: int, action: int) -> bool:
        """Return whether state, action and model are as observed, so that the observed outcome is certain."""
        same = self.law.model_at(offset) is self.nominal.model_at(offset)
        return same and (state, action) == self.path[offset]
