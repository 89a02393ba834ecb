"""Environments of every observation space: distinct observations are distinct states, and policies see the numbers."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("gymnasium")
from gymnasium import spaces

from monitor.authoring.exploration import observation_key
from monitor.authoring.exploration.enumeration import ExplorationSettings, explore
from monitor.authoring.exploration.identity import key_of
from monitor.authoring.exploration.rollouts import roll_out
from monitor.errors import ModelError
from monitor.model import load_model, model_sha256, save_model
from tests.authoring.exploration import corridors

FILE = str(Path(corridors.__file__))
QUICK = ExplorationSettings(walk=50)


@pytest.mark.parametrize("name", sorted(set(corridors.SPACES) - {"nanoseconds"}))
def test_four_rooms_are_four_states_however_they_are_seen(name: str) -> None:
    model = explore(f"{FILE}:{name}", QUICK).model
    assert (model.states, model.labels["terminal"].tolist()) == (4, [False, False, False, True])
    environment, expected = corridors.Corridor(name), []
    for room in range(corridors.ROOMS):
        environment.room = room
        expected.append(spaces.flatten(environment.observation_space, environment.seen()))
    assert model.observations is not None
    assert model.observations.tolist() == np.array(expected).tolist()


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("metres", [530000000.0, 530000001.0, 530000002.0, 530000003.0]),
        ("thirds", [0.0, 1 / 3, 2 / 3, 1.0]),
        ("seconds", [1800000000, 1800000001, 1800000002, 1800000003]),
        ("from_five", [5, 6, 7, 8]),
    ],
)
def test_a_key_is_the_number_that_the_environment_has(name: str, keys: list[float]) -> None:
    assert [key[0] for key in explore(f"{FILE}:{name}", QUICK).model.valuations] == keys


def test_several_numbers_are_published_as_they_are() -> None:
    """The client publishes the two numbers of a MultiDiscrete observation, not six bits."""
    assert explore(f"{FILE}:pair", QUICK).model.valuations == ((0, 0), (1, 0), (2, 1), (3, 1))
    assert explore(f"{FILE}:both", QUICK).model.valuations[2] == (0, 0, 1, 0, 2, 1)


def test_observations_of_64_bits_stay_so_in_the_file(tmp_path: Path) -> None:
    model = explore(f"{FILE}:metres", QUICK).model
    save_model(model, tmp_path / "metres.npz")
    read = load_model(tmp_path / "metres.npz")
    assert read.observations is not None
    assert read.observations.reshape(-1).tolist() == [530000000 + room for room in range(4)]
    assert model_sha256(read) == model_sha256(model)
    small = explore(f"{FILE}:box", QUICK).model
    assert small.observations is not None
    assert small.observations.dtype == np.float32


def test_a_digest_tells_numbers_of_64_bits_apart() -> None:
    near, far = np.full(100, 5.3e8), np.full(100, 5.3e8 + 1)
    assert observation_key(near) != observation_key(far)
    assert observation_key(near) == observation_key(near.astype(np.float32))
    assert len(observation_key(far)) == 1
    assert len(set(explore(f"{FILE}:wide", QUICK).model.valuations)) == 4


def test_a_number_that_no_float_holds_is_refused() -> None:
    with pytest.raises(ModelError, match=r"1800000000000000001, which no 64-bit float holds.*subtract an offset"):
        explore(f"{FILE}:nanoseconds", QUICK)
    assert key_of((1 << 53, 2.5), "here") == (float(1 << 53), 2.5)
    for number in ((1 << 53) + 1, 10**400):
        with pytest.raises(ModelError, match=r"\(no 64-bit float holds it\)"):
            key_of((number,), "here")


def test_masked_actions_are_unavailable(tmp_path: Path) -> None:
    explored = explore(f"{FILE}:Masked", QUICK)
    assert explored.model.availability.tolist() == [[False, True], [True, True], [True, True], [True, True]]
    assert "actions that the environment's action_masks() rules out are unavailable in the model" in explored.notes
    assert not any("action_masks" in note for note in explore(f"{FILE}:box", QUICK).notes)
    roll_out(f"{FILE}:Masked", tmp_path / "steps.csv", 200)
    with (tmp_path / "steps.csv").open() as file:
        taken = {(row["s0"], row["action"]) for row in csv.DictReader(file)}
    assert taken == {("0.0", "1"), ("1.0", "0"), ("1.0", "1"), ("2.0", "0"), ("2.0", "1")}


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("Switches", r"the action space is MultiBinary\(2\); only Discrete\(n\) from 0"),
        ("FromOne", r"the action space is Discrete\(2, start=1\); only Discrete\(n\) from 0"),
        ("HookFromOne", r"the action space is Discrete\(2, start=1\); only Discrete\(n\) from 0"),
        (
            "Fickle",
            r"not identify a state: in \[1\.0\], action 0 led to \[0\.0\] once .* to nothing \(unavailable\)",
        ),
        ("Late", r"its action_masks\(\) rules out action 0 in \[.*\], and did not before"),
        ("Misshapen", r"action_masks\(\) has shape \[1\], not \[2\]"),
        ("Unmasking", r"action_masks\(\) failed \(KeyError: 0\)"),
    ],
)
def test_actions_that_are_no_numbers_from_0_are_refused(name: str, why: str) -> None:
    with pytest.raises(ModelError, match=why):
        explore(f"{FILE}:{name}", QUICK)
