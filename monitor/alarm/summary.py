"""Sentences of an alert: what happened and how bad, then what to do, then the counterfactual and how it was obtained.

A person woken at night must be able to act on the first line and to read it out on the telephone, so the part before
the detail has fewer than 200 characters (with names of usual length). The numbers are those of the verdict, rounded to
two decimals, or to as many as distinguish a value from the threshold it misses. Quotes are from the user's formula.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, Literal

from monitor.alarm.figures import advised_change, change_of, handover_of, own_quantity
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
from monitor.logic.traversal import handover_goal
from monitor.types import AlarmState, BlindReason, Departing, FormulaSpec, Handover, Verdict

__all__ = ["BLIND_WORDS", "NEEDED", "decimals", "departing_text", "summary"]

LONGEST_QUOTE = 60
"""Longest formula that is quoted, in characters; a longer one is named instead."""
MOST_QUANTITIES = 3
"""Quantities listed of a formula with several."""
MOST_DECIMALS = 12
"""Most decimals shown: closer numbers are equal for a verdict too."""

BLIND_WORDS: Final[Mapping[BlindReason, str]] = {
    "gap": "steps are missing",
    "stale": "no step has arrived for too long",
    "conflict": "the same step arrived twice with different content",
    "impossible_step": "a step arrived to which the model gives probability 0",
    "unknown_state": "a step arrived whose state or action the model does not have",
    "policy_mismatch": "the agent runs a policy that is not configured",
    "dropped": "steps were dropped",
    "warming_up": "too few steps since the path was restarted",
    "disconnected": "the connection to the broker is down",
    "deadline": "steps have waited too long to be evaluated",
    "old_episode": "all arriving steps belong to episodes that have ended",
    "idle": "the agent has not started another episode for a long time",
    "overload": "answers are skipped because steps arrive faster than they can be evaluated",
    "model_doubt": "observed transitions contradict the model",
}
"""Blind reason -> why the formula cannot be answered, or the answer not be relied on."""

NOW: Final = "from now on"

NOUN: Final = {
    "nominal": "'nominal'",
    "policy": "'{}'",
    "action": "action {}",
    "model": "model '{}'",
    "best": "the best decisions in hindsight",
    "optimal": "the optimal policy",
}
DO: Final = {"policy": "Hand over to {}", "action": "Take {}", "best": "Act optimally", "optimal": "Act optimally"}
DOING: Final = {
    "policy": "handing over to {}",
    "action": "taking {}",
    "best": "acting optimally",
    "optimal": "acting optimally",
}
ACTING: Final = {
    "policy": "Handing over",
    "action": "Taking it",
    "best": "Acting optimally",
    "optimal": "Acting optimally",
}
BEEN: Final = {
    "policy": "'{}' taken over",
    "action": "action {} been taken",
    "model": "model '{}' been in force",
    "best": "every decision been the best in hindsight",
    "optimal": "the optimal policy taken over",
}
"""An intervention as a noun, as an instruction, as a gerund, and after "had"."""

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
    """Return the sentences for an alert in `state`, after `verdict`. `parsed`: the formula's text, parsed.

    `fired` describes the step at which the alarm fired, as its picture does, and gives no advice. `path_length`: pairs
    of the verdict's path; 0: unknown, so the sentences do not say how many steps ago an `@-k` was.
    """
    say = _Sentences(formula, parsed, verdict, path_length, "before" if state == "fired" else "ago")
    found, sure = say.finding(), [*say.disagreement(), *say.learned(), *say.obtained(), *_why(blind)]
    last = _caution(blind) or "last: "
    match state:
        case "firing":
            lead = [_caution(blind) + found + say.met_again(), say.advice(blind)]
            parts = [*lead, say.counterfactual(), say.too_late(blind), *sure]
        case "fired":
            had = "; ".join(part for part in (say.counterfactual(), say.handover_then()) if part)
            parts = [f"when it fired, {found}", had, *sure]
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
    """Return the warning that precedes everything else."""
    match blind:
        case None:
            return ""
        case "model_doubt":
            return "MODEL CONTRADICTED: "
        case _:
            return f"BLIND ({blind}), last known: "


def _why(blind: BlindReason | None) -> list[str]:
    return (
        []
        if blind is None
        else [f"{'Do not rely on this' if blind == 'model_doubt' else 'Blind'}: {BLIND_WORDS[blind]}"]
    )


class _Sentences:
    """Sentences about one verdict."""

    def __init__(
        self, formula: FormulaSpec, parsed: Formula, verdict: Verdict, path_length: int, past: Literal["ago", "before"]
    ) -> None:
        self._formula, self._parsed, self._verdict, self._pairs = formula, parsed, verdict, path_length
        self._past = past
        self._labels = dict(formula.labels)
        self._handover = _advised(parsed, verdict)

    def finding(self) -> str:
        """Return what happened and how bad it is."""
        verdict = self._verdict
        match self._parsed:
            case Regret(_, Goal(_, measure, Test() as test)) if len(verdict.quantities) == 2:
                nominal, _, bound = self._compared(test)
                return f"{self._subject(measure, self._when())} = {nominal}; {NEEDED[test.comparison]} {bound} required"
            case Goal(world, measure, test) if len(verdict.quantities) == 1:
                return f"{self._quantity(world, measure)} = {self._figure(test)}"
            case _:
                return self._combination()

    def met_again(self) -> str:
        """Return a note if the goal of a firing alarm is met again."""
        return ", met again" if self._verdict.outcome == "safe" else ""

    def advice(self, blind: BlindReason | None) -> str:
        """Return what to do now, if there is something to hand over to."""
        if self._handover is None:
            return self._advice_on_effect(blind)
        change, test, handover = self._handover
        now, doing = self._verdict.profile.get(0), DOING[change.kind].format(_noun(change))
        if now is None:
            return f"It is not known whether {doing} now would help"
        own, given, _ = decimals(*now, test.bound)
        needless = test.holds(now[0]) and not handover.helps_now
        if blind not in (None, "model_doubt"):
            if needless:
                return f"There was no need to act then ({own})"
            return f"{_capital(doing)} {'helped' if handover.helps_now else 'did not suffice'} then ({given})"
        if handover.helps_now:
            return f"{DO[change.kind].format(_noun(change))} now: {_instead(now, test)}"
        if needless:
            return f"No need to act: without {doing} it is {own} from now on"
        suffices = "no longer suffices" if handover.latest_useful else "does not suffice"
        return f"{_capital(doing)} {suffices} ({given}): stop the agent safely"

    def _advice_on_effect(self, blind: BlindReason | None) -> str:
        """Return what to do now if the effect of handing over is large enough."""
        handover, change = handover_of(self._parsed, self._verdict), advised_change(self._parsed)
        if handover is None or change is None or not handover.helps_now:
            return ""
        if blind not in (None, "model_doubt"):
            return f"{_capital(DOING[change.kind].format(_noun(change)))} helped then"
        return f"{DO[change.kind].format(_noun(change))} now"

    def too_late(self, blind: BlindReason | None) -> str:
        """Return, if handing over does not suffice, its effect now and when it last sufficed."""
        match self._handover, self._verdict.profile.get(0):
            case (change, test, Handover(helps_now=False) as handover), (own, given):
                if blind not in (None, "model_doubt") or test.holds(own):
                    return ""
                doing = ACTING[change.kind]
                last = (
                    f"{doing} last sufficed {self._ago(handover.latest_useful)}; now"
                    if handover.latest_useful
                    else f"{doing} now"
                )
                return f"{last}: {_instead((own, given), test)}"
            case _:
                return ""

    def counterfactual(self) -> str:
        """Return the value under the intervention."""
        match self._parsed:
            case Regret(WorldRef(change), Goal(_, _, Test() as test)) if len(self._verdict.quantities) == 2:
                pass
            case _:
                return ""
        start, (_, alternative, _) = self._start(), self._compared(test)
        if change.kind == "model":
            start = self._starting()
        elif start == NOW:
            return ""
        comma = "," if change.steps is not None and change.kind != "best" and start[0].isdigit() else ""
        return f"Had {_been(change)}{comma} {start}: {alternative}"

    def handover_then(self) -> str:
        """Return the value of handing over at the step at which the alarm fired."""
        match self._handover, self._verdict.profile.get(0):
            case (change, test, _), (float(own), float(given)):
                had = "" if self.counterfactual() else f"Had {_been(change)} "
                return f"{had}when it fired: {_instead((own, given), test)}"
            case _:
                return ""

    def disagreement(self) -> list[str]:
        """Return whether causal models disagree, and the bounds over them."""
        verdict = self._verdict
        if verdict.robust is not False or verdict.guaranteed is not None:
            return []  # `learned` says it, with the guaranteed band
        if verdict.bounds is None:
            return ["Causal models disagree on this"]
        low, high = decimals(*verdict.bounds)
        change = change_of(self._parsed)
        return [f"Causal models disagree: {low} to {high}{'' if change is None else f' with {_noun(change)}'}"]

    def learned(self) -> list[str]:
        """Return what an answer on a learned model rests on, with the bands of the agent's own value."""
        verdict, quantity, how = self._verdict, own_quantity(self._verdict), self._verdict.bands
        if how is None:
            return []
        parts = []
        if verdict.support is not None:
            visits = "visit" if verdict.support == 1 else "visits"
            parts.append(f"The model rests on at least {verdict.support:,} {visits}")
        if quantity is not None and quantity.credible is not None and how.level is not None:
            low, high = decimals(*quantity.credible)
            parts.append(f"{100 * how.level:.4g} % credible {low} to {high}")
        if quantity is not None and quantity.guaranteed is not None:
            low, high = decimals(*quantity.guaranteed)
            parts.append(f"guaranteed {low} to {high}")
        if how.delta is not None and verdict.robust is not None:
            parts.append("robust" if verdict.robust else "not robust")
        return [_capital("; ".join(parts))] if parts else []

    def obtained(self) -> list[str]:
        """Return samples and confidence of a sampled verdict: 1 minus the rate of wrong answers of this kind.

        *Unavoidable* is wrong at one rate if the agent meets the goal, at the other if the alternative does.
        """
        verdict = self._verdict
        if verdict.drawn is None:
            return []
        samples = f"Sampled: {max((quantity.samples for quantity in verdict.quantities), default=0):,} samples"
        if verdict.value is not None:
            return [samples]
        sampling = verdict.drawn.sampling
        judgement = judge(verdict, self._formula.alarm)
        if judgement == "neutral":
            return [f"{samples}, undecided"]
        wrong = sampling.beta if judgement == "good" else sampling.alpha
        if verdict.outcome == "unavoidable":
            wrong = max(sampling.alpha, sampling.beta)
        kind = "nominal confidence" if sampling.test == "paper" else "confidence"
        return [f"{samples}, {kind} {1.0 - wrong:.6g}"]

    # ---- quantities ----

    def _compared(self, test: Test) -> list[str]:
        """Return nominal, alternative and bound, with decimals that distinguish them."""
        nominal, alternative = (quantity.value for quantity in self._verdict.quantities)
        return decimals(nominal, alternative, test.bound)

    def _quantity(self, world: WorldRef, measure: Probability | Reward) -> str:
        """Return the quantity of a plain goal, with its intervention."""
        if world.baseline is not None:
            pair = f"{_noun(world.change)} rather than {_noun(world.baseline)}"
            return f"effect on {self._subject(measure)} of {pair} {self._starting()}"
        if world.change.kind != "nominal":
            return f"{self._subject(measure)} with {_noun(world.change)} {self._starting()}"
        return self._subject(measure, self._when())

    def _figure(self, test: Test | None) -> str:
        """Return the value and the requirement."""
        value = self._verdict.quantities[0].value
        if test is None:
            return decimals(value)[0]
        shown, bound = decimals(value, test.bound)
        needed = f"{NEEDED[test.comparison]} {bound}"
        return f"{shown}; " + (f"alarm if {needed}" if self._formula.alarm.when == "holds" else f"{needed} required")

    def _combination(self) -> str:
        formula, verdict = self._formula, self._verdict
        truth = {True: "holds", False: "fails", None: "is undecided"}[verdict.holds]
        listed = [
            f"{_quote(q.text, 'one quantity')} = {decimals(q.value)[0]}" for q in verdict.quantities[:MOST_QUANTITIES]
        ]
        more = len(verdict.quantities) - len(listed)
        listed += [f"and {more} more"] * (more > 0)
        listed = listed or [_quote(formula.text, "")]
        return f"formula '{formula.name}' {truth}: {', '.join(listed)}".removesuffix(": ")

    def _subject(self, measure: Probability | Reward, when: str = NOW) -> str:
        """Return the measure and from when it is counted."""
        words = self._in_words(measure.path) if isinstance(measure, Probability) else None
        if words is None:
            words = _quote(_inside(self._formula.text), f"the goal of '{self._formula.name}'")
        since = "" if when == NOW else f", {when}"
        return f"P({words}{since})" if isinstance(measure, Probability) else f"expected reward({words}{since})"

    def _in_words(self, path: Formula) -> str | None:
        """Return the most common goals in words; None for any other, which is quoted."""
        late = handover_goal(Goal(WorldRef(), Probability(path)))
        if late is not None and isinstance(path, Until):
            return f"too late for {_noun(late.world.change)} within {_steps(path.high)}"
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
        """Return from when a quantity is counted; `NOW` only for offset 0."""
        start = self._start()
        return start if start == NOW else f"from {start.removeprefix('at ')}"

    def _starting(self) -> str:
        """Return from when an intervention is in force, as a participle."""
        start = self._start()
        return start if start == NOW else f"starting {start}"

    def _start(self) -> str:
        """Return when the intervention begins; `NOW` only for offset 0."""
        verdict = self._verdict
        offset, clipped = verdict.offset, verdict.clipped
        first = "the oldest step still held" if verdict.start_dropped else "the episode's start"
        if offset < 0:
            ago = f", {self._ago(self._pairs + offset)}" if self._pairs else ""
            return f"at {first}{ago}" if offset == -1 else f"{_steps(-offset - 1)} after {first}{ago}"
        if offset == 0:
            return NOW
        return f"at {first}, {self._ago(offset)}" if clipped else self._ago(offset)

    def _ago(self, steps: int) -> str:
        return f"{_steps(steps)} {self._past}" if steps else "just now"


