"""A random generator whose draws are quantiles of given uniform numbers. These numbers are then a simulator's noise."""

from __future__ import annotations

import math
from typing import Any, NoReturn

import numpy as np
from scipy.special import ndtri

from monitor.arrays import Floats
from monitor.errors import ModelError

OFFERED = "random, uniform, normal, standard_normal, exponential, integers or choice"


class GivenNoise:
    """Stand-in for `numpy.random.Generator` in one step of a simulator. Each draw uses the next of the given numbers.

    A draw increases with its uniform number. So a world can be inverted if, for each draw, some feature increases or
    decreases with this draw. The methods work like the methods of the generator. Any other method, and a draw after the
    last number, raises ModelError.

    Args:
        u: uniform numbers [m] in (0, 1).
        whose: the beginning of messages, such as `world 'drone 1'`.
    """

    def __init__(self, u: Floats, whose: str) -> None:
        self._u, self._whose, self.taken = u.copy(), whose, 0  # a simulator may change drawn arrays

    def random(self, size: Any = None) -> Any:  # noqa: ANN401 - a number or an array, as in NumPy
        """Return numbers in (0, 1)."""
        return self._next(size)

    def uniform(self, low: Any = 0.0, high: Any = 1.0, size: Any = None) -> Any:  # noqa: ANN401 - likewise
        """Return numbers between `low` and `high`."""
        return low + (high - low) * self._next(size, low, high)

    def normal(self, loc: Any = 0.0, scale: Any = 1.0, size: Any = None) -> Any:  # noqa: ANN401 - likewise
        """Return normal numbers."""
        return loc + scale * ndtri(self._next(size, loc, scale))

    def standard_normal(self, size: Any = None) -> Any:  # noqa: ANN401 - likewise
        """Return standard normal numbers."""
        return ndtri(self._next(size))

    def exponential(self, scale: Any = 1.0, size: Any = None) -> Any:  # noqa: ANN401 - likewise
        """Return exponential numbers."""
        return -scale * np.log1p(-self._next(size, scale))

    def integers(self, low: Any, high: Any = None, size: Any = None, *, endpoint: bool = False) -> Any:  # noqa: ANN401 - likewise
        """Return whole numbers from `low` to below `high`, or to `high` with `endpoint`.

        With one bound, the range is from 0 to this bound.
        """
        low, high = (0, low) if high is None else (low, high)
        return low + np.floor((high + endpoint - low) * self._next(size, low, high)).astype(np.int64)

    def choice(self, a: Any, size: Any = None, replace: bool = True, p: Any = None) -> Any:  # noqa: ANN401, FBT001, FBT002 - likewise
        """Return elements of `a`, or whole numbers from 0 to below a number `a`, with the probabilities `p`."""
        if not replace and size is not None:
            raise ModelError(f"{self._whose}: choice without replacement takes draws that depend on each other")
        values = np.arange(a) if isinstance(a, int | np.integer) else np.asarray(a)
        ends = np.cumsum(np.full(len(values), 1.0 / len(values)) if p is None else p)
        return values[np.minimum(np.searchsorted(ends / ends[-1], self._next(size), side="right"), len(values) - 1)]

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise ModelError(
            f"{self._whose}: it draws by {name}(), which is no known function of one uniform number; draw by {OFFERED}"
        )

    def _next(self, size: Any, *parameters: Any) -> Any:  # noqa: ANN401 - likewise
        shape = size
        if size is None:
            shape = np.broadcast(*parameters).shape if parameters else ()
        count = math.prod(shape) if isinstance(shape, tuple | list) else int(shape)
        first, self.taken = self.taken, self.taken + count
        if self.taken > len(self._u):
            raise ModelError(f"{self._whose}: a step draws {self.taken} numbers or more, and noise is {len(self._u)}")
        return self._u[first : self.taken].reshape(shape)[()]
