"""The demo's world: it follows the model's rows, and a seed fixes a walk."""

from __future__ import annotations

import numpy as np
import pytest

from monitor.demo.model_environment import ModelEnvironment
from monitor.errors import ModelError
from monitor.model import MDP

TRANSITIONS = [(0, 0, 0, 0.25), (0, 0, 1, 0.75), (1, 0, 1, 1.0)]
MODEL = MDP.from_transitions(states=2, actions=2, transitions=TRANSITIONS, initial={0: 1.0})


def walk(seed: int, episodes: int) -> list[int]:
    simulator = ModelEnvironment(MODEL, np.random.default_rng(seed))
    lengths = []
    for _ in range(episodes):
        simulator.reset()
        length = 0
        while not simulator.over:
            simulator.step(0)
            length += 1
        lengths.append(length)
    return lengths


def test_a_seed_fixes_the_walk() -> None:
    assert walk(3, 50) == walk(3, 50)
    assert walk(3, 50) != walk(4, 50)


def test_the_walk_follows_the_rows() -> None:
    lengths = walk(1, 2000)
    moves = sum(lengths)  # each leaves state 0 with probability 3/4
    deviation = (2000 - 0.75 * moves) / np.sqrt(moves * 0.75 * 0.25)
    assert abs(deviation) < 4.9  # two-sided 1e-6 of a normal


def test_a_hidden_state_is_shown_by_the_emissions() -> None:
    emissions = [(0, 0, 0.2), (0, 1, 0.8), (1, 1, 1.0)]
    model = MDP.from_transitions(
        states=2, actions=1, transitions=TRANSITIONS, initial={0: 1.0}, signals=2, emissions=emissions
    )
    simulator = ModelEnvironment(model, np.random.default_rng(0))
    shown = [simulator.reset() for _ in range(2000)]
    assert abs(shown.count(0) - 400) < 4.9 * np.sqrt(2000 * 0.2 * 0.8)
    while not simulator.over:
        last = simulator.step(0)
    assert last == 1


def test_an_unavailable_action_is_refused() -> None:
    simulator = ModelEnvironment(MODEL, np.random.default_rng(0))
    simulator.reset()
    with pytest.raises(ModelError, match="action 1 is not available in state 0"):
        simulator.step(1)


def test_a_world_without_a_beginning_is_refused() -> None:
    model = MDP.from_transitions(states=2, actions=2, transitions=TRANSITIONS)
    with pytest.raises(ModelError, match="no initial distribution"):
        ModelEnvironment(model, np.random.default_rng(0))
