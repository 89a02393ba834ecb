"""Formulas whose comparison looks reversed, such as an upper bound on the probability of avoiding something.

A formula cannot say whether a label is good or bad. But `G !x` usually means that x is to be avoided. So an alarm that
fires because x is avoided with a high probability is probably a mistake. If another formula requires that x is avoided,
an alarm that fires because x is reached too rarely is probably a mistake too. Such formulas are legal, so they cause a
note and no error.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final, Literal, NamedTuple

from monitor.logic.printer import print_formula
from monitor.logic.syntax import And, Const, Formula, Goal, Label, Not, Or, Probability, Regret, Until, WorldRef
from monitor.logic.traversal import handover_goal

TURNED: Final[dict[str, Literal["<", "<=", ">=", ">"]]] = {"<": ">", "<=": ">=", ">=": "<=", ">": "<"}


class FormulaUse(NamedTuple):
    """A formula. `fires`: when its alarm fires, while the formula fails or while it holds; None: there is no alarm."""

    name: str
    formula: Formula
    fires: Literal["fails", "holds"] | None


class _Wish(NamedTuple):
    """A goal that a formula wants to be met (`met`) or missed. `high`: the formula wants a large probability."""

    goal: Goal
    met: bool
    high: bool


def reversed_goals(formulas: Iterable[FormulaUse]) -> list[tuple[str, str]]:
    """Return (name, note) for each formula that looks reversed. The note has the formula's meaning and the opposite.

    >>> from monitor.logic.parser import parse
    >>> [(_, note)] = reversed_goals([FormulaUse("w", parse('regret(slow@2, P<=0.8 [ G<=9 !"hit" ])'), "fails")])
    >>> note.partition("; if ")[0]
    'P<=0.8 [ G<=9 !"hit" ] is missed where "hit" is avoided with a probability above 0.8'
    """
    wishes = [(each.name, wish) for each in formulas for wish in _wishes(each)]
    avoided: dict[str, str] = {}
    for name, wish in wishes:
        wanted = _avoided(_path(wish)) if wish.high else _reached(_path(wish))
        for label in wanted:
            avoided.setdefault(label, name)
    notes = []
    for name, wish in wishes:
        if not wish.high and (labels := _avoided(_path(wish))):
            notes.append((name, _avoided_too_surely(wish, labels)))
        elif wish.high and (known := [label for label in _reached(_path(wish)) if label in avoided]):
            notes.append((name, _reached_too_rarely(wish, known, avoided[known[0]])))
    return notes


def _avoided_too_surely(wish: _Wish, labels: list[str]) -> str:
    text, named = _text(wish.goal), _named(labels)
    says = f"{text} is missed where" if wish.met else f"the alarm fires while {text} holds:"
    turned = f"if {named} is to be avoided, {_other(wish)}; if it is to be reached, compare P [ F .. ] instead"
    return f"{says} {named} is avoided with a probability above {_bound(wish):g}; {turned}"


def _bound(wish: _Wish) -> float:
    assert wish.goal.test is not None
    return wish.goal.test.bound


def _reached_too_rarely(wish: _Wish, labels: list[str], other: str) -> str:
    text, named = _text(wish.goal), _named(labels)
    says = f"{text} wants {named} reached" if wish.met else f"the alarm fires while {text} holds"
    return f"{says}, and {other!r} wants {named} avoided. If that is right, {_other(wish)}"


def _other(wish: _Wish) -> str:
    test = wish.goal.test
    assert test is not None
    return f"write P{TURNED[test.comparison]}{test.bound:g}" if wish.met else "write when: fails"


def _wishes(watched: FormulaUse) -> Iterator[_Wish]:
    """Yield the goals of a formula for which it is known whether the formula wants the goal met or missed."""
    formula, nested = watched.formula, handover_goal(watched.formula)
    if isinstance(formula, Regret):
        yield from _wish(formula.goal, met=True)
    elif nested is not None:
        yield from _wish(nested, met=True)
    elif watched.fires == "fails":
        pending: list[Formula] = [formula]
        while pending:
            match pending.pop():
                case And(left, right):
                    pending += right, left
                case Goal() as goal:
                    yield from _wish(goal, met=True)
                case _:
                    pass
    elif watched.fires == "holds" and isinstance(formula, Goal):
        yield from _wish(formula, met=False)


def _wish(goal: Goal, *, met: bool) -> Iterator[_Wish]:
    if goal.test is not None and goal.world.baseline is None and isinstance(goal.measure, Probability):
        yield _Wish(goal, met, (goal.test.comparison in (">=", ">")) == met)


def _path(wish: _Wish) -> Formula:
    assert isinstance(wish.goal.measure, Probability)
    return wish.goal.measure.path


def _avoided(path: Formula) -> list[str]:
    """Return the labels that `G !x` avoids; none if the path formula does not have this form."""
    match path:
        case Not(Until(_, _, Const(True), body)):
            return _either(body)
        case And(left, right) if (one := _avoided(left)) and (other := _avoided(right)):
            return [*one, *other]
        case _:
            return []


def _reached(path: Formula) -> list[str]:
    """Return the labels that `F x` reaches; none if the path formula does not have this form."""
    match path:
        case Until(_, _, Const(True), body):
            return _either(body)
        case _:
            return []


def _either(body: Formula, *, positive: bool = True) -> list[str]:
    """Return the labels of a disjunction of labels; none for any other formula.

    If not `positive`, the negation of `body` must be such a disjunction.
    """
    match body:
        case Label(name) if positive:
            return [name]
        case Not(arg):
            return _either(arg, positive=not positive)
        case Or(left, right) | And(left, right) if isinstance(body, Or) == positive:
            one, other = (_either(part, positive=positive) for part in (left, right))
            return [*one, *other] if one and other else []
        case _:
            return []


def _text(goal: Goal) -> str:
    """Return the text of the goal without its world."""
    return print_formula(replace(goal, world=WorldRef())).removeprefix("nominal@0.")


def _named(labels: list[str]) -> str:
    return " or ".join(f'"{label}"' for label in dict.fromkeys(labels))
