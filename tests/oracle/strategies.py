"""The values of all deterministic strategies, by enumeration: no induction, and memory of the whole history.

A strategy chooses an option at each history that it can reach. The value of each is its own mean; a best value is the
largest or smallest of them, and only then is a maximum taken. What a complete history is worth is read from the
definition. Strategies with the same value from a history on count once, which changes no value.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from itertools import product
from math import prod

from tests.oracle.goals import Memory
from tests.oracle.race import ONE, ZERO
from tests.oracle.recourse import Menu, Option, Pick, Recourse
from tests.oracle.rejection import History
from tests.oracle.window import Rows

Place = tuple[int, int, Memory]
LIMIT = 2_000
POLICIES = 100


class TooManyError(ValueError):
    """There are more strategies than the limit."""


def achievable(recourse: Recourse, menu: Menu, left: int = 0, kind: str = "gumbel") -> frozenset[Fraction]:
    """Return the values of all strategies that a menu allows.

    Raises:
        TooManyError: more than LIMIT histories, or values at one of them.
    """
    strategies = Strategies(recourse, menu, recourse.window.rows(kind))
    return strategies.values((), recourse.window.path[0][0], recourse.goal.begin(), left)


class Strategies:
    """All strategies of one menu, with known rows."""

    def __init__(self, recourse: Recourse, menu: Menu, rows: Rows) -> None:
        self._goal = recourse.goal
        self._menu = menu
        self._rows = rows
        self._histories = 0

    def values(self, before: History, state: int, memory: Memory, left: int) -> frozenset[Fraction]:
        """Return the values of all strategies after a history that leads to a state."""
        self._histories += 1
        if self._histories > LIMIT:
            raise TooManyError
        offset = len(before)
        if offset == self._goal.last:
            return frozenset({self._goal.literal((*before, (state, 0)))})
        after = self._goal.read(memory, offset, state)  # for menus that need it: `optimal`
        found: set[Fraction] = set()
        for option in self._menu(offset, state, after, left):
            found |= self._option(before, state, after, option.actions, option.left)
        return _within(found)

    def _option(
        self, before: History, state: int, after: Memory, actions: dict[int, Fraction], left: int
    ) -> set[Fraction]:
        sums = {ZERO}
        for action, chance in actions.items():
            (row,) = self._rows(len(before), state, action)
            for successor, weight in row.items():
                further = self.values((*before, (state, action)), successor, after, left)
                if len(sums) * len(further) > 5 * LIMIT:
                    raise TooManyError
                share = chance * weight
                shares = [share * each for each in further]
                sums = {done + each for done in sums for each in shares}
        return sums


def _within(found: set[Fraction]) -> frozenset[Fraction]:
    if len(found) > LIMIT:
        raise TooManyError
    return frozenset(found)


def guarantees(recourse: Recourse, kind: str, extreme: Pick) -> frozenset[Fraction]:
    """Return, for all policies with memory of the remaining obligation, the lowest or highest value over causal models.

    Raises:
        TooManyError: more than POLICIES.
    """
    places = sorted(_places(recourse), key=lambda place: place[:2])
    choices = [recourse.window.available(state) for _, state, _ in places]
    if prod(map(len, choices)) > POLICIES:
        raise TooManyError
    return frozenset(
        recourse.of_menu(fixed(dict(zip(places, actions, strict=True))), 0, kind, extreme)
        for actions in product(*choices)
    )


def fixed(policy: Mapping[Place, int]) -> Menu:
    """Return the menu of a policy."""
    return lambda offset, state, after, left: [Option({policy[offset, state, after]: ONE}, left)]


def _places(recourse: Recourse) -> set[Place]:
    """Return each (offset, state, what remains) at which a policy may have to decide, under any causal model."""
    found: set[Place] = set()
    rows = recourse.window.rows("any")

    def visit(offset: int, state: int, memory: Memory) -> None:
        after = recourse.goal.read(memory, offset, state)
        if recourse.goal.settled(after, offset) is not None or (offset, state, after) in found:
            return
        found.add((offset, state, after))
        for action in recourse.window.available(state):
            for successor in {k for row in rows(offset, state, action) for k in row}:
                visit(offset + 1, successor, after)

    visit(0, recourse.window.path[0][0], recourse.goal.begin())
    return found
