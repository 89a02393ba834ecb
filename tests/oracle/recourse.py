"""Values of the best possible decisions after an intervention, by backward induction in fractions.

In the world `best` every decision from the intervention state on is the one that serves the goal most, given what the
observed path says about the noise. Its relatives: `best[k]`, then nominal again; `best[<=k]`, at most k decisions of
the held path changed; `optimal`, the best policy without hindsight.

The induction finds the maximum over all policies, also those with memory and those that choose at random. For the
distribution of the next state depends on offset, state and action alone (docs/semantics/worlds.md, section 2.4), and
what a history is worth depends on its beginning only through what remains of the goal. So by induction the value after
a history is at most the largest, over the actions allowed there, of the mean over their successors, and an action that
attains it is a function of offset, state, remaining obligation and changes left. `strategies` enumerates instead.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import NamedTuple

from tests.oracle import syntax as ast
from tests.oracle.evaluate import TIE, Interval, compares
from tests.oracle.goals import Goal, Memory, goal_of
from tests.oracle.race import ONE, ZERO
from tests.oracle.setting import Dist, Setting
from tests.oracle.window import Rows, Unchanged, Window

WORD = re.compile(r"(nominal|best|optimal)(?:\[(<=)?(\d+)\])?")


class Option(NamedTuple):
    """What may be decided somewhere: a distribution over actions, and the number of changes left after it."""

    actions: Dist
    left: int


Menu = Callable[[int, int, Memory, int], Sequence[Option]]
"""The options at (offset, state, what remains after this state's labels were read, changes left)."""
Pick = Callable[[Sequence[Fraction]], Fraction]


class Induction:
    """Backward induction over (offset, state, what remains of the goal, changes left).

    Args:
        goal: whose mean is the value.
        menu: the options.
        rows: the rows, or vertices of sets of rows.
        pick: `max` or `min` over the options.
        extreme: `max` or `min` over the vertices.
    """

    def __init__(self, goal: Goal, menu: Menu, rows: Rows, pick: Pick, extreme: Pick = max) -> None:
        self._goal = goal
        self._menu = menu
        self._rows = rows
        self._pick = pick
        self._extreme = extreme
        self._known: dict[tuple[int, int, Memory, int], Fraction] = {}

    def value(self, offset: int, state: int, memory: Memory, left: int) -> Fraction:
        """Return the value before the labels of `state` were read."""
        after = self._goal.read(memory, offset, state)
        settled = self._goal.settled(after, offset)
        if settled is not None:
            return settled
        key = offset, state, after, left
        if key not in self._known:
            self._known[key] = self._pick([worth for _, worth in self.options(*key)])
        return self._known[key]

    def options(self, offset: int, state: int, after: Memory, left: int) -> list[tuple[Option, Fraction]]:
        """Return each option with its value, after the labels of `state` were read."""
        return [
            (
                option,
                sum((w * self._action(offset, state, a, after, option.left) for a, w in option.actions.items()), ZERO),
            )
            for option in self._menu(offset, state, after, left)
        ]

    def _action(self, offset: int, state: int, action: int, after: Memory, left: int) -> Fraction:
        rows = self._rows(offset, state, action)
        worth = {
            successor: self._goal.earned(offset, state, action, successor)
            + self.value(offset + 1, successor, after, left)
            for successor in sorted({successor for row in rows for successor in row})
        }
        return self._extreme([sum((weight * worth[k] for k, weight in row.items()), ZERO) for row in rows])


class Recourse:
    """Values of one goal in the worlds of one intervention state.

    Args:
        setting: model, policies, labels, path.
        goal: `P cmp number [ formula of labels ]` or `R cmp number [ C interval ]`, without a world; `=?` for `cmp` if
            `largest` is given.
        offset: of the intervention.
        largest: whether the best is the largest value; of a comparison its direction is used.
        unchanged: see Window.
    """

    def __init__(
        self,
        setting: Setting,
        goal: str,
        offset: int = 0,
        *,
        largest: bool | None = None,
        unchanged: Unchanged = "policy",
    ) -> None:
        formula = ast.Parser().parse(goal)
        if not isinstance(formula, ast.Ask | ast.Compare):
            raise TypeError(f"not a goal: {goal}")
        self.compare = formula if isinstance(formula, ast.Compare) else None
        if self.compare is not None:
            largest = self.compare.op in {">", ">="}
        assert largest is not None, "say whether the largest or the smallest value is wanted"
        self.pick: Pick = max if largest else min
        self.window = Window(setting, offset, unchanged=unchanged)
        self.goal = goal_of(formula.quantity, self.window)
        self._optimal: Menu | None = None
        self._values: dict[str, Fraction] = {}
        self._bounds: dict[tuple[str, str], Interval] = {}

    def value(self, word: str) -> Fraction:
        """Return the Gumbel-Max value in a world: `nominal`, `best`, `best[3]`, `best[<=2]`, `optimal` or `optimal[3]`.

        Raises:
            ValueError: another word.
        """
        if word not in self._values:  # many tests ask for the same
            menu, left = self.world(word)
            self._values[word] = self.of_menu(menu, left)
        return self._values[word]

    def bounds(self, word: str, kind: str) -> Interval:
        """Return the lowest and the highest value over the causal models `any` or `stable`.

        The choice of the decisions and that of the rows are made at each (offset, state, obligation, changes left), so
        of a best value these are the guaranteed and the possible one.
        """
        if (word, kind) not in self._bounds:
            menu, left = self.world(word)
            low, high = (self.of_menu(menu, left, kind, extreme) for extreme in (min, max))
            self._bounds[word, kind] = low, high
        return self._bounds[word, kind]

    def of_menu(self, menu: Menu, left: int = 0, kind: str = "gumbel", extreme: Pick = max) -> Fraction:
        """Return the best value with the options of a menu."""
        return self._from_start(self.induction(menu, kind, extreme), left)

    def induction(self, menu: Menu, kind: str = "gumbel", extreme: Pick = max) -> Induction:
        """Return the induction over the options of a menu."""
        return Induction(self.goal, menu, self.window.rows(kind), self.pick, extreme)

    def meets(self, value: Fraction) -> bool:
        """Return whether a value meets the goal's bound, with the tie rule."""
        assert self.compare is not None, "a goal with =? has no bound"
        return compares(value, self.compare.op, self.compare.bound)

    def _from_start(self, induction: Induction, left: int) -> Fraction:
        return induction.value(0, self.window.path[0][0], self.goal.begin(), left)

    # Worlds.

    def world(self, word: str) -> tuple[Menu, int]:
        """Return the options of a world and the number of changes."""
        match = WORD.fullmatch(word)
        if match is None or (match[1], match[2]) == ("optimal", "<=") or (match[1] == "nominal" and match[3]):
            raise ValueError(f"not a world of this oracle: {word}")
        name, at_most, number = match.groups()
        if name == "nominal":
            return self.at(range(0)), 0
        if at_most:
            return self.few, int(number)
        steps = None if number is None else int(number)
        return self._while(steps, self.free if name == "best" else self.optimal), 0

    def free(self, offset: int, state: int, after: Memory, left: int) -> Sequence[Option]:  # noqa: ARG002 (a Menu)
        """Allow every available action."""
        return [Option({action: ONE}, left) for action in self.window.available(state)]

    def kept(self, offset: int, state: int, after: Memory, left: int) -> Sequence[Option]:  # noqa: ARG002 (a Menu)
        """Allow only the unchanged decision."""
        return [Option(self.window.unchanged(offset, state), left)]

    def few(self, offset: int, state: int, after: Memory, left: int) -> Sequence[Option]:
        """Allow the unchanged decision and, at offsets 0..d while changes are left, every available action for one."""
        if offset > self.window.d:
            return self.kept(offset, state, after, 0)
        changes = [Option({action: ONE}, left - 1) for action in self.window.available(state)] if left else []
        return [*self.kept(offset, state, after, left), *changes]

    def at(self, offsets: Sequence[int]) -> Menu:
        """Allow every available action at some offsets, unchanged decisions elsewhere."""
        chosen = frozenset(offsets)

        def menu(offset: int, state: int, after: Memory, left: int) -> Sequence[Option]:
            unchanged = self.kept(offset, state, after, left)
            return [*unchanged, *self.free(offset, state, after, left)] if offset in chosen else unchanged

        return menu

    def _while(self, steps: int | None, first: Menu) -> Menu:
        def menu(offset: int, state: int, after: Memory, left: int) -> Sequence[Option]:
            return (first if steps is None or offset < steps else self.kept)(offset, state, after, left)

        return menu

    def optimal(self, offset: int, state: int, after: Memory, left: int) -> Sequence[Option]:
        """Allow the action that is best without hindsight: by backward induction with rows of prior noise.

        Of actions within 1e-12 (relative to a value beyond 1) the one that nominal takes, of a stochastic nominal
        policy the one with the largest probability, else the lowest index. Who acted on the held path does not matter.
        """
        if self._optimal is None:
            self._optimal = self._prior_choice()
        return self._optimal(offset, state, after, left)

    def _prior_choice(self) -> Menu:
        induction = self.induction(self.free, "prior")

        def menu(offset: int, state: int, after: Memory, left: int) -> Sequence[Option]:
            options = induction.options(offset, state, after, 0)
            best = self.pick([worth for _, worth in options])
            tied = [next(iter(option.actions)) for option, worth in options if equal(worth, best)]
            nominal = self.window.nominal(state)
            return [Option({max(tied, key=lambda action: (nominal.get(action, ZERO), -action)): ONE}, left)]

        return menu

    def prior(self) -> Fraction:
        """Return the best value with prior noise, nothing observed."""
        return self._from_start(self.induction(self.free, "prior"), 0)


def equal(value: Fraction, other: Fraction) -> bool:
    """Return whether two values are equal by the tie rule."""
    return abs(value - other) <= TIE * max(ONE, abs(other))
