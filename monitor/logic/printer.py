"""Print formulas as text, such that `parse(print_formula(f)) == f`."""

from __future__ import annotations

from typing import assert_never

from monitor.logic.syntax import (
    NOMINAL,
    And,
    Const,
    Formula,
    Goal,
    InterventionRef,
    Label,
    Not,
    Or,
    Probability,
    Regret,
    Reward,
    Until,
    WorldRef,
)

_OR, _AND, _BINARY, _UNARY = range(4)  # how tightly each level binds; a looser child needs parentheses


def print_formula(formula: Formula) -> str:
    """Return the formula in concrete syntax, with as few parentheses as possible.

    >>> from monitor.logic import parse
    >>> print_formula(parse('nominal@5.P<0.9[G<=10 !"a"]=>@5.P>=0.9[ "b" U[2,3] X "a" ]'))
    '!nominal@5.P<0.9 [ G<=10 !"a" ] | nominal@5.P>=0.9 [ "b" U[2,3] X "a" ]'
    """
    return _show(formula, _OR)


def _show(formula: Formula, level: int) -> str:
    match formula:
        case Const(value):
            return "true" if value else "false"
        case Label(name):
            return f'"{name}"'
        case Not(Until(low, high, Const(True), Not(arg))):
            return f"G{_interval(low, high)} {_show(arg, _UNARY)}"
        case Not(arg):
            return f"!{_show(arg, _UNARY)}"
        case Until(1, 1, Const(True), arg):
            return f"X {_show(arg, _UNARY)}"
        case Until(low, high, Const(True), arg):
            return f"F{_interval(low, high)} {_show(arg, _UNARY)}"
        case Until(low, high, left, right):
            text = f"{_show(left, _UNARY)} U{_interval(low, high)} {_show(right, _BINARY)}"
            return _wrap(text, needed=level > _BINARY)
        case And(left, right):
            return _wrap(f"{_show(left, _AND)} & {_show(right, _BINARY)}", needed=level > _AND)
        case Or(left, right):
            return _wrap(f"{_show(left, _OR)} | {_show(right, _AND)}", needed=level > _OR)
        case Goal():
            return _goal(formula)
        case Regret(world, goal):
            return f"regret({_world(world)}, {_measure(goal)})"
        case _:
            assert_never(formula)


def _wrap(text: str, *, needed: bool) -> str:
    return f"({text})" if needed else text


def _goal(goal: Goal) -> str:
    return f"{_world(goal.world)}.{_measure(goal)}"


def _measure(goal: Goal) -> str:
    test = "=?" if goal.test is None else f"{goal.test.comparison}{_number(goal.test.bound)}"
    match goal.measure:
        case Probability(path):
            return f"P{test} [ {_show(path, _OR)} ]"
        case Reward(low, high):
            return f"R{test} [ C{_interval(low, high)} ]"
        case _:
            assert_never(goal.measure)


def _world(world: WorldRef) -> str:
    change = print_change(world.change)
    if world.baseline is not None:
        change = f"delta({change},{print_change(world.baseline)})"
    return f"{change}@{world.offset}"


def print_change(change: InterventionRef) -> str:
    """Return an intervention in concrete syntax, such as `fallback[3]`, `do(brake)`, `model:icy` or `best[<=2]`."""
    steps = "" if change.steps is None else f"[{change.steps}]"
    match change.kind:
        case "nominal":
            return NOMINAL.kind
        case "policy":
            return change.name + steps
        case "action":
            return f"do({change.name}){steps}"
        case "model":
            return f"model:{change.name}"
        case "best" | "optimal":
            return change.name + (steps if change.limit is None else f"[<={change.limit}]")
        case _:
            assert_never(change.kind)


def _interval(low: int, high: int) -> str:
    if low == 0:
        return f"<={high}"
    return f"={low}" if low == high else f"[{low},{high}]"


def _number(bound: float) -> str:
    return f"{bound:g}" if float(f"{bound:g}") == bound else repr(bound)
