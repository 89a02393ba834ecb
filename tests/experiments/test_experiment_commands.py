"""The commands of the experiments: files, the same bytes for the same seed, figures with exact values in them."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest

from experiments import (
    few_changes,
    graph_game,
    histograms,
    judged_takeovers,
    learned_models,
    sanity,
    table1,
    takeovers,
    traces,
)
from experiments.grid import PANELS, Grid
from experiments.output import figure, progress
from tests.tiers import first


class Command(NamedTuple):
    module: ModuleType
    options: list[str]
    tables: list[str]
    figures: list[str]
    reduced: tuple[tuple[str, object], ...] = ()
    """Constants of the module made smaller, where the tests of its kept results compute it in full."""


COMMANDS = [
    Command(sanity, ["--repetitions", "2"], ["sanity.csv", "sanity-summary.csv"], ["sanity.png"]),
    Command(histograms, ["--repetitions", "2"], ["histograms.csv", "histograms-summary.csv"], ["histograms.png"]),
    Command(
        learned_models,
        ["--models", "1"],
        ["learned-models.csv", "learned-models-summary.csv"],
        ["learned-models.png"],
        (("SIZES", (3_000, 10_000)),),
    ),
    Command(
        takeovers,
        ["--episodes", "200"],
        ["takeovers-simulated.csv", "takeovers.csv", "takeovers-summary.csv"],
        ["takeovers.png"],
        (("POINTS", 8),),
    ),
    Command(judged_takeovers, ["--episodes", "20"], ["takeovers-judged.csv"], []),
    Command(
        few_changes,
        ["--paths", "1", "--compared", "2"],
        ["few-changes.csv", "few-changes-summary.csv", "few-changes-drawn.csv"],
        ["few-changes.png"],
    ),
    Command(
        graph_game,
        ["--games", "2"],
        ["graph-game.csv", "graph-game-summary.csv", "graph-game-converged.csv"],
        ["graph-game.png"],
    ),
    Command(traces, [], ["traces.csv"], ["traces.png"]),
    Command(table1, ["--runs", "20", "--environment", "gotodoor"], ["table1.csv", "table1.md"], []),
]


@pytest.fixture(autouse=True)
def _with_matplotlib() -> None:
    reason = "matplotlib is not installed: pip install '.[experiments]' in a clone"
    pytest.importorskip("matplotlib", reason=reason)


def run(module: ModuleType, folder: Path, monkeypatch: pytest.MonkeyPatch, *options: str) -> None:
    monkeypatch.setattr(sys, "argv", [module.__name__, "--out", str(folder), *options])
    module.main()


@pytest.mark.parametrize("command", first(1, COMMANDS), ids=lambda command: command.module.__name__)
def test_a_seed_gives_the_same_bytes_again_and_another_does_not(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in command.reduced:
        monkeypatch.setattr(command.module, name, value)
    one, two, other = (tmp_path / name for name in ("one", "two", "other"))
    for folder, seed in ((one, "7"), (two, "7"), (other, "8")):
        run(command.module, folder, monkeypatch, "--seed", seed, *command.options)
    for name in command.tables:
        assert (one / name).read_bytes() == (two / name).read_bytes()
    assert (one / command.tables[0]).read_bytes() != (other / command.tables[0]).read_bytes()
    assert {file.name for file in one.iterdir()} == {*command.tables, *command.figures}
    assert all((one / name).read_bytes().startswith(b"\x89PNG") for name in command.figures)


def test_exact_means_are_drawn_into_the_histograms() -> None:
    grid = Grid()
    picture = histograms.draw(grid, [histograms.repetition(grid, r, 0) for r in range(2)])
    for place, panel in zip(picture.axes, PANELS, strict=True):
        shown = {float(line.get_xdata()[0]) for line in place.lines}  # type: ignore[index,arg-type] # a line's points
        assert shown == {grid.exact_nominal(), grid.exact_mean(panel)}


def test_without_matplotlib_a_figure_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(SystemExit, match=r"pip install '\.\[experiments\]'"):
        figure(1, 1)


def test_progress_says_nothing_where_no_terminal_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(progress(range(3), "work")) == [0, 1, 2]
    assert capsys.readouterr() == ("", "")
