"""The ends that bisection finds are those of the wealth at each point of the grid."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from monitor.statistics.anytime import ConfidenceSequence, bet_sizes, log_wealth


def point_by_point(sequence: ConfidenceSequence, samples: NDArray[np.float64]) -> tuple[float, float]:
    """The interval from the wealth of both bets after each sample at each point of the grid."""
    if not samples.size:
        return sequence.lo, sequence.hi
    seen, grid = (samples - sequence.lo) / (sequence.hi - sequence.lo), np.linspace(0.0, 1.0, sequence.points)
    sizes = bet_sizes(sequence.alpha / 2, seen)
    wealths = log_wealth(seen[:, None], sizes[:, None], grid)
    below, above = (
        np.flatnonzero(np.cumsum(each, axis=0).max(axis=0) >= np.log(2 / sequence.alpha)) for each in wealths
    )
    low = grid[below[-1]] if below.size else 0.0
    high = grid[above[0]] if above.size else 1.0
    return sequence.lo + low * (sequence.hi - sequence.lo), sequence.lo + high * (sequence.hi - sequence.lo)


@pytest.mark.parametrize("mean", [0.0, 0.02, 0.3, 0.5, 0.97, 1.0])
@pytest.mark.parametrize("count", [0, 1, 10, 3000])
@pytest.mark.parametrize(("lo", "hi", "points"), [(0.0, 1.0, 1001), (-3.0, 5.0, 101), (0.0, 1.0, 2)])
def test_bisection_finds_the_ends_of_the_grid(mean: float, count: int, lo: float, hi: float, points: int) -> None:
    drawn = np.random.default_rng(int(100 * mean) + count)
    for values in ((drawn.random(count) < mean).astype(float), drawn.beta(2.0 * mean + 0.1, 2.1 - 2.0 * mean, count)):
        sequence = ConfidenceSequence(0.05, lo, hi, points)
        samples = lo + (hi - lo) * values
        assert sequence.interval(samples) == point_by_point(sequence, samples)
