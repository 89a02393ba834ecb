"""Functions that find the nodes, goals and offsets of a formula.

*Outside all brackets* means outside the path formula of every `P[..]`. Goals there refer to the observed path.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from monitor.logic.syntax import (
    NOMINAL,
    Const,
    Formula,
    Goal,
    InterventionRef,
    Measure,
    Not,
    Probability,
    Regret,
    Reward,
    Test,
    Until,
    WorldRef,
)


def children(formula: Formula) -> Iterator[Formula]:
    """Yield the direct subformulas, left to right; constants, labels and reward goals have none."""
    if isinstance(formula, Goal):
        if isinstance(formula.measure, Probability):
            yield formula.measure.path
        return
    yield from (part for name in formula.__match_args__ if isinstance(part := getattr(formula, name), Formula))


def subformulas(formula: Formula, *, nested: bool = True) -> Iterator[Formula]:
    """Yield a formula and all its subformulas, parents first, left to right.

    `nested`: if False, goals and `regret` are yielded but not entered.
    """
    stack = [formula]
    while stack:
        node = stack.pop()
        yield node
        if nested or not isinstance(node, Goal | Regret):
            stack += reversed(tuple(children(node)))


def goals(formula: Formula) -> Iterator[tuple[Goal, tuple[InterventionRef, ...], int]]:
    """Yield every goal outside all brackets, with its interventions (also its baseline) and its offset."""
    for node in subformulas(formula, nested=False):
        match node:
            case Goal(world):
                yield node, (world.change,) if world.baseline is None else (world.change, world.baseline), world.offset
            case Regret(world, goal):
                yield goal, (NOMINAL, world.change), world.offset
            case _:
                pass


def regret_goals(formula: Regret) -> tuple[Goal, Goal]:
    """Return the two goals that `regret` compares: under nominal, and under the alternative."""
    world, goal = formula.world, formula.goal
    nominal, alternative = (WorldRef(change, None, world.offset) for change in (NOMINAL, world.change))
    return Goal(nominal, goal.measure, goal.test), Goal(alternative, goal.measure, goal.test)


def quantity_goals(formula: Formula) -> list[Goal]:
    """Return the goals whose values are a verdict's quantities, in order; for `regret`, as `regret_goals` does."""
    if isinstance(formula, Regret):
        return list(regret_goals(formula))
    return list(dict.fromkeys(goal for goal, _, _ in goals(formula)))


def handover_goal(formula: Formula) -> Goal | None:
    """Return the goal `F@0.Q` inside `handover(F, Q, h)`, with or without a comparison; None for other formulas."""
    match formula:
        case Goal(
            WorldRef(InterventionRef("nominal"), None, 0),
            Probability(
                Until(
                    0,
                    _,
                    Const(True),
                    Not(Goal(WorldRef(InterventionRef("policy" | "action"), None, 0), _, Test()) as goal),
                )
            ),
        ):
            return goal
        case _:
            return None


def goals_now(formula: Formula) -> tuple[Goal, Goal] | None:
    """Return the goals of `regret` or `handover` at the newest step, without and with handing over.

    Return None for every other formula, and if control is not handed over to a policy or an action.
    """
    match formula:
        case Regret(WorldRef(InterventionRef("policy" | "action") as change), goal):
            return Goal(WorldRef(), goal.measure, goal.test), Goal(WorldRef(change), goal.measure, goal.test)
        case _ if (late := handover_goal(formula)) is not None:
            return Goal(WorldRef(), late.measure, late.test), late
        case _:
            return None


def largest_offset(formula: Formula) -> int:
    """Return the largest |t| outside all brackets; 0 if the formula has no goal."""
    return max((abs(offset) for _, _, offset in goals(formula)), default=0)


@lru_cache
def longest_interval(formula: Formula) -> int:
    """Return the largest number of steps that an operator of a formula looks ahead; 0 if it has no operator.

    >>> from monitor.logic.parser import parse
    >>> [longest_interval(parse(text)) for text in ('P>=0.9 [ G<=20 !"unsafe" ]', "R<=3 [ C<=5 ]", '"unsafe"')]
    [20, 5, 0]
    """
    timed = (node.measure if isinstance(node, Goal) else node for node in subformulas(formula))
    return max((each.high for each in timed if isinstance(each, Until | Reward)), default=0)


def nested_goals(path: Formula) -> Iterator[Goal]:
    """Yield the goals nested directly in a path formula."""
    return (node for node in subformulas(path, nested=False) if isinstance(node, Goal))


def looks_back(goal: Goal) -> bool:
    """Return whether a nested goal, or a goal inside it, has an offset other than 0, so that earlier pairs matter."""
    return goal.world.offset != 0 or asks_back(goal.measure)


@lru_cache
def asks_back(measure: Measure) -> bool:
    """Return whether any goal nested in a measure looks back, as `looks_back` defines it."""
    return isinstance(measure, Probability) and any(looks_back(goal) for goal in nested_goals(measure.path))
