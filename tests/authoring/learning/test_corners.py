"""Rare inputs of the pure parts, and recordings as other tools write them."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from monitor.authoring.learning.abstraction import Numbering
from monitor.authoring.learning.batch import RowBatch, as_flags, as_numbers, typed
from monitor.authoring.learning.columns import Roles, guessed
from monitor.authoring.learning.companion import load_learner, save_learner
from monitor.authoring.learning.learner import Learner
from monitor.authoring.learning.row_files import open_rows
from monitor.authoring.learning.tally import ACTION_BITS
from monitor.errors import ModelError, RecordingError


def batch(**columns: object) -> RowBatch:
    return RowBatch({name: np.array(values) for name, values in columns.items()}, 1, "f")


def test_columns_of_a_batch() -> None:
    rows = batch(text=["", ""], flag=[True, False], number=[0.0, float("nan")], words=["yes", "No"])
    assert len(RowBatch({}, 1, "f")) == 0
    assert np.isnan(as_numbers(rows, "text")).all()
    assert as_flags(rows, "flag").tolist() == [True, False]
    assert as_flags(rows, "number").tolist() == [False, False]
    assert as_flags(rows, "words").tolist() == [True, False]
    with pytest.raises(RecordingError, match="there is no column 'z'; it has text, flag"):
        rows.column("z")


def test_types_of_columns() -> None:
    def read(values: Sequence[object], known: str | None = None) -> tuple[list[object], list[int]]:
        found, odd = typed(values, known)
        return [None if value != value else value for value in found.tolist()], odd.tolist()  # noqa: PLR0124 - NaN

    assert read(["1", "2"]) == ([1, 2], [])
    assert read([1, 2.5], "i") == ([1.0, 2.5], [])
    assert read(["a", None]) == (["a", ""], [])
    assert read([True, 1], "b") == ([1, 1], []), "a marker may be both"
    assert read([True, "x"], "b") == ([True, False], [1])
    assert read([1.0, "x"], "f") == ([1.0, None], [1])
    assert read(["x"] + ["1"] * 20) == ([0] + [1] * 20, [0])
    assert read(["1.5", "x", "2"], "f") == ([1.5, None, 2.0], [1])
    assert read(["1", "x", "2.5"], "i") == ([1.0, None, 2.5], [1])
    assert read([[1]], "U") == ([""], [0])
    assert read([10**30], "i") == ([1e30], [])
    assert read(["1", "NA", "n/a", "None", ""]) == ([1, None, None, None, None], [])
    assert read(["none", "left", "1"]) == (["none", "left", "1"], []), "text is text"
    assert read(["none", "none"]) == (["none", "none"], [])
    assert read(["TRUE", "", "false", "null"]) == ([1, None, 0, None], [])
    assert read(["", "leak", *[""] * 30]) == (["", "leak", *[""] * 30], []), "a text that is rare is no mistake"
    assert read([True, None, False]) == ([1, None, 0], [])
    assert read(["", "true"], "b") == ([None, 1], [])
    assert read(["true", ""], "f") == ([1, None], []), "as the column began with a missing value"


def test_a_large_index_makes_no_large_model() -> None:
    large = {"x": [0, 4_194_303, 0], "a": [0, 1, 0]}
    learner = Learner.new(Roles(("x",), "a"), None, [], 1.0)
    learner.read(batch(**large))
    with pytest.raises(
        ModelError, match=r"pairs, of which 2 were recorded; a model has at most 1,048,576, and 100 more"
    ):
        learner.model("m")
    by_value = Learner.new(Roles(("x",), "a"), Numbering("values", ("x",)), [], 1.0)
    by_value.read(batch(**large))
    assert by_value.model("m").states == 3
    by_level = Learner.new(Roles(("x",), "a"), None, [], 1.0)
    by_level.read(batch(x=[0, 9000, 0], a=[0, 16_383, 0]))
    assert by_level.model("m").actions == 2


def test_too_many_actions_are_refused() -> None:
    most = 1 << ACTION_BITS
    learner = Learner.new(Roles(("x",), "a"), None, [], 1.0)
    with pytest.raises(ModelError, match="16,384 actions can be learned"):
        learner.read(batch(x=np.zeros(most + 2, np.int64), a=np.arange(most + 2)))


def test_a_column_of_which_all_is_missing_has_no_numbers() -> None:
    assert Numbering("index", ("a",)).encode(batch(a=[np.nan, np.nan]), ("a",)).tolist() == [-1, -1]


def test_names_of_states_differ_and_large_models_have_none(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = Learner.new(Roles(("x",), "a"), None, [], 1.0)
    learner.read(batch(x=["elsewhere", "b\x07", "b?", "elsewhere"], a=[0, 0, 0, 0]))
    assert learner.model("m").state_names == ("elsewhere", "b?", "b? (2)", "elsewhere (3)")
    monkeypatch.setattr("monitor.authoring.learning.learned_model.NAMED", 3)
    assert learner.model("m").state_names == ()
    bins = Numbering("bins", ("x", "y"), (np.array([-np.inf, np.inf]), np.array([-np.inf, 1.0, 2.0, np.inf])))
    binned = Learner.new(Roles(("x", "y"), "a"), bins, [], 1.0)
    binned.read(batch(x=[0.0, 0.0], y=[0.0, 1.5], a=[0, 0]))
    monkeypatch.undo()
    assert binned.model("m").state_names[:2] == ("any x, y < 1", "any x, 1 <= y < 2")


def test_a_companion_that_cannot_be_written_or_is_of_another_format(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = Learner.new(Roles(("x",), "a"), None, [], 1.0)
    save_learner(learner, tmp_path / "empty.learn.npz")
    assert load_learner(tmp_path / "empty.learn.npz").states is None
    with pytest.raises(ModelError, match="cannot be written"):
        save_learner(learner, tmp_path / "no" / "m.learn.npz")
    with monkeypatch.context() as patch:
        patch.setattr("monitor.authoring.learning.companion.FORMAT", 9)
        save_learner(learner, tmp_path / "empty.learn.npz")
    with pytest.raises(ModelError, match="its format is 9; this version reads 5: learn"):
        load_learner(tmp_path / "empty.learn.npz")


def test_episodes_of_lerobot_are_read(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    parquet = importlib.import_module("pyarrow.parquet")
    rows = [
        {"observation.state": [float(t), float(e)], "action": t % 2, "timestamp": t / 30, "frame_index": t,
         "episode_index": e, "index": 4 * e + t, "task_index": 0, "next.reward": float(t == 3), "next.done": t == 3}
        for e in range(3) for t in range(4)
    ]  # fmt: skip
    path = tmp_path / "episode_000000.parquet"
    parquet.write_table(pa.Table.from_pylist(rows), path)
    source = open_rows(path)
    roles = guessed(source.names(), {}, str(path))
    assert roles.state == ("observation.state[0]", "observation.state[1]")
    assert (roles.episode, roles.order, roles.timing) == ("episode_index", "frame_index", "step")
    learner = Learner.new(roles, None, [], 1.0)
    for each in source.batches(roles.used):
        learner.read(each)
    model = learner.model("lerobot")
    assert model.states == 14
    assert model.row(3, 1)[0].tolist() == [12]
    assert model.reward(3, 1, 12) == 1.0
