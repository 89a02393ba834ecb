"""The value that is published with a missed goal is the mean of a number of draws that they did not decide."""

from __future__ import annotations

import math

import pytest

from monitor.evaluation import check
from monitor.model import MDP
from monitor.types import Sampling, Verdict
from tests.tiers import heavy

SAFE = {0: 0.7, 1: 0.95}
"""Action -> probability that the next state is safe."""
MODEL = MDP.from_transitions(
    states=3,
    actions=2,
    transitions=[(0, a, 1, p) for a, p in SAFE.items()]
    + [(0, a, 2, 1 - p) for a, p in SAFE.items()]
    + [(s, a, s, 1.0) for s in (1, 2) for a in SAFE],
    labels={"safe": [1]},
)
POLICIES = {"nominal": [0, 0, 0], "careful": [1, 1, 1]}


def sampled(text: str, sampling: Sampling) -> Verdict:
    return check(text, model=MODEL, path=[(0, None)], policies=POLICIES, engine="sampled", sampling=sampling)


@heavy
@pytest.mark.parametrize("text", ['P>=0.8 [ X "safe" ]', 'regret(careful@0, P>=0.8 [ X "safe" ])'])
def test_means_do_not_lean_away_from_the_bound(text: str) -> None:
    """A test of .7 against .8 ends early where the first draws happen to be bad."""
    seeds = 200
    verdicts = [sampled(text, Sampling(seed=seed)) for seed in range(seeds)]
    for n, true in enumerate(list(SAFE.values())[: len(verdicts[0].quantities)]):
        found = [verdict.quantities[n] for verdict in verdicts if not verdict.quantities[0].holds]
        assert len(found) > 0.9 * seeds
        assert min(each.samples for each in found) >= 1024
        draws = sum(each.samples for each in found)
        mean = sum(each.value * each.samples for each in found) / draws
        assert abs(mean - true) < 4 * math.sqrt(true * (1 - true) / draws) + 0.001


def test_the_limit_of_draws_is_the_users() -> None:
    (quantity,) = sampled('P>=0.8 [ X "safe" ]', Sampling(limit=700)).quantities
    assert quantity.samples <= 700


def test_a_goal_that_is_met_is_not_drawn_on() -> None:
    (quantity,) = sampled('P>=0.2 [ X "safe" ]', Sampling()).quantities
    assert quantity.holds
    assert quantity.samples < 1024
