"""Conditions of labels on columns, such as `death: done and reward < 0`. They are parsed, but never executed as code.

A condition compares columns with numbers, texts and lists, with `+ - * / abs()` on numbers, and joins comparisons with
`and`, `or`, `not`. A column is written by its name (`x`, `next.reward`, `state[0]`), or as `column('odd name')`. A
column of Booleans is itself a condition.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np

from monitor.arrays import AnyArray, Bools
from monitor.authoring.learning.batch import beside
from monitor.errors import ModelError, brief
from monitor.model.label_conditions import COMPARISONS, LONGEST

ARITHMETIC: Final[Mapping[type[ast.operator], Callable[[Any, Any], Any]]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
}  # fmt: skip


@dataclass(frozen=True)
class Condition:
    """Condition of one label.

    Attributes:
        name: name of the label.
        text: the condition.
        columns: names of the columns that the condition uses.
    """

    name: str
    text: str
    columns: tuple[str, ...]

    def holds(self, columns: Mapping[str, AnyArray], rows: int, *, otherwise: bool = False) -> Bools:
        """Return where the condition holds, [rows] bool.

        Raises ModelError if it compares values that cannot be compared. A comparison is unknown if its column is not in
        `columns` or its value is missing. Missing values are NaN, and empty texts unless they are compared with ''.
        With `otherwise` False, the result is where the condition surely holds; with True, where it may hold (Kleene's
        three-valued logic).
        """
        try:
            with np.errstate(all="ignore"):
                return _mask(ast.parse(self.text, mode="eval").body, _Columns(columns, rows, self.name), otherwise)
        except (TypeError, ValueError) as error:
            raise ModelError(f"label {self.name!r}: {self.text[:80]!r} cannot be evaluated ({error})") from error

    def edges(self) -> dict[str, set[float]]:
        """Return column -> edges of bins within which every comparison of this column with a number is constant.

        A bin includes its lower edge: `x < 3` has the edge 3, and `x > 3` has the next number above 3. `x`, `-x` and
        `abs(x)` have edges. Expressions of several columns or with other operations have none.

        >>> parsed("cold: room < 17.5 and flow >= 2").edges()
        {'room': {17.5}, 'flow': {2.0}}
        """
        found: dict[str, set[float]] = {}
        for tree in ast.walk(ast.parse(self.text, mode="eval")):
            if isinstance(tree, ast.Compare):
                sides = [tree.left, *tree.comparators]
                for op, (one, other) in zip(tree.ops, pairwise(sides), strict=True):
                    for column, edge in _edges(op, one, other, self.name):
                        found.setdefault(column, set()).add(edge)
        return found


def edges_of_all(conditions: Iterable[Condition]) -> dict[str, set[float]]:
    """Return column -> edges of all conditions."""
    found: dict[str, set[float]] = {}
    for condition in conditions:
        for column, edges in condition.edges().items():
            found.setdefault(column, set()).update(edges)
    return found


MIRRORED: Final[Mapping[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.Gt, ast.Gt: ast.Lt, ast.LtE: ast.GtE, ast.GtE: ast.LtE,
}  # fmt: skip


def _edges(op: ast.cmpop, one: ast.expr, other: ast.expr, name: str) -> Iterator[tuple[str, float]]:
    """Yield the column and the edge for each edge of one comparison."""
    kind = type(op)
    if kind in (ast.In, ast.NotIn):
        limits = [each for each in _literal_list(other, name) if type(each) in (int, float)]
    elif (limits := _constant(other, name)) == [] and (limits := _constant(one, name)):
        one, kind = other, MIRRORED.get(kind, kind)
    column, signs = _column_alone(one, name)
    for sign in signs:
        for limit in (sign * float(each) for each in limits if np.isfinite(each)):
            included = (kind in (ast.Lt, ast.GtE)) == (sign > 0)  # then the upper bin contains the limit itself
            if included or kind not in MIRRORED:
                yield column, limit
            if not included or kind not in MIRRORED:
                yield column, float(np.nextafter(limit, np.inf))


def _constant(tree: ast.expr, name: str) -> list[float]:
    """Return the value of an operand without columns, in a list; an empty list for any other operand."""
    found: list[str] = []
    _operand(tree, found, name)
    if found or any(isinstance(each, ast.Constant) and isinstance(each.value, bool | str) for each in ast.walk(tree)):
        return []
    with np.errstate(all="ignore"):
        return [float(_value(tree, {}, name))]


def _column_alone(tree: ast.expr, name: str) -> tuple[str, tuple[int, ...]]:
    """Return the column `x` in `x`, `-x` or `abs(x)`, and each factor (1, -1) of `x` there; else no factors."""
    match tree:
        case ast.UnaryOp(op=ast.USub(), operand=part):
            column, signs = _column_alone(part, name)
            return column, tuple(-sign for sign in signs)
        case ast.Call(func=ast.Name("abs"), args=[part]):
            column, signs = _column_alone(part, name)
            return column, (1, -1) if signs else ()
        case ast.Constant() | ast.BinOp() | ast.UnaryOp():
            return "", ()
        case _:
            return _column(tree, name), (1,)


def parsed(text: str) -> Condition:
    """Return the condition in a text `NAME: CONDITION`. Raises ModelError for any other text.

    >>> parsed("goal: x > 3 and terminated").columns
    ('x', 'terminated')
    """
    name, colon, condition = (part.strip() for part in text.partition(":"))
    if not (colon and name and condition):
        raise ModelError(f"label {text[:80]!r}: write NAME: CONDITION, such as 'death: done and reward < 0'")
    if len(condition) > LONGEST:
        raise ModelError(f"label {name!r}: a condition has at most {LONGEST:,} characters")
    try:
        tree = ast.parse(condition, mode="eval").body
        found: list[str] = []
        _check(tree, found, name)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ModelError(f"label {name!r}: {condition[:80]!r} is not a condition ({brief(error)})") from error
    return Condition(name, condition, tuple(dict.fromkeys(found)))


def marker_condition(names: Iterable[str], name: str) -> Condition | None:
    """Return `name` as a condition on the columns `names`; None if it is no condition, such as a column's name.

    >>> marker_condition(["end"], "end in ['crash']").columns, marker_condition(["end"], "end")
    (('end',), None)
    """
    known = {*names}
    if name in known:
        return None
    try:
        condition = parsed(f"marker: {name}")
    except ModelError:
        return None
    return condition if condition.columns and known.issuperset(condition.columns) else None


def _check(tree: ast.expr, found: list[str], name: str) -> None:
    """Add the columns of a condition to `found`. Raises ModelError if the tree is no condition."""
    match tree:
        case ast.BoolOp(values=parts):
            for part in parts:
                _check(part, found, name)
        case ast.UnaryOp(op=ast.Not(), operand=part):
            _check(part, found, name)
        case ast.Compare(left=left, ops=ops, comparators=rest):
            _operand(left, found, name)
            for op, side in zip(ops, rest, strict=True):
                if isinstance(op, ast.In | ast.NotIn):
                    _literal_list(side, name)
                elif type(op) in COMPARISONS:
                    _operand(side, found, name)
                else:
                    raise _unknown(tree, name)
        case _:
            found.append(_column(tree, name))


def _operand(tree: ast.expr, found: list[str], name: str) -> None:
    match tree:
        case ast.Constant(value=bool() | int() | float() | str()):
            return
        case ast.BinOp(left=left, op=op, right=right) if type(op) in ARITHMETIC:
            _operand(left, found, name)
            _operand(right, found, name)
        case ast.UnaryOp(op=ast.USub(), operand=part):
            _operand(part, found, name)
        case ast.Call(func=ast.Name("abs"), args=[part], keywords=[]):
            _operand(part, found, name)
        case _:
            found.append(_column(tree, name))


def _column(tree: ast.expr, name: str) -> str:
    match tree:
        case ast.Call(func=ast.Name("column"), args=[ast.Constant(value=str(text))], keywords=[]):
            return text
        case ast.Name() | ast.Attribute() | ast.Subscript(slice=ast.Constant(value=int())):
            return ast.unparse(tree)
        case _:
            raise _unknown(tree, name)


def _literal_list(tree: ast.expr, name: str) -> list[Any]:
    try:
        value = ast.literal_eval(tree)
    except ValueError as error:
        raise _unknown(tree, name) from error
    if not isinstance(value, list | tuple | set):
        raise _unknown(tree, name)
    return list(value)


def _unknown(tree: ast.expr, name: str) -> ModelError:
    return ModelError(
        f"label {name!r}: {ast.unparse(tree)[:80]!r} is neither a comparison nor a column; write one such as x > 3"
    )


@dataclass(frozen=True)
class _Columns:
    """Columns on which the condition of a label is evaluated, and their number of rows. `name`: name of the label."""

    values: Mapping[str, AnyArray]
    rows: int
    name: str

    def lacks(self, *trees: ast.expr) -> bool:
        """Return whether any column of these operands is missing."""
        found: list[str] = []
        for tree in trees:
            _operand(tree, found, self.name)
        return any(column not in self.values for column in found)


def _mask(tree: ast.expr, columns: _Columns, otherwise: bool) -> Bools:  # noqa: FBT001 - what an unknown part counts as
    match tree:
        case ast.BoolOp(op=op, values=parts):
            masks = [_mask(part, columns, otherwise) for part in parts]
            both: Bools = (np.logical_and if isinstance(op, ast.And) else np.logical_or).reduce(masks)
            return both
        case ast.UnaryOp(op=ast.Not(), operand=part):
            return ~_mask(part, columns, not otherwise)
        case ast.Compare(left=left, ops=ops, comparators=rest):
            sides = [left, *rest]
            pairs = zip(ops, sides, rest, strict=False)
            every = [
                np.broadcast_to(_compared(op, one, other, columns, otherwise), (columns.rows,))
                for op, one, other in pairs
            ]
            return np.asarray(np.logical_and.reduce(every))
        case _ if columns.lacks(tree):
            return np.full(columns.rows, otherwise)
        case _:
            values = columns.values[_column(tree, columns.name)]
            return np.asarray(np.where(_lost(values), otherwise, _truth(values, columns.name)))


def _compared(op: ast.cmpop, one: ast.expr, other: ast.expr, columns: _Columns, otherwise: bool) -> AnyArray:  # noqa: FBT001
    several = isinstance(op, ast.In | ast.NotIn)
    if columns.lacks(one, *([] if several else [other])):
        return np.full(columns.rows, otherwise)
    left = _value(one, columns.values, columns.name)
    rights = _literal_list(other, columns.name) if several else [_value(other, columns.values, columns.name)]
    for right in rights:
        left = beside(left, np.asarray(right)) if isinstance(left, np.ndarray) else left
    rights = [beside(right, np.asarray(left)) if isinstance(right, np.ndarray) else right for right in rights]
    if several:
        found = np.logical_or.reduce([_pair(operator.eq, left, each) for each in rights] or [np.zeros(1, np.bool_)])
        truth, unknown = ~found if isinstance(op, ast.NotIn) else found, _lost(left, rights)
    else:
        truth = _pair(COMPARISONS[type(op)], left, rights[0])
        unknown = np.logical_or(_lost(left, rights), _lost(rights[0], [left]))
    return np.where(unknown, otherwise, truth)


def _lost(side: Any, others: Sequence[Any] = ()) -> Bools:  # noqa: ANN401 - array or literal
    """Return which values are missing. An empty text is not missing if it is compared with the literal ''."""
    values = np.asarray(side)
    if values.dtype.kind == "U" and not isinstance(side, str) and not any(isinstance(o, str) and not o for o in others):
        return np.asarray(values == "")
    return np.isnan(values) if values.dtype.kind == "f" else np.zeros(values.shape, np.bool_)


def _pair(compare: Callable[[Any, Any], Any], left: Any, right: Any) -> AnyArray:  # noqa: ANN401 - arrays or literals
    text = [np.asarray(side).dtype.kind == "U" for side in (left, right)]
    if text[0] != text[1]:
        raise TypeError("text is compared with a number; write text in quotes and numbers without")
    return np.asarray(compare(left, right))


def _value(tree: ast.expr, columns: Mapping[str, AnyArray], name: str) -> Any:  # noqa: ANN401 - array or literal
    match tree:
        case ast.Constant(value=value):
            return value
        case ast.BinOp(left=left, op=op, right=right):
            return ARITHMETIC[type(op)](_number(left, columns, name), _number(right, columns, name))
        case ast.UnaryOp(operand=part):
            return -_number(part, columns, name)
        case ast.Call(func=ast.Name("abs"), args=[part]):
            return abs(_number(part, columns, name))
        case _:
            return columns[_column(tree, name)]


def _number(tree: ast.expr, columns: Mapping[str, AnyArray], name: str) -> Any:  # noqa: ANN401 - array or number
    value = _value(tree, columns, name)
    if np.asarray(value).dtype.kind == "U":
        raise TypeError(f"{ast.unparse(tree)} is text")
    return np.asarray(value, np.float64)


def _truth(values: AnyArray, name: str) -> Bools:
    if values.dtype.kind == "b":
        return values.astype(np.bool_)
    if values.dtype.kind == "U" or not bool(np.isin(values[~np.isnan(values.astype(np.float64))], (0, 1)).all()):
        raise TypeError(f"a column of label {name!r} is neither true nor false; compare it, such as x > 3")
    return np.asarray(values == 1)
