"""The files handed to `check`: three ways to write a path, and what is wrong with it, line by line."""

from __future__ import annotations

from pathlib import Path

import pytest

from monitor.cli.input_files import data_file, read_formulas, read_path, read_policy
from monitor.errors import PathError, PolicyError
from monitor.model import MDP
from monitor.policy import PolicyTable

MODEL = MDP.from_transitions(states=2, actions=2, transitions=[(s, a, a, 1.0) for s in (0, 1) for a in (0, 1)])


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("path.json", "[[0, 1], [1, 0], [0, null]]"),
        ("path.json", '[{"state": 0, "action": 1}, [1, 0], {"state": 0}]'),
        ("path.jsonl", "[0, 1]\n\n[1, 0]\n[0]\n"),
        ("path.csv", "state,action\n0,1\n1, 0\n0,\n"),
        ("path.csv", "0,1\n1,0\n0"),
    ],
)
def test_all_forms_give_the_same_path(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    assert read_path(tmp_path / name, MODEL) == [(0, 1), (1, 0), (0, None)]


def test_a_single_line_is_a_path_of_one_pair(tmp_path: Path) -> None:
    (tmp_path / "path.jsonl").write_text("[0, 1]\n")
    assert read_path(tmp_path / "path.jsonl", MODEL) == [(0, 1)]


def test_only_the_last_state_of_a_terminated_path_is_its_copy(tmp_path: Path) -> None:
    copied = MDP.from_transitions(
        states=2, actions=2, transitions=[(s, a, a, 1.0) for s in (0, 1) for a in (0, 1)], ended_as=[1, 1]
    )
    (tmp_path / "path.json").write_text("[[0, 0], [0, 1], [0, null]]")
    assert read_path(tmp_path / "path.json", copied, terminated=True) == [(0, 0), (0, 1), (1, None)]
    assert read_path(tmp_path / "path.json", copied) == [(0, 0), (0, 1), (0, None)]
    assert read_path(tmp_path / "path.json", MODEL, terminated=True) == [(0, 0), (0, 1), (0, None)]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("path.jsonl", "[0, 1]\n[1, 0\n", "line 2, column"),
        ("path.jsonl", "[0, 1]\n[7, 0]\n", "line 2: "),
        ("path.csv", "state,action\n0,1\n0,9\n", "line 3: "),
        ("path.csv", "0,1,2\n", "line 1: expected [state, action]"),
        ("path.json", "[[0, 1], [0, true]]", "pair 2: true is not an action"),
        ("path.json", "[[0, null], [0, 1]]", "pair 1: only the last pair may lack its action"),
        ("path.json", "[]", "the path is empty"),
        ("path.json", '{"a": 1}', "line 1: expected [state, action]"),
    ],
)
def test_errors_name_file_and_line(tmp_path: Path, name: str, text: str, message: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(PathError) as error:
        read_path(tmp_path / name, MODEL)
    assert str(tmp_path / name) in str(error.value)
    assert message in str(error.value)


def test_indented_lines_continue_a_formula_and_comments_count_for_nothing(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("// head\na\n  b // c\n\nd\n// tail\n")
    assert [formula.split() for formula in read_formulas(tmp_path / "f")] == [["a", "b", "//", "c"], ["d"]]
    assert read_formulas(tmp_path / "f")[1] == "\n\n\n\nd"  # its first line is the file's fifth


def test_a_policy_file_is_checked_against_the_model(tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text("[1, 0]")
    table = read_policy(tmp_path / "p.json", MODEL)
    assert isinstance(table, PolicyTable)
    assert table.actions is not None
    assert table.actions.tolist() == [1, 0]
    (tmp_path / "p.json").write_text("[1, 0, 1]")
    with pytest.raises(PolicyError, match=r"p\.json"):
        read_policy(tmp_path / "p.json", MODEL)
    (tmp_path / "p.json").write_text("[1, 0")
    with pytest.raises(PolicyError, match="line 1: not JSON"):
        read_policy(tmp_path / "p.json", MODEL)


def test_the_shipped_configurations_are_found() -> None:
    assert data_file("config/icu-sepsis.yaml").is_file()
    assert data_file("config/frozen-lake.yaml").is_file()
