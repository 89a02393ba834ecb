"""The noise inferred from an observed step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from monitor.arrays import Floats

SMALLEST, LARGEST = 2.0**-53, 1.0 - 2.0**-53
"""The ends of the range of noise, so that no inverse distribution function is called at 0 or 1."""

Posterior = Callable[[np.random.Generator, int], tuple[Floats, Floats | None]]
"""(generator, n) -> n draws of the noise [n, m], and their weights [n], which sum to 1 (None: equal weights)."""


class Moment(NamedTuple):
    """A step of a path: the state, the action taken in it (None if not yet taken), and the recorded inputs."""

    state: tuple[float, ...]
    action: int | None
    inputs: tuple[float, ...] = ()


@dataclass(frozen=True, eq=False)
class Abduction:
    """The noise of an observed step (`state`, `action`) -> `successor`: uniform in a box, or drawn from a posterior.

    `low`, `high`: the ends [m] of the box; equal ends mean that the noise is known. For a posterior they are 0 and 1.
    """

    state: tuple[float, ...]
    action: int
    successor: tuple[float, ...]
    low: Floats
    high: Floats
    posterior: Posterior | None = None

    @cached_property
    def is_point(self) -> bool:
        """True if the noise is known exactly."""
        return self.posterior is None and bool((self.low == self.high).all())

    def within(self, fresh: Floats) -> Floats:
        """Return noise [n, m] in the box, from uniform numbers [n, m] in (0, 1)."""
        return np.clip(self.low + (self.high - self.low) * fresh, SMALLEST, LARGEST)
