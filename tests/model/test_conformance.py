"""An environment is run beside its own table, and what does not follow it is reported."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from monitor.authoring.formats.conformance import STEPS, conformance
from monitor.errors import ModelWarning
from monitor.model import load_model
from tests.tiers import examples, first, scaled

Table = dict[int, dict[int, list[tuple[float, int, float, bool]]]]
COIN: Table = {0: {0: [(0.5, 0, 0.0, False), (0.5, 1, 1.0, True)]}, 1: {0: [(1.0, 1, 0.0, True)]}}


class Environment:
    """Publishes `table` and follows `real`."""

    def __init__(self, table: Table, real: Table) -> None:
        self.P, self._real = table, real
        self.unwrapped = self
        self.observation_space, self.action_space = SimpleNamespace(n=len(table)), SimpleNamespace(n=len(table[0]))
        self._rng = np.random.default_rng()
        self._state = 0

    def reset(self, *, seed: int | None = None) -> tuple[int, dict[str, Any]]:
        if seed is not None:
            self._rng = np.random.default_rng(seed)
        self._state = 0
        return 0, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        moves = self._real[self._state][action]
        _, self._state, reward, terminated = moves[self._rng.choice(len(moves), p=[p for p, *_ in moves])]
        return self._state, reward, terminated, False, {}


@scaled
def test_an_environment_that_follows_its_table_has_no_problem() -> None:
    """False alarms: with probability 1e-6 at most for each seed, and the seeds are fixed."""
    for seed in range(examples(2, 5)):
        found = conformance(Environment(COIN, COIN), seed=seed)
        assert (found.steps, found.problem) == (STEPS, "")


@pytest.mark.parametrize(
    ("real", "says"),
    [
        (
            [(0.9, 0, 0.0, False), (0.1, 0, 0.0, True)],
            r"steps ended the episode, against P \(step \d+: state 0, action",
        ),
        ([(0.9, 0, 0.0, False), (0.1, 1, 1.0, False)], "steps did not end the episode, against P"),
        (
            [(0.9, 0, 0.0, False), (0.1, 1, 2.0, True)],
            r"steps earned another reward than in P .*reward 2, terminated\)",
        ),
        ([(0.5, 0, 0.0, False), (0.5, 2, 0.0, True)], r"steps led where P has no transition .*-> state 2, reward 0"),
        ([(0.55, 0, 0.0, False), (0.45, 1, 1.0, True)], r"frequencies over 10,000 steps contradict it \(e-value 1e\d+"),
    ],
)
def test_what_the_table_leaves_out_is_reported(real: list[tuple[float, int, float, bool]], says: str) -> None:
    table = {**COIN, 2: {0: [(1.0, 2, 0.0, True)]}}
    found = conformance(Environment(table, {**table, 0: {0: real}}))
    assert re.search(f"the environment does not follow its own P: .*{says}.*values computed on", found.problem)


def test_the_same_steps_are_taken_each_time() -> None:
    biased: Table = {**COIN, 0: {0: [(0.55, 0, 0.0, False), (0.45, 1, 1.0, True)]}}
    found = [conformance(Environment(COIN, biased)) for _ in range(2)]
    assert "e-value" in found[0].problem
    assert found[0] == found[1]


def test_entries_that_are_listed_twice_are_one_and_actions_without_any_are_not_taken() -> None:
    table: Table = {0: {0: [(0.25, 0, 0.0, False), (0.25, 0, 0.0, False), (0.5, 0, 3.0, False)], 1: []}}
    assert conformance(Environment(table, table)).problem == ""


def test_an_environment_that_cannot_be_run_is_not_vouched_for() -> None:
    class Broken(Environment):
        def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
            raise RuntimeError(f"no power for {action}")

    problem = conformance(Broken(COIN, COIN)).problem
    assert problem.startswith("it is not known whether the environment follows its own P: it stopped after 0 steps")
    assert "no power" in problem


def test_the_fickle_passenger_is_reported() -> None:
    pytest.importorskip("gymnasium")
    with pytest.warns(ModelWarning, match=r"fickle_passenger=true: the environment does not follow its own P: \d+ of"):
        load_model("gymnasium:Taxi-v4?fickle_passenger=true")


@pytest.mark.parametrize(
    "source",
    first(3, ["Taxi-v4?is_rainy=true", "FrozenLake-v1", "CliffWalkingSlippery-v1", "Taxi-v4", "CliffWalking-v1"]),
)
def test_what_comes_with_gymnasium_follows_its_table(source: str) -> None:
    pytest.importorskip("gymnasium")
    load_model(f"gymnasium:{source}")  # a warning would be an error
