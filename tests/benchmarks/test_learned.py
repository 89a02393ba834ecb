"""The model of the benchmark of bands is one that its draws give."""

from __future__ import annotations

import numpy as np

from benchmarks.workloads.learned import learned_from
from benchmarks.worlds import grid


def test_a_learned_grid_has_the_draws_and_the_labels_of_the_grid() -> None:
    model = learned_from(grid(4), 50, np.random.default_rng(1))
    assert model.counts is not None
    draws = model.counts.draws(model.indptr).reshape(model.states, model.actions)
    assert (draws[:-1] == 50).all()
    assert (draws[-1] == 0).all()
    assert np.flatnonzero(model.labels["unsafe"]).tolist() == [5, 11, 16]
    assert np.flatnonzero(model.labels["goal"]).tolist() == [15]
