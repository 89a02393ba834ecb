"""Let the examples of the pages in a folder continue those of its first page, which has the model that all use."""

from __future__ import annotations

import doctest
from functools import cache
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).parent
FIRST = {DOCS / "semantics": DOCS / "semantics" / "worlds.md", DOCS / "worlds": DOCS / "worlds.md"}


@cache
def _begun(first: Path) -> dict[str, Any]:
    """Return the names that the examples of a first page define; its own test compares what they print."""
    text = first.read_text(encoding="utf-8")
    test = doctest.DocTestParser().get_doctest(text, {}, first.name, str(first), 0)
    doctest.DocTestRunner(verbose=False).run(test, out=lambda _: None, clear_globs=False)
    return test.globs


@pytest.fixture(autouse=True)
def _continue(request: pytest.FixtureRequest, doctest_namespace: dict[str, Any]) -> None:
    page = request.node.path
    first = FIRST.get(page.parent)
    if first not in {None, page}:
        doctest_namespace.update(_begun(first))
