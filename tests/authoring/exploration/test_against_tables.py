"""Environments explored by copies have the rows of their own tables `P`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from monitor.authoring.exploration.enumeration import ExplorationSettings, explore
from monitor.model import MDP, load_model
from tests.authoring.exploration import worlds
from tests.tiers import slow

gymnasium = pytest.importorskip("gymnasium")

WORLDS = f"{Path(worlds.__file__)}"


def alike(model: MDP, table: MDP, numbers: list[int]) -> None:
    """`numbers`: state of the table for each state of the model."""
    for state, number in enumerate(numbers):
        for action in range(model.actions):
            successors, chances = model.row(state, action)
            row = np.zeros(table.states)
            row[np.array(numbers)[successors]] = chances
            expected = np.zeros(table.states)
            targets, weights = table.row(number, action)
            expected[targets] = weights
            np.testing.assert_allclose(row, expected, rtol=0, atol=1e-15)
            for successor in successors:
                assert model.reward(state, action, int(successor)) == pytest.approx(
                    table.reward(number, action, numbers[successor]), abs=1e-12
                )


def in_table(model: MDP, table: MDP) -> list[int]:
    """The table's number of each state, from its valuation; a state that only an end leads to is the table's copy."""
    terminal = model.labels["terminal"]
    return [
        table.ended(int(valuation[0])) if terminal[state] else int(valuation[0])
        for state, valuation in enumerate(model.valuations)
    ]


@pytest.mark.parametrize(
    ("source", "resets", "states"),
    [
        ("gymnasium:CliffWalking-v1", 1, 38),
        ("gymnasium:FrozenLake-v1?map_name=8x8&is_slippery=false", 1, 64),
        pytest.param("gymnasium:Taxi-v4", 200, 404, marks=slow),
    ],
)
def test_what_copies_find_is_the_table(source: str, resets: int, states: int) -> None:
    explored = explore(source, ExplorationSettings(resets=resets, walk=2_000))
    table = load_model(source)
    model = explored.model
    assert explored.walked == 2_000
    assert model.states <= states
    numbers = in_table(model, table)
    assert len(set(numbers)) == model.states
    alike(model, table, numbers)
    assert reachable(table, [numbers[s] for s in np.flatnonzero(model.initial)]) == set(numbers)  # type: ignore[arg-type]
    for state, number in enumerate(numbers):
        assert model.labels["terminal"][state] == table.labels["terminal"][number]


def reachable(table: MDP, start: list[int]) -> set[int]:
    found, waiting = set(start), list(start)
    while waiting:
        state = waiting.pop()
        for action in range(table.actions):
            new = {int(t) for t in table.row(state, action)[0]} - found
            found |= new
            waiting += new
    return found


def test_a_random_environment_is_enumerated_by_its_hook() -> None:
    model = explore(f"{WORLDS}:Table", ExplorationSettings()).model
    table = load_model("gymnasium:FrozenLake-v1?is_slippery=true")
    numbers = in_table(model, table)
    assert sorted(numbers) == list(range(16))
    alike(model, table, numbers)
    assert np.array_equal(model.labels["terminal"], table.labels["terminal"][numbers])
    assert model.observations is not None
    assert model.observations.argmax(axis=1).tolist() == numbers


@slow
def test_taxi_starts_as_often_as_its_resets() -> None:
    model = explore("gymnasium:Taxi-v4", ExplorationSettings(resets=50, walk=0)).model
    env: Any = gymnasium.make("Taxi-v4")
    starts = [int(env.reset(seed=seed)[0]) for seed in range(50)]
    assert model.initial is not None
    for state, valuation in enumerate(model.valuations):
        ended = model.labels["terminal"][state]
        assert model.initial[state] == pytest.approx(0 if ended else starts.count(int(valuation[0])) / 50)
