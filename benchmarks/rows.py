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

A function may return several rows; their keys begin with its own key and a slash. With `bench.quick` it takes seconds
instead of minutes and computes the same values; the tests use that. If both sides compute the same quantity, the
function compares the values (`agree`) before the times. Random numbers come from `bench.rng()` only.
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
    "recourse",
    "learned",
    "numbers",
    "hidden",
    "states",
    "memory",
    "reach-100",
    "reach-1000",
    "process",
    "audit",
    "agents",
    "start",
)
"""Order of the rows in the table; benchmarks not listed here come last."""

Axis = Literal["states", "offset", "horizon", "agents"]


class DisagreementError(AssertionError):
    """Our value differs from a peer's, so that comparing times would be meaningless."""


@dataclass(frozen=True)
class Point:
    """Point of the plot: cost of a step (seconds) at one size of one axis, all else fixed as described by `series`."""

    axis: Axis
    size: float
    seconds: float
    series: str


@dataclass(frozen=True)
class Row:
    """Row of the table.

    Attributes:
        key: name of the row on the command line and in the JSON.
        title: the measured quantity.
        target: the target in words; "-" if there is none.
        limit: the target as a number, or None; `better` is the side on which the ratio (or the median) must lie.
        unit: unit of the timings; "s" is shown as us, ms or s, others unchanged.
        ours: our timing, or None if it could not be measured; then the note has the reason.
        peer: name of the peer; "" for an absolute target.
        ratio: theirs / ours for at_least (how many times faster we are); ours / theirs for at_most. None without a
            timing of the peer.
        met: True if the target is met; None if there is no target or the peer is missing.
        note: remark for the reader, such as why the peer is missing.
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
    """Argument of every measurement: peers, duration, seed, and callback for progress."""

    peers: Peers
    quick: bool = False
    seed: int = 0
    report: Callable[[str], None] = field(default=lambda _: None)

    @property
    def rounds(self) -> int:
        """Number of rounds for `in_turns`."""
        return 5 if self.quick else 60

    def rng(self, stream: int = 0) -> np.random.Generator:
        """Return a generator that depends on the seed and `stream` only."""
        return np.random.default_rng([self.seed, stream])


BENCHMARKS: dict[str, Callable[[Bench], list[Row]]] = {}
"""Key to function; filled by `load`."""


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
    """Return all benchmarks by key, in the order of the table."""
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
    """Return a row with a peer.

    The target is `at_least` times as fast as the peer, or `at_most` times its cost; without both there is no target.
    With `aim`, it is shown as an aim, not a target.
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
    """Return a row without a peer: the median must not exceed `at_most`, in `unit`."""
    return Row(key, title, target, at_most, "at_most", unit, ours, met=ours.median <= at_most, note=note)


def unmeasured(key: str, title: str, target: str, why: Missing) -> Row:
    """Return a row whose own measurement needs something that is missing."""
    return Row(key, title, target, None, "at_most", "s", None, note=why.reason)


def failed(key: str, problem: BaseException) -> Row:
    """Return the row of a benchmark that raised `problem`."""
    return Row(key, "not measured", "-", None, "at_most", "s", None, note=f"{type(problem).__name__}: {problem}")


def agree(what: str, ours: float, theirs: float, tolerance: float) -> None:
    """Raise DisagreementError unless both values of a quantity agree within `tolerance`."""
    if not abs(ours - theirs) <= tolerance:
        raise DisagreementError(f"{what}: {ours!r} here, {theirs!r} from the peer")
