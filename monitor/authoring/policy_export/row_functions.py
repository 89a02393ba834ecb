"""Python functions of recorded columns as policies.

A parameter that is named like a column gets the value of that column. A function whose only needed parameter is named
otherwise gets a dict of all columns.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from monitor.arrays import AnyArray
from monitor.authoring.policy_export.observed_rows import ObservedRows
from monitor.authoring.policy_export.original import MEMORY, Anything
from monitor.authoring.policy_export.policy_functions import answer_of
from monitor.errors import PolicyError
from monitor.model.mdp import MDP
from monitor.user_code import explained

AGAIN = 1_000
"""Rows on which a function is called again, in reverse order."""


@dataclass(frozen=True)
class RowFunction:
    """A function of recorded columns. `columns`: that it gets by name; empty: it gets a dict of all of them."""

    function: Callable[..., Anything]
    columns: tuple[str, ...]
    where: str

    @classmethod
    def of(cls, function: Callable[..., Anything], offered: Sequence[str], where: str) -> RowFunction:
        """Return a function with the columns that it takes, of those `offered`. Raises PolicyError: they do not fit."""
        try:
            parameters = list(inspect.signature(function).parameters.values())
        except (TypeError, ValueError):
            return cls(function, (), where)  # as builtins have none
        named = [each for each in parameters if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)]
        needed = [each.name for each in named if each.default is each.empty]
        by_name = [each for each in named if each.name in offered and each.kind is not each.POSITIONAL_ONLY]
        if needed and set(needed) <= {each.name for each in by_name}:
            return cls(function, tuple(each.name for each in by_name), where)
        if len(needed) == 1:
            return cls(function, (), where)
        others = [name for name in needed if name not in offered]
        raise PolicyError(
            f"{where}: its parameters are {', '.join(needed) or 'none'}, and the recordings have no column "
            f"{', '.join(map(repr, others)) or '?'}; name parameters like columns, or take one, which gets a dict of "
            f"all columns: {', '.join(offered)}"
        )

    def tried(self, rows: ObservedRows) -> None:
        """Call it on rows. Raises PolicyError if it fails."""
        names = self.columns or tuple(rows.columns)
        for values in zip(*(rows.columns[name] for name in names), strict=True):
            self._called(names, values)

    def answers(self, rows: ObservedRows, model: MDP) -> AnyArray:
        """Return what it says of each row: actions [n], or scores or probabilities [n, A]. `model`: has the actions.

        It is called once for each different row. Raises PolicyError: it fails, returns something else, or returns
        different things for one row.
        """
        names = self.columns or tuple(rows.columns)
        keys = list(zip(*(rows.columns[name] for name in names), strict=True))
        places: dict[tuple[object, ...], int] = {}
        at = [places.setdefault(_typed(key), len(places)) for key in keys]
        first = dict(zip(reversed(at), reversed(keys), strict=True))
        found = [self._answer(names, first[n], model) for n in range(len(places))]
        for n in reversed(range(0, len(found), -(-len(found) // AGAIN) or 1)):
            again = self._answer(names, first[n], model)
            if not np.array_equal(found[n], again):
                raise PolicyError(
                    f"{self._row(names, first[n])}: it returned {found[n].tolist()}, and {again.tolist()} when called "
                    f"again. If it draws its action, return the probabilities instead. Otherwise it has memory: "
                    f"{MEMORY}"
                )
        if len({answer.shape for answer in found}) > 1:
            raise PolicyError(f"{self.where}: it returned an action in some rows and {model.actions} numbers in others")
        return np.stack(found)[at]

    def _answer(self, names: tuple[str, ...], values: tuple[object, ...], model: MDP) -> AnyArray:
        return answer_of(self._called(names, values), model, self._row(names, values))

    def _called(self, names: tuple[str, ...], values: tuple[object, ...]) -> object:
        row = dict(zip(names, values, strict=True))
        try:
            return self.function(**row) if self.columns else self.function(row)
        except Exception as error:
            raise PolicyError(f"{self._row(names, values)}: it failed ({explained(error)})") from error

    def _row(self, names: tuple[str, ...], values: tuple[object, ...]) -> str:
        shown = ", ".join(f"{name}={value!r:.40}" for name, value in zip(names, values, strict=True))
        how = "the columns" if self.columns else "a dict of all columns"
        return f"{self.where}: called with {how} {shown:.300}"


def _typed(key: tuple[object, ...]) -> tuple[object, ...]:
    """Return a key in which 1, 1.0 and True differ."""
    return tuple((type(value), value) for value in key)
