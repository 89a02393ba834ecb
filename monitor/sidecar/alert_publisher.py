"""Make the messages about alarms, which the broker retains."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Container, Iterator, Mapping

import msgspec

from monitor.alarm.message import Identity, alert_payload
from monitor.alarm.refresh import refreshed
from monitor.errors import EvidenceError
from monitor.sidecar.effects import EvidenceFile, Publication
from monitor.types.alerts import Alert
from monitor.types.notices import Blind, Refreshed
from monitor.types.stream_events import BlindReason


class _Firing(msgspec.Struct, frozen=True, array_like=True):
    """A firing alarm.

    `alert`: the alert last published, at the time `sent`. `evidence`: id of the evidence of the first alert. `news`: a
    newer verdict, if there is one.
    """

    alert: Alert
    evidence: str | None
    sent: float
    news: Refreshed | None = None

    @property
    def newest(self) -> Alert:
        """The alert with the newest verdict."""
        return self.alert if self.news is None else refreshed(self.alert, self.news)


class Published(msgspec.Struct, frozen=True, array_like=True):
    """The published messages about one agent, by formula, as plain data.

    `closed`: the last message of a closed alarm. `blind`: the reason why a formula is blind.
    """

    firing: dict[str, _Firing] = {}
    closed: dict[str, bytes] = {}
    blind: dict[str, BlindReason] = {}


class AlertPublisher:
    """Turns changes of alarms into publications, under `<alerts>/<agent>/<formula>`.

    `evidence_of` makes the evidence of an alarm.
    """

    def __init__(self, identity: Identity, alerts: str, evidence_of: Callable[[Alert], EvidenceFile]) -> None:
        self._identity = identity
        self._alerts = alerts
        self._evidence_of = evidence_of
        self._published: dict[str, Published] = {}

    @property
    def firing(self) -> int:
        """Number of alarms that fire now."""
        return sum(len(each.firing) for each in self._published.values())

    @property
    def blind(self) -> int:
        """Number of (formula, agent) pairs that are blind."""
        return sum(len(each.blind) for each in self._published.values())

    def blind_formulas(self, most: int) -> dict[str, dict[str, BlindReason]]:
        """Return agent -> formula -> reason for the first `most` agents, by name, that have a blind formula."""
        agents = heapq.nsmallest(most, (agent for agent, each in self._published.items() if each.blind))
        return {agent: dict(sorted(self._published[agent].blind.items())) for agent in agents}

    def alert(self, alert: Alert, evidence: list[EvidenceFile], sent: float) -> Publication:
        """Return the message for a change of an alarm.

        All alerts of an alarm refer to the evidence of its first alert.
        """
        published = self._published.setdefault(alert.agent, Published())
        before = published.firing.pop(alert.formula, None)
        published.closed.pop(alert.formula, None)
        if alert.state == "firing":
            proof = before.evidence if before is not None else self._prove(alert, evidence)
            now = published.firing[alert.formula] = _Firing(alert, proof, sent)
            return self._publication(now, sent)
        publication = self._publication(_Firing(alert, before.evidence if before is not None else None, sent), sent)
        published.closed[alert.formula] = publication.payload
        return publication

    def refresh(self, news: Refreshed) -> None:
        """Record the newest verdict on a firing alarm. The next heartbeat publishes it."""
        firing, formula = self._published[news.judged.agent].firing, news.judged.formula
        firing[formula] = msgspec.structs.replace(firing[formula], news=news)

    def see(self, notice: Blind) -> None:
        """Record which formulas are blind."""
        blind = self._published.setdefault(notice.agent, Published()).blind
        if notice.reason is None:
            blind.pop(notice.formula, None)
        else:
            blind[notice.formula] = notice.reason

    def forget(self, agent: str) -> list[Publication]:
        """Return messages that clear the retained messages about an agent."""
        published = self._published.pop(agent, Published())
        return [self.cleared(agent, formula) for formula in (*published.firing, *published.closed)]

    def cleared(self, agent: str, formula: str) -> Publication:
        """Return the message that clears a topic."""
        return Publication(f"{self._alerts}/{agent}/{formula}", b"")

    def clear(self, formulas: Container[str]) -> list[Publication]:
        """Return messages that clear the retained messages about these formulas.

        Only topics with an alert are cleared, because a message for every agent and formula could overflow the outbox.
        """
        return [
            self.cleared(agent, formula)
            for agent in sorted(self._published)
            for formula in (*self._published[agent].firing, *self._published[agent].closed)
            if formula in formulas
        ]

    def repeat(self, sent: float) -> list[Publication]:
        """Return the alerts of all firing alarms, to be published again."""
        return [self._publication(firing, sent) for firing in self.alarms()]

    def retained(self, sent: float | None = None) -> Iterator[Publication]:
        """Yield all messages that a broker should retain.

        The alerts of firing alarms get the time `sent`. If `sent` is None, they keep the time at which they were last
        sent.
        """
        for agent in sorted(self._published):
            published = self._published[agent]
            for firing in published.firing.values():
                yield self._publication(firing, firing.sent if sent is None else sent)
            for formula, payload in published.closed.items():
                yield Publication(f"{self._alerts}/{agent}/{formula}", payload)

    def alarms(self) -> Iterator[_Firing]:
        """Return every alarm that fires now."""
        return (firing for agent in sorted(self._published) for firing in self._published[agent].firing.values())

    # ---- save and restore ----

    def dump(self, agent: str) -> Published:
        """Return the published messages about an agent. Serialize them before the next event."""
        return self._published.get(agent, Published())

    def load(self, published: Mapping[str, Published]) -> None:
        """Restore what `dump` returned, for all agents."""
        self._published = dict(published)

    def drop(self, formula: str) -> None:
        """Forget a formula that is not monitored any more."""
        for published in self._published.values():
            for by_formula in (published.firing, published.closed, published.blind):
                by_formula.pop(formula, None)

    def _prove(self, alert: Alert, evidence: list[EvidenceFile]) -> str | None:
        try:
            file = self._evidence_of(alert)
        except EvidenceError:  # publish the alarm with null in place of the evidence
            return None
        evidence.append(file)
        return file.id

    def _publication(self, firing: _Firing, sent: float) -> Publication:
        payload = alert_payload(firing.newest, self._identity, sent=sent, evidence=firing.evidence)
        return Publication(f"{self._alerts}/{firing.alert.agent}/{firing.alert.formula}", payload)
