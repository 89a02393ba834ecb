"""Verdicts: one formula on one observed path, with all numbers that lead to the answer."""

from __future__ import annotations

from typing import Literal, assert_never

import msgspec

from monitor.exact.evaluators import Evaluators
from monitor.exact.path_values import Path, PathValues
from monitor.logic import Formula, print_formula
from monitor.logic.syntax import (
    NOMINAL,
    And,
    Change,
    Const,
    Goal,
    Label,
    Not,
    Or,
    Probability,
    Regret,
    Reward,
    Temporal,
    Test,
)
from monitor.logic.traversal import asks_back, goals, regret_goals
from monitor.types import CausalModel, Quantity, Verdict

__all__ = ["IncrementalCheck", "Path", "resolve"]


class _Answer(msgspec.Struct, frozen=True):
    """Value of a goal, its bounds if requested, and the offset used."""

    value: float
    bounds: tuple[float, float] | None
    offset: int
    clipped: bool


class _Truth(msgspec.Struct, frozen=True):
    """A truth value, with the least and greatest over the class of causal models."""

    holds: bool
    least: bool
    greatest: bool


class IncrementalCheck:
    """A formula and a class of causal models, checked again as a path grows.

    Args:
        evaluators: of the model and its policies.
        formula: validated.
        causal_model: the class for bounds; `gumbel`: none.
        text: the formula as its user wrote it.
        window: pairs a path can have.
    """

    def __init__(
        self, evaluators: Evaluators, formula: Formula, causal_model: CausalModel, text: str, window: int
    ) -> None:
        self.evaluators, self.formula, self.causal_model, self.text = evaluators, formula, causal_model, text
        self.path_values = PathValues(evaluators, formula, window)
        self.path: Path = ()
        self.quantities: list[Quantity] = []
        self._from_start = any(offset < 0 for _, _, offset in goals(formula))
        self._texts = {id(goal): print_formula(goal) for goal, _, _ in goals(formula)}
        if isinstance(formula, Regret):
            self._regret_texts = [print_formula(goal) for goal in regret_goals(formula)]

    def verdict(
        self, path: Path, added: int | None = None, *, terminated: bool = False, start_observed: bool = True
    ) -> Verdict:
        """Return the verdict on a path (oldest pair first).

        Args:
            path: pairs (state, action); the last action may be None, not yet taken.
            added: pairs at the end of the path that were not there at the last call; None: it is another path.
            terminated: the episode has ended in the last state, which is absorbing from then on.
            start_observed: whether the first pair is the episode's first step.
        """
        self.path, self.quantities = path, []
        self.start_dropped = self._from_start and not start_observed
        self.path_values.advance(path, len(path) if added is None else added, path[-1][0] if terminated else None)
        if isinstance(self.formula, Regret):
            return self.regret(self.formula)
        return self.plain(self.formula)

    def plain(self, formula: Formula) -> Verdict:
        """Return the verdict of any formula but `regret`; of several quantities, the offset of the last is reported."""
        if isinstance(formula, Goal) and formula.test is None:
            return self._value_verdict(formula)
        truth = self._truth(formula)
        quantities = tuple(self.quantities)
        return Verdict(
            self.text,
            "exact",
            self.causal_model,
            quantities,
            holds=truth.holds,
            bounds=quantities[0].bounds if len(quantities) == 1 else None,
            robust=None if self.causal_model == "gumbel" else truth.least == truth.greatest,
            offset=quantities[-1].offset if quantities else 0,
            clipped=any(quantity.clipped for quantity in quantities),
            start_dropped=self.start_dropped,
        )

    def regret(self, formula: Regret) -> Verdict:
        """Return the verdict of `regret` (docs/semantics.md, section 8)."""
        measure, test, change = formula.goal.measure, formula.goal.test, formula.world.change
        assert test is not None
        used, position, clipped = resolve(formula.world.offset, len(self.path))
        offset = len(self.path) - 1 - position
        nominals = self.path_values.profile(NOMINAL, measure)[: offset + 1]
        alternatives = self.path_values.profile(change, measure)[: offset + 1]
        nominal, alternative = nominals[offset], alternatives[offset]
        nominal_bounds = self._bounds(NOMINAL, position, measure, nominal)
        bounds = self._bounds(change, position, measure, alternative)
        met = self._judge(self._regret_texts[0], test, _Answer(nominal, nominal_bounds, used, clipped))
        meets = self._judge(self._regret_texts[1], test, _Answer(alternative, bounds, used, clipped))
        robust: bool | None = None
        effect_bounds: tuple[float, float] | None = None
        if bounds is not None and nominal_bounds is not None:
            possible = {_outcome(n, a) for n in (met.least, met.greatest) for a in (meets.least, meets.greatest)}
            robust = len(possible) == 1
            effect_bounds = (bounds[0] - nominal_bounds[1], bounds[1] - nominal_bounds[0])
        return Verdict(
            self.text,
            "exact",
            self.causal_model,
            tuple(self.quantities),
            outcome=_outcome(met.holds, meets.holds),
            bounds=bounds,
            robust=robust,
            effect=alternative - nominal,
            effect_bounds=effect_bounds,
            profile=dict(enumerate(zip(nominals, alternatives, strict=True))),
            latest_useful=_latest_useful(test, nominals, alternatives),
            offset=used,
            clipped=clipped,
            start_dropped=self.start_dropped,
        )

    def _value_verdict(self, goal: Goal) -> Verdict:
        """The verdict of a `=?`: a number."""
        answer = self._answer(goal)
        return Verdict(
            self.text,
            "exact",
            self.causal_model,
            (Quantity(self.text, answer.value, answer.offset, answer.clipped, answer.bounds),),
            value=answer.value,
            bounds=answer.bounds,
            offset=answer.offset,
            clipped=answer.clipped,
            start_dropped=self.start_dropped,
        )

    def _truth(self, formula: Formula) -> _Truth:
        match formula:
            case Goal():
                assert formula.test is not None
                return self._judge(self._texts[id(formula)], formula.test, self._answer(formula))
            case Const(value):
                return _Truth(value, value, value)
            case Label(name):
                here = bool(self.evaluators.model.labels[name][self.path[-1][0]])
                return _Truth(here, here, here)
            case Not(arg):
                truth = self._truth(arg)
                return _Truth(not truth.holds, not truth.greatest, not truth.least)
            case And(left, right):
                one, other = self._truth(left), self._truth(right)
                return _Truth(one.holds and other.holds, one.least and other.least, one.greatest and other.greatest)
            case Or(left, right):
                one, other = self._truth(left), self._truth(right)
                return _Truth(one.holds or other.holds, one.least or other.least, one.greatest or other.greatest)
            case Temporal() | Regret():
                raise AssertionError("the parser keeps these out of Boolean combinations")
            case _:
                assert_never(formula)

    def _judge(self, text: str, test: Test, answer: _Answer) -> _Truth:
        """Compare an answer with its threshold, and add it to the quantities."""
        value, bounds = answer.value, answer.bounds
        holds = least = greatest = test.holds(value)
        robust: bool | None = None
        if bounds is not None:
            ends = test.holds(bounds[0]), test.holds(bounds[1])
            least, greatest = holds and all(ends), holds or any(ends)
            robust = least == greatest
        quantity = Quantity(text, value, answer.offset, answer.clipped, bounds, test.bound, holds, robust)
        if all(known.text != text for known in self.quantities):  # `<=>` names each of its sides twice
            self.quantities.append(quantity)
        return _Truth(holds, least, greatest)

    def _answer(self, goal: Goal) -> _Answer:
        world = goal.world
        used, position, clipped = resolve(world.offset, len(self.path))
        value = self.path_values.value(world.change, goal.measure, position)
        bounds = self._bounds(world.change, position, goal.measure, value)
        if world.baseline is not None:
            base = self.path_values.value(world.baseline, goal.measure, position)
            nominal_bounds = self._bounds(world.baseline, position, goal.measure, base)
            value -= base
            if bounds is not None and nominal_bounds is not None:
                bounds = (bounds[0] - nominal_bounds[1], bounds[1] - nominal_bounds[0])
        return _Answer(value, bounds, used, clipped)

    def _bounds(
        self, change: Change, position: int, measure: Probability | Reward, value: float
    ) -> tuple[float, float] | None:
        if self.causal_model == "gumbel":
            return None
        if change.kind == "nominal" and not asks_back(measure):
            return value, value  # the observed path is the same in every causal model; nested quantities may differ
        return self.path_values.bounds(change, measure, position, self.causal_model)


def _outcome(nominal: bool, alternative: bool) -> Literal["safe", "regret", "unavoidable"]:  # noqa: FBT001 - two truths
    """Return the outcome of `regret` from the truth of the goal in both worlds."""
    if nominal:
        return "safe"
    return "regret" if alternative else "unavoidable"


def _latest_useful(test: Test, nominals: list[float], alternatives: list[float]) -> int | None:
    """Return the smallest offset at which only the alternative meets the goal; lists nearest offset first."""
    worst = min if test.comparison in (">=", ">") else max
    if test.holds(worst(nominals)):
        return None  # the common case: if the worst value passes, all do
    for offset, (nominal, alternative) in enumerate(zip(nominals, alternatives, strict=True)):
        if test.holds(alternative) and not test.holds(nominal):
            return offset
    return None


def resolve(offset: int, length: int) -> tuple[int, int, bool]:
    """Return the offset used on a path of `length` pairs, its position from 0, and whether it was clipped.

    See docs/semantics.md, section 1.4.
    """
    last = length - 1
    used = max(-last, min(offset, last))
    position = last - used if used >= 0 else -used - 1
    return used, position, used != offset
