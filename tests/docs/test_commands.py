"""Every command of the documentation is run as a reader would, and prints what the page shows."""

from __future__ import annotations

import re
import shlex
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
from typer.main import get_command

from monitor.cli.app import app
from tests.docs.blocks import PAGES, ROOT, Command, Save, agrees, tells
from tests.docs.stage import stage
from tests.tiers import slow

NOT_RUN: Final = {
    "podman compose": "takes a container engine; tests/deploy/test_stack.py starts the same processes by hand",
    "curl http://127.0.0.1:9090": "asks what the line above it started",
    "helm ": "takes a cluster; tests/deploy/test_helm.py renders the chart",
    "make bench": "takes minutes; tests/benchmarks runs a quick one",
    "# ": "takes root and a host of its own; tests/deploy/test_install.py runs the installer in an empty root",
}
"""Beginning of a command (`# `: every one of root) -> why it is parsed only."""

ON_PAGE_NOT_RUN: Final = {
    ("deploy/README.md", "curl http://127.0.0.1:9108/metrics"): "asks what the line above started"
}

SLOW: Final = (
    "make demo",
    "curl -s http://127.0.0.1:9108/metrics | grep cfmon_formula_value",
    "ls var/demo",
    'cfmon explain "$(ls -d var/demo/',
    "cfmon demo",
    "cfmon model learn tank-1.csv -o auto.npz",
    "cfmon report config/ice-fog.yaml",
    "python watch.py",
    "cfmon init plant",
    "cfmon replay plant/",
    "promtool test",
)
"""Beginnings of commands that take seconds, and of what looks at what they do; `make test-all` runs their pages."""

RUNNABLE: Final = [page for page in PAGES if any(isinstance(told, Command) for told in tells(page))]
INLINE: Final = re.compile(r"`(cfmon [a-z][^`]*)`")
MENTIONING: Final = (*PAGES, ROOT / "ARCHITECTURE.md", *sorted((ROOT / "deploy/runbooks").glob("*.md")))


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


def why_not(page: Path, command: Command) -> str | None:
    asked = f"{'# ' if command.root else ''}{command.text}"
    reasons = [reason for beginning, reason in NOT_RUN.items() if asked.startswith(beginning)]
    return next(iter(reasons), ON_PAGE_NOT_RUN.get((named(page), command.text)))


def todo(page: Path) -> list[Command | Save]:
    """What the page tells its reader to do, without what is in NOT_RUN."""
    return [told for told in tells(page) if not isinstance(told, Command) or why_not(page, told) is None]


def is_slow(told: Command | Save) -> bool:
    return isinstance(told, Command) and told.text.startswith(SLOW)


def do(steps: list[Command | Save], folder: Path) -> None:
    if any(isinstance(told, Command) for told in steps):  # else all of it is left to others
        with stage(folder) as where:
            for told in steps:
                where.do(told)


@pytest.mark.parametrize("page", RUNNABLE, ids=named)
def test_every_fast_command_prints_what_the_page_shows(page: Path, tmp_path: Path) -> None:
    do([told for told in todo(page) if not is_slow(told)], tmp_path)


@slow
@pytest.mark.parametrize("page", [page for page in RUNNABLE if any(map(is_slow, todo(page)))], ids=named)
def test_every_command_prints_what_the_page_shows(page: Path, tmp_path: Path) -> None:
    do(todo(page), tmp_path)


def test_each_reason_not_to_run_is_of_use() -> None:
    commands = [(page, told) for page in PAGES for told in tells(page) if isinstance(told, Command)]
    given = {why_not(page, command) for page, command in commands} - {None}
    assert given == {*NOT_RUN.values(), *ON_PAGE_NOT_RUN.values()}
    assert {name for name in SLOW for _, command in commands if command.text.startswith(name)} == {*SLOW}


def lines(page: Path) -> list[str]:
    """Every call of `cfmon` on a page, in blocks and within sentences."""
    in_blocks = [told.text for told in tells(page) if isinstance(told, Command) and "cfmon " in told.text]
    text = page.read_text(encoding="utf-8")
    calls = [found[found.index("cfmon ") :] for found in in_blocks if re.search(r"(^|[= ])cfmon ", found)]
    return [*calls, *INLINE.findall(text)]


@cache
def command() -> Any:  # noqa: ANN401 - typer's own copy of click is private
    return get_command(app)


@pytest.mark.parametrize("page", MENTIONING, ids=named)
def test_every_option_named_exists(page: Path) -> None:
    cfmon = command()
    for line in lines(page):
        words = shlex.split(re.sub(r"[\[\]]", " ", line.replace("\\|", "|").replace("...", "")))[1:]
        wrong = problems(cfmon, words)
        assert not wrong, f"{line}: {wrong}"


def problems(command: Any, words: list[str]) -> list[str]:  # noqa: ANN401 - typer's own copy of click is private
    """What of `words` the command does not know; `a|b` are two commands of one line."""
    if hasattr(command, "commands"):
        names = words[0].split("|") if words else []
        missing = [name for name in names if name not in command.commands]
        return missing or [wrong for name in names for wrong in problems(command.commands[name], words[1:])]
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    return [word for word in words if word.startswith("-") and word != "-" and word.partition("=")[0] not in known]


def test_output_is_compared() -> None:
    assert agrees("a ... d\n...\ne", "a b\nc d\nx y\ne\n")
    assert not agrees("a\n...\ne", "a b\nf\n")
    assert not agrees("a", "a b")


@pytest.mark.parametrize("page", MENTIONING, ids=named)
def test_every_target_of_make_exists(page: Path) -> None:
    targets = re.findall(r"^([a-z-]+):.*##", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE)
    told = re.findall(r"(?:`|^\$ )make ([a-z-]+)\b", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert set(told) <= set(targets)
