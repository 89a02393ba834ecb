"""A failing case made as small as it gets, and printed as a test."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any, TypeVar

from tests.oracle import syntax as ast
from tests.oracle.setting import Dist, Setting
from tests.truth.generate import Case
from tests.truth.judge import Fault, kind_of, rejudge
from tests.truth.unparse import unparse

ONE = Fraction(1)
Made = TypeVar("Made")


def shrink(case: Case, judged: Callable[[Case], Fault] = rejudge) -> tuple[Case, Fault]:
    """Return the smallest case found that fails in the same way, and its differences.

    Greedy: the first smaller case that still fails is taken, until there is none.
    """
    fault = judged(case)
    kind = kind_of(fault)
    while True:
        for smaller in _smaller(case):
            found = _tried(smaller, judged)
            if found and kind_of(found) == kind:
                case, fault = smaller, found
                break
        else:
            return case, fault


def as_test(case: Case, fault: Fault) -> str:
    """Return a case as a test that can be pasted into a file of this folder."""
    lines = "".join(f"    # {line}\n" for line in "\n".join(fault).splitlines())
    data = json.dumps(case.to_json())
    body = f"    case = Case.from_json(json.loads({data!r}))\n    assert not rejudge(case)\n"
    return f"def test_found() -> None:\n{lines}{body}"


def _tried(case: Case, judged: Callable[[Case], Fault]) -> Fault:
    try:
        return judged(case)
    except Exception:  # noqa: BLE001 (the smaller case is no question any more: a name it uses is gone)
        return []


def _smaller(case: Case) -> Iterator[Case]:
    for number in range(len(case.before)):
        yield replace(case, before=case.before[:number] + case.before[number + 1 :])
    if case.causal_model != "gumbel":
        yield replace(case, causal_model="gumbel")
    parser = ast.Parser()
    formula = parser.parse(case.formula)
    texts = {text for text in map(unparse, _formulas(formula)) if _size(text) <= _size(case.formula)}
    for text in sorted(texts - {case.formula}, key=_size):
        yield replace(case, formula=text)
    for setting in _settings(case.setting):
        yield replace(case, setting=setting)


def _size(text: str) -> int:
    return len(text.replace("nominal", ""))


# Formulas.


def _formulas(node: ast.Formula) -> Iterator[ast.Formula]:
    match node:
        case ast.Ask(quantity):
            yield from (ast.Ask(each) for each in _quantities(quantity))
        case ast.Regret(nominal, under):
            yield ast.Ask(nominal.quantity)
            yield ast.Ask(under.quantity)
            yield from (ast.Regret(nominal, each) for each in _compares(under))
        case ast.Compare(quantity):
            yield ast.Ask(quantity)
            yield from _nodes(node)
        case _:
            yield from _nodes(node)


def _nodes(node: ast.Node) -> Iterator[ast.Node]:
    """Yield smaller formulas in place of one."""
    if not isinstance(node, ast.Const):
        yield ast.Const(value=True)
        yield ast.Const(value=False)
    match node:
        case ast.Compare():
            yield from _compares(node)
        case ast.Not(inner) | ast.Next(inner):
            yield inner
            yield from (replace(node, inner=each) for each in _nodes(inner))
        case ast.Timed(_, first, last, inner):
            yield inner
            yield from (replace(node, first=one, last=two) for one, two in _intervals(first, last))
            yield from (replace(node, inner=each) for each in _nodes(inner))
        case ast.Binary(_, left, right):
            yield from (left, right)
            yield from _sides(node, left, right)
        case ast.Until(_, first, last, left, right):
            yield from (left, right)
            yield from (replace(node, first=one, last=two) for one, two in _intervals(first, last))
            yield from _sides(node, left, right)


def _sides(node: Made, left: ast.Node, right: ast.Node) -> Iterator[Made]:
    made: Any = node
    yield from (replace(made, left=each) for each in _nodes(left))
    yield from (replace(made, right=each) for each in _nodes(right))


def _intervals(first: int, last: int) -> Iterator[tuple[int, int]]:
    if last > first:
        yield first, last - 1
        yield first + 1, last
    if first:
        yield first - 1, last - 1


def _compares(node: ast.Compare) -> Iterator[ast.Compare]:
    yield from (replace(node, quantity=each) for each in _quantities(node.quantity))
    for bound in (Fraction(0), ONE, Fraction(1, 2)):
        if node.bound not in {0, 1, bound}:
            yield replace(node, bound=bound)


def _quantities(quantity: ast.Quantity) -> Iterator[ast.Quantity]:
    yield from (replace(quantity, world=each) for each in _worlds(quantity.world))
    if isinstance(quantity, ast.Reward):
        yield from (replace(quantity, first=a, last=b) for a, b in _intervals(quantity.first, quantity.last))
    else:
        yield from (replace(quantity, body=each) for each in _nodes(quantity.body))


def _worlds(world: ast.World) -> Iterator[ast.World]:
    nominal = ast.Change("nominal", "nominal", None)
    if world.baseline is not None:
        yield replace(world, baseline=None)
        yield replace(world, change=world.baseline, baseline=None)
    if world.change.kind != "nominal":
        yield replace(world, change=nominal)
    if world.change.length is not None:
        yield replace(world, change=replace(world.change, length=None))
    if world.offset:
        yield replace(world, offset=0)
        yield replace(world, offset=world.offset + (1 if world.offset < 0 else -1))


# Settings.


def _settings(setting: Setting) -> Iterator[Setting]:
    if len(setting.path) > 1:
        yield replace(setting, path=setting.path[1:], acted=setting.acted[1:])
        yield replace(setting, path=setting.path[:-1], acted=setting.acted[:-1])
    if setting.acted:
        yield replace(setting, acted=())
    if setting.terminated:
        yield replace(setting, terminated=False)
    if setting.action_names:
        yield replace(setting, action_names=None)
    if setting.path[-1][1] is None:
        yield replace(setting, path=(*setting.path[:-1], (setting.path[-1][0], 0)))
    yield from _without(setting, "models")
    yield from _without(setting, "rewards")
    yield from _without(setting, "transition_rewards")
    yield from _without(setting, "labels")
    for name, table in setting.policies.items():
        if name != "nominal" and name not in setting.acted:
            yield from _without(setting, "policies", (name,))
        for smaller in _tables(table):
            yield replace(setting, policies={**setting.policies, name: smaller})
    for key, row in setting.rows.items():
        yield from (replace(setting, rows={**setting.rows, key: each}) for each in _dists(row))
    for name, where in setting.labels.items():
        yield from (replace(setting, labels={**setting.labels, name: where - {s}}) for s in sorted(where))


def _without(setting: Setting, name: str, keys: tuple[Any, ...] | None = None) -> Iterator[Setting]:
    held = getattr(setting, name)
    for key in held if keys is None else keys:
        changes: dict[str, Any] = {name: {other: each for other, each in held.items() if other != key}}
        yield replace(setting, **changes)


def _dists(dist: Dist) -> Iterator[Dist]:
    """Yield sure outcomes, then equal chances."""
    if len(dist) > 1:
        yield from ({k: ONE} for k in dist)
        even = dict.fromkeys(dist, Fraction(1, len(dist)))
        if even != dist:
            yield even


def _tables(table: tuple[Dist, ...]) -> Iterator[tuple[Dist, ...]]:
    for state, dist in enumerate(table):
        yield from ((*table[:state], each, *table[state + 1 :]) for each in _dists(dist))
        if dist != {0: ONE}:
            yield (*table[:state], {0: ONE}, *table[state + 1 :])
