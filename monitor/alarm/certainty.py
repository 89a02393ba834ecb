"""Sentences on how certain a verdict is: exact, sampled, or based on recordings."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final

from monitor.alarm.figures import MATTERS, given_now, is_open, own_quantity
from monitor.alarm.machine import assess
from monitor.alarm.phrases import basis_text, capital, decimals, percent, steps
from monitor.alarm.subject import Subject
from monitor.logic.syntax import NOMINAL, Formula, Goal, InterventionRef, Probability, Regret, WorldRef
from monitor.logic.traversal import handover_goal, quantity_goals
from monitor.types.specs import FormulaSpec
from monitor.types.stream_events import BlindReason
from monitor.types.verdicts import RestsOn, Verdict

SAYS_NOTHING: Final = 0.9
"""A guaranteed band of this width or more guarantees nothing. Unit: the range of all possible values."""
MUCH: Final = 0.1
"""If at least this fraction of a value rests on rarely or never recorded pairs, the summary mentions it."""
UNLIKELY: Final = 0.005
"""Least probability of a label that is named, if states are hidden."""
MOST_LABELS: Final = 3
"""Maximum number of labels, and of states, that are named if states are hidden."""
TOO_WIDE: Final = 0.5
"""A credible band wider than this leaves too much open. Unit: the range of all possible values."""


class Certainty:
    """Sentences about how certain a verdict is. `places`: minimum number of decimals of a band next to the finding."""

    def __init__(self, formula: FormulaSpec, parsed: Formula, verdict: Verdict, subject: Subject, places: int) -> None:
        self._formula, self._parsed, self._verdict, self._subject = formula, parsed, verdict, subject
        self._brevity, self._places = subject.brevity, places

    def sure(self, blind: BlindReason | None, *, of_both: bool = False) -> str:
        """Return a sentence on how certain the answer is, with a note on hardly recorded pairs; empty while blind.

        `of_both`: whether the counterfactual value is shown beside the agent's own value, as in a picture.
        """
        sure = self._sure(blind, of_both=of_both)
        return sure and sure + self._hardly()

    def _sure(self, blind: BlindReason | None, *, of_both: bool) -> str:
        """Return in a few words how certain the answer is; empty while blind, because blind means uncertain."""
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
        stable = "stable " if verdict.causal_model == "stable" else ""
        if verdict.outcome is not None and verdict.quantities[0].robust is not False:
            # This concerns the agent's own value and the advice. Causal models may disagree only on the counterfactual
            # value, and a picture reports this beside its bounds.
            if of_both and not verdict.robust:
                return ""
            words = "Same in every {}model" if self._brevity else "These numbers hold in every {}causal model"
            return words.format(stable)
        if not verdict.robust:
            disagree = "disagree" if verdict.belief is None else "may disagree"  # bounds may be too wide
            return f"Not certain: {'' if self._brevity else 'other causal '}models {disagree}"
        return f"Every {stable}{'' if self._brevity > 1 else 'causal '}model agrees"

    def _sure_of_data(self) -> str:
        """Return how certain an answer on a learned model is."""
        verdict, quantity, how = self._verdict, own_quantity(self._verdict), self._verdict.bands
        if how is not None and how.delta is not None:
            if verdict.robust:
                guaranteed = f"guaranteed at {100 * (1 - how.delta):.4g} %"
                return capital(guaranteed) if self._brevity > 1 else f"The finding is {guaranteed}"
            if self._brevity:
                return "No guarantee"
            return "The data guarantee nothing yet" if self._vacuous() else "The finding is not guaranteed"
        level = None if how is None else how.level
        band = None if quantity is None or level is None else quantity.credible
        if band is not None and self._leaves_much_open(band):
            sure = "Too few recordings" if self._brevity > 1 else "Too few recordings to be sure"
        else:
            sure = "Estimated" if self._brevity else "Estimated from recordings"
        if band is None or level is None or self._brevity:
            return sure
        low, high = decimals(*band, least=self._places)
        return f"{sure}: {low} to {high} ({100 * level:.4g} %)"

    def learned(self) -> list[str]:
        """Return the recorded steps that support an answer on a learned model, and the bands of the agent's value."""
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
        if how.doubt:
            parts.append(f"the model is not good enough: {how.doubt.rstrip('.')}")
        if self._vacuous():
            parts.append("the data guarantee nothing yet (cfmon check --visits says what to record)")
        elif quantity is not None and quantity.guaranteed is not None:
            low, high = decimals(*quantity.guaranteed)
            parts.append(f"guaranteed {low} to {high}")
        if how.delta is not None and verdict.robust is not None and not self._vacuous():
            parts.append("robust" if verdict.robust else "not robust")
        return [capital("; ".join(parts))] if parts else []

    def obtained(self) -> list[str]:
        """Return the number of samples and the confidence of a sampled verdict."""
        verdict = self._verdict
        if verdict.drawn is None or verdict.method == "exact":
            return []
        samples = f"Sampled: {max((quantity.samples for quantity in verdict.quantities), default=0):,} samples"
        confidence = self._confidence()
        return [f"{samples}, {confidence}" if confidence else samples]

    def resampled(self) -> list[str]:
        """Return the number of recorded steps from which further inputs are resampled, in a world with numbers."""
        count = self._verdict.resampled_from
        return [] if count is None else [f"Inputs beyond the observed ones are resampled from {count:,} recorded steps"]

    def believed(self) -> list[str]:
        """Return the belief about hidden states, as labels and names, and how many steps had no observation."""
        verdict = self._verdict
        if verdict.likely is None:
            return []
        labels = _likeliest(verdict.likely, self._subject.label)
        states = _likeliest(verdict.believed or {}, self._subject.name)
        said = [*([f"probability now: {labels}"] if labels else []), *([f"likeliest: {states}"] if states else [])]
        parts = [f"its state is not seen; {'; '.join(said)}"] if said else []
        if verdict.unseen:
            parts.append(f"nothing was seen at {steps(verdict.unseen)} of the path")
        return [capital("; ".join(parts))] if parts else []

    def _basis(self) -> tuple[InterventionRef, RestsOn | None]:
        """Return the intervention of the formula, and the recorded support of its value, as far as it is known."""
        late = handover_goal(self._parsed)
        match late or self._parsed, self._verdict.quantities:
            case (Regret(WorldRef(change)), (_, quantity)) | (Goal(WorldRef(change)), (quantity,)):
                return change, quantity.rests_on
            case _:
                return NOMINAL, None

    def _hardly(self) -> str:
        """Return a note if another policy's value rests on hardly recorded pairs and no other sentence says so."""
        change, basis = self._basis()
        unknown = is_open(given_now(self._parsed, self._verdict)) or any(
            is_open(each.extremes) for each in self._verdict.quantities
        )
        much = 0.0 if basis is None else basis.never if basis.rare is None else basis.rare
        if basis is None or much < MUCH or unknown or change.kind == "nominal":
            return ""
        amount = "" if self._brevity else f"{percent(much)} of "
        recorded = "beyond what was recorded" if basis.rare is None else "hardly recorded"
        return f"; {amount}{self._subject.named(change)} {recorded}"

    def _leaves_much_open(self, band: tuple[float, float]) -> bool:
        """Return whether the credible band of the agent's probability, or of an effect on it, is too wide."""
        goal = next(iter(quantity_goals(self._parsed)), None)
        return goal is not None and band[1] - band[0] > TOO_WIDE * _span(goal)

    def _vacuous(self) -> bool:
        """Return whether the guaranteed bands are useless, because the band of a probability or effect is too wide."""
        if self._verdict.robust:
            return False
        return any(
            quantity.guaranteed is not None
            and quantity.guaranteed[1] - quantity.guaranteed[0] >= SAYS_NOTHING * _span(goal)
            for goal, quantity in zip(quantity_goals(self._parsed), self._verdict.quantities, strict=False)
        )

    def _confidence(self) -> str:
        """Return the confidence of a sampled verdict: 1 minus the rate of wrong answers of this kind.

        *Unavoidable* has two error rates: it is wrong if the agent meets the goal, or if the alternative does.
        """
        verdict = self._verdict
        if verdict.drawn is None or verdict.value is not None:
            return ""
        sampling = verdict.drawn.sampling
        assessment = assess(verdict, self._formula.alarm)
        if assessment == "neutral":
            return "undecided"
        wrong = sampling.beta if assessment == "good" else sampling.alpha
        if verdict.outcome == "unavoidable":
            wrong = max(sampling.alpha, sampling.beta)
        kind = "nominal confidence" if sampling.test == "paper" else "confidence"
        return f"{kind} {1.0 - wrong:.6g}"


def _span(goal: Goal) -> float:
    """Return the width of the range of a probability or of an effect on a probability; infinite for a reward."""
    if not isinstance(goal.measure, Probability):
        return math.inf
    return 1.0 if goal.world.baseline is None else 2.0


def _likeliest(chances: Mapping[str, float], called: Callable[[str], str]) -> str:
    """Return the likeliest names with their probabilities, as text; empty if all are unlikely.

    `called`: name -> text.
    """
    likeliest = sorted(chances.items(), key=lambda each: (-each[1], each[0]))[:MOST_LABELS]
    return ", ".join(f"{called(name)} {decimals(chance)[0]}" for name, chance in likeliest if chance >= UNLIKELY)
