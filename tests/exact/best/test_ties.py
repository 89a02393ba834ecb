"""Which of equally good actions `optimal` takes: equal for the future, not for what would have been."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from typing import Any

import pytest

import monitor
from monitor.referee import derive

POOR, SAME, OTHER = range(3)
ROWS = {POOR: {1: 0.3, 3: 0.7}, SAME: {1: 0.5, 3: 0.5}, OTHER: {2: 0.5, 3: 0.5}}
FORK = monitor.MDP.from_transitions(
    states=4,
    actions=3,
    labels={"good": [1, 2]},
    transitions=[
        *((0, action, successor, p) for action, row in ROWS.items() for successor, p in row.items()),
        *((state, action, state, 1.0) for state in (1, 2, 3) for action in ROWS),
    ],
)
"""From state 0 `SAME` and `OTHER` lead to a good state with probability .5, to another one each; `POOR` with .3."""
REACHED = [(0, POOR), (1, POOR)]
GIVEN = {
    SAME: Fraction(1),  # more likely there than by what was done, so by stability certain
    OTHER: 1 - Fraction(1, 2) / Fraction(17, 10),  # .5 times the integral from .7/.5 on of du / (.3 + u)^2
    POOR: Fraction(1),
}
"""The chance of a good state by each action, given that `POOR` led to one."""


def taken_by_optimal(nominal: tuple[float, ...]) -> int:
    """The rule as written: all pairs of actions are compared, none is sorted."""
    tied = [SAME, OTHER]  # POOR is worse by .2
    liked = [a for a in tied if all(nominal[a] >= nominal[b] for b in tied)]
    return min(liked)


DISTRIBUTIONS = [tuple(part / 10 for part in parts) for parts in product(range(0, 11, 2), repeat=3) if sum(parts) == 10]


@pytest.mark.parametrize("nominal", DISTRIBUTIONS)
def test_of_equally_good_actions_optimal_takes_the_one_that_nominal_takes_most(nominal: tuple[float, ...]) -> None:
    policies = {"nominal": [list(nominal)] * 4}
    about: dict[str, Any] = {"model": FORK, "path": REACHED, "policies": policies}
    wanted = float(GIVEN[taken_by_optimal(nominal)])
    for answer in (monitor.check, derive):
        (quantity,) = answer('optimal@1.P>=0.9 [ F=1 "good" ]', **about).quantities
        assert quantity.value == pytest.approx(wanted, abs=1e-12)


def test_each_of_the_two_is_taken_by_some_policy_and_what_each_would_have_given_is_that_of_its_policy() -> None:
    assert {taken_by_optimal(each) for each in DISTRIBUTIONS} == {SAME, OTHER}
    for action, value in GIVEN.items():
        about: dict[str, Any] = {"model": FORK, "path": REACHED, "policies": {"nominal": [POOR] * 4}}
        for answer in (monitor.check, derive):
            assert answer(f'do({action})@1.P=? [ F=1 "good" ]', **about).value == pytest.approx(float(value), abs=1e-12)


@pytest.mark.parametrize(("gap", "taken"), [(2e-13, OTHER), (1e-11, SAME)])
def test_a_difference_within_rounding_is_none(gap: float, taken: int) -> None:
    """`OTHER`, which nominal takes, is worse by this much."""
    rows = [(0, POOR, 1, 0.3), (0, POOR, 3, 0.7), (0, SAME, 1, 0.5), (0, SAME, 3, 0.5)]
    rows += [(0, OTHER, 2, 0.5 - gap), (0, OTHER, 3, 0.5 + gap)]
    rows += [(state, action, state, 1.0) for state in (1, 2, 3) for action in ROWS]
    model = monitor.MDP.from_transitions(states=4, actions=3, labels={"good": [1, 2]}, transitions=rows)
    about: dict[str, Any] = {"model": model, "path": REACHED, "policies": {"nominal": [[0.0, 0.2, 0.8]] * 4}}
    for answer in (monitor.check, derive):
        (quantity,) = answer('optimal@1.P>=0.9 [ F=1 "good" ]', **about).quantities
        assert quantity.value == pytest.approx(float(GIVEN[taken]), abs=1e-9)
