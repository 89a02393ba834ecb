"""How a takeover is judged: by which formula, with which outcomes, and in which words.

The formula is a conjunction of two goals, both from the takeover's first step on. The first is the goal on the actual
path. The second is the goal under the deployed policy (docs/semantics/regret.md, section 8.5).
"""

from __future__ import annotations

from typing import Final

from monitor.alarm.phrases import NEEDED, decimals
from monitor.logic import parse
from monitor.logic.syntax import NOMINAL, And, Goal, InterventionRef, WorldRef
from monitor.types.notices import TakenOver, TakeoverOutcome
from monitor.types.verdicts import Verdict

_OUTCOMES: Final[dict[tuple[bool | None, bool | None], TakeoverOutcome]] = {
    (True, False): "needed",
    (True, True): "needless",
    (False, True): "harmful",
    (False, False): "futile",
}
"""(Whether the goal was met, whether the deployed policy would have met it) -> outcome."""


def takeover_formula(goal: Goal, deployed: str, since: int) -> And:
    """Return the formula whose quantities are the observed outcome and the outcome under the deployed policy.

    `goal`: goal whose measure and test are used; its world is ignored. `deployed`: a name of the deployed policy.
    `since`: number of transitions observed since the takeover.
    """
    changes = NOMINAL, InterventionRef("policy", deployed)
    happened, gone_on = (Goal(WorldRef(change, None, since), goal.measure, goal.test) for change in changes)
    return And(happened, gone_on)


def outcome_of(verdict: Verdict) -> TakeoverOutcome:
    """Return the outcome of a takeover from the verdict on its formula."""
    holds = [quantity.holds for quantity in verdict.quantities]
    return _OUTCOMES.get((holds[0], holds[1]), "undecided") if len(holds) == 2 else "undecided"


def takeover_text(notice: TakenOver) -> str:
    """Return a judged takeover as a sentence."""
    begins = f"{notice.agent}: the takeover by {notice.policy!r} at step {notice.first_seq} of {notice.episode!r}"
    if notice.verdict is None:
        return f"{begins} is not judged by {notice.formula}: {notice.reason}"
    happened, gone_on = notice.verdict.quantities
    fact = "met" if happened.holds else "missed"
    would = "met" if gone_on.holds else "missed"
    formula = parse(notice.verdict.formula)
    test = formula.right.test if isinstance(formula, And) and isinstance(formula.right, Goal) else None
    assert test is not None, "a takeover is judged by a bound"
    value, bound = decimals(gone_on.value, test.bound)
    return (
        f"{begins} was {notice.outcome} for {notice.formula}: the goal was {fact}; the deployed policy would have "
        f"{would} it ({value}; {NEEDED[test.comparison]} {bound} required)"
    )
