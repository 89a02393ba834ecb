"""Map columns to states and actions: by numbers, names, tuples in order of first occurrence, bins or clusters."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal

import numpy as np

from monitor.arrays import AnyArray, Floats, Ints
from monitor.authoring.learning.batch import EXACT, RowBatch, is_missing
from monitor.errors import ModelError, RecordingError
from monitor.model.centres import Centres

EncodingKind = Literal["index", "name", "values", "bins", "nearest", "levels"]
"""How columns become numbers.

`index`: one column of numbers 0, 1, ..., unchanged. `name`: one column of text. `values`: tuples of numbers, text and
Booleans. `bins`: numbers by the edges of bins, and text. `nearest`: numbers by the nearest centre of clusters. All
these are also kinds of state encoders. `levels`: one column of numbers for actions; the numbers that occur are sorted.
"""

MAX_STATES: Final = 1 << 22

DISTANCES: Final = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
"""Upper bounds of the classes of distances from the centre, in units of the columns."""

ENOUGH: Final = 10
"""The transitions of a state count as known if the state has at least this number of rows."""

FEW: Final = 20
MANY: Final = 1000
"""A column with decimals is continuous if it has more different values than a tenth of its number of values.

This bound is at least `FEW` and at most `MANY`.
"""


@dataclass
class Numbering:
    """Numbering of states or of actions. New values get new numbers.

    Attributes:
        kind: see `EncodingKind`.
        columns: names of the columns, for messages.
        edges: for bins, one array of edges for each column.
        names: for bins, one tuple of texts for each column, () for a column of numbers; empty if no column has text.
        centres: for clusters, their centres.
        known: value -> number: values of a column for `name` and `levels`, tuples for `values`.
        size: how many numbers are in use.
        distances: for clusters, number of observations within each of `DISTANCES` of their centre, and beyond.
        farthest: largest distance of an observation from its centre.
        ranges: for bins and clusters, [D, 2] the smallest and the largest number of each column so far.
    """

    kind: EncodingKind
    columns: tuple[str, ...]
    edges: tuple[Floats, ...] = ()
    names: tuple[tuple[str, ...], ...] = ()
    centres: Centres | None = None
    known: dict[tuple[float | str | bool, ...], int] = field(default_factory=dict)
    size: int = 0
    distances: Ints = field(default_factory=lambda: np.zeros(len(DISTANCES) + 1, np.int64))
    farthest: float = 0.0
    ranges: Floats | None = None

    def __post_init__(self) -> None:
        if self.kind == "bins":
            self.size = int(np.prod([len(edges) - 1 for edges in self.edges]))
            if self.size > MAX_STATES:
                raise ModelError(f"--bins: {self.size:,} states are more than {MAX_STATES:,}; use fewer bins")
        if self.centres is not None:
            self.size = len(self.centres.points)

    def encode(self, batch: RowBatch, names: tuple[str, ...]) -> Ints:
        """Return the number of each row, [n]; -1 if a value is missing. New values get new numbers.

        `names`: the columns to read instead of `columns`. Raises RecordingError for a value that cannot have a number.
        """
        values = [batch.column(name) for name in names]
        missing = np.logical_or.reduce([is_missing(each) for each in values])
        numbers = np.full(len(batch), -1, np.int64)
        present = np.flatnonzero(~missing)
        if len(present):
            kept = [each[present] for each in values]
            numbers[present] = self._numbers(kept, batch, present)
        return numbers

    @property
    def places(self) -> Ints:
        """The index in a model of each number in use, [size]. A model sorts levels; other numbers stay the same."""
        if self.kind != "levels":
            return np.arange(self.size)
        return np.argsort(np.argsort([float(level) for (level,) in self.known]))

    @property
    def action_names(self) -> tuple[str, ...]:
        """Names of the actions in the order of a model; () if actions are indices 0, 1, ..."""
        if self.kind == "levels":
            levels = sorted(float(level) for (level,) in self.known)
            return () if levels == list(range(len(levels))) else tuple(level_name(level) for level in levels)
        return tuple(str(known[0]) for known in self.known) if self.kind == "name" else ()

    def _numbers(self, values: list[AnyArray], batch: RowBatch, rows: Ints) -> Ints:
        match self.kind:
            case "index":
                numbers = self._indices(values[0], batch, rows)
                self.size = max(self.size, int(numbers.max()) + 1)
                return numbers
            case "levels":
                return self._levels(values[0], batch, rows)
            case "bins":
                return self._binned(values, batch, rows)
            case "nearest":
                return self._nearest(values, batch, rows)
            case _:
                return self._in_order(values, batch, rows)

    def _indices(self, values: AnyArray, batch: RowBatch, rows: Ints) -> Ints:
        if values.dtype.kind == "U":
            self._refuse(batch, int(rows[0]), values[0], "is text; whole numbers are needed")
        if values.dtype.kind == "b":
            return values.astype(np.int64)
        bad = np.flatnonzero((values < 0) | (values != np.floor(values)) | (values >= MAX_STATES))
        if bad.size:
            problem = f"is not an index from 0 to {MAX_STATES - 1:,}; --abstraction values numbers states as they come"
            self._refuse(batch, int(rows[bad[0]]), values[bad[0]], problem)
        return values.astype(np.int64)

    def _levels(self, values: AnyArray, batch: RowBatch, rows: Ints) -> Ints:
        if values.dtype.kind == "U":
            self._refuse(batch, int(rows[0]), values[0], "is text; numbers are needed")
        both = np.array([0.0, 1.0]) if values.dtype.kind == "b" else np.zeros(0)  # in case only one of them occurs
        different, places = np.unique(np.concatenate([both, values.astype(np.float64)]), return_inverse=True)
        if bool((abs(different) > EXACT).any()):
            row = int(np.flatnonzero(abs(values.astype(np.float64)) > EXACT)[0])
            self._refuse(batch, int(rows[row]), values[row], "is larger than 2^53")
        numbers = [self.known.setdefault((level,), len(self.known)) for level in different.tolist()]
        self.size = len(self.known)
        return np.array(numbers, np.int64)[places[len(both) :]]

    def _binned(self, values: list[AnyArray], batch: RowBatch, rows: Ints) -> Ints:
        state = np.zeros(len(rows), np.int64)
        names = self.names or ((),) * len(values)
        numbers = [self._coded(*pair, batch, rows) for pair in zip(values, names, strict=True)]
        for each, edges in zip(numbers, self.edges, strict=True):
            state = state * (len(edges) - 1) + np.searchsorted(edges[1:-1], each, side="right")
        self._widen(np.column_stack(numbers))
        return state

    def _coded(self, values: AnyArray, names: tuple[str, ...], batch: RowBatch, rows: Ints) -> Floats:
        """Return the values of a binned column as numbers. A text becomes its index in `names`."""
        if not names:
            if values.dtype.kind == "U":
                self._refuse(batch, int(rows[0]), values[0], "is text; its bins are for numbers")
            return values.astype(np.float64)
        if values.dtype.kind != "U":
            self._refuse(batch, int(rows[0]), values[0], "is no text; its bins are for texts")
        kinds, places = np.unique(values, return_inverse=True)
        numbers = np.array([names.index(kind) if kind in names else -1 for kind in kinds.tolist()])[places]
        if (unknown := np.flatnonzero(numbers < 0)).size:
            row = int(unknown[0])
            self._refuse(batch, int(rows[row]), values[row], "has no bin: it was never recorded; learn the model again")
        return numbers.astype(np.float64)

    def _nearest(self, values: list[AnyArray], batch: RowBatch, rows: Ints) -> Ints:
        assert self.centres is not None
        for each in values:
            if each.dtype.kind == "U":
                self._refuse(batch, int(rows[0]), each[0], "is text; clusters need numbers")
        numbers = np.column_stack(values).astype(np.float64)
        self._widen(numbers)
        states, distance = self.centres.nearest(numbers)
        self.distances += np.bincount(np.searchsorted(DISTANCES, distance), minlength=len(DISTANCES) + 1)
        self.farthest = max(self.farthest, float(distance.max()))
        return states

    def _widen(self, numbers: Floats) -> None:
        """Widen the ranges by numbers [n, D]."""
        before = np.zeros((0, numbers.shape[1])) if self.ranges is None else self.ranges.T
        every = np.concatenate([before, numbers])
        self.ranges = np.stack([every.min(axis=0), every.max(axis=0)], axis=1)

    def _in_order(self, values: list[AnyArray], batch: RowBatch, rows: Ints) -> Ints:
        keys = np.zeros(len(rows), np.int64)
        for each in values:
            kinds, places = np.unique(each, return_inverse=True)
            keys = np.unique(keys * len(kinds) + places, return_inverse=True)[1]
        _, first, places = np.unique(keys, return_index=True, return_inverse=True)
        numbers = np.zeros(len(first), np.int64)
        for kind in np.argsort(first, kind="stable"):
            numbers[kind] = self._number(values, int(first[kind]), batch, rows)
        return numbers[places]

    def _number(self, values: list[AnyArray], row: int, batch: RowBatch, rows: Ints) -> int:
        found = tuple(_plain(each[row]) for each in values)
        number = self.known.get(found)
        if number is None:
            for each in found:
                if isinstance(each, float) and abs(each) > EXACT:
                    self._refuse(batch, int(rows[row]), each, "is larger than 2^53")
            if len(self.known) >= MAX_STATES:
                what = ", ".join(self.columns)
                raise ModelError(f"{batch.source}: {what}: more than {MAX_STATES:,} different values; use --bins")
            number = self.known[found] = self.size
            self.size += 1
        return number

    def _refuse(self, batch: RowBatch, row: int, value: object, problem: str) -> None:
        raise RecordingError(f"{batch.where(row)}: {', '.join(self.columns)} = {str(value)!r:.80} {problem}")


def level_name(level: float) -> str:
    """Return the name of an action that recordings call by a number: the shortest exact form of the number.

    >>> level_name(40.0), level_name(-0.5)
    ('40', '-0.5')
    """
    return str(int(level)) if level.is_integer() else repr(level)


def hardly_revisited(batch: RowBatch, names: tuple[str, ...]) -> bool:
    """Return whether most rows are in states of fewer than `ENOUGH` rows, if each tuple of values is a state.

    With fewer than `MANY` rows, return False, because a small batch shows nothing.
    """
    states = Numbering("values", names).encode(batch, names)
    states = states[states >= 0]
    visits = np.bincount(states)[states]
    return len(states) >= MANY and 2 * int((visits < ENOUGH).sum()) > len(states)


def _plain(value: object) -> float | str | bool:
    if isinstance(value, bool | np.bool_):
        return bool(value)
    return str(value) if isinstance(value, str) else float(value)  # type: ignore[arg-type]


def numbered_actions(batch: RowBatch, name: str) -> Numbering:
    """Return a numbering for the actions in a column. Texts are names of actions, and numbers are levels.

    Raises RecordingError if the column looks continuous.
    """
    option = "name the few actions there are in a column of their own, and give it with --action"
    kind = chosen_kind(batch, (name,), "action", option)
    return Numbering("name" if kind == "name" else "levels", (name,))


def numbered_signals(batch: RowBatch, name: str) -> Numbering:
    """Return a numbering for the observations in a column: texts are their names, and whole numbers stay the same.

    Raises RecordingError for other numbers.
    """
    kind = chosen_kind(batch, (name,), "observation", "bin it in a column of its own, and give that with --signal")
    if kind == "values" and batch.column(name).dtype.kind != "b":
        raise RecordingError(
            f"{batch.source}: column {name!r} of the observation has numbers that are not 0, 1, 2, ...; name the "
            "observations in a column of their own, and give it with --signal"
        )
    return Numbering("name" if kind == "name" else "index", (name,))


def chosen_kind(batch: RowBatch, names: tuple[str, ...], what: str, option: str) -> EncodingKind:
    """Return the kind of numbering that fits the columns: `index`, `name` or `values`.

    Raises RecordingError if a column looks continuous. `what`, `option`: parts of the message.
    """
    for name in names:
        values = batch.column(name)
        if values.dtype.kind == "f":
            present = values[np.isfinite(values)]
            whole = bool((present == np.floor(present)).all())
            if not whole and len(np.unique(present)) > min(MANY, max(FEW, len(present) // 10)):
                kinds = len(np.unique(present))
                raise RecordingError(
                    f"{batch.source}: column {name!r} of the {what} looks continuous ({kinds:,} values in "
                    f"{len(values):,} rows); {option}"
                )
    first = batch.column(names[0])
    if len(names) > 1:
        return "values"
    if first.dtype.kind == "U":
        return "name"
    present = first[~is_missing(first)]
    whole = first.dtype.kind != "b" and bool((present == np.floor(present)).all())
    return "index" if whole and not bool((present >= MAX_STATES).any()) else "values"
