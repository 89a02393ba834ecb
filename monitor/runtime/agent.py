"""One agent, all its formulas: steps taken onto the path, what is blind, each formula answered when it is due."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from typing import Final, Literal

import msgspec

from monitor.alarm.message import Identity
from monitor.engine import Engines
from monitor.runtime.formula import FormulaMonitor, FormulaMonitorState, When
from monitor.runtime.query import Query
from monitor.runtime.trust import ModelTrust
from monitor.statistics.model_test import ModelTest, ModelTestState
from monitor.stream import Session, SessionState
from monitor.types import BlindReason, Break, Calibrated, Deviates, End, Ended, Instant, Notice, Step, Trust

__all__ = ["MARKS", "AgentMonitor", "AgentMonitorState"]

MARKS: Final[frozenset[BlindReason]] = frozenset(
    {"disconnected", "stale", "deadline", "old_episode", "idle", "overload", "model_doubt"}
)
"""Reasons that say nothing against the path. A step that came is answered all the same and alarms keep moving, so that
they are those of a stream without interruption; all that is told meanwhile is marked.
"""


class AgentMonitorState(msgspec.Struct, frozen=True, array_like=True):
    """A `AgentMonitor` as plain data: all that its future depends on, each formula's by its name."""

    session: SessionState
    open: bool
    formulas: dict[str, FormulaMonitorState]
    strayed: bool
    trust: ModelTestState | None


