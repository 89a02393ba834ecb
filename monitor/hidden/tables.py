"""What all pair chains on one model share: decisions and rows that were computed, and working memory."""

from __future__ import annotations

import numpy as np

from monitor.arrays import Ints
from monitor.exact.value_table import is_large
from monitor.hidden.couplings import Couplings
from monitor.hidden.forward import Sums
from monitor.hidden.glances import Ways
from monitor.model.mdp import MDP
from monitor.policy.controller import Reader

MAX_NUMBERS = 200_000
"""Glances whose numbers are kept; then they get new ones."""


class Tables:
    """Tables of one model.

    Args:
        model: of what happens.
        nominal: the deployed policy.
    """

    def __init__(self, model: MDP, nominal: Reader) -> None:
        self._model, self._nominal = model, nominal
        self._numbers: dict[tuple[object, ...], int] = {}
        self._next = 0
        self._couplings: dict[tuple[Reader | None, MDP], Couplings] = {}
        self._sums: dict[int, Sums] = {}
        self._all, self._position = np.arange(model.states), np.arange(model.states)

    def numbers(self, acting: Reader, found: Ways) -> Ints:
        """Return the numbers [G] of glances: the same one for what was done in the same place. None is used twice."""
        if len(self._numbers) > MAX_NUMBERS:
            self._numbers.clear()
        numbers = np.empty(len(found.place), np.int64)
        parts = (found.state, found.before, found.shown, found.action)
        for n, key in enumerate(zip(*(part.tolist() for part in parts), strict=True)):
            known = self._numbers.get((acting, *key))
            if known is None:
                known = self._numbers[acting, *key] = self._next
                self._next += 1
            numbers[n] = known
        return numbers

    def couplings(self, reader: Reader | None, dynamics: MDP) -> Couplings:
        """Return the decisions of a policy on some rows; None: the policy that acted goes on."""
        key = reader, dynamics
        if key not in self._couplings:
            memories = (reader or self._nominal).memories
            self._couplings[key] = Couplings(self._model, dynamics, reader, memories)
        return self._couplings[key]

    def sums(self, memories: int, columns: int) -> Sums:
        """Return working memory for a counterfactual world in which a policy has so many memories."""
        if memories not in self._sums:
            self._sums[memories] = Sums(self._model.states * memories)
        self._sums[memories].fit(columns)
        return self._sums[memories]

    def positions(self, states: Ints) -> tuple[Ints, Ints]:
        """Return states whose values are needed, if these are in use: all of a small model; and [S] where each is."""
        if not is_large(self._model):
            return self._all, self._position
        used = np.unique(states)
        self._position[used] = np.arange(len(used))
        return used, self._position
