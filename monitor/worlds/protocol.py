"""What a user writes: a `World`."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from monitor.arrays import Bools, Floats, Ints

LARGEST_NUMBER = sys.float_info.max


@dataclass(frozen=True)
class Feature:
    """A number of the state, or a recorded input.

    `low`, `high`: what it can be, both included; a number outside is an error and never accepted silently. `whole`:
    whole numbers only. `unit`: for people. `values`: names of the numbers 0, 1, ..., which are then all that it can be;
    paths and messages may give either.
    """

    name: str
    unit: str = ""
    low: float = -math.inf
    high: float = math.inf
    whole: bool = False
    values: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.values:
            for bound, value in (("low", 0.0), ("high", len(self.values) - 1.0), ("whole", True)):
                object.__setattr__(self, bound, value)

    def number(self, given: Any) -> float:  # noqa: ANN401 - whatever a path or a message holds
        """Return a value as a number. Raises ValueError if it is none, nor one of the named values."""
        if type(given) is float:
            return given
        if isinstance(given, str) and given in self.values:
            return float(self.values.index(given))
        with suppress(TypeError, ValueError, OverflowError):
            if not isinstance(given, str | bool):
                return float(given)
        others = f", and none of {', '.join(self.values)}" if self.values else ""
        raise ValueError(f"holds {self.name}={given!r:.60}, which is no number{others}")

    def shown(self, value: float, digits: int = 6) -> str:
        """Return a value for messages, such as `level=3.2 m`."""
        if value in range(len(self.values)):
            return f"{self.name}={self.values[int(value)]}"
        return f"{self.name}={value:.{digits}g}" + (f" {self.unit}" if self.unit else "")

    def outside(self, value: float) -> str:
        """Return why a value cannot be; empty if it can."""
        least, most = max(self.low, -LARGEST_NUMBER), min(self.high, LARGEST_NUMBER)
        if not least <= value <= most:  # so that NaN and infinity are outside as well
            unit = f" {self.unit}" if self.unit else ""
            return f"{self.name}={value:.6g}, outside {self.low:g} to {self.high:g}{unit}"
        return f"{self.shown(value)}, which is no whole number" if self.whole and value % 1.0 else ""


def numbers_of(given: Any, named: Sequence[Feature], what: str) -> tuple[float, ...]:  # noqa: ANN401 - likewise
    """Return numbers in the order of `named`, from a sequence or a map of names; one alone may be without either.

    Raises ValueError: it is none, or does not fit; the text begins with `what` in quotes and says what the world has.
    """
    names = [each.name for each in named]
    has = f"; the world has {', '.join(names) or 'none'}"
    if isinstance(given, Mapping):
        if given.keys() != set(names):
            raise ValueError(f'"{what}" has {", ".join(map(str, given)) or "no names"}'[:200] + has)
        given = [given[name] for name in names]
    try:
        entries = [given] if isinstance(given, str) else list(given)
    except TypeError:
        entries = [given]
    if len(entries) != len(names):
        wanted = f"{len(names)}: {', '.join(names)}" if names else "none"
        raise ValueError(f'"{what}" has {len(entries)} numbers; the world has {wanted}')
    try:
        return tuple(each.number(entry) for each, entry in zip(named, entries, strict=True))
    except ValueError as error:
        raise ValueError(f'"{what}" {error}{has}') from None


def with_inputs(states: Floats, inputs: tuple[float, ...] | Floats) -> Floats:
    """Return what a policy that sees inputs decides on, [n, f + i]: states [n, f], inputs [i] or [n, i].

    >>> with_inputs(np.array([[1.0], [2.0]]), (7.0,)).tolist()
    [[1.0, 7.0], [2.0, 7.0]]
    """
    rows = np.asarray(inputs, dtype=np.float64)
    return np.concatenate([states, np.broadcast_to(rows, (len(states), rows.shape[-1]))], axis=1)


class World(Protocol):
    """A structural simulator. States x are float64 arrays [n, f], actions a [n], inputs w [n, i], noise u [n, m].

    The engine owns all randomness: `step` must be a function of its arguments, and row k of its result of row k of
    theirs. Optional, beside what is listed here:

    - `inputs`: names of recorded inputs, or `Feature`s, and with them `forecast(w)`: the inputs [i] of the step after
      one with the inputs [i], where none are recorded;
    - `resample(w, ahead, u)` and `recorded_steps`, which take the place of `forecast`: the inputs [n, i] that come
      `ahead` steps (1, 2, ..) after the last recorded ones, w [i], drawn from so many steps that were recorded earlier.
      Each draw has one uniform number for all steps ahead, u [n];
    - `invert(x, a, x_next, w)` for one observed step, x [f], a int, x_next [f], w [i]: its noise, as an array [m], or
      as a tuple of two such arrays: an interval for each component, from the first to the second. (0, 1) where a
      component did not matter; None where the set of noises is no such box. Not needed without noise;
    - `posterior(x, a, x_next, w, rng, n)` where it is none: n draws [n, m] of the noise given the step, or a tuple of
      draws and their weights [n];
    - `reward(x, a, x_next)`: of n transitions, [n];
    - `noise_features`: the feature that each number of the noise drives, by name or number, if each drives one: so that
      doubt names it;
    - `learned`: true if `step` was estimated from data;
    - `fits`: worlds like this one, estimated from other data, such as resampled recordings: so that answers have a
      credible band.
    """

    @property
    def features(self) -> Sequence[str | Feature]:
        """The numbers of a state, in order."""
        ...

    @property
    def actions(self) -> Sequence[str]:
        """The names of the actions 0, 1, ..."""
        ...

    @property
    def labels(self) -> Sequence[str]:
        """The names that `holds` knows."""
        ...

    @property
    def noise(self) -> int:
        """How many numbers, uniform in (0, 1) and independent, drive one step."""
        ...

    @property
    def version(self) -> str:
        """Name and version of this world."""
        ...

    def step(self, x: Floats, a: Ints, u: Floats, w: Floats) -> Floats:
        """Return the next states [n, f]."""
        ...

    def holds(self, label: str, x: Floats) -> Bools:
        """Return where a label holds, [n]."""
        ...
