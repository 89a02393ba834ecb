"""Bins of numbers: their specification, such as `x:8q,v:-1|0|1`, and their edges, computed from a sample of rows.

A column of text has one bin for each of its texts. If a specification gives only the number of bins, the numbers in the
labels' conditions are edges too. A label then holds everywhere in a bin, or nowhere.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType
from typing import Final

import numpy as np

from monitor.arrays import AnyArray, Floats
from monitor.authoring.learning.batch import RowBatch, is_missing
from monitor.errors import ModelError, RecordingError

SAMPLE: Final = 100_000
"""Number of rows from which quantiles are computed."""

FEW: Final = 32
"""A column without a specification gets one bin for each value if it has at most this many values, all whole."""

MOST: Final = 10_000
"""Largest number of bins of one column."""


NONE: Final[Mapping[str, Collection[float]]] = MappingProxyType({})


@dataclass(frozen=True)
class BinSpec:
    """Bins of one column: `count` bins of equal frequency ("q") or equal width ("w"), or the `cuts` between bins."""

    count: int = 0
    kind: str = "q"
    cuts: tuple[float, ...] = ()


def parsed_bins(text: str) -> dict[str, BinSpec]:
    """Return column -> bins. The column "" stands for all columns that are not named.

    `8q` means eight bins of equal frequency, `8w` eight bins of equal width, and `-1|0|1` four bins with these numbers
    between them. The outermost bins are unbounded.

    >>> parsed_bins("x:8q,v:-1|0|1")["v"].cuts
    (-1.0, 0.0, 1.0)
    """
    found: dict[str, BinSpec] = {}
    for part in (each.strip() for each in text.split(",")):
        column, _, spec = part.rpartition(":")
        if column in found:
            raise ModelError(f"--bins: column {column!r} is given twice")
        found[column] = _spec(spec.strip(), part)
    return found


def _spec(text: str, part: str) -> BinSpec:
    if counted := re.fullmatch(r"([0-9]{1,6})([qw])", text):
        if not 1 <= int(counted[1]) <= MOST:
            raise ModelError(f"--bins {part}: give 1 to {MOST:,} bins")
        return BinSpec(int(counted[1]), counted[2])
    try:
        cuts = tuple(float(cut) for cut in text.split("|"))
    except ValueError as error:
        raise ModelError(f"--bins {part}: write COLUMN:8q (equal frequency), :8w (equal width) or :-1|0|1") from error
    if not all(np.isfinite(cuts)) or not all(a < b for a, b in pairwise(cuts)):
        raise ModelError(f"--bins {part}: the numbers between bins must ascend")
    return BinSpec(cuts=cuts)


class Reservoir:
    """Uniform sample of at most `SAMPLE` rows of a stream (Vitter's algorithm R), with the range of each column.

    A text is represented by its index among the different texts of its column.
    """

    def __init__(self, width: int, rng: np.random.Generator) -> None:
        self._rng = rng
        self._kept = np.zeros((SAMPLE, width))
        self._texts: tuple[dict[str, int], ...] = tuple({} for _ in range(width))
        self.seen = 0
        self.low, self.high = np.full(width, np.inf), np.full(width, -np.inf)

    def read(self, batch: RowBatch, columns: tuple[str, ...]) -> None:
        """Add the rows that have a finite number or a text in all columns.

        Raises RecordingError if a column has both text and numbers, or more than `MOST` texts.
        """
        values = [batch.column(name) for name in columns]
        there = np.flatnonzero(~np.logical_or.reduce([is_missing(each) for each in values]))
        if len(there):
            coded = [self._coded(i, each[there], batch, columns[i]) for i, each in enumerate(values)]
            self.add(np.column_stack(coded))

    def _coded(self, i: int, values: AnyArray, batch: RowBatch, name: str) -> Floats:
        known = self._texts[i]
        if bool(known) != (values.dtype.kind == "U") and self.seen:
            raise RecordingError(f"{batch.source}: column {name!r} holds text in some places and numbers in others")
        if values.dtype.kind != "U":
            return values.astype(np.float64)
        kinds, first, places = np.unique(values, return_index=True, return_inverse=True)
        for kind in kinds[np.argsort(first)].tolist():
            known.setdefault(kind, len(known))
        if len(known) > MOST:
            raise RecordingError(
                f"{batch.source}: column {name!r} holds more than {MOST:,} different texts, too many for a bin each; "
                "leave it out of the state"
            )
        return np.array([known[kind] for kind in kinds.tolist()], np.float64)[places]

    @property
    def texts(self) -> tuple[tuple[str, ...], ...]:
        """The texts of each column in the order of their numbers, () for numbers; empty if no column has text."""
        return tuple(map(tuple, self._texts)) if any(self._texts) else ()

    def add(self, rows: Floats) -> None:
        """Add rows [n, width] of finite numbers."""
        if not len(rows):
            return
        self.low, self.high = np.minimum(self.low, rows.min(axis=0)), np.maximum(self.high, rows.max(axis=0))
        direct = min(max(SAMPLE - self.seen, 0), len(rows))
        self._kept[self.seen : self.seen + direct] = rows[:direct]
        later = np.arange(self.seen + direct, self.seen + len(rows))
        places = self._rng.integers(0, later + 1) if len(later) else later
        self._kept[places[places < SAMPLE]] = rows[direct:][places < SAMPLE]
        self.seen += len(rows)

    @property
    def rows(self) -> Floats:
        """The sample, [n, width]."""
        return self._kept[: min(self.seen, SAMPLE)]


def edges_of(
    columns: tuple[str, ...], specs: dict[str, BinSpec], sample: Reservoir, also: Mapping[str, Collection[float]] = NONE
) -> tuple[Floats, ...]:
    """Return the edges of each column. The outermost edges are infinite.

    A column of text has the edges 0, 1, ... for the numbers of its texts in the sample. Such a column cannot have other
    bins. `also`: column -> further edges. They are used within the recorded range if the user gave no `cuts`. Raises
    ModelError if a column is unknown or has no bins.
    """
    unknown = sorted(set(specs) - {"", *columns})
    if unknown:
        raise ModelError(f"--bins: {unknown[0]!r} is not a column of the state ({', '.join(columns)})")
    found = []
    for i, name in enumerate(columns):
        if sample.texts and sample.texts[i]:
            if name in specs:
                raise ModelError(f"--bins: column {name!r} is text, and each text is a bin; give none for it")
            found.append(np.arange(len(sample.texts[i]) + 1.0))
            continue
        spec = specs.get(name, specs.get(""))
        cuts = _edges(name, spec, sample, i)
        if spec is None or not spec.cuts:
            cuts = np.union1d(cuts, within(also.get(name, ()), sample, i))
        found.append(np.concatenate([[-np.inf], cuts, [np.inf]]))
    return tuple(found)


def within(edges: Collection[float], sample: Reservoir, i: int) -> list[float]:
    """Return, ascending, the edges that have recorded values of column `i` on both sides."""
    return sorted(edge for edge in edges if sample.low[i] < edge <= sample.high[i])


def _edges(name: str, spec: BinSpec | None, sample: Reservoir, i: int) -> Floats:
    values = sample.rows[:, i]
    if spec is None:
        kinds = np.unique(values)
        if len(kinds) <= FEW and bool((kinds == np.floor(kinds)).all()):
            return np.asarray((kinds[1:] + kinds[:-1]) / 2)
        raise ModelError(f"--bins: column {name!r} has {len(kinds):,} values; add bins for it, such as {name}:8q")
    if spec.cuts:
        return np.array(spec.cuts)
    if spec.kind == "w":
        return np.unique(np.linspace(sample.low[i], sample.high[i], spec.count + 1)[1:-1])
    cuts = np.unique(np.quantile(values, np.arange(1, spec.count) / spec.count))
    return np.asarray(cuts[cuts > sample.low[i]])
