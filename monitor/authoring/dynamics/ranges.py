"""Ranges of features and inputs, computed from recorded numbers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import numpy as np

from monitor.arrays import Floats, Ints
from monitor.worlds.world_manifest import FeatureSpec, RecordedAction, WorldNumber

MARGIN: Final = 0.5
"""Fraction of the recorded range that is added on both sides, because agents and forecasts may leave this range."""
PILED: Final = 0.01
"""Numbers count as cut off at an end of their range if at least this fraction of them equals the end."""
TIMES_NEXT: Final = 5
"""Numbers count as cut off only if the end occurs more than this many times as often as the next number inwards."""
FEW: Final = 10
"""Whole numbers with at most this many different values keep their recorded ends."""


def plain_names(columns: Sequence[str]) -> tuple[str, ...]:
    """Return names that conditions can use: letters, digits and underscores.

    A number in a map of a message gets its key as name.

    >>> plain_names(["level", "state.room", "state[0]", "state 0", "2nd"])
    ('level', 'room', 'state_0', 'state_0_4', '_2nd')
    """
    names: list[str] = []
    for place, column in enumerate(columns, start=1):
        name = re.sub(r"\W+", "_", re.sub(r"^(state|inputs)\.", "", column), flags=re.ASCII).rstrip("_")[:56]
        name = name if re.match(r"[A-Za-z_]", name) else f"_{name}"
        names.append(name if name not in names else f"{name}_{place}")
    return tuple(names)


def features_of(names: Sequence[str], values: Floats) -> tuple[FeatureSpec, ...]:
    """Return the features of numbers [n, f]: their ranges, to which a world clips them, and whether they are whole.

    An end of a range is the recorded one if numbers pile up there, or if the numbers are whole and have few values.
    The range of whole numbers with a least number of 0 begins at 0. Other ends are `MARGIN` further out.
    """
    return tuple(_feature(name, column) for name, column in zip(names, values.T, strict=True))


def inputs_of(names: Sequence[str], values: Floats) -> tuple[WorldNumber, ...]:
    """Return the inputs of numbers [n, i], with `MARGIN` added to both ends of their ranges."""
    return tuple(
        WorldNumber(name=name, low=_out(v, -1), high=_out(v, 1)) for name, v in zip(names, values.T, strict=True)
    )


def recorded_actions(
    names: Sequence[str], actions: Sequence[str], chosen: Ints, values: Floats
) -> dict[str, RecordedAction]:
    """Return the recorded ranges of each action, from the actions [n] and numbers [n, f + i] of steps."""
    found = {}
    for number, action in enumerate(actions):
        there = values[chosen == number]
        if len(there):
            ends = zip(names, there.min(axis=0).tolist(), there.max(axis=0).tolist(), strict=True)
            found[action] = RecordedAction(steps=len(there), ranges={name: (low, high) for name, low, high in ends})
    return found


def _feature(name: str, values: Floats) -> FeatureSpec:
    kinds, counts = np.unique(values, return_counts=True)
    whole = bool((kinds == np.floor(kinds)).all())
    piled = [
        (whole and len(kinds) <= FEW) or (count >= PILED * len(values) and count > TIMES_NEXT * inwards)
        for count, inwards in ((counts[0], counts[1]), (counts[-1], counts[-2]))
    ]
    low = float(kinds[0]) if piled[0] or (whole and kinds[0] == 0) else _out(values, -1)
    high = float(kinds[-1]) if piled[1] else _out(values, 1)
    if whole:
        low, high = float(np.floor(low)), float(np.ceil(high))
    return FeatureSpec(name=name, low=low, high=high, whole=whole, clip=True)


def _out(values: Floats, side: int) -> float:
    """Return an end of the range with its margin. It is rounded to three digits of the range."""
    low, high = float(values.min()), float(values.max())
    end = high + MARGIN * (high - low) if side > 0 else low - MARGIN * (high - low)
    digits = 2 - int(np.floor(np.log10(high - low)))
    return round(end, digits)
