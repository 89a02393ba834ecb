"""Examples of these pages continue those of `../worlds.md`, which has the world that all of them use."""

from __future__ import annotations

import doctest
from pathlib import Path
from typing import Any

import pytest

FIRST = Path(__file__).parents[1] / "worlds.md"


@pytest.fixture(scope="session")
def begun_world() -> dict[str, Any]:
    """Return the names that the examples of the first page define; its own test compares what they print."""
    text = FIRST.read_text(encoding="utf-8")
    test = doctest.DocTestParser().get_doctest(text, {}, FIRST.name, str(FIRST), 0)
    doctest.DocTestRunner(verbose=False).run(test, out=lambda _: None, clear_globs=False)
    return test.globs


@pytest.fixture(autouse=True)
def _continue(request: pytest.FixtureRequest, doctest_namespace: dict[str, Any]) -> None:
    doctest_namespace.update(request.getfixturevalue("begun_world"))
