"""Emissions: for each hidden state, a distribution over the observations that a sensor shows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from monitor.arrays import AnyArray, Floats, Ints
from monitor.errors import ModelError
from monitor.model.annotations import checked_names
from monitor.model.counts import EmissionCounts, checked_emission_counts
from monitor.model.sparse_rows import ROW_SUM_TOLERANCE, as_floats, as_indices, frozen
from monitor.model.tuples import columns


@dataclass(frozen=True, eq=False)
class Emissions:
    """P(observation | state) as sparse rows; observations are `0..signals-1`.

    `indptr` [S + 1], `observed` [N] int64, ascending within a state, `probabilities` [N] float64, positive; the
    probabilities of a state sum to 1. All are read-only. `names`: names of the observations, or empty. `counts`: counts
    from which the probabilities were estimated, or None if they are given.
    """

    signals: int
    indptr: Ints
    observed: Ints
    probabilities: Floats
    names: tuple[str, ...] = ()
    counts: EmissionCounts | None = None

    @classmethod
    def from_tuples(cls, states: int, signals: int, emissions: Iterable[Sequence[Any]]) -> Emissions:
        """Return the emissions given by tuples (state, observation, probability) in any order; duplicates are summed.

        Raises ModelError for an index out of bounds, a state that shows nothing, or probabilities that do not sum to 1.
        """
        at, seen, chances = columns(emissions, 3, "emissions")
        return cls._checked(states, signals, as_indices(at, states, "emission: state"), (seen, chances))

    @classmethod
    def from_rows(cls, states: int, signals: int, indptr: AnyArray, observed: AnyArray, given: AnyArray) -> Emissions:
        """Return the emissions given by sparse rows, as in the attributes. Raises ModelError as `from_tuples` does."""
        begins = as_indices(indptr, len(observed) + 1, "emission_indptr")
        lengths = np.diff(begins)
        if len(begins) != states + 1 or begins[0] != 0 or begins[-1] != len(observed) or (lengths < 0).any():
            raise ModelError(
                f"emission_indptr must rise from 0 to {len(observed)}, with an entry for each state and one"
            )
        return cls._checked(states, signals, np.repeat(np.arange(states), lengths), (observed, given))

    @classmethod
    def of_states(cls, signals: int, shown: AnyArray) -> Emissions:
        """Return the emissions if each state always shows one observation, `shown` [S]. Raises ModelError."""
        return cls.from_rows(len(shown), signals, np.arange(len(shown) + 1), shown, np.ones(len(shown)))

    @classmethod
    def _checked(cls, states: int, signals: int, at: Ints, shown: tuple[object, object]) -> Emissions:
        if isinstance(signals, bool) or not isinstance(signals, int | np.integer) or signals < 1:
            raise ModelError(f"signals, the number of observations, must be at least 1, got {signals!r}")
        seen = as_indices(shown[0], signals, "emission: observation")
        given = as_floats(shown[1], "emission: probability")
        if given.shape != at.shape or seen.shape != at.shape:
            raise ModelError(f"{seen.size} observations but probabilities of shape {given.shape}")
        if given.size and given.min() < 0:
            raise ModelError(f"emission: the probability {given.min():g} is negative")
        kinds, of = np.unique(at * signals + seen, return_inverse=True)
        weights = np.bincount(of, given, len(kinds))
        kinds, weights = kinds[weights > 0], weights[weights > 0]
        shows = kinds // signals
        sums = np.bincount(shows, weights, states)
        bad = np.flatnonzero(np.abs(sums - 1) > ROW_SUM_TOLERANCE)
        if bad.size:
            raise ModelError(
                f"the emissions of state {bad[0]} sum to {sums[bad[0]]:.12g}, not 1 ({bad.size} such states): each "
                "state needs a distribution over observations"
            )
        counts = np.bincount(shows, minlength=states)
        loose = np.abs(sums - 1) > counts * np.finfo(np.float64).eps  # as for rows, see `sparse_rows`
        return cls(
            int(signals),
            frozen(np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts)])),
            frozen(kinds % signals),
            frozen(weights / np.where(loose, sums, 1.0)[shows]),
        )

    def learned(self, counts: EmissionCounts | None) -> Emissions:
        """Return the same emissions with their counts, if there are any. Raises ModelError if the counts do not fit."""
        checked = None if counts is None else checked_emission_counts(counts, self.indptr, self.probabilities)
        return replace(self, counts=checked)

    def named(self, names: Iterable[str]) -> Emissions:
        """Return the same emissions with names for the observations. Raises ModelError."""
        return replace(self, names=checked_names(names, self.signals, "observation"))

    def called(self, observation: int) -> str:
        """Return the name of an observation, or its number if it has no name."""
        return self.names[observation] if self.names else str(observation)

    @property
    def only(self) -> Ints | None:
        """The observation of each state, [S], if every state has only one; None otherwise."""
        return self.observed if len(self.observed) == len(self.indptr) - 1 else None

    def row(self, state: int) -> tuple[Ints, Floats]:
        """Return the observations that a state may show, and their probabilities."""
        here = slice(self.indptr[state], self.indptr[state + 1])
        return self.observed[here], self.probabilities[here]


def checked_emissions(emissions: object, states: int) -> Emissions | None:
    """Return the checked emissions of `states` hidden states; None if states are seen. Raises ModelError."""
    if emissions is None:
        return None
    if not isinstance(emissions, Emissions):
        raise ModelError(f"emissions are {type(emissions).__name__}, not Emissions: from_transitions takes tuples")
    if len(emissions.indptr) != states + 1:
        raise ModelError(f"the emissions are of {len(emissions.indptr) - 1} states, and the model has {states}")
    return emissions
