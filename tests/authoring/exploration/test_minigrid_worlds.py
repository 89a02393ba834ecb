"""MiniGrid explored by copies, against a search by brute force that replays actions from the start."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from monitor.authoring.exploration import minigrid_state
from monitor.authoring.exploration.enumeration import ExplorationSettings, explore
from monitor.model import load_model
from monitor.model.mdp import MDP
from tests.tiers import first, slow

SHIPPED = Path(__file__).parents[3] / "policies" / "minigrid"
Place = tuple[int, int, int, bool, bool]
"""Column, row and direction of the agent, terminated, and with a reward."""


@pytest.fixture(scope="module", autouse=True)
def _registered() -> None:
    pytest.importorskip("gymnasium")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what it imports
        pytest.importorskip("minigrid")


def replayed(environment: Any, taken: tuple[int, ...]) -> tuple[Place, float]:  # noqa: ANN401
    """Where actions lead from the start, and the reward of the last one."""
    environment.reset(seed=0)
    reward, terminated = 0.0, False
    for action in taken:
        _, reward, terminated, _, _ = environment.step(action)
    column, row = (int(x) for x in environment.agent_pos)
    return (column, row, int(environment.agent_dir), bool(terminated), reward > 0), float(reward)


def brute_force(name: str) -> dict[Place, list[Place]]:
    """Return every place that can be reached with its successors, by replaying actions from the start."""
    import gymnasium  # noqa: PLC0415 - skipped without it

    environment: Any = gymnasium.make(name).unwrapped
    ways: dict[Place, tuple[int, ...]] = {replayed(environment, ())[0]: ()}
    rows: dict[Place, list[Place]] = {}
    waiting = list(ways)
    for place in waiting:  # it grows meanwhile
        rows[place] = []
        for action in range(7):
            after = place if place[3] else replayed(environment, (*ways[place], action))[0]
            if after not in ways:
                ways[after] = (*ways[place], action)
                waiting.append(after)
            rows[place].append(after)
    return rows


def places(model: MDP) -> Iterator[Place]:
    """The places of a model's states, from valuations and labels."""
    for state, (column, row, direction, *_) in enumerate(model.valuations):
        facing = ("east", "south", "west", "north").index(str(direction))
        assert isinstance(column, float)
        assert isinstance(row, float)
        ended = bool(model.labels["terminal"][state])
        yield int(column), int(row), facing, ended, bool(model.labels["goal"][state])


@pytest.mark.parametrize("name", first(1, ["MiniGrid-LavaGapS5-v0", "MiniGrid-Empty-5x5-v0"]))
def test_rooms_are_those_of_brute_force(name: str) -> None:
    model = explore(
        f"gymnasium:{name}", ExplorationSettings(walk=500, conditions=["goal: terminated and reward > 0"])
    ).model
    rows, order = brute_force(name), list(places(model))
    assert sorted(order) == sorted(rows)
    assert len(set(order)) == model.states
    for state, place in enumerate(order):
        for action in range(7):
            successors, chances = model.row(state, action)
            assert chances.tolist() == [1.0]
            assert order[successors[0]] == rows[place][action]


def test_lava_and_goal_are_told_by_the_cell() -> None:
    conditions = ['lava: on == "lava"', 'goal: on == "goal"', "won: terminated and reward > 0"]
    model = explore("gymnasium:MiniGrid-LavaGapS5-v0", ExplorationSettings(walk=0, conditions=conditions)).model
    assert np.array_equal(model.labels["goal"], model.labels["won"])
    assert np.array_equal(model.labels["lava"] | model.labels["goal"], model.labels["terminal"])
    assert model.action_names == ("left", "right", "forward", "pickup", "drop", "toggle", "done")
    assert model.observations is None


def test_the_reward_of_the_goal_depends_on_the_step_count() -> None:
    explored = explore(
        "gymnasium:MiniGrid-Empty-5x5-v0", ExplorationSettings(conditions=["goal: reward > 0"], walk=1_000)
    )
    model, most = explored.model, 100
    assert model.reward_spread is not None
    into = np.flatnonzero(model.reward_spread)
    assert model.labels["goal"][model.successors[into]].all()
    assert into.size == 2  # from the left and from above
    for entry in into:
        row = int(np.searchsorted(model.indptr, entry, side="right")) - 1
        middle = model.reward(row // 7, row % 7, int(model.successors[entry]))
        assert middle + model.reward_spread[entry] == pytest.approx(1 - 0.9 / most)
        assert middle - model.reward_spread[entry] == pytest.approx(1 - 0.9)
    assert any("different rewards" in note for note in explored.notes)


NAMES = {
    "empty": "MiniGrid-Empty-6x6-v0",
    "fetch": "MiniGrid-Fetch-6x6-N2-v0",
}


@pytest.mark.parametrize(("name", "seed"), [("empty", 0), pytest.param("fetch", 0, marks=slow)])
def test_models_made_by_another_program_have_the_same_rows(name: str, seed: int) -> None:
    """`policies/minigrid/worlds.py` has its own variables and its own search, and the noise of a wrapper."""
    shipped = load_model(SHIPPED / f"{name}.npz")
    source = f"gymnasium:{NAMES[name]}"
    model = explore(source, ExplorationSettings(seed=seed, walk=0, slip=0.1, slip_to="all")).model
    assert (model.states, len(model.successors)) == (shipped.states, len(shipped.successors))
    for state in range(model.states):  # both number states in breadth-first order of the actions
        for action in range(7):
            for mine, theirs in zip(model.row(state, action), shipped.row(state, action), strict=True):
                np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-12)


def test_another_layout_is_another_state() -> None:
    import gymnasium  # noqa: PLC0415 - skipped without it

    rooms = [gymnasium.make("MiniGrid-LavaGapS7-v0") for _ in range(2)]
    for seed, room in enumerate(rooms):
        room.reset(seed=seed)
    one, other = (minigrid_state(room) for room in rooms)
    assert one[:3] == other[:3]
    assert one.layout != other.layout
    explored = explore("gymnasium:MiniGrid-LavaGapS5-v0", ExplorationSettings(resets=3, walk=300))
    layouts = {valuation[-1] for valuation in explored.model.valuations}
    assert explored.model.initial is not None
    assert np.count_nonzero(explored.model.initial) == len(layouts)


def test_doors_keys_and_boxes_are_variables() -> None:
    import gymnasium  # noqa: PLC0415 - skipped without it

    room = gymnasium.make("MiniGrid-DoorKey-5x5-v0")
    room.reset(seed=0)
    things = minigrid_state(room).things
    assert "yellow door locked at" in things
    assert "yellow key at" in things
    box = gymnasium.make("MiniGrid-ObstructedMaze-1Dlh-v0")
    box.reset(seed=0)
    assert "box with" in minigrid_state(box).things


def test_a_room_full_of_things_is_a_digest_that_a_message_may_hold() -> None:
    import gymnasium  # noqa: PLC0415 - skipped without it

    room = gymnasium.make("MiniGrid-Fetch-8x8-N3-v0", numObjs=20)
    room.reset(seed=0)
    full = minigrid_state(room)
    assert len(full.things) == 32
    for entry in full:
        assert not isinstance(entry, str) or 0 < len(entry) <= 256
