"""One agent, all its formulas: steps taken onto the path, what is blind, each formula answered when it is due."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from typing import Final, Literal

import msgspec

from monitor.alarm.message import Identity
from monitor.engine import Engines
from monitor.question import Question
from monitor.standing import Standing, StandingState, When
from monitor.statistics.trust import ModelTest
from monitor.stream import Session, SessionState
from monitor.types import BlindReason, Break, End, Ended, Instant, Notice, Step

__all__ = ["MARKS", "Watch", "WatchState"]

MARKS: Final[frozenset[BlindReason]] = frozenset({"disconnected", "stale", "deadline", "model_doubt"})
"""Reasons that say nothing against the path. A step that came is answered all the same and alarms keep moving, so that
they are those of a stream without interruption; all that is told meanwhile is marked.
"""


class WatchState(msgspec.Struct, frozen=True, array_like=True):
    """A `Watch` as plain data: all that its future depends on, each formula's by its name."""

    session: SessionState
    open: bool
    waiting: float | None
    formulas: dict[str, StandingState]
    strayed: bool = False


class Watch:
    """Answers every formula for one agent as its path grows.

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
        self._strayed = False  # the newest step was impossible, so where it led may be a wrong reading
        self._waiting: float | None = None  # ticks of the oldest message whose steps nobody has looked at
        self._engines = engines
        self._formulas = [Standing(question, session.agent, identity) for question in questions]
        self._open = False
        self._by_time = any(isinstance(question.spec.every, float) for question in questions)

    @property
    def due(self) -> float | None:
        """Ticks at which some formula has to be answered although nothing more may come; None where that is not so."""
        if not (self._by_time and self._open):
            return None
        return min((at for formula in self._formulas if (at := formula.due) is not None), default=None)

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
                    for formula in self._formulas:
                        formula.steps += 1
                    if session.pending and isinstance(session.pending[0], End):
                        continue  # With its last step an episode ends: that answer is given once, knowing how it ended.
                    if latest_only and self._more_steps():
                        told += [notice for formula in self._formulas for notice in formula.skip(now)]
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
        for formula in self._formulas:
            blind = self._blindness(formula.question, now, connected=connected)
            yield from formula.see(blind, self._detail(blind), now)

    def silent(self, now: Instant) -> float:
        """Seconds since the agent was last heard."""
        return 0.0 if self.session.last_heard is None else now.ticks - self.session.last_heard

    def close(self, how: Literal["ended", "removed"]) -> Iterator[Notice]:
        """The agent is forgotten (`ended`) or the formulas are (`removed`): what fires is over."""
        for formula in self._formulas:
            yield from formula.close(how)

    def standing(self) -> Iterator[Notice]:
        """Where every formula stands, as it was told."""
        for formula in self._formulas:
            yield from formula.again(self._detail(formula.alarm.blind))

    def dump(self) -> WatchState:
        """All that the future depends on; write it before the next step."""
        formulas = {formula.question.spec.name: formula.dump() for formula in self._formulas}
        return WatchState(self.session.dump(), self._open, self._waiting, formulas, self._strayed)

    def load(self, state: WatchState, formulas: Container[str]) -> None:
        """The inverse of `dump` for these formulas, in a watch whose session was loaded; the others start anew."""
        self._open, self._waiting, self._strayed = state.open, state.waiting, state.strayed
        for formula in self._formulas:
            name = formula.question.spec.name
            if name in formulas and name in state.formulas:
                formula.load(state.formulas[name])

    def _test(self, trust: ModelTest, before: Step | None, event: Step | Break | End) -> None:
        """Hold the model against what happened. `before`: the step that this one follows on the path, if it does.

        One wrong reading makes two impossible steps, there and back. So the step after one that counted is passed over,
        wherever it leads: what is passed over must not depend on that.
        """
        strayed, self._strayed = self._strayed, False
        match event:
            case Step():
                if before is None or before.action is None:
                    self._strayed = strayed  # no transition: the first step after an impossible one, if there was one
                elif not strayed:
                    trust.step(before.state * self.session.model.actions + before.action, event.state)
            case Break(reason="impossible_step") if not strayed:
                trust.contradict()
                self._strayed = True
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

    def _detail(self, blind: BlindReason | None) -> str:
        path = self.session.path
        return path.detail if blind is not None and blind == path.broken else ""

    def _answer(self, step: Step, now: Instant, told: list[Notice], *, connected: bool, when: When) -> None:
        for formula in self._formulas:
            blind = self._blindness(formula.question, now, connected=connected)
            if blind != formula.alarm.blind:  # Also where nothing is due: an old value must not look like sight.
                told += formula.see(blind, self._detail(blind), now)
            if formula.is_due(now, when):
                formula.ask(now)
                if blind is None or blind in MARKS:
                    formula.judge(self.session, self._engines, step, told)

    def _end(self, end: End, now: Instant, told: list[Notice], *, connected: bool) -> None:
        step = self.session.path.last
        if step is not None:
            self._answer(step, now, told, connected=connected, when="end")
        self._open = False
        for formula in self._formulas:
            told += formula.close("ended")
            formula.begin_anew()
        told.append(Ended(self.session.agent, end.episode))
