"""What is still owed of a path formula after one more state: the expansion laws, and nothing else.

    left U[a,b] right  =  left  and next (left U[a-1,b-1] right)                    for a > 0
    left U[0,b] right  =  right or  (left and next (left U[0,b-1] right))           for b > 0
    left U[0,0] right  =  right
    C[a,b]             =  (the reward of this step, if a = 0)  and  C[max(a-1,0), b-1] afterwards

The rest of the language is `!`, `&`, `|`, labels and nested goals; the truth of the last two in the present state is a
constant. Constants are folded, nested conjunctions (and disjunctions) become one set, and negations move inwards.

Kazemi & Paoletti, Definition 3 (until), bounded; `monitor.logic.syntax` says what the sugar stands for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import assert_never

from monitor.logic.syntax import And, Const, Formula, Goal, Label, Not, Or, Probability, Regret, Reward, Until

__all__ = ["TRUE", "Owed", "Residual", "collect", "expand", "looks_back", "nested", "present", "window"]

TRUE, FALSE = Const(value=True), Const(value=False)


@dataclass(frozen=True, slots=True)
class AllOf:
    """Conjunction of two or more."""

    parts: frozenset[Owed]


@dataclass(frozen=True, slots=True)
class AnyOf:
    """Disjunction of two or more."""

    parts: frozenset[Owed]


Owed = Formula | AllOf | AnyOf
Residual = Owed | Reward


def collect(reward: Reward) -> Residual:
    """Return what is still to be collected after this step."""
    return Reward(max(reward.low - 1, 0), reward.high - 1) if reward.high > 0 else FALSE


def expand(owed: Owed, truth: Callable[[Label | Goal], bool]) -> Owed:
    """Return what is owed from the next state on; `truth` says which labels and goals hold in the present one."""
    match owed:
        case Const():
            return owed
        case Label() | Goal():
            return TRUE if truth(owed) else FALSE
        case Not(arg):
            return _opposite(expand(arg, truth))
        case And() | AllOf():
            return _all(expand(part, truth) for part in _parts(owed))
        case Or() | AnyOf():
            return _any(expand(part, truth) for part in _parts(owed))
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
            assert_never(owed)


def _all(parts: Iterable[Owed]) -> Owed:
    """Conjunction; reads no further than the first `false`."""
    kept: set[Owed] = set()
    for part in parts:
        if part == FALSE:
            return FALSE
        kept |= part.parts if isinstance(part, AllOf) else {part}
    kept.discard(TRUE)
    return AllOf(frozenset(kept)) if len(kept) > 1 else next(iter(kept), TRUE)


def _any(parts: Iterable[Owed]) -> Owed:
    """Disjunction; reads no further than the first `true`."""
    return _opposite(_all(map(_opposite, parts)))


def _opposite(owed: Owed) -> Owed:
    match owed:
        case Const(value):
            return FALSE if value else TRUE
        case Not(arg):
            return arg
        case AllOf(parts):
            return AnyOf(frozenset(map(_opposite, parts)))
        case AnyOf(parts):
            return AllOf(frozenset(map(_opposite, parts)))
        case _:
            return Not(owed)


def _parts(owed: Residual) -> Iterator[Owed]:
    match owed:
        case Not(arg):
            yield arg
        case And(left, right) | Or(left, right) | Until(_, _, left, right):
            yield left
            yield right
        case AllOf(parts) | AnyOf(parts):
            yield from parts
        case _:
            pass


def nested(owed: Residual) -> set[Goal]:
    """Return the goals a residual holds, without those inside them."""
    return {owed} if isinstance(owed, Goal) else {goal for part in _parts(owed) for goal in nested(part)}


def present(owed: Residual) -> set[Goal]:
    """Return the goals whose truth in the present state may matter."""
    match owed:
        case Goal():
            return {owed}
        case Until(low, _, left, _) if low > 0:
            return present(left)
        case _:
            return {goal for part in _parts(owed) for goal in present(part)}


def looks_back(owed: Residual) -> bool:
    """Whether any goal, however deep inside, asks about an earlier point of a path."""
    return any(
        goal.world.offset != 0 or (isinstance(goal.measure, Probability) and looks_back(goal.measure.path))
        for goal in nested(owed)
    )


def window(owed: Residual) -> int | None:
    """Return how many steps before the present one its goals need; None: all since the start."""
    offsets = [goal.world.offset for goal in nested(owed)]
    return None if any(offset < 0 for offset in offsets) else max(offsets, default=0)
