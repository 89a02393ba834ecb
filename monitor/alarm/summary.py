"""Sentences of an alert: a summary that stands alone, and details.

A person woken at night must be able to act on the summary alone and to read it out on the telephone: what happened and
how bad it is, what to do, and how sure that is, in fewer than 200 characters, whatever the names and numbers are. The
details are the counterfactual, what else could have been done, and how the numbers were obtained. The numbers are those
of the verdict, rounded to two decimals, or to as many as distinguish a value from the threshold it misses; those of one
summary have the same number of decimals where there is room. Quotes are from the user's formula.
"""

from __future__ import annotations

import math
from typing import Final, Literal, NamedTuple

from monitor.alarm.blindness import BLIND_WORDS
from monitor.alarm.figures import (
    MATTERS,
    advised_change,
    change_of,
    extrapolates,
    given_now,
    handover_of,
    is_open,
    own_quantity,
)
from monitor.alarm.machine import judge
from monitor.alarm.phrases import (
    ACTING,
    DO,
    DOING,
    NEEDED,
    basis_text,
    been,
    capital,
    decimals,
    noun,
    percent,
    places,
    shortened,
)
from monitor.alarm.recourse_sentences import StepSentence, recourse_sentences
from monitor.alarm.subject import LONGEST_NAME, NOW, Subject
from monitor.alarm.verdict_cache import VerdictCache
from monitor.logic.syntax import NOMINAL, Formula, Goal, InterventionRef, Probability, Regret, Test, WorldRef
from monitor.logic.traversal import handover_goal, quantity_goals
from monitor.types import AlarmState, BlindReason, FormulaSpec, Handover, Quantity, RestsOn, Verdict

LONGEST: Final = 199
"""Most characters of a summary."""
LONGEST_AGENT: Final = 40
"""Most characters of an agent's name in a summary; a longer one is shortened."""
MOST_QUANTITIES = 3
"""Quantities listed of a formula with several."""
SAYS_NOTHING: Final = 0.9
"""Fraction of all possible values from which a guaranteed band of a probability counts as no guarantee at all."""
TOO_WIDE: Final = 0.5
"""Width, as a fraction of all possible values of a probability, from which a credible band leaves too much open."""
MUCH: Final = 0.1
"""Fraction of a value that was hardly or never recorded, from which the summary says so."""
RUNBOOK: Final = "Follow the runbook"
"""What a firing alarm advises that has nothing else to advise."""
Spoken = AlarmState | Literal["fired"]
Open = tuple[float, float] | None
"""Least and greatest value, whatever pairs that were never recorded lead to; None: it does not matter."""
_kept: Final[VerdictCache[_Parts]] = VerdictCache()


class Told(NamedTuple):
    """The sentences of an alert: `summary` stands alone, `details` [n] say the rest."""

    summary: str
    details: tuple[str, ...]

    @property
    def text(self) -> str:
        """All sentences."""
        return " ".join((self.summary, *self.details))


class _Parts(NamedTuple):
    """Sentences without the agent, the numbers of steps and the full stops."""

    summary: tuple[str, ...]
    details: tuple[str | StepSentence, ...]


def tell(
    *,
    agent: str,
    formula: FormulaSpec,
    parsed: Formula,
    state: Spoken,
    blind: BlindReason | None,
    verdict: Verdict,
    path_length: int,
    seq: int,
) -> Told:
    """Return the sentences for an alert in `state`, after `verdict`. `parsed`: the formula's text, parsed.

    `fired` describes the step at which the alarm fired, as its picture does, and gives no advice. `path_length`: pairs
    of the verdict's path; 0: unknown, so the sentences do not say how many steps ago an `@-k` was. `seq`: its step.

    Names are shortened, and the least important words left out, as far as the summary would be too long otherwise.
    """
    pairs = path_length if verdict.offset < 0 else 0  # else no sentence depends on it

    def parts(brevity: int) -> _Parts:
        return _kept.get(
            lambda: _parts(_Sentences(formula, parsed, verdict, pairs, state, brevity), formula.name, state, blind),
            *(verdict, formula, state, blind, pairs, brevity),
        )

    full = parts(0)
    details = tuple(f"{part if isinstance(part, str) else part.at(seq)}." for part in full.details)
    for brevity in range(len(LONGEST_NAME)):
        name = shortened(agent, LONGEST_AGENT if brevity == 0 else LONGEST_NAME[brevity])
        said = f"{name}: {'. '.join(parts(brevity).summary)}."
        if len(said) <= LONGEST:
            break
    else:
        said = f"{said[: LONGEST - 1]}…"
    if brevity > 1:  # words were left out
        details = (f"In full: {'. '.join(full.summary)}.", *details)
    return Told(said, details)


