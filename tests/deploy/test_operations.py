"""The table of the monitor's own failures: each shows in two places that exist, and is brought about by a test."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.deploy.test_rules import ALERTS, METRICS

PAGE = Path(__file__).parents[2] / "docs" / "operations.md"
TABLE = [
    [cell.strip() for cell in line.strip().strip("|").split("|")]
    for line in PAGE.read_text().split("\n## ")[1].splitlines()
    if line.startswith("|")
]
HEAD, _, *ROWS = TABLE


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_a_failure_shows_in_at_least_two_places(row: list[str]) -> None:
    assert len(row) == len(HEAD)
    assert len([cell for cell in row[1:-1] if cell]) >= 2


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_what_is_named_exists(row: list[str]) -> None:
    named = set(re.findall(r"`(cfmon_\w+)`", row[1]))
    assert named <= set(METRICS)
    assert set(re.findall(r"\bCfmon\w+|\bWatchdog\b", " ".join(row[1:-1]))) <= set(ALERTS)
    assert named or "`up`" in row[1]


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_a_test_brings_it_about(row: list[str]) -> None:
    references = re.findall(r"\[([^\]]+)\]\(([^)]+)\)", row[-1])
    assert references
    for name, target in references:
        tree = ast.parse((PAGE.parent / target).read_text())
        functions = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        assert f"test_{name.replace(' ', '_')}" in functions
