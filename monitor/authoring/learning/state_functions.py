"""States computed by a Python function, `--abstraction module.py:function`. Impure: imports the module."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from monitor.arrays import AnyArray
from monitor.authoring.learning.batch import RowBatch, typed
from monitor.authoring.learning.row_files import START, FilePosition, RowFile, RowsOf
from monitor.errors import ModelError
from monitor.user_code import explained, load_object

TRIED: Final = 1_000
"""Number of rows on which a function is tried, to see which columns it reads."""


def state_function(reference: str) -> tuple[str, Callable[..., Any]]:
    """Return the name and the function of `module.py:function`. Raises ModelError if it cannot be loaded.

    The function is called with a dictionary, column -> array of the values of some rows. It returns a state for each
    row: whole numbers from 0, or names.
    """
    return f"{reference.rpartition(':')[2]}()", load_object(reference, ModelError)


def columns_read(reference: str, columns: Mapping[str, AnyArray]) -> frozenset[str]:
    """Return the names of the columns that the function reads when it is called with the first `TRIED` of these rows.

    If the function fails there, return all names. Its error is raised later, with the rows. Raises ModelError if the
    function cannot be loaded.
    """
    _, function = state_function(reference)
    row = _Noted({name: values[:TRIED] for name, values in columns.items()})
    try:
        function(row)
    except Exception:  # noqa: BLE001 - the user's function may raise anything
        return frozenset(columns)
    return frozenset(row.read & columns.keys())


class _Noted(dict[str, AnyArray]):
    """Columns that note which of them are read. Iteration reads all."""

    def __init__(self, columns: Mapping[str, AnyArray]) -> None:
        super().__init__(columns)
        self.read: set[str] = set()

    def __getitem__(self, name: str) -> AnyArray:
        self.read.add(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:  # noqa: ANN401 - as dict
        self.read.add(name)
        return super().get(name, default)

    def pop(self, name: str, *default: Any) -> Any:  # noqa: ANN401 - as dict
        self.read.add(name)
        return super().pop(name, *default)

    def __iter__(self) -> Iterator[str]:
        self.read.update(super().keys())
        return super().__iter__()

    def items(self) -> Any:  # noqa: ANN401 - as dict
        self.read.update(super().keys())
        return super().items()

    def values(self) -> Any:  # noqa: ANN401 - as dict
        self.read.update(super().keys())
        return super().values()


class Computed(RowsOf):
    """File of rows with one additional column: the state that a function computes from all other columns."""

    def __init__(self, rows: RowFile, name: str, function: Callable[..., Any]) -> None:
        super().__init__(rows)
        self._name, self._function = name, function

    def names(self) -> tuple[str, ...]:
        """Return the names of the columns, the computed one first."""
        return (self._name, *self._rows.names())

    def batches(self, wanted: Sequence[str], begin: FilePosition = START) -> Iterator[RowBatch]:
        """Yield the wanted columns, and the computed one."""
        every = self._rows.names()
        others = [name for name in wanted if name != self._name]
        for read in self._rows.batches(list(dict.fromkeys([*every, *others])), begin):
            batch = read.whole()
            states = self._computed(batch, {name: batch.columns[name] for name in every})
            yield replace(batch, columns={self._name: states} | {name: batch.columns[name] for name in others})

    def _computed(self, batch: RowBatch, columns: dict[str, AnyArray]) -> Any:  # noqa: ANN401 - an array of any kind
        try:
            states = np.asarray(self._function(columns)).tolist()
        except Exception as error:  # the user's function may raise anything
            where = f"{batch.source}, rows from {batch.first}"
            raise ModelError(f"{where}: {self._name} failed ({explained(error)})") from error
        if not isinstance(states, list) or len(states) != len(batch):
            raise ModelError(f"{batch.source}: {self._name} must return one state for each of {len(batch)} rows")
        found, odd = typed(states, None)
        if len(odd) or found.dtype.kind not in "iU":
            raise ModelError(f"{batch.source}: {self._name} must return whole numbers or names")
        return found
