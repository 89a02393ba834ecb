"""Comparison of abstractions: the same events for all, scored against a slow count, and the choice among them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from monitor.authoring.learning import candidates as trying
from monitor.authoring.learning.abstraction import Numbering
from monitor.authoring.learning.abstraction_scores import Scored, chosen, scored
from monitor.authoring.learning.batch import RowBatch
from monitor.authoring.learning.bins import Reservoir
from monitor.authoring.learning.candidates import Field, abstractions, fresh
from monitor.authoring.learning.columns import Roles, Timing
from monitor.authoring.learning.holdout import held_out
from monitor.authoring.learning.learner import labels_of
from monitor.authoring.learning.model_problem import ModelProblem
from monitor.authoring.learning.states import numbered
from monitor.errors import ModelError, RecordingError
from tests.authoring.learning.recorded import LABELS, UNSAFE, Row, batches, random_rows, roles

COLUMNS = Roles(("x", "y"), "a", "ep", "t", None, "done")


def plant(rng: np.random.Generator, episodes: int) -> list[Row]:
    """A position that drifts up or down by the action, and a column of noise; it fails above 1, sometimes."""
    rows: list[Row] = []
    for episode in range(episodes):
        x = rng.uniform(-1, 0.5)
        for t in range(40):
            action = int(rng.integers(2))
            done = bool(x > 1 and rng.random() < 0.5)
            rows.append({"ep": episode, "t": t, "x": x, "y": rng.normal(), "a": action, "done": done})
            if done:
                break
            x = float(np.clip(x + (0.25 if action else -0.25) + rng.normal(0, 0.5), -2, 2))
    return rows


def sample(rows: list[Row], columns: tuple[str, ...]) -> Reservoir:
    kept = Reservoir(len(columns), np.random.default_rng(0))
    kept.add(np.array([[float(row[name]) for name in columns] for row in rows]))
    return kept


def field_of(found: dict[str, Numbering], rows: list[Row], columns: Roles, *, size: int = 1000, seed: int = 0) -> Field:
    names = tuple(rows[0])
    labels = (
        labels_of(LABELS, UNSAFE, columns, names)
        if "r" in names
        else labels_of([], ["high: x > 1", "fell: done"], columns, names)
    )
    field = Field(found, columns, labels, 1.0, seed)
    for batch in batches(rows, size):
        field.read(batch)
    field.end_file()
    return field


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("timing", "after"), [("step", False), ("step", True), ("state", False)])
def test_events_are_those_of_a_slow_reading(timing: Timing, seed: int, *, after: bool) -> None:
    rows = random_rows(np.random.default_rng(seed), episodes=120)
    columns = roles(timing, after=after)
    field = field_of({"x": Numbering("index", ("x",))}, rows, columns, size=13 if seed % 2 else 1000, seed=seed)
    slow = _slow_events(rows, timing, after=after)
    number = {row["_n"]: row for row in slow}
    paths = field.outcomes.paths()
    out = held_out(np.array([number[key]["episode"] for key in sorted(number)]), seed, 0.2, 0.2)
    kept = [key for key, held in zip(sorted(number), out, strict=True) if held and number[key]["truth"]]
    assert list(dict.fromkeys(paths.tolist())) == kept
    for horizon in (1, 3):
        counts, happened = field.outcomes.events(horizon)
        at = 0
        for key in kept:
            truth, ended = number[key]["truth"], number[key]["ended"]
            for i in range(len(truth)):
                for label in range(2):
                    later = [each[label] for each in truth[i + 1 : i + 1 + horizon]]
                    due = not truth[i][label] and not (ended and i == len(truth) - 1)
                    due = due and (ended or len(later) == horizon)
                    assert counts[at, label] == due, (key, i, label)
                    if due:
                        assert happened[at, label] == any(later)
                at += 1
        assert at == len(paths)


def _slow_events(rows: list[Row], timing: Timing, *, after: bool) -> list[Row]:
    """For each path: numbers of its first row and its episode's, the labels after each step, whether it terminated."""
    found: dict[int, Row] = {}
    last: dict[int, tuple[Row | None, int, int]] = {}
    for n, row in enumerate(rows):
        before, path, episode = last.get(row["ep"], (None, -1, n))
        acts = not np.isnan(row["a"])
        final = timing == "step" and not acts and n > 0 and before is rows[n - 1]
        stopped = before is not None and (before["done"] or before["cut"]) and not final
        if before is None or stopped or row["t"] != before["t"] + 1:
            episode = n if stopped else episode
            before, path = None, n
            found[path] = {"_n": path, "episode": episode, "truth": [], "ended": False}
        truth = found[path]["truth"]
        acted = before is not None and not np.isnan(before["a"])
        if timing == "state":
            if acted:
                truth.append((row["x"] >= 2, row["done"] and row["r"] < 0))
                found[path]["ended"] |= row["done"]
        elif after:
            if acts:
                truth.append((row["after"] >= 2, row["done"] and row["r"] < 0))
                found[path]["ended"] |= row["done"]
        else:
            if acted and before is not None:
                ended = not acts and (row["done"] or before["done"])
                truth.append((row["x"] >= 2, ended and before["r"] + row["r"] < 0))
                found[path]["ended"] |= ended
            follows = rows[n + 1] if n + 1 < len(rows) else None
            has_final = follows is not None and follows["ep"] == row["ep"] and np.isnan(follows["a"])
            if row["done"] and acts and not has_final:
                truth.append((False, row["r"] < 0))  # whether x >= 2 there was not recorded
                found[path]["ended"] = True
        last[row["ep"]] = (row, path, episode)
    return list(found.values())


