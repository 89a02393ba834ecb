"""Names in docstrings and comments of `monitor/` exist: dotted names in backticks, arguments, attributes, errors."""

from __future__ import annotations

import ast
import builtins
import importlib
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import pytest

import monitor

ROOT: Final = Path(monitor.__file__).parent
SOURCES: Final = sorted(ROOT.rglob("*.py"))
DOTTED: Final = re.compile(r"`([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+)(?:\([^`]*\))?`")
SECTION: Final = re.compile(r"^( *)(Args|Attributes|Raises)\b[^\n]*:\n((?:\1 +.*\n|\n)*)", re.MULTILINE)
ERROR: Final = re.compile(r"(?<![\w.])([A-Z]\w+(?:Error|Warning))\b")
KEYS: Final = frozenset({"alarm.for", "alternative.value", "evidence.id"})
"""Keys of a configuration or of a message whose attributes are called otherwise, or are not attributes."""

Defined = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def names_of(body: list[ast.stmt]) -> Iterator[str]:
    """Yield the names that statements of a module or class define or import."""
    for node in body:
        match node:
            case ast.FunctionDef(name) | ast.AsyncFunctionDef(name) | ast.ClassDef(name):
                yield name
            case ast.AnnAssign(ast.Name(name)):
                yield name
            case ast.Assign(targets):
                yield from (each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name))
            case ast.Import(names) | ast.ImportFrom(names=names):
                yield from (each.asname or each.name for each in names)
            case ast.If(body=then, orelse=otherwise):
                yield from names_of([*then, *otherwise])
            case _:
                pass


def members_of(node: ast.ClassDef) -> Iterator[str]:
    """Yield the names of a class: what its body defines, its slots, what its methods assign to `self`."""
    yield from names_of(node.body)
    for each in ast.walk(node):
        match each:
            case ast.Attribute(ast.Name("self" | "cls"), name, ast.Store()):
                yield name
            case ast.Assign([ast.Name("__slots__")], ast.Tuple(slots)):
                yield from (str(slot.value) for slot in slots if isinstance(slot, ast.Constant))
            case _:
                pass


@cache
def index() -> tuple[dict[str, set[str]], dict[str, set[str]]]:
    """Return module -> its names, and class -> its members with those of its bases, over all of `monitor`."""
    modules: dict[str, set[str]] = {}
    classes: dict[str, set[str]] = defaultdict(set)
    bases: list[tuple[str, str]] = []
    for path in SOURCES:
        tree = ast.parse(path.read_text())
        parts = ("monitor", *path.relative_to(ROOT).with_suffix("").parts)
        modules[".".join(parts).removesuffix(".__init__")] = set(names_of(tree.body))
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                classes[node.name].update(members_of(node))
                bases += [(node.name, base.id) for base in node.bases if isinstance(base, ast.Name)]
    for name, base in bases * 2:  # bases of bases
        classes[name] |= classes.get(base, set())
    modules["monitor"] |= set(monitor.__all__)
    return modules, classes


def exists(name: str) -> bool:
    """Return whether a dotted name is a file, a module, a name in one, a member of a class, or one of the library."""
    modules, classes = index()
    *before, last = name.split(".")
    if last in {"py", "pxd"}:
        return name == "hatch_build.py" or any(path.with_suffix(f".{last}").name == name for path in SOURCES)
    if name in modules or name in KEYS:
        return True
    if before[0] == "monitor" and len(before) > 1:
        *_, owner = before
        return last in modules.get(".".join(before), set()) | classes.get(owner, set())
    homes = [names for module, names in modules.items() if f".{module}".endswith(f".{'.'.join(before)}")]
    if any(last in names for names in homes):
        return True
    if before[-1] in classes:
        return last in classes[before[-1]]
    if any(last in members for members in classes.values()):
        return True  # of a variable, whose class is not written
    try:
        return hasattr(importlib.import_module(".".join(before)), last)
    except ImportError:
        return False


def documented(tree: ast.Module) -> Iterator[tuple[Defined, str]]:
    """Yield the functions and classes that have a docstring, with it."""
    for node in ast.walk(tree):
        if isinstance(node, Defined) and (text := ast.get_docstring(node)) is not None:
            yield node, text + "\n"


def entries(text: str, title: str) -> Iterator[str]:
    """Yield the names that a section of a docstring describes."""
    for indent, found, body in SECTION.findall(text):
        if found == title:
            for names in re.findall(rf"^{indent} {{4}}(\w+(?:, \w+)*):(?:\s|$)", body, re.MULTILINE):
                yield from names.split(", ")


def parameters(node: Defined) -> set[str]:
    """Return the parameters of a function, or of the constructor of a class: its fields if it has none."""
    if isinstance(node, ast.ClassDef):
        made = [each for each in node.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"]
        return parameters(made[0]) if made else index()[1][node.name]
    every = node.args
    return {
        each.arg for each in (*every.posonlyargs, *every.args, *every.kwonlyargs, every.vararg, every.kwarg) if each
    }


def is_error(name: str) -> bool:
    modules, classes = index()
    return name in classes or hasattr(builtins, name) or any(name in names for names in modules.values())


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_name_in_a_docstring_or_comment_exists(path: Path) -> None:
    source = path.read_text()
    missing = [f"`{name}`" for name in dict.fromkeys(DOTTED.findall(source)) if not exists(name)]
    for node, text in documented(ast.parse(source)):
        missing += [f"{node.name}, Args: {name}" for name in entries(text, "Args") if name not in parameters(node)]
        if isinstance(node, ast.ClassDef):
            members = index()[1][node.name]
            missing += [
                f"{node.name}, Attributes: {name}" for name in entries(text, "Attributes") if name not in members
            ]
        raised = {*entries(text, "Raises"), *ERROR.findall(text)}
        missing += [f"{node.name}, Raises: {name}" for name in sorted(raised) if not is_error(name)]
    assert not missing


def test_a_name_that_is_gone_is_found() -> None:
    for name in ("Alert.evidence_path", "monitor.types.Alarmed", "path.vanished", "json.dumped", "nowhere.py"):
        assert not exists(name), name
    for name in ("Alert.path", "monitor.types.Alert", "monitor.types.Alert.path", "json.dumps", "errors.py"):
        assert exists(name), name
    assert list(entries("Text.\n\nArgs:\n    one, two: both.\n        More: of it.\n    three: it.\n", "Args")) == [
        "one",
        "two",
        "three",
    ]
