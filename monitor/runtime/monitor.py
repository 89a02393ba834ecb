"""The whole route, from an observation to notices. Read this file first.

    Observation --Session--> Step | Break | End --SlidingPath--> pairs --QueryEvaluator--> Verdict --Alarm--> Notice

`observe` and `evaluate` are the two entry points. From `observe` follow `Session.arrive`; from `evaluate`,
`AgentMonitor.evaluate` (there each step also meets `ModelTest.step`), `FormulaMonitor.answer`, and on to a verdict that
some agent got before (`SharedVerdicts.find`) or a new one: `QueryEvaluator.verdict`, `IncrementalCheck.verdict`,
`PathValues.advance`, `Evaluator.push`, `exact.forward.answers.push`. Then `alarm.machine.next_alarm`. Before all this
`monitor.stream.decode` makes observations of bytes; after it `monitor.sidecar` publishes notices. No clock and no I/O:
time is an argument.
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
from monitor.evaluation import AnyEngines, engines_of
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
from monitor.types import (
    BandSettings,
    Calibrated,
    Calibration,
    Forgotten,
    FormulaSpec,
    Instant,
    Notice,
    Observation,
    Received,
    RestsOn,
    Sampling,
    StreamSettings,
    TrustSettings,
)
from monitor.worlds import CheckedWorld, World

__all__ = ["Monitor", "MonitorState", "Saved", "Waiting"]

TURN: Final = 16
"""Steps of one agent evaluated before the next agent has its turn."""


class MonitorState(msgspec.Struct, frozen=True, array_like=True):
    """State of a `Monitor` beside that of its agents, as plain data.

    `agents`, `ready`: names of agents, in order. `connected`: the broker is connected. `swept`: ticks of the last check
    for silent agents. `newcomers`: of `Admission`. `former`: formula -> counts of the forecasts of forgotten agents.
    `meaning`: digest of what the numbers of states and actions stand for (`meaning_of`).
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
    """What `Monitor.save` returns and `Monitor.load` restores, as plain data.

    `agents`: the state of each agent; None: forgotten. `pages`: of each agent, number -> page of its past episodes,
    which never changes once written; None: deleted. Those changed since the last `save` alone, or all.
    """

    common: MonitorState
    agents: Mapping[str, AgentMonitorState | None]
    pages: Mapping[str, Mapping[int, bytes | None]] = {}


class Waiting(msgspec.Struct, frozen=True):
    """Steps received and not evaluated yet. `since`: ticks at which the oldest arrived, None if there is none."""

    steps: int
    since: float | None


