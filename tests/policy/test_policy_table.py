from __future__ import annotations

import numpy as np
import pytest

from monitor.errors import PolicyError
from monitor.model.mdp import MDP
from monitor.policy.table import PolicyTable, as_table

# State 1 has only action 1.
MODEL = MDP.from_transitions(
    states=2, actions=2, transitions=[(0, 0, 0, 1.0), (0, 1, 1, 1.0), (1, 1, 1, 1.0)], labels={}
)


def test_a_list_of_actions_is_a_deterministic_policy() -> None:
    table = as_table([0, 1], MODEL)
    assert table.choices(0) == [(0, 1.0)]
    assert table.probabilities is None
    assert table.actions is not None
    with pytest.raises(ValueError, match="read-only"):
        table.actions[0] = 1


def test_a_matrix_is_a_stochastic_policy() -> None:
    table = as_table([[0.25, 0.75], [0.0, 1.0]], MODEL)
    assert table.choices(0) == [(0, 0.25), (1, 0.75)]
    assert table.choices(1) == [(1, 1.0)]
    assert table.actions is None
    assert table.probabilities is not None
    with pytest.raises(ValueError, match="read-only"):
        table.probabilities[0, 0] = 1


def test_a_choice_is_a_distribution_whatever_the_policy() -> None:
    assert as_table([0, 1], MODEL).distribution(1, 2).tolist() == [0.0, 1.0]
    assert as_table([[0.25, 0.75], [0.0, 1.0]], MODEL).distribution(0, 2).tolist() == [0.25, 0.75]


def test_a_table_is_checked_again_and_stays_the_same_to_the_bit() -> None:
    third = as_table([[1 / 3, 2 / 3 + 5e-10], [0.0, 1.0]], MODEL)
    again = as_table(third, MODEL)
    assert third.probabilities is not None
    assert again.probabilities is not None
    assert third.probabilities.sum(axis=1).tolist() == [1.0, 1.0]
    assert np.array_equal(third.probabilities, again.probabilities)
    assert as_table(as_table([0, 1], MODEL), MODEL).choices(1) == [(1, 1.0)]
    with pytest.raises(PolicyError, match="action 0, which is unavailable"):
        as_table(PolicyTable(actions=np.array([0, 0])), MODEL)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([0], "1 actions for 2 states"),
        ([0, 2], r"state 1: action 2 is outside 0\.\.1"),
        ([-1, 1], "state 0: action -1 is outside"),
        ([0.0, 1.0], "whole numbers"),
        ([0, 0], r"state 1: the policy takes action 0, which is unavailable there \(available: \[1\]\)"),
        ([[0.5, 0.5], [0.5, 0.5]], "state 1: the policy takes action 0, which is unavailable"),
        ([[0.5, 0.49], [0.0, 1.0]], r"state 0: the action probabilities sum to 0\.99, not 1"),
        ([[1.5, -0.5], [0.0, 1.0]], r"state 0, action 1: -0\.5 is not a probability"),
        ([[float("nan"), 1.0], [0.0, 1.0]], "state 0, action 0: nan is not a probability"),
        ([[1.0], [1.0]], "has shape"),
        ([["a", "b"], ["c", "d"]], "has shape"),
        ([[1.0], [0.5, 0.5]], "2 x 2 matrix"),
        (3, "has shape"),
        (None, "has shape"),
    ],
)
def test_what_is_no_policy_for_the_model_is_refused(value: object, message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        as_table(value, MODEL)
