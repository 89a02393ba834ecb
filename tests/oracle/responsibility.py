"""Which decisions of the held path a missed goal is due to, by brute force over decisions and sets of them.

A decision is an offset 0..d. All values are of the goal read from offset 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from typing import Literal

from tests.oracle.evaluate import Interval
from tests.oracle.goals import Memory
from tests.oracle.race import ONE, ZERO
from tests.oracle.recourse import Menu, Option, Recourse, equal

WITHIN = 3
Avoidable = Literal["foresight", "hindsight", "no"]


@dataclass(frozen=True)
class Change:
    """The first of few changes that meet a goal: at `offset` the action `proposed` instead of `taken`.

    `value` is that of the best `changes` changes. `ties` has every (offset, action) that can be the first change of a
    strategy with this value; `offset` is the largest of them, `proposed` the smallest action there.
    """

    changes: int
    offset: int
    taken: int | None
    proposed: int
    value: Fraction
    ties: frozenset[tuple[int, int]]


def effects(recourse: Recourse) -> dict[tuple[int, int], Fraction]:
    """Return, for each decision and each action available there, by how much that one action changes the value."""
    happened = recourse.value("nominal")
    return {
        (offset, action): recourse.of_menu(once(recourse, offset, action)) - happened
        for offset, (state, _) in enumerate(recourse.window.path)
        for action in recourse.window.available(state)
    }


def once(recourse: Recourse, at: int, action: int) -> Menu:
    """Return the options of the world in which one decision is another and all others are unchanged."""

    def menu(offset: int, state: int, after: Memory, left: int) -> Sequence[Option]:
        return [Option({action: ONE}, left)] if offset == at else recourse.kept(offset, state, after, left)

    return menu


def best_of(recourse: Recourse, decisions: Sequence[int]) -> Fraction:
    """Return the value of the best change of a set of decisions."""
    return recourse.of_menu(recourse.at(decisions))


def responsibility(recourse: Recourse, within: int = WITHIN) -> dict[int, Fraction]:
    """Return the degree of responsibility of each decision for a missed goal (Chockler & Halpern 2004).

    1 / m, with m the size of the smallest set of decisions that contains it and whose best change meets the goal while
    that of no proper subset does; 0 without such a set of at most `within` decisions.

    Raises:
        ValueError: the goal is not missed.
    """
    missed(recourse)
    sufficient = {each for each in subsets(recourse, within) if recourse.meets(best_of(recourse, each))}
    minimal = [
        each
        for each in sufficient
        if not any(part in sufficient for size in range(len(each)) for part in combinations(each, size))
    ]
    return {
        decision: max((Fraction(1, len(each)) for each in minimal if decision in each), default=ZERO)
        for decision in range(recourse.window.d + 1)
    }


def contingent(recourse: Recourse, within: int = WITHIN) -> dict[int, Fraction]:
    """Return the same by the definition of a counterfactual cause under a contingency.

    1 / (|W| + 1) for the smallest set W of other decisions whose best change does not meet the goal, but does together
    with the decision.
    """
    missed(recourse)
    degrees = dict.fromkeys(range(recourse.window.d + 1), ZERO)
    for contingency in subsets(recourse, within - 1):
        if recourse.meets(best_of(recourse, contingency)):
            continue
        for decision in degrees.keys() - set(contingency):
            if recourse.meets(best_of(recourse, [*contingency, decision])):
                degrees[decision] = max(degrees[decision], Fraction(1, len(contingency) + 1))
    return degrees


def subsets(recourse: Recourse, largest: int) -> Iterator[tuple[int, ...]]:
    """Yield the sets of at most so many decisions, small ones first, each in order."""
    for size in range(largest + 1):
        yield from combinations(range(recourse.window.d + 1), size)


def avoidable(recourse: Recourse) -> Avoidable:
    """Return whether a missed goal could have been met: by the best policy without hindsight, with it, or not.

    Raises:
        ValueError: the goal is not missed.
    """
    missed(recourse)
    if recourse.meets(recourse.value("optimal")):
        return "foresight"
    return "hindsight" if recourse.meets(recourse.value("best")) else "no"


def avoidable_is_robust(recourse: Recourse, kind: str) -> bool:
    """Return whether no causal model of a kind changes `avoidable`: no choice within the two bounds does."""
    found = avoidable(recourse)
    ends = recourse.bounds("optimal", kind), recourse.bounds("best", kind)
    if found == "foresight":
        return _robust(recourse, ends[0])
    return all(_robust(recourse, each) for each in ends)


def few_changes(recourse: Recourse, most: int | None = None) -> Change | None:
    """Return the smallest number of changes that meets a missed goal, with the first of them; None if none does.

    Until the first change the world is the observed one, so its state is certain.

    Raises:
        ValueError: the goal is not missed.
    """
    missed(recourse)
    most = recourse.window.d + 1 if most is None else most
    for changes in range(1, most + 1):
        value = recourse.value(f"best[<={changes}]")
        if recourse.meets(value):
            ties = frozenset(_first_changes(recourse, changes, value))
            offset = max(at for at, _ in ties)
            proposed = min(action for at, action in ties if at == offset)
            return Change(changes, offset, recourse.window.taken(offset), proposed, value, ties)
    return None


def _first_changes(recourse: Recourse, changes: int, value: Fraction) -> Iterator[tuple[int, int]]:
    """Yield the changes, each at the real state of its offset, after which the best value is still attained."""
    for first, (state, _) in enumerate(recourse.window.path):
        for action in recourse.window.available(state):
            if equal(recourse.of_menu(_from(recourse, first, action), changes), value):
                yield first, action


def _from(recourse: Recourse, first: int, action: int) -> Menu:
    """Return the options of the worlds whose first change is a given one."""

    def menu(offset: int, state: int, after: Memory, left: int) -> Sequence[Option]:
        if offset < first:
            return recourse.kept(offset, state, after, left)
        if offset == first:
            return [Option({action: ONE}, left - 1)]
        return recourse.few(offset, state, after, left)

    return menu


def missed(recourse: Recourse) -> None:
    """Refuse a goal that is met.

    Raises:
        ValueError: the goal is not missed.
    """
    if recourse.meets(recourse.value("nominal")):
        raise ValueError("the goal is met: nothing is to be avoided")


def _robust(recourse: Recourse, ends: Interval) -> bool:
    low, high = ends
    return recourse.meets(low) == recourse.meets(high)
