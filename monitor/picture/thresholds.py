"""Thresholds of labels: the values of one feature at which a label begins or ceases to hold, drawn as lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np

from monitor.arrays import Floats
from monitor.worlds import CheckedWorld

CELLS: Final = 256
"""Number of cells of the range. Each cell is searched for a change, and two changes within one cell are missed."""
HALVINGS: Final = 60
NEAR: Final = 1e-6
"""Two changes are equal if they differ by at most this fraction of the range."""


class LabelThreshold(msgspec.Struct, frozen=True):
    """A value of a feature, and whether the label holds below or above it."""

    value: float
    below: bool


def thresholds(
    world: CheckedWorld, label: str, column: int, states: Floats, ends: tuple[float, float]
) -> list[LabelThreshold]:
    """Return the values at which the label begins or ceases to hold if only the feature `column` changes.

    The feature moves from one end of the range to the other in each of the `states` [n, f], while the other features
    keep their values. The code of a world only says whether a label holds, so conditions such as `level >= 9` must be
    found by this search. The result is empty if the values depend on the other features, because then no single line is
    correct. It is also empty for a feature with named values.
    """
    feature = world.features[column]
    low, high = max(ends[0], feature.low), min(ends[1], feature.high)
    if feature.values or not low < high:
        return []
    found: list[LabelThreshold] = []
    for state in states:
        here = _changes(world, label, column, state, (low, high))
        if not here:
            continue  # another feature decides the label in this state
        if found and not _same(found, here, NEAR * (high - low)):
            return []
        found = found or here
    return found


def _changes(
    world: CheckedWorld, label: str, column: int, state: Floats, ends: tuple[float, float]
) -> list[LabelThreshold]:
    numbers = np.linspace(*ends, CELLS + 1)
    held = world.holds(label, _moved(state, column, numbers))
    cells = np.flatnonzero(held[1:] != held[:-1])
    low, high, first = numbers[cells], numbers[cells + 1], held[cells]
    for _ in range(HALVINGS if len(cells) else 0):
        middle = (low + high) / 2
        same = world.holds(label, _moved(state, column, middle)) == first
        low, high = np.where(same, middle, low), np.where(same, high, middle)
    return [LabelThreshold(value, below) for value, below in zip(high.tolist(), first.tolist(), strict=True)]


def _moved(state: Floats, column: int, numbers: Floats) -> Floats:
    states = np.repeat(state[np.newaxis], len(numbers), axis=0)
    states[:, column] = numbers
    return states


def _same(found: Sequence[LabelThreshold], others: Sequence[LabelThreshold], near: float) -> bool:
    return len(found) == len(others) and all(
        one.below == other.below and abs(one.value - other.value) <= near
        for one, other in zip(found, others, strict=True)
    )
