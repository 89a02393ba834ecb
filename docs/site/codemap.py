"""Write `docs/codemap.md` from the docstrings of the modules: `python -m docs.site.codemap`.

Each module has a line with its name and the first sentence of its docstring. A test compares page and sources.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

__all__ = ["PAGE", "page"]

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs/codemap.md"
PACKAGES: Final = ("monitor", "client/src/cfmon_client", "deploy/flink/cfmon_flink")
HEAD: Final = """\
# Codemap

Every module, and what it is for.
`python -m docs.site.codemap` writes this page from the docstrings.
The [architecture](../ARCHITECTURE.md#rooms) says what each room must not contain.
"""


def page() -> str:
    """Return the page as the sources have it now."""
    folders = (folder for package in PACKAGES for folder in _packages(ROOT / package))
    return "\n".join([HEAD, *(line for folder in folders for line in _section(folder))])


def _packages(folder: Path) -> Iterator[Path]:
    """Yield a package and those inside it, outer ones first."""
    yield folder
    for file in sorted(folder.glob("*/__init__.py")):
        yield from _packages(file.parent)


def _section(folder: Path) -> Iterator[str]:
    modules = [file for file in sorted(folder.glob("*.py")) if not file.name.startswith("_")]
    yield from (f"## `{folder.relative_to(ROOT)}/`", "", _sentence(folder / "__init__.py"), "")
    if modules:
        yield from (*(f"- `{file.name}`: {_sentence(file)}" for file in modules), "")


def _sentence(file: Path) -> str:
    """Return the first sentence of a module's docstring, on one line."""
    text = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    paragraph = " ".join(text.partition("\n\n")[0].split())
    return re.split(r"(?<=[.?]) ", paragraph)[0]


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