def _parts(say: _Sentences, name: str, state: Spoken, blind: BlindReason | None) -> _Parts:
    """Return the sentences without the agent, and without numbers of steps. `name`: of the formula."""
    found, unsure, could = say.finding(), say.disagreement(), say.recourse()
    had = say.counterfactual()
    last = f"{_caution(blind) or 'last: '}{found}"
    details: list[str | StepSentence]
    match state:
        case "firing":
            lead = [_caution(blind) + found + say.met_again(), say.advice(blind) or RUNBOOK]
            details = [say.without(blind), *([had] if had else unsure), say.too_late(blind), *could]
        case "fired":
            lead = [f"when it fired, {found}"]
            then = "; ".join(part for part in (had, say.handover_then()) if part)
            details = [then, *([] if had else unsure), *could]
        case "resolved":
            lead, details = [f"resolved: {_caution(blind)}{found}"], [*unsure]
        case "ended":
            over = "the episode ended while this alarm was firing" if say.brevity == 0 else "ended while firing"
            lead, details = [f"{over}; {last}"], [*unsure, *could]
        case "removed":
            over = "was changed or removed while it was firing" if say.brevity == 0 else "was changed or removed"
            lead, details = [f"alarm '{say.name(name)}' {over}; {last}"], [*unsure]
        case _:
            lead, details = [found], [*unsure, *could]
    details += [*say.all_quantities(), *say.learned(), *say.obtained(), *say.resampled(), *_why(blind)]
    return _Parts(
        tuple(part for part in (*lead, say.sure(blind)) if part),
        tuple(part for part in details if part),
    )


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

    def __init__(  # noqa: PLR0917 - a verdict, and how to speak of it
        self,
        formula: FormulaSpec,
        parsed: Formula,
        verdict: Verdict,
        path_length: int,
        state: Spoken,
        brevity: int,
    ) -> None:
        self._formula, self._parsed, self._verdict, self.brevity = formula, parsed, verdict, brevity
        self._subject = Subject(formula, verdict, path_length, "before" if state == "fired" else "ago", brevity)
        self._handover = _advised(parsed, verdict)
        self._places = 2
        if state == "firing" and brevity <= 1:  # finding and advice, which stand side by side
            self._places = max(places(*_ends(values)) for values in (self._found(), self._numbers_now()))

    def name(self, name: str) -> str:
        """Return a name, shortened as far as necessary."""
        return self._subject.name(name)

    def finding(self) -> str:
        """Return what happened and how bad it is."""
        verdict = self._verdict
        match self._parsed:
            case Regret(_, Goal(_, measure, Test() as test)) if len(verdict.quantities) == 2:
                nominal, _, bound = self._compared()
                needed = f"{NEEDED[test.comparison]} {bound} required"
                return f"{self._subject.of_path(measure)} = {nominal}{self._unrecorded(0)}; {needed}"
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
        short = noun(self._subject.short(change))
        now, doing = self._verdict.profile.get(0), DOING[change.kind].format(short)
        if now is None:  # if the goal is met again, there is nothing to do
            unknown = f"{'Not' if self.brevity else 'It is not'} known whether {doing} now would help"
            return "" if self._verdict.outcome == "safe" else unknown
        own, given, bound = self._now()
        needless = all(test.holds(value) for value in (now[0], *(self._open_now(0) or ()))) and not handover.helps_now
        if blind not in (None, "model_doubt"):
            if needless:
                return f"There was no need to act then ({own})"
            if self._not_shown(test):
                return f"The recordings did not show whether {doing} sufficed then ({given})"
            return f"{capital(doing)} {'helped' if handover.helps_now else 'did not suffice'} then ({given})"
        if handover.helps_now:
            return f"{DO[change.kind].format(short)} now: {_instead(own, given)}"
        if needless:
            return f"No need to act: without {doing} it is {own} from now on"
        if handover.helps_now is None:
            show = "not recorded" if self.brevity > 1 else "the recordings do not show"
            if self._better_at_worst(test):
                return f"{DO[change.kind].format(short)} now: {_instead(own, given)}; {show} whether that suffices"
            return f"You decide: {show} whether {doing} suffices ({given})"
        if not self._better(test):
            return f"Stop the agent safely: {doing} {'does not suffice' if self._open() else 'does not help'} ({given})"
        do = DO[change.kind].format(short)
        anyway = f"{do[0].lower()}{do[1:]}: {_instead(own, given)}"
        if self.brevity:
            return f"Stop the agent safely; if impossible, {anyway}"
        return f"Stop the agent safely; if that is impossible, {anyway}, {_misses(test, bound)}"

    def _advice_on_effect(self, blind: BlindReason | None) -> str:
        """Return what to do now if the effect of handing over is large enough."""
        handover, change = handover_of(self._parsed, self._verdict), advised_change(self._parsed)
        if handover is None or change is None or handover.helps_now is False:
            return ""
        short = noun(self._subject.short(change))
        if handover.helps_now is None:
            open_ = self._verdict.method == "exact" and bool(self._verdict.quantities)
            show = "not recorded" if self.brevity > 1 else "the recordings do not show"
            return f"You decide: {show} whether {DOING[change.kind].format(short)} helps" if open_ else ""
        if blind not in (None, "model_doubt"):
            return f"{capital(DOING[change.kind].format(short))} helped then"
        return f"{DO[change.kind].format(short)} now"

    def without(self, blind: BlindReason | None) -> str:
        """Return the value of carrying on, where handing over is not known to be better and nothing else says it."""
        match self._handover, self._verdict.profile.get(0):
            case (change, test, Handover(helps_now=helps)), (own, _) if not helps:
                if blind not in (None, "model_doubt") or test.holds(own):
                    return ""
                if self._better_at_worst(test) if helps is None else self._better(test):
                    return ""
                without, with_it, _ = self._now()
                same = without == with_it and helps is False and not self._open()
                return f"Without {ACTING[change.kind]}: {'the same' if same else without}"
            case _:
                return ""

    def too_late(self, blind: BlindReason | None) -> str:
        """Return when handing over last sufficed, if it no longer does."""
        match self._handover, self._verdict.profile.get(0):
            case (change, test, Handover(helps_now=helps, latest_useful=int(latest))), (own, _) if not helps:
                if blind not in (None, "model_doubt") or test.holds(own):
                    return ""
                known = " with hindsight" if change.kind == "best" else ""
                surely = any(is_open(each[2:]) for each in self._verdict.profile_extremes[:latest])
                last = "surely" if surely else "last"  # of the steps since then it is not known
                return f"{capital(ACTING[change.kind])}{known} {last} sufficed {self._subject.ago(latest)}"
            case _:
                return ""

    def counterfactual(self) -> str:
        """Return the value under the intervention, and between which values it lies over all causal models."""
        match self._parsed:
            case Regret(WorldRef(change), Goal(_, _, Test())) if len(self._verdict.quantities) == 2:
                pass
            case _:
                return ""
        start, (_, alternative, _) = self._subject.start(), self._compared()
        if change.kind == "model":
            start = self._subject.starting()
        elif start == NOW:
            return ""
        comma = "," if change.steps is not None and change.kind != "best" and start[0].isdigit() else ""
        spread = f" (causal models disagree: {self._spread()})" if self._disagree() and self._verdict.bounds else ""
        had = been(change, hindsight=self._subject.hindsight)
        return f"Had {had}{comma} {start}: {alternative}{self._unrecorded(1)}{spread}"

    def handover_then(self) -> str:
        """Return the value of handing over at the step at which the alarm fired."""
        match self._handover, self._verdict.profile.get(0):
            case (change, _, _), (float(), float()):
                had = "" if self.counterfactual() else f"Had {been(change, hindsight=False)} "
                return f"{had}when it fired: {_instead(*self._now()[:2])}"
            case _:
                return ""

    def recourse(self) -> list[StepSentence]:
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
        verdict = self._verdict
        unknown = any(quantity.holds is None and quantity.extremes is not None for quantity in verdict.quantities)
        return verdict.robust is False and verdict.guaranteed is None and not unknown

    def _spread(self) -> str:
        assert self._verdict.bounds is not None
        low, high = decimals(*self._verdict.bounds)
        return f"{low} to {high}"

    def sure(self, blind: BlindReason | None) -> str:
        """Return how sure the answer is, and if so that much was hardly recorded; nothing while blind."""
        sure = self._sure(blind)
        return sure and sure + self._hardly()

    def _sure(self, blind: BlindReason | None) -> str:
        """Return how sure the answer is, in a few words; nothing while blind, which says that it is not."""
        verdict = self._verdict
        if blind is not None or (not verdict.quantities and verdict.drawn is None):
            return ""
        if verdict.bands is not None or any(quantity.extremes is not None for quantity in verdict.quantities):
            return self._sure_of_data()
        if verdict.method == "sampled":
            return f"Sampled, {self._confidence() or 'a mean'}"
        if verdict.drawn is not None:
            return "Exact for this model, but handing over is estimated"
        if verdict.robust is None:
            return "Exact for this model"
        if not verdict.robust:
            # of `regret` the own value and the advice are the same in every model: only what would have been is not
            past = verdict.outcome in ("regret", "unavoidable") and verdict.quantities[0].robust is not False
            unsure = f"Not certain{' if avoidable' * past}"
            if self.brevity:
                return unsure if past else f"{unsure}: models disagree"
            return f"{unsure}: other causal models disagree"
        stable = "stable " if verdict.causal_model == "stable" else ""
        return f"Every {stable}{'' if self.brevity > 1 else 'causal '}model agrees"

    def _sure_of_data(self) -> str:
        """Return how sure an answer on a learned model is."""
        verdict, quantity, how = self._verdict, own_quantity(self._verdict), self._verdict.bands
        if how is not None and how.delta is not None:
            if verdict.robust:
                return f"The finding is guaranteed at {100 * (1 - how.delta):.4g} %"
            if self.brevity:
                return "No guarantee"
            return "The data guarantee nothing yet" if self._vacuous() else "The finding is not guaranteed"
        level = None if how is None else how.level
        band = None if quantity is None or level is None else quantity.credible
        if band is not None and self._leaves_much_open(band):
            sure = "Too few recordings" if self.brevity > 1 else "Too few recordings to be sure"
        else:
            sure = "Estimated" if self.brevity else "Estimated from recordings"
        if band is None or level is None or self.brevity:
            return sure
        low, high = decimals(*band, least=self._places)
        return f"{sure}: {low} to {high} ({100 * level:.4g} %)"

    def _basis(self) -> tuple[InterventionRef, RestsOn | None]:
        """Return the intervention that the formula is about, and what its value rests on, as far as that is known."""
        match self._parsed, self._verdict.quantities:
            case (Regret(WorldRef(change)), (_, quantity)) | (Goal(WorldRef(change)), (quantity,)):
                return change, quantity.rests_on
            case _:
                return NOMINAL, None

    def _hardly(self) -> str:
        """Return that much of another policy's value was hardly recorded, where nothing says that it is unknown."""
        change, basis = self._basis()
        unknown = is_open(given_now(self._verdict)) or any(is_open(each.extremes) for each in self._verdict.quantities)
        much = 0.0 if basis is None else basis.never if basis.rare is None else basis.rare
        if basis is None or much < MUCH or unknown or change.kind == "nominal":
            return ""
        amount = "" if self.brevity else f"{percent(much)} of "
        recorded = "beyond what was recorded" if basis.rare is None else "hardly recorded"
        return f"; {amount}{self._subject.named(change)} {recorded}"

    def _leaves_much_open(self, band: tuple[float, float]) -> bool:
        """Return whether a credible band of the agent's own value, a probability or an effect on one, is too wide."""
        goal = next(iter(quantity_goals(self._parsed)), None)
        return goal is not None and band[1] - band[0] > TOO_WIDE * _span(goal)

    def _vacuous(self) -> bool:
        """Return whether the guaranteed bands say nothing: that of some probability, or effect on one, is too wide."""
        if self._verdict.robust:
            return False
        return any(
            quantity.guaranteed is not None
            and quantity.guaranteed[1] - quantity.guaranteed[0] >= SAYS_NOTHING * _span(goal)
            for goal, quantity in zip(quantity_goals(self._parsed), self._verdict.quantities, strict=False)
        )

    def all_quantities(self) -> list[str]:
        """Return the quantities of a formula of several, where the summary leaves some out."""
        verdict = self._verdict
        if verdict.outcome is not None or len(verdict.quantities) <= MOST_QUANTITIES:
            return []
        return [", ".join(f"{quantity.text} = {decimals(quantity.value)[0]}" for quantity in verdict.quantities)]

    def learned(self) -> list[str]:
        """Return what an answer on a learned model rests on, with the bands of the agent's own value."""
        verdict, quantity, how = self._verdict, own_quantity(self._verdict), self._verdict.bands
        parts, (change, basis) = [], self._basis()
        if basis is not None and max(basis.rare or 0.0, basis.never) >= MATTERS:
            parts.append(f"{self._subject.named(change)} rests on {basis_text(basis)}")
        if how is None:
            return [capital(part) for part in parts]
        if verdict.support is not None:
            visits = "visit" if verdict.support == 1 else "visits"
            rests = (
                f"at least {verdict.support:,} {visits}" if verdict.support else "pairs that were never visited, too"
            )
            parts.append(f"the model rests on {rests}")
        if quantity is not None and quantity.credible is not None and how.level is not None:
            low, high = decimals(*quantity.credible)
            parts.append(f"credible band ({100 * how.level:.4g} %) {low} to {high}")
        if self._vacuous():
            parts.append("the data guarantee nothing yet (cfmon check --visits says what to record)")
        elif quantity is not None and quantity.guaranteed is not None:
            low, high = decimals(*quantity.guaranteed)
            parts.append(f"guaranteed {low} to {high}")
        if how.delta is not None and verdict.robust is not None and not self._vacuous():
            parts.append("robust" if verdict.robust else "not robust")
        return [capital("; ".join(parts))] if parts else []

    def obtained(self) -> list[str]:
        """Return samples and confidence of a sampled verdict."""
        verdict = self._verdict
        if verdict.drawn is None or verdict.method == "exact":
            return []
        samples = f"Sampled: {max((quantity.samples for quantity in verdict.quantities), default=0):,} samples"
        confidence = self._confidence()
        return [f"{samples}, {confidence}" if confidence else samples]

    def resampled(self) -> list[str]:
        """Return what the inputs beyond the observed ones are drawn from, in a world with numbers."""
        count = self._verdict.resampled_from
        return [] if count is None else [f"Inputs beyond the observed ones are resampled from {count:,} recorded steps"]

    def _confidence(self) -> str:
        """Return the confidence of a sampled verdict: 1 minus the rate of wrong answers of this kind.

        *Unavoidable* is wrong at one rate if the agent meets the goal, at the other if the alternative does.
        """
        verdict = self._verdict
        if verdict.drawn is None or verdict.value is not None:
            return ""
        sampling = verdict.drawn.sampling
        judgement = judge(verdict, self._formula.alarm)
        if judgement == "neutral":
            return "undecided"
        wrong = sampling.beta if judgement == "good" else sampling.alpha
        if verdict.outcome == "unavoidable":
            wrong = max(sampling.alpha, sampling.beta)
        kind = "nominal confidence" if sampling.test == "paper" else "confidence"
        return f"{kind} {1.0 - wrong:.6g}"

    # ---- quantities ----

    def _found(self) -> list[tuple[float, Open]]:
        """Return the numbers of the finding: values and bound; none for a combination."""
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

    def _numbers_now(self) -> list[tuple[float, Open]]:
        """Return the numbers of the advice: carrying on, handing over, and the bound; none if they are not known."""
        if self._handover is None or 0 not in self._verdict.profile:
            return []
        own, given = self._verdict.profile[0]
        return [(own, self._open_now(0)), (given, self._open_now(1)), (self._handover[1].bound, None)]

    def _compared(self) -> list[str]:
        """Return nominal, alternative and bound, with decimals that distinguish them."""
        return _ranges(self._found(), self._places)

    def _figure(self, test: Test | None) -> str:
        """Return the value and the requirement."""
        if test is None:
            return _ranges(self._found(), self._places)[0] + self._unrecorded(0)
        shown, bound = _ranges(self._found(), self._places)
        needed = f"{NEEDED[test.comparison]} {bound}"
        shown += self._unrecorded(0)
        return f"{shown}; " + (f"alarm if {needed}" if self._formula.alarm.when == "holds" else f"{needed} required")

    def _unrecorded(self, number: int) -> str:
        """Return that a quantity is known only as an interval, or extrapolates, and why."""
        quantity = self._verdict.quantities[number]
        open_ = is_open(quantity.extremes) or extrapolates(quantity)
        return ("" if self.brevity > 1 else " (partly never recorded)") if open_ else ""

    def _open_now(self, which: int) -> Open:
        """Return the extremes of carrying on (0) or of handing over (1) now."""
        if which == 1:
            return given_now(self._verdict)
        ends = self._verdict.profile_extremes
        return ends[0][:2] if ends else None

    def _now(self) -> tuple[str, str, str]:
        """Return the values of carrying on and of handing over now, as far as known, and the bound."""
        own, given, bound = _ranges(self._numbers_now(), self._places)
        return own, given, bound

    def _not_shown(self, test: Test) -> bool:
        """Return whether what was never recorded decides whether handing over now suffices."""
        return len({test.holds(value) for value in self._open_now(1) or ()}) > 1

    def _open(self) -> bool:
        """Return whether what was never recorded leaves the value of carrying on or of handing over now open."""
        return is_open(self._open_now(0)) or is_open(self._open_now(1))

    def _better(self, test: Test) -> bool:
        """Return whether handing over now is surely better than carrying on."""
        if self._open():
            return self._better_at_worst(test)
        (own, given), (without, with_it, _) = self._verdict.profile[0], self._now()
        return without != with_it and (given > own) == (test.comparison in (">=", ">"))

    def _better_at_worst(self, test: Test) -> bool:
        """Return whether handing over now at its worst is better than carrying on at its best."""
        (low, high), (least, most) = self._open_now(0) or (0.0, 0.0), self._open_now(1) or (0.0, 0.0)
        return least > high if test.comparison in (">=", ">") else most < low

    def _combination(self) -> str:
        formula, verdict = self._formula, self._verdict
        truth = {True: "holds", False: "fails", None: "is undecided"}[verdict.holds]
        shown = verdict.quantities[: MOST_QUANTITIES - self.brevity]
        listed = [self._listed(quantity) for quantity in shown]
        more = len(verdict.quantities) - len(listed)
        listed += [f"and {more} more"] * (more > 0)
        listed = listed or [self._subject.quote(formula.text, "")]
        return f"formula '{self.name(formula.name)}' {truth}: {', '.join(listed)}".removesuffix(": ")

    def _listed(self, quantity: Quantity) -> str:
        shown = _ranges([(quantity.value, quantity.extremes)])[0]
        return f"{self._subject.quote(quantity.text, 'one quantity')} = {shown}"


