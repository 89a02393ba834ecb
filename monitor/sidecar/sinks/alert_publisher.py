"""What is published about alarms, and what therefore stands retained at the broker."""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Iterator, Mapping
from typing import Any

import msgspec

from monitor.alarm.message import Identity, alert_payload
from monitor.alarm.refresh import refreshed
from monitor.errors import EvidenceError
from monitor.sidecar.effects import EvidenceFile, Publication
from monitor.types import Alert, Blind, BlindReason, Refreshed

__all__ = ["AlertPublisher", "Told", "as_json"]


class _Firing(msgspec.Struct, frozen=True, array_like=True):
    """An alarm that fires now: as last told at `sent`, the evidence kept when it began, and its verdict since then."""

    alert: Alert
    evidence: str | None
    sent: float
    news: Refreshed | None = None

    @property
    def newest(self) -> Alert:
        """What is to be said of it now."""
        return self.alert if self.news is None else refreshed(self.alert, self.news)


class Told(msgspec.Struct, frozen=True, array_like=True):
    """What was told of one agent and stands, by formula: plain data.

    `closed`: the last word, as published, on an alarm that fired once and does not now. `blind`: why, where it is.
    """

    firing: dict[str, _Firing] = {}
    closed: dict[str, bytes] = {}
    blind: dict[str, BlindReason] = {}


class AlertPublisher:
    """Turns changes of alarms into publications, under `<alerts>/<agent>/<formula>`.

    `evidence_of` makes the file that proves an alarm.
    """

    def __init__(self, identity: Identity, alerts: str, evidence_of: Callable[[Alert], EvidenceFile]) -> None:
        self._identity = identity
        self._alerts = alerts
        self._evidence_of = evidence_of
        self._told: dict[str, Told] = {}

    @property
    def firing(self) -> int:
        """How many alarms fire now."""
        return sum(len(told.firing) for told in self._told.values())

    @property
    def blind(self) -> int:
        """How many formulas are blind for an agent now, each counted with each agent."""
        return sum(len(told.blind) for told in self._told.values())

    def alert(self, alert: Alert, evidence: list[EvidenceFile], sent: float) -> Publication:
        """Publish a change of an alarm. Its evidence is that of the verdict that made it fire, until it closes."""
        told = self._told.setdefault(alert.agent, Told())
        before = told.firing.pop(alert.formula, None)
        told.closed.pop(alert.formula, None)
        if alert.state == "firing":
            proof = before.evidence if before is not None else self._prove(alert, evidence)
            now = told.firing[alert.formula] = _Firing(alert, proof, sent)
            return self._publication(now, sent)
        publication = self._publication(_Firing(alert, before.evidence if before is not None else None, sent), sent)
        told.closed[alert.formula] = publication.payload
        return publication

    def refresh(self, news: Refreshed) -> None:
        """Note the newest verdict on an alarm that fires; the next heartbeat publishes it."""
        firing, formula = self._told[news.judged.agent].firing, news.judged.formula
        firing[formula] = msgspec.structs.replace(firing[formula], news=news)

    def see(self, notice: Blind) -> None:
        """Note which formulas are blind."""
        blind = self._told.setdefault(notice.agent, Told()).blind
        if notice.reason is None:
            blind.pop(notice.formula, None)
        else:
            blind[notice.formula] = notice.reason

    def forget(self, agent: str) -> list[Publication]:
        """Take back what is retained of an agent."""
        told = self._told.pop(agent, Told())
        return [self.cleared(agent, formula) for formula in (*told.firing, *told.closed)]

    def cleared(self, agent: str, formula: str) -> Publication:
        """Take back what is retained, if anything is."""
        return Publication(f"{self._alerts}/{agent}/{formula}", b"")

    def clear(self, formulas: Container[str]) -> list[Publication]:
        """Take back what is retained on these formulas; where nothing was said, nothing is taken back.

        One message for every agent and formula would be more than may wait for the broker, and the ones that matter
        would be lost among them.
        """
        return [
            self.cleared(agent, formula)
            for agent in sorted(self._told)
            for formula in (*self._told[agent].firing, *self._told[agent].closed)
            if formula in formulas
        ]

    def repeat(self, sent: float) -> list[Publication]:
        """What fires now, said again."""
        return [self._publication(firing, sent) for firing in self.alarms()]

    def retained(self, sent: float | None = None) -> Iterator[Publication]:
        """All that a broker should have retained; what fires as said again at `sent`, or under its last date (None)."""
        for agent in sorted(self._told):
            told = self._told[agent]
            for firing in told.firing.values():
                yield self._publication(firing, firing.sent if sent is None else sent)
            for formula, payload in told.closed.items():
                yield Publication(f"{self._alerts}/{agent}/{formula}", payload)

    def alarms(self) -> Iterator[_Firing]:
        """Every alarm that fires now."""
        return (firing for agent in sorted(self._told) for firing in self._told[agent].firing.values())

    # ---- kept and taken up again ----

    def dump(self, agent: str) -> Told:
        """What stands told of an agent; write it before the next event."""
        return self._told.get(agent, Told())

    def load(self, told: Mapping[str, Told]) -> None:
        """The inverse of `dump`, for all agents."""
        self._told = dict(told)

    def drop(self, formula: str) -> None:
        """A formula is not watched any more."""
        for told in self._told.values():
            for standing in (told.firing, told.closed, told.blind):
                standing.pop(formula, None)

    def _prove(self, alert: Alert, evidence: list[EvidenceFile]) -> str | None:
        try:
            file = self._evidence_of(alert)
        except EvidenceError:  # the alarm matters more than its proof; the alert says null
            return None
        evidence.append(file)
        return file.id

    def _publication(self, told: _Firing, sent: float) -> Publication:
        payload = alert_payload(told.newest, self._identity, sent=sent, evidence=told.evidence)
        return Publication(f"{self._alerts}/{told.alert.agent}/{told.alert.formula}", as_json(payload))


def as_json(payload: dict[str, Any]) -> bytes:
    """A document as it is published."""
    return json.dumps(payload, separators=(",", ":"), allow_nan=False, ensure_ascii=False).encode()
