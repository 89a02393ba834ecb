"""Sentences of an alert: what happened and how bad, then what to do, then the counterfactual and how it was obtained.

A person woken at night must be able to act on the first line and to read it out on the telephone, so the part before
the detail has fewer than 200 characters (with names of usual length). The numbers are those of the verdict, rounded to
two decimals, or to as many as distinguish a value from the threshold it misses. Quotes are from the user's formula.
"""

from __future__ import annotations

from typing import Final, Literal

from monitor.alarm.figures import advised_change, change_of, handover_of, own_quantity
from monitor.alarm.kept import Kept
from monitor.alarm.machine import judge
from monitor.alarm.phrases import ACT, ACTING, BLIND_WORDS, DO, DOING, NEEDED, been, capital, decimals, noun
from monitor.alarm.recourse import Numbered, recourse_sentences
from monitor.alarm.subject import NOW, Subject, quote
from monitor.logic.syntax import Change, Formula, Goal, Regret, Test, WorldRef
from monitor.logic.traversal import handover_goal
from monitor.types import AlarmState, BlindReason, FormulaSpec, Handover, Verdict

__all__ = ["summary"]

MOST_QUANTITIES = 3
"""Quantities listed of a formula with several."""
Spoken = AlarmState | Literal["fired"]
_kept: Final[Kept[tuple[str | Numbered, ...]]] = Kept()


def summary(
    *,
    agent: str,
    formula: FormulaSpec,
    parsed: Formula,
    state: Spoken,
    blind: BlindReason | None,
    verdict: Verdict,
    path_length: int,
    seq: int,
) -> str:
    """Return the sentences for an alert in `state`, after `verdict`. `parsed`: the formula's text, parsed.

    `fired` describes the step at which the alarm fired, as its picture does, and gives no advice. `path_length`: pairs
    of the verdict's path; 0: unknown, so the sentences do not say how many steps ago an `@-k` was. `seq`: its step.
    """
    past: Literal["ago", "before"] = "before" if state == "fired" else "ago"
    pairs = path_length if verdict.offset < 0 else 0  # else no sentence depends on it
    parts = _kept.get(
        lambda: _sentences(_Sentences(formula, parsed, verdict, pairs, past), formula.name, state, blind),
        *(verdict, formula, state, blind, pairs),
    )
    return f"{agent}: {'. '.join([part if type(part) is str else part.at(seq) for part in parts])}."  # type: ignore[union-attr] # the other kind