def test_the_score_is_the_loss_relative_to_that_of_the_frequency() -> None:
    rows = plant(np.random.default_rng(1), 150)
    bins = {"coarse": np.array([-np.inf, 0.0, np.inf]), "fine": np.array([-np.inf, 0.0, 0.5, 1.0, np.inf])}
    every = np.array([-np.inf, np.inf])
    field = field_of({name: Numbering("bins", ("x", "y"), (cuts, every)) for name, cuts in bins.items()}, rows, COLUMNS)
    table = scored(field.candidates, field.outcomes)
    assert [each.name for each in table] == ["coarse", "fine"]
    paths = field.outcomes.paths()
    slow, by_path = [], []
    for candidate in field.candidates:
        learner, held = candidate.learner, candidate.holdout.held()
        assert learner.states is not None
        where, model = numbered(learner.tally, learner.states), learner.model("m")
        counts = np.zeros((where.count, where.count))
        for key, visits in zip(candidate.holdout.train.transitions.keys.tolist(),
                               candidate.holdout.train.transitions["visits"].tolist(), strict=True):  # fmt: skip
            code = np.array([key & ((1 << 25) - 1)])
            counts[key >> 39, int(where.of(code)[0])] += visits
        chain = np.eye(where.count)
        seen = counts.sum(axis=1) > 0
        chain[seen] = counts[seen] / counts[seen].sum(axis=1, keepdims=True)
        relative, path_errors = [], np.zeros(paths.max() + 1)
        for label, name in enumerate(("high", "fell")):
            absorbing = chain.copy()
            absorbing[model.labels[name]] = np.eye(where.count)[model.labels[name]]
            for horizon in (1, 5, 20):
                due, happened = field.outcomes.events(horizon)
                after = where.of(held.code)
                forecast = (np.linalg.matrix_power(absorbing, horizon) @ model.labels[name])[after]
                use = due[:, label]
                truth, rate = happened[use, label], happened[use, label].mean()
                assert 0 < rate < 1
                visits = counts.sum(axis=1)[after][use]
                said = (forecast[use] * visits + rate) / (visits + 1)  # one more visit, as frequent as usual
                losses = -np.log(np.where(truth, said, 1 - said))
                usual = -rate * np.log(rate) - (1 - rate) * np.log(1 - rate)
                relative.append(losses.mean() / usual)
                np.add.at(path_errors, paths[use], losses / usual / len(truth) / 6)
        slow.append(np.mean(relative))
        by_path.append(path_errors)
    assert [each.score for each in table] == pytest.approx(slow, rel=1e-9)
    assert table[1].excess == 0 < table[0].excess == pytest.approx(slow[0] - slow[1])
    difference = (by_path[0] - by_path[1])[np.unique(paths)]
    assert table[0].error == pytest.approx(np.sqrt(len(difference)) * difference.std())


def test_bins_that_separate_the_label_beat_others_and_noise_is_not_preferred() -> None:
    rows = plant(np.random.default_rng(2), 1500)
    every = np.array([-np.inf, np.inf])
    cuts = np.concatenate([[-np.inf], np.linspace(-1.5, 1.5, 13), [np.inf]])
    found = {
        "noise": Numbering("bins", ("x", "y"), (every, cuts)),
        "coarse": Numbering("bins", ("x", "y"), (np.array([-np.inf, 0.0, np.inf]), every)),
        "position": Numbering("bins", ("x", "y"), (cuts, every)),
        "both": Numbering("bins", ("x", "y"), (cuts, np.array([-np.inf, 0.0, np.inf]))),
    }
    field = field_of(found, rows, COLUMNS)
    table = {each.name: each for each in scored(field.candidates, field.outcomes)}
    assert chosen(list(table.values())).name == "position"
    assert table["noise"].score > table["coarse"].score > table["position"].score
    assert table["position"].problems == ()
    assert any("high: " in problem for problem in table["noise"].problems)


def entry(name: str, states: int, score: float, error: float, *problems: str) -> Scored:
    return Scored(name, states, score, 0.0, tuple(map(ModelProblem, problems)), score - 0.5, error)


