"""One agent, all its formulas: what is due, what is blind, what was judged, where each alarm stands."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from monitor.alarm.machine import Alarm, Change, advance, close, judge, see
from monitor.alarm.message import Identity, alert_id
from monitor.alarm.summary import summary
from monitor.decide import Checker, largest_offset
from monitor.errors import MonitorError
from monitor.logic import Formula
from monitor.logic.syntax import Regret
from monitor.stream import Session
from monitor.types import (
    AlarmMoved,
    Alert,
    Blind,
    BlindReason,
    End,
    Ended,
    FormulaSpec,
    Instant,
    Judged,
    Notice,
    Outcome,
    Skipped,
    Step,
    Verdict,
)

__all__ = ["Question", "Watch"]


@dataclass(frozen=True)
class Question:
    """A formula to watch, parsed and checked. `reach`: the largest |offset| it asks about."""

    spec: FormulaSpec
    formula: Formula

    @property
    def reach(self) -> int:
        """How many steps back it looks."""
        return largest_offset(self.formula)


@dataclass(frozen=True, slots=True)
class _JudgedPath:
    """The path a verdict was given on; it may have moved on by the time an alert is told."""

    pairs: tuple[tuple[int, int | None], ...]
    start_observed: bool
    terminated: bool


@dataclass
class _State:
    """What one formula has come to for one agent: plain data, all that its next answer depends on."""

    alarm: Alarm = field(default_factory=Alarm)
    steps: int = 0
    """steps since the last answer, this one included"""
    asked: float | None = None
    """ticks of the last answer, for formulas that are due by time"""
    last: Judged | None = None
    path: _JudgedPath | None = None


class Watch:
    """Answers every formula for one agent as its path grows, and keeps the alarms."""

    def __init__(self, session: Session, questions: Sequence[Question], checker: Checker, identity: Identity) -> None:
        self.session = session
        self._questions = questions
        self._checker = checker
        self._identity = identity
        self._states = {question.spec.name: _State() for question in questions}
        self._open = False

    def evaluate(self, now: Instant, *, connected: bool, latest_only: bool) -> Iterator[Notice]:
        """Advance over what is pending and answer what is due; with `latest_only`, only at the newest step."""
        while (event := self.session.advance()) is not None:
            match event:
                case Step():
                    self._open = True
                    for state in self._states.values():
                        state.steps += 1
                    ending = bool(self.session.pending) and isinstance(self.session.pending[0], End)
                    # With its last step an episode ends: that answer is given once, knowing how it ended.
                    if not ending and not (latest_only and self._more_steps()):
                        yield from self._answer(event, now, connected=connected, final=False)
                    elif not ending:
                        yield from self._skip(now)
                case End():
                    yield from self._end(event, now, connected=connected)
                case _:
                    yield from self.look(now, connected=connected)

    def look(self, now: Instant, *, connected: bool) -> Iterator[Notice]:
        """Tell which formulas went blind or see again; asks nothing."""
        for question in self._questions:
            yield from self._see(question, self._blindness(question, now, connected=connected), now)

    def silent(self, now: Instant) -> float:
        """Seconds since the agent was last heard."""
        return 0.0 if self.session.last_heard is None else now.ticks - self.session.last_heard

    def close(self) -> Iterator[Notice]:
        """The agent is forgotten: what fires ends."""
        for question in self._questions:
            yield from self._close(question)

    def _more_steps(self) -> bool:
        return any(isinstance(event, Step) for event in self.session.pending)

    def _blindness(self, question: Question, now: Instant, *, connected: bool) -> BlindReason | None:
        if not connected:
            return "disconnected"
        path = self.session.path
        between = not self._open and (path.ended or path.broken == "warming_up")
        reason = None if between else path.blind(question.reach)  # between episodes there is nothing to see
        if reason is None and self.session.mismatch:
            reason = "policy_mismatch"
        if reason is None and self._open and self.silent(now) > self.session.settings.stale_after:
            reason = "stale"
        return reason

    def _answer(self, step: Step, now: Instant, *, connected: bool, final: bool) -> Iterator[Notice]:
        for question in self._questions:
            state = self._states[question.spec.name]
            blind = self._blindness(question, now, connected=connected)
            # Also where nothing is due: an old value must not look like sight.
            yield from self._see(question, blind, now)
            # Once more at the end, unless this very step has been answered already.
            if state.steps > 0 if final else self._due(question, state, now):
                state.steps, state.asked = 0, now.ticks
                if blind is None:
                    yield from self._judge(question, state, step)

    def _skip(self, now: Instant) -> Iterator[Notice]:
        for question in self._questions:
            state = self._states[question.spec.name]
            if self._due(question, state, now):
                state.steps, state.asked = 0, now.ticks
                yield Skipped(self.session.agent, question.spec.name, 1)

    def _due(self, question: Question, state: _State, now: Instant) -> bool:
        every = question.spec.every
        if isinstance(every, int):
            return state.steps >= every
        return state.asked is None or now.ticks - state.asked >= every

    def _judge(self, question: Question, state: _State, step: Step) -> Iterator[Notice]:
        path = self.session.path
        state.path = _JudgedPath(path.pairs, path.start_observed, path.terminated)
        verdict = self._verdict(question, state.path)
        state.last = Judged(
            self.session.agent, question.spec.name, verdict, step.episode, step.seq, step.time, step.late
        )
        yield state.last
        judgement = judge(verdict, question.spec.alarm)
        state.alarm, change = advance(state.alarm, judgement, question.spec.alarm, seq=step.seq, time=step.time)
        yield from self._tell(question, state, change, step.time)

    def _verdict(self, question: Question, path: _JudgedPath) -> Verdict:
        spec = question.spec
        try:
            return self._checker.check(
                question.formula,
                path.pairs,
                causal_model=spec.causal_model,
                terminated=path.terminated,
                start_observed=path.start_observed,
                text=spec.text,
            )
        except MonitorError as error:  # too large to answer exactly here: no alarm moves by it, and it is told
            outcome: Outcome | None = "undecided" if isinstance(question.formula, Regret) else None
            return Verdict(spec.text, "exact", spec.causal_model, (), outcome=outcome, reason=str(error))

    def _see(self, question: Question, blind: BlindReason | None, now: Instant) -> Iterator[Notice]:
        state = self._states[question.spec.name]
        if state.alarm.blind == blind:
            return
        detail = self.session.path.detail if blind == self.session.path.broken else ""
        yield Blind(self.session.agent, question.spec.name, blind, detail)
        state.alarm, change = see(state.alarm, blind)
        yield from self._tell(question, state, change, now.wall)

    def _end(self, end: End, now: Instant, *, connected: bool) -> Iterator[Notice]:
        step = self.session.path.last
        if step is not None:
            yield from self._answer(step, now, connected=connected, final=True)
        self._open = False
        for question in self._questions:
            yield from self._close(question)
            state = self._states[question.spec.name]
            state.steps, state.asked, state.last = 0, None, None
        yield Ended(self.session.agent, end.episode)

    def _close(self, question: Question) -> Iterator[Notice]:
        state = self._states[question.spec.name]
        state.alarm, change = close(state.alarm, "ended")
        if state.last is not None:
            yield from self._tell(question, state, change, state.last.time)

    def _tell(self, question: Question, state: _State, change: Change | None, time: float) -> Iterator[Notice]:
        if change is None:
            return
        agent, spec = self.session.agent, question.spec
        yield AlarmMoved(agent, spec.name, state.alarm.state)
        if not change.is_alert:
            return
        judged, path = state.last, state.path
        assert judged is not None, "an alarm moves only after a verdict"
        assert path is not None
        yield Alert(
            id=alert_id(agent, judged.episode, spec, self._identity, change.first_seq),
            revision=change.revision,
            agent=agent,
            formula=spec.name,
            text=spec.text,
            state=change.state,
            blind=state.alarm.blind,
            severity=spec.alarm.severity,
            verdict=judged.verdict,
            episode=judged.episode,
            seq=judged.seq,
            first_seq=change.first_seq,
            time=time,
            since=change.since,
            late=judged.late,
            summary=summary(
                agent=agent,
                formula=spec,
                state=change.state,
                blind=state.alarm.blind,
                verdict=judged.verdict,
                path_length=len(path.pairs),
            ),
            runbook=spec.alarm.runbook,
            path=path.pairs,
            start_observed=path.start_observed,
            terminated=path.terminated,
        )
