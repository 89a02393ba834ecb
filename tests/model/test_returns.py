"""What a converted model says of rewards is what Gymnasium pays. The long form is `tests.model.returns`."""

from __future__ import annotations

import numpy as np
import pytest

import monitor
from monitor.model import MDP
from tests.model.returns import Episode, episode, random_policy, row
from tests.tiers import examples, scaled

Z = 4.9
"""Standard errors a mean may be off: a true model exceeds them with probability 1e-6."""


@scaled
@pytest.mark.parametrize("source", ["CliffWalking-v1", "CliffWalkingSlippery-v1"])
def test_the_expected_return_is_that_of_gymnasium(source: str) -> None:
    pytest.importorskip("gymnasium")
    found = row(source, examples(1000, 3000), seed=2)
    assert abs(found.z) < Z, found
    assert 3 * found.error < 0.1 * abs(found.mean)  # so that a mistake would show


@scaled
@pytest.mark.parametrize("source", ["CliffWalking-v1", "CliffWalkingSlippery-v1"])
def test_a_replay_of_what_happened_earns_what_was_paid(source: str) -> None:
    gymnasium = pytest.importorskip("gymnasium")
    model = monitor.load_model(f"gymnasium:{source}")
    policy, rng = random_policy(model), np.random.default_rng(3)
    environment = gymnasium.make(source)
    environment.reset(seed=3)
    paid = set()
    for _ in range(examples(60, 300)):
        pairs, rewards = sure(model, *episode(environment, policy, rng, 30))
        if len(pairs) > 1:
            steps = len(pairs) - 1
            text = f"@{steps}.R=? [ C<={steps - 1} ]"
            verdict = monitor.check(text, model=model, path=pairs, policies={"nominal": policy})
            assert verdict.value == pytest.approx(sum(rewards), abs=1e-9)
            paid.add(sum(rewards))
    assert min(paid) <= -100  # falls among them
    assert len(paid) > 5


def sure(model: MDP, pairs: list[tuple[int, int]], rewards: list[float]) -> Episode:
    """The first part of an episode in which every transition has one reward; those of its transitions, one fewer.

    From the start of CliffWalking and beside it the same transition may cost 1 or 100.
    """
    spread = np.zeros(len(model.successors)) if model.reward_spread is None else model.reward_spread
    rows = np.repeat(np.arange(model.states * model.actions), np.diff(model.indptr))
    vague = {int(row) // model.actions for row in rows[spread > 0]}
    first = next((at for at, (state, _) in enumerate(pairs) if state not in vague), len(pairs))
    last = next((at for at in range(first, len(pairs)) if pairs[at][0] in vague), len(pairs) - 1)
    return pairs[first : last + 1], rewards[first:last]
