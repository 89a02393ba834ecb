"""Whether a formula's names exist: labels, policies, actions, models. Errors show where, and the likeliest meaning."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from difflib import get_close_matches
from typing import assert_never

import numpy as np

from monitor.errors import FormulaError, InputError
from monitor.logic.parser import error_at
from monitor.logic.printer import print_formula
from monitor.logic.syntax import (
    NOMINAL,
    And,
    Change,
    Const,
    Formula,
    Goal,
    Label,
    Not,
    Or,
    Probability,
    Regret,
    Reward,
    Until,
    WorldRef,
)
from monitor.model import MDP, encode_action

__all__ = ["asks_back", "goals", "largest_offset", "looks_back", "nested_goals", "quantity_goals", "validate"]


def validate(
    formula: Formula,
    model: MDP,
    policies: Collection[str],
    text: str,
    models: Mapping[str, MDP] | None = None,
) -> None:
    """Raise `FormulaError` at the first name the model and policies do not have."""
    _Names(model, policies, models or {}, text).visit(formula)


def largest_offset(formula: Formula) -> int:
    """The largest |t| of the worlds a formula asks about, outside all brackets; 0 if it asks about none."""
    return max((abs(offset) for _, _, offset in goals(formula)), default=0)


def goals(formula: Formula) -> Iterator[tuple[Goal, tuple[Change, ...], int]]:
    """Every quantity outside brackets, with the changes it is asked under, and at which offset."""
    match formula:
        case Goal(WorldRef(change, baseline, offset), _, _):
            yield formula, (change,) if baseline is None else (change, baseline), offset
        case Regret(WorldRef(change, _, offset), goal):
            yield goal, (NOMINAL, change), offset
        case Not(arg):
            yield from goals(arg)
        case And(left, right) | Or(left, right):
            yield from goals(left)
            yield from goals(right)
        case _:
            return


def quantity_goals(formula: Formula) -> list[Goal]:
    """Return the goal of each quantity of a verdict, in its order: of `regret` nominal first, then the alternative."""
    if isinstance(formula, Regret):
        world, goal = formula.world, formula.goal
        worlds = [WorldRef(change, None, world.offset) for change in (NOMINAL, world.change)]
        return [Goal(world, goal.measure, goal.test) for world in worlds]
    return list({print_formula(goal): goal for goal, _, _ in goals(formula)}.values())


def looks_back(goal: Goal) -> bool:
    """Whether a nested goal depends on more than the state and action just taken: it, or one nested in it, is at @t."""
    match goal.measure:
        case Probability():
            return goal.world.offset != 0 or asks_back(goal.measure)
        case Reward():
            return goal.world.offset != 0
        case _:
            assert_never(goal.measure)


def asks_back(measure: Probability | Reward) -> bool:
    """Whether a nested goal of a measure looks back."""
    return isinstance(measure, Probability) and any(looks_back(goal) for goal in nested_goals(measure.path))


def nested_goals(path: Formula) -> Iterator[Goal]:
    """The goals nested directly in a path formula."""
    match path:
        case Goal():
            yield path
        case Not(arg):
            yield from nested_goals(arg)
        case And(left, right) | Or(left, right) | Until(_, _, left, right):
            yield from nested_goals(left)
            yield from nested_goals(right)
        case _:
            return


class _Names:
    def __init__(self, model: MDP, policies: Collection[str], models: Mapping[str, MDP], text: str) -> None:
        self.model, self.policies, self.models, self.text = model, policies, models, text

    def visit(self, formula: Formula) -> None:
        match formula:
            case Const():
                pass
            case Label(name, at):
                self._known(name, self.model.labels, "label", at)
            case Not(arg):
                self.visit(arg)
            case And(left, right) | Or(left, right) | Until(_, _, left, right):
                self.visit(left)
                self.visit(right)
            case Goal(world, measure, _):
                self._world(world)
                if isinstance(measure, Probability):
                    self.visit(measure.path)
            case Regret(world, goal):
                self._world(world)
                self.visit(goal)
            case _:
                assert_never(formula)

    def _world(self, world: WorldRef) -> None:
        for change in (world.change, world.baseline):
            if change is not None:
                self._change(change)

    def _change(self, change: Change) -> None:
        match change.kind:
            case "nominal":
                pass
            case "policy":
                self._known(change.name, [p for p in self.policies if p != "nominal"], "policy", change.at)
            case "model":
                self._known(change.name, self.models, "model", change.at)
            case "action":
                self._action(change)
            case _:
                assert_never(change.kind)

    def _action(self, change: Change) -> None:
        try:
            action = encode_action(self.model, int(change.name) if change.name.isdigit() else change.name)
        except InputError:
            names = self.model.action_names or [str(a) for a in range(self.model.actions)]
            raise self._unknown(change.name, names, "action", change.at) from None
        without = np.flatnonzero(~self.model.availability[:, action])
        if len(without):
            problem = (
                f"action {change.name} cannot be held: it is unavailable in {len(without)} states, first {without[0]}"
            )
            raise self._error(problem, change.at)

    def _known(self, name: str, known: Collection[str], what: str, at: int) -> None:
        if name not in known:
            raise self._unknown(name, known, what, at)

    def _unknown(self, name: str, known: Collection[str], what: str, at: int) -> FormulaError:
        close = get_close_matches(name, list(known), n=1)
        if close:
            hint = f"did you mean {close[0]!r}?"
        else:
            hint = f"there is {', '.join(sorted(known)[:10])}" if known else f"there is no {what}"
        return self._error(f"unknown {what} {name!r}; {hint}", at)

    def _error(self, problem: str, at: int) -> FormulaError:
        return error_at(problem, self.text, at)
