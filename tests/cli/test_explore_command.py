"""`cfmon model explore`: what it prints, writes and refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("gymnasium")

from monitor.authoring.exploration.enumeration import ExplorationSettings, explore
from monitor.model import load_model, model_sha256
from tests.authoring.exploration import worlds

Run = Callable[..., tuple[int, str, str]]
FILE = str(Path(worlds.__file__))


def test_the_model_is_written_and_described(cfmon: Run, tmp_path: Path) -> None:
    out = str(tmp_path / "model.npz")
    goal = "goal: terminated and reward > 0"
    code, shown, _ = cfmon("model", "explore", f"{FILE}:corridor", out, "--label", goal, "--walk", "100")
    assert code == 0
    assert shown.splitlines() == [
        f"{out}: 5 states, 2 actions, 10 transitions",
        "  a state is identified by the observation",
        "  goal holds in 1 states",
        "  terminal holds in 2 states",
        "  100 random steps of the environment agree with it (before any --slip)",
    ]
    assert load_model(out).labels["goal"].sum() == 1


def test_the_same_as_one_document(cfmon: Run, tmp_path: Path) -> None:
    out = str(tmp_path / "model.npz")
    arguments = ["--slip", "0.1", "--slip-to", "neighbours", "--key", f"{FILE}:key", "--json"]
    code, shown, _ = cfmon("model", "explore", f"{FILE}:hot_corridor", out, *arguments)
    facts = json.loads(shown)
    assert code == 0
    model = load_model(out)
    assert facts["sha256"] == model_sha256(model)
    assert facts["variables"] == ["cell", "hot"]
    assert facts["identified by"] == f"{FILE}:key"
    expected = explore(
        f"{FILE}:hot_corridor", ExplorationSettings(key=f"{FILE}:key", slip=0.1, slip_to="neighbours")
    ).model
    assert model_sha256(expected) == model_sha256(model)
    assert (facts["states"], facts["transitions"]) == (model.states, len(model.successors))


def test_nothing_is_written_if_it_cannot_be_enumerated(cfmon: Run, tmp_path: Path) -> None:
    out = tmp_path / "model.npz"
    for arguments in ([f"{FILE}:corridor", str(out), "--max-states", "2"], ["gymnasium:FrozenLake-v1", str(out)]):
        code, shown, problem = cfmon("model", "explore", *arguments)
        assert (code, shown) == (2, "")
        assert problem.startswith("cfmon: environment ")
        assert problem.count("\n") == 1
        assert not out.exists()
