"""The architecture page's trace of one message names what exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Final

import pytest

from tests.docs.blocks import ROOT

PAGE: Final = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
TRACE: Final = PAGE.split("\n## One message, step by step\n")[1].split("\n## ")[0]
NAMED: Final = re.findall(r"`([\w.]+)` \(`([\w/]+\.py)`\)", TRACE)


def defined(file: Path) -> set[str]:
    """Functions, classes, methods and annotated constants of a module."""
    names: set[str] = set()
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        match node:
            case ast.FunctionDef():
                names.add(node.name)
            case ast.ClassDef():
                inner = (each for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef))
                names |= {node.name, *(f"{node.name}.{each.name}" for each in inner)}
            case ast.AnnAssign(target=ast.Name(name)):
                names.add(name)
            case _:
                pass
    return names


def test_the_trace_is_read_whole() -> None:
    assert len(NAMED) == len(re.findall(r"\(`[\w/]+\.py`\)", TRACE)) > 40


@pytest.mark.parametrize(("name", "file"), sorted(set(NAMED)))
def test_every_name_of_the_trace_exists(name: str, file: str) -> None:
    assert name in defined(ROOT / "monitor" / file)


TABLE: Final = PAGE.split("\n## Codemap\n")[1].split("\n\n")[0]
CODEMAP: Final = re.findall(r"^\| (.+?) \| (.*?) \| .*?\|$", TABLE, re.MULTILINE)[1:]


@pytest.mark.parametrize(("where", "holds"), CODEMAP, ids=[where for where, _ in CODEMAP])
def test_every_file_of_the_codemap_exists(where: str, holds: str) -> None:
    first, *others = [ROOT / place for place in re.findall(r"`([\w/.]+)`", where)]
    folders = [first if first.is_dir() else first.parent, *(other for other in others if other.is_dir())]
    folders += [folder / inner for folder in folders for inner in re.findall(r"`(\w+/)`", holds)]
    missing = [
        name
        for name in [*re.findall(r"`([\w/]+\.py|[\w/]+/)`", holds), *(file.name for file in others)]
        if not any((folder / name).exists() for folder in [*folders, ROOT])
    ]
    assert first.exists()
    assert not missing
