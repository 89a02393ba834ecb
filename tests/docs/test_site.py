"""The site builds without a broken link, holds every page, and asks nobody else for anything."""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

import monitor
from docs.site.screenshots import CHROMIUM
from tests.docs.blocks import ROOT
from tests.tiers import first, slow

LOADS = {
    "script": "src",
    "img": "src",
    "iframe": "src",
    "source": "src",
    "audio": "src",
    "video": "src",
    "link": "href",
}
FOLDERS = ("decisions", "messages", "semantics", "tutorials")
ADDRESS = re.compile(r"^\s*(?:[a-z]+:)?//", re.IGNORECASE)


def built(folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder), *more]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built by the first of all processes of the tests that needs it."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    folder = shared / "site"
    with (shared / "site.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            run = built(shared / "site-begun")
            assert run.returncode == 0, run.stdout + run.stderr
            (shared / "site-begun").rename(folder)
    return folder


def test_every_image_of_the_readme_is_shown(site: Path) -> None:
    images = re.findall(r"!\[[^\]]*\]\(docs/(\S+)\)", (ROOT / "README.md").read_text(encoding="utf-8"))
    shown = re.findall(r'<img [^>]*src="([^"]+)"', (site / "index.html").read_text(encoding="utf-8"))
    assert set(images) <= set(shown)
    assert len(images) > 1


class Loaded(HTMLParser):
    """What a browser fetches for a page by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag in LOADS:
            self.found.append(given.get(LOADS[tag]) or "")
        self.found += re.findall(r"url\(([^)]*)\)", given.get("style") or "")


def test_nothing_is_fetched_from_elsewhere(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 30
    for page in pages:
        reader = Loaded()
        reader.feed(page.read_text(encoding="utf-8"))
        assert reader.found
        assert [what for what in reader.found if ADDRESS.match(what)] == [], page
    for sheet in site.rglob("*.css"):
        wanted = re.findall(r"(?:url\(|@import)\s*[\"']?([^\"')\s]+)", sheet.read_text(encoding="utf-8"))
        assert [what for what in wanted if ADDRESS.match(what)] == [], sheet


def test_every_page_and_every_runbook_is_there(site: Path) -> None:
    pages = {page.relative_to(site).as_posix() for page in site.rglob("*.html")}
    runbooks = {f"runbooks/{file.stem}.html" for file in (ROOT / "deploy/runbooks").glob("*.md")}
    docs = {f"{file.stem}.html" for file in (ROOT / "docs").glob("*.md")}
    docs |= {f"{part}/{file.stem}.html" for part in FOLDERS for file in (ROOT / "docs" / part).glob("*.md")}
    assert runbooks | docs | {"index.html", "deployment.html", "architecture.html"} <= pages


def test_lists_are_lists(site: Path) -> None:
    for file in (ROOT / "deploy/runbooks").glob("*.md"):
        text = (site / f"runbooks/{file.stem}.html").read_text(encoding="utf-8").partition("<article")[2]
        steps = len(re.findall(r"^ *(?:[-*]|\d+\.) ", file.read_text(encoding="utf-8"), flags=re.MULTILINE))
        assert text.partition("</article>")[0].count("<li>") == steps, file


def test_every_page_of_the_repository_is_in_the_navigation(site: Path) -> None:
    front = (site / "index.html").read_text(encoding="utf-8")
    for file in (ROOT / "docs").glob("*.md"):
        assert f'href="{file.stem}.html"' in front, file
    for part in {*FOLDERS} - {"decisions"}:  # which has a list of its own
        for file in (ROOT / "docs" / part).glob("*.md"):
            assert f'href="{part}/{file.stem}.html"' in front, file


def test_mathematics_is_drawn_by_the_browser(site: Path) -> None:
    text = (site / "mathematics.html").read_text(encoding="utf-8")
    formulas = re.findall(r"<math.*?</math>", text, flags=re.DOTALL)
    assert len(formulas) > 100
    assert [formula for formula in formulas if "\\" in formula] == []
    assert "arithmatex" not in text


def test_every_promised_name_is_in_the_reference(site: Path) -> None:
    text = (site / "api.html").read_text(encoding="utf-8")
    for name in set(monitor.__all__) - {"__version__"}:
        home = getattr(monitor, name).__module__
        assert re.search(rf'id="monitor\.[\w.]*\b{name}"', text), f"{name} of {home}"


@slow
@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed (Debian: chromium)")
def test_the_pages_can_be_read_by_everyone(site: Path) -> None:
    """WCAG 2 AA as far as axe can see, by day and by night; in a process of its own, for playwright keeps its loop."""
    script = [sys.executable, "-m", "tests.docs.readable", str(CHROMIUM), str(site)]
    run = subprocess.run(script, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout) == (0, "14 pages read\n"), run.stdout + run.stderr


@pytest.mark.parametrize(
    "target", first(1, ["nowhere.md", "../tests/nowhere.py", "concepts.md#nowhere", "pictures/nowhere.svg"])
)
def test_a_broken_link_ends_the_build(tmp_path: Path, target: str) -> None:
    """On the smallest site with the same rules: one page beside those it may link to."""
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "concepts.md").write_text("# Concepts\n\n## Here\n")
    (folder / "first-steps.md").write_text(f"# A page\n\n[there]({target}), [fine](concepts.md#here)\n")
    rules = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[0]
    config = tmp_path / "mkdocs.yml"
    config.write_text(
        rules.replace("docs_dir: docs", f"docs_dir: {folder}").replace("[docs/site/hooks.py]", "[hooks.py]")
    )
    (tmp_path / "hooks.py").write_text(
        f"import sys\nsys.path.insert(0, {str(ROOT)!r})\nfrom docs.site.hooks import on_page_markdown as _same\n"
        "on_page_markdown = _same\n"
    )
    run = built(tmp_path / "site", "--config-file", str(config))
    assert run.returncode != 0
    assert "nowhere" in run.stdout + run.stderr
