"""Steps of a fleet that acts as a shipped configuration's deployed policy does: what its agents would publish."""

from __future__ import annotations

import random
from bisect import bisect
from collections.abc import Iterator
from functools import cache
from itertools import accumulate

import numpy as np

from monitor.sidecar.config.load import Loaded

__all__ = ["LONGEST", "fleet_steps"]

LONGEST = 200
"""Steps after which an episode is truncated, as in the demo."""


def fleet_steps(loaded: Loaded, agents: int, count: int, seed: int = 7) -> Iterator[tuple[str, dict[str, object]]]:
    """Yield `count` (agent, message without `time`), round robin over the agents, who all begin at step 0.

    The model is the environment, and every agent reports the policy it runs, as the demo's agents do. Those ask the
    ONNX file at each step; here its table is drawn from, because a fleet makes 10,000 steps a second.
    """
    draw = random.Random(seed)
    model, policy = loaded.mdp, loaded.policies["nominal"]
    assert model.initial is not None, "a shipped model says where episodes begin"
    first = [float(p) for p in np.cumsum(model.initial)]

    @cache
    def choices(state: int) -> list[float]:
        return list(accumulate(float(p) for p in policy.table.distribution(state, model.actions)))

    @cache
    def outcomes(state: int, action: int) -> tuple[list[int], list[float]]:
        successors, probabilities = model.row(state, action)
        return [int(each) for each in successors], list(accumulate(float(p) for p in probabilities))

    @cache
    def over(state: int) -> bool:
        rows = (outcomes(state, action)[0] for action in range(model.actions))
        return all(not row or row == [state] for row in rows)

    def drawn(cumulative: list[float]) -> int:
        return min(bisect(cumulative, draw.random()), len(cumulative) - 1)

    def steps(agent: int) -> Iterator[dict[str, object]]:
        episode = 0
        while True:
            state = drawn(first)
            for seq in range(LONGEST):
                message: dict[str, object] = {"v": 1, "episode": f"{agent}-{episode}", "seq": seq, "state": state}
                if over(state):
                    yield {**message, "terminated": True}
                    break
                action = drawn(choices(state))
                end = {"truncated": True} if seq == LONGEST - 1 else {}
                yield {**message, "action": action, "policy": policy.manifest.sha256, **end}
                successors, cumulative = outcomes(state, action)
                state = successors[drawn(cumulative)]
            episode += 1

    streams = [steps(agent) for agent in range(agents)]
    for n in range(count):
        yield f"a{n % agents}", next(streams[n % agents])
