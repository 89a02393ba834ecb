"""Verdicts: the result of one formula on one observed path, with all numbers that lead to the result."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import assert_never

import msgspec

from monitor.errors import LimitError
from monitor.exact.evaluators import Evaluators
from monitor.exact.extremes import Both, Extremes
from monitor.exact.path_values import PathValues
from monitor.logic import Formula, print_formula
from monitor.logic.comparison import passes
from monitor.logic.syntax import (
    NOMINAL,
    And,
    Const,
    Goal,
    InterventionRef,
    Label,
    Measure,
    Not,
    Or,
    Regret,
    Temporal,
    Test,
)
from monitor.logic.traversal import asks_back, goals, handover_goal, regret_goals
from monitor.types.specs import CausalModel
from monitor.types.stream_events import PathPairs
from monitor.types.verdicts import UNRECORDED, Band, Bands, Outcome, ProfileExtremes, Quantity, Verdict

__all__ = ["IncrementalCheck", "PathPairs", "is_missed", "latest_useful", "regret_outcome", "resolve"]


NO_GUARANTEE = (
    "no guaranteed band: quantities are nested, decisions are made for the goal, rewards of a transition vary, or the "
    "episode has ended in a state that is not absorbing in the model"
)


@dataclass(eq=False)
class _Answer:
    """Value of a goal at the offset used; bounds, guaranteed band and extremes of the value, if there are any."""

    value: float
    offset: int
    clipped: bool
    bounds: Band | None
    guaranteed: Band | None
    extremes: Band | None


@dataclass(eq=False)
class _Truth:
    """A truth value with its range, where False < True.

    `surely`, `possibly`: the least and the greatest truth over the extremes. `least`, `greatest`: the same over the
    extremes and the widest band.
    """

    surely: bool
    possibly: bool
    least: bool
    greatest: bool

    def holds(self) -> bool | None:
        """Return the truth; None if it depends on something that was never recorded."""
        return self.surely if self.surely == self.possibly else None


class _Question:
    """The parts of a goal that is not nested in another goal, and its text."""

    def __init__(self, goal: Goal) -> None:
        world = goal.world
        self.text, self.measure, self.test = print_formula(goal), goal.measure, goal.test
        self.change, self.baseline, self.offset = world.change, world.baseline, world.offset


class IncrementalCheck:
    """Check of a formula that is repeated while a path grows.

    Args:
        evaluators: the evaluators of the model and its policies.
        formula: a validated formula.
        causal_model: the class of causal models for bounds; `gumbel` means no bounds.
        text: the formula as its user wrote it.
        window: largest number of pairs of a path; if 0, nothing is kept from one verdict to the next.
        path_values: the values along a path that does not consist of states; None for a path of states.
        extremes: the extremes of the values in `path_values`; None if nothing unknown can be reached.
    """

    def __init__(  # noqa: PLR0917
        self,
        evaluators: Evaluators,
        formula: Formula,
        causal_model: CausalModel,
        text: str,
        window: int,
        path_values: PathValues | None = None,
        extremes: Extremes | None = None,
    ) -> None:
        self.evaluators, self.formula, self.causal_model, self.text = evaluators, formula, causal_model, text
        self.path_values = path_values or PathValues(evaluators, formula, window)
        self._extremes = extremes if path_values else _extremes(evaluators, formula, window)
        self.path: PathPairs = ()
        self.quantities: dict[str, Quantity] = {}
        """Keyed by text, because `<=>` contains each of its sides twice."""
        self._guarantees = causal_model == "any" and evaluators.learned
        self._due, self._refused = False, ""
        self._from_start = any(offset < 0 for _, _, offset in goals(formula))
        self._questions = {id(goal): _Question(goal) for goal, _, _ in goals(formula)}
        self._handover = handover_goal(formula)
        if isinstance(formula, Regret):
            self._regret_texts = [print_formula(goal) for goal in regret_goals(formula)]

    def verdict(
        self,
        path: PathPairs,
        added: int | None = None,
        terminated: bool = False,  # noqa: FBT001, FBT002 - a C function
        start_observed: bool = True,  # noqa: FBT001, FBT002
        acted: Sequence[str] = (),
    ) -> Verdict:
        """Return the verdict on a path (oldest pair first).

        Args:
            path: pairs (state, action); the last action may be None, not yet taken.
            added: number of pairs added to the end of the path since the last call; None if this is another path.
            terminated: whether the episode has ended in the last state, which is absorbing from then on.
            start_observed: whether the first pair is the episode's first step.
            acted: names of the policies that acted at the pairs; empty if the nominal policy acted at all of them.
        """
        self.path, self.quantities, self._refused = path, {}, ""
        self._length = len(path)
        self._due = False
        self.start_dropped = self._from_start and not start_observed
        end = path[self._length - 1][0] if terminated else None
        new = self._length if added is None else added
        self.path_values.advance(path, new, end, acted)
        if self._extremes is not None:
            self._extremes.advance(path, new, end, acted)
        if isinstance(self.formula, Regret):
            return self.regret(self.formula)
        verdict = self.plain(self.formula)
        return verdict if self._handover is None else self._advised(verdict, self._handover)

    def plain(self, formula: Formula) -> Verdict:
        """Return the verdict of any formula except `regret`. The verdict has the offset of the last quantity."""
        if isinstance(formula, Goal) and formula.test is None:
            return self._value_verdict(formula)
        truth = self._truth(formula)
        holds, quantities, clipped = truth.holds(), tuple(self.quantities.values()), False
        for quantity in quantities:
            clipped = clipped or quantity.clipped
        robust = None if self.causal_model == "gumbel" or self._refused else truth.least == truth.greatest
        offset = quantities[len(quantities) - 1].offset if quantities else 0
        return self._plain(quantities, None, holds, robust, offset, clipped)

    def _plain(  # noqa: PLR0917
        self,
        quantities: tuple[Quantity, ...],
        value: float | None,
        holds: bool | None,  # noqa: FBT001
        robust: bool | None,  # noqa: FBT001
        offset: int,
        clipped: bool,  # noqa: FBT001
    ) -> Verdict:
        """Return the verdict of a formula other than `regret`.

        Arguments are positional, also for `Quantity`, because keyword arguments would make each new verdict a fifth
        slower. mypy checks the order.
        """
        only = quantities[0] if len(quantities) == 1 else None
        return Verdict(
            self.text,
            "exact",
            self.causal_model,
            quantities,
            value,
            holds,
            None,  # outcome
            None if only is None else only.bounds,
            robust,
            None,  # effect
            None,  # effect_bounds
            {},  # profile
            None,  # latest_useful
            offset,
            clipped,
            self.start_dropped,
            UNRECORDED if value is None and holds is None else "",
            None,  # drawn
            None,  # credible
            None if only is None else only.guaranteed,
            None,  # effect_credible
            None,  # effect_guaranteed
            None,  # support
            (),  # to_visit
            self._bands(quantities),
        )

    def regret(self, formula: Regret) -> Verdict:
        """Return the verdict of `regret` (docs/semantics/regret.md, section 8)."""
        measure, test, change = formula.goal.measure, formula.goal.test, formula.world.change
        assert test is not None
        used, position, clipped = resolve(formula.world.offset, self._length)
        offset = self._length - 1 - position
        nominals = self.path_values.profile(NOMINAL, measure)[: offset + 1]
        alternatives = self.path_values.profile(change, measure)[: offset + 1]
        nominal, alternative = nominals[offset], alternatives[offset]
        one = self._in_world(NOMINAL, position, measure, nominal, used, clipped)
        other = self._in_world(change, position, measure, alternative, used, clipped)
        met = self._compared(self._regret_texts[0], test, one)
        meets = self._compared(self._regret_texts[1], test, other)
        outcome = regret_outcome(met.holds(), meets.holds())
        ends = self._extreme_profile(change, measure, offset + 1)
        robust: bool | None = None
        if self.causal_model != "gumbel" and not self._refused:
            possible = {regret_outcome(n, a) for n in (met.least, met.greatest) for a in (meets.least, meets.greatest)}
            robust = len(possible) == 1
        return Verdict(
            self.text,
            "exact",
            self.causal_model,
            tuple(self.quantities.values()),
            outcome=outcome,
            reason=UNRECORDED if outcome == "undecided" else "",
            bounds=other.bounds,
            robust=robust,
            effect=alternative - nominal,
            effect_bounds=_difference(other.bounds, one.bounds),
            profile=dict(enumerate(zip(nominals, alternatives, strict=True))),
            profile_extremes=ends,
            latest_useful=latest_useful(test, *_at_worst(test, ends, nominals, alternatives)),
            offset=used,
            clipped=clipped,
            start_dropped=self.start_dropped,
            guaranteed=other.guaranteed,
            effect_guaranteed=_difference(other.guaranteed, one.guaranteed),
            bands=self._bands(self.quantities.values()),
        )

    def _advised(self, verdict: Verdict, goal: Goal) -> Verdict:
        """Add to the verdict of `handover` the current values of its goal, without and with handing over.

        See docs/semantics/regret.md, section 8.4.
        """
        measure, test = goal.measure, goal.test
        assert test is not None
        nominal, given = (self.path_values.profile(change, measure)[0] for change in (NOMINAL, goal.world.change))
        ends = self._extreme_profile(goal.world.change, measure, 1)
        _, at_worst = _at_worst(test, ends, [nominal], [given])
        useful = 0 if test.holds(at_worst[0]) else None
        return msgspec.structs.replace(
            verdict, profile={0: (nominal, given)}, profile_extremes=ends, latest_useful=useful
        )

    def _extreme_profile(self, change: InterventionRef, measure: Measure, count: int) -> ProfileExtremes:
        """Return the extremes at offsets 0, 1, ..., under nominal and an intervention; empty without extremes."""
        if self._extremes is None:
            return ()
        nominals, others = (self._extremes.profile(each, measure)[:count] for each in (NOMINAL, change))
        return tuple((*nominal, *other) for nominal, other in zip(nominals, others, strict=True))

    def _value_verdict(self, goal: Goal) -> Verdict:
        """Return the verdict of a `=?` goal, which is a number."""
        answer = self._answer(self._questions[id(goal)])
        quantity = Quantity(
            self.text,
            answer.value,
            answer.offset,
            answer.clipped,
            answer.bounds,
            guaranteed=answer.guaranteed,
            extremes=answer.extremes,
        )
        return self._plain((quantity,), answer.value, None, None, answer.offset, answer.clipped)

    def _truth(self, formula: Formula) -> _Truth:
        match formula:
            case Goal():
                question = self._questions[id(formula)]
                assert question.test is not None
                return self._compared(question.text, question.test, self._answer(question))
            case Const(value):
                return _Truth(value, value, value, value)
            case Label(name):
                state, models = self.path[self._length - 1][0], [self.evaluators.model]
                models += [side.model for side in self.evaluators.sides or ()]
                truths = [bool(model.labels[name][state]) for model in models]
                surely, possibly = all(truths), any(truths)
                return _Truth(surely, possibly, surely, possibly)
            case Not(arg):
                truth = self._truth(arg)
                return _Truth(not truth.possibly, not truth.surely, not truth.greatest, not truth.least)
            case And(left, right) | Or(left, right):
                one, other = self._truth(left), self._truth(right)
                if isinstance(formula, And):
                    return _Truth(
                        one.surely and other.surely,
                        one.possibly and other.possibly,
                        one.least and other.least,
                        one.greatest and other.greatest,
                    )
                return _Truth(
                    one.surely or other.surely,
                    one.possibly or other.possibly,
                    one.least or other.least,
                    one.greatest or other.greatest,
                )
            case Temporal() | Regret():
                raise AssertionError("the parser keeps these out of Boolean combinations")
            case _:
                assert_never(formula)

    def _compared(self, text: str, test: Test, answer: _Answer) -> _Truth:
        """Return the truth of a comparison of an answer with its threshold, and add the answer to the quantities."""
        widest = answer.guaranteed if self._guarantees else answer.bounds
        surely, possibly = _over(test, answer.value, answer.extremes)
        least, greatest = _over(test, answer.value, widest)
        truth = _Truth(surely, possibly, least and surely, greatest or possibly)
        if text not in self.quantities:
            self.quantities[text] = Quantity(
                text,
                answer.value,
                answer.offset,
                answer.clipped,
                answer.bounds,
                test.bound,
                truth.holds(),
                None if widest is None else truth.least == truth.greatest,
                0,  # samples
                None,  # confidence
                None,  # credible
                answer.guaranteed,
                answer.extremes,
            )
        return truth

    def _answer(self, question: _Question) -> _Answer:
        used, position, clipped = resolve(question.offset, self._length)
        value = self.path_values.value(question.change, question.measure, position)
        answer = self._in_world(question.change, position, question.measure, value, used, clipped)
        if question.baseline is None:
            return answer
        base = self.path_values.value(question.baseline, question.measure, position)
        other = self._in_world(question.baseline, position, question.measure, base, used, clipped)
        return _Answer(
            value - base,
            used,
            clipped,
            _difference(answer.bounds, other.bounds),
            _difference(answer.guaranteed, other.guaranteed),
            _difference(answer.extremes, other.extremes),
        )

    def _in_world(  # noqa: PLR0917
        self,
        change: InterventionRef,
        position: int,
        measure: Measure,
        value: float,
        used: int,
        clipped: bool,  # noqa: FBT001
    ) -> _Answer:
        """Return a value with its bands. `used`: the offset used; `clipped`: whether it was clipped."""
        bounds = self._bounds(change, position, measure, value)
        guaranteed = self._guaranteed(change, position, measure, bounds) if self._guarantees else None
        extremes = None if self._extremes is None else self._extremes.value(change, measure, position)
        return _Answer(value, used, clipped, bounds, guaranteed, extremes)

    def _guaranteed(self, change: InterventionRef, position: int, measure: Measure, bounds: Band | None) -> Band | None:
        """Return the guaranteed band, or None. If a band was due but is missing, the reason is recorded.

        `bounds`: the bounds with the estimated rows. They are guaranteed if the world has no estimated rows.
        """
        self._due = True
        if not self.evaluators.learned_under(change):
            return bounds
        try:
            unknown = None if self.evaluators.knows_labels else self._extremes
            band = (unknown or self.path_values).guaranteed(change, measure, position)
        except LimitError as error:
            self._refused = f"no guaranteed band: {error}"
            return None
        if band is None:
            self._refused = self._refused or NO_GUARANTEE
        return band

    def _bands(self, quantities: Iterable[Quantity]) -> Bands | None:
        """Return the delta of guaranteed bands, and why bands or extremes are missing; None if neither applies."""
        if not self._due and self._extremes is None:
            return None
        no_extremes = "" if self._extremes is None else self._extremes.reason
        reason = "; ".join(part for part in (self._refused, no_extremes) if part)
        if not self._due:
            return Bands(reason=reason) if reason else None
        some = any(quantity.guaranteed is not None for quantity in quantities)
        return Bands(delta=self.evaluators.delta if some else None, reason=reason)

    def _bounds(self, change: InterventionRef, position: int, measure: Measure, value: float) -> Band | None:
        if self.causal_model == "gumbel":
            return None
        if change.kind == "nominal" and not asks_back(measure):
            return value, value  # without nested quantities, nominal replays the observed path in every causal model
        return self.path_values.bounds(change, measure, position, self.causal_model)


def _extremes(evaluators: Evaluators, formula: Formula, window: int) -> Extremes | None:
    """Return the extremes along a path of states; None if no row leads to anything that was never recorded."""
    sides = evaluators.sides
    if sides is None:
        return None
    return Extremes(lambda split: Both(*(PathValues(side, split, window) for side in sides)), formula)


def is_missed(verdict: Verdict) -> bool:
    """Return whether a verdict is about a missed goal, that is, its outcome is `regret` or `unavoidable`."""
    return verdict.outcome in ("regret", "unavoidable")


def _difference(one: Band | None, other: Band | None) -> Band | None:
    """Return the band of all differences between a value in `one` and a value in `other`; None if a band is missing."""
    return None if one is None or other is None else (one[0] - other[1], one[1] - other[0])


def _over(test: Test, value: float, band: Band | None) -> tuple[bool, bool]:
    """Return the least and the greatest truth of a comparison, over a value and both ends of a band."""
    comparison, bound = test.comparison, test.bound
    least = greatest = passes(value, comparison, bound)
    if band is not None:
        for end in band:
            truth = passes(end, comparison, bound)
            least, greatest = least and truth, greatest or truth
    return least, greatest


def regret_outcome(nominal: bool | None, alternative: bool | None) -> Outcome:  # noqa: FBT001 - two truths
    """Return the outcome of `regret` from the truth of the goal in both worlds; a truth of None is unknown."""
    if nominal:
        return "safe"
    if nominal is None or alternative is None:
        return "undecided"
    return "regret" if alternative else "unavoidable"


def _at_worst(
    test: Test, ends: ProfileExtremes, nominals: list[float], alternatives: list[float]
) -> tuple[list[float], list[float]]:
    """Return the values of a profile at the extreme that is worst for a comparison."""
    if not ends:
        return nominals, alternatives
    side = int(test.comparison in ("<", "<="))
    return [each[side] for each in ends], [each[2 + side] for each in ends]


def latest_useful(test: Test, nominals: list[float], alternatives: list[float]) -> int | None:
    """Return the smallest offset at which only the alternative meets the goal; None if there is no such offset.

    The lists begin at offset 0.
    """
    worst = min if test.comparison in (">=", ">") else max
    if test.holds(worst(nominals)):
        return None  # the common case: if the worst value passes, all values pass
    for offset, (nominal, alternative) in enumerate(zip(nominals, alternatives, strict=True)):
        if test.holds(alternative) and not test.holds(nominal):
            return offset
    return None


def resolve(offset: int, length: int) -> tuple[int, int, bool]:
    """Return the offset used on a path of `length` pairs, its position from 0, and whether it was clipped.

    See docs/semantics/worlds.md, section 1.4.
    """
    last = length - 1
    used = max(-last, min(offset, last))
    position = last - used if used >= 0 else -used - 1
    return used, position, used != offset
