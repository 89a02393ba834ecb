"""From events to what goes out: the sidecar without its sockets, files and clocks.

`run` feeds it what happens, `replay` what was recorded; the same events give the same bytes. It decides nothing about
safety: the monitor does. It decides what is published, when it is repeated, and when it is taken back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Final, assert_never

import msgspec
from msgspec.structs import replace

from monitor._version import __version__
from monitor.alarm.message import Identity
from monitor.errors import InputError
from monitor.flow import Monitor, MonitorState
from monitor.sidecar.announcer import Announcer, Told, as_json
from monitor.sidecar.effects import Effects, EvidenceFile, Publication
from monitor.sidecar.events import Connected, Evaluate, Event, Heartbeat, Lost, Message
from monitor.stream import agent_of, decode, seal, unseal
from monitor.types import Alert, Blind, Forgotten, Instant, Notice, Received
from monitor.watch import WatchState

__all__ = ["OFFLINE", "Effects", "EvidenceFile", "Pipeline", "Publication", "Snapshot", "Topics", "topics_of"]

TOPICS: Final = 4096
"""Topics whose agent is remembered; of a topic that names none nothing is."""

OFFLINE: Final = b'{"state":"offline"}'
"""The last will, and the last word of a clean end."""


class Snapshot(msgspec.Struct, frozen=True):
    """All that a pipeline's future depends on, as bytes that may be kept.

    `common`: what there is once. `agents`: those that changed since the last snapshot; None: forgotten since then. Put
    over what earlier snapshots said of other agents it is complete.
    """

    common: bytes
    agents: Mapping[str, bytes | None]


@dataclass(frozen=True, slots=True)
class Topics:
    """Where things are: `steps` with one `+`, `alerts` and `status` without the levels that are added."""

    steps: str
    alerts: str
    status: str


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

    watch: WatchState
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
        self._announcer = Announcer(identity, topics.alerts, evidence_of)
        self._sent = 0.0
        self._agent_of = lru_cache(TOPICS)(partial(agent_of, pattern=topics.steps))

    @property
    def status_topic(self) -> str:
        """Where this sidecar says that it is there; also the topic of its last will."""
        return f"{self._topics.status}/{self._client_id}"

    def step(self, event: Event) -> Effects:
        """Take one event over; never raises for anything a message may hold."""
        self._sent = event.now.wall
        match event:
            case Message():
                return self._publish(self._observe(event), event.now)
            case Evaluate():
                told = self._monitor.evaluate(event.now, latest_only=event.latest_only, agents=event.agents)
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
        )

    def restore(self, common: bytes, agents: Mapping[str, bytes | None]) -> Effects:
        """Take up the state of a snapshot, in a pipeline that has seen nothing; the configuration may have changed.

        States of formulas that are no longer exactly the same, or whose model or policies are others, are not taken
        over: the effects close their firing alarms as `removed` and clear their topics. Paths are kept where they fit
        the model; else the agent's path begins anew.

        Args:
            common: of the newest snapshot.
            agents: each agent's newest state; of forgotten ones None or nothing.

        Returns:
            What is to be published, and notices on formulas of the former configuration alone.

        Raises:
            InputError: `bad_snapshot`; then nothing has changed here.
        """
        before = unseal(common, _Common)
        found = {agent: unseal(data, _Agent) for agent, data in agents.items() if data is not None}
        if any(agent != state.watch.session.agent for agent, state in found.items()):
            raise InputError("bad_snapshot", "an agent's state is that of another; start anew without it")
        notices = self._monitor.load(before.monitor, {agent: state.watch for agent, state in found.items()})
        self._sent = before.sent
        former = Announcer(before.monitor.identity, before.topics.alerts, self._evidence_of)
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
        return Effects(tuple(self._announcer.retained()), notices=(*self._monitor.standing(), *alerts))

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
        notices = list(self._monitor.lost(agent, event.now))
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
                case Forgotten():
                    publications += self._announcer.forget(notice.agent)
                case Blind():
                    self._announcer.see(notice)
                case _:
                    pass
        return Effects(tuple(publications), tuple(evidence), tuple(notices))

    def _status(self, now: Instant) -> Publication:
        payload = {
            "v": 1,
            "state": "online",
            "client_id": self._client_id,
            "version": __version__,
            "model": {"name": self._identity.model_name, "sha256": self._identity.model_sha256},
            "policies": [{"name": name, "sha256": sha} for name, sha in sorted(self._identity.policies.items())],
            "agents": len(self._monitor.agents()),
            "firing": self._announcer.firing,
            "blind": self._announcer.blind,
            "sent": now.wall,
        }
        return Publication(self.status_topic, as_json(payload))


def _repeated(*publications: Publication) -> tuple[Publication, ...]:
    return tuple(replace(publication, repeats=True) for publication in publications)
