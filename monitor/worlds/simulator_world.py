"""A world made from a simulator that moves one state at a time and draws from a random generator."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from scipy.optimize import bisect

from monitor.arrays import Bools, Floats, Ints
from monitor.errors import ModelError
from monitor.worlds.abduction import LARGEST, SMALLEST
from monitor.worlds.description import features_driven, features_listed
from monitor.worlds.given_noise import GivenNoise
from monitor.worlds.protocol import Feature

NARROW: Final = 1e-9
"""An interval of noise of at most this width, relative to its distance from 0 and 1, counts as a point. Known noise
gives a narrower interval after rounding, unless the noise is so near to 1 that its distance from 1 has hardly any
digits.
"""
FINEST: Final = 8.0 * np.finfo(np.float64).eps
"""Relative precision of the search for the ends of an interval."""


class SimulatorWorld(ABC):
    """Base class of a `World`. A subclass has `move` instead of `step` and `invert`, and all other parts of a world.

    Attributes:
        noise: number of draws of `move`, which must be the same in every step. 0 if it draws nothing.
        noise_features: for each draw, in order, the feature from which the draw is inferred, by name or number. This
            feature must increase or decrease with the draw, and must not depend on later draws. If there are no such
            features, write `invert` yourself (`World`).
        terminal: labels that end an episode. In a state with such a label, the world does not move; `reward` is called
            there too.
    """

    version: str
    features: Sequence[str | Feature]
    labels: Sequence[str]
    noise: int = 0
    noise_features: Sequence[int | str] | None = None
    terminal: Sequence[str] = ()

    @abstractmethod
    def move(self, x: Floats, a: int, rng: Any, w: Floats) -> Any:  # noqa: ANN401 - a user's numbers
        """Return the next state [f] of a state x [f] under an action, with inputs w [i].

        `rng`: draw from it as from a `numpy.random.Generator`. All randomness must come from it.
        """

    @abstractmethod
    def holds(self, label: str, x: Floats) -> Bools:
        """Return for each of n states whether a label holds, [n]."""

    def __str__(self) -> str:
        return f"world {self.version!r}"

    def step(self, x: Floats, a: Ints, u: Floats, w: Floats) -> Floats:
        """Return the next states [n, f] of states [n, f], computed one by one.

        Raises ModelError if `move` does not draw `noise` numbers.
        """
        moved = np.array(x, dtype=np.float64)
        for n in np.flatnonzero(~self.ended(x)).tolist():
            moved[n] = self._moved(x[n], int(a[n]), u[n], w[n])
        return moved

    def invert(self, x: Floats, a: int, x_next: Floats, w: Floats) -> tuple[Floats, Floats]:
        """Return the lower and upper ends [m], [m] of the noise of a step.

        Raises ModelError if `noise_features` are missing.
        """
        features = features_driven(self.noise_features, features_listed(self.features, "feature"), self.noise) or ()
        if len(features) != self.noise:
            raise ModelError(
                f"{self}: it draws {self.noise} numbers and has no noise_features; name for each number "
                "the feature that it moves up or down, or write invert"
            )
        low, high = np.zeros(self.noise), np.ones(self.noise)
        if self.ended(x[np.newaxis])[0]:
            return low, high
        noise = np.full(self.noise, 0.5)
        for k, feature in enumerate(features):

            def value(u: float, k: int = k, feature: int = feature) -> float:
                noise[k] = u
                return float(self._moved(x, a, noise, w)[feature])

            low[k], high[k] = _interval(value, float(x_next[feature]))
            noise[k] = np.clip((low[k] + high[k]) / 2, SMALLEST, LARGEST)
        return low, high

    def ended(self, x: Floats) -> Bools:
        """Return for each of n states whether a label of `terminal` holds, [n]."""
        found = np.zeros(len(x), dtype=np.bool_)
        for label in self.terminal:
            found |= self.holds(label, x)
        return found

    def _moved(self, x: Floats, a: int, u: Floats, w: Floats) -> Floats:
        given = GivenNoise(u, str(self))
        moved = np.asarray(self.move(x.copy(), a, given, w), dtype=np.float64)
        if given.taken != self.noise:
            raise ModelError(
                f"{self}: noise is {self.noise}, and the step from {x.tolist()} by action {a} draws {given.taken}; "
                "draw as many numbers in every step, also where they do not matter"
            )
        if moved.shape != x.shape:
            raise ModelError(f"{self}: move gives shape {moved.shape}, and a state has shape {x.shape}")
        return moved


def _interval(value: Callable[[float], float], wanted: float) -> tuple[float, float]:
    """Return the ends of the noise for which a monotone `value` equals `wanted`; (0, 0) or (1, 1) if no noise does."""
    sign = 1.0 if value(LARGEST) >= value(SMALLEST) else -1.0
    low = _least(lambda u: sign * (value(u) - wanted) >= 0.0)
    high = _least(lambda u: sign * (value(u) - wanted) > 0.0)
    middle = (low + high) / 2
    return (middle, middle) if abs(high - low) <= NARROW * min(middle, 1.0 - middle) else (low, high)


def _least(holds: Callable[[float], bool]) -> float:
    """Return the least number in (0, 1) from which a condition holds; 0 if it always holds, 1 if it never holds."""
    if holds(SMALLEST):
        return 0.0
    if not holds(LARGEST):
        return 1.0
    found = bisect(lambda u: 1.0 if holds(u) else -1.0, SMALLEST, LARGEST, xtol=SMALLEST / 2, rtol=FINEST, maxiter=200)
    return float(found)
