"""The figures of the grid, in short: what is drawn against exact values.

A correct sampler fails a test here with probability 1e-6 at most; comparisons of one test share that.
"""

from __future__ import annotations

import csv
import math
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from scipy.stats import binom, binomtest

from experiments import histograms, sanity, traces
from experiments.grid import PANELS, Grid, Groups, Panel, T
from tests.tiers import examples, scaled

ROOT = Path(__file__).parents[2]
FALSE_ALARM = 1e-6
REPETITIONS = examples(10, 40)
OUTCOMES = histograms.PATHS * histograms.DRAWS


@pytest.fixture(scope="module")
def grid() -> Grid:
    return Grid()


@pytest.fixture(scope="module")
def rows(grid: Grid) -> list[histograms.Row]:
    return [histograms.repetition(grid, r, 0) for r in range(REPETITIONS)]


@pytest.fixture(scope="module")
def checked(grid: Grid) -> list[sanity.Row]:
    return [sanity.repetition(grid, r, 0) for r in range(REPETITIONS)]


def column(rows: list[histograms.Row], name: str) -> npt.NDArray[np.float64]:
    return np.array([row[name] for row in rows])


def test_exact_means_are_those_told_beside_the_model(grid: Grid) -> None:
    told = (ROOT / "policies" / "reach-avoid" / "PROVENANCE.md").read_text()
    assert f"| nominal | {grid.exact_nominal():.6f} |" in told
    for panel in PANELS[:2]:
        assert (
            f"| `planned@{panel.offset}`, mean over nominal paths (any length) | {grid.exact_mean(panel):.6f} |" in told
        )
    assert grid.exact_mean(PANELS[1]) == grid.exact_mean(PANELS[2])


@scaled
def test_nominal_paths_satisfy_phi_as_often_as_they_should(grid: Grid, rows: list[histograms.Row]) -> None:
    paths = REPETITIONS * histograms.PATHS
    satisfied = round(float(column(rows, "nominal").sum()) * histograms.PATHS)
    assert binomtest(satisfied, paths, grid.exact_nominal()).pvalue > FALSE_ALARM


@scaled
@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel.key)
def test_posterior_worlds_are_those_of_their_paths(panel: Panel, rows: list[histograms.Row]) -> None:
    """Given the paths, all outcomes are independent, each with the exact probability of its path (Hoeffding)."""
    off = column(rows, panel.key).mean() - column(rows, f"{panel.key}_exact").mean()
    assert abs(off) <= math.sqrt(math.log(2 * len(PANELS) / FALSE_ALARM) / (2 * REPETITIONS * OUTCOMES))


@scaled
@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel.key)
def test_counterfactuals_average_to_the_exact_mean(grid: Grid, panel: Panel, rows: list[histograms.Row]) -> None:
    """The means of the paths are independent, in [0, 1], of a variance of p (1 - p) at most (Bernstein)."""
    p, paths, log = grid.exact_mean(panel), REPETITIONS * histograms.PATHS, math.log(2 * len(PANELS) / FALSE_ALARM)
    near = log / (3 * paths)
    assert abs(column(rows, panel.key).mean() - p) <= near + math.sqrt(near**2 + 2 * p * (1 - p) * log / paths)


@scaled
@pytest.mark.parametrize("what", ["interventional_1", "counterfactual_1", "interventional_20"])
def test_what_is_independent_is_binomial(grid: Grid, checked: list[sanity.Row], what: str) -> None:
    """One world for each path: the paper's two histograms are of one law, in the mean and in the upper half."""
    p, size = grid.exact_mean(PANELS[0]), histograms.PATHS * int(what.split("_")[1])
    counts = np.rint(column(checked, what) * size).astype(int)
    assert binomtest(int(counts.sum()), size * REPETITIONS, p).pvalue > FALSE_ALARM / 6
    middle = math.ceil(p * size)
    many = int((counts >= middle).sum())
    assert binomtest(many, REPETITIONS, float(binom.sf(middle - 1, size, p))).pvalue > FALSE_ALARM / 6


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel.key)
def test_traces_end_as_the_sampler_says_world_for_world(grid: Grid, panel: Panel) -> None:
    worlds, seen = 200, traces.observed(panel)
    lines = list(traces.traces(grid, panel, worlds, seed=3))
    parts = {kind: [line.states for line in lines if line.kind == kind] for kind in traces.LOOKS}
    whole = np.array([a + b[1:] for a, b in zip(parts["counterfactual"], parts["future"], strict=True)])
    assert whole.shape == (worlds, T + 1)
    alike = Groups(seen[None, :], np.array([1]), np.array([0]))
    assert np.array_equal(grid.satisfied(whole), grid.outcomes(panel, alike, worlds, seed=3)[0] == 1.0)
    assert bool(parts["nominal"]) == (panel.key == "c")
    assert all(states[0] == seen[-1] for states in parts["nominal"])


def test_phi_is_the_goal_with_nothing_unsafe_before(grid: Grid) -> None:
    for states, holds in [([0, 1, 15, 6], True), ([0, 6, 15, 15], False), ([0, 1, 2, 3], False), ([15, 6, 6, 6], True)]:
        assert grid.satisfied(np.array([states])).tolist() == [holds]


@scaled
def test_the_kept_results_are_what_comes_out(rows: list[histograms.Row], checked: list[sanity.Row]) -> None:
    for name, again in (("histograms", rows), ("sanity", checked)):
        with (ROOT / "docs" / "experiments" / f"{name}.csv").open(newline="") as handle:
            kept = list(csv.DictReader(handle))
        assert len(kept) == 1_000
        assert [{key: float(value) for key, value in row.items()} for row in kept[:REPETITIONS]] == again
