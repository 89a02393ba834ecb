"""Runtime monitors for temporal logic: rtamt and reelay, one update per step, in their fastest mode.

Each peer runs its own loop over inputs built beforehand, so that no wrapper adds to its cost.
"""

from __future__ import annotations

from itertools import islice
from time import perf_counter
from typing import Any

import numpy as np

from monitor.arrays import Floats

__all__ = ["Reelay", "Rtamt"]

SINGLES = 500


class Rtamt:
    """`always[0:10](x>0)` in discrete time, turned into a past formula (`pastify`), with the online update."""

    def __init__(self, signal: list[float]) -> None:
        import rtamt  # noqa: PLC0415 - each peer needs its own package only

        self.monitor: Any = rtamt.StlDiscreteTimeSpecification()
        self.monitor.declare_var("x", "float")
        self.monitor.declare_var("out", "float")
        self.monitor.spec = "out = always[0:10](x>0)"
        self.monitor.parse()
        self.monitor.pastify()
        self.inputs = [[("x", x)] for x in signal]
        self.now = 0

    def values(self) -> list[float]:
        """Return the robustness after each value of the signal: the minimum of x over the last eleven."""
        first = self.now
        self.now += len(self.inputs)
        return [float(self.monitor.update(first + n, given)) for n, given in enumerate(self.inputs)]

    def block(self) -> int:
        """Process the whole signal once; return the number of updates."""
        update, now = self.monitor.update, self.now
        for now, given in enumerate(self.inputs, now):  # noqa: B020 - time continues
            update(now, given)
        self.now = now + 1
        return len(self.inputs)

    def singles(self) -> Floats:
        """Return the seconds of each of `SINGLES` updates."""
        costs = []
        for given in islice(self.inputs, SINGLES):
            begun = perf_counter()
            self.monitor.update(self.now, given)
            costs.append(perf_counter() - begun)
            self.now += 1
        return np.array(costs)


class Reelay:
    """`historically[0:10]{x}` over a proposition in discrete time, with its fastest input and output."""

    def __init__(self, signal: list[float]) -> None:
        import reelay  # noqa: PLC0415 - each peer needs its own package only

        self.monitor: Any = reelay.discrete_timed_monitor(pattern="historically[0:10]{x}", condense=True)
        self.inputs = [{"x": x > 0} for x in signal]

    def values(self) -> list[bool]:
        """Return after each value whether x held at the last eleven. Condensed output has only the changes."""
        held: list[bool] = []
        for given in self.inputs:
            new = self.monitor.update(given)
            held.append(bool(new["value"]) if new else held[-1])
        return held

    def block(self) -> int:
        """Process the whole signal once; return the number of updates."""
        update = self.monitor.update
        for given in self.inputs:
            update(given)
        return len(self.inputs)

    def singles(self) -> Floats:
        """Return the seconds of each of `SINGLES` updates."""
        update, costs = self.monitor.update, []
        for given in islice(self.inputs, SINGLES):
            begun = perf_counter()
            update(given)
            costs.append(perf_counter() - begun)
        return np.array(costs)
