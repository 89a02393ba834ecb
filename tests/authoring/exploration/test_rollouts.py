"""Roll-outs of environments that cannot be enumerated: rows as they happened, and models learned from them."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from monitor.authoring.exploration.rollouts import roll_out
from monitor.errors import ModelError
from monitor.model import load_model
from tests.authoring.exploration import worlds
from tests.tiers import examples, scaled

gymnasium = pytest.importorskip("gymnasium")

FILE = str(Path(worlds.__file__))
LAKE = "gymnasium:FrozenLake-v1?is_slippery=true"


def test_rows_are_what_happened(tmp_path: Path) -> None:
    done = roll_out(f"{FILE}:corridor", tmp_path / "steps.csv", 200, key=f"{FILE}:key", seed=3)
    with (tmp_path / "steps.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert (done.columns, done.features, done.steps) == (("cell", "hot"), 1, 200)
    assert (len(rows), int(rows[-1]["episode"]) + 1) == (200, done.episodes)
    for row, after in zip(rows, [*rows[1:], None], strict=True):
        moved = float(row["cell"]) + (1 if row["action"] == "1" else -1)
        assert float(row["next_cell"]) == moved
        assert float(row["feature[0]"]) == float(row["cell"])
        assert row["terminated"] == str(moved in (0, 4))
        assert float(row["reward"]) == (moved == 4) - (moved == 0)
        if after is not None and row["terminated"] == "False":
            assert (after["episode"], after["cell"]) == (row["episode"], row["next_cell"])
            assert int(after["step"]) == int(row["step"]) + 1
    assert rows[-1]["truncated"] == str(rows[-1]["terminated"] == "False")


@scaled
def test_a_model_is_learned_from_a_random_environment(
    cfmon: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    steps, model = str(tmp_path / "lake.csv"), str(tmp_path / "lake.npz")
    code, shown, _ = cfmon("model", "explore", LAKE, steps, "--rollouts", str(examples(10_000, 20_000)))
    assert code == 0
    assert shown.splitlines()[1] == f"  next: cfmon model learn {steps} -o {model} --state s0 --observation feature"
    assert cfmon(*shown.splitlines()[1].split()[2:], "--label", "goal: terminated and reward > 0")[0] == 0
    learned, table = load_model(model), gymnasium.make("FrozenLake-v1", is_slippery=True).unwrapped.P
    assert learned.counts is not None
    found = 0
    for state in range(16):
        for action in range(4):
            successors, chances = learned.row(state, action)
            expected = np.zeros(16)
            for probability, successor, _, _ in table[state][action]:
                expected[successor] += probability
            first = learned.indptr[state * 4 + action]
            if learned.counts.visits[first : first + len(successors)].sum() > 300:
                found += 1
                assert np.sort(chances) == pytest.approx(np.sort(expected[expected > 0]), abs=0.12)
    assert found > 10


@pytest.mark.parametrize(
    ("policy", "why"),
    [
        ("cell_only", r"it failed in state \[2.0\]"),
        ("too_long", r"return an action of 0\.\.1, or 2 probabilities"),
    ],
)
def test_a_policy_that_is_none_is_explained(tmp_path: Path, policy: str, why: str) -> None:
    with pytest.raises(ModelError, match=why):
        roll_out(f"{FILE}:corridor", tmp_path / "steps.csv", 10, policy=f"{FILE}:{policy}")


def test_a_policy_of_ones_own_acts(tmp_path: Path) -> None:
    for policy, action in (("go_right", "1"), ("surely_right", "1")):
        roll_out(f"{FILE}:corridor", tmp_path / "steps.csv", 20, policy=f"{FILE}:{policy}")
        with (tmp_path / "steps.csv").open(encoding="utf-8") as file:
            assert {row["action"] for row in csv.DictReader(file)} == {action}


def test_what_cannot_be_rolled_out_is_explained(cfmon: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    out = str(tmp_path / "steps.csv")
    for arguments, why in (
        ([f"{FILE}:corridor", out, "--rollouts", "0"], "must be at least 1"),
        ([f"{FILE}:corridor", out], "add --rollouts N"),
        ([f"{FILE}:corridor", "m.npz", "--rollouts", "9"], "roll-outs are written as .csv"),
        ([f"{FILE}:corridor", out, "--rollouts", "9", "--slip", "0.1"], "--slip cannot be given with --rollouts"),
        ([f"{FILE}:corridor", "/no/where.csv", "--rollouts", "9"], "cannot write /no/where.csv"),
        ([f"{FILE}:Wordy", out, "--rollouts", "9"], "cannot identify a state"),
    ):
        code, _, problem = cfmon("model", "explore", *arguments)
        assert (code, why in problem) == (2, True), problem
