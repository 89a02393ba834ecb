"""Storm through stormpy: a chain built in bulk from the same arrays, and queried in one state or in all.

This is its fastest way from arrays in memory: `add_next_values` takes all entries in one call (as lists; NumPy arrays
are slower). Its other builders read files.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import stormpy
from stormpy.datastructures import BitVector, SparseMatrixBuilder
from stormpy.models import SparseDtmc, SparseModelComponents, StateLabeling

from monitor.arrays import Bools, Floats, Ints

__all__ = ["Storm"]


class Storm:
    """Markov chain as CSR arrays and label masks; every call starts from them and ends with numbers."""

    def __init__(self, indptr: Ints, successors: Ints, probabilities: Floats, labels: Mapping[str, Bools]) -> None:
        self._arrays = indptr, successors, probabilities
        self._labels = labels

    def one(self, query: str, state: int) -> float:
        """Return the value in one state, which becomes the initial state of the chain."""
        (parsed,) = stormpy.parse_properties(query)
        result = stormpy.model_checking(self._chain(state), parsed, only_initial_states=True)
        return float(result.get_value(state))

    def everywhere(self, query: str) -> Floats:
        """Return the values [S] in all states."""
        (parsed,) = stormpy.parse_properties(query)
        return np.array(stormpy.model_checking(self._chain(0), parsed).get_value_vector())

    def _chain(self, initial: int) -> Any:  # noqa: ANN401 - stormpy ships no types
        indptr, successors, probabilities = self._arrays
        states = len(indptr) - 1
        builder = SparseMatrixBuilder[float](rows=states, columns=states, entries=len(successors))
        rows = np.repeat(np.arange(states), np.diff(indptr))
        builder.add_next_values(rows.tolist(), successors.tolist(), probabilities.tolist(), [])
        labeling = StateLabeling(states)
        labeling.add_label("init")
        labeling.set_states("init", BitVector(states, [initial]))
        for name, mask in self._labels.items():
            labeling.add_label(name)
            labeling.set_states(name, BitVector(states, np.flatnonzero(mask).tolist()))
        parts = SparseModelComponents[float](transition_matrix=builder.build(), state_labeling=labeling)
        return SparseDtmc[float](parts)
