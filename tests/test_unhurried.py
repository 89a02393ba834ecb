"""No test fails because the machine is slow."""

from __future__ import annotations

import ast
from pathlib import Path

from hypothesis import settings

TESTS = Path(__file__).parent


def test_hypothesis_sets_no_deadline() -> None:
    assert settings().deadline is None
    for source in TESTS.rglob("*.py"):
        text = source.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if "deadline" in text else ():
            if isinstance(node, ast.keyword) and node.arg == "deadline" and isinstance(node.value, ast.Constant):
                assert node.value.value is None, f"{source.relative_to(TESTS)}, line {node.value.lineno}"
