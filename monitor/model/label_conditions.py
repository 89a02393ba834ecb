"""Labels from conditions such as `fell: state == 36`, which are parsed, never executed as code.

A condition compares the `state` (its index), its `name`, `value[n]` (the n-th variable of its valuation) and
`feature[n]` (the n-th number of its observation) with numbers, text and lists. `and`, `or` and `not` join comparisons.
A caller may add names.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from monitor.arrays import Bools
from monitor.errors import ModelError, brief
from monitor.model.annotations import checked_labels
from monitor.model.mdp import MDP

LONGEST: Final = 4096
"""Longest condition, in characters."""

COMPARISONS: Final[Mapping[type[ast.cmpop], Callable[[Any, Any], bool]]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda one, several: one in several,
    ast.NotIn: lambda one, several: one not in several,
}


def labelled(
    model: MDP, conditions: Sequence[str], columns: Mapping[str, Sequence[Any]] | None = None, *, empty: bool = False
) -> MDP:
    """Return the model with one more label for each `NAME: CONDITION`, on the states in which the condition holds.

    `columns`: further names for conditions, each with a value for each state; a column of Booleans is a condition
    itself. `empty`: accept a label that holds in no state.

    Raises ModelError if a text does not have this form, if the model lacks something that the condition refers to, or
    if a label holds nowhere or exists already.

    >>> coin = MDP.from_transitions(states=3, actions=1, transitions=[(s, 0, s, 1.0) for s in range(3)])
    >>> labelled(coin, ["late: state >= 1 and not state == 1"]).labels["late"]
    array([False, False,  True])
    """
    found = dict(model.labels)
    for text in conditions:
        name, colon, condition = text.partition(":")
        name = name.strip()
        if not (colon and name and condition.strip()):
            raise ModelError(f"label {text!r}: write NAME: CONDITION, such as 'fell: state == 36'")
        if name in found:
            raise ModelError(f"label {name!r}: the model has it already")
        found[name] = mask = _holds(_Table(model, columns or {}), condition, f"label {name!r}")
        if not (mask.any() or empty):
            raise ModelError(f"label {name!r}: {condition.strip()} holds in no state")
    return replace(model, labels=checked_labels(found, model.states))


@dataclass(frozen=True)
class _Table:
    """Data for conditions: the model, and further columns with a value for each state."""

    model: MDP
    columns: Mapping[str, Sequence[Any]]


def parsed(condition: str, where: str) -> ast.expr:
    """Return the syntax tree of a condition. Raises ModelError, which begins with `where`."""
    if len(condition) > LONGEST:
        raise ModelError(f"{where}: a condition has at most {LONGEST:,} characters")
    try:
        return ast.parse(condition.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise _no_condition(condition, where, error) from error


def _no_condition(condition: str, where: str, error: Exception) -> ModelError:
    return ModelError(f"{where}: {condition.strip()[:80]!r} is not a condition ({brief(error)})")


def _holds(table: _Table, condition: str, where: str) -> Bools:
    tree = parsed(condition, where)
    try:
        return _mask(table, tree, where)
    except (ValueError, RecursionError, MemoryError) as error:
        raise _no_condition(condition, where, error) from error
    except TypeError as error:
        raise ModelError(f"{where}: {condition.strip()[:80]!r} compares what cannot be compared ({error})") from error


def _mask(table: _Table, tree: ast.expr, where: str) -> Bools:
    match tree:
        case ast.Name(name) if name in table.columns and all(isinstance(x, bool) for x in table.columns[name]):
            return np.array(table.columns[name], dtype=np.bool_)
        case ast.BoolOp(op=ast.And(), values=parts):
            return _joined(np.logical_and, [_mask(table, part, where) for part in parts])
        case ast.BoolOp(op=ast.Or(), values=parts):
            return _joined(np.logical_or, [_mask(table, part, where) for part in parts])
        case ast.UnaryOp(op=ast.Not(), operand=part):
            return ~_mask(table, part, where)
        case ast.Compare(left=left, ops=ops, comparators=rest):
            sides = [_values(table, side, where) for side in (left, *rest)]
            every = [
                np.fromiter(map(COMPARISONS[type(op)], one, other), np.bool_, table.model.states)
                for op, one, other in zip(ops, sides[:-1], sides[1:], strict=True)
                if type(op) in COMPARISONS
            ]
            if len(every) == len(ops):
                return _joined(np.logical_and, every)
    raise ModelError(f"{where}: {ast.unparse(tree)[:80]!r} is not a comparison; write one such as state == 36")


def _joined(how: np.ufunc, masks: list[Bools]) -> Bools:
    joined: Bools = how.reduce(masks)
    return joined


def _values(table: _Table, tree: ast.expr, where: str) -> Sequence[Any]:
    """Return the value of one side of a comparison in each state."""
    model = table.model
    match tree:
        case ast.Name(name) if name in table.columns:
            return table.columns[name]
        case ast.Name("state"):
            return range(model.states)
        case ast.Name("name"):
            return model.state_names or _lacks(where, "no names of states")
        case ast.Subscript(ast.Name("value"), ast.Constant(int(n))):
            if not (model.valuations and 0 <= n < len(model.valuations[0])):
                _lacks(where, f"no variable {n}")
            return [valuation[n] for valuation in model.valuations]
        case ast.Subscript(ast.Name("feature"), ast.Constant(int(n))):
            if model.observations is None or not 0 <= n < model.observations.shape[1]:
                return _lacks(where, f"no feature {n}")
            return [float(number) for number in model.observations[:, n]]
        case _:
            return [ast.literal_eval(tree)] * model.states


def _lacks(where: str, what: str) -> Sequence[Any]:
    raise ModelError(f"{where}: the model has {what}")
