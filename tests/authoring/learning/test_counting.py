"""Counts of random recordings are those of a slow count, however the rows are cut into batches and files."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from monitor.authoring.learning.batch import RowBatch
from monitor.authoring.learning.columns import Roles, Timing
from monitor.authoring.learning.learner import Learner
from monitor.authoring.learning.state_codes import ENDS, MAX_LABELS
from monitor.authoring.learning.states import States, numbered
from monitor.authoring.learning.tally import ranks_within
from monitor.errors import ModelError, RecordingError
from monitor.model import MDP
from monitor.model.npz import model_sha256
from tests.authoring.learning.recorded import Slow, learned, random_rows, roles, slowly

CASES: list[tuple[Timing, bool]] = [("step", False), ("step", True), ("state", False)]


def state_of(where: States, kind: tuple[str, Any]) -> int:
    name, what = kind
    if name == "x":
        return int(what)
    code = ENDS + 2 * what + 1 if name == "ended" else 2 * what[1] + (1 << MAX_LABELS)
    return where.base + int(np.flatnonzero(where.ends == code)[0])


def agree(model: MDP, slow: Slow, where: States) -> None:
    """The model's rows are those of the slow count."""
    assert model.counts is not None
    order = list(slow.draws)
    for state in range(where.base):
        for action in range(model.actions):
            successors, probabilities = model.row(state, action)
            lo, hi = model.indptr[state * model.actions + action], model.indptr[state * model.actions + action + 1]
            drawn = [(state_of(where, kind), reward) for kind, reward in slow.draws.get((state, action), [])]
            if not drawn:
                assert successors.tolist() == [model.states - 1]
                assert model.counts.order[state * model.actions + action] == 0
                continue
            targets = [target for target, _ in drawn]
            assert successors.tolist() == sorted(set(targets))
            assert model.counts.order[state * model.actions + action] == order.index((state, action)) + 1
            assert model.counts.visits[lo:hi].tolist() == [targets.count(t) for t in successors.tolist()]
            since = [len(targets) - 1 - targets.index(t) for t in successors.tolist()]
            assert model.counts.since[lo:hi].tolist() == since
            mean = [(targets.count(t) + 1 / len(set(targets))) / (len(targets) + 1) for t in successors.tolist()]
            np.testing.assert_allclose(probabilities, mean, rtol=1e-12)
            for target in successors.tolist():
                earned = [reward for each, reward in drawn if each == target]
                assert model.reward(state, action, target) == pytest.approx(np.mean(earned), abs=1e-12)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize(("timing", "after"), CASES)
def test_counts_are_those_of_a_slow_count(timing: Timing, seed: int, *, after: bool) -> None:
    rows = random_rows(np.random.default_rng(seed), episodes=40, finals=timing == "step")
    learner = learned([rows], 7 if seed % 2 else 1000, roles(timing, after=after))
    assert learner.states is not None
    model, slow, where = (
        learner.model("random"),
        slowly(rows, timing, after=after),
        numbered(learner.tally, learner.states),
    )
    agree(model, slow, where)
    starts = np.array([slow.starts[s] for s in range(where.base)])
    assert model.initial is not None
    np.testing.assert_allclose(model.initial[: where.base], starts / starts.sum())
    for kind, held in slow.visits.items():
        for i, label in enumerate(("high", "bad")):
            assert model.labels[label][state_of(where, kind)] == (2 * sum(h[i] for h in held) > len(held)), (
                kind,
                label,
            )
    assert model.labels["bad"][-1]
    assert not model.labels["high"][-1]
    assert model.labels["terminal"].sum() == len(where.ends)


@pytest.mark.parametrize(("timing", "after"), CASES)
def test_batches_do_not_matter(timing: Timing, *, after: bool) -> None:
    rows = random_rows(np.random.default_rng(99), episodes=60)
    models = {model_sha256(learned([rows], n, roles(timing, after=after)).model("m")) for n in (1, 2, 13, 10_000)}
    assert len(models) == 1


