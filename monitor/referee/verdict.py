"""From numbers to a verdict: comparisons, Boolean combinations, regret.

1. A comparison with a bound takes values within 1e-12 max(1, |bound|) of it for equal (`Test.holds`).
2. A label outside all brackets is read in the path's last state.
3. An answer is robust if no choice of causal model, made for each quantity on its own, changes it.
4. Regret: `safe` if nominal meets the goal, else `regret` if the alternative meets it, else `unavoidable`. Its profile
   holds both values for every offset from the last pair back to the one asked about.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, assert_never

from monitor.logic.printer import print_formula
from monitor.logic.syntax import NOMINAL, And, Change, Const, Formula, Goal, Label, Not, Or, Regret, Until, WorldRef
from monitor.referee.unroll import Unroll
from monitor.referee.world import Frame, position
from monitor.types import CausalModel, Outcome, Quantity, Verdict

__all__ = ["Judge"]

Truths = frozenset[bool]
"""The truths a formula may have over the class of causal models."""


@dataclass(frozen=True)
class Judge:
    """One question on one path.

    Attributes:
        unroll: gives the numbers.
        frame: the observed path.
        labels: those of the path's last state.
        causal_model: the class to bound over; `gumbel`: no bounds.
        start_observed: whether the first pair is the episode's first step.
    """

    unroll: Unroll
    frame: Frame
    labels: Mapping[str, bool]
    causal_model: CausalModel
    start_observed: bool

    def verdict(self, formula: Formula, text: str) -> Verdict:
        """Return the verdict on a formula; `text`: as it was written.

        Raises:
            LimitError: the question is too large.
        """
        match formula:
            case Regret():
                return self._regret(formula, text)
            case Goal(test=None):
                quantity = self._quantity(formula, text)
                return self._filled(text, (quantity,), [formula], value=quantity.value, bounds=quantity.bounds)
            case _:
                return self._plain(formula, text)

    def _plain(self, formula: Formula, text: str) -> Verdict:
        goals = _goals(formula)
        quantities = tuple(self._quantity(goal, print_formula(goal)) for goal in goals)
        truths = dict(zip(goals, map(self._truths, quantities), strict=True))
        held = {goal: frozenset({bool(found.holds)}) for goal, found in zip(goals, quantities, strict=True)}
        (holds,) = self._combined(formula, held)
        return self._filled(
            text,
            quantities,
            goals,
            holds=holds,
            bounds=quantities[0].bounds if len(quantities) == 1 else None,
            robust=None if self.causal_model == "gumbel" else len(self._combined(formula, truths)) == 1,
        )

    def _regret(self, formula: Regret, text: str) -> Verdict:
        goals = [self._arm(formula, change, formula.world.offset) for change in (NOMINAL, formula.world.change)]
        nominal, other = (self._quantity(goal, print_formula(goal)) for goal in goals)
        effect_bounds = None
        if nominal.bounds is not None and other.bounds is not None:
            effect_bounds = other.bounds[0] - nominal.bounds[1], other.bounds[1] - nominal.bounds[0]
        outcomes = {_outcome(ours, theirs) for ours in self._truths(nominal) for theirs in self._truths(other)}
        profile, useful = self._profile(formula)
        return self._filled(
            text,
            (nominal, other),
            goals[:1],
            outcome=_outcome(bool(nominal.holds), bool(other.holds)),
            bounds=other.bounds,
            robust=None if self.causal_model == "gumbel" else len(outcomes) == 1,
            effect=other.value - nominal.value,
            effect_bounds=effect_bounds,
            profile=profile,
            latest_useful=useful,
        )

    def _arm(self, formula: Regret, change: Change, offset: int) -> Goal:
        return Goal(WorldRef(change, None, offset), formula.goal.measure, formula.goal.test)

    def _profile(self, formula: Regret) -> tuple[dict[int, tuple[float, float]], int | None]:
        """Return both arms' values by offset, and the smallest offset whose outcome is regret."""
        length = len(self.frame.steps)
        _, start = position(formula.world.offset, length)
        profile: dict[int, tuple[float, float]] = {}
        useful: int | None = None
        test = formula.goal.test
        assert test is not None
        for offset in range(length - start):
            ours, theirs = (
                self.unroll.quantity(self._arm(formula, change, offset), self.frame)
                for change in (NOMINAL, formula.world.change)
            )
            profile[offset] = ours, theirs
            if useful is None and _outcome(test.holds(ours), test.holds(theirs)) == "regret":
                useful = offset
        return profile, useful

    def _quantity(self, goal: Goal, text: str) -> Quantity:
        offset, _ = position(goal.world.offset, len(self.frame.steps))
        value = self.unroll.quantity(goal, self.frame)
        bounds: tuple[float, float] | None = None
        if self.causal_model != "gumbel":
            bounds = self.unroll.quantity(goal, self.frame, "least"), self.unroll.quantity(goal, self.frame, "most")
        robust: bool | None = None
        if goal.test is not None and bounds is not None:
            robust = goal.test.holds(bounds[0]) == goal.test.holds(bounds[1])
        return Quantity(
            text,
            value,
            offset,
            offset != goal.world.offset,
            bounds,
            None if goal.test is None else goal.test.bound,
            None if goal.test is None else goal.test.holds(value),
            robust,
        )

    @staticmethod
    def _truths(quantity: Quantity) -> Truths:
        return frozenset({True, False}) if quantity.robust is False else frozenset({bool(quantity.holds)})

    def _combined(self, formula: Formula, truths: Mapping[Goal, Truths]) -> Truths:
        """Return the truths a formula may have, given those of its goals."""
        match formula:
            case Const(value):
                return frozenset({value})
            case Label(name):
                return frozenset({self.labels[name]})
            case Goal():
                return truths[formula]
            case Not(arg):
                return frozenset(not one for one in self._combined(arg, truths))
            case And(left, right):
                pairs = [(a, b) for a in self._combined(left, truths) for b in self._combined(right, truths)]
                return frozenset(a and b for a, b in pairs)
            case Or(left, right):
                pairs = [(a, b) for a in self._combined(left, truths) for b in self._combined(right, truths)]
                return frozenset(a or b for a, b in pairs)
            case Until() | Regret():
                raise AssertionError("the parser keeps these out of Boolean combinations")
            case _:
                assert_never(formula)

    def _filled(self, text: str, quantities: tuple[Quantity, ...], goals: list[Goal], **found: Any) -> Verdict:  # noqa: ANN401 - fields of a verdict
        return Verdict(
            text,
            "exact",
            self.causal_model,
            quantities,
            offset=quantities[-1].offset if quantities else 0,
            clipped=any(quantity.clipped for quantity in quantities),
            start_dropped=not self.start_observed and any(goal.world.offset < 0 for goal in goals),
            **found,
        )


def _goals(formula: Formula) -> list[Goal]:
    """Return the goals outside all brackets, in the order of the text."""
    match formula:
        case Goal():
            return [formula]
        case Not(arg):
            return _goals(arg)
        case And(left, right) | Or(left, right):
            return [*_goals(left), *_goals(right)]
        case _:
            return []


def _outcome(nominal: bool, alternative: bool) -> Outcome:  # noqa: FBT001 - two truths
    if nominal:
        return "safe"
    return "regret" if alternative else "unavoidable"
