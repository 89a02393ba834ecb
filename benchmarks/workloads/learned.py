"""Cost of the bands of a model learned from data, on the 4x4 grid with its unsafe cells."""

from __future__ import annotations

from dataclasses import replace
from time import perf_counter

import numpy as np

from benchmarks.rows import Bench, Row, benchmark, compare
from benchmarks.timing import Timing
from benchmarks.workloads.icu import WINDOW
from benchmarks.workloads.stepping import grid_workload
from benchmarks.worlds import GRID_GOAL
from monitor.arrays import Ints
from monitor.evaluation.bands import LearnedBands
from monitor.evaluation.credible import LearnedTable
from monitor.exact import Checker
from monitor.logic import parse
from monitor.model import MDP
from monitor.model.counts import Counts, posterior_mean
from monitor.policy import PolicyTable
from monitor.types import BandSettings

__all__ = ["learned_from"]

DRAWS = 500
"""Draws of each row."""
SETTLED = 20
"""Pairs from which on all offsets of the formula exist, and everything is compiled."""


def learned_from(model: MDP, draws: int, rng: np.random.Generator) -> MDP:
    """Return a model estimated from so many draws of each row of another one, whose last state becomes `elsewhere`."""
    indptr, successors, visits, since = [0], [], [], []
    elsewhere = model.states
    for row in range(model.states * model.actions):
        states, probabilities = model.row(*divmod(row, model.actions))
        seen = rng.choice(states, draws, p=probabilities)
        kinds, first, counts = np.unique(seen, return_index=True, return_counts=True)
        successors += kinds.tolist()
        visits += counts.tolist()
        since += (draws - 1 - first).tolist()
        indptr.append(len(successors))
    given = [elsewhere] * model.actions
    starts, times = np.array(indptr), np.array(visits)
    rows = model.states * model.actions
    return MDP.from_rows(
        states=model.states + 1,
        actions=model.actions,
        indptr=np.concatenate([starts, starts[-1] + 1 + np.arange(model.actions)]),
        successors=np.array(successors + given),
        probabilities=np.concatenate([posterior_mean(times, starts, 1.0), np.ones(model.actions)]),
        labels={name: np.append(label, name == "unsafe") for name, label in model.labels.items()},
        counts=Counts(
            np.array(visits + [0] * model.actions),
            np.array(since + [0] * model.actions),
            np.append(np.arange(1, rows + 1), np.zeros(model.actions, np.int64)),
            elsewhere,
        ),
    )


@benchmark("learned")
def learned(bench: Bench) -> list[Row]:
    """Measure a verdict's bands: guaranteed against bounds with rows as estimated, credible against a verdict."""
    workload = grid_workload(bench, 60 if bench.quick else 400)
    estimated = learned_from(workload.model, DRAWS, bench.rng())
    policies = {name: PolicyTable(actions=np.append(_actions(table), 0)) for name, table in workload.policies.items()}
    costs = _costs(estimated, policies, workload.pairs)
    note = f"rows drawn {DRAWS} times each; incremental verdicts, the bands anew for each"
    title = "a verdict with {}, 4x4 grid learned from data"
    return [
        compare(
            "learned/guaranteed",
            title.format("bounds and the guaranteed band"),
            costs["guaranteed"],
            costs["bounds"],
            peer="ours with bounds",
            at_most=5.0,
            note=note,
        ),
        compare(
            "learned/credible",
            title.format("the credible band of 64 models, and its support"),
            costs["credible"],
            costs["value"],
            peer="ours without bands",
            at_most=500.0,
            note=note,
        ),
    ]


def _actions(table: PolicyTable) -> Ints:
    assert table.actions is not None, "the policies of the grid are deterministic"
    return table.actions


def _costs(model: MDP, policies: dict[str, PolicyTable], pairs: list[tuple[int, int]]) -> dict[str, Timing]:
    """Return seconds per verdict of each way, in turns over the same steps, after a warm-up."""
    formula, settings = parse(GRID_GOAL), BandSettings()
    given, learner = Checker(replace(model, counts=None), policies), Checker(model, policies)
    checks = {
        "value": given.incremental_check(formula, "gumbel", window=WINDOW),
        "bounds": given.incremental_check(formula, "any", window=WINDOW),
        "guaranteed": learner.incremental_check(formula, "any", window=WINDOW),
        "credible": learner.incremental_check(formula, "gumbel", window=WINDOW),
    }
    bands = LearnedBands(LearnedTable(learner.evaluators), settings)
    costs: dict[str, list[float]] = {way: [] for way in checks}
    for now in range(len(pairs)):
        held = tuple(pairs[max(0, now + 1 - WINDOW) : now + 1])
        for way, check in checks.items():
            begun = perf_counter()
            verdict = check.verdict(held, 1, terminated=False, start_observed=now < WINDOW)
            if way == "credible":
                bands.added(verdict, formula, held)
            if now >= SETTLED:
                costs[way].append(perf_counter() - begun)
    return {way: Timing.of(times) for way, times in costs.items()}
