"""The architecture page names what exists: in its trace of one message, among its rooms and its decisions."""

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


ROOMS: Final = re.findall(r"^\| (`.+?`) \| .+ \|$", PAGE.split("\n## Rooms\n")[1].split("\n## ")[0], re.MULTILINE)


def test_every_room_is_there_and_has_its_row() -> None:
    listed = {name.rstrip("/") for row in ROOMS for name in re.findall(r"`([\w./]+)`", row)}
    assert [name for name in listed if not (ROOT / "monitor" / name).exists()] == []
    assert {folder.parent.name for folder in (ROOT / "monitor").glob("*/__init__.py")} - listed == set()


DECISIONS: Final = sorted({*(ROOT / "docs/decisions").glob("*.md")} - {ROOT / "docs/decisions/index.md"})


@pytest.mark.parametrize("page", DECISIONS, ids=lambda page: page.stem)
def test_a_decision_is_listed_and_says_why_what_was_rejected_and_what_it_costs(page: Path) -> None:
    title, *headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert headings == ["Why", "Rejected", "Cost"]
    assert f"- [{title}]({page.name})\n" in (ROOT / "docs/decisions/index.md").read_text(encoding="utf-8")
