"""The Bernoulli walk followed exactly: where it is after each sample, and how much of it has been absorbed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np

from monitor.statistics.sprt import Sprt


@dataclass(frozen=True)
class Fate:
    """Of a test whose samples succeed with probability p. `left`: probability of no decision within the limit."""

    true: float
    false: float
    mean: float
    left: float


@cache
def fate(test: Sprt, p: float, limit: int = 20_000) -> Fate:
    """By dynamic programming over the number of successes, with the likelihood ratio of the paper written out."""
    below, above = test.sides
    good, bad = math.log(below / above), math.log((1 - below) / (1 - above))
    low = math.log(test.strength.beta / (1 - test.strength.alpha))
    high = math.log((1 - test.strength.beta) / test.strength.alpha)
    mass = np.ones(1)
    true = false = mean = 0.0
    for m in range(1, limit + 1):
        mean += mass.sum()  # E[M] = sum of P(M > m - 1)
        mass = np.append(mass * (1 - p), 0.0) + np.append(0.0, mass * p)
        successes = np.arange(m + 1)
        ratio = successes * good + (m - successes) * bad
        true += mass[ratio <= low].sum()
        false += mass[ratio >= high].sum()
        mass = np.where((ratio > low) & (ratio < high), mass, 0.0)
        if mass.sum() < 1e-13:
            break
    return Fate(float(true), float(false), float(mean), float(mass.sum()))
