"""Every operator of Python has a change."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.mutation.operators import ARITHMETIC, COMPARISONS, mutants_of


def test_no_operator_is_without_a_change(tmp_path: Path) -> None:
    assert set(ARITHMETIC) == set(ast.operator.__subclasses__())
    assert set(COMPARISONS) == set(ast.cmpop.__subclasses__())
    file = tmp_path / "odd.py"
    file.write_text("def odd(a, b):\n    a ^= b\n    return a ^ b\n")
    assert {"a |= b", "(a | b)"} <= {each.after for each in mutants_of(file, tmp_path)}
