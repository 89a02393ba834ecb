"""One agent and all its formulas: advance its path, determine blindness, answer each formula when it is due."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from typing import Literal

import msgspec

from monitor.alarm.blindness import MARKS
from monitor.alarm.message import Identity
from monitor.evaluation import Engines
from monitor.runtime.formula import FormulaMonitor, FormulaMonitorState, When
from monitor.runtime.query import Query
from monitor.runtime.takeovers import BROKEN, CUT_OFF, GONE, UNKNOWN
from monitor.runtime.trust import ModelTrust
from monitor.statistics.interval_odds import UNRECORDED_CELL
from monitor.statistics.model_betting import ModelTest, ModelTestState
from monitor.stream.session import Session, SessionState
from monitor.types.notices import Calibrated, Deviates, Ended, Notice, Trust
from monitor.types.stream_events import BlindReason, Break, End, Instant, Step


class AgentMonitorState(msgspec.Struct, frozen=True, array_like=True):
    """State of an `AgentMonitor` as plain data. `formulas`: name -> state.

    `strayed`: whether the newest step was impossible.
    """

    session: SessionState
    open: bool
    formulas: dict[str, FormulaMonitorState]
    strayed: bool
    trust: ModelTestState | None


class AgentMonitor:
    """Monitor of all formulas for one agent.

    Args:
        session: session that orders the agent's steps and holds its path.
        queries: the checked formulas.
        engines: engines that evaluate the formulas.
        identity: names and digests for alerts.
        trust: the test of the model over all agents; None if this agent's transitions are not tested.

    Attributes:
        test: the test of the model on this agent's transitions; None if they are not tested.
    """

    def __init__(
        self,
        session: Session,
        queries: Sequence[Query],
        engines: Engines,
        identity: Identity,
        trust: ModelTrust | None = None,
    ) -> None:
        self.session = session
        self.test: ModelTest | None = None if trust is None else trust.join()
        self._model_trust = trust
        self._impossible = False  # whether the newest step was impossible; if so, its state may be wrong
        self._engines = engines
        self._formulas = [FormulaMonitor(query, session.agent, identity) for query in queries]
        self._followed = [formula.forecasts for formula in self._formulas if formula.forecasts is not None]
        self._judging = [formula.takeovers for formula in self._formulas if formula.takeovers is not None]
        self._open = False
        self._by_time = any(isinstance(query.spec.every, float) for query in queries)

    @property
    def formulas(self) -> Sequence[FormulaMonitor]:
        """The monitors of the formulas."""
        return self._formulas

    def due(self) -> float | None:
        """Return the ticks at which to evaluate next even if no message arrives; None if there is no such time."""
        times = []
        for formula in self._formulas:
            if formula.revises is not None:
                times.append(formula.revises)  # noqa: PERF401
        if self._by_time and self._open and self.session.path.last is not None:
            times += [at for formula in self._formulas if (at := formula.due) is not None]
        return min(times) if times else None

    def evaluate(
        self,
        now: Instant,
        notices: list[Notice],
        connected: bool,
        live_since: float | None = None,
        most: int = 0,
    ) -> int:
        """Advance over pending events and evaluate due formulas; return the number of skipped steps.

        Formulas due by time are evaluated last, on the newest path, if the path has grown since their last evaluation.
        `notices`: list to which notices are appended. `live_since`: skip evaluation at steps that arrived after these
        ticks and were not late, except at the newest step; None skips no step. `most`: maximum number of events to
        advance over, not counting skipped steps; the other events stay pending. With 0 there is no maximum.
        """
        session = self.session
        path = session.path
        before, begun = path.last, path.begun
        left, skipped = most or len(session.pending), 0
        while left > 0 and session.pending:
            since, event = session.since[0], session.advance()
            assert event is not None
            left -= 1
            continued = path.begun == begun
            if self.test is not None:
                # These two kinds of break are about the transition from the previous pair, so the pair is known.
                follows = continued or (isinstance(event, Break) and (event.unrecorded or event.unpredicted))
                self._test_model(self.test, before if follows else None, event, notices)
            if self._followed:
                self._advance_forecasts(event, notices, continued)
            if self._judging and self._concerns_takeovers(event):
                notices += self._advance_takeovers(event, before if continued else None)
            before, begun = path.last, path.begun
            match event:
                case Step():
                    self._open = True
                    for formula in self._formulas:
                        formula.steps += 1
                    if session.pending and isinstance(session.pending[0], End):
                        left += 1
                        continue  # The last step is evaluated with `End`, which says how the episode ended.
                    live = live_since is not None and since > live_since and not event.late
                    if live and self._more_steps():
                        notices += [notice for formula in self._formulas for notice in formula.skip(now)]
                        left, skipped = left + 1, skipped + 1
                    else:
                        self._answer(event, now, notices, connected, "step")
                case End():
                    self._end(event, now, notices, connected=connected)
                case _:
                    notices += self.check_blindness(now, connected=connected)
        if self._by_time and self._open and path.last is not None and not session.pending:
            self._answer(path.last, now, notices, connected, "time")
        return skipped

    def revise(self, now: Instant, notices: list[Notice]) -> None:
        """Publish the withheld revisions that are due. Call this after each evaluation."""
        for formula in self._formulas:
            if formula.revises is not None:
                notices += formula.revise(now)

    def check_blindness(self, now: Instant, *, connected: bool) -> Iterator[Notice]:
        """Report the formulas that became blind, or are no longer blind, without evaluating a formula."""
        for formula in self._formulas:
            blind = self._blindness(formula, now, connected)
            yield from formula.set_blind(blind, self._detail(blind), now)

    def silent(self, now: Instant) -> float:
        """Seconds since the agent's last message."""
        return 0.0 if self.session.last_message is None else now.ticks - self.session.last_message

    @property
    def open(self) -> bool:
        """True during an episode."""
        return self._open

    def close(self, how: Literal["ended", "removed"]) -> Iterator[Notice]:
        """Close every alarm, because the agent (`ended`) or the formulas (`removed`) are no longer monitored."""
        for forecasts in self._followed:
            if (dropped := forecasts.drop()) is not None:
                yield dropped
        for takeovers in self._judging:
            yield from takeovers.drop(GONE)
        for formula in self._formulas:
            yield from formula.close(how)

    def calibrations(self) -> Iterator[Calibrated]:
        """Yield the counts of forecasts of each formula whose forecasts are followed."""
        for forecasts in self._followed:
            yield forecasts.calibrated()

    def current_state(self) -> Iterator[Notice]:
        """Yield notices that describe the current state of every formula, with their last content."""
        for formula in self._formulas:
            yield from formula.current_state(self._detail(formula.alarm.blind))
        deviation = self.session.deviation
        yield Deviates(self.session.agent, round(deviation.fraction, 2), deviation.steps)
        yield self._trust_notice()

    def dump(self) -> AgentMonitorState:
        """Return the state as plain data that later steps do not change."""
        formulas = {formula.query.spec.name: formula.dump() for formula in self._formulas}
        test = None if self.test is None else self.test.dump()
        return AgentMonitorState(self.session.dump(), self._open, formulas, self._impossible, test)

    def load(self, state: AgentMonitorState, formulas: Container[str]) -> None:
        """Restore the state of these formulas. The other formulas start again. Load the agent's session first.

        `ModelTrust.resume` restores the test of the model.
        """
        self._open, self._impossible = state.open, state.strayed
        for formula in self._formulas:
            name = formula.query.spec.name
            if name in formulas and name in state.formulas:
                formula.load(state.formulas[name])

    def _advance_forecasts(self, event: Step | Break | End, notices: list[Notice], continued: bool) -> None:
        """Advance the followed forecasts by an event; report each forecast that is over.

        `continued`: whether the path continues with this event. A forecast is dropped if the agent runs another policy
        than the forecast assumes, and if the episode is truncated. If the episode terminates, the last state is
        repeated for the rest of the horizon.
        """
        session = self.session
        own = isinstance(event, Step) and event.policy == "nominal" and not session.mismatch
        if isinstance(event, Step) and continued and own:  # most events, so this is one short loop
            state = event.state
            for forecasts in self._followed:
                if forecasts.value is not None and (over := forecasts.read(state)) is not None:
                    notices.append(over)  # noqa: PERF401 - an extra list would cost more than all the rest
            return
        last = session.path.last
        stays = last.state if isinstance(event, End) and event.terminated and continued and last is not None else None
        for forecasts in self._followed:
            over = forecasts.drop() if stays is None else forecasts.stay(stays)
            if over is not None:
                notices.append(over)

    def _concerns_takeovers(self, event: Step | Break | End) -> bool:
        """Return whether a takeover is followed or may begin with this event."""
        if not isinstance(event, Step) or event.policy != "nominal":
            return True
        return any(takeovers.followed for takeovers in self._judging)

    def _advance_takeovers(self, event: Step | Break | End, before: Step | None) -> Iterator[Notice]:
        """Follow a takeover that begins with an event; judge or drop the takeovers that end with this event.

        `before`: the previous step on the path, if any.
        """
        path, engines = self.session.path, self._engines
        match event:
            case Step(foreign=True):
                for takeovers in self._judging:
                    yield from takeovers.drop(UNKNOWN)
            case Step():
                for takeovers in self._judging:
                    if before is None:
                        yield from takeovers.drop(BROKEN)
                    if event.policy == takeovers.policy and _takes_over(event, before):
                        takeovers.begin(event)
                    yield from takeovers.advance(path, engines)
            case End():
                for takeovers in self._judging:
                    yield from (
                        takeovers.advance(path, engines, ended=True) if event.terminated else takeovers.drop(CUT_OFF)
                    )
            case _:
                for takeovers in self._judging:
                    yield from takeovers.drop(BROKEN)

    def _test_model(
        self, test: ModelTest, before: Step | None, event: Step | Break | End, notices: list[Notice]
    ) -> None:
        """Test the model on an event; report if this rejects the model.

        `before`: the previous step on the path, if any.

        One wrong reading causes two impossible steps, one to the wrong state and one back; only the first counts. The
        choice of tested steps must not depend on the outcome of these steps. Therefore the step after an impossible
        step is never tested, even if it is possible. The step after an unrecorded transition is not tested either.
        """
        was_impossible, self._impossible = self._impossible, False
        was_rejected = test.rejected
        match event:
            case Step():
                if before is None or before.action is None:
                    self._impossible = was_impossible  # no transition; keep the flag for the next step
                elif not was_impossible:
                    trust = self._model_trust
                    assert trust is not None, "it made the test"
                    trust.step(test, self.session.agent, before, event)
            case Break(failed=True):
                pass
            case Break(reason="impossible_step" | "unknown_state" | "out_of_range") if not was_impossible:
                self._impossible = self._test_break(test, before, event)
            case _:
                pass
        if test.rejected and not was_rejected:
            notices.append(self._trust_notice())

    def _test_break(self, test: ModelTest, before: Step | None, event: Break) -> bool:
        """Test the model on a transition that the model lacks; return whether the new state may be a wrong reading."""
        assert self._model_trust is not None, "it made the test"
        row = self._model_trust.row(before)
        if event.unrecorded:
            if row is not None:
                test.step(row, UNRECORDED_CELL)
            return event.reason == "impossible_step" and row is not None and test.covers(row)
        if event.reason == "impossible_step":
            test.contradict(row)
        return event.reason == "impossible_step"

    def _trust_notice(self) -> Trust:
        """Return the result of the test of the model for this agent."""
        agent, trust = self.session.agent, self._model_trust
        if trust is None:
            return Trust(doubted=False, log10_e=0.0, transitions=0, agent=agent)
        return trust.for_agent(agent, self.test)

    def _more_steps(self) -> bool:
        return any(isinstance(event, Step) for event in self.session.pending)

    def _blindness(self, formula: FormulaMonitor, now: Instant, connected: bool) -> BlindReason | None:
        """Return the reason why a formula cannot be evaluated now, or why its verdict is marked (`MARKS`), or None."""
        path = self.session.path
        if self._open or not (path.ended or path.broken == "warming_up"):  # nothing to evaluate between episodes
            reason = None if len(path.held) > formula.query.lookback else path.blind(formula.query.lookback)
            if reason is not None:
                return reason
        if self.session.mismatch:
            return "policy_mismatch"
        if not connected:
            return "disconnected"
        return self._late(now) or self._mark(formula, now)

    def _late(self, now: Instant) -> BlindReason | None:
        """Return the blind reason of a timeout that has passed, or None."""
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
        """Return `overload` or `model_doubt` if one of them applies to the formula, or None."""
        if formula.skipped is not None and now.ticks - formula.skipped <= self.session.settings.stale_after:
            return "overload"
        trust = self._model_trust
        rejected = (self.test is not None and self.test.rejected) or (trust is not None and trust.rejected)
        return "model_doubt" if rejected else None

    def _detail(self, blind: BlindReason | None) -> str:
        session, path = self.session, self.session.path
        if blind == "model_doubt":
            return "for this agent" if self.test is not None and self.test.rejected else "for all agents"
        if blind == "policy_mismatch":
            runs = (session.policy or "unknown")[:12]
            known = ", ".join(f"{name} {sha256[:12]}" for sha256, name in session.settings.policies.items())
            return f"it runs policy {runs}, configured: {known}"
        return path.detail if blind is not None and blind == path.broken else ""

    def _answer(self, step: Step, now: Instant, notices: list[Notice], connected: bool, when: When) -> None:
        for formula in self._formulas:
            blind = self._blindness(formula, now, connected)
            if blind != formula.alarm.blind:  # even if no formula is due, because an old value must not look current
                notices += formula.set_blind(blind, self._detail(blind), now)
            if formula.is_due(now, when):
                formula.mark_answered(now)
                if blind is None or blind in MARKS:
                    formula.answer(self.session, self._engines, step, notices, now, when == "end")

    def _end(self, end: End, now: Instant, notices: list[Notice], *, connected: bool) -> None:
        step = self.session.path.last
        if step is not None:
            self._answer(step, now, notices, connected, "end")
        self._open = False
        for formula in self._formulas:
            notices += formula.close("ended")
            formula.start_episode()
        notices.append(Ended(self.session.agent, end.episode))


def _takes_over(step: Step, before: Step | None) -> bool:
    """Return whether another policy than nominal takes over with a step. `before`: the previous step on the path."""
    if before is None:
        return step.seq == 0 and step.policy != "nominal"
    return step.policy != before.policy == "nominal" and not before.foreign
