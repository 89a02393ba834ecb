"""Growth of the cost of a step with states, offset, horizon and agents, all else as in the kernel row."""

from __future__ import annotations

from dataclasses import replace
from time import perf_counter

import numpy as np

from benchmarks.rows import Axis, Bench, Point, Row, benchmark, compare
from benchmarks.timing import Timing
from benchmarks.workloads.stepping import Workload, goal_of, grid_workload
from benchmarks.worlds import GRID_GOAL, descent, grid, safest, simulate
from monitor.runtime.monitor import Monitor
from monitor.types import FormulaSpec, Instant, Observation, StreamSettings

__all__ = ["scaling"]

STEPS = 400
SIDES, OFFSETS, HORIZONS = (4, 10, 32, 100, 316), (1, 2, 5, 10, 20, 40), (5, 10, 20, 50, 100)
AGENTS = (1, 10, 100, 1_000)


@benchmark("scaling")
def scaling(bench: Bench) -> list[Row]:
    """Measure steps of the same path at each size, for the plot."""
    few = 2 if bench.quick else None
    workload = grid_workload(bench, STEPS)
    points = [point("states", side * side, large_workload(bench, side), 10, 20) for side in SIDES[:few]]
    points += [point("offset", offset, workload, offset, 20) for offset in OFFSETS[:few]]
    points += [point("horizon", horizon, workload, 10, horizon) for horizon in HORIZONS[:few]]
    points += [
        Point("agents", count, observed(workload, count), "observe + evaluate, |S| 16") for count in AGENTS[:few]
    ]
    base = stepped(workload, 10, 20)
    row = compare("scaling", "a step as in kernel; its cost by size is in the plot", base, base, peer="itself")
    return [replace(row, points=tuple(points), peer="", theirs=None, ratio=None)]


def large_workload(bench: Bench, side: int) -> Workload:
    """Return a path down and right through a grid of any size."""
    model = grid(side)
    policies = {"nominal": descent(side), "fallback": safest(model)}
    return Workload(model, policies, simulate(model, policies["nominal"], STEPS, bench.rng()))


def point(axis: Axis, size: int, workload: Workload, offset: int, horizon: int) -> Point:
    """Return the median step at this size, as a point of the plot."""
    series = {"states": f"offset {offset}, horizon {horizon}", "offset": f"|S| 16, horizon {horizon}"}
    median = stepped(workload, offset, horizon).median
    return Point(axis, size, median, series.get(axis, f"|S| 16, offset {offset}"))


def observed(workload: Workload, agents: int) -> float:
    """Return seconds per message of `agents` agents that follow the same path in turns, after a warm-up."""
    spec, settings = FormulaSpec("safe", GRID_GOAL), StreamSettings(window=64)
    monitor = Monitor(workload.model, dict(workload.policies), [spec], settings)
    names = [f"agent-{n}" for n in range(agents)]
    warm, steps = 20, 20 + max(20, STEPS // agents)
    begun = 0.0
    for seq, (state, action) in enumerate(workload.pairs[:steps]):
        if seq == warm:
            begun = perf_counter()
        now = Instant(1e9 + seq, float(seq))
        for name in names:
            monitor.observe(Observation(name, 0, seq, state, action), now)
            monitor.evaluate(now)
    return (perf_counter() - begun) / ((steps - warm) * agents)


def stepped(workload: Workload, offset: int, horizon: int) -> Timing:
    """Return the timing of steps once all start points exist; a first pass over the path is not counted."""
    goal = goal_of(f'fallback@{offset}.P>=0.9 [ G<={horizon} !"unsafe" ]')
    costs: list[float] = []
    for _ in range(2):
        push, costs = workload.checker.stepper(goal).push, []
        for state, action in workload.pairs:
            begun = perf_counter()
            push(state, action)
            costs.append(perf_counter() - begun)
    return Timing.of(np.array(costs[offset:]))
