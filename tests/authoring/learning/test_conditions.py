"""Conditions of labels on columns."""

from __future__ import annotations

import numpy as np
import pytest

from monitor.arrays import AnyArray
from monitor.authoring.learning.conditions import parsed
from monitor.errors import ModelError

COLUMNS: dict[str, AnyArray] = {
    "x": np.array([1.0, 3.0, 5.0]),
    "y": np.array([2, 2, 2]),
    "done": np.array([False, True, True]),
    "flag": np.array([0.0, 1.0, np.nan]),
    "kind": np.array(["a", "b", "c"]),
    "next.reward": np.array([-1.0, 0.0, 1.0]),
    "s[0]": np.array([7, 8, 9]),
    "odd name": np.array([1, 2, 3]),
}


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ("x > 2", [0, 1, 1]),
        ("1 < x <= 3", [0, 1, 0]),
        ("done", [0, 1, 1]),
        ("flag", [0, 1, 0]),
        ("not done or x == 5", [1, 0, 1]),
        ("done and x < 4", [0, 1, 0]),
        ("kind == 'b'", [0, 1, 0]),
        ("kind in ['a', 'c']", [1, 0, 1]),
        ("y not in (2, 3)", [0, 0, 0]),
        ("x in []", [0, 0, 0]),
        ("next.reward < 0", [1, 0, 0]),
        ("s[0] >= 8", [0, 1, 1]),
        ("column('odd name') == 3", [0, 0, 1]),
        ("abs(x - 3) * 2 > -1 + y / 2 + 1", [1, 0, 1]),
        ("-x < -4", [0, 0, 1]),
        ("x != y + 1", [1, 0, 1]),
        ("1 < 2", [1, 1, 1]),
    ],
)
def test_a_condition_holds_where_python_says_so(condition: str, holds: list[int]) -> None:
    assert parsed(f"name: {condition}").holds(COLUMNS, 3).tolist() == [bool(each) for each in holds]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("x > 3", "write NAME: CONDITION"),
        ("a:", "write NAME: CONDITION"),
        ("a: x >", "is not a condition"),
        ("a: x > " + "1" * 5000, "at most 4,096 characters"),
        ("a: __import__('os')", "neither a comparison nor a column"),
        ("a: x is 3", "neither a comparison nor a column"),
        ("a: x > y[1:2]", "neither a comparison nor a column"),
        ("a: x in y", "neither a comparison nor a column"),
        ("a: x in 3", "neither a comparison nor a column"),
        ("a: x ** 2 > 3", "neither a comparison nor a column"),
        ("a: (lambda: 1)() > 3", "neither a comparison nor a column"),
        ("a: " + "not " * 1300 + "x", "condition"),
    ],
)
def test_what_is_no_condition_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ModelError, match=problem):
        parsed(text).holds(COLUMNS, 3)


@pytest.mark.parametrize("condition", ["kind > 3", "x == 'a'", "x and done", "kind", "kind + 1 > 2", "-kind > 2"])
def test_what_cannot_be_compared_is_refused(condition: str) -> None:
    with pytest.raises(ModelError, match="cannot be evaluated"):
        parsed(f"name: {condition}").holds(COLUMNS, 3)


GAPS: dict[str, AnyArray] = {
    "x": np.array([np.nan, 1.0, np.inf]),
    "n": np.array([np.nan, np.nan, np.nan]),
    "kind": np.array(["", "b", "c"]),
    "done": np.array([False, True, True]),
}


@pytest.mark.parametrize(
    ("condition", "surely", "maybe"),
    [
        ("x < 2", [0, 1, 0], [1, 1, 0]),
        ("not x < 2", [0, 0, 1], [1, 0, 1]),
        ("x != 1", [0, 0, 1], [1, 0, 1]),
        ("0 < x + 1 < 9", [0, 1, 0], [1, 1, 0]),
        ("abs(x) - x == 0", [0, 1, 0], [1, 1, 1]),  # infinity less infinity is no number
        ("done and x < 2", [0, 1, 0], [0, 1, 0]),
        ("not done or x < 2", [1, 1, 0], [1, 1, 0]),
        ("x not in (1, 5)", [0, 0, 1], [1, 0, 1]),
        ("n", [0, 0, 0], [1, 1, 1]),
        ("not n", [0, 0, 0], [1, 1, 1]),
        ("kind == 'b'", [0, 1, 0], [1, 1, 0]),
        ("kind not in ('b', 'd')", [0, 0, 1], [1, 0, 1]),
        ("kind == ''", [1, 0, 0], [1, 0, 0]),
        ("kind in ('', 'c')", [1, 0, 1], [1, 0, 1]),
        ("kind != '' and kind == 'b'", [0, 1, 0], [0, 1, 0]),
        ("n == 'b'", [0, 0, 0], [1, 1, 1]),  # a column that is empty so far may be one of text
        ("n in ('', 'b')", [1, 1, 1], [1, 1, 1]),
    ],
)
def test_where_a_value_is_missing_a_condition_is_unknown(condition: str, surely: list[int], maybe: list[int]) -> None:
    found = [parsed(f"name: {condition}").holds(GAPS, 3, otherwise=otherwise).tolist() for otherwise in (False, True)]
    assert found == [[bool(each) for each in surely], [bool(each) for each in maybe]]
