"""Exact values against sampled ones on the 4x4 grid, each to +-.01 at 95 %."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import cycle
from typing import Any

from benchmarks.loading import Missing
from benchmarks.rows import Bench, Row, benchmark, compare
from benchmarks.timing import Timing, Work, in_turns
from benchmarks.workloads.stepping import OFFSET, Workload, goal_of, grid_workload, push_all, stepping
from benchmarks.worlds import GRID_GOAL

__all__ = ["against_sampler", "answers"]

PEERS = {"Counting": "best sampler", "TopDown": "top-down sampler", "Rejection": "rejection sampler"}
ERROR = 0.01
HORIZON = 20

Pairs = Sequence[tuple[int, int]]


@benchmark("sampler")
def sampler(bench: Bench) -> list[Row]:
    """Measure the best sampler known to us, the plain one, and the best one with the least sample size."""
    workload = grid_workload(bench)
    every, title = range(OFFSET + 1), "values at all eleven offsets after a step, 4x4 grid"
    note = "each +-.01 at 95 %, 9,604 worlds for any value"
    least = "as few worlds as p(1-p) allows if the value were known beforehand"
    one = f"ours at all eleven offsets, the sampler at offset {OFFSET} only"
    run = partial(against_sampler, bench, workload, "Counting")
    topdown = partial(against_sampler, bench, workload, "TopDown")
    return [
        run(key="sampler", title=title, offsets=every, at_least=1_000.0, note=note),
        run(key="sampler/one", title=f"one offset, {one}", offsets=[OFFSET], note=note),
        topdown(key="sampler/top-down", title=f"{title}; a draw for every world", offsets=every, note=note),
        run(key="sampler/known", title="all eleven offsets, the fewest worlds", offsets=every, note=least, known=True),
    ]


@benchmark("rejection")
def rejection(bench: Bench) -> list[Row]:
    """Measure the paper's way of sampling the posterior."""
    title = "values at all eleven offsets after a step, 4x4 grid"
    note = "each +-.01 at 95 %, 9,604 worlds for any value"
    workload, every = grid_workload(bench), range(OFFSET + 1)
    return [against_sampler(bench, workload, "Rejection", key="rejection", title=title, offsets=every, note=note)]


def against_sampler(
    bench: Bench,
    workload: Workload,
    kind: str,
    *,
    key: str,
    title: str,
    offsets: Sequence[int],
    error: float = ERROR,
    at_least: float | None = None,
    note: str = "",
    known: bool = False,
) -> Row:
    """Measure our step against a sampler of the same values; one round of the sampler gives the values of one step."""
    goal = goal_of(GRID_GOAL)
    ours = stepping(workload.checker, goal, workload.pairs)
    rng = bench.rng(1)
    fallback = workload.policies["fallback"].actions
    made = bench.peers.make("peers.samplers", kind, workload.model, fallback, HORIZON, rng)
    size = bench.peers.get("peers.samplers", "sample_size")
    theirs: Timing | Missing
    if isinstance(made, Missing) or isinstance(size, Missing):
        (mine,) = in_turns([ours], bench.rounds)
        theirs = made if isinstance(made, Missing) else Missing("no sampler")
    else:
        rounds = 2 if bench.quick else 30
        exact = push_all(workload.checker, goal, workload.pairs)
        sizes = partial(size, error) if known else lambda _: int(size(error))
        work = Work(answers(workload.pairs, exact, made, offsets, sizes))
        mine, theirs = in_turns([ours, work], rounds)
    return compare(key, title, mine, theirs, peer=PEERS[kind], at_least=at_least, note=note)


def answers(
    pairs: Pairs,
    exact: Any,  # noqa: ANN401 - an array [n, offsets]
    sampler: Any,  # noqa: ANN401 - peers are loaded dynamically
    offsets: Sequence[int],
    size: Callable[[float], int],
) -> Callable[[], int]:
    """Return a block in which the sampler estimates the offsets after one step; successive steps are far apart."""
    places = cycle(range(max(offsets), len(pairs), 1 + len(pairs) // 37))

    def block() -> int:
        now = next(places)
        for offset in offsets:
            sampler.estimate(pairs[now - offset : now + 1], size(float(exact[now, offset])))
        return 1

    return block
