"""Python functions of recorded columns as policies.

A parameter with the name of a column gets the value of this column. If the function has one required parameter with any
other name, this parameter gets a dict of all columns. A function is not called on a row if a value that it reads is
missing.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from monitor.arrays import AnyArray, Bools
from monitor.authoring.learning.left_out import RowLimit
from monitor.authoring.policy_export.original import MEMORY, Anything
from monitor.authoring.policy_export.policy_columns import PolicyRows
from monitor.authoring.policy_export.policy_functions import answer_of
from monitor.errors import PolicyError
from monitor.model.mdp import MDP
from monitor.user_code import explained

AGAIN = 1_000
"""Number of rows on which a function is called again, in reverse order."""


@dataclass(frozen=True)
class RowFunction:
    """A function of recorded columns. `columns`: columns that it gets by name; empty: it gets a dict of all columns."""

    function: Callable[..., Anything]
    columns: tuple[str, ...]
    where: str

    @classmethod
    def of(cls, function: Callable[..., Anything], offered: Sequence[str], where: str) -> RowFunction:
        """Return a function with the columns that it takes from `offered`. Raises PolicyError if they do not fit."""
        try:
            parameters = list(inspect.signature(function).parameters.values())
        except (TypeError, ValueError):
            return cls(function, (), where)  # builtins have no signature
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

    def tried(self, rows: PolicyRows) -> None:
        """Call the function on rows.

        Raises PolicyError if the function fails on most rows without missing values.
        """
        said = [self._said(rows, n) for n in range(len(rows))]
        failed = [each for each in said if isinstance(each, PolicyError)]
        if failed and 2 * len(failed) > sum(each is not MISSING for each in said):
            raise failed[0]

    def choices(self, rows: PolicyRows) -> set[object]:
        """Return the actions that the function chooses on rows, without those on which it fails."""
        said = [np.asarray(each) for n in range(len(rows)) if not isinstance(each := self._said(rows, n), PolicyError)]
        return {each.item() for each in said if each.shape == () and each.dtype.kind in "iufU"}

    def answers(self, rows: PolicyRows, model: MDP, limit: RowLimit) -> Answered:
        """Return the function's results on rows: actions [k], or scores or probabilities [k, A].

        `model`: the function may return the actions of this model, by number or name. The function is called once for
        each different row. Rows that lack a value that the function reads are left out, and so are rows on which it
        fails or does not return an action. Raises PolicyError if the rows with such failures are more than the limit
        allows, if no row is left, or if the function returns different results for the same row.
        """
        names = self.columns or tuple(rows.columns)
        keys = list(zip(*(rows.columns[name] for name in names), strict=True))
        places: dict[tuple[object, ...], int] = {}
        at = np.array([places.setdefault(_typed(key), len(places)) for key in keys], np.int64)
        first = dict(zip(reversed(at.tolist()), reversed(range(len(keys))), strict=True))
        found = [self._answer(rows, first[n], model) for n in range(len(places))]
        failed = np.array([isinstance(each, PolicyError) for each in found], np.bool_)[at]
        missing = np.array([each is MISSING for each in found], np.bool_)[at]
        if failed.any() and not limit.allows(int(failed.sum()), len(rows)):
            error = found[at[np.argmax(failed)]]
            assert isinstance(error, PolicyError)
            raise PolicyError(
                f"{error}; so on {failed.sum():,} of {len(rows):,} rows, more than --skip-bad {limit.text}"
            )
        kept = ~(failed | missing)
        if not kept.any():
            raise PolicyError(
                f"{self.where}: on none of {len(rows):,} recorded rows it has all columns that it reads, and answers"
            )
        answers = {
            n: answer for n, answer in enumerate(found) if not (answer is MISSING or isinstance(answer, Exception))
        }
        self._again(rows, first, answers, model)
        if len({np.shape(answer) for answer in answers.values()}) > 1:
            raise PolicyError(f"{self.where}: it returned an action in some rows and {model.actions} numbers in others")
        notes = [f"on {missing.sum():,} rows a column that it reads is missing"] if missing.any() else []
        if failed.any():
            notes.append(f"on {failed.sum():,} rows it failed: {found[at[np.argmax(failed)]]}")
        values = np.stack([answers[n] for n in at[kept].tolist()])
        return Answered(rows[kept], values, tuple(notes), kept)

    def _again(self, rows: PolicyRows, first: Mapping[int, int], answers: Mapping[int, AnyArray], model: MDP) -> None:
        """Raise PolicyError if the function returns another result when it is called again."""
        known = list(answers)
        for n in reversed(known[:: -(-len(known) // AGAIN) or 1]):
            again = self._answer(rows, first[n], model)
            if isinstance(again, PolicyError) or not np.array_equal(answers[n], again):
                shown = again if isinstance(again, PolicyError) else again.tolist()
                raise PolicyError(
                    f"{self._row(rows, first[n])}: it returned {answers[n].tolist()}, and {shown} when called "
                    f"again. If it draws its action, return the probabilities instead. Otherwise it has memory: "
                    f"{MEMORY}"
                )

    def _answer(self, rows: PolicyRows, n: int, model: MDP) -> Any:  # noqa: ANN401 - an array, MISSING or an error
        said = self._said(rows, n)
        if said is MISSING or isinstance(said, PolicyError):
            return said
        try:
            return answer_of(said, model, self._row(rows, n))
        except PolicyError as error:
            return error

    def _said(self, rows: PolicyRows, n: int) -> object:
        """Return the function's result on a row; MISSING if it reads a missing value; a PolicyError if it fails."""
        names = self.columns or tuple(rows.columns)
        row = _Row({name: rows.columns[name][n] for name in names})
        if self.columns and row.missing:
            return MISSING
        try:
            said = self.function(**row) if self.columns else self.function(row)
        except Exception as error:  # noqa: BLE001 - it may raise anything
            lost = row.read or (isinstance(error, KeyError) and error.args[:1] and error.args[0] in row.missing)
            return MISSING if lost else PolicyError(f"{self._row(rows, n)}: it failed ({explained(error)})")
        return MISSING if row.read else said

    def _row(self, rows: PolicyRows, n: int) -> str:
        names = self.columns or tuple(rows.columns)
        shown = ", ".join(f"{name}={rows.columns[name][n]!r:.40}" for name in names)
        how = "the columns" if self.columns else "a dict of all columns"
        place = "" if n >= len(rows.places) else f"{rows.places[n][0]}, row {rows.places[n][1]}: "
        return f"{self.where}: {place}called with {how} {shown:.300}"


