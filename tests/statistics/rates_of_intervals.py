"""How often each interval misses the true value, and how often a mean of so many samples is further off than said."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm, ttest_1samp

from monitor.statistics.anytime import bet_sizes, log_wealth
from monitor.statistics.intervals import clopper_pearson, sample_size
from tests.statistics.measured import Draw, Row, coin

ALPHA = 0.05


def sequence_rows(runs: int, length: int, rng: np.random.Generator) -> Iterator[Row]:
    """How many whole trajectories the confidence sequence leaves: its interval at any time without the mean."""
    laws: list[tuple[str, float, Draw]] = [
        ("P=0.9", 0.9, coin(0.9, rng)),
        ("P=0.5", 0.5, coin(0.5, rng)),
        ("P=0.01", 0.01, coin(0.01, rng)),
        ("Beta(2,5)", 2 / 7, lambda n, m: rng.beta(2, 5, (n, m))),
        ("Beta(.2,4)", 0.2 / 4.2, lambda n, m: rng.beta(0.2, 4, (n, m))),
    ]
    for name, mean, draw in laws:
        left = 0
        for start in range(0, runs, 500):
            values = draw(min(500, runs - start), length).astype(np.float64)
            sizes = bet_sizes(ALPHA / 2, values)
            most = (np.cumsum(each, axis=-1).max(axis=-1) for each in log_wealth(values, sizes, mean))
            left += int(np.any([m >= math.log(2 / ALPHA) for m in most], axis=0).sum())
        yield Row("confidence sequence alpha=0.05", name, runs, left, left / runs, ALPHA, 0, float(length))


def size_rows(runs: int, rng: np.random.Generator) -> Iterator[Row]:
    """Hoeffding's sizes: means that are .02 or more off."""
    for p in (0.5, 0.9):
        size = sample_size(0.02, ALPHA)
        errors = int((np.abs(rng.binomial(size, p, runs) / size - p) >= 0.02).sum())
        yield Row("Hoeffding error=0.02 alpha=0.05", f"P={p}", runs, errors, errors / runs, ALPHA, 0, float(size))
    for plus, minus in ((0.5, 0.5), (0.3, 0.1)):
        size = sample_size(0.02, ALPHA, effect=True)
        counts = rng.multinomial(size, [plus, minus, 1.0 - plus - minus], runs)
        means = (counts[:, 0] - counts[:, 1]) / size
        errors = int((np.abs(means - (plus - minus)) >= 0.02).sum())
        where = f"+1 {plus}, -1 {minus}"
        yield Row("Hoeffding error=0.02 alpha=0.05", where, runs, errors, errors / runs, ALPHA, 0, float(size))


def normal(successes: int, samples: int, alpha: float) -> tuple[float, float]:
    """The normal approximation (Wald's interval)."""
    rate = successes / samples
    half = float(norm.ppf(1 - alpha / 2)) * math.sqrt(rate * (1 - rate) / samples)
    return max(rate - half, 0.0), min(rate + half, 1.0)


def interval_rows(runs: int, rng: np.random.Generator) -> Iterator[Row]:
    """Clopper-Pearson promises its level, the others do so for normal samples, or in the limit, only."""
    for p, size in ((0.5, 100), (0.9, 100), (0.01, 100), (0.9, 1000)):
        successes = rng.binomial(size, p, runs)
        for what, interval, limit in (("Clopper-Pearson", clopper_pearson, ALPHA), ("normal interval", normal, None)):
            ends = {int(k): interval(int(k), size, ALPHA) for k in np.unique(successes)}
            errors = sum(not ends[int(k)][0] <= p <= ends[int(k)][1] for k in successes)
            yield Row(f"{what} alpha=0.05", f"P={p}", runs, errors, errors / runs, limit, 0, float(size))
    yield from _student(runs, rng)


def _student(runs: int, rng: np.random.Generator) -> Iterator[Row]:
    laws: list[tuple[str, float, float | None, NDArray[np.float64]]] = [
        ("normal", 3.0, ALPHA, rng.normal(3.0, 2.0, (runs, 20))),
        ("differences +1 .05", 0.05, None, (rng.random((runs, 100)) < 0.05).astype(float)),
        ("Beta(.2,4)", 0.2 / 4.2, None, rng.beta(0.2, 4.0, (runs, 100))),
    ]
    for name, mean, limit, values in laws:
        ends = [ttest_1samp(row, 0.0).confidence_interval(1 - ALPHA) for row in values]
        errors = sum(not low <= mean <= high for low, high in ends)
        yield Row("t interval alpha=0.05", name, runs, errors, errors / runs, limit, 0, float(values.shape[1]))
