"""What the documentation shows in blocks: commands with their output, files to save; and how output is compared."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
PAGES: Final = (
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs/messages").glob("*.md")),
    *sorted((ROOT / "docs/semantics").glob("*.md")),
    *sorted((ROOT / "docs/tutorials").glob("*.md")),
    *sorted((ROOT / "docs/worlds").glob("*.md")),
    ROOT / "deploy/README.md",
)
FENCE: Final = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INTERRUPT: Final = "^C"


@dataclass(frozen=True)
class Command:
    """One line after a prompt, `$` or `#` (root), and what is shown below it; `forever`: until Ctrl-C."""

    text: str
    shown: str
    root: bool
    forever: bool


@dataclass(frozen=True)
class Save:
    """A file that the page tells its reader to save."""

    name: str
    content: str


def tells(page: Path) -> Iterator[Command | Save]:
    """What a page tells its reader to do, in its order."""
    for language, title, content in FENCE.findall(page.read_text(encoding="utf-8")):
        if named := re.search(r'title="([^"]+)"', title):
            yield Save(named[1], content)
        elif language == "console":
            yield from _commands(content)


def _commands(content: str) -> Iterator[Command]:
    before, *parts = re.split(r"^(?=[$#] )", content, flags=re.MULTILINE)
    assert not before, f"a console block begins with a prompt, not with {before!r}"
    for part in parts:
        line, _, shown = part.partition("\n")
        command = re.sub(r"\s{2,}# .*", "", line[2:])  # what a comment behind it says
        forever = shown.rstrip().endswith(INTERRUPT)
        yield Command(command, shown.rstrip().removesuffix(INTERRUPT), root=line[0] == "#", forever=forever)


def agrees(shown: str, output: str) -> bool:
    """Whether it is the output, however lines are broken; `...` stands for anything.

    >>> agrees("a ... d", "a b\\nc d"), agrees("a c", "a b c"), agrees("port ...,", "port 12,")
    (True, False, True)
    """
    first, *others = map(_words, shown.split("..."))
    if not others:
        return re.fullmatch(rf"{first}\s*", output) is not None
    found = re.match(first, output)
    for words in others[:-1]:  # the first place will do: a later one only leaves less for the rest
        found = found and re.compile(words).search(output, found.end())
    return found is not None and re.compile(rf"{others[-1]}\s*\Z").search(output, found.end()) is not None


def _words(text: str) -> str:
    """Return a pattern of words, with any white space or none around them."""
    return "".join(rf"\s*{re.escape(word)}" for word in text.split())
