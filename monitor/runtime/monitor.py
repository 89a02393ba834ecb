"""The monitor: the whole route from an observation to notices. Read this file first.

    Observation --Session--> Step | Break | End --SlidingPath--> pairs --QueryEvaluator--> Verdict --Alarm--> Notice

`observe` and `evaluate` are the two entry points. `observe` calls `Session.arrive`. `evaluate` calls
`AgentMonitor.evaluate`, which calls `ModelTest.step` at each step and `FormulaMonitor.answer` for each due formula. If
another agent was on the same path, its verdict is used (`SharedVerdicts.find`). Otherwise a chain of calls computes the
verdict: `QueryEvaluator.verdict`, `IncrementalCheck.verdict`, `PathValues.advance`, `Evaluator.push` and
`exact.forward.answers.push`. Then `alarm.machine.next_alarm` advances the alarm. Before `observe`,
`monitor.stream.decode` turns bytes into observations; after `evaluate`, `monitor.sidecar` publishes the notices. This
module has no clock and no I/O: time is an argument.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from monitor.alarm.message import Identity, identity_of
from monitor.errors import ConfigError, FormulaError, InputError
from monitor.evaluation import Engines, engines_of
from monitor.evaluation.models import meaning_of
from monitor.evaluation.worlds import WorldChecker
from monitor.hidden.hidden_checker import HiddenChecker
from monitor.logic import parse
from monitor.model import MDP
from monitor.runtime.admission import Admission
from monitor.runtime.agent_monitor import AgentMonitor, AgentMonitorState
from monitor.runtime.forecasts import dropped_forecast
from monitor.runtime.query import Query, prepare
from monitor.runtime.takeovers import dropped_takeovers
from monitor.runtime.trust import ModelTrust, ModelTrustState
from monitor.statistics.calibration import CalibrationCounts
from monitor.stream.adapter import Adapter
from monitor.stream.decode import decode
from monitor.stream.decode import validate as validate_observation
from monitor.stream.encoding import MAX_BYTES
from monitor.stream.hidden_adapter import HiddenAdapter
from monitor.stream.model_adapter import ModelAdapter
from monitor.stream.session import Session
from monitor.stream.timer_queue import TimerQueue
from monitor.stream.world_adapter import WorldAdapter
from monitor.types.notices import Calibrated, Calibration, Forgotten, Notice, Received
from monitor.types.specs import BandSettings, FormulaSpec, Sampling, StreamSettings, TrustSettings
from monitor.types.stream_events import Instant, Observation
from monitor.types.verdicts import RestsOn
from monitor.worlds import CheckedWorld, World

__all__ = ["Monitor", "MonitorState", "Saved", "Waiting"]

TURN: Final = 16
"""Maximum number of steps of one agent that are evaluated before the next agent has its turn."""


class MonitorState(msgspec.Struct, frozen=True, array_like=True):
    """State of a `Monitor` without its agents, as plain data.

    `agents`, `ready`: names of agents, in order. `connected`: whether the broker is connected. `swept`: ticks of the
    last check for silent agents. `newcomers`: the counts of `Admission`. `former`: formula -> counts of the forecasts
    of forgotten agents. `meaning`: digest of the names behind the numbers of states and actions (`meaning_of`).
    """

    formulas: tuple[FormulaSpec, ...]
    identity: Identity
    agents: tuple[str, ...]
    ready: tuple[str, ...]
    connected: bool
    swept: float | None
    trust: ModelTrustState | None
    newcomers: Mapping[str, int] = {}
    former: Mapping[str, Calibration] = {}
    meaning: str = ""


class Saved(msgspec.Struct, frozen=True):
    """The state that `Monitor.save` returns and `Monitor.load` restores, as plain data.

    `agents`: agent -> state; None if forgotten. `pages`: agent -> number -> page of past episodes; None if deleted. A
    page never changes once written. Both mappings contain all entries, or only the entries changed since the last
    `save`.
    """

    common: MonitorState
    agents: Mapping[str, AgentMonitorState | None]
    pages: Mapping[str, Mapping[int, bytes | None]] = {}


class Waiting(msgspec.Struct, frozen=True):
    """Steps received and not evaluated yet. `since`: ticks at which the oldest step arrived; None if there is none."""

    steps: int
    since: float | None


class Monitor:
    """Monitor of any number of agents that share one model.

    Args:
        model: the MDP in which every agent acts, a `World` with numbers, or a source that `load_world` accepts.
        policies: name -> policy: S actions, an S x A matrix, a table, a function in a world with numbers, or the path
            of a manifest. `nominal` is the deployed policy.
        formulas: the formulas to monitor; a bare text gets the name `formula_<n>`.
        settings: limits and waiting times of the stream.
        identity: names and digests for alerts; by default made from the contents.
        models: name -> another model, for formulas that intervene with `model:name`.
        sampling: error rates and limits of sampling, for formulas whose `engine` is not `exact`.
        trust: settings of the test of the model against the observed transitions.
        bands: settings of the bands of a model learned from data.

    Attributes:
        patience: seconds without a message after which an agent counts as silent or is forgotten, whichever is sooner.
        pause: seconds between two checks for silent agents.
        spent: number of steps that the last `evaluate` processed. If `spent` is below the limit `steps` of this call,
            no step was left.

    Raises:
        FormulaError, ConfigError, PolicyError, LimitError: only from the constructor, never during monitoring.
    """

    def __init__(
        self,
        model: MDP | World | type[World] | CheckedWorld | str | Path,
        policies: Mapping[str, object],
        formulas: Sequence[Query | FormulaSpec | str],
        settings: StreamSettings | None = None,
        *,
        identity: Identity | None = None,
        models: Mapping[str, object] | None = None,
        sampling: Sampling | None = None,
        trust: TrustSettings | None = None,
        bands: BandSettings | None = None,
    ) -> None:
        self.settings = _checked(settings or StreamSettings())
        bands = bands or BandSettings()
        self._engines = engines_of(model, policies, models or {}, sampling or Sampling(), bands)
        self._adapter = _adapter(self._engines, self.settings)
        known = set(self.settings.policies.values()) - {"nominal"}
        self._queries = prepare(formulas, self._engines, window=self.settings.window, known=known)
        checker = self._engines.checker
        self._identity = identity or identity_of(checker.model, checker.policies, checker.models)
        self._meaning = meaning_of(checker.model)
        self.patience = min(self.settings.stale_after, self.settings.forget_after)
        self.pause = self.patience / 4  # a check for silent agents visits all agents
        self._new_trust = partial(ModelTrust, self._engines.tested, trust or TrustSettings(), self.settings.encoder)
        self._start(self._new_trust())

    def _start(self, trust: ModelTrust) -> None:
        """Set the state of a monitor without agents."""
        self._trust = trust
        self._agents: dict[str, AgentMonitor] = {}
        self._ready: dict[str, None] = {}  # agents with pending events, in order of arrival
        self._timers = TimerQueue()  # agents to evaluate at given times, with or without new steps
        self._changed: set[str] = set()  # agents that changed or were forgotten since the last `save`
        self._deleted_pages: dict[str, dict[int, bytes | None]] = {}  # of forgotten agents, until `save` returns them
        self._newcomers = Admission()
        self._connected = True
        self._swept: float | None = None
        self.spent = 0
        self._former = {query.spec.name: CalibrationCounts() for query in self._queries if query.target is not None}

    def alone(self) -> Monitor:
        """Return a new monitor for one agent.

        The new monitor shares the models, policies, formulas and computed tables of this monitor. Its test of the model
        is the test of a fleet of one agent.
        """
        return self._copy(self._trust.alone())

    def anew(self) -> Monitor:
        """Return a new monitor that shares the models, policies, formulas and computed tables of this monitor."""
        return self._copy(self._new_trust())

    def _copy(self, trust: ModelTrust) -> Monitor:
        other = Monitor.__new__(Monitor)  # `copy` cannot copy a compiled object
        other.settings, other.patience, other.pause = self.settings, self.patience, self.pause
        other._adapter, other._engines, other._queries = self._adapter, self._engines, self._queries  # noqa: SLF001
        other._identity, other._new_trust = self._identity, self._new_trust  # noqa: SLF001
        other._meaning = self._meaning  # noqa: SLF001
        other._start(trust)  # noqa: SLF001
        return other

    @property
    def due(self) -> float | None:
        """Ticks at which to call `evaluate` even if no message has arrived by then; None if no agent is known."""
        if not self._agents:
            return None
        times = [each for agent in self._agents.values() for each in (agent.due(), agent.session.deadline)]
        return min(at for at in (*times, self._next_sweep()) if at is not None)

    @property
    def queries(self) -> tuple[Query, ...]:
        """The monitored formulas, parsed and checked."""
        return tuple(self._queries)

    def rests_on(self) -> dict[str, dict[str, RestsOn]]:
        """Return formula name -> support of the formula's values before anything is observed."""
        return {query.spec.name: self._engines.rests_on(query.formula) for query in self._queries}

    def agents(self) -> tuple[str, ...]:
        """Return the names of the currently monitored agents."""
        return tuple(self._agents)

    def observe(self, observation: Observation, now: Instant) -> list[Notice]:
        """Queue a step. Call this for every step. Invalid content does not raise; it causes a notice."""
        agent = observation.agent
        monitor = self._agents.get(agent)
        notices: list[Notice] = []
        if monitor is None:
            try:
                monitor = self._admit(observation, now, notices)
            except InputError as error:
                return [*notices, Received(agent, "rejected", error.reason, error.detail)]
        self._ready[agent] = None
        self._changed.add(agent)
        received = monitor.session.arrive(observation, now)
        if agent in self._newcomers.counts:
            self._newcomers.count(agent, received)
        return [*notices, *received] if notices else received

    def receive(self, agent: str, payload: bytes, now: Instant, max_bytes: int = MAX_BYTES) -> list[Notice]:
        """Decode a message of at most `max_bytes` and observe it. A notice reports an invalid message as rejected."""
        try:
            observation = decode(agent, payload, max_bytes)
        except InputError as error:  # if the message was a step, its seq is missing and causes a gap
            return [Received(agent, "rejected", error.reason, error.detail)]
        return self.observe(observation, now)

    def evaluate(
        self,
        now: Instant,
        latest_only: bool = False,  # noqa: FBT001, FBT002 - by position it is passed in less time
        steps: int = 0,
        live_since: float = -math.inf,
    ) -> list[Notice]:
        """Advance over all pending steps and evaluate every formula that is due.

        `latest_only`: evaluate only the newest of each agent's live steps, and report the number of skipped
        evaluations. A step is live if it arrived after `live_since` (ticks) and was not late. All other steps are
        evaluated. `steps`: stop after about this many evaluated steps and leave the rest to the next call; agents take
        turns. 0: no limit.
        """
        notices: list[Notice] = []
        was_rejected = self._trust.rejected
        if self._timers.next <= now.ticks:
            self._ready.update(dict.fromkeys(self._timers.due(now.ticks)))
        self.spent = 0
        queue = deque(self._ready)
        while queue and (not steps or self.spent < steps):
            agent = queue.popleft()
            most = min(TURN, steps - self.spent) if steps else 0
            self.spent += self._turn(agent, now, notices, live_since if latest_only else None, most)
            monitor = self._agents[agent]
            if monitor.session.pending:
                queue.append(agent)
        if self._trust.due(len(self._agents)):
            notices += self._trust.combine({name: each.test for name, each in self._agents.items()})
        if (self._trust.rejected and not was_rejected) or self._next_sweep() <= now.ticks:
            notices += self._sweep(now)  # do not wait after a rejection, because a rejection marks all agents
        return notices

    @property
    def waiting(self) -> Waiting:
        """Steps received and not evaluated yet."""
        steps, oldest, agents = 0, math.inf, self._agents
        for agent in self._ready:  # many agents in a backlog, so this is one short loop
            if arrived := agents[agent].session.since:  # one entry per pending event
                steps += len(arrived)
                oldest = min(oldest, arrived[0])
        return Waiting(steps, oldest if steps else None)

    def _next_sweep(self) -> float:
        """Return the ticks from which `evaluate` checks for silent agents.

        Compare ticks only with the result. The difference `now.ticks - self._swept` may be rounded differently.
        """
        return -math.inf if self._swept is None else self._swept + self.pause

    def _turn(self, agent: str, now: Instant, notices: list[Notice], live_since: float | None, most: int) -> int:
        """Evaluate up to `most` steps of an agent (0: all); append to `notices`.

        The agent stays ready if events are left.

        `live_since`: as in `evaluate` with `latest_only`; if None, nothing is skipped. Return the number of events
        processed without skipping, at least 1.
        """
        self._changed.add(agent)
        monitor = self._agents[agent]
        session = monitor.session
        if session.holds():
            notices += session.tick(now)
        before = len(session.pending)
        skipped = monitor.evaluate(now, notices, self._connected, live_since, most)
        monitor.revise(now, notices)
        self._timers.put(agent, monitor.due())
        self._ready.pop(agent, None)
        if session.pending or session.holds():  # more events to evaluate, or a missing step is awaited
            self._ready[agent] = None
        return max(1, before - len(session.pending) - skipped)

    # ---- the transport ----

    def lost(self, agent: str, now: Instant, why: str = "") -> list[Notice]:
        """Record that messages of this agent were dropped, by the transport or for the reason `why`.

        It is unknown which messages were dropped.
        """
        monitor = self._agents.get(agent)
        if monitor is None:
            return [Received(agent, "dropped")]
        self._ready[agent] = None
        self._changed.add(agent)
        return [Received(agent, "dropped"), *monitor.session.lost(now, why)]

    def connected(self, up: bool, now: Instant) -> list[Notice]:  # noqa: FBT001 - the only argument besides the time
        """Record whether the broker is connected.

        While it is not connected, verdicts are marked `disconnected`, unless another reason prevents verdicts (see
        `MARKS`).
        """
        self._connected = up
        return [notice for agent in self._agents for notice in self._check_blindness(agent, now)]

    # ---- save and restore ----

    def save(self, *, everything: bool = False) -> Saved:
        """Return the state of the agents changed since the last call, or of all agents.

        Serialize it before the next call.
        """
        pages, self._deleted_pages = self._deleted_pages, {}
        for agent, monitor in self._agents.items():
            if new := monitor.session.order.past.pages(everything=everything):
                pages[agent] = {**pages.get(agent, {}), **new}
        names = self._changed.union(self._agents) if everything else self._changed
        self._changed = set()
        agents = {name: self._agents[name].dump() if name in self._agents else None for name in names}
        return Saved(self._common(), agents, pages)

    def _common(self) -> MonitorState:
        formulas = tuple(query.spec for query in self._queries)
        agents, ready = tuple(self._agents), tuple(self._ready)
        trust, newcomers = self._trust.dump(), self._newcomers.dump()
        former = {name: counts.dump() for name, counts in self._former.items()}
        former = {name: counts for name, counts in former.items() if counts != Calibration()}
        return MonitorState(
            formulas,
            self._identity,
            agents,
            ready,
            self._connected,
            self._swept,
            trust,
            newcomers,
            former,
            self._meaning,
        )

    def load(self, saved: Saved) -> list[Notice]:
        """Restore a saved state into this new monitor.

        The formulas, model and policies of this monitor may differ from the saved state. A changed formula starts again
        for each agent, and its firing alarms close as `removed`. A path is kept if its numbers have the same meaning as
        before and fit the model. `saved`: for each agent and page, the newest entry that `save` has returned.

        Raises:
            InputError: `bad_snapshot`. The monitor is then unchanged.
        """
        state = saved.common
        agents = {name: agent for name, agent in saved.agents.items() if agent is not None}
        same, kept = self._identity.same_inputs_as(state.identity), self.kept(state)
        removed = [spec for spec in state.formulas if spec.name not in kept]
        changed = self._identity.changed_policies(state.identity)
        try:
            former = [Query(spec, parse(spec.text)) for spec in removed]
        except FormulaError as error:
            raise InputError("bad_snapshot", f"a formula watched before cannot be read: {error}") from error
        if set(state.agents) != agents.keys() or not agents.keys() >= set(state.ready):
            raise InputError("bad_snapshot", "not all agents of the snapshot are there; start anew without it")
        loaded = {agent: self._session(agent, agents[agent], saved.pages.get(agent)) for agent in state.agents}
        same_model = state.identity.model_sha256 == self._identity.model_sha256
        same_test = self._trust.load(state.trust, same_model=same_model)
        notices: list[Notice] = []
        for agent, session in loaded.items():
            before = agents[agent]
            closing = AgentMonitor(session, former, self._engines, state.identity)
            closing.load(before, [spec.name for spec in removed])
            notices += closing.close("removed")
            for name in [spec.name for spec in removed if spec.name in before.formulas]:
                notices += dropped_forecast(agent, name, before.formulas[name].forecasts)
                notices += dropped_takeovers(agent, name, before.formulas[name].takeovers)
            if not same:
                session.adapt(changed, renumbered=state.meaning != self._meaning)
            monitor = self._agents[agent] = self._agent_monitor(session)
            monitor.load(before, kept)
            if same_test:
                self._trust.resume(monitor.test, agent, before.trust, state.trust)
            self._timers.put(agent, monitor.due())
        for name in kept & self._former.keys() & state.former.keys():
            self._former[name].merge(state.former[name])
        self._ready = dict.fromkeys(state.ready)
        self._newcomers = Admission({agent: n for agent, n in state.newcomers.items() if agent in agents})
        self._connected, self._swept = state.connected, state.swept
        if not same_test or len(kept) < max(len(state.formulas), len(self._queries)):
            self._swept = None  # so that the next `evaluate` checks whether new formulas are blind
            self._changed.update(agents)
        return notices

    def kept(self, state: MonitorState) -> set[str]:
        """Return the names of the formulas that `load` keeps: unchanged, with the same model and policies."""
        same = self._identity.same_inputs_as(state.identity)
        return {query.spec.name for query in self._queries if same and query.spec in state.formulas}

    def current_state(self) -> Iterator[Notice]:
        """Yield notices that describe the current state of every formula for every agent, with their last content."""
        for monitor in self._agents.values():
            yield from monitor.current_state()
        yield from self._trust.current_state()
        yield from self._calibrations()

    def _calibrations(self) -> Iterator[Calibrated]:
        """Yield the counts of each formula's forecasts, over all agents including forgotten ones."""
        totals = {name: CalibrationCounts(counts.dump()) for name, counts in self._former.items()}
        for monitor in self._agents.values():
            for each in monitor.calibrations():
                totals[each.formula].merge(each.calibration)
        for name, total in totals.items():
            yield Calibrated(name, total.dump())

    # ---- one agent ----

    def _check_blindness(self, agent: str, now: Instant) -> Iterator[Notice]:
        """Report the formulas of an agent that became blind, or are no longer blind.

        If there are any, the agent's state and timer change.
        """
        monitor = self._agents[agent]
        if notices := list(monitor.check_blindness(now, connected=self._connected)):
            self._changed.add(agent)
            self._timers.put(agent, monitor.due())  # a revision that was just published is no longer due
        yield from notices

    def _sweep(self, now: Instant) -> Iterator[Notice]:
        """Check for silent agents and expired waits, and update the test of the model."""
        self._swept = now.ticks
        yield from self._trust.combine({name: monitor.test for name, monitor in self._agents.items()})
        for agent, monitor in list(self._agents.items()):
            if monitor.silent(now) > self.settings.forget_after:
                yield from self._forget(agent, monitor, now)
            else:
                yield from self._check_blindness(agent, now)

    def _forget(self, agent: str, monitor: AgentMonitor, now: Instant) -> Iterator[Notice]:
        """Close an agent's alarms and drop its state."""
        yield from monitor.close("ended")
        yield Forgotten(agent, monitor.silent(now), monitor.open)
        self._trust.forget(monitor.test)
        for each in monitor.calibrations():
            self._former[each.formula].merge(each.calibration)
        self._deleted_pages[agent] = dict.fromkeys(monitor.session.order.past.pages(everything=True))
        del self._agents[agent]
        self._ready.pop(agent, None)
        self._timers.put(agent, None)
        self._changed.add(agent)
        self._newcomers.forget(agent)

    def _admit(self, observation: Observation, now: Instant, notices: list[Notice]) -> AgentMonitor:
        """Start to monitor an agent. Raises InputError if `settings.agents` is reached or the observation is invalid.

        If another agent is dropped for the new agent, the notices about this are appended to `notices`.
        """
        validate_observation(observation)
        agent = observation.agent
        if len(self._agents) >= self.settings.agents:
            patience = self.settings.stale_after
            dropped = self._newcomers.to_drop(lambda name: self._agents[name].silent(now), patience)
            if dropped is not None:
                notices += self._forget(dropped, self._agents[dropped], now)
        if len(self._agents) >= self.settings.agents:
            detail = f"the limit of {self.settings.agents} agents is reached (limits.agents); {agent} is not monitored"
            raise InputError("too_many_agents", detail)
        monitor = self._agents[agent] = self._agent_monitor(self._session(agent))
        self._newcomers.add(agent)
        return monitor

    def _agent_monitor(self, session: Session) -> AgentMonitor:
        return AgentMonitor(session, self._queries, self._engines, self._identity, self._trust)

    def _session(
        self, agent: str, before: AgentMonitorState | None = None, pages: Mapping[int, bytes | None] | None = None
    ) -> Session:
        if before is None:
            return Session(agent, self._adapter, self.settings)
        held = {number: page for number, page in (pages or {}).items() if page is not None}
        return Session.load(before.session, self._adapter, self.settings, pages=held)


