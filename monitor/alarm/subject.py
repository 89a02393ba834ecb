"""Words for the subject of a sentence: a quantity and the step from which it is counted."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final, Literal

from monitor.alarm.phrases import noun, shortened, steps
from monitor.logic.syntax import (
    Const,
    Formula,
    Goal,
    InterventionRef,
    Label,
    Measure,
    Not,
    Probability,
    Until,
    WorldRef,
)
from monitor.logic.traversal import handover_goal
from monitor.model.action_names import action_in_words
from monitor.types.specs import FormulaSpec
from monitor.types.verdicts import Verdict

LONGEST_QUOTE: Final = (60, 40, 24, 24)
"""Maximum number of characters of a quoted formula, by brevity. A longer formula is named instead."""
LONGEST_NAME: Final = (80, 24, 12, 12)
"""Maximum number of characters of a name, by brevity. A longer name is shortened."""
NOW: Final = "from now on"


class Subject:
    """Words for the quantities of one verdict.

    Args:
        formula: the formula, with words for its labels and for actions.
        verdict: verdict on the formula.
        pairs: number of pairs of the verdict's path; 0 if unknown.
        past: how steps are counted: back from now (`ago`), or back from the step that the sentence is about (`before`).
        brevity: level of shortening of the words; an index of `LONGEST_NAME`.
    """

    def __init__(
        self,
        formula: FormulaSpec,
        verdict: Verdict,
        pairs: int,
        past: Literal["ago", "before"],
        brevity: int = 0,
    ) -> None:
        self._formula, self._verdict, self._pairs, self._past = formula, verdict, pairs, past
        self._labels, self.brevity = dict(formula.labels), brevity

    def name(self, name: str) -> str:
        """Return a name, shortened if the words have to be short."""
        return shortened(name, LONGEST_NAME[self.brevity])

    def short(self, change: InterventionRef) -> InterventionRef:
        """Return an intervention with its name shortened."""
        change = self.worded(change)
        return replace(change, name=self.name(change.name))

    def worded(self, change: InterventionRef) -> InterventionRef:
        """Return an intervention with the words for its action."""
        if change.kind != "action" or not self._formula.actions:
            return change
        return replace(change, name=self.action(change.name, 0).removeprefix("action "))

    def action(self, name: str, number: int) -> str:
        """Return the words for an action."""
        return action_in_words(name, number, self._formula.actions)

    def quote(self, text: str, otherwise: str) -> str:
        """Return a formula, or `otherwise` if the formula is too long."""
        shown = " ".join(text.split())
        return shown if len(shown) <= LONGEST_QUOTE[self.brevity] else otherwise

    @property
    def back(self) -> int | None:
        """Number of steps from the beginning of the intervention to the newest step; None if unknown."""
        offset = self._verdict.offset
        if offset >= 0:
            return offset
        return self._pairs + offset if self._pairs else None

    @property
    def hindsight(self) -> bool:
        """True if transitions were observed since the intervention, so that decisions can use knowledge of them."""
        return self.back != 0

    def named(self, change: InterventionRef) -> str:
        """Return an intervention as a noun."""
        return noun(self.short(change), hindsight=self.hindsight)

    def of_path(self, measure: Measure) -> str:
        """Return the words for the measure on the actual path, from the formula's offset on."""
        return self.of(measure, self.when())

    def in_world(self, world: WorldRef, measure: Measure) -> str:
        """Return the words for the measure of a plain goal, with its intervention."""
        if world.baseline is not None:
            if self.brevity > 1:
                return f"effect of {self.named(world.change)} on {self.of(measure)}"
            pair = f"{self.named(world.change)} rather than {self.named(world.baseline)}"
            return f"effect on {self.of(measure)} of {pair} {self.starting()}"
        if world.change.kind != "nominal":
            since = "" if self.brevity > 1 else f" {self.starting()}"
            return f"{self.of(measure)} with {self.named(world.change)}{since}"
        return self.of_path(measure)

    def of(self, measure: Measure, when: str = NOW) -> str:
        """Return the words for a measure, and for the step from which it is counted."""
        words = self._in_words(measure.path) if isinstance(measure, Probability) else None
        if words is None:
            words = self.quote(_inside(self._formula.text), f"the goal of '{self.name(self._formula.name)}'")
        since = "" if when == NOW or self.brevity > 1 else f", {when}"
        return f"P({words}{since})" if isinstance(measure, Probability) else f"expected reward({words}{since})"

    def _in_words(self, path: Formula) -> str | None:
        """Return a goal in words if it has one of the most common forms; otherwise None, so that the goal is quoted."""
        if isinstance(path, Until) and (late := handover_goal(Goal(WorldRef(), Probability(path)))) is not None:
            return f"too late for {noun(self.short(late.world.change))} within {steps(path.high)}"
        match path:
            case Not(Until(0, high, Const(True), Not(Not(Label(bad))))):
                return self._never(bad, f"in {steps(high)}")
            case Not(Until(0, high, Const(True), Not(Label(good)))):
                return f"{self.label(good)} throughout {steps(high)}"
            case Until(0, high, Const(True), Label(good)):
                return f"{self.label(good)} within {steps(high)}"
            case Until(0, high, Not(Label(bad)), Label(good)):
                return f"{self.label(good)} within {steps(high)}, {self._never(bad, 'before it')}"
            case _:
                return None

    def by_then(self, path: Formula, *, reached: bool) -> str:
        """Return the words for a goal at one of its steps: the goal is reached by then, or not missed by then."""
        match path:
            case Not(Until(0, _, Const(True), Not(Not(Label(bad))))) if not reached:
                words = self._never(bad, "by then")
            case Not(Until(0, _, Const(True), Not(Label(good)))) if not reached:
                words = f"{self.label(good)} until then"
            case Until(0, _, Const(True), Label(good)) if reached:
                words = f"{self.label(good)} by then"
            case Until(0, _, Not(Label(bad)), Label(good)) if reached:
                words = f"{self.label(good)} by then, {self._never(bad, 'before it')}"
            case _:
                words = "goal reached by then" if reached else "goal not missed by then"
        return f"P({words})"

    def label(self, label: str) -> str:
        """Return a label as the configuration describes it, or its name."""
        return f"'{self.name(self._labels[label])}'" if label in self._labels else self.name(label)

    def _never(self, label: str, when: str) -> str:
        return f"{'not' if label in self._labels else 'no'} {self.label(label)} {when}"

    def when(self) -> str:
        """Return the words for the step from which a quantity is counted; `NOW` only for offset 0."""
        start = self.start()
        return start if start == NOW else f"from {start.removeprefix('at ')}"

    def starting(self) -> str:
        """Return the words for the step from which an intervention is in force, as a participle."""
        start = self.start()
        return start if start == NOW else f"starting {start}"

    def start(self) -> str:
        """Return the words for the step at which the intervention begins; `NOW` only for offset 0."""
        verdict = self._verdict
        offset, clipped = verdict.offset, verdict.clipped
        first = "the oldest step still held" if verdict.start_dropped else "the episode's start"
        if offset < 0:
            ago = f", {self.ago(self._pairs + offset)}" if self._pairs else ""
            return f"at {first}{ago}" if offset == -1 else f"{steps(-offset - 1)} after {first}{ago}"
        if offset == 0:
            return NOW
        return f"at {first}, {self.ago(offset)}" if clipped else self.ago(offset)

    def ago(self, count: int) -> str:
        """Return the words for a number of steps ago."""
        return f"{steps(count)} {self._past}" if count else "just now"


def _inside(text: str) -> str:
    """Return the content of the last outermost brackets, which is the measure of a goal or a regret formula."""
    text = re.sub(r"//[^\n]*", "", text)
    end = text.rindex("]")
    depth = 1
    start = end
    while depth:
        start -= 1
        depth += {"]": 1, "[": -1}.get(text[start], 0)
    return text[start + 1 : end]
