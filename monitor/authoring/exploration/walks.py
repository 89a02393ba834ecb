"""Comparison of an explored model with the environment itself, run from its start with random actions."""

from __future__ import annotations

from typing import Final

import numpy as np

from monitor.authoring.exploration.copies import CopySimulator
from monitor.authoring.exploration.identity import shown
from monitor.authoring.exploration.search import SearchResult
from monitor.errors import ModelError
from monitor.model.annotations import Valuation

STEPS: Final = 10_000
"""Default number of steps that are compared."""

_LONGEST_EPISODE: Final = 1000


def compare_walks(simulator: CopySimulator, found: SearchResult, steps: int, seed: int) -> int:
    """Run `steps` steps with random actions, compare each step with the search, and return the number of steps.

    Rewards outside the range found so far widen the range of the transition. Raises ModelError if a step leads to
    another state, or if the episode wrongly ends or does not end.
    """
    rng, done = np.random.default_rng(seed), 0
    seeds = simulator.seeds
    for episode in range(steps):
        if done >= steps:
            break
        done += _episode(simulator, found, seeds[episode % len(seeds)], rng, min(steps - done, _LONGEST_EPISODE))
    return done


def _episode(simulator: CopySimulator, found: SearchResult, seed: int, rng: np.random.Generator, most: int) -> int:
    drawn, taken = rng.integers(simulator.actions, size=most).tolist(), []
    for step in simulator.walk(iter(drawn), seed):
        taken += [step[1]] if step[2] is not None else []
        _check(found, step, taken, seed)
    return max(len(taken), 1)


def _check(
    found: SearchResult, step: tuple[Valuation, int, Valuation | None, bool, float], taken: list[int], seed: int
) -> None:
    key, action, after, terminated, reward = step
    state = found.numbers.get((key, False))
    entries = [] if state is None else found.rows[state][action]
    if after is None:
        if entries:
            raise ModelError(
                f"the environment departs from what was explored: after reset(seed={seed}) and actions {taken[-20:]}, "
                f"its action_masks() rules out action {action} in {shown(key)}, and did not before. It must depend on "
                "the state of the environment that it is called on: give --key module.py:function if the key lacks it"
            )
        return
    target = found.numbers.get((after, terminated))
    entry = next((each for each in entries if each.target == target), None)
    if entry is None:
        end = ", terminated" if terminated else ""
        listed = taken if len(taken) <= 20 else f"... {taken[-20:]}"
        raise ModelError(
            f"the environment departs from what was explored: after reset(seed={seed}) and actions {listed}, the last "
            f"step led from {shown(key)} to {shown(after)}{end}. It is random in a way that the snapshots hide, or the "
            "key does not identify the state: give --key module.py:function, or a method successors(state, action)"
        )
    entry.low, entry.high = min(entry.low, reward), max(entry.high, reward)
    found.nodes[entry.target].rewards.add(reward)
