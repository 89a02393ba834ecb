"""Recorded rows in the form that a policy sees: columns by name, and the columns of state and inputs as numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final

import numpy as np

from monitor.arrays import AnyArray, Bools, Floats, Ints
from monitor.authoring.learning.batch import RowBatch
from monitor.authoring.learning.columns import Roles
from monitor.authoring.learning.row_files import RowFile
from monitor.errors import PolicyError
from monitor.evaluation.models import places
from monitor.model.mdp import MDP

MOST: Final = 100_000
"""Largest number of rows that are kept. If there are more, every second row is kept, or every fourth, and so on."""


TRIED: Final = 100
"""Number of rows on which a function is tried before anything is learned."""


def offered(names: Iterable[str], roles: Roles) -> tuple[str, ...]:
    """Return the columns that a policy may see. These exclude columns that are known only after its choice."""
    after = {roles.action, roles.reward, roles.terminated, roles.truncated, *roles.next_state} - {*roles.state}
    return tuple(name for name in names if name not in after)


@dataclass(frozen=True, eq=False)
class PolicyRows:
    """Recorded rows, [n].

    Attributes:
        columns: name -> recorded value of each row: whole numbers, numbers, Booleans, text, or None.
        state, inputs: names of the columns of the state, and of the inputs.
        of: [n] state of each row in the learned model; None if no model was given.
        places: file and number of each row, or empty.
    """

    columns: Mapping[str, tuple[object, ...]]
    state: tuple[str, ...]
    inputs: tuple[str, ...] = ()
    of: Ints | None = None
    places: tuple[tuple[str, int], ...] = ()

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(next(iter(self.columns.values()), ()))

    def __getitem__(self, rows: Ints | Bools) -> PolicyRows:
        """Return some of the rows."""
        at = np.arange(len(self))[rows].tolist()
        columns = {name: tuple(values[n] for n in at) for name, values in self.columns.items()}
        places = tuple(self.places[n] for n in at) if self.places else ()
        return replace(self, columns=columns, of=None if self.of is None else self.of[rows], places=places)

    def numbers(self, names: Sequence[str], where: str) -> Floats:
        """Return columns as numbers, [n, k]. Raises PolicyError, which begins with `where`, if a column has text."""
        found = []
        for name in names:
            try:
                values = np.array([np.nan if each is None else each for each in self.columns[name]], dtype=np.float64)
            except (TypeError, ValueError):
                shown = next(each for each in self.columns[name] if isinstance(each, str))
                raise PolicyError(
                    f"{where}: it takes numbers, and column {name!r} holds text such as {shown!r:.40}; give a function "
                    f"of the columns, def act({', '.join(names)})"
                ) from None
            found.append(values)
        return np.stack(found, axis=1)

    def table(self, names: Sequence[str], model: MDP, where: str) -> MDP:
        """Return a model with one state for each recorded row, in which the policy can be evaluated.

        Its actions are those of `model`, and its observations are the columns.
        """
        return places(len(self), model, "recorded rows", observations=self.numbers(names, where))


def policy_rows(
    sources: Sequence[RowFile],
    roles: Roles,
    state_of: Callable[[RowBatch], Ints] | None = None,
    first: int | None = None,
    also: Sequence[str] = (),
) -> PolicyRows:
    """Return at most `MOST` rows of recordings, spread evenly over all. Rows without a state or an input are left out.

    `state_of`: returns the state of each row of a batch; negative: not known. `first`: return only the first rows, this
    many. `also`: further columns that `state_of` reads.
    """
    names = offered(sources[0].names(), roles)
    needed = (*roles.state, *roles.inputs)
    held: dict[str, list[object]] = {name: [] for name in names}
    of: list[int] = []
    places: list[tuple[str, int]] = []
    stride, seen = 1, 0
    for batch in chain.from_iterable(source.batches((*names, *also)) for source in sources):
        whole = batch.whole()
        numbers = whole.places
        values = {name: _plain(whole.columns[name]) for name in names if name in whole.columns}
        states = np.zeros(len(whole), np.int64) if state_of is None else state_of(whole)
        for row in range((-seen) % stride, len(whole), stride):
            if states[row] >= 0 and all(values[name][row] is not None for name in needed):
                of.append(int(states[row]))
                places.append((whole.source, int(numbers[row])))
                for name in names:
                    held[name].append(values[name][row] if name in values else None)
        seen += len(whole)
        if first is not None and len(of) >= first:
            of, places = of[:first], places[:first]
            held = {name: each[:first] for name, each in held.items()}
            break
        while len(of) > MOST:
            stride, of, places = 2 * stride, of[::2], places[::2]
            held = {name: each[::2] for name, each in held.items()}
    columns = {name: tuple(each) for name, each in held.items()}
    found = None if state_of is None else np.array(of, np.int64)
    return PolicyRows(columns, roles.state, roles.inputs, found, tuple(places))


def rows_of_columns(columns: Mapping[str, AnyArray]) -> PolicyRows:
    """Return `TRIED` rows of columns [n] that are spread evenly over all."""
    count = len(next(iter(columns.values()), ()))
    at = np.unique(np.linspace(0, count - 1, TRIED).astype(np.int64)) if count else np.zeros(0, np.int64)
    return PolicyRows({name: tuple(_plain(values[at])) for name, values in columns.items()}, ())


def _plain(values: AnyArray) -> list[object]:
    """Return values as Python objects; None for a missing value."""
    found: list[object] = values.tolist()
    if values.dtype.kind == "f":
        return [None if value != value else value for value in found]  # noqa: PLR0124 - NaN
    return [None if value == "" else value for value in found] if values.dtype.kind == "U" else found
