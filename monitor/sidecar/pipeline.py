"""From events to what goes out: the sidecar without its sockets, files and clocks.

`run` feeds it what happens, `replay` what was recorded; the same events give the same bytes. It decides nothing about
safety: the monitor does. It decides what is published, when it is repeated, and when it is taken back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Final, Literal, assert_never

import msgspec
from msgspec.structs import replace

from monitor._version import __version__
from monitor.alarm.message import Identity, Named, named_policies, plain_message, rfc3339
from monitor.errors import InputError
from monitor.runtime.agent import AgentMonitorState
from monitor.runtime.monitor import Monitor, MonitorState, Waiting
from monitor.sidecar.effects import Effects, EvidenceFile, Publication
from monitor.sidecar.events import Connected, Evaluate, Event, Heartbeat, Lost, Message
from monitor.sidecar.sinks.alert_publisher import AlertPublisher, Told, as_json
from monitor.stream import agent_of, decode, seal, unseal
from monitor.types import Alert, Blind, Forgotten, Instant, Notice, Received, Refreshed

__all__ = [
    "OFFLINE",
    "Effects",
    "EvidenceFile",
    "Pipeline",
    "Publication",
    "Snapshot",
    "StatusMessage",
    "Topics",
    "topics_of",
]

TOPICS: Final = 4096
"""Topics whose agent is remembered; of a topic that names none nothing is."""

SKIPPED: Final = 1_000_000
"""Revisions: more than an alarm can have had of which nothing is known. (id, revision) stays the name of an alert."""

OFFLINE: Final = b'{"state":"offline"}'
"""The last will, and the last word of a clean end."""


class Snapshot(msgspec.Struct, frozen=True):
    """All that a pipeline's future depends on, as bytes that may be kept.

    `common`: what there is once. `agents`: those that changed since the last snapshot; None: forgotten since then.
    `pages`: the same for what is never changed once it is there, under `<agent>/<number>`. Put over what earlier
    snapshots said of other agents it is complete.
    """

    common: bytes
    agents: Mapping[str, bytes | None]
    pages: Mapping[str, bytes | None] = msgspec.field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Topics:
    """Where things are: `steps` with one `+`, `alerts` and `status` without the levels that are added."""

    steps: str
    alerts: str
    status: str


class StatusMessage(msgspec.Struct, frozen=True):
    """The JSON document on `cfmon/status/<client_id>`; after a lost connection the broker puts `OFFLINE` there."""

    v: int
    """Version of this schema: 1."""
    state: Literal["online", "offline"]
    """`offline` stands alone: it is the last will, and the last message of a clean end."""
    client_id: str
    """The monitor's name at the broker."""
    version: str
    """Of the software."""
    model: Named
    """The model in use."""
    policies: tuple[Named, ...]
    """The policies in use."""
    agents: int
    """Agents that are watched."""
    firing: int
    """Alarms that fire."""
    blind: int
    """Formulas that cannot be answered now, each counted with each agent."""
    sent: str | None
    """When this message was sent, RFC 3339 in UTC."""
    sent_unix: float
    """The same, in seconds since the epoch."""


class _Common(msgspec.Struct, frozen=True, array_like=True):
    """What a pipeline remembers beside its agents. `sent`: when the last event was, seconds since the epoch."""

    monitor: MonitorState
    topics: Topics
    status_topic: str
    sent: float


def topics_of(common: bytes) -> Topics:
    """Where things were when a snapshot was taken; InputError (`bad_snapshot`) if it is none."""
    return unseal(common, _Common).topics


class _Agent(msgspec.Struct, frozen=True, array_like=True):
    """What a pipeline remembers of one agent."""

    watch: AgentMonitorState
    told: Told


