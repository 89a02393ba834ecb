"""Draws whose numbers are given, against the quantiles of SciPy and the shapes of NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

from monitor.errors import ModelError
from monitor.worlds.given_noise import GivenNoise


@pytest.mark.parametrize(
    ("draw", "quantile"),
    [
        (lambda rng: rng.random(), stats.uniform()),
        (lambda rng: rng.random(3), stats.uniform()),
        (lambda rng: rng.uniform(-1, np.full((2, 2), 3.0)), stats.uniform(-1, 4)),
        (lambda rng: rng.normal(1.0, 2.0), stats.norm(1, 2)),
        (lambda rng: rng.normal(1.0, 2.0, size=(2, 1)), stats.norm(1, 2)),
        (lambda rng: rng.standard_normal(2), stats.norm()),
        (lambda rng: rng.exponential(0.5), stats.expon(scale=0.5)),
        (lambda rng: rng.integers(6), stats.randint(0, 6)),
        (lambda rng: rng.integers(1, 6, size=4, endpoint=True), stats.randint(1, 7)),
        (lambda rng: rng.choice(3), stats.randint(0, 3)),
        (lambda rng: rng.choice([4, 5], p=[0.2, 0.8]), stats.rv_discrete(values=([4, 5], [0.2, 0.8]))),
    ],
)
def test_draws_are_quantiles_of_the_given_numbers_in_the_shape_of_numpy(draw: Any, quantile: Any) -> None:
    u = np.random.default_rng(1).uniform(size=9)
    given = GivenNoise(u, "")
    found, like = draw(given), draw(np.random.default_rng(0))
    assert np.shape(found) == np.shape(like)
    assert np.asarray(found).dtype == np.asarray(like).dtype
    assert given.taken == np.size(like)
    assert np.ravel(found) == pytest.approx(quantile.ppf(u[: given.taken]))


def test_draws_that_depend_on_each_other_are_refused() -> None:
    with pytest.raises(ModelError, match="draws that depend on each other"):
        GivenNoise(np.full(3, 0.5), "world 'w'").choice(5, size=2, replace=False)
