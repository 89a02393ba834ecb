"""One formula on one observed path, as a verdict whose numbers explain themselves."""

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
    Test,
    Until,
)
from monitor.logic.traversal import asks_back, goals, regret_goals
from monitor.types import CausalModel, Quantity, Verdict

__all__ = ["IncrementalCheck", "Path", "resolve"]


class _Answer(msgspec.Struct, frozen=True):
    """A quantity of one world: its value, its bounds where asked for, and the offset really used."""

    value: float
    bounds: tuple[float, float] | None
    offset: int
    clipped: bool


class _Truth(msgspec.Struct, frozen=True):
    """A truth value, and the least and greatest it has under the causal models of the class asked for."""

    holds: bool
    least: bool
    greatest: bool


class IncrementalCheck:
    """A formula with a class of causal models, asked again and again as a path grows.

    Args:
        worlds: what can be asked about.
        formula: validated.
        causal_model: the class for bounds; `gumbel`: none.
        text: the formula as its user wrote it.
        window: pairs a path can have.
    """

    def __init__(self, worlds: Evaluators, formula: Formula, causal_model: CausalModel, text: str, window: int) -> None:
        self.worlds, self.formula, self.causal_model, self.text = worlds, formula, causal_model, text
        self.lines = PathValues(worlds, formula, window)
        self.path: Path = ()
        self.quantities: list[Quantity] = []
        self._from_start = any(offset < 0 for _, _, offset in goals(formula))
        self._texts = {id(goal): print_formula(goal) for goal, _, _ in goals(formula)}
        if isinstance(formula, Regret):
            self._arm_texts = [print_formula(goal) for goal in regret_goals(formula)]

    def verdict(
        self, path: Path, moved: int | None = None, *, terminated: bool = False, start_observed: bool = True
    ) -> Verdict:
        """The answer on a path (oldest pair first).

        Args:
            path: pairs (state, action); the last action may be None, not yet taken.
            moved: pairs the path has at its end that it had not at the last call; None: it is another path.
            terminated: the episode has ended in the last state, which is absorbing from then on.
            start_observed: whether the first pair is the episode's first step.
        """
        self.path, self.quantities = path, []
        self.start_dropped = self._from_start and not start_observed
        self.lines.move(path, len(path) if moved is None else moved, path[-1][0] if terminated else None)
        if isinstance(self.formula, Regret):
            return self.regret(self.formula)
        return self.plain(self.formula)

    def plain(self, formula: Formula) -> Verdict:
        """A formula that is not `regret`; of quantities at several offsets, the last one's is told."""
        if isinstance(formula, Goal) and formula.test is None:
            return self._figure(formula)
        truth = self._truth(formula)
        told = tuple(self.quantities)
        return Verdict(
            self.text,
            "exact",
            self.causal_model,
            told,
            holds=truth.holds,
            bounds=told[0].bounds if len(told) == 1 else None,
            robust=None if self.causal_model == "gumbel" else truth.least == truth.greatest,
            offset=told[-1].offset if told else 0,
            clipped=told[0].clipped if len(told) == 1 else any(quantity.clipped for quantity in told),
            start_dropped=self.start_dropped,
        )

    def regret(self, formula: Regret) -> Verdict:
        """Whether nominal misses the goal, and whether the alternative meets it (docs/semantics.md, section 8)."""
        measure, test, change = formula.goal.measure, formula.goal.test, formula.world.change
        assert test is not None
        used, position, clipped = resolve(formula.world.offset, len(self.path))
        offset = len(self.path) - 1 - position
        nominals = self.lines.profile(NOMINAL, measure)[: offset + 1]
        alternatives = self.lines.profile(change, measure)[: offset + 1]
        nominal, alternative = nominals[offset], alternatives[offset]
        under = self._bounds(NOMINAL, position, measure, nominal)
        bounds = self._bounds(change, position, measure, alternative)
        met = self._judge(self._arm_texts[0], test, _Answer(nominal, under, used, clipped))
        meets = self._judge(self._arm_texts[1], test, _Answer(alternative, bounds, used, clipped))
        robust: bool | None = None
        effect_bounds: tuple[float, float] | None = None
        if bounds is not None and under is not None:
            possible = {_outcome(n, a) for n in (met.least, met.greatest) for a in (meets.least, meets.greatest)}
            robust = len(possible) == 1
            effect_bounds = (bounds[0] - under[1], bounds[1] - under[0])
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

    def _figure(self, goal: Goal) -> Verdict:
        """A `=?`: its number is all there is to tell."""
        found = self._measure(goal)
        return Verdict(
            self.text,
            "exact",
            self.causal_model,
            (Quantity(self.text, found.value, found.offset, found.clipped, found.bounds),),
            value=found.value,
            bounds=found.bounds,
            offset=found.offset,
            clipped=found.clipped,
            start_dropped=self.start_dropped,
        )

    def _truth(self, formula: Formula) -> _Truth:
        match formula:
            case Goal():
                assert formula.test is not None
                return self._judge(self._texts[id(formula)], formula.test, self._measure(formula))
            case Const(value):
                return _Truth(value, value, value)
            case Label(name):
                here = bool(self.worlds.model.labels[name][self.path[-1][0]])
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
            case Until() | Regret():
                raise AssertionError("the parser keeps these out of Boolean combinations")
            case _:
                assert_never(formula)

    def _judge(self, text: str, test: Test, answer: _Answer) -> _Truth:
        """Hold an answer against its threshold, and keep it among the quantities."""
        value, bounds = answer.value, answer.bounds
        holds = least = greatest = test.holds(value)
        robust: bool | None = None
        if bounds is not None:
            ends = test.holds(bounds[0]), test.holds(bounds[1])
            least, greatest = holds and all(ends), holds or any(ends)
            robust = least == greatest
        found = Quantity(text, value, answer.offset, answer.clipped, bounds, test.bound, holds, robust)
        if all(known.text != text for known in self.quantities):  # `<=>` names each of its sides twice
            self.quantities.append(found)
        return _Truth(holds, least, greatest)

    def _measure(self, goal: Goal) -> _Answer:
        world = goal.world
        used, position, clipped = resolve(world.offset, len(self.path))
        value = self.lines.value(world.change, goal.measure, position)
        bounds = self._bounds(world.change, position, goal.measure, value)
        if world.baseline is not None:
            base = self.lines.value(world.baseline, goal.measure, position)
            under = self._bounds(world.baseline, position, goal.measure, base)
            value -= base
            if bounds is not None and under is not None:
                bounds = (bounds[0] - under[1], bounds[1] - under[0])
        return _Answer(value, bounds, used, clipped)

    def _bounds(
        self, change: Change, position: int, measure: Probability | Reward, value: float
    ) -> tuple[float, float] | None:
        if self.causal_model == "gumbel":
            return None
        if change.kind == "nominal" and not asks_back(measure):
            return value, value  # what happened is no matter of causal models; what is asked about it may be
        return self.lines.bounds(change, measure, position, self.causal_model)


def _outcome(nominal: bool, alternative: bool) -> Literal["safe", "regret", "unavoidable"]:  # noqa: FBT001 - two truths
    """What it means that the goal is met, or not, in each of the two worlds."""
    if nominal:
        return "safe"
    return "regret" if alternative else "unavoidable"


def _latest_useful(test: Test, nominals: list[float], alternatives: list[float]) -> int | None:
    """The smallest offset at which the alternative turns the outcome; lists nearest offset first."""
    worst = min if test.comparison in (">=", ">") else max
    if test.holds(worst(nominals)):
        return None  # as nearly always: where the worst value passes, all do
    for offset, (nominal, alternative) in enumerate(zip(nominals, alternatives, strict=True)):
        if test.holds(alternative) and not test.holds(nominal):
            return offset
    return None


def resolve(offset: int, length: int) -> tuple[int, int, bool]:
    """The offset used on a path of `length` pairs, its position from 0, and whether it was clipped.

    See docs/semantics.md, section 1.4.
    """
    last = length - 1
    used = max(-last, min(offset, last))
    position = last - used if used >= 0 else -used - 1
    return used, position, used != offset
