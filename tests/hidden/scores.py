"""Scores of answers on hidden states, in random worlds of each kind, against worlds played with explicit noise.

`python -m tests.hidden.scores [--worlds N]` prints what the tests assert of fewer: the largest score, and the root mean
square of all of them.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from itertools import count, islice
from typing import Any, Literal

import numpy as np
from scipy.stats import binom, norm

import monitor
from monitor.policy.controller import Controller, Policy
from tests.hidden.played import Mind, Play, Small, some_world

PLAYS = 60_000
FEWEST = 400
"""Plays that show the observed path, at least, for a score."""
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
    """Return where the number of plays falls in the distribution that follows from the answer, as a standard normal.

    As one exactly, also where that number is small: drawn uniformly within its own probability. None if too few plays
    are left.
    """
    rng = np.random.default_rng([seed, list(KINDS).index(kind), missing])
    world = some_world(rng, **KINDS[kind])
    pairs, offset = 3, int(rng.integers(3))
    play = Play(world, pairs + HORIZON, PLAYS, rng)
    happened = play.nominal()
    example = rng.integers(PLAYS)
    path = [(int(happened["seen"][k][example]), int(happened["actions"][k][example])) for k in range(pairs)]
    gap = int(rng.integers(pairs)) if missing else -1
    kept = np.ones(PLAYS, dtype=bool)
    for k, (seen, action) in enumerate(path):
        kept &= (happened["actions"][k] == action) & ((k == gap) | (happened["seen"][k] == seen))
    if kept.sum() < FEWEST:
        return None
    at = pairs - 1 - offset
    visited = (play.changed(happened, at)["states"][: HORIZON + 1] == 0).any(axis=0)[kept]
    verdict = monitor.check(
        f'other@{offset}.P=? [ F<={HORIZON} "bad" ]',
        model=model_of(world),
        policies={"nominal": policy(world.nominal), "other": policy(world.alternative)},
        path=[(None if k == gap else seen, action) for k, (seen, action) in enumerate(path)],
    )
    share = kept.sum() / PLAYS
    assert verdict.evidence is not None
    assert abs(verdict.evidence - share) < 5.0 * np.sqrt(share / PLAYS)
    assert verdict.value is not None
    expected, hits = binom(len(visited), min(max(verdict.value, 0.0), 1.0)), visited.sum()
    below, above = expected.cdf(hits - 1), expected.sf(hits)
    within, part = 1.0 - below - above, rng.random()
    low, high = below + part * within, above + (1.0 - part) * within
    return float(norm.ppf(low) if low < high else norm.isf(high))


def scores(kind: str, *, missing: bool) -> Iterator[float]:
    """Yield the scores of random worlds, endlessly."""
    found = (difference(kind, seed, missing=missing) for seed in count())
    return (score for score in found if score is not None)


def main() -> None:
    """Print the scores of so many worlds, over all kinds in equal parts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--worlds", type=int, default=2000)
    each = -(-parser.parse_args().worlds // (2 * len(KINDS)))
    found: list[float] = []
    for kind in KINDS:
        for missing in (False, True):
            found += islice(scores(kind, missing=missing), each)
            largest, rms = np.abs(found).max(), np.sqrt(np.square(found).mean())
            sys.stdout.write(f"{len(found)} worlds: largest |z| {largest:.2f}, rms {rms:.3f}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
