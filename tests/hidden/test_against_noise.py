"""Answers on hidden states against worlds that are played with explicit noise, at random over kinds of policies."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pytest

import monitor
from monitor.policy.controller import Controller, Policy
from tests.hidden.played import Mind, Play, Small, some_world
from tests.tiers import slow

WORLDS = 60_000
HORIZON = 3
KINDS: dict[str, dict[str, Any]] = {
    "observation": {},
    "state": {"sees_state": True},
    "shadow": {"memories": 2},
    "reset": {"memories": 2, "shadows": False},
}


def policy(mind: Mind) -> object:
    sees: Literal["state", "observation"] = "state" if mind.sees_state else "observation"
    if len(mind.following) == 1:
        return Policy(mind.choice[0], sees=sees)
    return Controller(mind.choice, mind.following, memory="shadow" if mind.shadows else "reset", sees=sees)


def model_of(world: Small, **more: Any) -> monitor.MDP:  # noqa: ANN401 - of `from_transitions`
    states, actions, _ = world.rows.shape
    return monitor.MDP.from_transitions(
        states=states,
        actions=actions,
        transitions=[(*index, world.rows[index]) for index in np.ndindex(world.rows.shape) if world.rows[index] > 0],
        labels={"bad": [0], "good": [states - 1]},
        initial=dict(enumerate(world.initial)),
        signals=world.emissions.shape[1],
        emissions=[(*index, world.emissions[index]) for index in np.ndindex(world.emissions.shape)],
        **more,
    )


def difference(kind: str, seed: int, *, missing: bool) -> float | None:
    """Return how many standard errors the answer is from the share of the played worlds; None if too few are left."""
    rng = np.random.default_rng(seed)
    world = some_world(rng, **KINDS[kind])
    pairs, offset = 3, int(rng.integers(3))
    play = Play(world, pairs + HORIZON, WORLDS, rng)
    happened = play.nominal()
    example = rng.integers(WORLDS)
    path = [(int(happened["seen"][k][example]), int(happened["actions"][k][example])) for k in range(pairs)]
    gap = int(rng.integers(pairs)) if missing else -1
    kept = np.ones(WORLDS, dtype=bool)
    for k, (seen, action) in enumerate(path):
        kept &= (happened["actions"][k] == action) & ((k == gap) | (happened["seen"][k] == seen))
    if kept.sum() < 400:
        return None
    at = pairs - 1 - offset
    visited = (play.changed(happened, at)["states"][: HORIZON + 1] == 0).any(axis=0)[kept]
    verdict = monitor.check(
        f'other@{offset}.P=? [ F<={HORIZON} "bad" ]',
        model=model_of(world),
        policies={"nominal": policy(world.nominal), "other": policy(world.alternative)},
        path=[(None if k == gap else seen, action) for k, (seen, action) in enumerate(path)],
    )
    share = kept.sum() / WORLDS
    assert verdict.evidence is not None
    assert abs(verdict.evidence - share) < 5.0 * np.sqrt(share / WORLDS)
    assert verdict.value is not None
    spread = np.sqrt(max(verdict.value * (1 - verdict.value), 1e-9) / kept.sum())
    return float((visited.mean() - verdict.value) / spread)


@pytest.mark.parametrize("missing", [False, True], ids=["all seen", "one missing"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [3, pytest.param(40, marks=slow)])
def test_answers_are_the_shares_of_worlds_played_with_the_same_noise(kind: str, count: int, *, missing: bool) -> None:
    found = [difference(kind, seed, missing=missing) for seed in range(count)]
    scores = np.array([z for z in found if z is not None])
    assert len(scores) >= count // 2
    assert np.abs(scores).max() < 4.5
    assert np.sqrt((scores**2).mean()) < (1.25 if count > 10 else 2.5)
