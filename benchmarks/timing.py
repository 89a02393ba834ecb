"""Time works in turns: each round runs each of them once, in alternating order, so that noise affects all alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter

import numpy as np

from monitor.arrays import Floats

__all__ = ["Timing", "Work", "in_turns", "one_by_one"]


@dataclass(frozen=True)
class Timing:
    """Cost of one unit of work in seconds (or the row's `unit`): median, 99th percentile, number of units."""

    median: float
    p99: float
    n: int

    @classmethod
    def of(cls, costs: Floats | Sequence[float]) -> Timing:
        """Return the timing of units with these costs."""
        return cls(float(np.median(costs)), float(np.quantile(costs, 0.99)), len(costs))


@dataclass(frozen=True)
class Work:
    """Work to be timed.

    Attributes:
        block: does a block of work and returns its number of units; a block should last a few milliseconds.
        singles: does some units one by one and returns the seconds of each (`one_by_one`). With it, the 99th percentile
            is over single units, else over means of blocks.
    """

    block: Callable[[], int]
    singles: Callable[[], Floats] | None = None


def in_turns(works: Sequence[Work], rounds: int) -> list[Timing]:
    """Return seconds per unit of each work, over `rounds` rounds of one block each, after one warm-up round.

    The median is over means of blocks, which leaves out the cost of reading the clock.
    """
    blocks: list[list[float]] = [[] for _ in works]
    singles: list[list[Floats]] = [[] for _ in works]
    units = [0] * len(works)
    for work in works:
        work.block()
    for number in range(rounds):
        order = range(len(works)) if number % 2 == 0 else reversed(range(len(works)))
        for place in order:
            work = works[place]
            begun = perf_counter()
            done = work.block()
            blocks[place].append((perf_counter() - begun) / done)
            units[place] += done
            if work.singles is not None:
                singles[place].append(work.singles())
    timings = []
    for costs, ones, count in zip(blocks, singles, units, strict=True):
        each = np.concatenate(ones) if ones else np.array(costs)
        timings.append(Timing(float(np.median(costs)), float(np.quantile(each, 0.99)), count))
    return timings


def one_by_one(step: Callable[[], object], count: int) -> Floats:
    """Return the seconds of each of `count` calls."""
    costs = np.empty(count)
    for n in range(count):
        begun = perf_counter()
        step()
        costs[n] = perf_counter() - begun
    return costs