def _sentences(say: _Sentences, name: str, state: Spoken, blind: BlindReason | None) -> tuple[str | Numbered, ...]:
    """Return the sentences without the agent, and without numbers of steps. `name`: of the formula."""
    found, unsure, could = say.finding(), say.disagreement(), say.recourse()
    sure = [*say.learned(), *say.obtained(), *_why(blind)]
    last = f"{_caution(blind) or 'last: '}{found}"
    parts: list[str | Numbered]
    match state:
        case "firing":
            lead = [_caution(blind) + found + say.met_again(), say.advice(blind)]
            had = say.counterfactual()
            parts = [*lead, say.unless_stopped(blind), *([had] if had else unsure), say.too_late(blind), *could]
        case "fired":
            had = "; ".join(part for part in (say.counterfactual(), say.handover_then()) if part)
            parts = [f"when it fired, {found}", had, *([] if say.counterfactual() else unsure), *could]
        case "resolved":
            parts = [f"resolved: {_caution(blind)}{found}", *unsure]
        case "ended":
            parts = [f"the episode ended while this alarm was firing; {last}", *unsure, *could]
        case "removed":
            parts = [f"alarm '{name}' was changed or removed while it was firing; {last}", *unsure]
        case _:
            parts = [found, *unsure, *could]
    return tuple(part for part in (*parts, *sure) if part)


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
        self._formula, self._parsed, self._verdict = formula, parsed, verdict
        self._subject = Subject(formula, verdict, path_length, past)
        self._handover = _advised(parsed, verdict)

    def finding(self) -> str:
        """Return what happened and how bad it is."""
        verdict = self._verdict
        match self._parsed:
            case Regret(_, Goal(_, measure, Test() as test)) if len(verdict.quantities) == 2:
                nominal, _, bound = self._compared(test)
                return f"{self._subject.of_path(measure)} = {nominal}; {NEEDED[test.comparison]} {bound} required"
            case Goal(world, measure, test) if len(verdict.quantities) == 1:
                return f"{self._subject.in_world(world, measure)} = {self._figure(test)}"
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
        now, doing = self._verdict.profile.get(0), DOING[change.kind].format(noun(change))
        if now is None:
            return f"It is not known whether {doing} now would help"
        own, given, _ = decimals(*now, test.bound)
        needless = test.holds(now[0]) and not handover.helps_now
        if blind not in (None, "model_doubt"):
            if needless:
                return f"There was no need to act then ({own})"
            return f"{capital(doing)} {'helped' if handover.helps_now else 'did not suffice'} then ({given})"
        if handover.helps_now:
            return f"{DO[change.kind].format(noun(change))} now: {_instead(now, test)}"
        if needless:
            return f"No need to act: without {doing} it is {own} from now on"
        sufficed = handover.latest_useful and change.kind != "best"  # with hindsight it sufficed for nobody
        suffices = "no longer suffices" if sufficed else "does not suffice"
        return f"{capital(doing)} {suffices} ({given}): stop the agent safely"

    def _advice_on_effect(self, blind: BlindReason | None) -> str:
        """Return what to do now if the effect of handing over is large enough."""
        handover, change = handover_of(self._parsed, self._verdict), advised_change(self._parsed)
        if handover is None or change is None or not handover.helps_now:
            return ""
        if blind not in (None, "model_doubt"):
            return f"{capital(DOING[change.kind].format(noun(change)))} helped then"
        return f"{DO[change.kind].format(noun(change))} now"

    def unless_stopped(self, blind: BlindReason | None) -> str:
        """Return, if handing over does not suffice, what is better for an agent that cannot be stopped."""
        match self._handover, self._verdict.profile.get(0):
            case (change, test, Handover(helps_now=False)), (own, given):
                if blind not in (None, "model_doubt") or test.holds(own):
                    return ""
                without, with_it, _ = decimals(own, given, test.bound)
                if without == with_it:
                    return f"Without {ACTING[change.kind]}: the same"
                if (given > own) == (test.comparison in (">=", ">")):
                    return f"If it cannot be stopped, {ACT[change.kind]}: {with_it} instead of {without}"
                return f"Without {ACTING[change.kind]}: {without}"
            case _:
                return ""

    def too_late(self, blind: BlindReason | None) -> str:
        """Return when handing over last sufficed, if it no longer does."""
        match self._handover, self._verdict.profile.get(0):
            case (change, test, Handover(helps_now=False, latest_useful=int(latest))), (own, _):
                if blind not in (None, "model_doubt") or test.holds(own):
                    return ""
                known = " with hindsight" if change.kind == "best" else ""
                return f"{capital(ACTING[change.kind])}{known} last sufficed {self._subject.ago(latest)}"
            case _:
                return ""

    def counterfactual(self) -> str:
        """Return the value under the intervention, and between which values it lies over all causal models."""
        match self._parsed:
            case Regret(WorldRef(change), Goal(_, _, Test() as test)) if len(self._verdict.quantities) == 2:
                pass
            case _:
                return ""
        start, (_, alternative, _) = self._subject.start(), self._compared(test)
        if change.kind == "model":
            start = self._subject.starting()
        elif start == NOW:
            return ""
        comma = "," if change.steps is not None and change.kind != "best" and start[0].isdigit() else ""
        spread = f" (causal models disagree: {self._spread()})" if self._disagree() and self._verdict.bounds else ""
        return f"Had {been(change, hindsight=self._subject.hindsight)}{comma} {start}: {alternative}{spread}"

    def handover_then(self) -> str:
        """Return the value of handing over at the step at which the alarm fired."""
        match self._handover, self._verdict.profile.get(0):
            case (change, test, _), (float(own), float(given)):
                had = "" if self.counterfactual() else f"Had {been(change, hindsight=False)} "
                return f"{had}when it fired: {_instead((own, given), test)}"
            case _:
                return ""

    def recourse(self) -> list[Numbered]:
        """Return what other decisions would have given, if the goal was missed and that was examined."""
        match self._parsed:
            case Regret(_, Goal(_, _, Test() as test)):
                return recourse_sentences(self._verdict.recourse, test, self._subject)
            case _:
                return []

    def disagreement(self) -> list[str]:
        """Return whether causal models disagree, and the bounds over them."""
        if not self._disagree():
            return []
        if self._verdict.bounds is None:
            return ["Causal models disagree on this"]
        change = change_of(self._parsed)
        who = "" if change is None else f" with {self._subject.named(change)}"
        return [f"Causal models disagree: {self._spread()}{who}"]

    def _disagree(self) -> bool:
        """Return whether causal models disagree; on a learned model `learned` says it, with the guaranteed band."""
        return self._verdict.robust is False and self._verdict.guaranteed is None

    def _spread(self) -> str:
        assert self._verdict.bounds is not None
        low, high = decimals(*self._verdict.bounds)
        return f"{low} to {high}"

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
        return [capital("; ".join(parts))] if parts else []

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
            f"{quote(q.text, 'one quantity')} = {decimals(q.value)[0]}" for q in verdict.quantities[:MOST_QUANTITIES]
        ]
        more = len(verdict.quantities) - len(listed)
        listed += [f"and {more} more"] * (more > 0)
        listed = listed or [quote(formula.text, "")]
        return f"formula '{formula.name}' {truth}: {', '.join(listed)}".removesuffix(": ")


def _advised(parsed: Formula, verdict: Verdict) -> tuple[Change, Test, Handover] | None:
    """Return what is advised, the test of the goal that it serves, and its effect now; None without advice."""
    handover, change = handover_of(parsed, verdict), advised_change(parsed)
    goal = parsed.goal if isinstance(parsed, Regret) else handover_goal(parsed)
    if handover is None or change is None or goal is None or goal.test is None:
        return None
    return change, goal.test, handover


def _instead(values: tuple[float, float], test: Test) -> str:
    """Return the alternative's and the nominal value, with decimals that distinguish them and the bound."""
    nominal, alternative, _ = decimals(*values, test.bound)
    return f"{alternative} either way" if nominal == alternative else f"{alternative} instead of {nominal}"
