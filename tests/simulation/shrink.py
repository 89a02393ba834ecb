"""A failing run made smaller: fewer kinds of faults, fewer agents, less time, as long as something fails."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from tests.simulation.swarm import Plan, Result, run

SEEDS: Final = 3
"""Seeds that are tried with a smaller plan: its own draws make another course of it."""

RUNS: Final = 60
"""Runs, at most."""


def shrink(failed: Result) -> Result:
    """Return the smallest run found that fails."""
    smallest, left = failed, RUNS
    tried = {failed.plan}
    while True:
        for plan in (plan for plan in _smaller(smallest) if plan not in tried):
            if left <= 0:
                return smallest
            tried.add(plan)
            left -= 1
            if (result := run(plan)).problems:
                smallest = result
                break
        else:
            return smallest


def _smaller(result: Result) -> Iterator[Plan]:
    """Yield smaller plans, the smallest first."""
    plan, kinds = result.plan, sorted(result.faults)
    for fewer in ([], *([kind] for kind in kinds), *([k for k in kinds if k != kind] for kind in kinds)):
        if plan.kinds is None or len(fewer) < len(plan.kinds):
            for seed in range(plan.seed, plan.seed + SEEDS):
                yield replace(plan, seed=seed, kinds=tuple(fewer))
    for agents in (1, result.agents // 2):
        if 0 < agents < result.agents:
            yield replace(plan, agents=agents)
    for seconds in (result.seconds / 4, result.seconds / 2, result.seconds * 0.75):
        if seconds >= 1.0:
            yield replace(plan, seconds=round(seconds, 1))
