"""A Markov decision process as sparse rows, validated once.

Source: Kazemi & Paoletti, Definition 1 (MDP). Beyond it: an action may be unavailable in a state (its row is empty), and
a model may carry names, observations and an initial distribution for those who act in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from monitor.errors import ModelError

__all__ = ["MDP", "ROW_SUM_TOLERANCE"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

ROW_SUM_TOLERANCE = 1e-9
"""How far a row's sum may be from 1 before it is taken for a mistake; within it, rows are renormalised."""


@dataclass(frozen=True, eq=False)
class MDP:
    """States `0..S-1`, actions `0..A-1`; the row of (s, a) is row `s * A + a` of a CSR matrix.

    Attributes (arrays are read-only):
        states, actions: S and A.
        indptr: [S*A + 1] int64; row r occupies `indptr[r]:indptr[r+1]`. An empty row: the action is unavailable there.
        successors: [N] int64, ascending within a row.
        probabilities: [N] float64, positive; each non-empty row sums to 1.
        rewards: [S, A] float64, R(s, a).
        labels: name -> [S] bool.
        initial: [S] float64 distribution of the first state, or None.
        observations: [S, D] float32, what a policy sees of a state, or None.
        state_names, action_names: S and A names, or empty.
        bin_edges: for the `bins` state encoder, one ascending array per dimension, or empty; state = row-major index of
            the bins. valuations: for the `valuation` encoder, S tuples, or empty.
        source: where the model came from, for messages.
    """

    states: int
    actions: int
    indptr: Ints
    successors: Ints
    probabilities: Floats
    rewards: Floats
    labels: Mapping[str, Bools] = field(default_factory=dict)
    initial: Floats | None = None
    observations: npt.NDArray[np.float32] | None = None
    state_names: tuple[str, ...] = ()
    action_names: tuple[str, ...] = ()
    bin_edges: tuple[Floats, ...] = ()
    valuations: tuple[tuple[float | str | bool, ...], ...] = ()
    source: str = "memory"

    @classmethod
    def from_transitions(
        cls,
        *,
        states: int,
        actions: int,
        transitions: Iterable[tuple[int, int, int, float]],
        rewards: Iterable[tuple[int, int, float]] = (),
        labels: Mapping[str, Sequence[int]] | None = None,
        initial: Mapping[int, float] | None = None,
    ) -> MDP: ...

    def row(self, state: int, action: int) -> tuple[Ints, Floats]:
        """Successors and probabilities of (state, action); both empty if the action is unavailable."""
        r = state * self.actions + action
        lo, hi = self.indptr[r], self.indptr[r + 1]
        return self.successors[lo:hi], self.probabilities[lo:hi]
