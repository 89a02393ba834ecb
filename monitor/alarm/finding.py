"""Sentences on what happened: the values, the requirement, and the value under another policy."""

from __future__ import annotations

from typing import Final

from monitor.alarm.figures import change_of, extrapolates, is_open, low_is_worse, threshold_of
from monitor.alarm.phrases import NEEDED, been, decimals
from monitor.alarm.recourse_sentences import StepSentence, recourse_sentences
from monitor.alarm.subject import NOW, Subject
from monitor.logic.comparison import passes
from monitor.logic.syntax import Formula, Goal, Regret, Test, WorldRef
from monitor.types.specs import FormulaSpec
from monitor.types.verdicts import Quantity, Verdict

MOST_QUANTITIES: Final = 3
"""Maximum number of quantities that are listed for one formula."""

Open = tuple[float, float] | None
"""Least and greatest value over all outcomes of unrecorded pairs; None if unrecorded pairs do not matter."""


class Finding:
    """Sentences about the finding of a verdict. `places`: minimum number of decimals of the numbers.

    Args:
        formula: the formula, with words for its labels and for actions.
        parsed: the formula's text, parsed.
        verdict: verdict on the formula.
        subject: words for the quantities.
        now: value from now on, which the finding gives instead of the value that the formula asks for; None: give the
            latter.
    """

    def __init__(
        self, formula: FormulaSpec, parsed: Formula, verdict: Verdict, subject: Subject, now: float | None
    ) -> None:
        self._formula, self._parsed, self._verdict, self._subject = formula, parsed, verdict, subject
        self._brevity, self._now = subject.brevity, now
        self.places = 2

    def sentence(self) -> str:
        """Return the sentence on what happened and how bad it is."""
        verdict = self._verdict
        match self._parsed:
            case Regret(_, Goal(_, measure, Test() as test)) if len(verdict.quantities) == 2:
                nominal, *_, bound = ranges(self.numbers(), self.places)
                needed = f"{NEEDED[test.comparison]} {bound} required"
                goal = self._subject.of_path(measure) if self._now is None else self._subject.of(measure)
                return f"{goal} = {nominal}{self._unrecorded(0)}; {needed}"
            case Goal(world, measure, test) if len(verdict.quantities) == 1:
                return f"{self._subject.in_world(world, measure)} = {self._figure(test)}"
            case _:
                return self._combination()

    def met_again(self) -> str:
        """Return a note if the goal of a firing alarm is met again."""
        return ", met again" if self._verdict.outcome == "safe" else ""

    def is_missed_by(self, value: float) -> bool:
        """Return whether a value misses the requirement; False if the formula does not compare a single value."""
        threshold = threshold_of(self._parsed) if self.numbers() else None
        if threshold is None:
            return False
        fires = self._formula.alarm.fires_while == "holds"
        return passes(value, threshold.comparison, threshold.bound) is fires

    def worst(self, value: float) -> str:
        """Return the sentence on the worst value of an alarm that is over. This value misses the requirement."""
        shown, *_ = ranges([(value, None), *self.numbers()], self.places)
        return f"While firing it {'fell' if low_is_worse(self._parsed, self._formula.alarm) else 'rose'} to {shown}"

    def counterfactual(self) -> str:
        """Return the value under the intervention, and its range over all causal models."""
        match self._parsed:
            case Regret(WorldRef(change), Goal(_, _, Test())) if len(self._verdict.quantities) == 2:
                pass
            case _:
                return ""
        start, (asked, alternative, *_) = self._subject.start(), ranges(self._asked(), self.places)
        instead = "" if self._now is None else f" instead of {asked}"
        if change.kind == "model":
            start = self._subject.starting()
        elif start == NOW:
            return ""
        comma = "," if change.steps is not None and change.kind != "best" and start[0].isdigit() else ""
        spread = f" (causal models {self._spread()})" if self._disagree() and self._verdict.bounds else ""
        had = been(self._subject.worded(change), hindsight=self._subject.hindsight)
        return f"Had {had}{comma} {start}: {alternative}{self._unrecorded(1)}{instead}{spread}"

    def recourse(self) -> list[StepSentence]:
        """Return the values of other decisions, if the goal was missed and they were examined."""
        match self._parsed:
            case Regret(_, Goal(_, _, Test() as test)):
                return recourse_sentences(self._verdict.recourse, test, self._subject)
            case _:
                return []

    def disagreement(self) -> list[str]:
        """Return a sentence on disagreeing causal models, with the bounds over them."""
        if not self._disagree():
            return []
        if self._verdict.bounds is None:
            return [f"Causal models {'' if self._verdict.belief is None else 'may '}disagree on this"]
        change = change_of(self._parsed)
        who = "" if change is None else f" with {self._subject.named(change)}"
        return [f"Causal models {self._spread()}{who}"]

    def all_quantities(self) -> list[str]:
        """Return all quantities of a formula, if the summary leaves some of them out."""
        verdict = self._verdict
        if verdict.outcome is not None or len(verdict.quantities) <= MOST_QUANTITIES:
            return []
        return [", ".join(f"{quantity.text} = {decimals(quantity.value)[0]}" for quantity in verdict.quantities)]

    def numbers(self) -> list[tuple[float, Open]]:
        """Return the numbers of the finding: values and bound; none for a combination."""
        asked = self._asked()
        return asked if self._now is None else [(self._now, None), *asked[2:]]

    def _asked(self) -> list[tuple[float, Open]]:
        """Return the values that the formula asks for, and the bound; none for a combination."""
        quantities = self._verdict.quantities
        match self._parsed:
            case Regret(_, Goal(_, _, test)) if len(quantities) == 2:
                pass
            case Goal(_, _, test) if len(quantities) == 1:
                pass
            case _:
                return []
        bound: list[tuple[float, Open]] = [] if test is None else [(test.bound, None)]
        return [(quantity.value, quantity.extremes) for quantity in quantities] + bound

    def _disagree(self) -> bool:
        """Return whether causal models disagree; False with a guaranteed band, which `Certainty.learned` reports."""
        verdict = self._verdict
        unknown = any(quantity.holds is None and quantity.extremes is not None for quantity in verdict.quantities)
        return verdict.robust is False and verdict.guaranteed is None and not unknown

    def _spread(self) -> str:
        assert self._verdict.bounds is not None
        low, high = decimals(*self._verdict.bounds)
        return f"{'disagree:' if self._verdict.belief is None else 'may disagree, at most'} {low} to {high}"

    def _figure(self, test: Test | None) -> str:
        """Return the value and the requirement."""
        if test is None:
            return ranges(self.numbers(), self.places)[0] + self._unrecorded(0)
        shown, bound = ranges(self.numbers(), self.places)
        needed = f"{NEEDED[test.comparison]} {bound}"
        shown += self._unrecorded(0)
        return f"{shown}; " + (
            f"alarm if {needed}" if self._formula.alarm.fires_while == "holds" else f"{needed} required"
        )

    def _unrecorded(self, number: int) -> str:
        """Return a note, with the reason, if a quantity is known only as an interval or rests on extrapolation."""
        quantity = self._verdict.quantities[number]
        open_ = is_open(quantity.extremes) or extrapolates(quantity)
        return ("" if self._brevity > 1 else " (partly never recorded)") if open_ else ""

    def _combination(self) -> str:
        formula, verdict = self._formula, self._verdict
        truth = {True: "holds", False: "fails", None: "is undecided"}[verdict.holds]
        shown = verdict.quantities[: max(MOST_QUANTITIES - self._brevity, 1)]
        listed = [self._listed(quantity) for quantity in shown]
        more = len(verdict.quantities) - len(listed)
        listed += [f"and {more} more"] * (more > 0)
        listed = listed or [self._subject.quote(formula.text, "")]
        return f"formula '{self._subject.name(formula.name)}' {truth}: {', '.join(listed)}".removesuffix(": ")

    def _listed(self, quantity: Quantity) -> str:
        shown = ranges([(quantity.value, quantity.extremes)])[0]
        return f"{self._subject.quote(quantity.text, 'one quantity')} = {shown}"


def ends(values: list[tuple[float, Open]]) -> list[float]:
    """Return the values; for open values, the ends of their intervals."""
    return [end for value, extremes in values for end in _known(value, extremes)]


def _known(value: float, extremes: Open) -> tuple[float, ...]:
    return extremes if extremes is not None and is_open(extremes) else (value,)


def ranges(values: list[tuple[float, Open]], least: int = 2) -> list[str]:
    """Return values as text, open values as intervals, with enough decimals to distinguish them."""
    shown = iter(decimals(*ends(values), least=least))
    return [" to ".join(next(shown) for _ in _known(*each)) for each in values]
