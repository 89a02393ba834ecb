"""One agent, all its formulas: what is due, what is blind, what was judged, where each alarm stands."""

from __future__ import annotations

import math
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, assert_never

import msgspec

from monitor.alarm.machine import Alarm, Change, advance, close, judge, see
from monitor.alarm.message import Identity, alert_id
from monitor.alarm.summary import summary
from monitor.engine import Engines
from monitor.question import Answers, Question
from monitor.statistics.trust import ModelTest
from monitor.stream import Session, SessionState
from monitor.types import (
    AlarmMoved,
    Alert,
    Blind,
    BlindReason,
    Break,
    End,
    Ended,
    Instant,
    Judged,
    Notice,
    Skipped,
    Step,
)

__all__ = ["MARKS", "FormulaState", "Watch", "WatchState"]

MARKS: Final[frozenset[BlindReason]] = frozenset({"disconnected", "stale", "deadline", "model_doubt"})
"""Reasons that say nothing against the path. A step that came is answered all the same and alarms keep moving, so that
they are those of a stream without interruption; all that is told meanwhile is marked.
"""


_When = Literal["step", "time", "end"]
"""On what occasion answers are given: a step, time that has passed, the end of an episode."""


class _JudgedPath(msgspec.Struct, frozen=True):
    """The path a verdict was given on; it may have moved on by the time an alert is told."""

    pairs: tuple[tuple[int, int | None], ...]
    start_observed: bool
    terminated: bool


class FormulaState(msgspec.Struct, frozen=True, array_like=True):
    """A `_State` as plain data; the fields are its attributes, `tests` that of its `Answers`."""

    alarm: Alarm
    steps: int
    asked: float | None
    last: Judged | None
    path: _JudgedPath | None
    tests: int


class WatchState(msgspec.Struct, frozen=True, array_like=True):
    """A `Watch` as plain data: all that its future depends on, each formula's by its name."""

    session: SessionState
    open: bool
    waiting: float | None
    formulas: dict[str, FormulaState]


@dataclass(slots=True)
class _State:
    """What one formula has come to for one agent: all that its next answer depends on."""

    alarm: Alarm = field(default_factory=Alarm)
    steps: int = 0
    """steps since the last answer, this one included"""
    asked: float | None = None
    """ticks of the last answer, for formulas that are due by time"""
    last: Judged | None = None
    path: _JudgedPath | None = None
    answers: Answers = field(default_factory=Answers)


