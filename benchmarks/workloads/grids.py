"""Large models: plain queries against Storm, and the cost in time and memory of a step at a million states.

Storm and the monitor both get the Markov chain of a fixed policy on the grid, as a model with one action. Both start
from the same arrays (row pointers, successors, probabilities, label masks) and end with numbers; building the model is
included on both sides, with all our checks of it.
"""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from benchmarks.loading import Missing
from benchmarks.rows import Bench, Row, absolute, agree, benchmark, compare
from benchmarks.timing import Timing, Work, in_turns, one_by_one
from benchmarks.workloads.scaling import large_workload
from benchmarks.workloads.stepping import Workload, goal_of, grid_workload
from benchmarks.worlds import descent, grid
from monitor.arrays import Bools, Floats, Ints
from monitor.evaluation import check
from monitor.exact import Checker, values
from monitor.model import MDP

__all__ = ["against_storm", "memory", "states"]

QUERY = 'P=? [ !"unsafe" U<=10 "goal" ]'
WATCHED = 'fallback@10.P>=0.9 [ G<=20 !"unsafe" ]'
STEPS = 300


@dataclass(frozen=True)
class Chain:
    """Arrays that both sides start from."""

    indptr: Ints
    successors: Ints
    probabilities: Floats
    labels: dict[str, Bools]

    @classmethod
    def of_grid(cls, side: int) -> Chain:
        """Return the chain of `descent`, with a goal in every tenth cell of every tenth row."""
        model = grid(side)
        actions = descent(side).actions
        assert actions is not None
        cells = np.arange(model.states)
        kept = np.zeros(model.states * model.actions, dtype=np.bool_)
        kept[cells * model.actions + actions] = True
        lengths = np.diff(model.indptr)
        entries = np.repeat(kept, lengths)
        row, column = np.divmod(cells, side)
        goal = model.labels["goal"] | ((row % 10 == 9) & (column % 10 == 9))
        labels = {"unsafe": model.labels["unsafe"] & ~goal, "goal": goal}
        indptr = np.concatenate([[0], np.cumsum(lengths[kept])])
        return cls(indptr, model.successors[entries], model.probabilities[entries], labels)

    @property
    def nominal(self) -> Ints:
        """The only action, for every state."""
        return np.zeros(len(self.indptr) - 1, dtype=np.int64)

    def model(self) -> MDP:
        """Return the model, checked and copied."""
        return MDP.from_rows(
            states=len(self.indptr) - 1,
            actions=1,
            indptr=self.indptr,
            successors=self.successors,
            probabilities=self.probabilities,
            labels=self.labels,
        )

    def one(self, state: int) -> float:
        """Return the value in one state, starting from the arrays."""
        found = check(QUERY, model=self.model(), path=[(state, 0)], policies={"nominal": self.nominal}).value
        assert found is not None
        return found

    def everywhere(self) -> Floats:
        """Return the values in all states, starting from the arrays."""
        return values(QUERY, model=self.model(), policies={"nominal": self.nominal})


@benchmark("reach-100")
def reach_100(bench: Bench) -> list[Row]:
    """Measure one state and all states at 10,000 states."""
    return against_storm(bench, 100)


@benchmark("reach-1000")
def reach_1000(bench: Bench) -> list[Row]:
    """Measure one state and all states at a million states (quick: 40,000)."""
    return against_storm(bench, 200 if bench.quick else 1000)


def against_storm(bench: Bench, side: int) -> list[Row]:
    """Compare the values, then the times."""
    chain = Chain.of_grid(side)
    storm = bench.peers.make("peers.storm", "Storm", chain.indptr, chain.successors, chain.probabilities, chain.labels)
    found = chain.everywhere()
    state = int(np.argmax((found > 0.5) & (found < 0.95)))  # neither certain nor impossible
    agree("one state and all states", chain.one(state), float(found[state]), 1e-12)
    if not isinstance(storm, Missing):
        theirs = storm.everywhere(QUERY)
        agree("all states", float(np.abs(found - theirs).max()), 0.0, 1e-9)
        agree("one state", chain.one(state), storm.one(QUERY, state), 1e-9)
    rounds = 3 if bench.quick else 40 if side == 100 else 7
    title = f"{QUERY}, {side}x{side} grid, one action, from arrays to value"
    name = "reach-100" if side == 100 else "reach-1000"
    rows = []
    for key, ours, peer in (
        ("one", partial(chain.one, state), partial(getattr(storm, "one", len), QUERY, state)),
        ("all", chain.everywhere, partial(getattr(storm, "everywhere", len), QUERY)),
    ):
        works = [Work(_once(ours)), *([] if isinstance(storm, Missing) else [Work(_once(peer))])]
        mine, *other = in_turns(works, rounds)
        what = "one state" if key == "one" else "all states"
        against = other[0] if other else storm
        rows.append(
            compare(f"{name}/{key}", f"{title}, {what}", mine, against, peer="stormpy, builder + check", at_most=1.0)
        )
    return rows


def _once(call: Callable[[], object]) -> Callable[[], int]:
    def block() -> int:
        call()
        return 1

    return block


@benchmark("states")
def states(bench: Bench) -> list[Row]:
    """Measure the step of the kernel row at a million states and at 16."""
    side = 100 if bench.quick else 1000
    works = [_steps(large_workload(bench, side)), _steps(grid_workload(bench, STEPS))]
    large, small = in_turns(works, bench.rounds)
    title = f"one step, all offsets of {WATCHED}, at {side * side:,} states"
    return [compare("states", title, large, small, peer="the same at 16 states", at_most=2.0)]


def _steps(workload: Workload) -> Work:
    """Return steps along the same path, repeated, once all start points exist and all rows are known."""
    goal = goal_of(WATCHED)
    workload.checker.prepare(goal)
    stepper = workload.checker.stepper(goal)
    at = 0

    def step() -> object:
        nonlocal at, stepper
        if at == len(workload.pairs):
            stepper, at = workload.checker.stepper(goal), 0
        at += 1
        return stepper.push(*workload.pairs[at - 1])

    def block() -> int:
        for _ in range(STEPS):
            step()
        return STEPS

    block()
    return Work(block, lambda: one_by_one(step, STEPS))


@benchmark("memory")
def memory(bench: Bench) -> list[Row]:
    """Measure the memory that a formula adds to a model of a million states; value tables are reported separately."""
    side = 100 if bench.quick else 1000
    workload = large_workload(bench, side)
    model = workload.model
    own = _bytes(model)
    gc.collect()
    tracemalloc.start()
    try:
        checker = Checker(model, workload.policies)
        goal = goal_of(WATCHED)
        checker.prepare(goal)
        stepper = checker.stepper(goal)
        for pair in workload.pairs:
            stepper.push(*pair)
        gc.collect()
        held, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    tables = checker.table_bytes
    policies = sum(t.nbytes for p in workload.policies.values() for t in (p.actions, p.probabilities) if t is not None)
    ratio = (held - tables + policies) / own
    title = f"memory beyond the model's own arrays, {model.states:,} states, two policies, {WATCHED}"
    note = f"model {own / 1e6:,.1f} MB, tables {tables / 1e6:,.1f} MB, peak while preparing {peak / 1e6:,.1f} MB"
    return [absolute("memory", title, Timing(ratio, ratio, 1), at_most=0.5, target="<= .5x", unit="x", note=note)]


def _bytes(model: MDP) -> int:
    arrays = [model.indptr, model.successors, model.probabilities, model.rewards, *model.labels.values()]
    return sum(array.nbytes for array in arrays)
