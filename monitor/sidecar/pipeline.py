"""From events to what goes out: the sidecar without its sockets, files and clocks.

`run` feeds it what happens, `replay` what was recorded; the same events give the same bytes. It decides nothing about
safety: the monitor does. It decides what is published, when it is repeated, and when it is taken back.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Final, assert_never

import msgspec
from msgspec.structs import replace

from monitor._version import __version__
from monitor.alarm.message import Identity, alert_payload
from monitor.errors import EvidenceError, InputError
from monitor.flow import Monitor
from monitor.sidecar.events import Connected, Evaluate, Event, Heartbeat, Lost, Message
from monitor.stream.decode import agent_of, decode
from monitor.types import Alert, Blind, Forgotten, Instant, Notice, Received

__all__ = ["OFFLINE", "Effects", "EvidenceFile", "Pipeline", "Publication", "Snapshot", "Topics"]

TOPICS: Final = 4096
"""Topics whose agent is remembered; of a topic that names none nothing is."""

OFFLINE: Final = b'{"state":"offline"}'
"""The last will, and the last word of a clean end."""


class Publication(msgspec.Struct, frozen=True):
    """A message to send. An empty retained payload takes back what was retained on the topic.

    `repeats`: it says nothing new, so there is no use in sending it late.
    """

    topic: str
    payload: bytes
    qos: int = 1
    retain: bool = True
    repeats: bool = False


class EvidenceFile(msgspec.Struct, frozen=True):
    """The evidence of one alarm, to be kept before the alarm is published. `id` is also its name on disk."""

    id: str
    content: bytes


class Effects(msgspec.Struct, frozen=True):
    """What one event caused: evidence to keep first, then what to publish, and notices for metrics and status page."""

    publications: tuple[Publication, ...] = ()
    evidence: tuple[EvidenceFile, ...] = ()
    notices: tuple[Notice, ...] = ()


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


@dataclass(frozen=True, slots=True)
class _Standing:
    """An alarm that fires now, with the evidence kept when it began."""

    alert: Alert
    evidence: str | None


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
        self._standing: dict[tuple[str, str], _Standing] = {}
        self._retained: dict[str, dict[str, bytes]] = {}
        self._blind: set[tuple[str, str]] = set()
        self._told: dict[str, set[str]] = {}
        """agent -> formulas that ever fired or were blind for it"""
        self._agent_of = lru_cache(TOPICS)(partial(agent_of, pattern=topics.steps))

    @property
    def status_topic(self) -> str:
        """Where this sidecar says that it is there; also the topic of its last will."""
        return f"{self._topics.status}/{self._client_id}"

    def step(self, event: Event) -> Effects:
        """Take one event over; never raises for anything a message may hold."""
        match event:
            case Message():
                return self._publish(self._observe(event), event.now)
            case Evaluate():
                return self._publish(self._monitor.evaluate(event.now, latest_only=event.latest_only), event.now)
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
        raise NotImplementedError

    def restore(self, common: bytes, agents: Mapping[str, bytes | None]) -> Effects:
        """Take up the state of a snapshot, in a pipeline that has seen nothing; the configuration may have changed.

        States of formulas that are no longer exactly the same, or whose model or policies are others, are not taken
        over: the effects close their firing alarms as `removed` and clear their topics. Paths are kept where they fit
        the model; else the agent's path begins anew.

        Args:
            common: of the newest snapshot.
            agents: each agent's newest state; of forgotten ones None or nothing.

        Raises:
            InputError: `bad_snapshot`; then nothing has changed here.
        """
        raise NotImplementedError

    def standing(self) -> Effects:
        """What new metrics and a new board must be shown to be up to date: last verdicts, blindness, alarms, alerts.

        All of it was told before: show it, but neither send nor count it.
        """
        raise NotImplementedError

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
        again = [
            Publication(topic, payload) for retained in self._retained.values() for topic, payload in retained.items()
        ]  # a broker that was started anew may have forgotten what it retained
        return replace(effects, publications=(self._status(event.now), *again))

    def _heartbeat(self, now: Instant) -> Effects:
        alerts = [self._alert(standing.alert, standing.evidence, now) for standing in self._standing.values()]
        return Effects(publications=tuple(replace(again, repeats=True) for again in (self._status(now), *alerts)))

    def _publish(self, notices: list[Notice], now: Instant) -> Effects:
        publications: list[Publication] = []
        evidence: list[EvidenceFile] = []
        for notice in notices:
            match notice:
                case Alert():
                    publications += self._tell(notice, evidence, now)
                case Forgotten():
                    publications += self._forget(notice.agent)
                case Blind():
                    self._told.setdefault(notice.agent, set()).add(notice.formula)
                    (self._blind.discard if notice.reason is None else self._blind.add)((notice.agent, notice.formula))
                case _:
                    pass
        return Effects(tuple(publications), tuple(evidence), tuple(notices))

    def _tell(self, alert: Alert, evidence: list[EvidenceFile], now: Instant) -> list[Publication]:
        """Publish a change of an alarm. Its evidence is that of the verdict that made it fire, until it closes."""
        key = (alert.agent, alert.formula)
        if alert.state == "firing":
            before = self._standing.get(key)
            proof = before.evidence if before is not None else self._prove(alert, evidence)
            self._standing[key] = _Standing(alert, proof)
            self._told.setdefault(alert.agent, set()).add(alert.formula)
        else:
            closed = self._standing.pop(key, None)
            proof = closed.evidence if closed is not None else None
        publication = self._alert(alert, proof, now)
        if alert.state == "removed":
            self._retained.get(alert.agent, {}).pop(publication.topic, None)
            return [publication, Publication(publication.topic, b"")]
        return [publication]

    def _prove(self, alert: Alert, evidence: list[EvidenceFile]) -> str | None:
        try:
            file = self._evidence_of(alert)
        except EvidenceError:  # the alarm matters more than its proof; the alert says null
            return None
        evidence.append(file)
        return file.id

    def _alert(self, alert: Alert, evidence: str | None, now: Instant) -> Publication:
        topic = f"{self._topics.alerts}/{alert.agent}/{alert.formula}"
        payload = _json(alert_payload(alert, self._identity, sent=now.wall, evidence=evidence))
        self._retained.setdefault(alert.agent, {})[topic] = payload
        return Publication(topic, payload)

    def _forget(self, agent: str) -> list[Publication]:
        for formula in self._told.pop(agent, ()):
            self._standing.pop((agent, formula), None)
            self._blind.discard((agent, formula))
        return [Publication(topic, b"") for topic in self._retained.pop(agent, {})]

    def _status(self, now: Instant) -> Publication:
        payload = {
            "v": 1,
            "state": "online",
            "client_id": self._client_id,
            "version": __version__,
            "model": {"name": self._identity.model_name, "sha256": self._identity.model_sha256},
            "policies": [{"name": name, "sha256": sha} for name, sha in sorted(self._identity.policies.items())],
            "agents": len(self._monitor.agents()),
            "firing": len(self._standing),
            "blind": len(self._blind),
            "sent": now.wall,
        }
        return Publication(self.status_topic, _json(payload))


def _json(payload: dict[str, Any]) -> bytes:
    return json.dumps(payload, separators=(",", ":"), allow_nan=False, ensure_ascii=False).encode()
