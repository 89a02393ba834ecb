"""Numbers of a verdict, with the same meaning in alerts, metrics, the status page and the terminal.

The value is the agent's own: the value of its policy from the queried step on. The value of the other policy is the
alternative. `Stance` decides which differences between two verdicts make a new revision of a firing alarm.
"""

from __future__ import annotations

import math
from typing import Final

import msgspec

from monitor.alarm.blindness import advises
from monitor.alarm.verdict_cache import VerdictCache
from monitor.logic.printer import print_change, print_formula
from monitor.logic.syntax import Formula, Goal, InterventionRef, Regret, Reward, Test, WorldRef
from monitor.logic.traversal import goals, handover_goal
from monitor.types.alerts import AlarmState, Alternative, Figures, Fired, Handover, Threshold
from monitor.types.notices import Judged
from monitor.types.specs import AlarmSpec
from monitor.types.stream_events import BlindReason
from monitor.types.verdicts import NO_EXTREMES, Outcome, Quantity, Verdict

SAME: Final = 1e-9
"""Difference up to which the two extremes of a value count as equal."""
MATTERS: Final = 0.01
"""If at least this fraction of a value rests on rarely or never recorded pairs, alerts mention its support."""
ANY: Final = -math.inf, math.inf
"""Extremes of an unknown value."""
Number = tuple[float | None, tuple[float, float] | None]
"""A value and its bounds."""
_figures: Final[VerdictCache[Figures]] = VerdictCache()
_stances: Final[VerdictCache[Stance]] = VerdictCache()


def figures_of(
    formula: Formula, verdict: Verdict, *, state: AlarmState = "firing", blind: BlindReason | None = None
) -> Figures:
    """Return the numbers of a verdict on `formula`, for an alarm in `state` with blind reason `blind`.

    There is advice (`handover`) only for a firing alarm, and only if the intervention is a policy or an action.
    Decisions made for the goal give no advice.
    """
    return _figures.get(lambda: _made(formula, verdict, state, blind), verdict, formula, state, blind)


def _made(formula: Formula, verdict: Verdict, state: AlarmState, blind: BlindReason | None) -> Figures:
    value, bounds = own(verdict)
    change = advised_change(formula)
    given = state == "firing" and change is not None and not change.decides
    handover = _advice(formula, verdict, blind) if given else None
    quantity = own_quantity(verdict)
    extremes = None if quantity is None else quantity.extremes
    return Figures(value, bounds, threshold_of(formula), _alternative(formula, verdict), handover, extremes)


def own(verdict: Verdict) -> Number:
    """Return the agent's own value and its bounds: for `regret(...)` the value under nominal, else the only quantity.

    Both are None if a formula has several quantities, or if unrecorded pairs leave the value open.
    """
    if verdict.value is not None:
        open_ = any(is_open(quantity.extremes) for quantity in verdict.quantities)
        return (None, None) if open_ else (verdict.value, verdict.bounds)
    asked = 1 if verdict.outcome is None else 2
    return _quantity(verdict, 0) if len(verdict.quantities) == asked else (None, None)


def other(verdict: Verdict) -> Number:
    """Return the value under the alternative of `regret(...)` and its bounds; None for every other formula."""
    return _quantity(verdict, 1) if verdict.outcome is not None and len(verdict.quantities) == 2 else (None, None)


def own_quantity(verdict: Verdict) -> Quantity | None:
    """Return the quantity of the agent's own value, with its bands; None if a formula has several."""
    if len(verdict.quantities) != (1 if verdict.outcome is None else 2):
        return None
    return verdict.quantities[0]


def other_quantity(verdict: Verdict) -> Quantity | None:
    """Return the quantity of the alternative's value.

    For a plain formula this is its only quantity; None if it has several.
    """
    return verdict.quantities[-1] if own_quantity(verdict) is not None else None


def effect_of(verdict: Verdict) -> float | None:
    """Return the effect of a regret verdict; None for every other verdict, and if one of the two values is open."""
    return None if any(is_open(quantity.extremes) for quantity in verdict.quantities) else verdict.effect


def is_open(extremes: tuple[float, float] | None) -> bool:
    """Return whether unrecorded pairs, or causal models, leave a value open, so that it is known as an interval."""
    return extremes is not None and extremes[1] - extremes[0] > SAME


def threshold_of(formula: Formula) -> Threshold | None:
    """Return the threshold of the value; None for `=?`, or if the formula has several goals."""
    match formula:
        case Regret():
            test = formula.goal.test
        case Goal():
            test = formula.test
        case _:
            tests = {print_formula(goal): goal.test for goal, _, _ in goals(formula)}
            test = next(iter(tests.values())) if len(tests) == 1 else None
    return None if test is None else Threshold(test.comparison, test.bound)