def _adapter(engines: Engines, settings: StreamSettings) -> Adapter:
    """Return the adapter between observations and the model.

    Raises ConfigError if the state encoder does not fit the model.
    """
    checker, features = engines.checker, settings.encoder == "features"
    if isinstance(checker, WorldChecker):
        if not features:
            raise ConfigError(f"state_encoder is {settings.encoder!r}; of a world with numbers it is 'features'")
        return WorldAdapter(checker.model, settings, checker.policies["nominal"])
    if features:
        raise ConfigError("state_encoder is 'features', which is for worlds with numbers; the model is a table")
    if isinstance(checker, HiddenChecker):
        if checker.model.emissions is not None and settings.encoder != "index":
            raise ConfigError(f"state_encoder is {settings.encoder!r}; where states are hidden it is 'index'")
        return HiddenAdapter(checker.filter, checker.policies, settings)
    return ModelAdapter(checker.model, settings, checker.policies["nominal"])


def _checked(settings: StreamSettings) -> StreamSettings:
    """Return the settings, or raise ConfigError.

    Without this check, a time of NaN would silently disable its timeout.
    """
    for name in ("reorder_wait", "stale_after", "idle_after", "forget_after", "max_lag"):
        value = getattr(settings, name)
        if not (isinstance(value, int | float) and value >= 0):
            raise ConfigError(f"{name} is {value!r}; it must be a number of seconds, not below 0")
    for name, least in (("window", 1), ("reorder_steps", 0), ("agents", 1), ("pending", 1)):
        value = getattr(settings, name)
        if not (isinstance(value, int) and value >= least):
            raise ConfigError(f"{name} is {value!r}; it must be a whole number, {least} or more")
    return settings
