"""Check a world's description (features, inputs, names), and whether rows of numbers are in their ranges."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from monitor.arrays import AnyArray, Floats
from monitor.errors import ModelError
from monitor.worlds.protocol import LARGEST_NUMBER, Feature


class Ranges:
    """The allowed ranges of features, or of inputs."""

    def __init__(self, features: Sequence[Feature]) -> None:
        self._features = features
        self._low = np.array([max(each.low, -LARGEST_NUMBER) for each in features])  # finite, so infinity is outside
        self._high = np.array([min(each.high, LARGEST_NUMBER) for each in features])
        self._whole = np.flatnonzero([each.whole for each in features])
        self._any = (self._low.max(), self._high.min()) if features and not len(self._whole) else (np.inf, -np.inf)

    def outside(self, values: Sequence[float] | Floats) -> str:
        """Return which of the numbers [f] is impossible, and why; empty if all are possible."""
        return next(filter(None, (each.outside(float(v)) for each, v in zip(self._features, values, strict=True))), "")

    def first_outside(self, rows: AnyArray) -> int | None:
        """Return the index of the first row of rows [n, f] with an impossible number; None if there is none."""
        if rows.size and rows.min() >= self._any[0] and rows.max() <= self._any[1]:
            return None  # one comparison for all features takes a fifth of the time
        inside = (rows >= self._low) & (rows <= self._high)
        if inside.all() and not (len(self._whole) and (rows[:, self._whole] % 1.0).any()):
            return None
        return int(np.flatnonzero([self.outside(row) for row in rows])[0])


def features_listed(given: object, what: str) -> tuple[Feature, ...]:
    """Return the features, or inputs (`what`), that a world lists. Raises ModelError if the list is malformed."""
    each = [one if isinstance(one, Feature) else Feature(one) for one in _listed(given, what)]
    names_listed([one.name for one in each], what, least=0 if what == "input" else 1)
    for one in each:
        if one.values:
            names_listed(one.values, "named value", least=2)
        if not (-np.inf <= one.low < one.high <= np.inf):
            raise ModelError(f"{what} {one.name!r}: low is {one.low} and high {one.high}; low comes first")
    return tuple(each)


def names_listed(given: object, what: str, least: int = 1) -> tuple[str, ...]:
    """Return the names that a world lists. Raises ModelError unless there are at least `least` distinct names."""
    names = tuple(_listed(given, what))
    if len(names) < least or not all(isinstance(name, str) and name for name in names) or len(set(names)) < len(names):
        raise ModelError(f"a world's {what}s are {least} or more different names, not {names!r:.100}")
    return names


def features_driven(given: object, features: Sequence[Feature], noise: int) -> tuple[int, ...] | None:
    """Return, for each number of the noise, the number of the feature that it drives; None if `given` is None.

    `given`: names or numbers of features. Raises ModelError unless there is one known feature for each of the
    `noise` numbers.
    """
    if given is None:
        return None
    names = [each.name for each in features]
    try:
        driven = [names.index(one) if isinstance(one, str) else range(len(names))[one] for one in _listed(given, "")]
    except (ModelError, TypeError, ValueError, IndexError):
        driven = None
    if driven is None or len(driven) != noise:
        raise ModelError(
            f"noise_features is {given!r:.100}; give for each of the {noise} numbers of a world's noise the feature "
            f"that it drives, of {', '.join(names)}, or leave it out"
        )
    return tuple(driven)


def _listed(given: object, what: str) -> Sequence[Any]:
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise ModelError(f"a world's {what}s are a tuple of names, not {given!r:.100}")
    return given
