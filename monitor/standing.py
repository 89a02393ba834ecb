"""One formula for one agent: when it is due, what was judged, where its alarm stands, and what is told of it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal, assert_never

import msgspec

from monitor.alarm.machine import Alarm, Change, advance, close, judge, see
from monitor.alarm.message import Identity, alert_id
from monitor.alarm.summary import summary
from monitor.engine import Engines
from monitor.question import Answers, Question
from monitor.stream import Session
from monitor.types import AlarmMoved, Alert, Blind, BlindReason, Instant, Judged, Notice, Skipped, Step

__all__ = ["Standing", "StandingState", "When"]

When = Literal["step", "time", "end"]
"""On what occasion answers are given: a step, time that has passed, the end of an episode."""


class _JudgedPath(msgspec.Struct, frozen=True):
    """The path a verdict was given on; it may have moved on by the time an alert is told."""

    pairs: tuple[tuple[int, int | None], ...]
    start_observed: bool
    terminated: bool


class StandingState(msgspec.Struct, frozen=True, array_like=True):
    """A `Standing` as plain data; the fields are its attributes, `tests` that of its `answers`."""

    alarm: Alarm
    steps: int
    asked: float | None
    last: Judged | None
    path: _JudgedPath | None
    tests: int


class Standing:
    """What one formula has come to for one agent.

    Attributes:
        question: the formula.
        alarm: where its alarm stands, and whether it is blind.
        steps: steps since the last answer, the newest included.
        asked: ticks of the last answer, for formulas that are due by time.
        last: the last answer of this episode.
    """

    __slots__ = ("_agent", "_answers", "_identity", "_path", "alarm", "asked", "last", "question", "steps")

    def __init__(self, question: Question, agent: str, identity: Identity) -> None:
        self.question = question
        self.alarm = Alarm()
        self.steps = 0
        self.asked: float | None = None
        self.last: Judged | None = None
        self._path: _JudgedPath | None = None
        self._answers = Answers()
        self._agent = agent
        self._identity = identity

    @property
    def due(self) -> float | None:
        """Ticks at which a formula asked by time is due. On a path that has not grown it would only be told again."""
        every = self.question.spec.every
        if isinstance(every, int) or self.steps == 0:
            return None
        return -math.inf if self.asked is None else self.asked + every

    def is_due(self, now: Instant, when: When) -> bool:
        """Whether to answer on this occasion."""
        match when:
            case "step":
                every = self.question.spec.every
                return isinstance(every, int) and self.steps >= every
            case "time":
                return (at := self.due) is not None and at <= now.ticks
            case "end":  # once more, unless this very step has been answered already
                return self.steps > 0
            case _:
                assert_never(when)

    def ask(self, now: Instant) -> None:
        """It was its turn, whether an answer could be given or not."""
        self.steps, self.asked = 0, now.ticks

    def skip(self, now: Instant) -> Iterator[Notice]:
        """Pass its turn over, if it has come."""
        if self.is_due(now, "step"):
            self.ask(now)
            yield Skipped(self._agent, self.question.spec.name, 1)

    def judge(self, session: Session, engines: Engines, step: Step, told: list[Notice]) -> None:
        """Answer on the session's path, whose last pair is `step`, and let the alarm move."""
        path, spec = session.path, self.question.spec
        verdict = self._answers.verdict(self.question, engines, session, step)
        self.last = Judged(self._agent, spec.name, verdict, step.episode, step.seq, step.time, step.late)
        told.append(self.last)
        self.alarm, change = advance(self.alarm, judge(verdict, spec.alarm), spec.alarm, seq=step.seq, time=step.time)
        if change is not None or self.alarm.state == "firing":  # only then is there, or will there be, an alert on it
            self._path = _JudgedPath(path.pairs, path.start_observed, path.terminated)
        if change is not None:
            told += self._tell(change, step.time)

    def see(self, blind: BlindReason | None, detail: str, now: Instant) -> Iterator[Notice]:
        """Tell that it is blind for this reason, or sees again (None), where that is new."""
        if self.alarm.blind == blind:
            return
        yield Blind(self._agent, self.question.spec.name, blind, detail)
        self.alarm, change = see(self.alarm, blind)
        if change is not None:
            yield from self._tell(change, now.wall)

    def close(self, how: Literal["ended", "removed"]) -> Iterator[Notice]:
        """The episode is over or the agent forgotten (`ended`), or the formula is (`removed`): what fires is over."""
        self.alarm, change = close(self.alarm, how)
        if self.last is not None and change is not None:
            yield from self._tell(change, self.last.time)

    def begin_anew(self) -> None:
        """Another episode: nothing of it was answered."""
        self.steps, self.asked, self.last = 0, None, None

    def again(self, detail: str) -> Iterator[Notice]:
        """Where it stands, as it was told: the last verdict, the alarm, whether it is blind."""
        name = self.question.spec.name
        if self.last is not None:
            yield self.last
        yield AlarmMoved(self._agent, name, self.alarm.state)
        yield Blind(self._agent, name, self.alarm.blind, detail)

    def dump(self) -> StandingState:
        """All that its next answer depends on. A track is left out: the path gives it."""
        return StandingState(self.alarm, self.steps, self.asked, self.last, self._path, self._answers.tests)

    def load(self, state: StandingState) -> None:
        """The inverse of `dump`."""
        self.alarm, self.steps, self.asked = state.alarm, state.steps, state.asked
        self.last, self._path, self._answers = state.last, state.path, Answers(state.tests)

    def _tell(self, change: Change, time: float) -> Iterator[Notice]:
        agent, spec = self._agent, self.question.spec
        yield AlarmMoved(agent, spec.name, self.alarm.state)
        if not change.is_alert:
            return
        judged, path = self.last, self._path
        assert judged is not None, "an alarm moves only after a verdict"
        assert path is not None
        yield Alert(
            id=alert_id(agent, judged.episode, spec, self._identity, change.first_seq),
            revision=change.revision,
            agent=agent,
            formula=spec.name,
            text=spec.text,
            state=change.state,
            blind=self.alarm.blind,
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
                parsed=self.question.formula,
                state=change.state,
                blind=self.alarm.blind,
                verdict=judged.verdict,
                path_length=len(path.pairs),
            ),
            runbook=spec.alarm.runbook,
            path=path.pairs,
            start_observed=path.start_observed,
            terminated=path.terminated,
        )
