"""Progression: the residual of a path formula after one more state, by the expansion laws.

    left U[a,b] right  =  left  and next (left U[a-1,b-1] right)                    for a > 0
    left U[0,b] right  =  right or  (left and next (left U[0,b-1] right))           for b > 0
    left U[0,0] right  =  right
    C[a,b]             =  (the reward of this step, if a = 0)  and  C[max(a-1,0), b-1] afterwards

The rest of the language is `!`, `&`, `|`, labels and nested goals. In the current state, labels and nested goals are
constants. Constants are folded, nested conjunctions (and disjunctions) become one set, and negations are pushed
inwards.

Source: Kazemi & Paoletti, Definition 3 (until), bounded; `monitor.logic.syntax` defines the derived operators.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import assert_never

from monitor.logic.syntax import And, Const, Formula, Goal, Label, Not, Or, Probability, Regret, Reward, Temporal, Until

TRUE, FALSE = Const(value=True), Const(value=False)


@dataclass(frozen=True, slots=True)
class AllOf:
    """Conjunction of two or more parts."""

    parts: frozenset[PathResidual]


@dataclass(frozen=True, slots=True)
class AnyOf:
    """Disjunction of two or more parts."""

    parts: frozenset[PathResidual]


PathResidual = Formula | AllOf | AnyOf
Residual = PathResidual | Reward


def collect(reward: Reward) -> Residual:
    """Return the reward formula that remains after this step."""
    return Reward(max(reward.low - 1, 0), reward.high - 1) if reward.high > 0 else FALSE


def expand(formula: PathResidual, truth: Callable[[Label | Goal], bool]) -> PathResidual:
    """Return the residual from the next state on; `truth`: whether a label or goal holds in the current state."""
    match formula:
        case Const():
            return formula
        case Label() | Goal():
            return TRUE if truth(formula) else FALSE
        case Not(arg):
            return _negation(expand(arg, truth))
        case And() | AllOf():
            return _all(expand(part, truth) for part in _parts(formula))
        case Or() | AnyOf():
            return _any(expand(part, truth) for part in _parts(formula))
        case Until(low, high, left, right) if low > 0:
            return _all((expand(left, truth), Until(low - 1, high - 1, left, right)))
        case Until(_, high, left, right):
            now = expand(right, truth)
            if now == TRUE or high == 0:
                return now
            return _any((now, _all((expand(left, truth), Until(0, high - 1, left, right)))))
        case Regret():
            raise AssertionError("the parser keeps regret out of paths")
        case _:
            assert_never(formula)


def _all(parts: Iterable[PathResidual]) -> PathResidual:
    """Return the conjunction of parts; stop at the first `false`."""
    kept: set[PathResidual] = set()
    for part in parts:
        if part == FALSE:
            return FALSE
        kept |= part.parts if isinstance(part, AllOf) else {part}
    kept.discard(TRUE)
    return AllOf(frozenset(kept)) if len(kept) > 1 else next(iter(kept), TRUE)


def _any(parts: Iterable[PathResidual]) -> PathResidual:
    """Return the disjunction of parts; stop at the first `true`."""
    return _negation(_all(map(_negation, parts)))


def _negation(formula: PathResidual) -> PathResidual:
    match formula:
        case Const(value):
            return FALSE if value else TRUE
        case Not(arg):
            return arg
        case AllOf(parts):
            return AnyOf(frozenset(map(_negation, parts)))
        case AnyOf(parts):
            return AllOf(frozenset(map(_negation, parts)))
        case _:
            return Not(formula)


def _parts(residual: Residual) -> Iterator[PathResidual]:
    match residual:
        case Not(arg):
            yield arg
        case And(left, right) | Or(left, right) | Temporal(_, _, left, right):
            yield left
            yield right
        case AllOf(parts) | AnyOf(parts):
            yield from parts
        case _:
            pass


def nested(residual: Residual) -> set[Goal]:
    """Return the goals in a residual, without goals nested in other goals."""
    return {residual} if isinstance(residual, Goal) else {goal for part in _parts(residual) for goal in nested(part)}


def present(residual: Residual) -> set[Goal]:
    """Return the goals whose truth in the current state may matter."""
    match residual:
        case Goal():
            return {residual}
        case Until(low, _, left, _) if low > 0:
            return present(left)
        case _:
            return {goal for part in _parts(residual) for goal in present(part)}


def labels(residual: Residual) -> set[str]:
    """Return the names of the labels in a residual, without labels inside goals."""
    if isinstance(residual, Label):
        return {residual.name}
    return set() if isinstance(residual, Goal) else {name for part in _parts(residual) for name in labels(part)}


def looks_back(residual: Residual) -> bool:
    """Return whether any goal, at any depth, has an offset other than 0."""
    return any(
        goal.world.offset != 0 or (isinstance(goal.measure, Probability) and looks_back(goal.measure.path))
        for goal in nested(residual)
    )


def window(residual: Residual) -> int | None:
    """Return how many steps before the current step goals in a residual need; None if they need all steps."""
    offsets = [goal.world.offset for goal in nested(residual)]
    return None if any(offset < 0 for offset in offsets) else max(offsets, default=0)
