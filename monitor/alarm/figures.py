"""What a verdict says in numbers: one meaning for alerts, metrics, the status page and the terminal.

The value is the agent's own: what its policy gives from the step asked about on. What the other policy would have given
stands beside it as the alternative. What of all this is worth a new revision of a firing alarm is decided here too.
"""

from __future__ import annotations

import math

import msgspec

from monitor.logic.printer import print_change, print_formula
from monitor.logic.syntax import Change, Formula, Regret
from monitor.logic.traversal import goals
from monitor.types import (
    AlarmState,
    Alternative,
    BlindReason,
    Figures,
    Fired,
    Handover,
    Judged,
    Outcome,
    Threshold,
    Verdict,
)

__all__ = ["Stance", "change_of", "figures_of", "fired_of", "handover_of", "other", "own", "stance_of", "threshold_of"]

Number = tuple[float | None, tuple[float, float] | None]
"""A value and its bounds."""


def figures_of(
    formula: Formula, verdict: Verdict, *, state: AlarmState = "firing", blind: BlindReason | None = None
) -> Figures:
    """Return what `verdict`, given on `formula`, says in numbers, for an alarm in `state` that is `blind`.

    Only a firing alarm advises; a doubted model still answers.
    """
    value, bounds = own(verdict)
    handover = _advice(formula, verdict, blind) if state == "firing" else None
    return Figures(value, bounds, threshold_of(formula), _alternative(formula, verdict), handover)


def own(verdict: Verdict) -> Number:
    """Return the agent's own value and its bounds: of `regret(...)` under nominal, else of the one quantity there is.

    Both are None where a formula has several quantities: none of them is its value.
    """
    if verdict.value is not None:
        return verdict.value, verdict.bounds
    asked = 1 if verdict.outcome is None else 2
    return _quantity(verdict, 0) if len(verdict.quantities) == asked else (None, None)


def other(verdict: Verdict) -> Number:
    """Return the value under the alternative of `regret(...)` and its bounds; None for every other formula."""
    return _quantity(verdict, 1) if verdict.outcome is not None and len(verdict.quantities) == 2 else (None, None)


def threshold_of(formula: Formula) -> Threshold | None:
    """Return what the value is compared with; None for `=?` and where several quantities are."""
    tests = {print_formula(goal): goal.test for goal, _, _ in goals(formula)}
    test = next(iter(tests.values())) if len(tests) == 1 else None
    return None if test is None else Threshold(test.comparison, test.bound)


def handover_of(formula: Formula, verdict: Verdict) -> Handover | None:
    """Return what handing over would do, seen from the newest step; None where there is nothing to hand over to."""
    change = change_of(formula)
    if change is None or change.kind == "model":
        return None
    helps = None if 0 not in verdict.profile else verdict.latest_useful == 0
    return Handover(print_change(change), helps, verdict.latest_useful)


def change_of(formula: Formula) -> Change | None:
    """Return what a regret formula compares with nominal; None for every other formula."""
    return formula.world.change if isinstance(formula, Regret) else None


def fired_of(figures: Figures, judged: Judged) -> Fired:
    """Return what is remembered of the verdict on which an alarm fires."""
    return Fired(judged.verdict.outcome, figures.value, figures.alternative, judged.seq, judged.time)


class Stance(msgspec.Struct, frozen=True):
    """What of a verdict makes a new revision of a firing alarm when it changes; `holds` stands for plain formulas."""

    outcome: Outcome | None
    holds: bool | None
    helps_now: bool | None
    robust: bool | None
    value: float | None

    def differs(self, before: Stance, step: float) -> bool:
        """Return whether this is news after `before`: another answer or advice, or a value more than `step` away."""
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
    """Return the stance that the alert of a firing alarm takes on this verdict."""
    handover = _advice(formula, verdict, blind)
    helps = None if handover is None else handover.helps_now
    return Stance(verdict.outcome, verdict.holds, helps, verdict.robust, own(verdict)[0])


def _advice(formula: Formula, verdict: Verdict, blind: BlindReason | None) -> Handover | None:
    """What a firing alarm advises. While it is blind nobody knows what handing over would do now."""
    handover = handover_of(formula, verdict)
    if handover is not None and blind not in (None, "model_doubt"):
        return Handover(handover.policy, None, None)
    return handover


def _quantity(verdict: Verdict, n: int) -> Number:
    quantity = verdict.quantities[n]
    return quantity.value, quantity.bounds


def _alternative(formula: Formula, verdict: Verdict) -> Alternative | None:
    change = change_of(formula)
    if change is None:
        return None
    value, bounds = other(verdict)
    return Alternative(print_change(change), value, bounds)