class Pipeline:
    """One monitor with its way in (topics, bytes) and its way out (topics, bytes, evidence).

    `evidence_of` makes the file that proves an alarm. Not thread-safe: one event after the other.
    """

    def __init__(
        self,
        monitor: Monitor,
        identity: Identity,
        *,
        topics: Topics,
        client_id: str,
        message_bytes: int,
        evidence_of: Callable[[Alert], EvidenceFile],
    ) -> None:
        self._monitor = monitor
        self._identity = identity
        self._topics = topics
        self._client_id = client_id
        self._message_bytes = message_bytes
        self._evidence_of = evidence_of
        self._announcer = AlertPublisher(identity, topics.alerts, evidence_of)
        self._sent = 0.0
        self._agent_of = lru_cache(TOPICS)(partial(agent_of, pattern=topics.steps))

    @property
    def waiting(self) -> Waiting:
        """What has come and is not answered yet."""
        return self._monitor.waiting

    @property
    def status_topic(self) -> str:
        """Where this sidecar says that it is there; also the topic of its last will."""
        return f"{self._topics.status}/{self._client_id}"

    def agents(self) -> tuple[str, ...]:
        """The agents known now."""
        return self._monitor.agents()

    def topic_of(self, agent: str) -> str:
        """Where an agent's steps come from."""
        return self._topics.steps.replace("+", agent)

    def step(self, event: Event) -> Effects:
        """Take one event over; never raises for anything a message may hold."""
        self._sent = event.now.wall
        match event:
            case Message():
                return self._publish(self._observe(event), event.now)
            case Evaluate():
                told = self._monitor.evaluate(event.now, latest_only=event.latest_only, steps=event.steps)
                return self._publish(told, event.now)
            case Heartbeat():
                return self._heartbeat(event.now)
            case Connected():
                return self._connected(event)
            case Lost():
                return self._publish(self._lost(event), event.now)
            case _:
                assert_never(event)

    # ---- kept and taken up again ----

    def snapshot(self, *, everything: bool = False) -> Snapshot:
        """The state after the last event, for `restore`: of the agents that changed since the last call, or of all."""
        changed = self._monitor.changed(everything=everything)
        return Snapshot(
            seal(_Common(self._monitor.dump(), self._topics, self.status_topic, self._sent)),
            {
                agent: None if watch is None else seal(_Agent(watch, self._announcer.dump(agent)))
                for agent, watch in changed.items()
            },
            {
                f"{agent}/{number}": page
                for agent, pages in self._monitor.pages(everything=everything).items()
                for number, page in pages.items()
            },
        )

    def restore(
        self,
        common: bytes,
        agents: Mapping[str, bytes | None],
        pages: Mapping[str, bytes | None] | None = None,
        *,
        missing: bool = False,
    ) -> Effects:
        """Take up the state of a snapshot, in a pipeline that has seen nothing; the configuration may have changed.

        States of formulas that are no longer exactly the same, or whose model or policies are others, are not taken
        over: the effects close their firing alarms as `removed` and clear their topics. Paths are kept where they fit
        the model; else the agent's path begins anew.

        Args:
            common: of the newest snapshot.
            agents: each agent's newest state; of forgotten ones None or nothing.
            pages: all there are; of those that went None or nothing.
            missing: alarms may have been told of since; their next revisions are higher than any that may have been.

        Returns:
            What is to be published, and notices on formulas of the former configuration alone.

        Raises:
            InputError: `bad_snapshot`; then nothing has changed here.
        """
        before = unseal(common, _Common)
        found = {agent: unseal(data, _Agent) for agent, data in agents.items() if data is not None}
        if any(agent != state.watch.session.agent for agent, state in found.items()):
            raise InputError("bad_snapshot", "an agent's state is that of another; start anew without it")
        if missing:
            found = {agent: replace(state, watch=_skipping(state.watch)) for agent, state in found.items()}
        watches = {agent: state.watch for agent, state in found.items()}
        notices = self._monitor.load(before.monitor, watches, _by_agent(pages or {}))
        self._sent = before.sent
        former = AlertPublisher(before.monitor.identity, before.topics.alerts, self._evidence_of)
        former.load({agent: state.told for agent, state in found.items()})
        publications = [former.alert(alert, [], before.sent) for alert in notices if isinstance(alert, Alert)]
        names, moved = {spec.name for spec in before.monitor.formulas}, before.topics.alerts != self._topics.alerts
        gone = names - self._monitor.kept(before.monitor)
        cleared = former.clear(names if moved else gone)
        for formula in gone:
            former.drop(formula)
        self._announcer.load({agent: state.told for agent, state in found.items()})
        if moved:
            publications += self._announcer.retained()
        publications += cleared  # last: what is retained is said again at the next connection, this is not
        if before.status_topic != self.status_topic:
            publications.append(Publication(before.status_topic, b""))
        return Effects(tuple(publications), notices=tuple(notices))

    def standing(self) -> Effects:
        """What new metrics and a new board must be shown to be up to date: last verdicts, blindness, alarms, alerts.

        All of it was told before: show it, but neither send nor count it.
        """
        alerts = (firing.alert for firing in self._announcer.alarms())
        return Effects(tuple(self._announcer.retained()), notices=(*self._monitor.current_state(), *alerts))

    def proofs(self) -> frozenset[str]:
        """Ids of the evidence of alarms that fire now."""
        return frozenset(firing.evidence for firing in self._announcer.alarms() if firing.evidence is not None)

    # ---- in ----

    def _observe(self, event: Message) -> list[Notice]:
        try:
            agent = self._agent_of(event.topic)
        except InputError as error:  # a name we do not repeat, so nobody's
            return [Received("", "rejected", error.reason, error.detail)]
        try:
            observation = decode(agent, event.payload, max_bytes=self._message_bytes)
        except InputError as error:
            return self._monitor.reject(agent, error)
        return self._monitor.observe(observation, event.now)

    def _lost(self, event: Lost) -> list[Notice]:
        try:
            agent = self._agent_of(event.topic)
        except InputError:
            return [Received("", "dropped")] * event.count
        notices = list(self._monitor.lost(agent, event.now, event.why))
        told = sum(isinstance(notice, Received) and notice.result == "dropped" for notice in notices)
        return [*[Received(agent, "dropped")] * (event.count - told), *notices]

    # ---- out ----

    def _connected(self, event: Connected) -> Effects:
        effects = self._publish(self._monitor.connected(event.up, event.now), event.now)
        if not event.up:
            return effects
        # A broker that was started anew may have forgotten what it retained.
        new = {publication.topic for publication in effects.publications}
        again = (said for said in self._announcer.retained(event.now.wall) if said.topic not in new)
        return replace(effects, publications=(*_repeated(self._status(event.now), *again), *effects.publications))

    def _heartbeat(self, now: Instant) -> Effects:
        return Effects(_repeated(self._status(now), *self._announcer.repeat(now.wall)))

    def _publish(self, notices: list[Notice], now: Instant) -> Effects:
        publications: list[Publication] = []
        evidence: list[EvidenceFile] = []
        for notice in notices:
            match notice:
                case Alert():
                    publications.append(self._announcer.alert(notice, evidence, now.wall))
                case Refreshed():
                    self._announcer.refresh(notice)
                case Forgotten():
                    publications += self._announcer.forget(notice.agent)
                case Blind():
                    self._announcer.see(notice)
                case _:
                    pass
        return Effects(tuple(publications), tuple(evidence), tuple(notices))

    def _status(self, now: Instant) -> Publication:
        message = StatusMessage(
            v=1,
            state="online",
            client_id=self._client_id,
            version=__version__,
            model=Named(self._identity.model_name, self._identity.model_sha256),
            policies=named_policies(self._identity),
            agents=len(self._monitor.agents()),
            firing=self._announcer.firing,
            blind=self._announcer.blind,
            sent=rfc3339(now.wall),
            sent_unix=now.wall,
        )
        return Publication(self.status_topic, as_json(plain_message(message)))


def _by_agent(pages: Mapping[str, bytes | None]) -> dict[str, dict[int, bytes]]:
    found: dict[str, dict[int, bytes]] = {}
    for key, page in pages.items():
        agent, _, number = key.rpartition("/")
        if page is not None:
            found.setdefault(agent, {})[int(number)] = page
    return found


def _skipping(watch: AgentMonitorState) -> AgentMonitorState:
    """The state of an agent in which each alarm that was told of goes on with a higher revision."""
    formulas = {
        name: replace(state, alarm=replace(state.alarm, revision=state.alarm.revision + SKIPPED))
        if state.alarm.revision
        else state
        for name, state in watch.formulas.items()
    }
    return replace(watch, formulas=formulas)


def _repeated(*publications: Publication) -> tuple[Publication, ...]:
    return tuple(replace(publication, repeats=True) for publication in publications)