def test_the_choice_is_the_lowest_score_and_near_it_the_smallest_of_those_good_enough() -> None:
    best, near, far = entry("best", 90, 0.5, 0.0), entry("near", 20, 0.52, 0.03), entry("far", 5, 0.6, 0.05)
    assert chosen([best, near, far]).name == "near"
    assert chosen([far, best]).name == "best"
    assert chosen([near, replace(best, problems=(ModelProblem("not Markov"),))]).name == "near"
    clear = entry("clear", 90, 0.5, 0.0, "not Markov")
    assert chosen([clear, far]).name == "clear", "a worse score is not better for passing checks"
    world = replace(best, name="world", states=None)
    assert chosen([world, near]).name == "near", "the values of a table need not be drawn"
    lost = [entry("a", 9, 0.5, 0.0, "x"), entry("b", 3, 0.7, 0.1, "x"), entry("c", 4, 0.55, 0.1, "x")]
    assert chosen(lost).name == "c"


def test_candidates_are_columns_bins_and_clusters_each_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = plant(np.random.default_rng(3), 60)
    first = batches(rows, 10_000)[0]
    found = abstractions(first, ("x", "y"), sample(rows, ("x", "y")), 0)
    assert list(found)[:3] == ["--bins 2q", "--bins 3q", "--bins 4q"]
    assert "--abstraction kmeans:32" in found
    assert found["--bins 4q"].size == 16
    cut = abstractions(first, ("x", "y"), sample(rows, ("x", "y")), 0, also={"x": {float(rows[7]["x"])}})
    assert cut["--bins 4q"].size == 20
    few: list[Row] = [{"x": i % 3, "k": "ab"[i % 2], "a": 0} for i in range(100)]
    both = batches(few, 1000)[0]
    mixed = Reservoir(2, np.random.default_rng(0))
    mixed.read(both, ("x", "k"))
    named = abstractions(both, ("x", "k"), mixed, 0)
    assert list(named) == ["--abstraction values", "--bins 2q", "--bins 4q"], "clusters are of numbers"
    assert named["--bins 4q"].names == fresh(named["--bins 4q"]).names == ((), ("a", "b"))
    discrete = abstractions(both, ("x",), sample(few, ("x",)), 0)
    assert list(discrete) == ["--abstraction index", "--bins 2q", "--bins 4q"]  # 3q and 8q are the same again
    again = abstractions(first, ("x", "y"), sample(rows, ("x", "y")), 0)
    for name, numbering in found.items():
        other = again[name].centres
        assert numbering.centres is None or (
            other is not None and np.array_equal(numbering.centres.points, other.points)
        )
    used = found["--abstraction kmeans:8"]
    used.encode(first, ("x", "y"))
    assert fresh(used).farthest == 0 < used.farthest
    assert fresh(used).size == used.size
    monkeypatch.setattr(trying, "MOST", 5)
    assert list(abstractions(both, ("x", "k"), mixed, 0)) == ["--bins 2q"], "six tuples of values are too many"


def test_a_candidate_that_cannot_read_a_row_is_given_up_but_not_the_last_one(monkeypatch: pytest.MonkeyPatch) -> None:
    cuts = np.array([-np.inf, 0.5, np.inf])
    found = {"index": Numbering("index", ("x",)), "bins": Numbering("bins", ("x",), (cuts,))}
    columns = Roles(("x",), "a", "ep", "t")
    labels = labels_of(["high: x > 0.2"], [], columns, ("x", "a", "ep", "t"))
    field = Field(found, columns, labels, 1.0, 0)

    def batch(x: list[float], first: int) -> RowBatch:
        count = len(x)
        rows = {
            "x": np.array(x),
            "a": np.zeros(count, np.int64),
            "ep": np.arange(count) // 2 + first,
            "t": np.arange(count),
        }
        return RowBatch(rows, first, "f")

    field.read(batch([0.0, 1.0] * 20, 1))
    field.read(batch([0.0, 0.25] * 20, 41))
    assert [each.name for each in field.candidates] == ["bins"]
    assert "f, row 42: x = '0.25' is not an index" in field.lost["index"]
    assert len(field.outcomes.paths()) == len(field.candidates[0].holdout.held().code)
    with pytest.raises(RecordingError, match="f, row 81: x = '9' is text; its bins are for numbers"):
        field.read(RowBatch({**batch([0.0, 1.0], 81).columns, "x": np.array(["9", "9"])}, 81, "f"))
    monkeypatch.setattr(trying, "MOST", 1)
    small = Field({"index": Numbering("index", ("x",))}, columns, labels, 1.0, 0)
    with pytest.raises(ModelError, match="more than 1 states; leave columns out"):
        small.read(batch([0.0, 1.0], 1))


def test_labels_are_needed_that_sometimes_happen() -> None:
    columns = Roles(("x",), "a", "ep", "t")
    with pytest.raises(ModelError, match="give --unsafe or --label"):
        Field({}, columns, [], 1.0, 0)
    rows: list[Row] = [{"x": i % 2, "a": 0, "ep": i // 10, "t": i % 10} for i in range(2000)]
    labels = labels_of(["never: x > 5"], [], columns, ("x", "a", "ep", "t"))
    field = Field({"index": Numbering("index", ("x",))}, columns, labels, 1.0, 0)
    for batch in batches(rows, 500):
        field.read(batch)
    with pytest.raises(ModelError, match="none of never sometimes happens and sometimes not; record more"):
        scored(field.candidates, field.outcomes)
