"""How often the test of a learned model rejects it, if the environment is still that of the recordings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

import numpy as np

from monitor.model import MDP
from monitor.model.allowed_rows import allowed_rows
from monitor.statistics.fleet import FleetTest
from monitor.statistics.model_betting import ModelTest
from tests.exact.learned import learned_model
from tests.statistics.measured import Row
from tests.statistics.test_model_betting import Rows, grid

ALPHA = 0.05
PAIR: Rows = [{0: 0.95, 1: 0.05}, {0: 0.5, 1: 0.5}]
"""Two states of one action."""


def steps_of(rows: Rows, actions: int, steps: int, rng: np.random.Generator) -> list[tuple[int, int]]:
    """Transitions (row, successor), from a state drawn evenly; actions too."""
    ends = [(list(row), list(accumulate(row.values()))) for row in rows]
    state, found = int(rng.integers(len(rows) // actions)), []
    drawn = zip(rng.integers(actions, size=steps).tolist(), rng.random(steps).tolist(), strict=True)
    for action, chance in drawn:
        row = state * actions + action
        successors, upto = ends[row]
        state = successors[min(sum(chance >= each for each in upto), len(successors) - 1)]
        found.append((row, state))
    return found


def learned_from(steps: Sequence[tuple[int, int]], states: int, actions: int) -> MDP:
    draws = [(row // actions, row % actions, successor) for row, successor in steps]
    return learned_model(states + 1, actions, draws, {})[0]


def tester(model: MDP, *, exact: bool) -> ModelTest:
    """The test of a learned model at level ALPHA; `exact`: of its rows as they were estimated."""
    if exact:
        return FleetTest(model.indptr.data, model.successors.data, model.probabilities.data, alpha=ALPHA).join()
    assert model.counts is not None
    allowed = allowed_rows(model, model.counts, ALPHA / 2, 0.0001)
    return FleetTest(*allowed[:3], alpha=ALPHA / 2, bounds=allowed.bounds).join()


def learned_rows(
    runs: int, length: int, rng: np.random.Generator, *, sizes: Sequence[int] = (20, 200, 2_000)
) -> Iterator[Row]:
    """Each run learns a model of its own and follows a stream of its own."""
    for name, rows, actions in (("two states", PAIR, 1), ("grid of 64 rows", grid(0.1), 4)):
        for size in sizes:
            rejected, samples = np.zeros(2, dtype=np.int64), np.zeros(2)
            for _ in range(runs):
                model = learned_from(steps_of(rows, actions, size, rng), len(rows) // actions, actions)
                stream = steps_of(rows, actions, length, rng)
                for kind, test in enumerate((tester(model, exact=False), tester(model, exact=True))):
                    for row, successor in stream:
                        test.step(row, successor)
                    rejected[kind] += test.rejected
                    samples[kind] += test.transitions
            for kind, (what, limit) in enumerate((("bounds", ALPHA), ("taken as exact", None))):
                errors = int(rejected[kind])
                where = f"{name}, {size} recorded"
                yield Row(f"model test, {what}", where, runs, errors, errors / runs, limit, 0, samples[kind] / runs)
