"""The whole route, from an observation to notices. The file to read first.

    bytes --decode--> Observation --Session--> Step | Break | End --path--> Verdict --alarm--> Notice

`decode` (`monitor.stream`) happens before, publishing (`monitor.sidecar`) after; here is no clock and no I/O. One
`Session` an agent puts its steps in order and keeps the sliding path; its `AgentMonitor` asks `Checker` every formula
that is due, on the path so far, and feeds the verdicts to the alarms.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from monitor.alarm.message import Identity, identity_of
from monitor.engine import Engines
from monitor.errors import ConfigError, FormulaError, InputError
from monitor.exact import Checker, tables
from monitor.logic import parse
from monitor.model import MDP
from monitor.runtime.admission import Admission
from monitor.runtime.agent import AgentMonitor, AgentMonitorState
from monitor.runtime.forecasts import given_up
from monitor.runtime.query import Query, prepare
from monitor.runtime.trust import ModelTrust, ModelTrustState
from monitor.statistics.calibration import Tally
from monitor.stream import Session, TimerQueue
from monitor.stream.decode import validate as validate_observation
from monitor.types import (
    Calibrated,
    Calibration,
    Forgotten,
    FormulaSpec,
    Instant,
    Notice,
    Observation,
    Received,
    Sampling,
    StreamSettings,
    TrustSettings,
)

__all__ = ["Monitor", "MonitorState", "Waiting"]

TURN: Final = 16
"""Steps of one agent that are answered before others have their turn."""


class MonitorState(msgspec.Struct, frozen=True, array_like=True):
    """What a `Monitor` remembers beside its agents, as plain data: who they are, and what was asked in whose name.

    `agents`, `ready`: in order. `connected`, `swept`: the broker is reached; ticks when silence was last looked for.
    `newcomers`: of `Admission`. `former`: formula -> what the forecasts of agents that are forgotten came to.
    """

    formulas: tuple[FormulaSpec, ...]
    identity: Identity
    agents: tuple[str, ...]
    ready: tuple[str, ...]
    connected: bool
    swept: float | None
    doubt: ModelTrustState | None
    newcomers: Mapping[str, int] = {}
    former: Mapping[str, Calibration] = {}


class Waiting(msgspec.Struct, frozen=True):
    """Steps that have come and are not answered. `since`: ticks at which the oldest came, None if there is none."""

    steps: int
    since: float | None


class Monitor:
    """Watches any number of agents that run in the same model.

    Args:
        model: the world of every agent.
        policies: name -> S actions, an S x A matrix, a table, or the path of a manifest; `nominal` is the deployed one.
        formulas: what to watch; a bare text gets the name `formula_<n>`.
        settings: limits and waits of the stream.
        identity: names and digests for alerts; made from the contents where not given.
        models: name -> other dynamics, for formulas that ask about `model:name`.
        sampling: how well answers by sampling must be founded, for formulas whose `engine` is not `exact`.
        trust: how the model is held against the transitions that happen.

    Raises:
        FormulaError, ConfigError, PolicyError, LimitError: before the first message, never after it.
    """

    def __init__(
        self,
        model: MDP,
        policies: Mapping[str, object],
        formulas: Sequence[Query | FormulaSpec | str],
        settings: StreamSettings | None = None,
        *,
        identity: Identity | None = None,
        models: Mapping[str, MDP] | None = None,
        sampling: Sampling | None = None,
        trust: TrustSettings | None = None,
    ) -> None:
        self.settings = _checked(settings or StreamSettings())
        self._checker = Checker(model, tables(policies, model), models)
        self._engines = Engines(self._checker, sampling or Sampling())
        self._questions = prepare(formulas, self._engines, window=self.settings.window)
        self._identity = identity or identity_of(model, self._checker.policies, models or {})
        self._watches: dict[str, AgentMonitor] = {}
        self._ready: dict[str, None] = {}  # agents with something to advance over, in order of arrival
        self._agenda = TimerQueue()  # agents to be answered although nothing may come
        self._changed: set[str] = set()  # agents whose state is not what `changed` last gave, forgotten ones too
        self._gone: dict[str, dict[int, bytes | None]] = {}  # pages of forgotten agents, until `pages` tells of them
        self._newcomers = Admission()
        self._connected = True
        self._doubt = ModelTrust(model, trust or TrustSettings(), self.settings.encoder)
        self._swept: float | None = None
        self._former = {question.spec.name: Tally() for question in self._questions if question.target is not None}
        # Silence is looked for once in a quarter of the shortest time that matters, since that visits every agent.
        self._pause = min(self.settings.stale_after, self.settings.forget_after) / 4

    @property
    def queries(self) -> tuple[Query, ...]:
        """The formulas watched, parsed and checked."""
        return tuple(self._questions)

    def agents(self) -> tuple[str, ...]:
        """The agents known now."""
        return tuple(self._watches)

    def observe(self, observation: Observation, now: Instant) -> list[Notice]:
        """Take a step over. Never skipped and never raises for what the observation holds: the answer is a notice."""
        watch = self._watches.get(observation.agent)
        told: list[Notice] = []
        if watch is None:
            try:
                watch = self._admit(observation, now, told)
            except InputError as error:
                return [*told, *self.reject(observation.agent, error)]
        self._touch(observation.agent)
        received = watch.session.arrive(observation, now)
        self._newcomers.heard(observation.agent, received)
        return [*told, *received]

    def reject(self, agent: str, error: InputError) -> list[Notice]:
        """Count a message that could not be decoded. If it was a step, its missing seq will show as a gap."""
        return [Received(agent, "rejected", error.reason, error.detail)]

    def evaluate(self, now: Instant, *, latest_only: bool = False, steps: int = 0) -> list[Notice]:
        """Answer all that is due. `latest_only`: only at each agent's newest step; what is passed over is told.

        `steps`: after about so many answers the rest waits for the next call; agents take turns. 0: all.
        """
        notices: list[Notice] = []
        doubted = self._doubt.stands
        self._ready.update(dict.fromkeys(self._agenda.due(now.ticks)))
        left = steps or math.inf
        in_line = deque(self._ready)
        while in_line and left > 0:
            agent = in_line.popleft()
            session = self._watches[agent].session
            before = len(session.pending)
            most = 0 if latest_only or not steps else min(TURN, left)
            notices += self._turn(agent, now, latest_only=latest_only, most=int(most))
            left -= 1 if latest_only else max(1, before - len(session.pending))
            if session.pending:
                in_line.append(agent)
        if self._doubt.due(len(self._watches)):
            notices += self._doubt.look(watch.test for watch in self._watches.values())
        begins = self._doubt.stands and not doubted
        if begins or self._swept is None or now.ticks - self._swept >= self._pause:
            notices += self._sweep(now)  # doubt concerns every agent at once
        return notices

    @property
    def waiting(self) -> Waiting:
        """What has come and is not answered yet."""
        sessions = [self._watches[agent].session for agent in self._ready]
        since = min((session.since[0] for session in sessions if session.since), default=None)
        return Waiting(sum(len(session.pending) for session in sessions), since)

    def _turn(self, agent: str, now: Instant, *, latest_only: bool, most: int) -> list[Notice]:
        """One agent's turn; it goes to the end of the line if something is left of it."""
        watch = self._watches[agent]
        session = watch.session
        notices = session.tick(now)
        notices += watch.evaluate(now, connected=self._connected, latest_only=latest_only, most=most)
        self._ready.pop(agent, None)
        self._changed.add(agent)
        self._agenda.put(agent, watch.due)
        if session.pending or session.deadline is not None:
            self._ready[agent] = None  # more to answer, or a missing step is awaited: look again
        return notices

    def lost(self, agent: str, now: Instant, why: str = "") -> list[Notice]:
        """The transport dropped messages of this agent, or something else did (`why`); nobody knows which."""
        watch = self._watches.get(agent)
        if watch is None:
            return [Received(agent, "dropped")]
        self._touch(agent)
        return [Received(agent, "dropped"), *watch.session.lost(now, why)]

    def connected(self, up: bool, now: Instant) -> list[Notice]:  # noqa: FBT001 - the one thing there is to say
        """Whether the broker is reached; while it is not, nothing can be seen."""
        self._connected = up
        return [notice for agent in self._watches for notice in self._look(agent, now)]

    # ---- kept and taken up again ----

    def dump(self) -> MonitorState:
        """What is remembered beside the agents."""
        formulas = tuple(question.spec for question in self._questions)
        agents, ready = tuple(self._watches), tuple(self._ready)
        doubt, newcomers = self._doubt.dump(), self._newcomers.dump()
        known = formulas, self._identity, agents, ready, self._connected, self._swept, doubt, newcomers
        former = {name: tally.dump() for name, tally in self._former.items()}
        return MonitorState(*known, {name: counted for name, counted in former.items() if counted != Calibration()})

    def pages(self, *, everything: bool = False) -> dict[str, dict[int, bytes | None]]:
        """Agent -> pages of its past episodes that came or went (None) since the last call, or all there are."""
        found = self._gone
        self._gone = {}
        for agent, watch in self._watches.items():
            if pages := watch.session.order.past.pages(everything=everything):
                found[agent] = {**found.get(agent, {}), **pages}
        return found

    def changed(self, *, everything: bool = False) -> dict[str, AgentMonitorState | None]:
        """The agents that changed since the last call, or all; None: forgotten. Write it before the next step."""
        names = self._changed.union(self._watches) if everything else self._changed
        self._changed = set()
        return {name: watch.dump() if (watch := self._watches.get(name)) else None for name in names}

    def load(
        self,
        state: MonitorState,
        agents: Mapping[str, AgentMonitorState],
        pages: Mapping[str, Mapping[int, bytes]] | None = None,
    ) -> list[Notice]:
        """Take up the state of a monitor, here where nothing was seen yet. Formulas, model and policies may be others.

        A formula that is not asked exactly as before starts anew with each agent; what fired for it is closed as
        `removed`. Paths are kept where they fit the model. `pages`: of each agent, all that `pages` gave.

        Raises:
            InputError: `bad_snapshot`; then nothing has changed here.
        """
        same, kept = self._identity.is_world_of(state.identity), self.kept(state)
        gone = [spec for spec in state.formulas if spec.name not in kept]
        try:
            former = [Query(spec, parse(spec.text)) for spec in gone]
        except FormulaError as error:
            raise InputError("bad_snapshot", f"a formula watched before cannot be read: {error}") from error
        if set(state.agents) != agents.keys() or not agents.keys() >= set(state.ready):
            raise InputError("bad_snapshot", "not all agents of the snapshot are there; start anew without it")
        loaded = {agent: self._session(agent, agents[agent], (pages or {}).get(agent, {})) for agent in state.agents}
        same_model = state.identity.model_sha256 == self._identity.model_sha256
        trust = self._doubt.load(state.doubt, same_model=same_model)
        notices: list[Notice] = []
        for agent, session in loaded.items():
            before = agents[agent]
            closing = AgentMonitor(session, former, self._engines, state.identity)
            closing.load(before, [spec.name for spec in gone])
            notices += closing.close("removed")
            for name in [spec.name for spec in gone if spec.name in before.formulas]:
                notices += given_up(agent, name, before.formulas[name].forecasts)
            if not same:
                session.revise()
            watch = self._watches[agent] = self._watch(session)
            watch.load(before, kept)
            if trust:
                self._doubt.take_up(watch.test, agent, before.trust, state.doubt)
            self._agenda.put(agent, watch.due)
        for name in kept & self._former.keys() & state.former.keys():
            self._former[name].merge(state.former[name])
        self._ready = dict.fromkeys(state.ready)
        self._newcomers = Admission({agent: n for agent, n in state.newcomers.items() if agent in agents})
        self._connected, self._swept = state.connected, state.swept
        if not trust or len(kept) < max(len(state.formulas), len(self._questions)):
            self._swept = None  # what is new here may be blind, and is looked at next
            self._changed.update(agents)
        return notices

    def kept(self, state: MonitorState) -> set[str]:
        """Names of the formulas that `load` takes over: asked exactly as before, in the same world."""
        same = self._identity.is_world_of(state.identity)
        return {question.spec.name for question in self._questions if same and question.spec in state.formulas}

    def standing(self) -> Iterator[Notice]:
        """Where every formula stands for every agent, as it was told before."""
        for watch in self._watches.values():
            yield from watch.standing()
        yield from self._doubt.again()
        yield from self._calibrations()

    def _calibrations(self) -> Iterator[Calibrated]:
        """How the forecasts of each formula stand, of all agents there were."""
        totals = {name: Tally(tally.dump()) for name, tally in self._former.items()}
        for watch in self._watches.values():
            for each in watch.calibrations():
                totals[each.formula].merge(each.calibration)
        for name, total in totals.items():
            yield Calibrated(name, total.dump())

    # ---- one agent ----

    def _touch(self, agent: str) -> None:
        self._ready[agent] = None
        self._changed.add(agent)

    def _look(self, agent: str, now: Instant) -> Iterator[Notice]:
        """Tell what went blind or sees again; only that changes anything."""
        for notice in self._watches[agent].look(now, connected=self._connected):
            self._changed.add(agent)
            yield notice

    def _sweep(self, now: Instant) -> Iterator[Notice]:
        """Notice silence, steps that wait too long, and how the model stands."""
        self._swept = now.ticks
        yield from self._doubt.look(watch.test for watch in self._watches.values())
        for agent, watch in list(self._watches.items()):
            if watch.silent(now) > self.settings.forget_after:
                yield from self._forget(agent, watch, now)
            else:
                yield from self._look(agent, now)

    def _forget(self, agent: str, watch: AgentMonitor, now: Instant) -> Iterator[Notice]:
        """End what is told of an agent."""
        yield from watch.close("ended")
        yield Forgotten(agent, watch.silent(now), watch.open)
        self._doubt.forget(watch.test)
        for each in watch.calibrations():
            self._former[each.formula].merge(each.calibration)
        self._gone[agent] = dict.fromkeys(watch.session.order.past.pages(everything=True))
        del self._watches[agent]
        self._ready.pop(agent, None)
        self._agenda.put(agent, None)
        self._changed.add(agent)
        self._newcomers.forget(agent)

    def _admit(self, observation: Observation, now: Instant, told: list[Notice]) -> AgentMonitor:
        """A new agent's watch. InputError if there is no room, or if what it says is no observation.

        `told`: takes the notices of an agent that makes room for it.
        """
        validate_observation(observation)
        agent = observation.agent
        if len(self._watches) >= self.settings.agents:
            patience = self.settings.stale_after
            leaving = self._newcomers.leaving(lambda name: self._watches[name].silent(now), patience)
            if leaving is not None:
                told += self._forget(leaving, self._watches[leaving], now)
        if len(self._watches) >= self.settings.agents:
            detail = f"{self.settings.agents} agents are watched already (limits.agents); {agent} is not"
            raise InputError("too_many_agents", detail)
        watch = self._watches[agent] = self._watch(self._session(agent))
        self._newcomers.add(agent)
        return watch

    def _watch(self, session: Session) -> AgentMonitor:
        return AgentMonitor(session, self._questions, self._engines, self._identity, self._doubt)

    def _session(
        self, agent: str, before: AgentMonitorState | None = None, pages: Mapping[int, bytes] | None = None
    ) -> Session:
        model, nominal = self._checker.model, self._checker.policies["nominal"]
        if before is None:
            return Session(agent, model, self.settings, nominal=nominal)
        return Session.load(before.session, model, self.settings, pages=pages or {}, nominal=nominal)


def _checked(settings: StreamSettings) -> StreamSettings:
    """The settings, if they count; else a ConfigError. With NaN for a time what is missed would never be told."""
    for name in ("reorder_wait", "stale_after", "idle_after", "forget_after", "max_lag"):
        value = getattr(settings, name)
        if not (isinstance(value, int | float) and value >= 0):
            raise ConfigError(f"{name} is {value!r}; it must be a number of seconds, not below 0")
    for name, least in (("window", 1), ("reorder_steps", 0), ("agents", 1), ("pending", 1)):
        value = getattr(settings, name)
        if not (isinstance(value, int) and value >= least):
            raise ConfigError(f"{name} is {value!r}; it must be a whole number, {least} or more")
    return settings
