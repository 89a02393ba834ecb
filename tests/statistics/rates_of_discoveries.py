"""Which fraction of the rows and agents that are named is named wrongly, if agents depend on each other.

A run ends at the first moment at which one that follows the model is named, the worst time to look; else after its last
step. Named wrongly on average over runs: the false discovery rate at that time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate

import numpy as np

from monitor.statistics.fleet import FleetTest, wrong_agents
from monitor.statistics.model_betting import ModelTest
from tests.statistics.measured import Row
from tests.statistics.test_model_betting import Rows, grid

AGENTS = 8
LEVEL = 0.05
MODEL, OTHER = grid(0.3), grid(0.9)
WRONG_ROWS = frozenset(range(0, 64, 8))
WRONG_AGENTS = frozenset(range(3))
Ends = list[tuple[list[int], list[float]]]


def ends_of(rows: Rows) -> Ends:
    return [(list(row), list(accumulate(row.values()))) for row in rows]


TRUE_ENDS = ends_of(MODEL)
OTHER_ENDS = ends_of(OTHER)
MIXED_ENDS = [OTHER_ENDS[row] if row in WRONG_ROWS else TRUE_ENDS[row] for row in range(64)]


def outcome(ends: Ends, row: int, chance: float) -> int:
    """The successor at this quantile."""
    successors, upto = ends[row]
    return successors[min(sum(chance >= each for each in upto), len(successors) - 1)]


def fleet_of(rows: Rows) -> tuple[FleetTest, list[ModelTest]]:
    starts = [0, *accumulate(map(len, rows))]
    successors = [successor for row in rows for successor in row]
    fleet = FleetTest(starts, successors, [chance for row in rows for chance in row.values()])
    return fleet, [fleet.join() for _ in range(AGENTS)]


def false_fraction(named: Sequence[int], wrong: frozenset[int]) -> float:
    return sum(each not in wrong for each in named) / max(1, len(named))


def run_of_agents(ticks: int, rng: np.random.Generator) -> tuple[float, int]:
    """All agents have the noise of the tick, so those that follow the model do the same; three live elsewhere.

    Return the fraction named wrongly, and how many are named.
    """
    _, tests = fleet_of(MODEL)
    states = [0] * AGENTS
    named: list[int] = []
    for action, chance in zip(rng.integers(4, size=ticks).tolist(), rng.random(ticks).tolist(), strict=True):
        for agent, test in enumerate(tests):
            row = 4 * states[agent] + action
            states[agent] = outcome(OTHER_ENDS if agent in WRONG_AGENTS else TRUE_ENDS, row, chance)
            test.step(row, states[agent])
        named = [place for place, _ in wrong_agents(tests)]
        if not WRONG_AGENTS.issuperset(named):
            break
    return false_fraction(named, WRONG_AGENTS), len(named)


def run_of_rows(ticks: int, rng: np.random.Generator, *, common: bool = False) -> tuple[float, int]:
    """Agents repeat the action that slipped last where they are, whoever's it was; eight rows are others.

    `common`: all agents have the noise of the tick, against the assumption. Return as above.
    """
    fleet, tests = fleet_of(MODEL)
    states = [0] * AGENTS
    slipped: dict[int, int] = {}
    named: list[int] = []
    width = 1 if common else AGENTS
    drawn = (rng.random((ticks, width)), rng.integers(4, size=(ticks, width)), rng.random((ticks, width)))
    for chances, actions, wishes in zip(
        *(np.broadcast_to(each, (ticks, AGENTS)).tolist() for each in drawn), strict=True
    ):
        for agent, test in enumerate(tests):
            state, action = states[agent], actions[agent]
            row = 4 * state + (slipped.get(state, action) if wishes[agent] < 0.5 else action)
            states[agent] = outcome(MIXED_ENDS, row, chances[agent])
            if MODEL[row][states[agent]] < 0.5:
                slipped[state] = row % 4
            test.step(row, states[agent])
        named = fleet.rejected_rows()
        if not WRONG_ROWS.issuperset(named):
            break
    return false_fraction(named, WRONG_ROWS), len(named)


def discovery_rows(runs: int, ticks: int, rng: np.random.Generator) -> Iterator[Row]:
    """`errors`: sum of the fractions, as so many runs in which all was wrong. `samples`: how many were named."""
    kinds: tuple[tuple[str, Callable[[], tuple[float, int]], float | None], ...] = (
        ("agents, one noise for all", lambda: run_of_agents(ticks, rng), LEVEL),
        ("rows, agents that follow each other", lambda: run_of_rows(ticks, rng), LEVEL),
        ("rows, one noise for all", lambda: run_of_rows(ticks, rng, common=True), None),
    )
    for where, run, limit in kinds:
        found = [run() for _ in range(runs)]
        wrongly = sum(fraction for fraction, _ in found)
        named = sum(count for _, count in found) / runs
        what = "named wrongly" if limit is not None else "named wrongly, against the assumption"
        yield Row(what, where, runs, math.ceil(wrongly), wrongly / runs, limit, 0, named)
