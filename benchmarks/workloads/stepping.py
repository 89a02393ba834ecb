"""Cost of a step on the 4x4 grid, against an update of runtime monitors for temporal logic over eleven values.

Their query is different and simpler: `always` over the observed path, where ours is counterfactual. The target is the
same cost. Their signal comes from the same path: whether the cell is safe.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from benchmarks.loading import Missing
from benchmarks.rows import Bench, Row, agree, benchmark, compare
from benchmarks.timing import Timing, Work, in_turns, one_by_one
from benchmarks.worlds import GRID_GOAL, grid, patrol, safest, simulate
from monitor.exact import Checker
from monitor.logic import parse
from monitor.logic.syntax import Goal
from monitor.model import MDP
from monitor.policy import PolicyTable
from monitor.runtime.monitor import Monitor
from monitor.types import AlarmSpec, FormulaSpec, Instant, Judged, Observation, StreamSettings

__all__ = ["Workload", "grid_workload", "push_all"]

STEPS = 2_000
SINGLES = 500
OFFSET = 10


@dataclass(frozen=True)
class Workload:
    """Path through a model, with the policies."""

    model: MDP
    policies: dict[str, PolicyTable]
    pairs: list[tuple[int, int]]

    @cached_property
    def checker(self) -> Checker:
        """Checker for all queries about this path."""
        return Checker(self.model, self.policies)

    @cached_property
    def signal(self) -> list[float]:
        """Signal for a monitor of temporal logic: 1 where the state is safe, else -1."""
        unsafe = self.model.labels["unsafe"]
        return [-1.0 if unsafe[state] else 1.0 for state, _ in self.pairs]


def grid_workload(bench: Bench, steps: int = STEPS) -> Workload:
    """Return a path along the walls of the 4x4 grid, past the unsafe cells; the fallback avoids them.

    The path is closed, so that it can be repeated: its last pair can lead to its first.
    """
    model = grid(4)
    policies = {"nominal": patrol(4), "fallback": safest(model)}
    pairs = simulate(model, policies["nominal"], steps + 1, bench.rng())
    last = max(n for n, (state, _) in enumerate(pairs) if state == pairs[0][0])
    return Workload(model, policies, pairs[:last])


def goal_of(text: str) -> Goal:
    """Parse a formula that is a single quantity."""
    formula = parse(text)
    assert isinstance(formula, Goal)
    return formula


def push_all(checker: Checker, goal: Goal, pairs: Sequence[tuple[int, int]]) -> np.ndarray:
    """Return the goal's values [n, offset + 1] after each pair, one push at a time."""
    stepper = checker.stepper(goal)
    return np.array([stepper.push(state, action).copy() for state, action in pairs])


def work_of(peer: Any) -> Work:  # noqa: ANN401 - peers are loaded dynamically
    """Return the work of a peer, which runs its own loop."""
    return Work(peer.block, peer.singles)


def in_turns_with(
    ours: Work, peers: dict[str, Any | Missing], rounds: int
) -> tuple[Timing, dict[str, Timing | Missing]]:
    """Time our work and that of all available peers in the same rounds."""
    here = {name: peer for name, peer in peers.items() if not isinstance(peer, Missing)}
    mine, *theirs = in_turns([ours, *map(work_of, here.values())], rounds)
    return mine, {**peers, **dict(zip(here, theirs, strict=True))}


def stepping(checker: Checker, goal: Goal, pairs: Sequence[tuple[int, int]]) -> Work:
    """Return the work of pushing the pairs repeatedly."""
    push = checker.stepper(goal).push

    def block() -> int:
        for state, action in pairs:
            push(state, action)
        return len(pairs)

    def singles() -> np.ndarray:
        rest = iter(pairs)
        costs = one_by_one(lambda: push(*next(rest)), min(SINGLES, len(pairs)))
        for state, action in rest:  # to the end, so that the path can start again
            push(state, action)
        return costs

    return Work(block, singles)


@benchmark("kernel")
def kernel(bench: Bench) -> list[Row]:
    """Measure one step with the values at all offsets, without verdicts."""
    workload, goal = grid_workload(bench), goal_of(GRID_GOAL)
    check_values(workload, push_all(workload.checker, goal, workload.pairs[:60]))
    peers = {name: bench.peers.make("peers.temporal", name, workload.signal) for name in ("Rtamt", "Reelay")}
    mine, theirs = in_turns_with(stepping(workload.checker, goal, workload.pairs), peers, bench.rounds)
    title = f"one step, all offsets of {GRID_GOAL}, 4x4 grid"
    return [
        compare("kernel/rtamt", title, mine, theirs["Rtamt"], peer="rtamt always[0:10]", at_least=1.0),
        compare(
            "kernel/reelay", title, mine, theirs["Reelay"], peer="reelay historically[0:10]", at_least=1.0, aim=True
        ),
    ]


