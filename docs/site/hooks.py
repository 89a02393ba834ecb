"""Hooks of mkdocs: pages from elsewhere in the repository, links between them, mathematics.

A link to a file that is no page (a test, a script) becomes plain text, because the site does not contain the file. The
file must exist all the same: a broken link stops the build.
"""

from __future__ import annotations

import html
import os
import re
from pathlib import Path, PurePosixPath
from typing import Final

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

__all__ = ["on_files", "on_page_content", "on_page_markdown"]

ROOT: Final = Path(__file__).parents[2]
ELSEWHERE: Final = {
    "index.md": "README.md",
    "deployment.md": "deploy/README.md",
    "architecture.md": "ARCHITECTURE.md",
    "changelog.md": "CHANGELOG.md",
}
"""Page of the site -> file of the repository."""
LINK: Final = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")
FENCE: Final = re.compile(r"^( *)(```+|~~~+).*?^\1\2[^\n]*$", re.MULTILINE | re.DOTALL)
LIST: Final = re.compile(r"^(?!(?:[-*]|\d+\.) )(\S.*)\n(?=(?:[-*]|\d+\.) )", re.MULTILINE)
"""Matches a line of text directly above a list, because mkdocs needs an empty line before the list."""
MATH: Final = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)
RUNBOOKS: Final = "deploy/runbooks"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages from elsewhere, and a list of the runbooks."""
    for page, source in {**ELSEWHERE, **_runbooks()}.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / source)))
    files.append(File.generated(config, "runbooks/index.md", content=_list_of_runbooks()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001 - by name
    """Turn links between files of the repository into links between pages."""
    here = _source(page.file.src_uri)
    if here is None:
        return markdown
    pieces, at = [], 0
    for fence in FENCE.finditer(markdown):
        pieces += [_relinked(markdown[at : fence.start()], here, page.file.src_uri), fence[0]]
        at = fence.end()
    return "".join([*pieces, _relinked(markdown[at:], here, page.file.src_uri)])


def on_page_content(content: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001 - by name
    """Write mathematics as MathML, which browsers render themselves."""
    return MATH.sub(
        lambda found: _mathml(html.unescape(found[3]).strip(), "block" if found[2] == "[" else "inline"),
        content,
    )


def _runbooks() -> dict[str, str]:
    return {f"runbooks/{file.name}": f"{RUNBOOKS}/{file.name}" for file in sorted((ROOT / RUNBOOKS).glob("*.md"))}


def _list_of_runbooks() -> str:
    names = [PurePosixPath(page).name for page in _runbooks()]
    listed = "\n".join(f"- [{name.removesuffix('.md')}]({name})" for name in names)
    return f"# Runbooks\n\nOne page for each alert: what it means, how to diagnose it, what to do.\n\n{listed}\n"


def _source(page: str) -> PurePosixPath | None:
    """Return the repository path of a page; None if it is generated."""
    elsewhere = {**ELSEWHERE, **_runbooks()}
    if page in elsewhere:
        return PurePosixPath(elsewhere[page])
    return None if page == "runbooks/index.md" else PurePosixPath("docs", page)


def _relinked(text: str, here: PurePosixPath, page: str) -> str:
    def follow(found: re.Match[str]) -> str:
        image, words, target = found[1], found[2], found[3]
        path, mark, anchor = target.partition("#")
        if not path or re.match(r"[a-z]+:", target):
            return found[0]
        there = os.path.normpath(here.parent / path)
        if not (ROOT / there).exists():
            raise PluginError(f"{here}: the link to {target} leads to no file in the repository")
        new = _page_of(there)
        if new is None:
            return words
        return f"{image}[{words}]({os.path.relpath(new, PurePosixPath(page).parent)}{mark}{anchor})"

    return LINK.sub(follow, LIST.sub(r"\1\n\n", text))


def _page_of(file: str) -> str | None:
    """Return the page, or file of the site, for a file of the repository; None if there is none."""
    for page, source in {**ELSEWHERE, **_runbooks()}.items():
        if file == source:
            return page
    if file.rstrip("/") == RUNBOOKS:
        return "runbooks/index.md"
    if file == "deploy":
        return "deployment.md"
    inside = PurePosixPath(file)
    if inside.parts[0] == "docs" and inside.suffix in {".md", ".svg", ".png", ".webp"}:
        return str(inside.relative_to("docs"))
    return None


def _mathml(text: str, display: str) -> str:
    """Return a formula as MathML. On a narrow screen a block scrolls, so the keyboard must be able to reach it."""
    return convert(text, display=display).replace('display="block"', 'display="block" tabindex="0"', 1)