def _inside(text: str) -> str:
    """Return the content of the last outermost brackets: the measure of a goal or a regret formula."""
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
    if change.limit is not None:
        return f"at most {_decisions(change.limit)} changed in hindsight"
    return NOUN[change.kind].format(change.name) + _lasting(change)


def _been(change: Change) -> str:
    if change.kind == "best":
        few = None if change.limit is None else f"at most {_decisions(change.limit)} been changed for the better"
        return f"{few or BEEN['best'] + _lasting(change)}, starting"
    return BEEN[change.kind].format(change.name) + _lasting(change)


def _advised(parsed: Formula, verdict: Verdict) -> tuple[Change, Test, Handover] | None:
    """Return what to hand over to, the test of the goal that it serves, and its effect now; None without advice."""
    handover, change = handover_of(parsed, verdict), advised_change(parsed)
    goal = parsed.goal if isinstance(parsed, Regret) else handover_goal(parsed)
    if handover is None or change is None or goal is None or goal.test is None:
        return None
    return change, goal.test, handover


def _instead(values: tuple[float, float], test: Test) -> str:
    """Return the alternative's and the nominal value, with decimals that distinguish them and the bound."""
    nominal, alternative, _ = decimals(*values, test.bound)
    return f"{alternative} either way" if nominal == alternative else f"{alternative} instead of {nominal}"


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def _lasting(change: Change) -> str:
    return "" if change.steps is None else f" for {_steps(change.steps)}"


def _decisions(count: int) -> str:
    return f"{count} decision" if count == 1 else f"{count} decisions"


def _steps(count: int) -> str:
    return f"{count} step" if count == 1 else f"{count} steps"


def decimals(*values: float) -> list[str]:
    """Return the numbers with as many decimals as distinguish them, at least two."""
    shown: list[str] = []
    for decimals in range(2, MOST_DECIMALS + 1):
        shown = [f"{value:z.{decimals}f}" for value in values]  # z: what rounds to zero has no sign
        if len(set(shown)) == len(set(values)):
            break
    return shown


def departing_text(departing: Departing) -> str:
    """Return a transition's observed and expected counts as text."""
    d = departing
    return f"({d.state}, {d.action}) -> {d.successor} seen {d.seen} times of {d.of}, expected {d.expected:.1f}"