@benchmark("recording")
def recording(bench: Bench) -> list[Row]:
    """Measure the steps of a whole recording in one call."""
    workload, goal = grid_workload(bench, STEPS if bench.quick else 10 * STEPS), goal_of(GRID_GOAL)
    along = workload.checker.along
    check_values(workload, along(goal, workload.pairs)[:60])

    def block() -> int:
        along(goal, workload.pairs)
        return len(workload.pairs)

    peers = {"Reelay": bench.peers.make("peers.temporal", "Reelay", workload.signal)}
    mine, theirs = in_turns_with(Work(block), peers, bench.rounds)
    title = f"a step of a recording of {len(workload.pairs):,} pairs in one call, otherwise as kernel"
    return [compare("recording", title, mine, theirs["Reelay"], peer="reelay historically[0:10]", at_least=0.5)]


@benchmark("monitor")
def monitored(bench: Bench) -> list[Row]:
    """Measure the same step through `Monitor`: order, path, verdict, alarm, notices."""
    workload = grid_workload(bench)
    works = [monitoring(workload, 1 + 2 * bench.rounds, bench.rng(), shared=shared) for shared in (True, False)]
    peers = {name: bench.peers.make("peers.temporal", name, workload.signal) for name in ("Rtamt", "Reelay")}
    mine, theirs = in_turns_with(works[0], peers, bench.rounds)
    anew, anew_theirs = in_turns_with(works[1], peers, bench.rounds)
    title = f"Monitor.step (observe + evaluate) of {GRID_GOAL}, 4x4 grid, notices included"
    note = "ten steps a second; verdicts on paths seen before are shared: of 22,000 steps, nine in ten"
    reelay = "reelay historically[0:10]"
    return [
        compare("monitor/rtamt", title, mine, theirs["Rtamt"], peer="rtamt always[0:10]", at_least=1.0, note=note),
        compare("monitor/anew", "the same, each verdict anew", anew, anew_theirs["Rtamt"], peer="rtamt always[0:10]"),
        compare("monitor/reelay", title, mine, theirs["Reelay"], peer=reelay, at_least=0.5, aim=True),
    ]


def monitoring(workload: Workload, times: int, rng: np.random.Generator, *, shared: bool) -> Work:
    """Return the work of observing and evaluating step by step, at most `times` blocks; each step gets a verdict.

    The agent goes on from block to block: a path that repeats itself contradicts the model, and what is done about that
    would be measured too. `shared`: verdicts on paths that were seen before are looked up, as in a monitor.
    """
    count = len(workload.pairs)
    pairs = simulate(workload.model, workload.policies["nominal"], times * count, rng)
    spec = FormulaSpec("safe", GRID_GOAL, alarm=AlarmSpec(for_=3, keep=5))
    monitor = Monitor(workload.model, dict(workload.policies), [spec], StreamSettings(window=64))
    if not shared:
        monitor.queries[0].shared.end()
    observations = iter(
        [
            (Observation("agent", 0, n, state, action), Instant(1e9 + 0.1 * n, 0.1 * n))
            for n, (state, action) in enumerate(pairs)
        ]
    )

    def step() -> list[Any]:
        observation, now = next(observations)
        return monitor.observe(observation, now) + monitor.evaluate(now)

    def block() -> int:
        judged = 0
        for _ in range(count):
            judged += any(isinstance(notice, Judged) for notice in step())
        assert judged == count, judged
        return judged

    def singles() -> np.ndarray:
        return one_by_one(step, count)

    return Work(block, singles)


def check_values(workload: Workload, found: np.ndarray) -> None:
    """Compare the kernel's values with the checker's, one query at a time, at every seventh step."""
    for n in range(0, len(found), 7):
        for offset in range(min(n, OFFSET) + 1):
            text = f'fallback@{offset}.P=? [ G<=20 !"unsafe" ]'
            value = workload.checker.check(goal_of(text), workload.pairs[: n + 1]).value
            assert value is not None
            agree(f"after pair {n}, offset {offset}", float(found[n, offset]), value, 1e-9)
