"""Bellman backups under a law, without observations: the law's choice of actions, and means over rows of the model.

Every function here adds up the entries of a row in the row's order. So all methods to compute a value give identical
floating-point numbers. Compiled.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from monitor.arrays import Bools, Bytes, Floats, Ints
from monitor.causal import Law


@dataclass(frozen=True)
class Layer:
    """Pairs [n] of a state and an action, with their weights. Each requested state has at most one pair.

    `places`: the index of each pair's state among the requested states. None if every requested state has a pair, and
    the pairs are in the order of the states.
    """

    places: Ints | None
    states: Ints
    actions: Ints
    weights: Floats | None

    def add(self, total: Floats, values: Floats) -> None:
        """Add the pairs' values [n], times their weights, to the `total` of the requested states."""
        if self.places is None:
            total += values
        else:
            assert self.weights is not None
            total[self.places] += self.weights * values


def layers(law: Law, offset: int, states: Ints) -> Iterator[Layer]:
    """Yield the pairs that a law can choose at an offset in `states`, which are ascending and distinct."""
    table = law.table(offset)
    if table.actions is not None:
        everywhere = len(states) == len(table.actions)
        yield Layer(None, states, table.actions if everywhere else table.actions[states], None)
        return
    assert table.probabilities is not None
    probabilities = table.probabilities[states]
    for action in range(probabilities.shape[1]):
        places = np.flatnonzero(probabilities[:, action])
        if len(places):
            yield Layer(places, states[places], np.full(len(places), action), probabilities[places, action])


@dataclass(frozen=True)
class Entries:
    """Entries [m] of `count` rows, in order. Each entry has the index of its row, a successor and a probability."""

    count: int
    of: Ints
    successors: Ints
    probabilities: Floats

    @classmethod
    def gather(cls, law: Law, offset: int, states: Ints, actions: Ints) -> Entries:
        """Return the entries of the rows of n pairs at an offset."""
        model, end = law.model_at(offset), law.ended(offset)
        rows = states * model.actions + actions
        begins = model.indptr[rows]
        lengths = model.indptr[rows + 1] - begins
        ended = states == end
        begins[ended], lengths[ended] = 0, 1  # a placeholder entry, overwritten below
        ends = np.cumsum(lengths)
        of = np.repeat(np.arange(len(rows)), lengths)
        at = np.arange(int(lengths.sum())) + (begins - ends + lengths)[of]
        successors, probabilities = model.successors[at], model.probabilities[at]
        if end is not None:
            loops = ended[of]
            successors[loops], probabilities[loops] = end, 1.0
        return cls(len(rows), of, successors, probabilities)

    def means(self, values: Floats) -> Floats:
        """Return the mean [n] of each row. `values` [m]: the value at each entry's successor."""
        return np.bincount(self.of, self.probabilities * values, self.count).astype(np.float64, copy=False)


def means_over_rows(  # noqa: PLR0917 - the rows of a law at an offset, the pairs, the values, the result
    law: Law, offset: int, layer: Layer, chosen: Bools, ahead: Floats, out: Floats
) -> None:
    """For each `chosen` [n] pair of a layer, write the mean of `ahead` [S] over the pair's row to `out` [n]."""
    model, end = law.model_at(offset), law.ended(offset)
    rows = model.indptr, model.successors, model.probabilities
    _means_over_rows(*rows, layer.states, layer.actions, chosen.view(np.uint8), model.actions, ahead, out)
    if end is not None:
        out[chosen & (layer.states == end)] = ahead[end]


def _means_over_rows(  # noqa: PLR0917 - the rows, the pairs, the values, the result
    indptr: Ints,
    successors: Ints,
    probabilities: Floats,
    states: Ints,
    actions: Ints,
    chosen: Bytes,
    width: int,
    ahead: Floats,
    out: Floats,
) -> None:
    for n in range(len(states)):
        if chosen[n]:
            row = states[n] * width + actions[n]
            total = 0.0
            for at in range(indptr[row], indptr[row + 1]):
                total += probabilities[at] * ahead[successors[at]]
            out[n] = total
