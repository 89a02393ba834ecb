"""Tables shared by all pair chains on one model: computed decisions and rows, and working memory."""

from __future__ import annotations

import numpy as np

from monitor.arrays import Ints
from monitor.exact.value_table import is_large
from monitor.hidden.couplings import Couplings
from monitor.hidden.filtering import Filter
from monitor.hidden.forward import Sums
from monitor.hidden.latent_steps import LatentSteps
from monitor.model.mdp import MDP
from monitor.policy.controller import Reader

MAX_NUMBERS = 200_000
"""Largest number of latent steps whose numbers are cached. One more clears the cache, and steps get new numbers."""


class Tables:
    """Tables of one model, which is the model of `beliefs`."""

    def __init__(self, beliefs: Filter) -> None:
        self._filter, self._model = beliefs, beliefs.model
        self._numbers: dict[tuple[object, ...], int] = {}
        self._next = 0
        self._couplings: dict[tuple[Reader | None, MDP], Couplings] = {}
        self._sums = Sums()
        self._position: dict[int, tuple[Ints, Ints]] = {}

    def numbers(self, acting: Reader, found: LatentSteps) -> Ints:
        """Return the numbers [G] of latent steps. Equal steps have equal numbers while these are cached.

        A number is never reused.
        """
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
        """Return the decisions of a policy (None: of the policy that acted) with the rows of `dynamics`."""
        key = reader, dynamics
        if key not in self._couplings:
            policy = self._filter.readings(reader or self._filter.nominal)
            self._couplings[key] = Couplings(self._model, dynamics, policy, carries_on=reader is None)
        return self._couplings[key]

    def sums(self, places: int, columns: int) -> Sums:
        """Return working memory for `places` counterfactual places and `columns` columns."""
        self._sums.fit(places, columns)
        return self._sums

    def positions(self, states: Ints, memories: int) -> tuple[Ints, Ints]:
        """Return the states whose values are computed if `states` are needed: all states if the model is small.

        Place number state * memories + memory stands for a state with a policy's memory. Also return the index of each
        place among the places of the returned states.
        """
        if memories not in self._position:
            self._position[memories] = np.arange(self._model.states), np.arange(self._model.states * memories)
        everything, position = self._position[memories]
        if not is_large(self._model):
            return everything, position
        used = np.unique(states)
        places = used[:, np.newaxis] * memories + np.arange(memories)
        position[places.reshape(-1)] = np.arange(places.size)
        return used, position