def test_an_end_that_is_not_recorded_is_the_end_of_every_state() -> None:
    columns = {"x": np.array([0, 1, 0]), "a": np.array([0, 0, 0]), "done": np.array([False, True, False])}
    learner = Learner.new(Roles(("x",), "a", terminated="done"), None, [], 1.0)
    learner.read(RowBatch(columns, 1, "rows"))
    model = learner.model("m")
    assert model.ended_as is not None
    assert model.ended_as.tolist() == [2, 2, 2, 3]
    assert model.row(1, 0)[0].tolist() == [2]
    assert model.state_names == ("0", "1", "unseen_end", "elsewhere")


def test_an_episode_that_is_over_in_its_first_state_is_an_end_and_no_start() -> None:
    columns = {"ep": [0, 1, 2, 2], "x": [1, 2, 0, 1], "a": [0, 0, 0, 0], "done": [True, True, False, False]}
    learner = Learner.new(Roles(("x",), "a", "ep", terminated="done", timing="state"), None, [], 1.0)
    learner.read(RowBatch({name: np.array(each) for name, each in columns.items()}, 1, "rows"))
    model = learner.model("m")
    assert model.initial is not None
    assert model.initial.tolist() == [1, 0, 0, 0, 0, 0]
    assert learner.tally.visited["starts"].sum() == 3
    assert learner.tally.alone == 2


def test_a_file_without_episodes_is_cut_where_its_order_falls() -> None:
    columns = {"x": np.array([0, 1, 2, 0, 1]), "a": np.zeros(5, np.int64), "t": np.array([0, 1, 2, 0, 1])}
    learner = Learner.new(Roles(("x",), "a", order="t"), None, [], 1.0)
    learner.read(RowBatch(columns, 1, "rows"))
    assert learner.tally.draws == 3
    assert learner.tally.visited["starts"].sum() == 2


def test_nothing_counted_is_no_model() -> None:
    learner = Learner.new(Roles(("x",), "a"), None, [], 1.0)
    with pytest.raises(ModelError, match="no rows"):
        learner.model("m")
    learner.read(RowBatch({"x": np.array([0]), "a": np.array([0])}, 1, "rows"))
    with pytest.raises(ModelError, match="no step from one state"):
        learner.model("m")
    with pytest.raises(ModelError, match="pseudo-count"):
        Learner.new(Roles(("x",), "a"), None, [], 0.0)


@pytest.mark.parametrize(
    ("column", "values", "problem"),
    [
        ("x", [0, -3, 1], "row 2: x = '-3' is not an index"),
        ("a", [0.0, 2.0**60, 1.0], "row 2: a = '1.152921504606847e.18' is larger than 2.53"),
        ("ep", [7.0, 2.0**60, 7.0], "row 2: column 'ep' is 1152921504606846976: numbers beyond 2.53 are not exact"),
        ("r", ["x", "y", "z"], "row 1: column 'r' is 'x'; numbers are needed"),
    ],
)
def test_rows_that_make_no_sense_are_refused(column: str, values: list[Any], problem: str) -> None:
    columns: dict[str, Any] = {"ep": [7, 7, 7], "t": [0, 1, 2], "x": [0, 1, 2], "a": [0, 0, 0], "r": [0.0, 0.0, 0.0]}
    columns |= {"done": [0, 0, 0], column: values}
    learner = Learner.new(Roles(("x",), "a", "ep", "t", "r", "done"), None, [], 1.0)
    with pytest.raises((RecordingError, ModelError), match=problem.replace("(", r"\(")):
        learner.read(RowBatch({name: np.array(each) for name, each in columns.items()}, 1, "rows"))


def test_ranks_within_groups() -> None:
    assert ranks_within(np.zeros(0, np.int64)).tolist() == []
    assert ranks_within(np.array([2, 1, 2, 2, 1])).tolist() == [0, 0, 1, 2, 1]
