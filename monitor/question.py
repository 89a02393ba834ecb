"""One formula on one agent's stream: answered at each step it is due, by the engine that fits."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from monitor.decide import Track, largest_offset
from monitor.engine import NOT_EXACT, Engines, on_stream
from monitor.errors import LimitError, MonitorError
from monitor.logic import Formula
from monitor.logic.syntax import Regret
from monitor.stream import Session
from monitor.types import FormulaSpec, Outcome, Step, Verdict

__all__ = ["Answers", "Question"]


@dataclass(frozen=True)
class Question:
    """A formula to watch, parsed and checked. `sampled`: it is never answered exactly; `why`, if not as asked for."""

    spec: FormulaSpec
    formula: Formula
    sampled: bool = False
    why: str = ""

    @cached_property
    def reach(self) -> int:
        """How many steps back it looks: the largest |offset| it asks about."""
        return largest_offset(self.formula)


@dataclass(slots=True)
class Answers:
    """What the next answer of one question depends on beside the path.

    `track` is no more than a short cut: it can be made anew from the held path, with the same answers to the bit.
    `begun`, `pushed`: the path's when the track last moved. `tests`: answers by sampling so far, over all episodes;
    each spends its share of the stream's alpha, so this is never reset.
    """

    tests: int = 0
    track: Track | None = None
    begun: int = -1
    pushed: int = 0

    def verdict(self, question: Question, engines: Engines, session: Session, step: Step) -> Verdict:
        """The answer on the session's path, whose last pair is `step`. What cannot be answered is undecided."""
        if question.sampled:
            return self._sampled(question, engines, session, step, question.why)
        spec, path = question.spec, session.path
        moved = path.pushed - self.pushed if path.begun == self.begun else None
        self.begun, self.pushed = path.begun, path.pushed
        try:
            if self.track is None:
                window = session.settings.window
                self.track = engines.checker.track(question.formula, spec.causal_model, spec.text, window=window)
            return self.track.verdict(path.held, moved, terminated=path.terminated, start_observed=path.start_observed)
        except MonitorError as error:  # too large to answer exactly here
            self.track = None  # where it stands is not known
            self.begun = -1
            if isinstance(error, LimitError) and spec.engine == "auto" and spec.causal_model == "gumbel":
                return self._sampled(question, engines, session, step, NOT_EXACT + str(error))
            return _undecided(question, "exact", str(error))

    def _sampled(self, question: Question, engines: Engines, session: Session, step: Step, why: str) -> Verdict:
        """By sampling: one more test of this formula on this stream."""
        spec, path = question.spec, session.path
        self.tests += 1
        drawn = on_stream(
            engines.sampling,
            spec.alarm,
            stream=(session.agent, step.episode, spec.name),
            seq=step.seq,
            first=step.seq - (len(path.held) - 1),
            test=self.tests,
        )
        try:
            return engines.drawer.verdict(
                question.formula,
                path.pairs,
                drawn,
                text=spec.text,
                terminated=path.terminated,
                start_observed=path.start_observed,
                why=why,
            )
        except MonitorError as error:
            return _undecided(question, "sampled", f"{why}; {error}" if why else str(error))


def _undecided(question: Question, method: Literal["exact", "sampled"], reason: str) -> Verdict:
    """No alarm moves by it, and it is told."""
    outcome: Outcome | None = "undecided" if isinstance(question.formula, Regret) else None
    return Verdict(question.spec.text, method, question.spec.causal_model, (), outcome=outcome, reason=reason)
