"""One name for one thing: a file, a public class or an alias of a type of `monitor` has a name of its own.

The referee is apart: it derives the same notions again, so it may give them the engine's names.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

SOURCES = [path for path in Path("monitor").rglob("*.py") if "referee" not in path.parts]


def test_no_file_has_the_name_of_another() -> None:
    named: defaultdict[str, list[Path]] = defaultdict(list)
    for path in SOURCES:
        if path.name not in ("__init__.py", "__main__.py"):
            named[path.name].append(path)
    assert {name: paths for name, paths in named.items() if len(paths) > 1} == {}


def defined(path: Path) -> Iterator[str]:
    """Yield the public classes and aliases of types that a file defines, without variables of types (`TypeVar`)."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    yield from (node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and node.name[0] != "_")
    for node in tree.body:
        match node:
            case ast.Assign([ast.Name(name)], value) if re.fullmatch("[A-Z]+[a-z]\\w*", name):
                if not (isinstance(value, ast.Call) and ast.unparse(value.func) == "TypeVar"):
                    yield name
            case _:
                pass


def test_no_public_class_or_alias_has_the_name_of_another() -> None:
    named: defaultdict[str, list[Path]] = defaultdict(list)
    for path in SOURCES:
        for name in defined(path):
            named[name].append(path)
    assert len(named) > 500
    assert "Outcome" in named  # an alias
    assert {name: paths for name, paths in named.items() if len(paths) > 1} == {}


def test_within_the_referee_no_public_class_or_alias_has_the_name_of_another() -> None:
    named: defaultdict[str, list[Path]] = defaultdict(list)
    for path in Path("monitor/referee").rglob("*.py"):
        for name in defined(path):
            named[name].append(path)
    assert {name: paths for name, paths in named.items() if len(paths) > 1} == {}