MISSING: Final = object()
"""Result for a row in which a value that the function reads is missing."""


@dataclass(frozen=True, eq=False)
class Answered:
    """Results of a policy on recorded rows: `rows` [k], `values` [k] or [k, A], and notes on rows without a result.

    `kept`: indices of these rows among the given rows; None: all rows.
    """

    rows: PolicyRows
    values: AnyArray
    notes: tuple[str, ...] = ()
    kept: Bools | None = None


class _Row(dict[str, object]):
    """A row as the argument of a function, without the `missing` values. `read`: True if a missing value was read."""

    def __init__(self, values: Mapping[str, object]) -> None:
        super().__init__({name: value for name, value in values.items() if value is not None})
        self.missing = values.keys() - self.keys()
        self.read = False

    def __missing__(self, name: str) -> object:
        self.read = self.read or name in self.missing
        raise KeyError(name)

    def __contains__(self, name: object) -> bool:
        self.read = self.read or name in self.missing
        return super().__contains__(name)

    def get(self, name: str, default: object = None) -> object:
        self.read = self.read or name in self.missing
        return super().get(name, default)


def _typed(key: tuple[object, ...]) -> tuple[object, ...]:
    """Return a key in which 1, 1.0 and True are different."""
    return tuple((type(value), value) for value in key)