def low_is_worse(formula: Formula, alarm: AlarmSpec) -> bool:
    """Return whether the lower of two values of a formula is the worse one for its alarm."""
    threshold = threshold_of(formula)
    return (threshold is None or threshold.comparison in (">", ">=")) != (alarm.fires_while == "holds")


def handover_of(formula: Formula, verdict: Verdict) -> Handover | None:
    """Return whether following the advice at the newest step would help; None if the formula advises nothing."""
    change = advised_change(formula)
    if change is None:
        return None
    if effect_of_now(formula):
        known = verdict.method == "exact"
        helps, useful = (verdict.holds if known else None), (0 if known and verdict.holds else None)
    else:
        helps, useful = _helps_now(formula, verdict), verdict.latest_useful
    given = given_now(formula, verdict)
    if helps is None and (in_doubt(formula, verdict) or (given is not None and not verdict.profile_extremes)):
        useful = None  # unknown for earlier steps too
    credible = None if verdict.credible_now is None else verdict.credible_now[2:]
    return Handover(print_change(change), helps, useful, None if given == ANY else given, credible)


def given_now(formula: Formula, verdict: Verdict) -> tuple[float, float] | None:
    """Return the least and the greatest value of handing over now, over all outcomes of unrecorded pairs.

    None if all pairs are recorded.

    In a world with numbers, the extremes are not sampled. They are the value minus and plus the fraction of the
    alternative's samples that leave the recorded range. For a reward they are `ANY`, because such samples may change a
    reward without limit.
    """
    if verdict.profile_extremes:
        return verdict.profile_extremes[0][2:]
    quantity = other_quantity(verdict)
    if 0 not in verdict.profile or quantity is None or quantity.rests_on is None or not extrapolates(quantity):
        return None
    if isinstance(formula, Regret) and isinstance(formula.goal.measure, Reward):
        return ANY
    value, beyond = verdict.profile[0][1], quantity.rests_on.never
    return max(value - beyond, 0.0), min(value + beyond, 1.0)


def extrapolates(quantity: Quantity) -> bool:
    """Return whether a value in a world with numbers depends on unrecorded steps.

    Such a value may be wrong without a sign.
    """
    basis = quantity.rests_on
    return basis is not None and basis.rare is None and basis.never >= MATTERS


def _helps_now(formula: Formula, verdict: Verdict) -> bool | None:
    """Return whether handing over now meets the goal while carrying on may not; None if this is unknown."""
    if 0 not in verdict.profile or (verdict.bands is not None and NO_EXTREMES in verdict.bands.reason):
        return None
    test, given = _test(formula), given_now(formula, verdict)
    suffices = set() if given is None or test is None else {test.holds(value) for value in given}
    if verdict.latest_useful == 0 and len(suffices) <= 1:
        return True
    if in_doubt(formula, verdict):
        return None
    return None if len(suffices) > 1 and not needless(formula, verdict) else False


def needless(formula: Formula, verdict: Verdict) -> bool:
    """Return whether carrying on from now on meets the goal for all outcomes of unrecorded pairs."""
    test = _test(formula)
    if test is None or 0 not in verdict.profile:
        return False
    own = verdict.profile_extremes[0][:2] if verdict.profile_extremes else verdict.profile[0][:1]
    return all(test.holds(value) for value in own)


def missed_now(formula: Formula, verdict: Verdict) -> float | None:
    """Return the value of carrying on from now on, if a `regret` that looks back is missed from now on too.

    None if it is not missed from now on, if the formula advises nothing from now on, or if the value is not exactly
    known.
    """
    test = _test(formula)
    if not isinstance(formula, Regret) or advised_change(formula) is None or test is None:
        return None
    if verdict.offset == 0 or 0 not in verdict.profile:
        return None
    if verdict.method != "exact" or verdict.bands is not None or verdict.profile_extremes:
        return None
    value, (asked, bounds) = verdict.profile[0][0], own(verdict)
    if asked is None or is_open(bounds):  # the value of a goal that looks back has bounds, even from now on
        return None
    return None if test.holds(asked) or test.holds(value) else value


def in_doubt(formula: Formula, verdict: Verdict) -> bool:
    """Return whether a learned model is unreliable when it says that handing over now is useless.

    Its estimate is then that carrying on meets the goal, or that handing over misses it. It is unreliable if the
    credible band does not exclude the opposite, or if there is a reason to doubt the model (`bands.doubt`).
    """
    test = _test(formula)
    if test is None or verdict.bands is None or 0 not in verdict.profile:
        return False
    if verdict.bands.doubt:
        return True
    fine = needless(formula, verdict)
    if verdict.credible_now is None:
        return False
    band = verdict.credible_now[:2] if fine else verdict.credible_now[2:]
    return any(test.holds(value) is not fine for value in band)


