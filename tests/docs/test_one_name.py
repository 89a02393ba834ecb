"""One name for one thing: a file or a public class of `monitor` has a name of its own.

The referee is apart: it derives the same notions again, so it may give them the engine's names.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

SOURCES = [path for path in Path("monitor").rglob("*.py") if "referee" not in path.parts]


def test_no_file_has_the_name_of_another() -> None:
    named: defaultdict[str, list[Path]] = defaultdict(list)
    for path in SOURCES:
        if path.name not in ("__init__.py", "__main__.py"):
            named[path.name].append(path)
    assert {name: paths for name, paths in named.items() if len(paths) > 1} == {}


def test_no_public_class_has_the_name_of_another() -> None:
    named: defaultdict[str, list[Path]] = defaultdict(list)
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                named[node.name].append(path)
    assert {name: paths for name, paths in named.items() if len(paths) > 1} == {}
