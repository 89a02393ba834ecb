"""Verdicts from values: comparisons, Boolean combinations, regret.

1. A comparison with a bound treats values within 1e-12 max(1, |bound|) of the bound as equal to it (`Test.holds`).
2. A label that is in no goal refers to the path's last state.
3. An answer is robust if it is the same for every choice of causal models, made independently for each quantity.
4. The outcome of regret is `safe` if nominal meets the goal, else `regret` if the alternative meets it, else
   `unavoidable`. The profile has both values for every offset from the last pair back to the formula's offset.

Definitions: docs/semantics/formulas.md, section 5.5 (1), docs/semantics/formulas.md, section 6.4 (3),
docs/semantics/regret.md, section 8 (4).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Protocol, assert_never

from monitor.logic.printer import print_formula
from monitor.logic.syntax import (
    NOMINAL,
    And,
    Const,
    Formula,
    Goal,
    InterventionRef,
    Label,
    Not,
    Or,
    Regret,
    Temporal,
    WorldRef,
)
from monitor.logic.traversal import handover_goal
from monitor.referee.extremes import Extremes
from monitor.referee.guaranteed import Guaranteed
from monitor.referee.recourse import Examiner
from monitor.referee.transition import Aim
from monitor.referee.world import Frame, position
from monitor.types.specs import CausalModel
from monitor.types.verdicts import UNRECORDED, Band, Bands, Outcome, Quantity, RestsOn, Verdict

NO_GUARANTEE = (
    "no guaranteed band: quantities are nested, decisions are made for the goal, rewards of a transition vary, or the "
    "episode has ended in a state that is not absorbing in the model"
)
Truths = frozenset[bool]
"""Possible truth values: over the class of causal models, or at both extremes."""
EITHER: Truths = frozenset({True, False})


class Values(Protocol):
    """Interface of the evaluators: `Unroll`, or `HiddenUnroll` for hidden states."""

    def quantity(self, goal: Goal, frame: Frame, aim: Aim = "value") -> float:
        """Return the value of a goal's measure in a frame, or one of its bounds."""
        ...


