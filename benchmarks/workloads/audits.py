"""Audits: a step of a recording, beside `cfmon replay` of the same, and two processes beside one."""

from __future__ import annotations

from statistics import median

from benchmarks.loading import Missing
from benchmarks.rows import Bench, Row, absolute, benchmark, compare, unmeasured
from benchmarks.timing import Timing

__all__ = ["audit"]

TARGET = 1 / 150_000


@benchmark("audit")
def audit(bench: Bench) -> list[Row]:
    """Measure `cfmon audit` of a fleet in the 4x4 grid with one formula, reading and writing included."""
    title = "a step of an audit, one formula on the 4x4 grid"
    cores = "time of an audit by two processes, as a part of that by one; beside it, of a loop that only counts"
    found = bench.peers.make("process.recorded", "audits", *([20_000, 1] if bench.quick else []))
    if isinstance(found, Missing):
        return [
            unmeasured("audit/step", title, "150,000 a second", found),
            unmeasured("audit/replay", title, "-", found),
            unmeasured("audit/cores", cores, "-", found),
        ]
    alone, replay = Timing.of(found.alone), Timing.of(found.replay)
    note = "steps a second of a core, by round: " + ", ".join(f"{1 / cost:,.0f}" for cost in found.alone)
    share, given = median(found.share), median(found.cores)
    both = f"two processes evaluate {share:.2f} times as much as one; two that only count, {given:.2f} times"
    return [
        absolute("audit/step", title, alone, at_most=TARGET, target=">= 150,000 a second", note=note),
        compare("audit/replay", title, alone, replay, peer="cfmon replay"),
        compare(
            "audit/cores",
            cores,
            Timing.of([1 / s for s in found.share]),
            Timing.of([1 / c for c in found.cores]),
            peer="a loop",
            at_least=0.9,
            aim=True,
            unit="",
            note=both,
        ),
    ]
