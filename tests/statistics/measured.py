"""What measurements of error rates share: rows, runs of a test, and laws of the samples."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

__all__ = ["FALSE_ALARM", "Decides", "Draw", "Law", "Row", "bounded_laws", "coin", "edge", "play"]

Draw = Callable[[int, int], NDArray[np.generic]]
"""(runs, samples) -> as many samples of as many runs."""
FALSE_ALARM = 1e-6
"""A correct procedure is called wrong with this probability at most, over all rows together."""
TOGETHER = 1000
"""Runs followed at once: what they draw must fit into memory."""


class Decides(Protocol):
    def decide(self, values: NDArray[np.generic], /) -> tuple[NDArray[np.int64], NDArray[np.int8]]: ...


@dataclass(frozen=True)
class Row:
    """One measurement.

    `limit`: the error probability promised (None: nominal, nothing is promised). `expected`: samples after Wald,
    `exact`: the error rate by following the walk exactly, where that was done.
    """

    what: str
    where: str
    runs: int
    errors: int
    rate: float
    limit: float | None
    undecided: int
    samples: float
    expected: float | None = None
    exact: float | None = None

    def within(self, rows: int) -> bool:
        """Whether a procedure that keeps its limit would err so often, with probability FALSE_ALARM / rows."""
        return self.limit is None or bool(binom.sf(self.errors - 1, self.runs, self.limit) > FALSE_ALARM / rows)


def play(test: Decides, draw: Draw, runs: int, *, block: int, limit: int) -> tuple[NDArray[np.int64], NDArray[np.int8]]:
    """Runs of one test: each gets `block` samples, and those undecided twice as many until `limit`."""
    played = [
        _play(test, draw, min(TOGETHER, runs - start), block=block, limit=limit) for start in range(0, runs, TOGETHER)
    ]
    return np.concatenate([samples for samples, _ in played]), np.concatenate([sides for _, sides in played])


def _play(
    test: Decides, draw: Draw, runs: int, *, block: int, limit: int
) -> tuple[NDArray[np.int64], NDArray[np.int8]]:
    samples, sides = np.full(runs, limit), np.zeros(runs, dtype=np.int8)
    left, data = np.arange(runs), draw(runs, block)
    while left.size:
        samples[left], sides[left] = test.decide(data)
        still = sides[left] == 0
        left, data = left[still], data[still]
        if data.shape[-1] >= limit:
            break
        data = np.concatenate([data, draw(left.size, data.shape[-1])], axis=-1)
    return samples, sides


def edge(what: str, test: Decides, draw: Draw, *, true: bool, limit: float | None, runs: int) -> Row:
    """Measure how often a test errs where its formula is true (or false)."""
    samples, sides = play(test, draw, runs, block=128, limit=1 << 14)
    errors = int((sides == (-1 if true else 1)).sum())
    return Row(
        what,
        "above" if true else "below",
        runs,
        errors,
        errors / runs,
        limit,
        int((sides == 0).sum()),
        float(samples.mean()),
    )


def coin(p: float, rng: np.random.Generator) -> Draw:
    return lambda runs, samples: rng.random((runs, samples), dtype=np.float32) < p


@dataclass(frozen=True)
class Law:
    """A law of differences, in [-1, 1]."""

    name: str
    mean: float
    deviation: float
    draw: Draw


def bounded_laws(rng: np.random.Generator) -> list[Law]:
    """Two values, three values, nearly normal, skewed: what the difference of two probabilities or rewards may be."""
    return [
        _differences(0.05, 0.0, rng),
        _differences(0.005, 0.0, rng),
        _differences(0.9, 0.1, rng),
        _differences(0.3, 0.1, rng),
        _differences(0.02, 0.01, rng),
        _beta("nearly normal: Beta(20,20)", 20.0, 20.0, rng),
        _beta("skewed: Beta(.2,4)", 0.2, 4.0, rng),
    ]


def _differences(plus: float, minus: float, rng: np.random.Generator) -> Law:
    """1 with probability `plus`, -1 with `minus`, else 0."""
    mean = plus - minus

    def draw(runs: int, samples: int) -> NDArray[np.float64]:
        drawn = rng.random((runs, samples))
        return (drawn < plus).astype(float) - (drawn >= 1.0 - minus)

    kinds = "two" if minus == 0.0 or math.isclose(plus + minus, 1.0) else "three"
    return Law(f"{kinds} values: +1 {plus:g}, -1 {minus:g}", mean, math.sqrt(plus + minus - mean**2), draw)


def _beta(name: str, a: float, b: float, rng: np.random.Generator) -> Law:
    """2 B - 1."""
    deviation = 2.0 * math.sqrt(a * b / (a + b + 1.0)) / (a + b)
    return Law(name, 2.0 * a / (a + b) - 1.0, deviation, lambda n, m: 2.0 * rng.beta(a, b, (n, m)) - 1.0)
