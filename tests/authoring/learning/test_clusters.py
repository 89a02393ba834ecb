"""Clusters of observations: their centres, and the nearest one of live and recorded states."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from monitor.authoring.learning.abstraction import DISTANCES, Numbering
from monitor.authoring.learning.batch import RowBatch
from monitor.authoring.learning.bins import Reservoir
from monitor.authoring.learning.columns import Roles
from monitor.authoring.learning.companion import load_learner, save_learner
from monitor.authoring.learning.learner import Learner
from monitor.authoring.learning.state_clusters import centres_of, parsed_clusters
from monitor.errors import ModelError, RecordingError
from monitor.model import encode_state
from monitor.model.centres import CELLS, Centres


def sample(rows: np.ndarray) -> Reservoir:
    kept = Reservoir(rows.shape[1], np.random.default_rng(0))
    kept.add(rows)
    return kept


def slowly_nearest(centres: Centres, row: list[float]) -> int:
    """The first of the nearest centres, in rational arithmetic."""
    squares = [
        sum(
            ((Fraction(x) - Fraction(c)) / Fraction(scale)) ** 2
            for x, c, scale in zip(row, point, centres.scales.tolist(), strict=True)
        )
        for point in centres.points.tolist()
    ]
    return squares.index(min(squares))


def test_the_nearest_centre_is_that_of_rational_arithmetic_with_ties_to_the_lowest() -> None:
    rng = np.random.default_rng(4)
    ties = 0
    for _ in range(20):
        points = np.unique(rng.integers(-3, 4, size=(7, 2)), axis=0).astype(float)
        centres = Centres(points[rng.permutation(len(points))], np.array([1.0, 0.5]))
        rows = rng.integers(-8, 9, size=(60, 2)) / 2
        chosen, distance = centres.nearest(rows)
        assert chosen.tolist() == [slowly_nearest(centres, row) for row in rows.tolist()]
        lengths = np.sqrt((((rows[:, None] - centres.points) / centres.scales) ** 2).sum(axis=2))
        np.testing.assert_allclose(distance, lengths.min(axis=1), rtol=1e-12)
        ties += int((np.isclose(lengths, lengths.min(axis=1)[:, None]).sum(axis=1) > 1).sum())
    assert ties > 100  # else the order of equal distances is not tested


def test_a_row_has_the_same_centre_alone_as_among_many() -> None:
    rng = np.random.default_rng(1)
    centres = Centres(rng.normal(size=(40, 5)), rng.uniform(0.1, 3, 5))
    rows = rng.normal(size=(CELLS // 40 + 100, 5))  # in more than one part
    chosen, distance = centres.nearest(rows)
    for i in (*range(50), *range(len(rows) - 150, len(rows))):
        alone = centres.nearest(rows[i : i + 1])
        assert (alone[0][0], alone[1][0]) == (chosen[i], distance[i])


def test_centres_of_separate_groups_are_their_means_in_ascending_order() -> None:
    rng = np.random.default_rng(2)
    means = np.array([[0.0, 1000.0], [10.0, 1000.0], [10.0, 5000.0]])
    rows = np.concatenate([mean + rng.normal(size=(500, 2)) * [0.3, 30.0] for mean in means])
    centres = centres_of(("x", "y"), 3, sample(rows), np.random.default_rng(0))
    np.testing.assert_allclose(centres.points, rows.reshape(3, 500, 2).mean(axis=1), rtol=1e-9)
    np.testing.assert_allclose(centres.scales, rows.std(axis=0), rtol=1e-12)
    again = centres_of(("x", "y"), 3, sample(rows), np.random.default_rng(0))
    assert np.array_equal(centres.points, again.points)


def test_each_centre_is_the_mean_of_its_rows_and_columns_count_alike() -> None:
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(3000, 2)) * [1.0, 1e6] + [0.0, 1e9]
    centres = centres_of(("x", "y"), 6, sample(rows), np.random.default_rng(0))
    chosen, _ = centres.nearest(rows)
    assert set(chosen.tolist()) == set(range(len(centres.points)))
    for k, point in enumerate(centres.points):
        off = (rows[chosen == k].mean(axis=0) - point) / centres.scales
        assert np.abs(off).max() < 0.1  # Lloyd's algorithm ends after some rounds
    spread = np.ptp(centres.points, axis=0) / centres.scales
    assert spread.min() > 1.5


def test_few_different_rows_are_centres_themselves() -> None:
    rows = np.array([[2.0, 7.0], [1.0, 7.0], [2.0, 7.0], [1.0, 7.0]])
    centres = centres_of(("x", "y"), 5, sample(rows), np.random.default_rng(0))
    assert centres.points.tolist() == [[1.0, 7.0], [2.0, 7.0]]
    assert centres.scales.tolist() == [0.5, 1.0]


@pytest.mark.parametrize("text", ["kmeans:0", "kmeans:", "kmeans:x", "kmeans:10001", "kmeans:-3"])
def test_a_number_of_clusters_is_checked(text: str) -> None:
    assert parsed_clusters("index") is None
    with pytest.raises(ModelError, match="give 1 to 10,000 clusters, such as kmeans:50"):
        parsed_clusters(text)


def test_numbers_too_large_for_clusters_are_refused() -> None:
    rows = np.array([[0.0, 0.0], [1.0, 1e200], [2.0, -1e200], [3.0, 5.0]])
    with pytest.raises(RecordingError, match="column 'y': its numbers are too large"):
        centres_of(("x", "y"), 2, sample(rows), np.random.default_rng(0))


def learner(centres: Centres, rows: np.ndarray) -> Learner:
    columns = {name: rows[:, i] for i, name in enumerate("xy")}
    found = Learner.new(Roles(("x", "y"), "a"), Numbering("nearest", ("x", "y"), centres=centres), [], 1.0)
    found.read(RowBatch({**columns, "a": np.zeros(len(rows), np.int64)}, 1, "f"))
    return found


def test_a_live_state_is_encoded_as_the_recorded_one_and_distances_are_counted(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    rows = rng.normal(size=(400, 2)).round(1)
    rows[17] = [40.0, -3.0]
    centres = centres_of(("x", "y"), 9, sample(rows), np.random.default_rng(0))
    learned = learner(centres, rows)
    model = learned.model("m")
    assert learned.states is not None
    recorded = centres.nearest(rows)[0].tolist()
    assert [encode_state(model, "nearest", tuple(row)) for row in rows.tolist()] == recorded
    assert model.states == len(centres.points) + 1
    first = centres.points[0]
    assert model.state_names[0] == f"near x={first[0]:.4g}, y={first[1]:.4g}"
    distance = centres.nearest(rows)[1]
    counts = np.histogram(distance, [-1.0, *DISTANCES, np.inf])[0]
    assert learned.states.distances.tolist() == counts.tolist()
    assert learned.states.farthest == distance.max()
    save_learner(learned, tmp_path / "c.npz")
    again = load_learner(tmp_path / "c.npz")
    assert again.states is not None
    assert again.states.distances.tolist() == counts.tolist()
    assert again.states.farthest == distance.max()
    assert np.array_equal(again.model("m").centres.points, centres.points)  # type: ignore[union-attr]


def test_what_is_not_finite_or_no_number_is_refused() -> None:
    centres = Centres(np.array([[0.0, 0.0], [1.0, 1.0]]), np.ones(2))
    rows = np.zeros((3, 2))
    rows[1, 1] = np.inf
    assert learner(centres, rows).left_out.counts == {"'y' is empty or not finite": 1}
    text = RowBatch({"x": np.array(["a"]), "y": np.array([0.0])}, 1, "f")
    with pytest.raises(RecordingError, match="f, row 1: x, y = 'a' is text; clusters need numbers"):
        Numbering("nearest", ("x", "y"), centres=centres).encode(text, ("x", "y"))
