"""Functions of recorded columns: what they are called with, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")

from monitor.authoring.learning.columns import Roles
from monitor.authoring.learning.left_out import RowLimit
from monitor.authoring.learning.row_files import open_rows
from monitor.authoring.policy_export.classifiers import of_classifier
from monitor.authoring.policy_export.convert import on_first
from monitor.authoring.policy_export.original import ExportRequest
from monitor.authoring.policy_export.policy_columns import PolicyRows, offered, policy_rows
from monitor.authoring.policy_export.row_functions import RowFunction
from monitor.authoring.policy_export.table_files import read_table
from monitor.errors import PolicyError
from monitor.model import MDP
from monitor.policy.draft import draft_manifest
from monitor.policy.export import table_onnx
from monitor.policy.onnx_policy import table_from_onnx
from tests.authoring.policy_export import sources
from tests.policy.test_onnx_policy import built, helper, tensor

MODEL = MDP.from_transitions(
    states=1, actions=2, transitions=[(0, 0, 0, 1.0), (0, 1, 0, 1.0)], action_names=("stay", "go")
)
NONE = RowLimit.parsed("0")
ROWS = PolicyRows({"cell": ("A1", "B2", "A1"), "carts": (2, 0, 2), "load": (0.5, 1.0, 0.5)}, ("cell",))
OFFERED = tuple(ROWS.columns)


def test_parameters_named_like_columns_get_their_values() -> None:
    calls: list[Any] = []

    def act(cell: str, carts: int, *, patience: int = 3) -> str:
        calls.append((cell, carts, patience))
        return "go" if cell == "A1" and carts > 1 else "stay"

    found = RowFunction.of(act, OFFERED, "policy p")
    assert found.columns == ("cell", "carts")
    assert found.answers(ROWS, MODEL, NONE).values.tolist() == [1, 0, 1]
    assert sorted(set(calls)) == [("A1", 2, 3), ("B2", 0, 3)]
    assert all(type(each[1]) is int for each in calls), "whole numbers stay whole"


def test_one_parameter_of_another_name_gets_a_dict_of_all_columns() -> None:
    found = RowFunction.of(lambda obs: int(obs["load"] < 1 and obs["cell"] == "A1"), OFFERED, "policy p")
    assert found.answers(ROWS, MODEL, NONE).values.tolist() == [1, 0, 1]


def test_scores_are_taken_too() -> None:
    found = RowFunction.of(lambda row: [0.25, 0.75] if row["carts"] else [1.0, 0.0], OFFERED, "policy p")
    assert found.answers(ROWS, MODEL, NONE).values.tolist() == [[0.25, 0.75], [1.0, 0.0], [0.25, 0.75]]


def test_what_does_not_fit_names_the_columns() -> None:
    with pytest.raises(PolicyError, match=r"its parameters are cell, cart1, and the recordings have no column 'cart1'.*"
                                          r"a dict of all columns: cell, carts, load$"):  # fmt: skip
        RowFunction.of(lambda cell, cart1: (cell, cart1), OFFERED, "policy p")
    with pytest.raises(PolicyError, match=r"called with a dict of all columns cell='A1', carts=2, load=0.5: it failed "
                                          r"\(KeyError: 'speed'\)"):  # fmt: skip
        RowFunction.of(lambda row: row["speed"], OFFERED, "policy p").answers(ROWS, MODEL, NONE)
    with pytest.raises(PolicyError, match="called with the columns cell='A1': it returned 'jump', which is no action"):
        RowFunction.of(lambda cell: cell and "jump", OFFERED, "policy p").answers(ROWS, MODEL, NONE)


HOLES = PolicyRows(
    {"cell": ("A1", None, "A1", "B2"), "carts": (2, 0, None, 0), "load": (0.5, 1.0, 0.5, None)},
    ("cell",),
    places=tuple(("log.csv", n) for n in (3, 4, 9, 10)),
)
"""Rows of which some lack a value."""


@pytest.mark.parametrize(
    "act",
    [
        lambda cell, carts: int(cell == "A1") * (carts // 2),
        lambda row: int(row["cell"] == "A1") * (row["carts"] // 2),
        lambda row: int({**row}["cell"] == "A1") * ({**row}["carts"] // 2),
        lambda row: 0 if any(row[name] is None for name in ("cell", "carts")) else int(row["carts"] > 1),
        lambda row: 0 if row.get("cell") is None or row.get("carts") is None else int(row["carts"] > 1),
        lambda row: int("cell" in row and "carts" in row and row["carts"] > 1),
    ],
)
def test_nothing_is_asked_where_a_value_that_is_read_is_missing(act: Callable[..., int]) -> None:
    found = RowFunction.of(act, OFFERED, "policy p").answers(HOLES, MODEL, NONE)
    assert found.values.tolist() == [1, 0], "that the load is missing does not matter"
    assert found.rows.places == (("log.csv", 3), ("log.csv", 10))
    assert found.notes == ("on 2 rows a column that it reads is missing",)


def test_few_rows_on_which_a_function_fails_are_left_out_and_more_are_refused() -> None:
    def act(cell: str) -> int:
        return {"A1": 1}[cell]

    function = RowFunction.of(act, OFFERED, "policy p")
    function.tried(HOLES)
    found = function.answers(HOLES, MODEL, RowLimit.parsed("1"))
    assert (found.values.tolist(), found.rows.places) == ([1, 1], (("log.csv", 3), ("log.csv", 9)))
    assert found.notes == (
        "on 1 rows a column that it reads is missing",
        "on 1 rows it failed: policy p: log.csv, row 10: called with the columns cell='B2': it failed (KeyError: 'B2')",
    )
    with pytest.raises(PolicyError, match=r"row 10: .* so on 1 of 4 rows, more than --skip-bad 0"):
        function.answers(HOLES, MODEL, NONE)
    with pytest.raises(PolicyError, match=r"log.csv, row 3: called with a dict of all columns .*KeyError: 'speed'"):
        RowFunction.of(lambda row: row["speed"], OFFERED, "policy p").tried(HOLES)
    with pytest.raises(PolicyError, match="on none of 2 recorded rows it has all columns that it reads"):
        RowFunction.of(lambda row: 0 if row["cell"] == row["load"] + row["carts"] else 1, OFFERED, "p").answers(
            HOLES[np.array([1, 2])], MODEL, NONE
        )


def test_memory_is_noticed() -> None:
    seen: list[object] = []

    def act(cell: str) -> int:
        seen.append(cell)
        return len(seen) % 2

    with pytest.raises(PolicyError, match="when called again"):
        RowFunction.of(act, OFFERED, "policy p").answers(ROWS, MODEL, NONE)


def test_rows_of_a_recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [f"{n // 4},{'ab'[n % 2]},{n},{'' if n == 5 else n / 2},{n % 3},{int(n % 4 == 3)}" for n in range(40)]
    (tmp_path / "r.csv").write_text("\n".join(["run,mode,load,heat,act,done", *lines]))
    roles = Roles(("mode", "heat"), "act", episode="run", terminated="done")
    assert offered(("run", "mode", "load", "heat", "act", "done"), roles) == ("run", "mode", "load", "heat")
    rows = policy_rows([open_rows(tmp_path / "r.csv")], roles)
    assert len(rows) == 39, "one lacks its state"
    assert rows.columns["mode"][:3] == ("a", "b", "a")
    assert rows.columns["load"][4:6] == (4, 6)
    assert rows.numbers(("load", "heat"), "policy p")[-1].tolist() == [39.0, 19.5]
    with pytest.raises(PolicyError, match=r"column 'mode' holds text such as 'a'; give a function of the columns, "
                                          r"def act\(mode, heat\)"):  # fmt: skip
        rows.numbers(("mode", "heat"), "policy p")
    monkeypatch.setattr("monitor.authoring.policy_export.policy_columns.MOST", 10)
    few = policy_rows([open_rows(tmp_path / "r.csv")], roles, lambda batch: np.arange(len(batch)) % 7 - 1)
    assert 5 <= len(few) <= 10
    assert few.of is not None
    assert len(few.of) == len(few)
    assert (few.of >= 0).all()


def test_only_what_depends_on_the_width_is_said_to() -> None:
    tables = [
        MDP.from_transitions(states=1, actions=1, transitions=[(0, 0, 0, 1.0)], observations=np.zeros((1, width)))
        for width in (3, 5)
    ]

    def width_of(model: MDP) -> int:
        assert model.observations is not None
        return int(model.observations.shape[1])

    def of_four(model: MDP) -> int:
        raise PolicyError(f"policy p: it takes 4 features, not {width_of(model)}")

    def missing(_: MDP) -> int:
        raise PolicyError("policy p: there is no such file")

    with pytest.raises(PolicyError, match=r"not 3\. It takes neither 3 nor 5 numbers"):
        on_first(tables, of_four)
    with pytest.raises(PolicyError, match=r"^policy p: there is no such file$"):
        on_first(tables, missing)


LEVELS = MDP.from_transitions(
    states=3,
    actions=3,
    transitions=[(s, a, a, 1.0) for s in range(3) for a in range(3)],
    observations=[[0.0], [1.0], [2.0]],
    action_names=("0", "40", "100"),
)


@pytest.mark.parametrize("forty", [40, 40.0, np.int64(40), np.array([40]), "40"])
def test_functions_return_levels_as_the_log_has_them(forty: object) -> None:
    found = RowFunction.of(lambda row: forty if row["carts"] else 0, OFFERED, "policy p")
    assert found.answers(ROWS, LEVELS, NONE).values.tolist() == [1, 0, 1]


@pytest.mark.parametrize("index", [1, 2, 40.5, True])
def test_the_index_of_a_level_is_no_answer(index: object) -> None:
    found = RowFunction.of(lambda row: index if row["carts"] else 0, OFFERED, "policy p")
    with pytest.raises(
        PolicyError, match=r"which is no action \(.* is not an action of the model \(one of 0, 40, 100\)"
    ):
        found.answers(ROWS, LEVELS, NONE)


def test_flags_are_answers_where_actions_are_two() -> None:
    found = RowFunction.of(lambda row: row["carts"] > 0, OFFERED, "policy p")
    assert found.answers(ROWS, MODEL, NONE).values.tolist() == [1, 0, 1]


def test_tables_and_classes_of_levels(tmp_path: Path) -> None:
    request = ExportRequest(str(tmp_path / "p.json"))
    for name, content in (("p.json", "[100, 0, 40.0]"), ("p.csv", "100\n0\n40\n")):
        (tmp_path / name).write_text(content)
        table = read_table(LEVELS, ExportRequest(str(tmp_path / name)))
        assert table.actions is not None
        assert table.actions.tolist() == [2, 0, 1]
    original = of_classifier(sources.Says([0, 40, 100]), LEVELS, request)
    assert original.actions is not None
    assert original.actions.tolist() == [0, 1, 1]
    assert "its classes are the names of actions" in original.assumed
    with pytest.raises(PolicyError, match=r"1 is not an action of the model \(one of 0, 40, 100\)"):
        of_classifier(sources.Says([0, 1, 2]), LEVELS, request)


def test_what_a_network_says_is_a_level_or_the_scores_of_levels_in_their_order() -> None:
    manifest, assumed = draft_manifest(levels_of(100, 0, 40), Path("p.onnx"), LEVELS)
    table = table_from_onnx(levels_of(100, 0, 40), manifest, LEVELS, "p.onnx")
    assert np.asarray(table.actions).tolist() == [2, 0, 1]
    assert not any("column" in each for each in assumed)
    with pytest.raises(PolicyError, match=r"it chooses 1, which is no action of the model \(one of 0, 40, 100\)"):
        draft_manifest(levels_of(0, 1, 40), Path("p.onnx"), LEVELS)
    scores = table_onnx(np.eye(3), "index", "q_values")
    assert "column k is the k-th of the actions 0, 40, 100" in draft_manifest(scores, Path("p.onnx"), LEVELS)[1]


def levels_of(*numbers: int) -> bytes:
    """A network that looks up a number by that of a state."""
    nodes = [helper.make_node("Gather", ["table", "state"], ["action"])]
    return built(
        nodes, [tensor("state", "INT64", ["n"])], [tensor("action", "INT64", ["n"])], {"table": np.array(numbers)}
    )
