"""Rewards that depend on the successor: taken, kept, aligned with the rows, refused where they make no sense."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from monitor.errors import ModelError
from monitor.model import MDP
from monitor.model.npz import canonical_bytes, model_sha256, read_model
from monitor.model.rewards import aligned_rewards

COIN = [(0, 0, 1, 0.25), (0, 0, 2, 0.75), (1, 0, 1, 1.0), (2, 0, 2, 1.0)]


def coin(rewards: Sequence[Any]) -> MDP:
    return MDP.from_transitions(states=3, actions=1, transitions=COIN, rewards=rewards)


def twice(rewards: list[float], chances: list[float], spread: list[float] | None = None) -> MDP:
    """Two entries for 0 -> 0 before one for 0 -> 1."""
    return MDP.from_rows(
        states=2,
        actions=1,
        indptr=np.array([0, 3, 4]),
        successors=np.array([1, 0, 0, 1]),
        probabilities=np.array([*chances, 1.0]),
        transition_rewards=np.array([*rewards, 0.0]),
        reward_spread=None if spread is None else np.array([*spread, 0.0]),
    )


def rows(model: MDP) -> tuple[Any, Any, Any]:
    return model.indptr, model.successors, model.probabilities


def test_both_parts_of_a_reward_add_up() -> None:
    model = coin([(0, 0, 10.0), (0, 0, 2, 4.0), (1, 0, -1.0)])
    assert [model.reward(0, 0, s) for s in (0, 1, 2)] == [10.0, 10.0, 14.0]
    assert model.expected_rewards.tolist() == [[13.0], [-1.0], [0.0]]
    assert model.reward_range == (-1.0, 14.0)


def test_without_rewards_of_transitions_nothing_is_kept_of_them() -> None:
    for model in (coin([(0, 0, 1.0)]), coin([(0, 0, 1.0), (0, 0, 2, 0.0)])):
        assert model.transition_rewards is None
        assert model.expected_rewards is model.rewards
        assert model_sha256(model) == model_sha256(coin([(0, 0, 1.0)]))


def test_one_transition_listed_twice_has_its_mean_reward_and_remembers_the_spread() -> None:
    model = twice([7.0, -1.0, -100.0], [0.5, 0.125, 0.375])
    assert model.reward(0, 0, 0) == -75.25
    assert model.reward(0, 0, 1) == 7.0
    assert model.reward_spread is not None
    assert model.reward_spread.tolist() == [74.25, 0.0, 0.0]


def test_the_same_reward_twice_stays_that_number_and_has_no_spread() -> None:
    model = twice([0.0, 0.1, 0.1], [0.4, 0.3, 0.3])
    assert model.reward(0, 0, 0) == 0.1
    assert model.reward_spread is None


def test_a_given_spread_is_kept_and_grows_with_what_is_summed() -> None:
    model = twice([0.0, 2.0, 4.0], [0.5, 0.25, 0.25], [0.5, 1.0, 0.0])
    assert model.reward_spread is not None
    assert model.reward_spread.tolist() == [2.0, 0.5, 0.0]  # 1..3 and 4 around the mean 3


def test_entries_without_probability_are_dropped_with_their_rewards() -> None:
    model = twice([7.0, -1.0, -100.0], [0.5, 0.5, 0.0])
    assert model.reward(0, 0, 0) == -1.0
    assert model.reward_spread is None


def test_a_file_holds_them_and_another_model_has_another_name() -> None:
    model = twice([7.0, -1.0, -100.0], [0.5, 0.125, 0.375])
    read = read_model(canonical_bytes(model), "file")
    assert model_sha256(read) == model_sha256(model)
    assert read.reward(0, 0, 0) == -75.25
    assert model_sha256(twice([7.0, -1.0, -1.0], [0.5, 0.125, 0.375])) != model_sha256(model)


def test_another_dynamics_takes_the_rewards_of_the_transitions_it_shares() -> None:
    model = coin([(0, 0, 1, 3.0), (0, 0, 2, 4.0)])
    other = MDP.from_transitions(
        states=3, actions=1, transitions=[(0, 0, 0, 0.5), (0, 0, 2, 0.5), (1, 0, 0, 1.0), (2, 0, 2, 1.0)]
    )
    aligned = aligned_rewards(rows(model), model.transition_rewards, rows(other))
    assert aligned is not None
    assert aligned.tolist() == [0.0, 4.0, 0.0, 0.0]


def test_the_copy_of_a_model_whose_episode_has_ended_pays_nothing_there() -> None:
    model = MDP.from_transitions(
        states=2,
        actions=2,
        transitions=[(0, 0, 1, 1.0), (1, 0, 0, 0.5), (1, 0, 1, 0.5)],
        rewards=[(0, 0, 1, 2.0), (1, 0, 1, 5.0)],
    )
    ended = model.with_absorbing(1)
    assert [ended.reward(0, 0, 1), ended.reward(1, 0, 1), ended.reward(1, 1, 1)] == [2.0, 0.0, 0.0]
    loop = MDP.from_transitions(states=1, actions=1, transitions=[(0, 0, 0, 1.0)], rewards=[(0, 0, 0, 1.0)])
    assert not loop.is_absorbing(0)


@pytest.mark.parametrize(
    ("rewards", "message"),
    [
        ([(0, 0, 0, 1.0)], r"\(state 0, action 0\) -> 0, which is not a transition of the model"),
        ([(0, 0, 1, 1.0), (0, 0, 1, 2.0)], r"\(state 0, action 0\) -> 1 is given twice"),
        ([(0, 0, 1.0), (0, 0, 2.0)], r"the reward of \(state 0, action 0\) is given twice"),
        ([(0, 0, 6e139), (0, 0, 1, 6e139)], r"the reward of \(state 0, action 0\) exceeds 1e\+140"),
        ([(0, 0, 1e301)], r"the reward of \(state 0, action 0\) exceeds 1e\+140"),
        ([(1, 0, 1, -1e301)], r"the reward of \(state 1, action 0\) exceeds 1e\+140"),
        ([(0, 0, 3, 1.0)], "reward: successor 3"),
        ([(0, 0, 1, float("inf"))], "every entry must be finite"),
        ([(0, 0, 0, 0, 1.0)], "needs 3 fields, one has 5"),
        ([7], "a list of tuples is needed"),
    ],
)
def test_rewards_that_make_no_sense_are_refused(rewards: Sequence[Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        coin(rewards)


def test_wrong_arrays_are_refused() -> None:
    with pytest.raises(ModelError, match="one for each of the 3 successors"):
        MDP.from_rows(
            states=2,
            actions=1,
            indptr=np.array([0, 2, 3]),
            successors=np.array([0, 1, 1]),
            probabilities=np.array([0.5, 0.5, 1.0]),
            transition_rewards=np.zeros(2),
        )
    with pytest.raises(ModelError, match="reward_spread: entry 1 is negative"):
        twice([0.0, 2.0, 4.0], [0.5, 0.25, 0.25], [0.5, -1.0, 0.0])