@dataclass(frozen=True)
class Derivation:
    """Evaluator of one formula on one path.

    Attributes:
        unroll: computes values.
        frame: the observed path.
        labels: possible truth values of each label in the path's last state.
        causal_model: the class of causal models for bounds; `gumbel` means no bounds.
        guaranteed: computes guaranteed bands; None if no band is due.
        extremes: computes values with everything never recorded at its worst and at its best.
        start_observed: whether the first pair is the episode's first step.
        examiner: examines whether a missed goal could have been met; None if this was not requested.
        basis: returns the basis of a value; None if this was not requested.
    """

    unroll: Values
    frame: Frame
    labels: Mapping[str, Truths]
    causal_model: CausalModel
    start_observed: bool
    guaranteed: Guaranteed | None
    extremes: Extremes
    examiner: Examiner | None = None
    basis: Callable[[Goal, Frame], RestsOn | None] | None = None

    def verdict(self, formula: Formula, text: str) -> Verdict:
        """Return the verdict on a formula; `text`: as written by the user. Raises LimitError if it is too large."""
        match formula:
            case Regret(world):
                found = self._regret(formula)
                dropped = world.offset < 0
            case Goal(test=None):
                quantity = self._quantity(formula, text)
                found = {"quantities": (quantity,), "value": quantity.value, "bounds": quantity.bounds}
                found["guaranteed"] = quantity.guaranteed
                found |= self._handover(formula)
                dropped = formula.world.offset < 0
            case _:
                found = self._plain(formula) | self._handover(formula)
                dropped = any(goal.world.offset < 0 for goal in _goals(formula))
        quantities: tuple[Quantity, ...] = found.pop("quantities")
        return Verdict(
            text,
            "exact",
            self.causal_model,
            quantities,
            **found,
            offset=quantities[-1].offset if quantities else 0,
            clipped=any(quantity.clipped for quantity in quantities),
            start_dropped=dropped and not self.start_observed,
            bands=self._bands(formula, quantities),
        )

    def _bands(self, formula: Formula, quantities: Sequence[Quantity]) -> Bands | None:
        """Return how guaranteed bands were obtained; None if no band was requested and no extremes are missing."""
        refused = "".join(sorted({self.extremes.refused(goal) for goal in _all_goals(formula)})[-1:])
        if self.guaranteed is None or not quantities:
            return Bands(reason=refused) if refused else None
        bands = [quantity.guaranteed for quantity in quantities]
        delta = None if all(band is None for band in bands) else self.guaranteed.delta
        missing = NO_GUARANTEE if None in bands else ""
        return Bands(delta=delta, reason="; ".join(part for part in (missing, refused) if part))

    def _plain(self, formula: Formula) -> dict[str, Any]:
        """Return the fields of a verdict on a Boolean combination."""
        goals = list(dict.fromkeys(_goals(formula)))  # `<=>` contains each side twice
        quantities = tuple(self._quantity(goal, print_formula(goal)) for goal in goals)
        held = {goal: _known(found) for goal, found in zip(goals, quantities, strict=True)}
        possible = dict(zip(goals, map(_truths, quantities), strict=True))
        truths = self._combined(formula, held)
        return {
            "quantities": quantities,
            "holds": None if len(truths) > 1 else True in truths,
            "reason": UNRECORDED if len(truths) > 1 else "",
            "bounds": quantities[0].bounds if len(quantities) == 1 else None,
            "guaranteed": quantities[0].guaranteed if len(quantities) == 1 else None,
            "robust": self._if_bounded(len(self._combined(formula, possible)) == 1, quantities),
        }

    def _regret(self, formula: Regret) -> dict[str, Any]:
        """Return the fields of a verdict on regret."""
        formula_offset, length = formula.world.offset, len(self.frame.steps)
        goals = _regret_goals(formula, formula_offset)
        nominal, other = (self._quantity(goal, print_formula(goal)) for goal in goals)
        profile: dict[int, tuple[float, float]] = {}
        ends, useful = [], []
        for offset in range(length - position(formula_offset, length)[1]):
            goals = _regret_goals(formula, offset)
            values = self.unroll.quantity(goals[0], self.frame), self.unroll.quantity(goals[1], self.frame)
            profile[offset] = values
            bands = [self.extremes.quantity(goal, self.frame) for goal in goals]
            ends += [(*bands[0], *bands[1])] if bands[0] is not None and bands[1] is not None else []
            meets = [_at_worst(goal, value, band) for goal, value, band in zip(goals, values, bands, strict=True)]
            if meets == [False, True]:
                useful.append(offset)
        outcome = _outcome(nominal.holds, other.holds)
        examiner = self.examiner if outcome in ("regret", "unavoidable") else None
        return {
            "quantities": (nominal, other),
            "outcome": outcome,
            "reason": UNRECORDED if outcome == "undecided" else "",
            "recourse": None if examiner is None else examiner.recourse(formula, self.frame),
            "bounds": other.bounds,
            "guaranteed": other.guaranteed,
            "robust": self._if_bounded(
                len({_outcome(*two) for two in product(_truths(nominal), _truths(other))}) == 1, (nominal, other)
            ),
            "effect": other.value - nominal.value,
            "effect_bounds": _difference(other.bounds, nominal.bounds),
            "effect_guaranteed": _difference(other.guaranteed, nominal.guaranteed),
            "profile": profile,
            "profile_extremes": tuple(ends),
            "latest_useful": min(useful, default=None),
        }

    def _handover(self, formula: Formula) -> dict[str, Any]:
        """Return the fields that `handover` adds: the goal's current values, and whether a handover meets the goal."""
        goal = handover_goal(formula)
        if goal is None:
            return {}
        stays, given = Goal(WorldRef(), goal.measure, goal.test), self.unroll.quantity(goal, self.frame)
        bands = [self.extremes.quantity(each, self.frame) for each in (stays, goal)]
        useful = 0 if _at_worst(goal, given, bands[1]) else None
        found: dict[str, Any] = {"profile": {0: (self.unroll.quantity(stays, self.frame), given)}}
        if bands[0] is not None and bands[1] is not None:
            found["profile_extremes"] = ((*bands[0], *bands[1]),)
        return {**found, "latest_useful": useful}

    def _quantity(self, goal: Goal, text: str) -> Quantity:
        offset, _ = position(goal.world.offset, len(self.frame.steps))
        value = self.unroll.quantity(goal, self.frame)
        bounds: tuple[float, float] | None = None
        if self.causal_model != "gumbel":
            bounds = self.unroll.quantity(goal, self.frame, "least"), self.unroll.quantity(goal, self.frame, "most")
        guaranteed, widest = None, bounds
        if self.guaranteed is not None:
            learned = self.guaranteed.learned_under(goal)
            guaranteed = widest = self._guaranteed(goal) if learned else bounds
        extremes = self.extremes.quantity(goal, self.frame)
        truths = {_holds(goal, each) for each in (value, *(extremes or ()))}
        wide = truths | {_holds(goal, each) for each in widest or ()}
        return Quantity(
            text,
            value,
            offset,
            clipped=offset != goal.world.offset,
            bounds=bounds,
            threshold=None if goal.test is None else goal.test.bound,
            holds=truths.pop() if len(truths) == 1 else None,
            robust=None if goal.test is None or widest is None else len(wide) == 1,
            guaranteed=guaranteed,
            extremes=extremes,
            rests_on=None if self.basis is None else self.basis(goal, self.frame),
        )

    def _guaranteed(self, goal: Goal) -> Band | None:
        assert self.guaranteed is not None
        return self.extremes.guaranteed(goal, self.frame) or self.guaranteed.quantity(goal, self.frame)

    def _combined(self, formula: Formula, truths: Mapping[Goal, Truths]) -> Truths:
        """Return the possible truth values of a formula, given those of its goals."""
        match formula:
            case Const(value):
                return frozenset({value})
            case Label(name):
                return self.labels[name]
            case Goal():
                return truths[formula]
            case Not(arg):
                return frozenset(not one for one in self._combined(arg, truths))
            case And(left, right) | Or(left, right):
                join = all if isinstance(formula, And) else any
                return frozenset(map(join, product(self._combined(left, truths), self._combined(right, truths))))
            case Temporal() | Regret():
                raise AssertionError("the parser keeps these out of Boolean combinations")
            case _:
                assert_never(formula)

    def _if_bounded(self, robust: bool, quantities: Sequence[Quantity]) -> bool | None:  # noqa: FBT001 - a truth value
        """Return `robust`; None without bounds, or if a guaranteed band is due but not defined."""
        missing = self.guaranteed is not None and any(quantity.guaranteed is None for quantity in quantities)
        return None if self.causal_model == "gumbel" or missing else robust


