"""Monitor one formula for one agent: evaluate it when it is due, advance its alarm, and report changes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final, Literal, assert_never

import msgspec

from monitor.alarm.figures import Stance, figures_of, fired_of, own, stance_of
from monitor.alarm.machine import Alarm, AlarmChange, Assessment, assess, close, next_alarm, renew, set_blind
from monitor.alarm.message import Identity, alert_id
from monitor.alarm.summary import tell
from monitor.evaluation import Engines
from monitor.exact.verdict import is_missed
from monitor.runtime.forecasts import Forecasts, ForecastsState
from monitor.runtime.query import Query, QueryEvaluator
from monitor.runtime.takeovers import Takeovers, TakeoversState
from monitor.stream.path import SlidingPath
from monitor.stream.session import Session
from monitor.types.alerts import Alert, Fired
from monitor.types.notices import AlarmMoved, Blind, Judged, Notice, Refreshed, Skipped
from monitor.types.stream_events import BlindReason, Instant, State, Step
from monitor.types.verdicts import Verdict

When = Literal["step", "time", "end"]
"""Trigger of an evaluation: a step, elapsed time, or the end of an episode."""

PAUSE: Final = 1.0
"""Minimum seconds (ticks) between two revisions that new verdicts cause for one firing alarm."""


class _VerdictPath(msgspec.Struct, frozen=True):
    """The path on which a verdict was given. The session's path may have grown before an alert is published."""

    pairs: tuple[tuple[State, int | None], ...]
    start_observed: bool
    terminated: bool
    acted: tuple[str, ...] = ()
    inputs: tuple[tuple[float, ...], ...] = ()


class _Published(msgspec.Struct, frozen=True):
    """State of a firing alarm as last published.

    `fired`: figures of the alarm when it fired. `stance`: stance of its newest revision, published at `ticks`.
    `withheld`: whether a new revision waits for the end of `PAUSE`. `worst`: the worst known value since the alarm
    fired, also of verdicts that were not published; None if the value was not known when the alarm fired.
    """

    fired: Fired
    stance: Stance
    ticks: float
    withheld: bool = False
    worst: float | None = None


class FormulaMonitorState(msgspec.Struct, frozen=True, array_like=True):
    """State of a `FormulaMonitor` as plain data. `asked`: the monitor's `answered_at`. `tests`: as in `QueryEvaluator`.

    `forecasts`: None if no forecasts are followed. `takeovers`: None if no takeovers are judged.
    """

    alarm: Alarm
    steps: int
    asked: float | None
    last: Judged | None
    path: _VerdictPath | None
    tests: int
    skipped: float | None
    published: _Published | None = None
    forecasts: ForecastsState | None = None
    takeovers: TakeoversState | None = None


