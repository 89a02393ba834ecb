"""The sentences of an alert: what happened and how bad, then what to do, then how that was found.

A person woken at night must be able to act on the first line and to read it aloud on the telephone, so what comes
before the detail has fewer than 200 characters (with names of usual length). The numbers are those of the verdict,
rounded to two decimals, or to as many as it takes to tell a value from the threshold it misses. What is quoted of the
formula is the user's own text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, Literal

from monitor.alarm.figures import change_of, handover_of
from monitor.alarm.machine import judge
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
from monitor.types import AlarmState, BlindReason, Departing, FormulaSpec, Handover, Verdict

__all__ = ["BLIND_WORDS", "departing_text", "summary"]

LONGEST_QUOTE = 60
"""Characters of a formula that are still read aloud; a longer one goes by its name."""
MOST_QUANTITIES = 3
"""Quantities told of a formula that has many."""
MOST_DECIMALS = 12
"""Decimals told at most: two numbers closer than this are equal to a verdict too."""

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
    "old_episode": "all steps that come belong to episodes that are over",
    "idle": "the agent has not begun another episode for long",
    "overload": "answers are skipped, since more steps come than can be answered",
    "model_doubt": "steps go otherwise than the model says",
}
"""Why the monitor cannot judge, in words."""

NOW: Final = "from now on"

NOUN: Final = {"nominal": "'nominal'", "policy": "'{}'", "action": "action {}", "model": "model '{}'"}
DO: Final = {"policy": "Hand over to {}", "action": "Take {}"}
DOING: Final = {"policy": "handing over to {}", "action": "taking {}"}
BEEN: Final = {"policy": "'{}' taken over", "action": "action {} been taken", "model": "model '{}' been in force"}
"""A change by its name, as what to do, as what one does, and after "had"; nominal changes nothing."""

NEEDED: Final[Mapping[Comparison, str]] = {"<": "less than", "<=": "at most", ">=": "at least", ">": "more than"}

Spoken = AlarmState | Literal["fired"]


def summary(
    *,
    agent: str,
    formula: FormulaSpec,
    parsed: Formula,
    state: Spoken,
    blind: BlindReason | None,
    verdict: Verdict,
    path_length: int,
) -> str:
    """Return the sentences for an alert in `state`, after `verdict`. `parsed`: the formula's text, read.

    `fired` is for what looks back on the moment at which the alarm fired, such as its picture: it advises nothing.
    `path_length`: pairs of the path the verdict was given on; 0 if that is not known any more, and then it is not told
    how long ago an `@-k` was.
    """
    told = _Told(formula, parsed, verdict, path_length)
    found, sure = told.finding(), [*told.doubt(), *told.obtained(), *_why(blind)]
    last = _caution(blind) or "last: "
    match state:
        case "firing":
            lead = [_caution(blind) + found + told.again(), told.advice(blind)]
            parts = [*lead, told.counterfactual(), told.too_late(blind), *sure]
        case "fired":
            parts = [f"when it fired, {found}", told.counterfactual(), told.handover_then(), *sure]
        case "resolved":
            parts = [f"resolved: {_caution(blind)}{found}", *sure]
        case "ended":
            parts = [f"the episode ended while this alarm was firing; {last}{found}", *sure]
        case "removed":
            parts = [f"alarm '{formula.name}' was changed or removed while it was firing; {last}{found}", *sure]
        case _:
            parts = [found, *sure]
    return f"{agent}: {'. '.join(part for part in parts if part)}."


def _caution(blind: BlindReason | None) -> str:
    """What must be known before anything else that is said."""
    match blind:
        case None:
            return ""
        case "model_doubt":
            return "MODEL IN DOUBT: "
        case _:
            return f"BLIND ({blind}), last known: "


def _why(blind: BlindReason | None) -> list[str]:
    return (
        []
        if blind is None
        else [f"{'Do not rely on this' if blind == 'model_doubt' else 'Blind'}: {BLIND_WORDS[blind]}"]
    )


class _Told:
    """One verdict, in words."""

    def __init__(self, formula: FormulaSpec, parsed: Formula, verdict: Verdict, path_length: int) -> None:
        self._formula, self._parsed, self._verdict, self._pairs = formula, parsed, verdict, path_length
        self._labels = dict(formula.labels)

    def finding(self) -> str:
        """What, and how bad."""
        verdict = self._verdict
        match self._parsed:
            case Regret(_, Goal(_, measure, Test() as test)) if len(verdict.quantities) == 2:
                nominal, _, bound = self._compared(test)
                return f"{self._subject(measure, self._when())} = {nominal}; {NEEDED[test.comparison]} {bound} required"
            case Goal(world, measure, test) if len(verdict.quantities) == 1:
                return f"{self._asked(world, measure)} = {self._figure(test)}"
            case _:
                return self._combination()

    def again(self) -> str:
        """Whether a firing alarm's goal is met by now."""
        return ", met again" if self._verdict.outcome == "safe" else ""

    def advice(self, blind: BlindReason | None) -> str:
        """What to do about it now, where there is something to hand over to."""
        match self._parsed, handover_of(self._parsed, self._verdict):
            case Regret(WorldRef(change), Goal(_, _, Test() as test)), Handover() as handover:
                pass
            case _:
                return ""
        now, doing = self._verdict.profile.get(0), DOING[change.kind].format(_noun(change))
        if now is None:
            return f"Whether {doing} now helps is not known"
        own, given, _ = _decimals(*now, test.bound)
        needless = test.holds(now[0])
        if blind not in (None, "model_doubt"):
            if needless:
                return f"Then there was no need to act ({own})"
            return f"Then {doing} {'helped' if handover.helps_now else 'did not suffice'} ({given})"
        if handover.helps_now:
            return f"{DO[change.kind].format(_noun(change))} now: {_instead(now, test)}"
        if needless:
            return f"No need to act: from now on it is {own} without {doing}"
        suffices = "no longer suffices" if handover.latest_useful else "does not suffice"
        return f"{_capital(doing)} {suffices} ({given}): stop the agent safely"

    def too_late(self, blind: BlindReason | None) -> str:
        """Where handing over does not suffice: what it changes now, and until when it would have sufficed."""
        match self._parsed, handover_of(self._parsed, self._verdict), self._verdict.profile.get(0):
            case Regret(_, Goal(_, _, Test() as test)), Handover(helps_now=False) as handover, (own, given):
                if blind not in (None, "model_doubt") or test.holds(own):
                    return ""
                last = f"It last sufficed {_ago(handover.latest_useful)}; now" if handover.latest_useful else "Now"
                return f"{last} {_instead((own, given), test)}"
            case _:
                return ""

    def counterfactual(self) -> str:
        """What the other world would have given, counted from where it begins."""
        match self._parsed:
            case Regret(WorldRef(change), Goal(_, _, Test() as test)) if len(self._verdict.quantities) == 2:
                pass
            case _:
                return ""
        when, (_, alternative, _) = self._when(), self._compared(test)
        if when == NOW and change.kind != "model":
            return ""
        since = (
            NOW if when == NOW else when.removeprefix("from ").replace("the ", "at the ", when.startswith("from the "))
        )
        if change.kind == "model" and when != NOW:
            since = f"{when} on"
        return f"Had {_been(change)} {since}: {alternative}"

    def handover_then(self) -> str:
        """What handing over would have given when the alarm fired."""
        match self._parsed, self._verdict.profile.get(0):
            case Regret(WorldRef(change), Goal(_, _, Test() as test)), (float(own), float(given)) if change.kind in DO:
                doing = _capital(DOING[change.kind].format(_noun(change)))
                return f"{doing} then: {_instead((own, given), test)}"
            case _:
                return ""

    def doubt(self) -> list[str]:
        """Whether causal models disagree, and how far apart they are."""
        verdict = self._verdict
        if verdict.robust is not False:
            return []
        if verdict.bounds is None:
            return ["Causal models disagree on this"]
        low, high = _decimals(*verdict.bounds)
        change = change_of(self._parsed)
        return [f"Causal models disagree: {low} to {high}{'' if change is None else f' with {_noun(change)}'}"]

    def obtained(self) -> list[str]:
        """How sure it is, where that is a question: 1 less the rate of wrong answers of this kind, of the stream.

        *Unavoidable* is wrong at one rate where the agent meets the goal, at the other where the alternative does.
        """
        verdict = self._verdict
        if verdict.drawn is None:
            return []
        told = f"Sampled: {max((quantity.samples for quantity in verdict.quantities), default=0):,} samples"
        if verdict.value is not None:
            return [told]
        sampling = verdict.drawn.sampling
        judgement = judge(verdict, self._formula.alarm)
        if judgement == "neutral":
            return [f"{told}, undecided"]
        wrong = sampling.beta if judgement == "good" else sampling.alpha
        if verdict.outcome == "unavoidable":
            wrong = max(sampling.alpha, sampling.beta)
        sure = "nominal confidence" if sampling.test == "paper" else "confidence"
        return [f"{told}, {sure} {1.0 - wrong:.6g}"]

    # ---- quantities ----

    def _compared(self, test: Test) -> list[str]:
        """Nominal, alternative and bound, told apart."""
        nominal, alternative = (quantity.value for quantity in self._verdict.quantities)
        return _decimals(nominal, alternative, test.bound)

    def _asked(self, world: WorldRef, measure: Probability | Reward) -> str:
        """The quantity a plain goal asks for, in its world."""
        when = self._when()
        since = when if when == NOW else f"{when} on"
        if world.baseline is not None:
            pair = f"{_noun(world.change)} rather than {_noun(world.baseline)}"
            return f"effect on {self._subject(measure)} of {pair} {since}"
        if world.change.kind != "nominal":
            return f"{self._subject(measure)} with {_noun(world.change)} {since}"
        return self._subject(measure, when)

    def _figure(self, test: Test | None) -> str:
        """What it came to, and what it should have been."""
        value = self._verdict.quantities[0].value
        if test is None:
            return _decimals(value)[0]
        shown, bound = _decimals(value, test.bound)
        needed = f"{NEEDED[test.comparison]} {bound}"
        return f"{shown}; " + (f"alarm at {needed}" if self._formula.alarm.when == "holds" else f"{needed} required")

    def _combination(self) -> str:
        formula, verdict = self._formula, self._verdict
        truth = {True: "holds", False: "fails", None: "is undecided"}[verdict.holds]
        told = [
            f"{_quote(q.text, 'one quantity')} = {_decimals(q.value)[0]}" for q in verdict.quantities[:MOST_QUANTITIES]
        ]
        more = len(verdict.quantities) - len(told)
        told += [f"and {more} more"] * (more > 0)
        told = told or [_quote(formula.text, "")]
        return f"formula '{formula.name}' {truth}: {', '.join(told)}".removesuffix(": ")

    def _subject(self, measure: Probability | Reward, when: str = NOW) -> str:
        """What is measured, and from when it is counted."""
        spoken = self._spoken(measure.path) if isinstance(measure, Probability) else None
        if spoken is None:
            spoken = _quote(_inside(self._formula.text), f"the goal of '{self._formula.name}'")
        since = "" if when == NOW else f", {when}"
        return f"P({spoken}{since})" if isinstance(measure, Probability) else f"expected reward({spoken}{since})"

    def _spoken(self, path: Formula) -> str | None:
        """The commonest goals as one says them; None for any other, which is quoted."""
        match path:
            case Not(Until(0, high, Const(True), Not(Not(Label(bad))))):
                return self._never(bad, f"in {_steps(high)}")
            case Not(Until(0, high, Const(True), Not(Label(good)))):
                return f"{self._words(good)} throughout {_steps(high)}"
            case Until(0, high, Const(True), Label(good)):
                return f"{self._words(good)} within {_steps(high)}"
            case Until(0, high, Not(Label(bad)), Label(good)):
                return f"{self._words(good)} within {_steps(high)}, {self._never(bad, 'before it')}"
            case _:
                return None

    def _words(self, label: str) -> str:
        return f"'{self._labels[label]}'" if label in self._labels else label

    def _never(self, label: str, when: str) -> str:
        return f"{'not' if label in self._labels else 'no'} {self._words(label)} {when}"

    def _when(self) -> str:
        """From when it is counted, and where the intervention starts; `NOW` only if that is what was asked for."""
        verdict = self._verdict
        offset, clipped = verdict.offset, verdict.clipped
        start = "the oldest step still held" if verdict.start_dropped else "the episode's start"
        if offset < 0:
            ago = f", {_ago(self._pairs + offset)}" if self._pairs else ""
            return f"from {start}{ago}" if offset == -1 else f"from {_steps(-offset - 1)} after {start}{ago}"
        if offset == 0:
            return NOW
        return f"from {start}, {_ago(offset)}" if clipped else f"from {_ago(offset)}"


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


def _instead(values: tuple[float, float], test: Test) -> str:
    """What the alternative gives, and nominal; told apart, and from the bound."""
    nominal, alternative, _ = _decimals(*values, test.bound)
    return f"{alternative} either way" if nominal == alternative else f"{alternative} instead of {nominal}"


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def _lasting(change: Change) -> str:
    return "" if change.steps is None else f" for {_steps(change.steps)}"


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


def departing_text(departing: Departing) -> str:
    """What was seen and what the model lets expect, briefly."""
    d = departing
    return f"({d.state}, {d.action}) -> {d.successor} seen {d.seen} times of {d.of}, expected {d.expected:.1f}"