def _goals(formula: Formula) -> list[Goal]:
    """Return the goals that are not nested in other goals, in the order of the text."""
    match formula:
        case Goal():
            return [formula]
        case Not(arg):
            return _goals(arg)
        case And(left, right) | Or(left, right):
            return [*_goals(left), *_goals(right)]
        case _:
            return []


def _regret_goals(formula: Regret, offset: int) -> tuple[Goal, Goal]:
    """Return the goal under the nominal policy and under the alternative, both at `offset`."""

    def under(change: InterventionRef) -> Goal:
        return Goal(WorldRef(change, None, offset), formula.goal.measure, formula.goal.test)

    return under(NOMINAL), under(formula.world.change)


def _all_goals(formula: Formula) -> list[Goal]:
    return list(_regret_goals(formula, 0)) if isinstance(formula, Regret) else _goals(formula)


def _holds(goal: Goal, value: float) -> bool | None:
    return None if goal.test is None else goal.test.holds(value)


def _at_worst(goal: Goal, value: float, extremes: Band | None) -> bool:
    """Return whether a value and both of its extremes meet a goal."""
    return all(_holds(goal, each) for each in (value, *(extremes or ())))


def _difference(one: Band | None, other: Band | None) -> Band | None:
    """Return the band of all differences between a value in `one` and a value in `other`."""
    return None if one is None or other is None else (one[0] - other[1], one[1] - other[0])


def _truths(quantity: Quantity) -> Truths:
    return EITHER if quantity.robust is False else _known(quantity)


def _known(quantity: Quantity) -> Truths:
    return EITHER if quantity.holds is None else frozenset({quantity.holds})


def _outcome(nominal: bool | None, alternative: bool | None) -> Outcome:  # noqa: FBT001 - truth values, None: unknown
    if nominal:
        return "safe"
    if nominal is None or alternative is None:
        return "undecided"
    return "regret" if alternative else "unavoidable"
