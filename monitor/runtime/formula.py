"""One formula for one agent: when it is due, what was judged, where its alarm stands, and what is told of it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final, Literal, assert_never

import msgspec

from monitor.alarm.figures import Stance, figures_of, fired_of, stance_of
from monitor.alarm.machine import Alarm, Change, advance, close, judge, renew, see
from monitor.alarm.message import Identity, alert_id
from monitor.alarm.summary import summary
from monitor.engine import Engines
from monitor.runtime.forecasts import Forecasts, ForecastsState
from monitor.runtime.query import Answers, Query
from monitor.stream import Session
from monitor.types import (
    AlarmMoved,
    Alert,
    Blind,
    BlindReason,
    Fired,
    Instant,
    Judged,
    Notice,
    Refreshed,
    Skipped,
    Step,
)

__all__ = ["FormulaMonitor", "FormulaMonitorState", "When"]

When = Literal["step", "time", "end"]
"""On what occasion answers are given: a step, time that has passed, the end of an episode."""

PAUSE: Final = 1.0
"""Seconds, on the monotonic clock of the events, between two revisions of a firing alarm that its verdicts cause."""


class _JudgedPath(msgspec.Struct, frozen=True):
    """The path a verdict was given on; it may have moved on by the time an alert is told."""

    pairs: tuple[tuple[int, int | None], ...]
    start_observed: bool
    terminated: bool


class _Published(msgspec.Struct, frozen=True):
    """What was last published of an alarm that fires.

    `fired`: what it said when it fired; `stance`: what its newest revision said, at `ticks`; `withheld`: something else
    is to be said, and `PAUSE` is not over.
    """

    fired: Fired
    stance: Stance
    ticks: float
    withheld: bool = False


class FormulaMonitorState(msgspec.Struct, frozen=True, array_like=True):
    """A `FormulaMonitor` as plain data; the fields are its attributes, `tests` that of its `answers`.

    `forecasts`: None where none are followed.
    """

    alarm: Alarm
    steps: int
    asked: float | None
    last: Judged | None
    path: _JudgedPath | None
    tests: int
    skipped: float | None
    published: _Published | None = None
    forecasts: ForecastsState | None = None


class FormulaMonitor:
    """What one formula has come to for one agent.

    Attributes:
        question: the formula.
        alarm: where its alarm stands, and whether it is blind.
        steps: steps since the last answer, the newest included.
        asked: ticks of the last answer, for formulas that are due by time.
        last: the last answer of this episode.
        forecasts: of the agent's own future, as it was told, against what came of it; None: none are followed.
        skipped: ticks at which an answer was last passed over, so that an alarm may be missing.
    """

    __slots__ = (
        "_agent",
        "_answers",
        "_identity",
        "_path",
        "_published",
        "alarm",
        "asked",
        "forecasts",
        "last",
        "question",
        "skipped",
        "steps",
    )

    def __init__(self, question: Query, agent: str, identity: Identity) -> None:
        self.question = question
        self.alarm = Alarm()
        self.steps = 0
        self.asked: float | None = None
        self.last: Judged | None = None
        self.skipped: float | None = None
        target = question.target
        self.forecasts = None if target is None else Forecasts(target, agent, question.spec.name)
        self._path: _JudgedPath | None = None
        self._published: _Published | None = None
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

    @property
    def revises(self) -> float | None:
        """Ticks at which a revision that is withheld is due; None where none is."""
        published = self._published
        return published.ticks + PAUSE if published is not None and published.withheld else None

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
            self.skipped = now.ticks
            yield Skipped(self._agent, self.question.spec.name, 1)

    def judge(
        self, session: Session, engines: Engines, step: Step, told: list[Notice], now: Instant, *, ends: bool = False
    ) -> None:
        """Answer on the session's path, whose last pair is `step`, and let the alarm move.

        `ends`: with this step the episode ends, so that what fires on is about to be told as `ended`.
        """
        path, spec = session.path, self.question.spec
        verdict = self._answers.verdict(self.question, engines, session, step)
        self.last = Judged(self._agent, spec.name, verdict, step.episode, step.seq, step.time, step.late)
        told.append(self.last)
        forecasts = self.forecasts
        if forecasts is not None and forecasts.value is None and not path.ended:  # else nothing is left to come true
            forecasts.begin(verdict, path.held)
        self.alarm, change = advance(self.alarm, judge(verdict, spec.alarm), spec.alarm, seq=step.seq, time=step.time)
        if change is not None or self.alarm.state == "firing":  # only then is there, or will there be, an alert on it
            self._path = _JudgedPath(path.pairs, path.start_observed, path.terminated)
        if change is not None:
            told += self._tell(change, step.time, now)
        elif self.alarm.state == "firing" and not ends:
            told += self._refresh(now)

    def revise(self, now: Instant) -> Iterator[Notice]:
        """Tell what was withheld, once it is due; the newest verdict is told."""
        if self.last is not None and self.revises is not None and self.revises <= now.ticks:
            yield from self._renew(now, self.last.time)

    def see(self, blind: BlindReason | None, detail: str, now: Instant) -> Iterator[Notice]:
        """Tell that it is blind for this reason, or sees again (None), where that is new."""
        if self.alarm.blind == blind:
            return
        yield Blind(self._agent, self.question.spec.name, blind, detail)
        self.alarm, change = see(self.alarm, blind)
        if change is not None:
            yield from self._tell(change, now.wall, now)

    def close(self, how: Literal["ended", "removed"]) -> Iterator[Notice]:
        """The episode is over or the agent forgotten (`ended`), or the formula is (`removed`): what fires is over."""
        self.alarm, change = close(self.alarm, how)
        if self.last is not None and change is not None:
            yield from self._tell(change, self.last.time, None)

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
        if self.forecasts is not None:
            yield self.forecasts.again()

    def dump(self) -> FormulaMonitorState:
        """All that its next answer depends on. A track is left out: the path gives it."""
        tests, forecasts = self._answers.tests, None if self.forecasts is None else self.forecasts.dump()
        return FormulaMonitorState(
            self.alarm, self.steps, self.asked, self.last, self._path, tests, self.skipped, self._published, forecasts
        )

    def load(self, state: FormulaMonitorState) -> None:
        """The inverse of `dump`."""
        self.alarm, self.steps, self.asked = state.alarm, state.steps, state.asked
        self.last, self._path, self._answers = state.last, state.path, Answers(state.tests)
        self.skipped, self._published = state.skipped, state.published
        if self.forecasts is not None and state.forecasts is not None:
            self.forecasts.load(state.forecasts)

    def _refresh(self, now: Instant) -> Iterator[Notice]:
        """The alarm fires on, with a newer verdict: a revision if that says something else, else kept for a heartbeat.

        While `PAUSE` is not over the revision is withheld; then whatever is the newest is told, if it is still news.
        """
        published, judged, path, spec = self._published, self.last, self._path, self.question.spec
        assert published is not None, "what fires was published"
        assert judged is not None, "it was just judged"
        assert path is not None
        news = self._stance(judged).differs(published.stance, spec.alarm.step)
        if news and now.ticks - published.ticks >= PAUSE:
            yield from self._renew(now, judged.time)
            return
        if news != published.withheld:
            self._published = msgspec.structs.replace(published, withheld=news)
        yield Refreshed(judged, spec, len(path.pairs))

    def _renew(self, now: Instant, time: float) -> Iterator[Notice]:
        self.alarm, change = renew(self.alarm)
        yield from self._publish(change, time, now)

    def _tell(self, change: Change, time: float, now: Instant | None) -> Iterator[Notice]:
        """Tell a change, at `time`. `now`: None where the alarm is over, so that nothing more will be told of it."""
        yield AlarmMoved(self._agent, self.question.spec.name, self.alarm.state)
        if change.is_alert:
            yield from self._publish(change, time, now)

    def _publish(self, change: Change, time: float, now: Instant | None) -> Iterator[Notice]:
        judged = self.last
        assert judged is not None, "an alarm moves only after a verdict"
        fired = self._published.fired if self._published is not None else self._fired(judged)
        firing = change.state == "firing" and now is not None
        self._published = _Published(fired, self._stance(judged), now.ticks) if firing and now is not None else None
        yield self._alert(change, judged, time, fired)

    def _fired(self, judged: Judged) -> Fired:
        return fired_of(figures_of(self.question.formula, judged.verdict), judged)

    def _stance(self, judged: Judged) -> Stance:
        return stance_of(self.question.formula, judged.verdict, self.alarm.blind)

    def _alert(self, change: Change, judged: Judged, time: float, fired: Fired) -> Alert:
        agent, spec, path = self._agent, self.question.spec, self._path
        assert path is not None
        formula, blind, state = self.question.formula, self.alarm.blind, change.state
        return Alert(
            id=alert_id(agent, judged.episode, spec, self._identity, change.first_seq),
            revision=change.revision,
            agent=agent,
            formula=spec.name,
            text=spec.text,
            state=state,
            blind=blind,
            severity=spec.alarm.severity,
            verdict=judged.verdict,
            figures=figures_of(formula, judged.verdict, state=state, blind=blind),
            fired=fired,
            episode=judged.episode,
            seq=judged.seq,
            first_seq=change.first_seq,
            time=time,
            since=change.since,
            late=judged.late,
            summary=summary(
                agent=agent,
                formula=spec,
                parsed=formula,
                state=state,
                blind=blind,
                verdict=judged.verdict,
                path_length=len(path.pairs),
            ),
            runbook=spec.alarm.runbook,
            path=path.pairs,
            start_observed=path.start_observed,
            terminated=path.terminated,
        )