def _span(goal: Goal) -> float:
    """Return the width of all values that a probability, or an effect on one, may have; infinite for a reward."""
    if not isinstance(goal.measure, Probability):
        return math.inf
    return 1.0 if goal.world.baseline is None else 2.0


def _ends(values: list[tuple[float, Open]]) -> list[float]:
    """Return the values, or the ends of the intervals in which they are known to lie."""
    return [end for value, extremes in values for end in _known(value, extremes)]


def _known(value: float, extremes: Open) -> tuple[float, ...]:
    return extremes if extremes is not None and is_open(extremes) else (value,)


def _ranges(values: list[tuple[float, Open]], least: int = 2) -> list[str]:
    """Return values, or the intervals in which they are known to lie, with decimals that distinguish them."""
    shown = iter(decimals(*_ends(values), least=least))
    return [" to ".join(next(shown) for _ in _known(*each)) for each in values]


def _advised(parsed: Formula, verdict: Verdict) -> tuple[InterventionRef, Test, Handover] | None:
    """Return what is advised, the test of the goal that it serves, and its effect now; None without advice."""
    handover, change = handover_of(parsed, verdict), advised_change(parsed)
    goal = parsed.goal if isinstance(parsed, Regret) else handover_goal(parsed)
    if handover is None or change is None or goal is None or goal.test is None:
        return None
    return change, goal.test, handover


def _misses(test: Test, bound: str) -> str:
    """Return that a value is not on the required side of the bound."""
    strictly = f"{NEEDED[test.comparison]} " if test.comparison in ("<", ">") else ""  # the value may be the bound
    return f"too {'little' if test.comparison in ('>=', '>') else 'much'} for {strictly}{bound}"


def _instead(own: str, given: str) -> str:
    """Return the alternative's value beside the nominal one."""
    return f"{given} either way" if own == given else f"{given} instead of {own}"
