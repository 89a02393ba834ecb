"""`World`: the interface of a world that a user writes."""

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

    `low`, `high`: the range of the number, both ends included; a number outside the range is an error, never accepted
    silently. `whole`: whether only whole numbers are allowed. `unit`: unit, shown to people. `values`: names of the
    numbers 0, 1, ...; then no other numbers are allowed. Paths and messages may contain names or numbers.
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
        """Return a value as a number. Raises ValueError unless it is a number or one of the named values."""
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
        """Return why a value is impossible; empty if it is possible."""
        least, most = max(self.low, -LARGEST_NUMBER), min(self.high, LARGEST_NUMBER)
        if not least <= value <= most:  # so that NaN and infinity are outside too
            unit = f" {self.unit}" if self.unit else ""
            return f"{self.name}={value:.6g}, outside {self.low:g} to {self.high:g}{unit}"
        return f"{self.shown(value)}, which is no whole number" if self.whole and value % 1.0 else ""


def numbers_of(given: Any, named: Sequence[Feature], what: str) -> tuple[float, ...]:  # noqa: ANN401 - likewise
    """Return numbers in the order of `named`, from a sequence, or from a map of names; a single number is accepted too.

    Raises ValueError if `given` has another form or does not fit. The message begins with `what` in quotes, and says
    what the world has.
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
    """Join states [n, f] with inputs [i] or [n, i] to [n, f + i], the observations of a policy that sees inputs.

    >>> with_inputs(np.array([[1.0], [2.0]]), (7.0,)).tolist()
    [[1.0, 7.0], [2.0, 7.0]]
    """
    rows = np.asarray(inputs, dtype=np.float64)
    return np.concatenate([states, np.broadcast_to(rows, (len(states), rows.shape[-1]))], axis=1)


class World(Protocol):
    """A structural simulator. States x are float64 arrays [n, f], actions a [n], inputs w [n, i], noise u [n, m].

    The engine owns all randomness. So `step` must be a function of its arguments, and row k of its result must depend
    only on row k of each argument. These parts are optional:

    - `inputs`: names of recorded inputs, or `Feature`s. With them, `forecast(w)` returns the inputs [i] of the next
      step, given the inputs w [i] of a step. `forecast` is used beyond the recorded inputs.
    - `resample(w, ahead, u)` and `recorded_steps` replace `forecast`. `resample` returns the inputs [n, i] `ahead`
      steps (1, 2, ..) after the last recorded inputs w [i]. They are drawn from `recorded_steps` earlier steps. Each
      draw uses one uniform number of u [n] for all steps ahead.
    - `invert(x, a, x_next, w)` returns the noise of one observed step, with x [f], a int, x_next [f], w [i]. The noise
      is an array [m], or a tuple of two such arrays with the lower and upper ends of an interval for each component.
      The interval is (0, 1) for a component that did not matter. `invert` returns None if the set of possible noise is
      not a product of intervals. A world without noise needs no `invert`.
    - `posterior(x, a, x_next, w, rng, n)` is used if `invert` returns None. It returns n draws [n, m] of the noise
      given the step, or a tuple of draws and their weights [n].
    - `reward(x, a, x_next)` returns the rewards [n] of n transitions.
    - `noise_features`: for each number of the noise, the feature that it drives, by name or number, if each number
      drives one feature. With it, a rejection of the model names the feature.
    - `learned`: true if `step` was estimated from data.
    - `fits`: worlds of the same form, estimated from other data, such as resampled recordings. With `fits`, answers
      have a credible band.
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
        """The label names that `holds` accepts."""
        ...

    @property
    def noise(self) -> int:
        """Number of random numbers, uniform in (0, 1) and independent, that drive one step."""
        ...

    @property
    def version(self) -> str:
        """Name and version of this world."""
        ...

    def step(self, x: Floats, a: Ints, u: Floats, w: Floats) -> Floats:
        """Return the next states [n, f]."""
        ...

    def holds(self, label: str, x: Floats) -> Bools:
        """Return for each of n states whether a label holds, [n]."""
        ...
