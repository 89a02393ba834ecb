"""One sentence about an alarm that a person woken at night understands, and can read aloud on the telephone.

The numbers are those of the verdict, rounded to two decimals, or to as many as it takes to tell a value from the
threshold it misses. What is quoted of the formula is the user's own text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from monitor.logic.syntax import (
    Change,
    Comparison,
    Const,
    Formula,
    Goal,
    Label,
    Not,
    Probability,
    Regret,
    Reward,
    Test,
    Until,
    WorldRef,
)
from monitor.types import AlarmState, BlindReason, FormulaSpec, Verdict

__all__ = ["BLIND_WORDS", "summary"]

LONGEST_QUOTE = 100
"""Characters of a formula that are still read aloud; a longer one goes by its name."""
MOST_QUANTITIES = 3
"""Quantities told of a formula that has many."""
MOST_DECIMALS = 12
"""Decimals told at most: two numbers closer than this are equal to a verdict too."""

NOW: Final = "from now on"

BLIND_WORDS: Final[Mapping[BlindReason, str]] = {
    "gap": "steps are missing",
    "stale": "no step has come for too long",
    "conflict": "the same step came twice with different content",
    "impossible_step": "a step came that the model holds to be impossible",
    "unknown_state": "a step came whose state or action the model does not know",
    "policy_mismatch": "the agent runs another policy than the one configured",
    "dropped": "steps had to be dropped",
    "warming_up": "too few steps have been seen since the path began anew",
    "disconnected": "the connection to the broker is down",
    "deadline": "steps have come and wait for too long to be answered",
    "model_doubt": "steps go otherwise than the model says",
}
"""Why the monitor cannot judge, in words."""

NOUN: Final = {"nominal": "carrying on", "policy": "'{}'", "action": "action {}", "model": "model '{}'"}
BEEN: Final = {"policy": "'{}' been in charge", "action": "action {} been taken", "model": "model '{}' been true"}
"""A change as what one does, and after "had"; nominal is none, so that nothing "has been"."""

NEEDED: Final[Mapping[Comparison, str]] = {"<": "less than", "<=": "at most", ">=": "at least", ">": "more than"}


def summary(
    *,
    agent: str,
    formula: FormulaSpec,
    parsed: Formula,
    state: AlarmState,
    blind: BlindReason | None,
    verdict: Verdict,
    path_length: int,
) -> str:
    """The sentence for an alert in `state`, after `verdict`. `parsed`: the formula's text, read.

    `path_length`: pairs of the path the verdict was given on; 0 if that is not known any more, and then it is not told
    how long ago an `@-k` was.
    """
    body = _body(formula, parsed, verdict, path_length) + _obtained(formula, verdict)
    match state:
        case "resolved":
            told = f"resolved: {body}"
        case "ended":
            told = f"the episode ended while this alarm was firing; at last, {body}"
        case "removed":
            told = f"alarm '{formula.name}' was changed or removed while it was firing; at last, {body}"
        case _:
            told = body
    if blind == "model_doubt":
        told += f"; but do not rely on these numbers, for the model is in doubt ({blind}: {BLIND_WORDS[blind]})"
    elif blind is not None:
        told += f"; this is the last that is known, for the monitor is now blind here ({blind}: {BLIND_WORDS[blind]})"
    return f"{agent}: {told}."


def _body(formula: FormulaSpec, parsed: Formula, verdict: Verdict, path_length: int) -> str:
    since = _since(verdict, path_length)
    match parsed:
        case Regret(world, Goal(_, measure, Test() as test)) if len(verdict.quantities) == 2:
            return _regret(world.change, _subject(measure, formula), test, verdict, since)
        case Goal(world, measure, test) if len(verdict.quantities) == 1:
            verb = "is" if world.baseline is not None or world.change.kind == "nominal" else "would be"
            figure = _figure(test, formula, verdict.quantities[0].value)
            return f"{_world(world, _subject(measure, formula), since)} {verb} {figure}"
        case _:
            return _combination(formula, verdict)


def _obtained(formula: FormulaSpec, verdict: Verdict) -> str:
    """How sure it is, where that is a question: 1 less the rate of wrong answers of this kind, of the whole stream."""
    if verdict.drawn is None:
        return ""
    told = f"sampled, {max((quantity.samples for quantity in verdict.quantities), default=0):,} samples"
    if verdict.holds is None and verdict.outcome in (None, "undecided"):
        return f" ({told}, undecided)"
    alarming = verdict.outcome != "safe" if verdict.holds is None else verdict.holds == (formula.alarm.when == "holds")
    sampling = verdict.drawn.sampling
    sure = "nominal confidence" if sampling.test == "paper" else "confidence"
    return f" ({told}, {sure} {1.0 - (sampling.alpha if alarming else sampling.beta):.6g})"


def _regret(change: Change, subject: str, test: Test, verdict: Verdict, since: str) -> str:
    nominal, alternative, bound = _decimals(*(q.value for q in verdict.quantities), test.bound)
    need = f"{NEEDED[test.comparison]} {bound} is needed"
    match verdict.outcome:
        case "regret" if since == NOW:
            return (
                f"were {_noun(change)} to take over now, {subject} would be {alternative} instead of {nominal} ({need})"
            )
        case "regret":
            told = f"had {_been(change)} {since}, {subject} from there would be {alternative} instead of {nominal}"
            return f"{told} ({need}){_tail(change, test, verdict)}"
        case "unavoidable" if since == NOW:
            return f"{subject} is {nominal} ({need}), and {_noun(change)} would not help: {alternative}"
        case "unavoidable":
            told = f"{subject}{_counted(since)} is {nominal} ({need})"
            return f"{told}, and {_noun(change)} would not have helped: {alternative}"
        case "safe":
            return f"{subject}{_counted(since)} is {nominal} without any change ({need})"
        case _:
            return f"{subject} is {nominal} ({need}), and whether {_noun(change)} would help is undecided"


def _tail(change: Change, test: Test, verdict: Verdict) -> str:
    """Whether it is still worth acting: what the profile says of an intervention now."""
    now = verdict.profile.get(0)
    if verdict.latest_useful is None or now is None or change.kind == "model":
        return ""
    if verdict.latest_useful == 0:
        return "; switching now still helps"
    if test.holds(now[0]):
        return "; seen from now, all is well without switching"
    return f"; switching now no longer helps, {_ago(verdict.latest_useful)} it still would have"


def _world(world: WorldRef, subject: str, since: str) -> str:
    """The quantity a goal asks for, in its world."""
    if world.baseline is not None:
        return f"the effect on {subject} of {_noun(world.change)} rather than {_noun(world.baseline)}, {since},"
    if world.change.kind != "nominal":
        return f"{subject}, {_under(world.change, since)},"
    return subject + _counted(since)


def _figure(test: Test | None, formula: FormulaSpec, value: float) -> str:
    """What it came to, and what it should have been."""
    if test is None:
        return _decimals(value)[0]
    shown, bound = _decimals(value, test.bound)
    needed = f"{NEEDED[test.comparison]} {bound}"
    return f"{shown} ({f'this alarm is for {needed}' if formula.alarm.when == 'holds' else f'{needed} is needed'})"


def _combination(formula: FormulaSpec, verdict: Verdict) -> str:
    truth = {True: "holds", False: "fails", None: "is undecided"}[verdict.holds]
    told = [
        f"{_quote(q.text, 'one quantity')} is {_decimals(q.value)[0]}" for q in verdict.quantities[:MOST_QUANTITIES]
    ]
    more = len(verdict.quantities) - len(told)
    told += [f"and {more} more"] * (more > 0)
    told = told or [_quote(formula.text, "")]
    return f"formula '{formula.name}' {truth}: {', '.join(told)}".removesuffix(": ")


def _subject(measure: Probability | Reward, formula: FormulaSpec) -> str:
    spoken = _spoken(measure.path) if isinstance(measure, Probability) else None
    if spoken is not None:
        return f"the chance of {spoken}"
    quote = _quote(_inside(formula.text), f"the goal of '{formula.name}'")
    return f"the chance of {quote}" if isinstance(measure, Probability) else f"the expected reward over {quote}"


def _spoken(path: Formula) -> str | None:
    """The commonest goals as one says them; None for any other, which is quoted."""
    match path:
        case Not(Until(0, high, Const(True), Not(Not(Label(bad))))):
            return f"no {bad} within {_steps(high)}"
        case Not(Until(0, high, Const(True), Not(Label(good)))):
            return f"{good} throughout {_steps(high)}"
        case Until(0, high, Const(True), Label(good)):
            return f"{good} within {_steps(high)}"
        case Until(0, high, Not(Label(bad)), Label(good)):
            return f"{good} within {_steps(high)}, and no {bad} before it,"
        case _:
            return None


def _inside(text: str) -> str:
    """What stands in the last outermost brackets: of a goal or a regret formula, what it is about."""
    text = re.sub(r"//[^\n]*", "", text)
    end = text.rindex("]")
    depth = 1
    start = end
    while depth:
        start -= 1
        depth += {"]": 1, "[": -1}.get(text[start], 0)
    return text[start + 1 : end]


def _quote(text: str, otherwise: str) -> str:
    shown = " ".join(text.split())
    return shown if len(shown) <= LONGEST_QUOTE else otherwise


def _noun(change: Change) -> str:
    return NOUN[change.kind].format(change.name) + _lasting(change)


def _been(change: Change) -> str:
    return BEEN[change.kind].format(change.name) + _lasting(change)


def _lasting(change: Change) -> str:
    return "" if change.steps is None else f" for {_steps(change.steps)}"


def _counted(since: str) -> str:
    return "" if since == NOW else f", counted {since.removesuffix(' on')},"


def _under(change: Change, since: str) -> str:
    return f"with {_noun(change)} {since}" if since == NOW else f"had {_been(change)} {since}"


def _since(verdict: Verdict, path_length: int) -> str:
    """Where the intervention starts; `NOW` only if that is what was asked for."""
    offset, clipped = verdict.offset, verdict.clipped
    start = "the oldest step still held" if verdict.start_dropped else "the start of the episode"
    if offset < 0:
        ago = f", {_ago(path_length + offset)}" if path_length else ""
        return f"since {start}{ago}" if offset == -1 else f"since {_steps(-offset - 1)} after {start}{ago}"
    if clipped:
        return f"since {start}, {_ago(offset)}"
    return NOW if offset == 0 else f"from {_ago(offset)} on"


def _ago(steps: int) -> str:
    return f"{_steps(steps)} ago" if steps else "just now"


def _steps(count: int) -> str:
    return f"{count} step" if count == 1 else f"{count} steps"


def _decimals(*values: float) -> list[str]:
    """The numbers with as many decimals as tell them apart, at least two."""
    shown: list[str] = []
    for decimals in range(2, MOST_DECIMALS + 1):
        shown = [f"{value:z.{decimals}f}" for value in values]  # z: what rounds to zero has no sign
        if len(set(shown)) == len(set(values)):
            break
    return shown
