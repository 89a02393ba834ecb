"""Advice on an alarm, in sentences: hand over now, stop the agent, or decide yourself."""

from __future__ import annotations

from monitor.alarm.blindness import advises
from monitor.alarm.figures import ANY, advised_change, given_now, handover_of, in_doubt, is_open, needless
from monitor.alarm.finding import Open, ranges
from monitor.alarm.phrases import ACTING, DO, DOING, NEEDED, been, capital, decimals, noun
from monitor.alarm.subject import Subject
from monitor.logic.syntax import Formula, InterventionRef, Regret, Test
from monitor.logic.traversal import handover_goal
from monitor.types.alerts import Handover
from monitor.types.stream_events import BlindReason
from monitor.types.verdicts import Verdict


class Advice:
    """Sentences about what to do after a verdict. `places`: minimum number of decimals of the numbers."""

    def __init__(self, parsed: Formula, verdict: Verdict, subject: Subject) -> None:
        self._parsed, self._verdict, self._subject = parsed, verdict, subject
        self._brevity = subject.brevity
        self._handover = _advised(parsed, verdict)
        self.places = 2

    def sentence(self, blind: BlindReason | None) -> str:
        """Return the sentence on what to do now; empty if there is nothing to hand over to."""
        if self._handover is None:
            return self._on_effect(blind)
        change, test, handover = self._handover
        short = noun(self._subject.short(change))
        now, doing = self._verdict.profile.get(0), self._doing(change)
        if now is None:  # if the goal is met again, there is nothing to do
            unknown = f"not known whether {doing} now would help"
            if self._verdict.outcome == "safe":
                return ""
            return capital(unknown) if self._brevity else f"It is {unknown}"
        if not advises(blind):
            return self._of_then(test, doing, helped=bool(handover.helps_now))
        if handover.helps_now:
            return f"{DO[change.kind].format(short)} now: {_instead(*self._now()[:2])}"
        if handover.helps_now is None:
            return self._unknown(change, test)
        return self._useless(change, test, contradicted=blind is not None)

    def _of_then(self, test: Test, doing: str, *, helped: bool) -> str:
        """Return the sentence on what could have been done at the last judged step."""
        own, given, _ = self._now()
        if not helped and needless(self._parsed, self._verdict):
            return self._look(f"there was no need to act then ({own})")
        if self._not_shown(test):
            return self._look(f"the recordings did not show whether {doing} sufficed then ({given})")
        return self._look(f"{doing} {'helped' if helped else 'did not suffice'} then ({given})")

    def _doing(self, change: InterventionRef) -> str:
        """Return the intervention as a gerund, without its name if there is little room."""
        short = noun(self._subject.short(change))
        return ACTING[change.kind] if self._brevity > 2 else DOING[change.kind].format(short)

    def _look(self, then: str) -> str:
        """Return the advice while nothing is known of the present. It comes before the sentences on what was known."""
        return f"Look {'' if self._brevity else 'at the agent '}yourself; {then}"

    def _useless(self, change: InterventionRef, test: Test, *, contradicted: bool) -> str:
        """Return the advice if handing over is not needed or not enough.

        A `contradicted` model cannot show either of these.
        """
        short = noun(self._subject.short(change))
        (own, given, bound), doing = self._now(), self._doing(change)
        if needless(self._parsed, self._verdict):
            if contradicted:
                return f"You decide: {self._poor()} whether it is safe without {doing} ({own})"
            return f"No need to act: without {doing} it is {own} from now on"
        if not self._better(test):
            if contradicted:
                return f"Stop the agent safely: {self._poor()} whether {doing} suffices ({given})"
            return f"Stop the agent safely: {doing} {'does not suffice' if self._open() else 'does not help'} ({given})"
        do = DO[change.kind].format(short)
        anyway = f"{do[0].lower()}{do[1:]}: {_instead(own, given)}"
        if self._brevity:
            return f"Stop the agent safely; if impossible, {anyway}, {_too(test)}"
        return f"Stop the agent safely; if that is impossible, {anyway}, {_misses(test, bound)}"

    def _unknown(self, change: InterventionRef, test: Test) -> str:
        """Return the advice if it is unknown whether carrying on or handing over suffices."""
        short, (own, given, _) = noun(self._subject.short(change)), self._now()
        doing, show = self._doing(change), self._does_not_show()
        if needless(self._parsed, self._verdict):
            return f"You decide: {show} whether it is safe without {doing} ({own})"
        if self._better_at_worst(test):
            return f"{DO[change.kind].format(short)} now: {_instead(own, given)}; {show} whether that suffices"
        return f"You decide: {show} whether {doing} suffices ({given})"

    def _does_not_show(self) -> str:
        """Return the words for the reason why it is unknown whether the goal is met."""
        if self._verdict.bands is not None and self._verdict.bands.doubt:
            return self._poor()
        return "not recorded" if self._brevity > 1 else "the recordings do not show"

    def _poor(self) -> str:
        return "the model is too poor to say" if self._brevity else "the model is not good enough to say"

    def _on_effect(self, blind: BlindReason | None) -> str:
        """Return the advice if the effect of handing over is large enough."""
        handover, change = handover_of(self._parsed, self._verdict), advised_change(self._parsed)
        if handover is None or change is None or handover.helps_now is False:
            return ""
        short = noun(self._subject.short(change))
        if handover.helps_now is None:
            open_ = self._verdict.method == "exact" and bool(self._verdict.quantities)
            return f"You decide: {self._does_not_show()} whether {self._doing(change)} helps" if open_ else ""
        if not advises(blind):
            return self._look(f"{self._doing(change)} helped then")
        return f"{DO[change.kind].format(short)} now"

    def without(self, blind: BlindReason | None) -> str:
        """Return the value of carrying on, unless handing over is known to be better, or another sentence gives it."""
        match self._handover, self._verdict.profile.get(0):
            case (change, test, Handover(helps_now=helps)), (own, _) if not helps:
                if not advises(blind) or test.holds(own):
                    return ""
                if self._better_at_worst(test) if helps is None else self._better(test):
                    return ""
                without, with_it, _ = self._now()
                same = without == with_it and helps is False and not self._open()
                return f"Without {ACTING[change.kind]}: {'the same' if same else without}"
            case _:
                return ""

    def credibly(self, blind: BlindReason | None) -> str:
        """Return the credible band if it leaves open whether handing over or carrying on suffices now."""
        bands, how = self._verdict.credible_now, self._verdict.bands
        if self._handover is None or self._handover[2].helps_now is not None or blind is not None:
            return ""
        if bands is None or how is None or how.level is None or not in_doubt(self._parsed, self._verdict):
            return ""
        fine = needless(self._parsed, self._verdict)
        low, high = decimals(*(bands[:2] if fine else bands[2:]))
        acting = ACTING[self._handover[0].kind]
        who = f"Without {acting}" if fine else capital(acting)
        return f"{who} now: credibly {low} to {high} ({100 * how.level:.4g} %)"

    def too_late(self, blind: BlindReason | None) -> str:
        """Return the time at which handing over last sufficed, if handing over no longer suffices."""
        match self._handover, self._verdict.profile.get(0):
            case (change, test, Handover(helps_now=helps, latest_useful=int(latest))), (own, _) if not helps:
                if blind is not None or test.holds(own) or in_doubt(self._parsed, self._verdict):
                    return ""
                known = " with hindsight" if change.kind == "best" else ""
                surely = any(is_open(each[2:]) for each in self._verdict.profile_extremes[:latest])
                last = "surely" if surely else "last"  # the steps since then are unknown
                return f"{capital(ACTING[change.kind])}{known} {last} sufficed {self._subject.ago(latest)}"
            case _:
                return ""

    def then(self, counterfactual: str) -> str:
        """Return the value of handing over at the step at which the alarm fired.

        `counterfactual`: the preceding sentence. If it is not empty, it names the intervention.
        """
        match self._handover, self._verdict.profile.get(0):
            case (change, _, _), (float(), float()):
                had = "" if counterfactual else f"Had {been(self._subject.worded(change), hindsight=False)} "
                return f"{had}when it fired: {_instead(*self._now()[:2])}"
            case _:
                return ""

    def numbers(self) -> list[tuple[float, Open]]:
        """Return the numbers of the advice: carrying on, handing over, and the bound; empty if they are unknown."""
        if self._handover is None or 0 not in self._verdict.profile:
            return []
        (own, given), ends = self._verdict.profile[0], self._open_now(1)
        return [(own, self._open_now(0)), (given, None if ends == ANY else ends), (self._handover[1].bound, None)]

    def _open_now(self, which: int) -> Open:
        """Return the extremes of carrying on (0) or of handing over (1) now."""
        if which == 1:
            return given_now(self._parsed, self._verdict)
        ends = self._verdict.profile_extremes
        return ends[0][:2] if ends else None

    def _now(self) -> tuple[str, str, str]:
        """Return the values of carrying on and of handing over now, as far as known, and the bound, as text."""
        own, given, bound = ranges(self.numbers(), self.places)
        return own, given, bound

    def _not_shown(self, test: Test) -> bool:
        """Return whether rarely or never recorded pairs decide whether handing over now suffices."""
        if in_doubt(self._parsed, self._verdict) and self._verdict.latest_useful != 0:
            return True
        return len({test.holds(value) for value in self._open_now(1) or ()}) > 1

    def _open(self) -> bool:
        """Return whether unrecorded pairs leave the value of carrying on or of handing over now open."""
        return is_open(self._open_now(0)) or is_open(self._open_now(1))

    def _better(self, test: Test) -> bool:
        """Return whether handing over now is surely better than carrying on."""
        if self._open():
            return self._better_at_worst(test)
        (own, given), (without, with_it, _) = self._verdict.profile[0], self._now()
        return without != with_it and (given > own) == (test.comparison in (">=", ">"))

    def _better_at_worst(self, test: Test) -> bool:
        """Return whether handing over now at its worst is better than carrying on at its best."""
        own, given = self._verdict.profile[0]
        (low, high), (least, most) = self._open_now(0) or (own, own), self._open_now(1) or (given, given)
        return least > high if test.comparison in (">=", ">") else most < low


def _advised(parsed: Formula, verdict: Verdict) -> tuple[InterventionRef, Test, Handover] | None:
    """Return the advised intervention, the test of its goal, and its effect now; None without advice."""
    handover, change = handover_of(parsed, verdict), advised_change(parsed)
    goal = parsed.goal if isinstance(parsed, Regret) else handover_goal(parsed)
    if handover is None or change is None or goal is None or goal.test is None:
        return None
    return change, goal.test, handover


def _misses(test: Test, bound: str) -> str:
    """Return the words for a value that is not on the required side of the bound."""
    strictly = f"{NEEDED[test.comparison]} " if test.comparison in ("<", ">") else ""  # the value may equal the bound
    return f"{_too(test)} for {strictly}{bound}"


def _too(test: Test) -> str:
    """Return on which side of the bound a value is that does not meet it."""
    return "too little" if test.comparison in (">=", ">") else "too much"


def _instead(own: str, given: str) -> str:
    """Return the alternative's value and the nominal value, in words."""
    return f"{given} either way" if own == given else f"{given} instead of {own}"
