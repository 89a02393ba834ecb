"""The sidecar without its sockets, files and clocks: it turns events into effects.

`run` passes live events to the pipeline, `replay` passes recorded events. The same events give the same bytes. The
monitor gives verdicts and alarms; the pipeline decides what is published, repeated and cleared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Final, Literal, assert_never

import msgspec
from msgspec.structs import replace

from monitor._version import __version__
from monitor.alarm.message import Identity, Named, json_bytes, named_policies, rfc3339
from monitor.errors import EvidenceError, InputError
from monitor.runtime.agent_monitor import AgentMonitorState
from monitor.runtime.monitor import Monitor, MonitorState, Saved, Waiting
from monitor.sidecar.alert_publisher import AlertPublisher, Published
from monitor.sidecar.effects import Effects, EvidenceFile, Publication
from monitor.sidecar.events import Connected, Evaluate, Event, Heartbeat, Lost, Message
from monitor.stream import agent_of, seal, unseal
from monitor.types.alerts import Alert
from monitor.types.notices import Blind, Forgotten, Judged, Notice, Received, Refreshed, TakenOver
from monitor.types.stream_events import BlindReason, Instant

TOPICS: Final = 4096
"""Number of topics whose agent is cached."""

LISTED: Final = 100
"""Maximum number of agents whose blind formulas a status lists."""

SKIPPED: Final = 1_000_000
"""Number of revisions skipped after a loss of events. It is larger than the number of lost revisions, so that (id,
revision) stays unique."""


class Snapshot(msgspec.Struct, frozen=True):
    """The state of a pipeline, as bytes for the store.

    `common`: the state that belongs to no agent. `agents`: agent -> state, of agents that changed since the last
    snapshot; None for an agent that was forgotten since then. `pages`: `<agent>/<number>` -> data that never change
    after they are written; None if removed. Agents that are not in this snapshot have their state in an earlier
    snapshot.
    """

    common: bytes
    agents: Mapping[str, bytes | None]
    pages: Mapping[str, bytes | None] = msgspec.field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Topics:
    """Configured topics.

    `steps` has one `+`; `alerts` and `status` are without the levels that the pipeline appends.
    """

    steps: str
    alerts: str
    status: str


class StatusMessage(msgspec.Struct, frozen=True):
    """The JSON document on `cfmon/status/<client_id>`; after a lost connection the broker puts `OFFLINE` there."""

    v: int
    """Version of this schema: 1."""
    state: Literal["online", "offline"]
    """A message with `offline` has no other fields. It is the last will, and the last message before a clean stop."""
    client_id: str
    """The monitor's MQTT client id."""
    shard: str | None
    """`3/8`: the monitor watches only the agents of shard 3 of 8; `null`: it watches all agents."""
    version: str
    """Version of the software."""
    model: Named
    """The model in use."""
    policies: tuple[Named, ...]
    """The policies in use."""
    agents: int
    """Number of monitored agents."""
    firing: int
    """Number of firing alarms."""
    blind: int
    """Number of (formula, agent) pairs that are blind."""
    blind_formulas: dict[str, dict[str, BlindReason]]
    """Agent -> formula -> the reason why the formula is blind. Lists at most 100 agents, the first by name."""
    sent: str | None
    """When this message was sent, RFC 3339 in UTC."""
    sent_unix: float
    """When this message was sent, in seconds since the epoch."""


class CommonState(msgspec.Struct, frozen=True, array_like=True):
    """State of a pipeline without its agents. `sent`: time of the last event, in seconds since the epoch."""

    monitor: MonitorState
    topics: Topics
    status_topic: str
    sent: float


def topics_of(common: bytes) -> Topics:
    """Return the topics in force when a snapshot was taken. Raise InputError (`bad_snapshot`) if it is damaged."""
    return unseal(common, CommonState).topics


class StoredAgent(msgspec.Struct, frozen=True, array_like=True):
    """State of one agent."""

    watch: AgentMonitorState
    told: Published


