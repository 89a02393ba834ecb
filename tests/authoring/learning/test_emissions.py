"""Counts of observations are those of a slow count, however the rows are cut into batches and files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from monitor.authoring.learning.columns import Timing
from monitor.authoring.learning.companion import load_learner, save_learner
from monitor.authoring.learning.learner import Learner, labels_of
from monitor.errors import ModelError, RecordingError
from monitor.model import MDP
from monitor.model.npz import model_sha256
from tests.authoring.learning.recorded import LABELS, UNSAFE, Row, batches, random_rows, roles

CASES: list[tuple[Timing, bool]] = [("step", False), ("step", True), ("state", False)]
NAMES = ("dry", "wet", "icy")


def sensed(rng: np.random.Generator, episodes: int, *, numbers: bool = False) -> list[Row]:
    """Rows with an observation, which is missing at some; in state 3 it always is."""
    rows = random_rows(rng, episodes=episodes)
    for row in rows:
        shown = int(rng.integers(3)) if row["x"] else 1
        missing = row["x"] == 3 or rng.random() < 0.2
        row["seen"] = (np.nan if missing else float(shown)) if numbers else ("" if missing else NAMES[shown])
    return rows


def learned(files: list[list[Row]], size: int, timing: Timing, *, after: bool = False) -> Learner:
    columns = roles(timing, after=after)
    columns = type(columns)(**{**columns.__dict__, "signal": "seen"})
    learner = Learner.new(columns, None, labels_of(LABELS, UNSAFE, columns, tuple(files[0][0])), 1.0)
    for rows in files:
        for batch in batches(rows, size):
            learner.read(batch)
        learner.end_file()
    return learner


def assert_counted(model: MDP, rows: list[Row]) -> None:
    """Each row counts its own pair, if it has both parts."""
    emissions = model.emissions
    assert emissions is not None
    assert emissions.counts is not None
    names: list[Any] = list(emissions.names) or [float(n) for n in range(emissions.signals)]
    states = [int(name) if name.isdigit() else None for name in model.state_names]
    recorded = sorted({names.index(row["seen"]) for row in rows if row["seen"] in names})
    for state, known in enumerate(states):
        seen, chances = emissions.row(state)
        lo, hi = emissions.indptr[state], emissions.indptr[state + 1]
        shown = [names.index(row["seen"]) for row in rows if row["x"] == known and row["seen"] in names]
        if not shown:
            end = "end" in model.state_names[state]
            assert seen.tolist() == ([emissions.signals - 1] if end else recorded), model.state_names[state]
            assert np.allclose(chances, 1 / len(seen))
            assert not emissions.counts.visits[lo:hi].any()
            continue
        kinds = sorted(set(shown))
        assert seen.tolist() == kinds
        assert emissions.counts.visits[lo:hi].tolist() == [shown.count(kind) for kind in kinds]
        assert emissions.counts.since[lo:hi].tolist() == [len(shown) - 1 - shown.index(kind) for kind in kinds]
        assert np.allclose(chances, [(shown.count(k) + 1 / len(kinds)) / (len(shown) + 1) for k in kinds])


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("timing", "after"), CASES)
def test_each_recorded_pair_of_state_and_observation_counts(timing: Timing, seed: int, *, after: bool) -> None:
    rng = np.random.default_rng(seed)
    files = [sensed(rng, episodes, numbers=bool(seed % 2)) for episodes in (4, 9)]
    model = learned(files, 10_000, timing, after=after).model("test")
    for size in (1, 7):
        assert model_sha256(learned(files, size, timing, after=after).model("test")) == model_sha256(model)
    assert_counted(model, [row for rows in files for row in rows])
    without = Learner.new(
        columns := roles(timing, after=after), None, labels_of(LABELS, UNSAFE, columns, ("x", "a", "r")), 1.0
    )
    for rows in files:
        for batch in batches(rows, 10_000):
            without.read(batch)
        without.end_file()
    assert np.array_equal(without.model("test").probabilities, model.probabilities), "transitions are those of before"


def test_counts_survive_the_companion(tmp_path: Path) -> None:
    files = [sensed(np.random.default_rng(seed), 6) for seed in range(2)]
    both, one = learned(files, 10_000, "step"), learned(files[:1], 10_000, "step")
    save_learner(one, tmp_path / "m.learn.npz")
    more = load_learner(tmp_path / "m.learn.npz")
    for batch in batches(files[1], 10_000):
        more.read(batch)
    more.end_file()
    assert model_sha256(more.model("test")) == model_sha256(both.model("test"))


@pytest.mark.parametrize(
    ("values", "error", "problem"),
    [
        ([0.5, 1.0], RecordingError, "has numbers that are not 0, 1, 2"),
        ([np.nan, np.nan], ModelError, "no observation was recorded; check the column of the observation"),
    ],
)
def test_columns_that_name_no_observations_are_refused(values: list[Any], error: type[Exception], problem: str) -> None:
    rows = random_rows(np.random.default_rng(0), episodes=3)
    for number, row in enumerate(rows):
        row["seen"] = values[number % 2]
    with pytest.raises(error, match=problem):
        learned([rows], 10_000, "step").model("test")