def _test(formula: Formula) -> Test | None:
    """Return the test with which the values of carrying on and of handing over now are compared."""
    goal = formula.goal if isinstance(formula, Regret) else handover_goal(formula)
    return None if goal is None else goal.test


def effect_of_now(formula: Formula) -> bool:
    """Return whether a formula compares the effect of handing over now: `delta(fallback,nominal)@0.P>=0.1 [..]`."""
    match formula:
        case Goal(WorldRef(InterventionRef("policy" | "action"), InterventionRef("nominal"), 0), _, Test()):
            return True
        case _:
            return False


def change_of(formula: Formula) -> InterventionRef | None:
    """Return the intervention that a regret formula compares with nominal; None for every other formula."""
    return formula.world.change if isinstance(formula, Regret) else None


def advised_change(formula: Formula) -> InterventionRef | None:
    """Return the policy or action to which a formula suggests to hand over, or the decisions that it suggests.

    It is the intervention of `regret`, of `handover`, or of the effect of handing over now; None for every other
    formula. From now on, no noise is known, so the best decisions are those of the optimal policy. For this reason,
    `best` is advice too. `best[k]` and `best[<=k]` are no advice, because they do not say what to do now and later.
    `max` and `min` are no advice either, because their direction may differ from the goal's.
    """
    goal = handover_goal(formula)
    if goal is not None:
        return goal.world.change
    if isinstance(formula, Goal) and effect_of_now(formula):
        return formula.world.change
    change = change_of(formula)
    if change is None or change.kind == "model":
        return None
    if change.decides and (change.name in ("max", "min") or (change.steps, change.limit) != (None, None)):
        return None
    return change


def fired_of(figures: Figures, judged: Judged) -> Fired:
    """Return the figures of the verdict that fires an alarm; they are kept until the alarm closes."""
    return Fired(judged.verdict.outcome, figures.value, figures.alternative, judged.seq, judged.time)


class Stance(msgspec.Struct, frozen=True):
    """The part of a verdict whose change makes a new revision of a firing alarm. `holds`: None for `regret`."""

    outcome: Outcome | None
    holds: bool | None
    helps_now: bool | None
    robust: bool | None
    value: float | None

    def differs(self, before: Stance, step: float) -> bool:
        """Return whether the answer or the advice differs from `before`, or the value by more than `step`."""
        if (self.outcome, self.holds, self.helps_now, self.robust) != (
            before.outcome,
            before.holds,
            before.helps_now,
            before.robust,
        ):
            return True
        if self.value is None or before.value is None:
            return self.value is not before.value
        return not math.isclose(self.value, before.value, rel_tol=0.0, abs_tol=step)


def stance_of(formula: Formula, verdict: Verdict, blind: BlindReason | None) -> Stance:
    """Return the stance of a verdict, for a firing alarm with blind reason `blind`."""
    return _stances.get(lambda: _stance(formula, verdict, blind), verdict, formula, blind)


def _stance(formula: Formula, verdict: Verdict, blind: BlindReason | None) -> Stance:
    handover = _advice(formula, verdict, blind)
    helps = None if handover is None else handover.helps_now
    return Stance(verdict.outcome, verdict.holds, helps, verdict.robust, own(verdict)[0])


def _advice(formula: Formula, verdict: Verdict, blind: BlindReason | None) -> Handover | None:
    """Return the advice of a firing alarm. While the formula is blind, it is unknown whether handing over helps.

    A rejected model is believed only if it says that handing over helps, because handing over is the safe choice.
    """
    handover = handover_of(formula, verdict)
    if handover is not None and blind is not None and advises(blind) and handover.helps_now is False:
        return Handover(handover.policy, None, None, handover.extremes, handover.credible_now)
    if handover is not None and not advises(blind):
        return Handover(handover.policy, None, None)
    return handover


def _quantity(verdict: Verdict, n: int) -> Number:
    quantity = verdict.quantities[n]
    return (None, None) if is_open(quantity.extremes) else (quantity.value, quantity.bounds)


def _alternative(formula: Formula, verdict: Verdict) -> Alternative | None:
    change = change_of(formula)
    if change is None:
        return None
    value, bounds = other(verdict)
    extremes = verdict.quantities[1].extremes if len(verdict.quantities) == 2 else None
    return Alternative(print_change(change), value, bounds, extremes)
