"""A policy over a finite model, as a table: one action per state, or one distribution per state."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["PolicyTable"]


@dataclass(frozen=True, eq=False)
class PolicyTable:
    """What a policy does in every state of a model.

    Exactly one of the two arrays is set (read-only): `actions` [S] int64 for a deterministic policy, `probabilities`
    [S, A] float64, rows summing to 1, for a stochastic one.
    """

    actions: npt.NDArray[np.int64] | None = None
    probabilities: npt.NDArray[np.float64] | None = None

    def choices(self, state: int) -> list[tuple[int, float]]:
        """The actions the policy takes in `state` with positive probability, and those probabilities."""
        if self.actions is not None:
            return [(int(self.actions[state]), 1.0)]
        assert self.probabilities is not None
        row = self.probabilities[state]
        return [(int(a), float(row[a])) for a in np.flatnonzero(row)]
