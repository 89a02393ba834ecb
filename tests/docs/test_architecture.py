"""The architecture page names what exists: in its trace of one message, among its rooms and its decisions."""

from __future__ import annotations

import ast
import re
import tomllib
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


LAYERS: Final = next(
    contract["layers"]
    for contract in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    if contract["name"] == "The route has one direction"
)


def test_the_rooms_are_in_the_order_that_is_checked() -> None:
    rows = [{name.rstrip("/").removesuffix(".py") for name in re.findall(r"`([\w./]+)`", row)} for row in ROOMS]
    assert rows == [{name.removeprefix("monitor.") for name in layer.split(" : ")} for layer in LAYERS]


def opens_files(file: Path) -> bool:
    """Whether a module opens files, looks for them, or writes them, as far as its text shows."""
    calls = [node for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))) if isinstance(node, ast.Call)]
    methods = {"read_bytes", "read_text", "write_bytes", "write_text", "is_file", "exists", "glob", "iterdir"}
    for call in calls:
        match call:
            case ast.Call(func=ast.Name("open")) | ast.Call(func=ast.Attribute(attr="open"), args=[ast.Constant(), *_]):
                return True
            case ast.Call(func=ast.Attribute(attr=name)) if name in methods:
                return True
            case _:
                pass
    return False


def test_only_the_named_modules_below_the_sidecar_open_files() -> None:
    above = {name.removeprefix("monitor.") for layer in LAYERS[:3] for name in layer.split(" : ")}
    (sentence,) = re.findall(r"Of the rooms below `sidecar/`, only (.+) open files\.", PAGE)
    monitor = ROOT / "monitor"
    modules = {file.relative_to(monitor) for file in monitor.rglob("*.py")}
    found = {str(file) for file in modules if file.parts[0] not in above and opens_files(monitor / file)}
    assert found - {"uncompiled.py"} == set(re.findall(r"`([\w./]+\.py)`", sentence))


DECISIONS: Final = sorted({*(ROOT / "docs/decisions").glob("*.md")} - {ROOT / "docs/decisions/index.md"})


@pytest.mark.parametrize("page", DECISIONS, ids=lambda page: page.stem)
def test_a_decision_is_listed_and_says_why_what_was_rejected_and_what_it_costs(page: Path) -> None:
    title, *headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert headings == ["Why", "Rejected", "Cost"]
    assert f"- [{title}]({page.name})\n" in (ROOT / "docs/decisions/index.md").read_text(encoding="utf-8")
