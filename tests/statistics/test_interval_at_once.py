"""The confidence sequence of samples that are all at hand is the one that grows sample by sample."""

from __future__ import annotations

import numpy as np
import pytest

from monitor.statistics import ConfidenceSequence


@pytest.mark.parametrize("mean", [0.0, 0.02, 0.3, 0.5, 0.97, 1.0])
@pytest.mark.parametrize("count", [0, 1, 10, 3000])
@pytest.mark.parametrize(("lo", "hi", "points"), [(0.0, 1.0, 1001), (-3.0, 5.0, 101), (0.0, 1.0, 2)])
def test_bisection_finds_the_ends_of_the_grid(mean: float, count: int, lo: float, hi: float, points: int) -> None:
    drawn = np.random.default_rng(int(100 * mean) + count)
    for values in ((drawn.random(count) < mean).astype(float), drawn.beta(2.0 * mean + 0.1, 2.1 - 2.0 * mean, count)):
        sequence = ConfidenceSequence(0.05, lo, hi, points)
        samples = lo + (hi - lo) * values
        state = sequence.update(sequence.start(), samples)
        assert sequence.interval(samples) == (state.low, state.high)