class FormulaMonitor:
    """Monitor of one formula for one agent.

    Attributes:
        query: the checked formula.
        alarm: state of the alarm, and whether the formula is blind.
        steps: number of steps since the last evaluation, including the newest.
        answered_at: ticks of the last evaluation, for formulas that are due by time.
        last: the last verdict in this episode.
        forecasts: forecasts of the agent's future; None if they are not followed.
        takeovers: takeovers that the formula's goal judges; None if it judges none.
        revises: ticks at which a withheld revision is due; None if there is none.
        skipped: ticks at which an evaluation was last skipped, so that an alarm may be missing.
    """

    def __init__(self, query: Query, agent: str, identity: Identity) -> None:
        self.query = query
        self.alarm = Alarm()
        self.steps = 0
        self.answered_at: float | None = None
        self.last: Judged | None = None
        self.skipped: float | None = None
        target = query.target
        self.forecasts = None if target is None else Forecasts(target, agent, query.spec.name)
        by = query.takeover_goal
        self.takeovers = None if by is None else Takeovers(by, agent, query.spec)
        self._path: _VerdictPath | None = None
        self._published: _Published | None = None
        self.revises: float | None = None
        self._evaluator = QueryEvaluator()
        self._shared = query.shared
        self._spec = query.spec
        self._agent = agent
        self._identity = identity

    @property
    def due(self) -> float | None:
        """Ticks at which a formula with a period is due; None if the path has not grown since the last evaluation."""
        every = self.query.spec.every
        if isinstance(every, int) or self.steps == 0:
            return None
        return -math.inf if self.answered_at is None else self.answered_at + every

    def is_due(self, now: Instant, when: When) -> bool:
        """Return whether to evaluate the formula now."""
        match when:
            case "step":
                every = self._spec.every
                return isinstance(every, int) and self.steps >= every
            case "time":
                return (at := self.due) is not None and at <= now.ticks
            case "end":  # unless this step was already evaluated
                return self.steps > 0
            case _:
                assert_never(when)

    def mark_answered(self, now: Instant) -> None:
        """Start counting towards the next evaluation, even if this evaluation gave no verdict."""
        self.steps, self.answered_at = 0, now.ticks

    def skip(self, now: Instant) -> Iterator[Notice]:
        """Skip the evaluation if one is due."""
        if self.is_due(now, "step"):
            self.mark_answered(now)
            self.skipped = now.ticks
            yield Skipped(self._agent, self.query.spec.name, 1)

    def answer(  # noqa: PLR0917 - by position they are passed in less time
        self,
        session: Session,
        engines: Engines,
        step: Step,
        notices: list[Notice],
        now: Instant,
        ends: bool,
    ) -> None:
        """Evaluate the formula on the session's path, whose last pair is `step`, and advance the alarm.

        `ends`: whether the episode ends with this step, so that a firing alarm is about to close as `ended`.
        """
        path, query, alarm = session.path, self.query, self._spec.alarm
        known = None if query.drawn_verdicts else self._shared.find(path)
        if known is not None and known.quiet and self.alarm.state == "clear" and engines.learned is None:
            self._note(known.verdict, step, path, notices, engines)  # most steps of a fleet need nothing more
            return
        if known is None:
            verdict = self._evaluator.verdict(query, engines, session, step)
            assessment = assess(verdict, alarm)
        else:
            verdict, assessment = known.verdict, known.assessment
        if engines.learned is not None and self._wants_bands(assessment):
            verdict = self._evaluator.with_bands(verdict, query, engines, session, step)
        if self._examines(verdict, assessment):
            verdict = self._evaluator.with_recourse(verdict, query, engines, session)
        self._note(verdict, step, path, notices, engines)
        self.alarm, change = next_alarm(self.alarm, assessment, alarm, step.seq, step.time)
        if self.alarm.state == "firing" or (change is not None and change.is_alert):  # alerts report the path
            acted, inputs = tuple(path.acted), tuple(path.inputs)
            self._path = _VerdictPath(path.pairs, path.start_observed, path.terminated, acted, inputs)
        if change is not None:
            notices += self._report(change, step.time, now)
        elif self.alarm.state == "firing" and not ends:
            notices += self._refresh(now)

    def _note(self, verdict: Verdict, step: Step, path: SlidingPath, notices: list[Notice], engines: Engines) -> None:
        """Report a verdict, and follow its forecast if none is followed."""
        self.last = Judged(self._agent, self._spec.name, verdict, step.episode, step.seq, step.time, step.late)
        notices.append(self.last)
        forecasts = self.forecasts
        if forecasts is None or forecasts.value is not None:
            return
        if step.policy == "nominal" and not path.ended:  # otherwise another policy acts next, or there is no future
            forecasts.begin(verdict, path, engines)

    def _wants_bands(self, assessment: Assessment) -> bool:
        """Return whether a verdict gets a credible band.

        A band costs as much as a verdict on each of the drawn models.
        """
        when = self._spec.bands
        if when == "auto":
            return self.alarm.state != "clear" or assessment in ("bad", "missed")
        return when == "always"

    def _examines(self, verdict: Verdict, assessment: Assessment) -> bool:
        """Return whether to examine which other decisions could have met the verdict's missed goal.

        The examination takes milliseconds. By default it takes place only while the alarm is pending or fires, because
        then somebody reads the result.
        """
        when = self._spec.recourse
        if when == "off" or not is_missed(verdict):
            return False
        return when == "always" or self.alarm.state != "clear" or assessment == "bad"

    def revise(self, now: Instant) -> Iterator[Notice]:
        """Publish a withheld revision that is due. The revision has the newest verdict."""
        if self.last is not None and self.revises is not None and self.revises <= now.ticks:
            yield from self._renew(now, self.last.time)

    def set_blind(self, blind: BlindReason | None, detail: str, now: Instant) -> Iterator[Notice]:
        """Set the reason why the formula is blind (None if it is not), and report a change."""
        if self.alarm.blind == blind:
            return
        yield Blind(self._agent, self.query.spec.name, blind, detail)
        self.alarm, change = set_blind(self.alarm, blind)
        if change is not None:
            yield from self._report(change, now.wall, now)

    def close(self, how: Literal["ended", "removed"]) -> Iterator[Notice]:
        """Close the alarm.

        `how`: `ended` if the episode is over or the agent was forgotten, `removed` if the formula was removed.
        """
        self.alarm, change = close(self.alarm, how)
        if self.last is not None and change is not None:
            yield from self._report(change, self.last.time, None)

    def start_episode(self) -> None:
        """Forget the verdicts of the last episode."""
        self.steps, self.answered_at, self.last = 0, None, None

    def current_state(self, detail: str) -> Iterator[Notice]:
        """Yield notices with the current state: last verdict, alarm, blindness and forecasts."""
        name = self.query.spec.name
        if self.last is not None:
            yield self.last
        yield AlarmMoved(self._agent, name, self.alarm.state)
        yield Blind(self._agent, name, self.alarm.blind, detail)
        if self.forecasts is not None:
            yield self.forecasts.calibrated()

    def dump(self) -> FormulaMonitorState:
        """Return the state as plain data, without parts that the path determines."""
        tests, forecasts = self._evaluator.tests, None if self.forecasts is None else self.forecasts.dump()
        return FormulaMonitorState(
            self.alarm,
            self.steps,
            self.answered_at,
            self.last,
            self._path,
            tests,
            self.skipped,
            self._published,
            forecasts,
            None if self.takeovers is None else self.takeovers.dump(),
        )

    def load(self, state: FormulaMonitorState) -> None:
        """Restore the state that `dump` returned."""
        self.alarm, self.steps, self.answered_at = state.alarm, state.steps, state.asked
        self.last, self._path, self._evaluator = state.last, state.path, QueryEvaluator(state.tests)
        self.skipped = state.skipped
        self._set_published(state.published)
        if self.forecasts is not None and state.forecasts is not None:
            self.forecasts.load(state.forecasts)
        if self.takeovers is not None and state.takeovers is not None:
            self.takeovers.load(state.takeovers)

    def _refresh(self, now: Instant) -> Iterator[Notice]:
        """Publish a revision if the newest verdict differs enough from the published one (`Stance.differs`).

        Otherwise the heartbeat will report the verdict. During `PAUSE` the revision is withheld. After `PAUSE` the
        newest verdict is published, if it still differs enough.
        """
        published, judged, path, spec = self._published, self.last, self._path, self.query.spec
        assert published is not None, "a firing alarm was published"
        assert judged is not None, "it was just judged"
        assert path is not None
        news = self._stance(judged).differs(published.stance, spec.alarm.step)
        if news and now.ticks - published.ticks >= PAUSE:
            yield from self._renew(now, judged.time)
            return
        worst = self._worst(judged)
        if (news, worst) != (published.withheld, published.worst):
            self._set_published(msgspec.structs.replace(published, withheld=news, worst=worst))
        yield Refreshed(judged, spec, len(path.pairs), worst)

    def _renew(self, now: Instant, time: float) -> Iterator[Notice]:
        self.alarm, change = renew(self.alarm)
        yield from self._publish(change, time, now)

    def _report(self, change: AlarmChange, time: float, now: Instant | None) -> Iterator[Notice]:
        """Report a change of the alarm at `time`. `now`: None if the alarm is over, so that no revision follows."""
        yield AlarmMoved(self._agent, self.query.spec.name, self.alarm.state)
        if change.is_alert:
            yield from self._publish(change, time, now)

    def _publish(self, change: AlarmChange, time: float, now: Instant | None) -> Iterator[Notice]:
        judged = self.last
        assert judged is not None, "an alarm changes only after a verdict"
        fired = self._published.fired if self._published is not None else self._fired(judged)
        worst = self._worst(judged)
        published = None
        if change.state == "firing" and now is not None:
            published = _Published(fired, self._stance(judged), now.ticks, worst=worst)
        self._set_published(published)
        yield self._alert(change, judged, time, fired, worst)

    def _set_published(self, published: _Published | None) -> None:
        self._published = published
        self.revises = published.ticks + PAUSE if published is not None and published.withheld else None

    def _fired(self, judged: Judged) -> Fired:
        return fired_of(figures_of(self.query.formula, judged.verdict), judged)

    def _worst(self, judged: Judged) -> float | None:
        """Return the worst known value since the alarm fired, up to and including this verdict."""
        value, published = own(judged.verdict)[0], self._published
        if published is None:
            return value
        if value is None or published.worst is None:
            return published.worst
        return min(published.worst, value) if self.query.low_is_worse else max(published.worst, value)

    def _stance(self, judged: Judged) -> Stance:
        return stance_of(self.query.formula, judged.verdict, self.alarm.blind)

    def _alert(self, change: AlarmChange, judged: Judged, time: float, fired: Fired, worst: float | None) -> Alert:
        agent, spec, path = self._agent, self.query.spec, self._path
        assert path is not None
        formula, blind, state = self.query.formula, self.alarm.blind, change.state
        told = tell(
            agent=agent,
            formula=spec,
            parsed=formula,
            state=state,
            blind=blind,
            verdict=judged.verdict,
            path_length=len(path.pairs),
            seq=judged.seq,
            worst=worst,
        )
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
            summary=told.summary,
            details=told.details,
            runbook=spec.alarm.runbook,
            instructions=spec.alarm.instructions,
            actions=spec.actions,
            path=path.pairs,
            start_observed=path.start_observed,
            terminated=path.terminated,
            acted=path.acted,
            inputs=path.inputs,
            worst=worst,
        )
