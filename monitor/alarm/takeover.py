"""Judgement of a takeover: the formula behind it, the outcome, and what its evidence must say.

The formula is a conjunction of two goals at the takeover's first step: the goal on the path as it was, and the goal
under the deployed policy from there on (docs/semantics.md, section 8.5).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from monitor.alarm.document import Evidence
from monitor.alarm.phrases import NEEDED, decimals
from monitor.errors import FormulaError
from monitor.logic import Formula, parse
from monitor.logic.syntax import NOMINAL, And, Goal, InterventionRef, WorldRef
from monitor.types import UNKNOWN_POLICY, TakenOver, TakeoverOutcome, Verdict

_OUTCOMES: Final[dict[tuple[bool | None, bool | None], TakeoverOutcome]] = {
    (True, False): "needed",
    (True, True): "needless",
    (False, True): "harmful",
    (False, False): "futile",
}
"""By whether the goal was met, and whether the deployed policy would have met it."""


def takeover_formula(goal: Goal, deployed: str, since: int) -> And:
    """Return the formula whose quantities are what happened and what the deployed policy would have done.

    `goal`: its measure and its test count, its world does not. `deployed`: a name of the deployed policy. `since`:
    number of transitions observed since the takeover.
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


def contradictions_of_takeover(evidence: Evidence) -> Iterator[str]:
    """Yield everything about which policies acted, and about a takeover, that contradicts the rest of the evidence."""
    acted, pairs = evidence.acted, len(evidence.path)
    if acted and len(acted) != pairs:
        yield f"acted: {len(acted)} policies for the {pairs} pairs of the path"
    if unknown := sorted(set(acted) - evidence.policies.keys() - {UNKNOWN_POLICY}):
        yield f"acted: there is no policy {unknown[0]!r} in the evidence"
    takeover = evidence.takeover
    if takeover is None:
        return
    if evidence.first_seq != evidence.seq - (pairs - 1):
        yield f"first_seq: {evidence.first_seq} is recorded, but the path begins at {evidence.seq - (pairs - 1)}"
    if acted[:1] != (takeover.policy,) or takeover.policy == "nominal":
        yield f"takeover.policy: {takeover.policy} is recorded, which does not act at the first pair, or is nominal"
    outcome = outcome_of(evidence.verdict)
    if outcome != takeover.outcome:
        yield f"takeover.outcome: {takeover.outcome} is recorded, {outcome} follows from the verdict"
    elif outcome == "undecided":
        yield "takeover.outcome: undecided is recorded, and an undecided takeover has no evidence"
    try:
        formula = parse(evidence.text)
    except FormulaError as error:
        yield f"text: not a formula: {str(error).splitlines()[0]}"
        return
    if not _judges(formula, evidence):
        yield "text: not what happened and what the deployed policy would have done, from the takeover on"


def _judges(formula: Formula, evidence: Evidence) -> bool:
    """Return whether a formula is that of a judgement of a takeover at the path's first pair."""
    if not (isinstance(formula, And) and isinstance(formula.left, Goal) and isinstance(formula.right, Goal)):
        return False
    deployed = formula.right.world.change.name
    if formula != takeover_formula(formula.left, deployed, len(evidence.path) - 1):
        return False
    nominal = evidence.policies.get("nominal")
    named = evidence.policies.get(deployed)
    return nominal is not None and named is not None and named.sha256 == nominal.sha256
