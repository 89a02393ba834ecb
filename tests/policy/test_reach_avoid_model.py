"""The reach-avoid grid of the paper in `policies/`: as told beside it, and made again to the byte."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from monitor.exact import Checker
from monitor.logic import parse
from monitor.model.io import canonical_bytes, load_model
from monitor.model.mdp import MDP
from monitor.policy.onnx_policy import load_policy

FOLDER = Path(__file__).parents[2] / "policies" / "reach-avoid"
REACH_AVOID = '!"unsafe" U<=10 "goal"'


@pytest.fixture(scope="module")
def grid() -> MDP:
    return load_model(FOLDER / "model.npz")


@pytest.fixture(scope="module")
def checker(grid: MDP) -> Checker:
    return Checker(
        grid,
        {
            name: load_policy(FOLDER / f"{file}.yaml", grid).table
            for name, file in (("nominal", "nominal"), ("planned", "optimal"))
        },
    )


def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("reach_avoid_make", FOLDER / "make_grid.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def paths(checker: Checker, pairs: int) -> list[tuple[float, list[tuple[int, int | None]]]]:
    """Every path of so many pairs under the nominal policy from the start, with its probability."""
    actions = checker.policies["nominal"].actions
    assert actions is not None
    found: list[tuple[float, list[tuple[int, int | None]]]] = [(1.0, [(0, int(actions[0]))])]
    for _ in range(pairs - 1):
        found = [
            (chance * float(step), [*path, (int(state), int(actions[state]))])
            for chance, path in found
            for state, step in zip(*checker.model.row(path[-1][0], int(actions[path[-1][0]])), strict=True)
        ]
    return found


def test_the_policies_go_as_the_traces_of_the_paper(grid: MDP, checker: Checker) -> None:
    for name, cells in (
        ("nominal", [0, 1, 2, 3, 7, 11, 15]),
        ("planned", [0, 4, 8, 12, 13, 14, 15]),
        ("planned", [1, 5, 9, 13, 14, 15]),
    ):
        actions, walk = checker.policies[name].actions, cells[:1]
        assert actions is not None
        while walk[-1] != 15 and len(walk) < 10:
            successors, chances = grid.row(walk[-1], int(actions[walk[-1]]))
            walk.append(int(successors[np.argmax(chances)]))
        assert walk == cells


@pytest.mark.parametrize("discount", [0.9, 0.94, 0.98])
def test_discounts_about_ours_give_the_same_policy(
    discount: float, monkeypatch: pytest.MonkeyPatch, grid: MDP, checker: Checker
) -> None:
    pytest.importorskip("onnx")
    made = script()
    monkeypatch.setattr(made, "DISCOUNT", discount)
    ours, moving = checker.policies["planned"].actions, ~grid.labels["terminal"]
    assert ours is not None
    assert np.array_equal(made.action_values(grid).argmax(axis=1)[moving], ours[moving])


@pytest.mark.parametrize(
    ("question", "pairs"), [("planned@-1", 4), ("planned@-2", 4), ("planned@-2", 3), ("nominal", 1)]
)
def test_means_over_all_nominal_paths_are_as_told(checker: Checker, question: str, pairs: int) -> None:
    formula = parse(f"{question}.P=? [ {REACH_AVOID} ]")
    values = [(chance, checker.check(formula, path).value) for chance, path in paths(checker, pairs)]
    mean = sum(chance * value for chance, value in values if value is not None)
    told = {"nominal": 0.854019, "planned@-1": 0.976882, "planned@-2": 0.954674}
    assert mean == pytest.approx(told[question], abs=5e-7)
    assert f"{told[question]:.6f}" in (FOLDER / "PROVENANCE.md").read_text()


def test_the_script_makes_the_same_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, grid: MDP) -> None:
    pytest.importorskip("onnx")
    monkeypatch.setattr(sys, "argv", ["make_grid.py", "--out", str(tmp_path)])
    script().main()
    made = sorted(path.name for path in tmp_path.iterdir())
    assert made == ["model.npz", "nominal.onnx", "nominal.yaml", "optimal.onnx", "optimal.yaml"]
    assert all((tmp_path / name).read_bytes() == (FOLDER / name).read_bytes() for name in made if name != "model.npz")
    assert canonical_bytes(load_model(tmp_path / "model.npz")) == canonical_bytes(grid)
