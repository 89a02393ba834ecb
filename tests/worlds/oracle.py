"""An independent evaluator of worlds with numbers: one path at a time, from the definitions, nothing of the engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from statistics import NormalDist

__all__ = ["counterfactual_share"]

Pair = tuple[float, int]
Policy = Callable[[float], int]


def counterfactual_share(
    mean: Callable[[float, int], float],
    spread: float,
    whole: int | None,
    path: Sequence[Pair],
    policy: Policy,
    satisfied: Callable[[list[float]], bool],
    length: int,
    draws: int,
    seed: int,
) -> float:
    """Return the fraction of drawn worlds that satisfy a property of the states at offsets 0..length.

    A step is x' = mean(x, a) + spread z; with `whole` it is rounded half up and clipped to 0..whole. `path` begins at
    the intervention state, and `policy` acts from there on. The noise of an observed step is drawn by rejection from
    its neighbourhood: z is taken until the step comes to what was observed.
    """
    rng, normal = Random(seed), NormalDist()

    def moved(x: float, action: int, z: float) -> float:
        y = mean(x, action) + spread * z
        if whole is None:
            return y
        return float(min(max((y + 0.5) // 1.0, 0.0), whole))

    def noise(step: int) -> float:
        if step >= len(path) - 1:
            return normal.inv_cdf(rng.random())
        (x, action), successor = path[step], path[step + 1][0]
        if whole is None:
            return (successor - mean(x, action)) / spread
        for _ in range(1_000_000):
            z = normal.inv_cdf(rng.random())
            if moved(x, action, z) == successor:
                return z
        raise AssertionError("the observed step is too unlikely for rejection")

    met = 0
    for _ in range(draws):
        states = [path[0][0]]
        for step in range(length):
            x = states[-1]
            states.append(moved(x, policy(x), noise(step)))
        met += satisfied(states)
    return met / draws