class Monitor:
    """Monitor of any number of agents that share one model.

    Args:
        model: the MDP every agent acts in, or a `World` with numbers, or what `load_world` makes one of.
        policies: name -> S actions, an S x A matrix, a table, a function in a world with numbers, or the path of a
            manifest; `nominal` is the deployed one.
        formulas: those to monitor; a bare text gets the name `formula_<n>`.
        settings: limits and waiting times of the stream.
        identity: names and digests for alerts; made from the contents where not given.
        models: name -> other dynamics, for formulas that intervene with `model:name`.
        sampling: error rates and limits of sampled answers, for formulas whose `engine` is not `exact`.
        trust: settings of the test of the model against the observed transitions.
        bands: how the bands are computed on a model learned from data.

    Attributes:
        patience: seconds without a message after which an agent is silent, or forgotten; the shorter of the two.
        pause: seconds between two looks for silent agents.
        spent: what the last `evaluate` counted against its `steps`. Below that, it left nothing to the next one.

    Raises:
        FormulaError, ConfigError, PolicyError, LimitError: before the first message, never after it.
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
        self.pause = self.patience / 4  # looking for silent agents visits all of them
        self._new_trust = partial(ModelTrust, self._engines.tested, trust or TrustSettings(), self.settings.encoder)
        self._start(self._new_trust())

    def _start(self, trust: ModelTrust) -> None:
        """Begin without agents."""
        self._trust = trust
        self._agents: dict[str, AgentMonitor] = {}
        self._ready: dict[str, None] = {}  # agents with something to advance over, in order of arrival
        self._timers = TimerQueue()  # agents to evaluate at a time, with or without new steps
        self._changed: set[str] = set()  # agents whose state differs from what `save` last returned, or is gone
        self._deleted_pages: dict[str, dict[int, bytes | None]] = {}  # of forgotten agents, until `save` returns them
        self._newcomers = Admission()
        self._connected = True
        self._swept: float | None = None
        self.spent = 0
        self._former = {query.spec.name: CalibrationCounts() for query in self._queries if query.target is not None}

    def alone(self) -> Monitor:
        """Return a monitor for one agent that has seen nothing; it shares all that was read, checked and computed.

        Its test of the model is that of a fleet of one agent.
        """
        return self._copy(self._trust.alone())

    def anew(self) -> Monitor:
        """Return a monitor that has seen nothing; it shares all that was read, checked and computed."""
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
        """Ticks at which to call `evaluate` even if nothing happens before; None: no agent is known."""
        if not self._agents:
            return None
        times = [each for agent in self._agents.values() for each in (agent.due(), agent.session.deadline)]
        return min(at for at in (*times, self._next_sweep()) if at is not None)

    @property
    def queries(self) -> tuple[Query, ...]:
        """The monitored formulas, parsed and checked."""
        return tuple(self._queries)

    def rests_on(self) -> dict[str, dict[str, RestsOn]]:
        """Return what the values of each formula rest on before anything is observed, by name: `Engines.rests_on`."""
        return {query.spec.name: self._engines.rests_on(query.formula) for query in self._queries}

    def agents(self) -> tuple[str, ...]:
        """Return the names of the agents monitored now."""
        return tuple(self._agents)

    def observe(self, observation: Observation, now: Instant) -> list[Notice]:
        """Queue a step; must be called for every one. Invalid content does not raise: it becomes a notice."""
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
        """Decode a message of at most `max_bytes` and observe it. One that is invalid is rejected, by a notice."""
        try:
            observation = decode(agent, payload, max_bytes)
        except InputError as error:  # if it was a step, its missing seq becomes a gap
            return [Received(agent, "rejected", error.reason, error.detail)]
        return self.observe(observation, now)

    def evaluate(
        self,
        now: Instant,
        latest_only: bool = False,  # noqa: FBT001, FBT002 - by position it is passed in less time
        steps: int = 0,
        live_since: float = -math.inf,
    ) -> list[Notice]:
        """Advance over all pending steps and answer every formula that is due.

        `latest_only`: of each agent's live steps answer only at the newest, and report how many answers were skipped. A
        step is live if it arrived after `live_since` (ticks) and was not late then; all others are answered. `steps`:
        stop after about this many answered steps and leave the rest to the next call; agents take turns. 0: all.
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
            notices += self._sweep(now)  # a rejected model concerns every agent at once
        return notices

    @property
    def waiting(self) -> Waiting:
        """Steps received and not evaluated yet."""
        steps, oldest, agents = 0, math.inf, self._agents
        for agent in self._ready:  # in a backlog there are many, so this is one short loop
            if arrived := agents[agent].session.since:  # as long as `pending`
                steps += len(arrived)
                oldest = min(oldest, arrived[0])
        return Waiting(steps, oldest if steps else None)

    def _next_sweep(self) -> float:
        """Return the ticks from which on `evaluate` looks for silent agents: a sum; a difference rounds otherwise."""
        return -math.inf if self._swept is None else self._swept + self.pause

    def _turn(self, agent: str, now: Instant, notices: list[Notice], live_since: float | None, most: int) -> int:
        """Evaluate up to `most` steps of an agent (0: all) into `notices`; it stays ready if anything is left.

        `live_since`: as in `evaluate` with `latest_only`; None: nothing is skipped. Return how many events were
        processed and not skipped, at least 1.
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
        if session.pending or session.holds():  # more to evaluate, or waiting for a missing step
            self._ready[agent] = None
        return max(1, before - len(session.pending) - skipped)

    # ---- the transport ----

    def lost(self, agent: str, now: Instant, why: str = "") -> list[Notice]:
        """Record that unknown messages of this agent were dropped, by the transport or for the reason `why`."""
        monitor = self._agents.get(agent)
        if monitor is None:
            return [Received(agent, "dropped")]
        self._ready[agent] = None
        self._changed.add(agent)
        return [Received(agent, "dropped"), *monitor.session.lost(now, why)]

    def connected(self, up: bool, now: Instant) -> list[Notice]:  # noqa: FBT001 - the one thing there is to say
        """Record whether the broker is connected.

        While it is not, verdicts are marked `disconnected`, unless a reason holds that stops them (see `MARKS`).
        """
        self._connected = up
        return [notice for agent in self._agents for notice in self._check_blindness(agent, now)]

    # ---- save and restore ----

    def save(self, *, everything: bool = False) -> Saved:
        """Return the state: of the agents changed since the last call, or of all. Write it at once."""
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
        """Restore the state of a monitor into this new one, whose formulas, model and policies may differ.

        A formula that changed starts again for each agent, and an alarm that fires for it closes as `removed`. Paths
        are kept where their numbers mean the same and fit the model. `saved`: all that `save` returned since the start,
        the newest of each.

        Raises:
            InputError: `bad_snapshot`; then nothing has changed here.
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
            self._swept = None  # new formulas may be blind: check at the next `evaluate`
            self._changed.update(agents)
        return notices

    def kept(self, state: MonitorState) -> set[str]:
        """Return the names of the formulas that `load` keeps: unchanged, with the same model and policies."""
        same = self._identity.same_inputs_as(state.identity)
        return {query.spec.name for query in self._queries if same and query.spec in state.formulas}

    def current_state(self) -> Iterator[Notice]:
        """Yield the notices that describe the current state of every formula for every agent, as last sent."""
        for monitor in self._agents.values():
            yield from monitor.current_state()
        yield from self._trust.current_state()
        yield from self._calibrations()

    def _calibrations(self) -> Iterator[Calibrated]:
        """Yield the counts of each formula's forecasts, over all agents, forgotten ones included."""
        totals = {name: CalibrationCounts(counts.dump()) for name, counts in self._former.items()}
        for monitor in self._agents.values():
            for each in monitor.calibrations():
                totals[each.formula].merge(each.calibration)
        for name, total in totals.items():
            yield Calibrated(name, total.dump())

    # ---- one agent ----

    def _check_blindness(self, agent: str, now: Instant) -> Iterator[Notice]:
        """Report which formulas went blind or see again; only then has the agent's state changed, and its timer."""
        monitor = self._agents[agent]
        if notices := list(monitor.check_blindness(now, connected=self._connected)):
            self._changed.add(agent)
            self._timers.put(agent, monitor.due())  # what is published now need not be revised later
        yield from notices

    def _sweep(self, now: Instant) -> Iterator[Notice]:
        """Check for silent agents, for steps that wait too long, and the test of the model."""
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
        """Start to monitor an agent. InputError if `settings.agents` is reached or the observation is invalid.

        `notices`: receives those of an agent that is dropped for it.
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


def _adapter(engines: AnyEngines, settings: StreamSettings) -> Adapter:
    """Return what maps observations to the model. Raises ConfigError for a state encoder that does not fit it."""
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
    """Return the settings, or raise ConfigError. A NaN for a time would disable its timeout in silence."""
    for name in ("reorder_wait", "stale_after", "idle_after", "forget_after", "max_lag"):
        value = getattr(settings, name)
        if not (isinstance(value, int | float) and value >= 0):
            raise ConfigError(f"{name} is {value!r}; it must be a number of seconds, not below 0")
    for name, least in (("window", 1), ("reorder_steps", 0), ("agents", 1), ("pending", 1)):
        value = getattr(settings, name)
        if not (isinstance(value, int) and value >= least):
            raise ConfigError(f"{name} is {value!r}; it must be a whole number, {least} or more")
    return settings