class Watch:
    """Answers every formula for one agent as its path grows, and keeps the alarms.

    `trust`: the test of the model, one for all agents; None: the model is not tested.
    """

    def __init__(
        self,
        session: Session,
        questions: Sequence[Question],
        engines: Engines,
        identity: Identity,
        trust: ModelTest | None = None,
    ) -> None:
        self.session = session
        self._trust = trust
        self._waiting: float | None = None  # ticks of the oldest message whose steps nobody has looked at
        self._engines = engines
        self._identity = identity
        self._asked = [(question, _State()) for question in questions]
        self._open = False
        self._by_time = any(isinstance(question.spec.every, float) for question in questions)

    @property
    def due(self) -> float | None:
        """Ticks at which some formula has to be answered although nothing more may come; None where that is not so."""
        if not (self._by_time and self._open):
            return None
        return min(
            (at for question, state in self._asked if (at := _due_at(question, state)) is not None), default=None
        )

    def evaluate(self, now: Instant, *, connected: bool, latest_only: bool) -> list[Notice]:
        """Advance over what is pending and answer what is due; with `latest_only`, only at the newest step.

        What is due by time is answered last, on the newest path, and only if that has grown since the last answer.
        """
        told: list[Notice] = []
        session = self.session
        self._waiting = None
        path = session.path
        before, begun = path.last, path.begun
        while (event := session.advance()) is not None:
            if self._trust is not None:
                self._test(self._trust, before if path.begun == begun else None, event)
            before, begun = path.last, path.begun
            match event:
                case Step():
                    self._open = True
                    for _, state in self._asked:
                        state.steps += 1
                    if session.pending and isinstance(session.pending[0], End):
                        continue  # With its last step an episode ends: that answer is given once, knowing how it ended.
                    if latest_only and self._more_steps():
                        told += self._skip(now)
                    else:
                        self._answer(event, now, told, connected=connected, when="step")
                case End():
                    self._end(event, now, told, connected=connected)
                case _:
                    told += self.look(now, connected=connected)
        if self._by_time and self._open and path.last is not None:
            self._answer(path.last, now, told, connected=connected, when="time")
        return told

    def wait(self, now: Instant) -> None:
        """Something has come that `evaluate` is to look at."""
        if self._waiting is None:
            self._waiting = now.ticks

    def look(self, now: Instant, *, connected: bool) -> Iterator[Notice]:
        """Tell which formulas went blind or see again; asks nothing."""
        for question, state in self._asked:
            yield from self._see(question, state, self._blindness(question, now, connected=connected), now)

    def silent(self, now: Instant) -> float:
        """Seconds since the agent was last heard."""
        return 0.0 if self.session.last_heard is None else now.ticks - self.session.last_heard

    def close(self, how: Literal["ended", "removed"]) -> Iterator[Notice]:
        """The agent is forgotten (`ended`) or the formulas are (`removed`): what fires is over."""
        for question, state in self._asked:
            yield from self._close(question, state, how)

    def standing(self) -> Iterator[Notice]:
        """Where every formula stands, as it was told: the last verdict, the alarm, whether it is blind."""
        agent = self.session.agent
        for question, state in self._asked:
            name, alarm = question.spec.name, state.alarm
            if state.last is not None:
                yield state.last
            yield AlarmMoved(agent, name, alarm.state)
            yield Blind(agent, name, alarm.blind, self._detail(alarm.blind))

    def dump(self) -> WatchState:
        """All that the future depends on; write it before the next step. A track is left out: the path gives it."""
        return WatchState(
            self.session.dump(),
            self._open,
            self._waiting,
            {
                question.spec.name: FormulaState(
                    state.alarm, state.steps, state.asked, state.last, state.path, state.answers.tests
                )
                for question, state in self._asked
            },
        )

    def load(self, state: WatchState, formulas: Container[str]) -> None:
        """The inverse of `dump` for these formulas, in a watch whose session was loaded; the others start anew."""
        self._open, self._waiting = state.open, state.waiting
        self._asked = [
            (question, _State(f.alarm, f.steps, f.asked, f.last, f.path, Answers(f.tests)))
            if question.spec.name in formulas and (f := state.formulas.get(question.spec.name)) is not None
            else (question, _State())
            for question, _ in self._asked
        ]

    def _test(self, trust: ModelTest, before: Step | None, event: Step | Break | End) -> None:
        """Hold the model against what happened. `before`: the step that this one follows on the path, if it does."""
        match event:
            case Step() if before is not None and before.action is not None:
                trust.step(before.state * self.session.model.actions + before.action, event.state)
            case Break(reason="impossible_step"):
                trust.contradict()
            case _:
                pass

    def _more_steps(self) -> bool:
        return any(isinstance(event, Step) for event in self.session.pending)

    def _blindness(self, question: Question, now: Instant, *, connected: bool) -> BlindReason | None:
        """Why a formula cannot be answered now, else why its answer is to be marked (`MARKS`), else None."""
        path = self.session.path
        if self._open or not (path.ended or path.broken == "warming_up"):  # between episodes there is nothing to see
            reason = path.blind(question.reach)
            if reason is not None:
                return reason
        if self.session.mismatch:
            return "policy_mismatch"
        if not connected:
            return "disconnected"
        patience = self.session.settings.stale_after
        if self._waiting is not None and now.ticks - self._waiting > patience:
            return "deadline"
        if self._open and self.silent(now) > patience:
            return "stale"
        return "model_doubt" if self._trust is not None and self._trust.doubted else None

    def _answer(self, step: Step, now: Instant, told: list[Notice], *, connected: bool, when: _When) -> None:
        for question, state in self._asked:
            blind = self._blindness(question, now, connected=connected)
            if blind != state.alarm.blind:  # Also where nothing is due: an old value must not look like sight.
                told += self._see(question, state, blind, now)
            if _is_due(question, state, now, when):
                state.steps, state.asked = 0, now.ticks
                if blind is None or blind in MARKS:
                    self._judge(question, state, step, told)

    def _skip(self, now: Instant) -> Iterator[Notice]:
        for question, state in self._asked:
            if _is_due(question, state, now, "step"):
                state.steps, state.asked = 0, now.ticks
                yield Skipped(self.session.agent, question.spec.name, 1)

    def _judge(self, question: Question, state: _State, step: Step, told: list[Notice]) -> None:
        path, spec = self.session.path, question.spec
        verdict = state.answers.verdict(question, self._engines, self.session, step)
        state.last = Judged(self.session.agent, spec.name, verdict, step.episode, step.seq, step.time, step.late)
        told.append(state.last)
        judgement = judge(verdict, spec.alarm)
        state.alarm, change = advance(state.alarm, judgement, spec.alarm, seq=step.seq, time=step.time)
        if change is not None or state.alarm.state == "firing":  # only then is there, or will there be, an alert on it
            state.path = _JudgedPath(path.pairs, path.start_observed, path.terminated)
        if change is not None:
            told += self._tell(question, state, change, step.time)

    def _see(self, question: Question, state: _State, blind: BlindReason | None, now: Instant) -> Iterator[Notice]:
        if state.alarm.blind == blind:
            return
        yield Blind(self.session.agent, question.spec.name, blind, self._detail(blind))
        state.alarm, change = see(state.alarm, blind)
        if change is not None:
            yield from self._tell(question, state, change, now.wall)

    def _detail(self, blind: BlindReason | None) -> str:
        path = self.session.path
        return path.detail if blind is not None and blind == path.broken else ""

    def _end(self, end: End, now: Instant, told: list[Notice], *, connected: bool) -> None:
        step = self.session.path.last
        if step is not None:
            self._answer(step, now, told, connected=connected, when="end")
        self._open = False
        for question, state in self._asked:
            told += self._close(question, state, "ended")
            state.steps, state.asked, state.last = 0, None, None
        told.append(Ended(self.session.agent, end.episode))

    def _close(self, question: Question, state: _State, how: Literal["ended", "removed"]) -> Iterator[Notice]:
        state.alarm, change = close(state.alarm, how)
        if state.last is not None and change is not None:
            yield from self._tell(question, state, change, state.last.time)

    def _tell(self, question: Question, state: _State, change: Change, time: float) -> Iterator[Notice]:
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
                parsed=question.formula,
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


def _due_at(question: Question, state: _State) -> float | None:
    """Ticks at which a formula asked by time is due. On a path that has not grown it would only be told again."""
    every = question.spec.every
    if isinstance(every, int) or state.steps == 0:
        return None
    return -math.inf if state.asked is None else state.asked + every


def _is_due(question: Question, state: _State, now: Instant, when: _When) -> bool:
    match when:
        case "step":
            return isinstance(question.spec.every, int) and state.steps >= question.spec.every
        case "time":
            return (at := _due_at(question, state)) is not None and at <= now.ticks
        case "end":  # once more, unless this very step has been answered already
            return state.steps > 0
        case _:
            assert_never(when)
