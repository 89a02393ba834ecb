"""Where one number alone decides whether a label holds: lines that a picture of an alarm draws for its goal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np

from monitor.arrays import Floats
from monitor.worlds import CheckedWorld

CELLS: Final = 256
"""Cells of the range in which a change is looked for; two changes within a cell are missed."""
HALVINGS: Final = 60
NEAR: Final = 1e-6
"""Fraction of the range within which two changes are the same."""


class LabelThreshold(msgspec.Struct, frozen=True):
    """A number of a feature, and whether the label holds below it or above it."""

    value: float
    below: bool


def thresholds(
    world: CheckedWorld, label: str, column: int, states: Floats, ends: tuple[float, float]
) -> list[LabelThreshold]:
    """Return where the label begins or ceases to hold as the feature `column` alone moves from one end to the other.

    It is tried in `states` [n, f], with their other numbers as they are. A world in code tells no more of a label than
    where it holds, so this is how a condition such as `level >= 9` is found. Empty if the other numbers move the
    change: then no line is right. Also of a feature with named values.
    """
    feature = world.features[column]
    low, high = max(ends[0], feature.low), min(ends[1], feature.high)
    if feature.values or not low < high:
        return []
    found: list[LabelThreshold] = []
    for state in states:
        here = _changes(world, label, column, state, (low, high))
        if not here:
            continue  # another number keeps it from holding at all, or makes it hold
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
