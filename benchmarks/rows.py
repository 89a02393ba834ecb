"""A row of the table, and the list of all rows.

To add rows: write a function in a module of `workloads/` and decorate it (`load` imports every module there):

    @benchmark("reach-100")
    def reach(bench: Bench) -> list[Row]:
        check = bench.peers.get("peers.storm", "reach")  # peers/storm.py; Missing(reason) without it
        ours = Work(block=...)
        if isinstance(check, Missing):
            (mine,) = in_turns([ours], bench.rounds)
            theirs: Timing | Missing = check
        else:
            mine, theirs = in_turns([ours, Work(block=...)], bench.rounds)
        return [compare("reach-100/one", "P=? [...], one state", mine, theirs, peer="stormpy", at_most=1.0)]

One function may give several rows; their keys begin with its own and a slash. `bench.quick` asks for seconds instead of
minutes, with the same values computed; the tests run it so. Where both sides compute the same thing, the function
compares the values (`agree`), before it compares the times. Never a random number but from `bench.rng()`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from importlib import import_module
from pkgutil import iter_modules
from typing import Literal

import numpy as np

from benchmarks import workloads
from benchmarks.loading import Missing, Peers
from benchmarks.timing import Timing

__all__ = [
    "BENCHMARKS",
    "Bench",
    "DisagreementError",
    "Point",
    "Row",
    "absolute",
    "agree",
    "benchmark",
    "compare",
    "failed",
    "load",
    "unmeasured",
]

ORDER = (
    "kernel",
    "recording",
    "monitor",
    "sampler",
    "rejection",
    "icu",
    "robust",
    "states",
    "memory",
    "reach-100",
    "reach-1000",
    "process",
    "agents",
    "start",
)
"""The order of the table; a benchmark that is not named here comes last."""

Axis = Literal["states", "offset", "horizon", "agents"]


class DisagreementError(AssertionError):
    """Ours and a peer computed the same thing and got different values: no time is worth comparing then."""


@dataclass(frozen=True)
class Point:
    """One point of the plot: what a step costs (seconds) at this size of one axis, all else fixed as `series` says."""

    axis: Axis
    size: float
    seconds: float
    series: str


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Attributes:
        key: names the row on the command line and in the JSON.
        title: what is measured.
        target: the target in words; "-" without.
        limit: the target as a number, or None; `better` says on which side of it the ratio (or the median) must lie.
        unit: of the timings; "s" is shown as us, ms or s, anything else as it is.
        ours: None if it could not be measured here; the note says why.
        peer: against whom; "" for an absolute target.
        ratio: for at_least: theirs / ours, so how many times faster we are; for at_most: ours / theirs. None without a
            peer's timing.
        met: None if unknown, because the peer is missing, or if there is no target.
        note: what the reader must know, such as why the peer is missing.
    """

    key: str
    title: str
    target: str
    limit: float | None
    better: Literal["at_least", "at_most"]
    unit: str
    ours: Timing | None
    peer: str = ""
    theirs: Timing | None = None
    ratio: float | None = None
    met: bool | None = None
    note: str = ""
    points: tuple[Point, ...] = ()


@dataclass(frozen=True)
class Bench:
    """Argument of every measurement: the peers, how long it may take, the seed, and where to report progress."""

    peers: Peers
    quick: bool = False
    seed: int = 0
    report: Callable[[str], None] = field(default=lambda _: None)

    @property
    def rounds(self) -> int:
        """Number of rounds for `in_turns`."""
        return 5 if self.quick else 60

    def rng(self, stream: int = 0) -> np.random.Generator:
        """Numbers that depend on the seed and `stream` alone."""
        return np.random.default_rng([self.seed, stream])


BENCHMARKS: dict[str, Callable[[Bench], list[Row]]] = {}
"""key -> function; filled by `load`."""


def benchmark(
    key: str,
) -> Callable[[Callable[[Bench], list[Row]]], Callable[[Bench], list[Row]]]:
    """Register a function that measures the rows of this key."""

    def register(function: Callable[[Bench], list[Row]]) -> Callable[[Bench], list[Row]]:
        assert key not in BENCHMARKS, key
        BENCHMARKS[key] = function
        return function

    return register


def load() -> dict[str, Callable[[Bench], list[Row]]]:
    """All benchmarks by key, in the table's order."""
    for module in iter_modules(workloads.__path__):
        import_module(f"{workloads.__name__}.{module.name}")
    place = {key: n for n, key in enumerate(ORDER)}
    return dict(sorted(BENCHMARKS.items(), key=lambda entry: place.get(entry[0], len(ORDER))))


def compare(
    key: str,
    title: str,
    ours: Timing,
    theirs: Timing | Missing,
    *,
    peer: str,
    at_least: float | None = None,
    at_most: float | None = None,
    aim: bool = False,
    unit: str = "s",
    note: str = "",
) -> Row:
    """A row with a peer. `at_least`: how many times faster than the peer; `at_most`: how many times its cost.

    `aim`: worth reaching, but no target. Neither: a comparison without a target.
    """
    assert at_least is None or at_most is None
    better: Literal["at_least", "at_most"] = "at_least" if at_most is None else "at_most"
    limit = at_most if at_least is None else at_least
    target = "-" if limit is None else f"{'aim: ' if aim else ''}{'>=' if better == 'at_least' else '<='} {limit:,g}x"
    row = Row(key, title, target, limit, better, unit, ours, peer=peer, note=note)
    if isinstance(theirs, Missing):
        return replace(row, note="; ".join(filter(None, [note, theirs.reason])))
    ratio = theirs.median / ours.median if better == "at_least" else ours.median / theirs.median
    met = None if limit is None else ratio >= limit if better == "at_least" else ratio <= limit
    return replace(row, theirs=theirs, ratio=ratio, met=met)


def absolute(
    key: str, title: str, ours: Timing, *, at_most: float, target: str, unit: str = "s", note: str = ""
) -> Row:
    """A row without a peer: the median must not exceed `at_most`, in `unit`."""
    return Row(key, title, target, at_most, "at_most", unit, ours, met=ours.median <= at_most, note=note)


def unmeasured(key: str, title: str, target: str, why: Missing) -> Row:
    """A row whose own measurement needs what is missing here."""
    return Row(key, title, target, None, "at_most", "s", None, note=why.reason)


def failed(key: str, problem: BaseException) -> Row:
    """A benchmark that could not be measured this time."""
    return Row(key, "not measured", "-", None, "at_most", "s", None, note=f"{type(problem).__name__}: {problem}")


def agree(what: str, ours: float, theirs: float, tolerance: float) -> None:
    """Raise DisagreementError unless two values of the same thing are within `tolerance`."""
    if not abs(ours - theirs) <= tolerance:
        raise DisagreementError(f"{what}: {ours!r} here, {theirs!r} from the peer")