class AgentMonitor:
    """Answers every formula for one agent as its path grows.

    `doubt`: whether the model is in doubt; None: it is not tested.

    Attributes:
        test: the model's test by this agent's transitions, None where it is not tested.
    """

    def __init__(
        self,
        session: Session,
        questions: Sequence[Query],
        engines: Engines,
        identity: Identity,
        doubt: ModelTrust | None = None,
    ) -> None:
        self.session = session
        self.test: ModelTest | None = None if doubt is None else doubt.join()
        self._doubt = doubt
        self._strayed = False  # the newest step was impossible, so where it led may be a wrong reading
        self._engines = engines
        self._formulas = [FormulaMonitor(question, session.agent, identity) for question in questions]
        self._followed = [formula.forecasts for formula in self._formulas if formula.forecasts is not None]
        self._open = False
        self._by_time = any(isinstance(question.spec.every, float) for question in questions)

    @property
    def due(self) -> float | None:
        """Ticks at which something has to be answered or told although nothing more may come; None: nothing has."""
        times = [at for formula in self._formulas if (at := formula.revises) is not None]
        if self._by_time and self._open:
            times += [at for formula in self._formulas if (at := formula.due) is not None]
        return min(times, default=None)

    def evaluate(self, now: Instant, *, connected: bool, latest_only: bool, most: int = 0) -> list[Notice]:
        """Advance over what is pending and answer what is due; with `latest_only`, only at the newest step.

        What is due by time is answered last, on the newest path, and only if that has grown since the last answer.
        `most`: events to advance over, so that others have their turn; the rest stays pending. 0: all.
        """
        told: list[Notice] = []
        session = self.session
        path = session.path
        before, begun = path.last, path.begun
        left = most or len(session.pending)
        while left > 0 and (event := session.advance()) is not None:
            left -= 1
            if self.test is not None:
                told += self._hold_model(self.test, before if path.begun == begun else None, event)
            if self._followed:
                self._compare(event, told, continued=path.begun == begun)
            before, begun = path.last, path.begun
            match event:
                case Step():
                    self._open = True
                    for formula in self._formulas:
                        formula.steps += 1
                    if session.pending and isinstance(session.pending[0], End):
                        left += 1
                        continue  # With its last step an episode ends: that answer is given once, knowing how it ended.
                    if latest_only and self._more_steps():
                        told += [notice for formula in self._formulas for notice in formula.skip(now)]
                    else:
                        self._answer(event, now, told, connected=connected, when="step")
                case End():
                    self._end(event, now, told, connected=connected)
                case _:
                    told += self.look(now, connected=connected)
        if self._by_time and self._open and path.last is not None and not session.pending:
            self._answer(path.last, now, told, connected=connected, when="time")
        for formula in self._formulas:
            if formula.revises is not None:
                told += formula.revise(now)
        return told

    def look(self, now: Instant, *, connected: bool) -> Iterator[Notice]:
        """Tell which formulas went blind or see again; asks nothing."""
        for formula in self._formulas:
            blind = self._blindness(formula, now, connected=connected)
            yield from formula.see(blind, self._detail(blind), now)

    def silent(self, now: Instant) -> float:
        """Seconds since the agent's last message."""
        return 0.0 if self.session.last_message is None else now.ticks - self.session.last_message

    @property
    def open(self) -> bool:
        """Whether an episode is under way."""
        return self._open

    def close(self, how: Literal["ended", "removed"]) -> Iterator[Notice]:
        """The agent is forgotten (`ended`) or the formulas are (`removed`): what fires is over."""
        for forecasts in self._followed:
            if (dropped := forecasts.drop()) is not None:
                yield dropped
        for formula in self._formulas:
            yield from formula.close(how)

    def calibrations(self) -> Iterator[Calibrated]:
        """How the forecasts of each formula that are followed stand."""
        for forecasts in self._followed:
            yield forecasts.again()

    def standing(self) -> Iterator[Notice]:
        """Where every formula stands, as it was told."""
        for formula in self._formulas:
            yield from formula.again(self._detail(formula.alarm.blind))
        deviation = self.session.deviation
        yield Deviates(self.session.agent, round(deviation.share, 2), deviation.steps)
        yield self._trust()

    def dump(self) -> AgentMonitorState:
        """All that the future depends on; write it before the next step."""
        formulas = {formula.question.spec.name: formula.dump() for formula in self._formulas}
        test = None if self.test is None else self.test.dump()
        return AgentMonitorState(self.session.dump(), self._open, formulas, self._strayed, test)

    def load(self, state: AgentMonitorState, formulas: Container[str]) -> None:
        """The inverse of `dump` for these formulas, in a watch whose session was loaded; the others start anew.

        The test of the model is left to `ModelTrust.take_up`.
        """
        self._open, self._strayed = state.open, state.strayed
        for formula in self._formulas:
            name = formula.question.spec.name
            if name in formulas and name in state.formulas:
                formula.load(state.formulas[name])

    def _compare(self, event: Step | Break | End, told: list[Notice], *, continued: bool) -> None:
        """Have what was forecast see what happened; tell of each forecast that is over.

        `continued`: the path goes on with this event. An agent that says it runs another policy has none of the future
        that was foretold. In a terminated episode the last state stays; of a truncated one nobody knows.
        """
        session = self.session
        if isinstance(event, Step) and continued and not session.mismatch:  # as nearly always, so in one short loop
            state = event.state
            for forecasts in self._followed:
                if forecasts.value is not None and (over := forecasts.read(state)) is not None:
                    told.append(over)  # noqa: PERF401 - a list of its own would cost more than all the rest
            return
        last = session.path.last
        stays = last.state if isinstance(event, End) and event.terminated and continued and last is not None else None
        for forecasts in self._followed:
            over = forecasts.drop() if stays is None else forecasts.stay(stays)
            if over is not None:
                told.append(over)

    def _hold_model(self, test: ModelTest, before: Step | None, event: Step | Break | End) -> Iterator[Notice]:
        """Hold the model against what happened; tell if it is doubted from now on.

        `before`: the step that this one follows on the path, if it does.

        One wrong reading makes two impossible steps, there and back. So the step after one that counted is passed over,
        wherever it leads: what is passed over must not depend on that.
        """
        strayed, self._strayed = self._strayed, False
        tested = test.transitions
        match event:
            case Step():
                if before is None or before.action is None:
                    self._strayed = strayed  # no transition: the first step after an impossible one, if there was one
                elif not strayed:
                    test.step(before.state * self.session.model.actions + before.action, event.state)
            case Break(reason="impossible_step") if not strayed:
                test.contradict()
                self._strayed = True
            case _:
                pass
        if test.doubted and test.transitions > tested:  # with this one the test has ended
            yield self._trust()

    def _trust(self) -> Trust:
        """How the model stands for this agent."""
        agent = self.session.agent
        return Trust(False, 0.0, 0, agent) if self._doubt is None else self._doubt.of(agent, self.test)  # noqa: FBT003

    def _more_steps(self) -> bool:
        return any(isinstance(event, Step) for event in self.session.pending)

    def _blindness(self, formula: FormulaMonitor, now: Instant, *, connected: bool) -> BlindReason | None:
        """Why a formula cannot be answered now, else why its answer is to be marked (`MARKS`), else None."""
        path = self.session.path
        if self._open or not (path.ended or path.broken == "warming_up"):  # between episodes there is nothing to see
            reason = path.blind(formula.question.reach)
            if reason is not None:
                return reason
        if self.session.mismatch:
            return "policy_mismatch"
        if not connected:
            return "disconnected"
        return self._late(now) or self._mark(formula, now)

    def _late(self, now: Instant) -> BlindReason | None:
        """What takes too long, if anything does."""
        session = self.session
        settings = session.settings
        if session.since and now.ticks - session.since[0] > settings.stale_after:
            return "deadline"
        if session.old is not None and session.old[1] - session.old[0] > settings.stale_after:
            return "old_episode"
        if self._open:
            heard = session.last_heard
            return "stale" if heard is not None and now.ticks - heard > settings.stale_after else None
        return "idle" if self.silent(now) > settings.idle_after else None

    def _mark(self, formula: FormulaMonitor, now: Instant) -> BlindReason | None:
        """What else is to be known of an answer, or of its absence."""
        if formula.skipped is not None and now.ticks - formula.skipped <= self.session.settings.stale_after:
            return "overload"
        doubted = (self.test is not None and self.test.doubted) or (self._doubt is not None and self._doubt.stands)
        return "model_doubt" if doubted else None

    def _detail(self, blind: BlindReason | None) -> str:
        session, path = self.session, self.session.path
        if blind == "model_doubt":
            return "for this agent" if self.test is not None and self.test.doubted else "for all agents"
        if blind == "policy_mismatch":
            runs, configured = (sha256 or "unknown" for sha256 in (session.policy, session.settings.nominal_sha256))
            return f"it runs policy {runs[:12]}, configured is {configured[:12]}"
        return path.detail if blind is not None and blind == path.broken else ""

    def _answer(self, step: Step, now: Instant, told: list[Notice], *, connected: bool, when: When) -> None:
        for formula in self._formulas:
            blind = self._blindness(formula, now, connected=connected)
            if blind != formula.alarm.blind:  # Also where nothing is due: an old value must not look like sight.
                told += formula.see(blind, self._detail(blind), now)
            if formula.is_due(now, when):
                formula.ask(now)
                if blind is None or blind in MARKS:
                    formula.judge(self.session, self._engines, step, told, now, ends=when == "end")

    def _end(self, end: End, now: Instant, told: list[Notice], *, connected: bool) -> None:
        step = self.session.path.last
        if step is not None:
            self._answer(step, now, told, connected=connected, when="end")
        self._open = False
        for formula in self._formulas:
            told += formula.close("ended")
            formula.begin_anew()
        told.append(Ended(self.session.agent, end.episode))
