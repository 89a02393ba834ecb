"""The threat table: every promise names a test that is there."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
THREATS = (ROOT / "docs" / "security.md").read_text().partition("\n## ")[0]
ROWS = [
    line.strip("|").split(" | ") for line in THREATS.splitlines() if line.startswith("| ") and "threat |" not in line
]


@pytest.mark.parametrize("row", ROWS, ids=[row[0].strip()[:50] for row in ROWS])
def test_the_test_of_a_promise_exists(row: list[str]) -> None:
    assert len(row) == 3
    named = re.fullmatch(r"`(tests/[\w/]+\.py)::(test_\w+)` ?", row[2])
    assert named, row[2]
    tree = ast.parse((ROOT / named[1]).read_text())
    assert named[2] in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_the_table_is_there() -> None:
    assert len(ROWS) >= 20