class Pipeline:
    """A monitor whose input is topics and bytes, and whose output is topics, bytes and evidence.

    `evidence_of` makes the evidence of an alarm, or of a judged takeover. A pipeline is not thread-safe: process one
    event after the other.
    """

    def __init__(
        self,
        monitor: Monitor,
        identity: Identity,
        *,
        topics: Topics,
        client_id: str,
        message_bytes: int,
        shard: str | None = None,
        evidence_of: Callable[[Alert | TakenOver], EvidenceFile],
    ) -> None:
        self._monitor = monitor
        self._identity = identity
        self._topics = topics
        self._client_id = client_id
        self._shard = shard
        self._message_bytes = message_bytes
        self._evidence_of = evidence_of
        self._publisher = AlertPublisher(identity, topics.alerts, evidence_of)
        self._sent = 0.0
        self._agent_of = lru_cache(TOPICS)(partial(agent_of, pattern=topics.steps))

    @property
    def waiting(self) -> Waiting:
        """Steps that are not evaluated yet."""
        return self._monitor.waiting

    @property
    def monitor(self) -> Monitor:
        """The monitor."""
        return self._monitor

    @property
    def status_topic(self) -> str:
        """Topic of this sidecar's status and last will."""
        return f"{self._topics.status}/{self._client_id}"

    def agents(self) -> tuple[str, ...]:
        """Return the agents known now."""
        return self._monitor.agents()

    def topic_of(self, agent: str) -> str:
        """Return the topic of an agent's steps."""
        return self._topics.steps.replace("+", agent)

    def step(self, event: Event) -> Effects:
        """Process one event. No content of a message makes this method raise."""
        self._sent = event.now.wall
        match event:
            case Message():
                return self._publish(self._observe(event), event.now)
            case Evaluate():
                notices = self._monitor.evaluate(
                    event.now, latest_only=event.latest_only, steps=event.steps, live_since=event.live_since
                )
                return self._publish(notices, event.now)
            case Heartbeat():
                return self._heartbeat(event.now)
            case Connected():
                return self._connected(event)
            case Lost():
                return self._publish(self._lost(event), event.now)
            case _:
                assert_never(event)

    # ---- save and restore ----

    def snapshot(self, *, everything: bool = False) -> Snapshot:
        """Return the state after the last event: of the agents that changed since the last call, or of all agents."""
        saved = self._monitor.save(everything=everything)
        return Snapshot(
            seal(CommonState(saved.common, self._topics, self.status_topic, self._sent)),
            {
                agent: None if watch is None else seal(StoredAgent(watch, self._publisher.dump(agent)))
                for agent, watch in saved.agents.items()
            },
            {f"{agent}/{number}": page for agent, pages in saved.pages.items() for number, page in pages.items()},
        )

    def restore(
        self,
        common: bytes,
        agents: Mapping[str, bytes | None],
        pages: Mapping[str, bytes | None] | None = None,
        *,
        missing: bool = False,
    ) -> Effects:
        """Restore the state of a snapshot in a new pipeline. The configuration may have changed.

        If a formula, the model or a policy has changed, the states of the affected formulas are dropped. The effects
        then close the firing alarms of these formulas as `removed` and clear their topics. Paths are kept if they fit
        the model and if the model's numbers stand for the same states and actions; otherwise the paths begin anew.

        Args:
            common: `common` of the newest snapshot.
            agents: each agent's newest state; forgotten agents are None or absent.
            pages: all pages; removed pages are None or absent.
            missing: whether alerts may have been published since the snapshot. Alarms then skip revisions.

        Returns:
            The messages to publish, and notices about formulas that were dropped.

        Raises:
            InputError: `bad_snapshot`. The pipeline is then unchanged.
        """
        before = unseal(common, CommonState)
        found = {agent: unseal(data, StoredAgent) for agent, data in agents.items() if data is not None}
        if any(agent != state.watch.session.agent for agent, state in found.items()):
            raise InputError("bad_snapshot", "an agent's state is that of another; start anew without it")
        if missing:
            found = {agent: replace(state, watch=_skipping(state.watch)) for agent, state in found.items()}
        watches = {agent: state.watch for agent, state in found.items()}
        notices = self._monitor.load(Saved(before.monitor, watches, _by_agent(pages or {})))
        self._sent = before.sent
        former = AlertPublisher(before.monitor.identity, before.topics.alerts, self._evidence_of)
        former.load({agent: state.told for agent, state in found.items()})
        publications = [former.alert(alert, [], before.sent) for alert in notices if isinstance(alert, Alert)]
        names, moved = {spec.name for spec in before.monitor.formulas}, before.topics.alerts != self._topics.alerts
        gone = names - self._monitor.kept(before.monitor)
        cleared = former.clear(names if moved else gone)
        for formula in gone:
            former.drop(formula)
        self._publisher.load({agent: state.told for agent, state in found.items()})
        if moved:
            publications += self._publisher.retained()
        publications += cleared  # last, because only retained messages are repeated at the next connection
        if before.status_topic != self.status_topic:
            publications.append(Publication(before.status_topic, b""))
        return Effects(tuple(publications), notices=tuple(notices))

    def standing(self) -> Effects:
        """Return the present state, with which sinks start: newest verdicts, blindness, alarms, alerts.

        An earlier event already reported this state, so sinks must not send or count it again.
        """
        alerts = (firing.alert for firing in self._publisher.alarms())
        return Effects(tuple(self._publisher.retained()), notices=(*self._monitor.current_state(), *alerts))

    def proofs(self) -> frozenset[str]:
        """Return the ids of the evidence of firing alarms."""
        return frozenset(firing.evidence for firing in self._publisher.alarms() if firing.evidence is not None)

    # ---- in ----

    def _observe(self, event: Message) -> list[Notice]:
        try:
            agent = self._agent_of(event.topic)
        except InputError as error:  # the name is invalid, so it is not shown
            return [Received("", "rejected", error.reason, error.detail)]
        return self._monitor.receive(agent, event.payload, event.now, self._message_bytes)

    def _lost(self, event: Lost) -> list[Notice]:
        try:
            agent = self._agent_of(event.topic)
        except InputError:
            return [Received("", "dropped")] * event.count
        notices = list(self._monitor.lost(agent, event.now, event.why))
        counted = sum(isinstance(notice, Received) and notice.result == "dropped" for notice in notices)
        return [*[Received(agent, "dropped")] * (event.count - counted), *notices]

    # ---- out ----

    def _connected(self, event: Connected) -> Effects:
        effects = self._publish(self._monitor.connected(event.up, event.now), event.now)
        if not event.up:
            return effects
        # A restarted broker may have lost what it retained.
        new = {publication.topic for publication in effects.publications}
        again = (each for each in self._publisher.retained(event.now.wall) if each.topic not in new)
        return replace(effects, publications=(*_repeated(self._status(event.now), *again), *effects.publications))

    def _heartbeat(self, now: Instant) -> Effects:
        return Effects(_repeated(self._status(now), *self._publisher.repeat(now.wall)))

    def _publish(self, notices: list[Notice], now: Instant) -> Effects:
        publications: list[Publication] = []
        evidence: list[EvidenceFile] = []
        for place, notice in enumerate(notices):
            match notice:
                case Received() | Judged():
                    pass  # most notices; sinks show them
                case Alert():
                    publications.append(self._publisher.alert(notice, evidence, now.wall))
                case Refreshed():
                    self._publisher.refresh(notice)
                case Forgotten():
                    publications += self._publisher.forget(notice.agent)
                case Blind():
                    self._publisher.see(notice)
                case TakenOver():
                    notices[place] = self._proved(notice, evidence)
                case _:
                    pass
        return Effects(tuple(publications), tuple(evidence), tuple(notices))

    def _proved(self, notice: TakenOver, evidence: list[EvidenceFile]) -> TakenOver:
        """Return a judged takeover with the id of its evidence, if the evidence can be stored."""
        if notice.verdict is None:
            return notice
        try:
            file = self._evidence_of(notice)
        except EvidenceError:  # report it without evidence
            return notice
        evidence.append(file)
        return replace(notice, evidence=file.id)

    def _status(self, now: Instant) -> Publication:
        message = StatusMessage(
            v=1,
            state="online",
            client_id=self._client_id,
            shard=self._shard,
            version=__version__,
            model=Named(self._identity.model_name, self._identity.model_sha256),
            policies=named_policies(self._identity),
            agents=len(self._monitor.agents()),
            firing=self._publisher.firing,
            blind=self._publisher.blind,
            blind_formulas=self._publisher.blind_formulas(LISTED),
            sent=rfc3339(now.wall),
            sent_unix=now.wall,
        )
        return Publication(self.status_topic, json_bytes(message))


def _by_agent(pages: Mapping[str, bytes | None]) -> dict[str, dict[int, bytes | None]]:
    found: dict[str, dict[int, bytes | None]] = {}
    for key, page in pages.items():
        agent, _, number = key.rpartition("/")
        found.setdefault(agent, {})[int(number)] = page
    return found


def _skipping(watch: AgentMonitorState) -> AgentMonitorState:
    """Return an agent's state in which the revision of each published alarm is higher by `SKIPPED`."""
    formulas = {
        name: replace(state, alarm=replace(state.alarm, revision=state.alarm.revision + SKIPPED))
        if state.alarm.revision
        else state
        for name, state in watch.formulas.items()
    }
    return replace(watch, formulas=formulas)


def _repeated(*publications: Publication) -> tuple[Publication, ...]:
    return tuple(replace(publication, repeats=True) for publication in publications)
