"""Labels as conditions on the features, such as `level >= 9 and mode == 'busy'`; parsed, never executed as code."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from monitor.arrays import Bools, Floats
from monitor.errors import ModelError
from monitor.model.label_conditions import COMPARISONS, parsed

Predicate = Callable[[Floats], Bools]
"""States [n, f] -> whether the condition holds in each, [n]."""

COMPARED: Final = {kind: compare for kind, compare in COMPARISONS.items() if kind not in (ast.In, ast.NotIn)}
"""Comparisons of numbers, which are made for all states at once."""


def compiled(text: str, names: Sequence[str], values: Mapping[str, Sequence[str]], where: str) -> Predicate:
    """Return a condition over the features `names`; `values`: feature -> its named values, if it has any.

    A condition compares a feature with a number, or with one of its named values in quotes, and joins comparisons with
    `and`, `or`, `not`. Raises ModelError, whose message begins with `where`, if the text is no such condition.

    >>> compiled("1 < x <= 3 and mode == 'busy'", ["x", "mode"], {"mode": ["idle", "busy"]}, "label")(
    ...     np.array([[2.0, 1.0], [2.0, 0.0], [4.0, 1.0]])).tolist()
    [True, False, False]
    """
    return _Reader(list(names), values, where).condition(parsed(text, where))


class _Reader:
    def __init__(self, names: list[str], values: Mapping[str, Sequence[str]], where: str) -> None:
        self._names, self._values, self._where = names, values, where

    def condition(self, tree: ast.expr) -> Predicate:
        match tree:
            case ast.BoolOp(op=op, values=parts):
                conditions = [self.condition(part) for part in parts]
                join = np.logical_and if isinstance(op, ast.And) else np.logical_or
                return lambda states: np.asarray(join.reduce([one(states) for one in conditions]))
            case ast.UnaryOp(op=ast.Not(), operand=part):
                condition = self.condition(part)
                return lambda states: ~condition(states)
            case ast.Compare(left=left, ops=ops, comparators=rest) if all(type(op) in COMPARED for op in ops):
                sides = [left, *rest]
                pairs = zip(ops, sides[:-1], sides[1:], strict=True)
                every = [self._comparison(COMPARED[type(op)], one, other) for op, one, other in pairs]
                return lambda states: np.asarray(np.logical_and.reduce([one(states) for one in every]))
        raise ModelError(
            f"{self._where}: {ast.unparse(tree)[:80]!r} is not a comparison; write one such as {self._names[0]} >= 9"
        )

    def _comparison(self, compare: Callable[[Any, Any], Any], one: ast.expr, other: ast.expr) -> Predicate:
        left, right = self._side(one, other), self._side(other, one)
        return lambda states: np.asarray(compare(left(states), right(states)))

    def _side(self, tree: ast.expr, opposite: ast.expr) -> Callable[[Floats], Any]:
        match tree:
            case ast.Name(name) if name in self._names:
                column = self._names.index(name)
                return lambda states: states[:, column]
            case ast.Constant(str(value)) if isinstance(opposite, ast.Name) and value in self._values.get(
                opposite.id, ()
            ):
                number = float(self._values[opposite.id].index(value))
                return lambda _states: number
        try:
            found = ast.literal_eval(tree)
        except ValueError:
            found = None
        if isinstance(found, bool) or not isinstance(found, int | float):
            raise ModelError(
                f"{self._where}: {ast.unparse(tree)[:80]!r} is no number, no feature ({', '.join(self._names)}) and "
                f"no value of the feature it is compared with. Write a condition on features, such as "
                f"{self._names[0]} > LIMIT"
            )
        constant = float(found)
        return lambda states: np.full(len(states), constant)
