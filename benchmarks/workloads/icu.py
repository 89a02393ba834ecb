"""ICU-Sepsis: 716 states, 25 actions, up to 213 successors. Cost of a step of a real model, and of bounds."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from time import perf_counter

import numpy as np

from benchmarks.loading import Missing
from benchmarks.rows import Bench, Row, absolute, benchmark, compare
from benchmarks.timing import Timing
from benchmarks.workloads.stepping import goal_of, grid_workload
from benchmarks.worlds import GRID_GOAL, simulate
from monitor.exact import Checker
from monitor.logic import parse
from monitor.model import MDP
from monitor.model.io import load_model
from monitor.policy import PolicyTable
from monitor.policy.onnx_policy import load_policy
from monitor.types import CausalModel

__all__ = ["ICU_GOAL", "episodes", "icu_world"]

ICU_GOAL = 'fallback@5.P>=0.8 [ G<=20 !"death" ]'
SHOWN = ICU_GOAL.replace("fallback", "optimal")
OFFSETS = range(1, 6)
HORIZON = 20
WINDOW = 64
ERROR = 0.008
SHORTEST = 8
"""Least number of decisions in an episode, so that some of its steps have all five start points."""

Pairs = list[tuple[int, int]]


@cache
def icu_world() -> tuple[MDP, dict[str, PolicyTable]]:
    """Return the shipped model with the deployed policy, and the optimal one as fallback."""
    shipped = Path(__file__).parents[2] / "policies" / "icu-sepsis"
    model = load_model(shipped / "model.npz")
    names = {"nominal": "deployed", "fallback": "optimal"}
    return model, {name: load_policy(shipped / f"{file}.yaml", model).table for name, file in names.items()}


def episodes(model: MDP, policy: PolicyTable, rng: np.random.Generator) -> Iterator[Pairs]:
    """Yield episodes of at least `SHORTEST` decisions, without their absorbing outcome."""
    assert model.initial is not None
    starts = np.flatnonzero(model.initial)
    while True:
        start = int(rng.choice(starts, p=model.initial[starts]))
        pairs = [pair for pair in simulate(model, policy, 40, rng, start) if not model.is_absorbing(pair[0])]
        if len(pairs) >= SHORTEST:
            yield pairs


@benchmark("icu")
def icu(bench: Bench) -> list[Row]:
    """Measure steps with all five start points, in new episodes; after every sixth, the samplers answer once."""
    model, policies = icu_world()
    checker = Checker(model, policies)
    drawn = episodes(model, policies["nominal"], bench.rng())
    fallback = policies["fallback"].actions
    peers = {
        kind: bench.peers.make("peers.samplers", kind, model, fallback, HORIZON, bench.rng(1))
        for kind in ("TopDown", "Counting")
    }
    size = bench.peers.get("peers.samplers", "sample_size")
    count = 0 if isinstance(size, Missing) else size(ERROR)
    steps: list[float] = []
    sampled: dict[str, list[float]] = {kind: [] for kind in peers}
    stepped(checker, next(drawn))
    for number in range(3 if bench.quick else 120):
        pairs = next(drawn)
        steps += stepped(checker, pairs)
        if number % 6:
            continue
        now = len(pairs) - 1
        for kind, peer in peers.items():
            if not isinstance(peer, Missing):
                begun = perf_counter()
                for offset in OFFSETS:
                    peer.estimate(pairs[now - offset :], count)
                sampled[kind].append(perf_counter() - begun)
    mine = Timing.of(steps)
    title, note = f"one step, five offsets of {SHOWN}, ICU-Sepsis", "each +-.008 at 95 %, 15,006 worlds"
    theirs = {kind: Timing.of(costs) if costs else peers[kind] for kind, costs in sampled.items()}
    return [
        absolute("icu", title, mine, at_most=1.5e-3, target="<= 1.5 ms"),
        compare("icu/top-down", title, mine, theirs["TopDown"], peer="top-down sampler", at_least=5_000.0, note=note),
        compare("icu/best", title, mine, theirs["Counting"], peer="best sampler", note=note),
    ]


def stepped(checker: Checker, pairs: Pairs) -> list[float]:
    """Return the seconds of each step that has all five start points."""
    push = checker.stepper(goal_of(ICU_GOAL)).push
    costs = []
    for state, action in pairs:
        begun = perf_counter()
        push(state, action)
        costs.append(perf_counter() - begun)
    return costs[OFFSETS.stop - 1 :]


@benchmark("robust")
def robust(bench: Bench) -> list[Row]:
    """Measure verdicts with bounds over every causal model against verdicts without, step by step in turns."""
    workload = grid_workload(bench, 100 if bench.quick else 2_000)
    model, policies = icu_world()
    drawn = episodes(model, policies["nominal"], bench.rng())
    patients = [next(drawn) for _ in range(3 if bench.quick else 120)]
    note = "incremental verdicts: value and bounds against value alone; neither uses rows computed by the other"
    rows = []
    for key, name, world, text, paths, most in (
        ("robust/grid", "4x4 grid", (workload.model, workload.policies), GRID_GOAL, [workload.pairs], 3.0),
        ("robust/icu", "ICU-Sepsis", (model, policies), ICU_GOAL, patients, 5.0),
    ):
        plain, bounded = verdicts(*world, text, paths)
        title = f"a verdict with bounds over every causal model, {name}"
        rows.append(compare(key, title, bounded, plain, peer="ours without bounds", at_most=most, note=note))
    return rows


def verdicts(model: MDP, policies: dict[str, PolicyTable], text: str, paths: list[Pairs]) -> tuple[Timing, Timing]:
    """Return seconds per verdict without and with bounds, in turns over the same steps, after a warm-up."""
    formula = parse(text)
    kinds: tuple[CausalModel, CausalModel] = ("gumbel", "any")
    costs: dict[CausalModel, list[float]] = {kind: [] for kind in kinds}
    checkers = {kind: Checker(model, policies) for kind in kinds}
    for number, pairs in enumerate([paths[0][:20], *paths]):
        checks = {kind: checkers[kind].incremental_check(formula, kind, text, window=WINDOW) for kind in kinds}
        for now in range(len(pairs)):
            held = tuple(pairs[max(0, now + 1 - WINDOW) : now + 1])
            for kind in kinds if now % 2 else reversed(kinds):
                begun = perf_counter()
                checks[kind].verdict(held, 1, terminated=False, start_observed=now < WINDOW)
                if number and now >= OFFSETS.stop - 1:
                    costs[kind].append(perf_counter() - begun)
    return Timing.of(costs["gumbel"]), Timing.of(costs["any"])


@benchmark("recourse")
def recourse(bench: Bench) -> list[Row]:
    """Measure, on a missed goal, what other decisions would have given: best, optimal, and up to three changes.

    Each path is a step longer than the one before, as on a stream. A goal that is met costs what finding that out does.
    """
    model, policies = icu_world()
    checker = Checker(model, policies)
    drawn = episodes(model, policies["nominal"], bench.rng())
    patients = [next(drawn) for _ in range(3 if bench.quick else 60)]
    rows = []
    for offset in range(2, OFFSETS.stop):
        formula = parse(f'regret(fallback@{offset}, P>=0.85 [ G<=20 !"death" ])')
        missed: list[float] = []
        met: list[float] = []
        for number, pairs in enumerate([patients[0], *patients]):
            for now in range(offset + 1, len(pairs) + 1):
                verdict = checker.check(formula, pairs[:now])
                begun = perf_counter()
                examined = checker.with_recourse(verdict, formula, pairs[:now])
                cost = perf_counter() - begun
                if number:
                    (met if examined.recourse is None else missed).append(cost)
        what = f"@{offset}, 20 steps, ICU-Sepsis"
        title = f"a missed goal examined: best, optimal, up to 3 changes, {what}"
        rows.append(absolute(f"recourse/{offset}", title, Timing.of(missed), at_most=10e-3, target="<= 10 ms"))
        title = f"a met goal: nothing is examined, {what}"
        rows.append(absolute(f"recourse/{offset}/met", title, Timing.of(met), at_most=20e-6, target="<= 20 us"))
    return rows
