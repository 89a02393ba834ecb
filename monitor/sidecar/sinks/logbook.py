"""What the log says of the work itself: what is watched, each alarm as it changes, what goes blind and sees again.

That an alarm fires on, with another outcome or value, is logged at debug: the alert and the page say it. Every entry is
a sentence, and has its parts as fields too, which a log in JSON shows under their names.
"""

from __future__ import annotations

import json
import logging
from collections import defaultdict
from collections.abc import Iterable
from typing import Any, Final

from monitor._version import __version__
from monitor.alarm.summary import BLIND_WORDS
from monitor.sidecar.config.load import Loaded
from monitor.sidecar.effects import Publication
from monitor.sidecar.log import Seldom
from monitor.statistics.deviation import NOTABLE
from monitor.types import Alert, Blind, BlindReason, Deviates, Instant, Notice

__all__ = ["ALARMS", "Logbook", "log_banner", "log_watched"]

ALARMS: Final = "monitor.alarms"
"""The logger of what happens to alarms."""
LOG: Final = logging.getLogger(ALARMS)
ABOUT: Final = logging.getLogger("monitor.service")
MOST_NAMED: Final = 3
"""Agents named in one entry on blindness; where more are concerned they are counted."""
TOLD: Final = ("agent", "state", "revision", "severity", "blind", "outcome", "value", "episode", "seq", "summary")
"""Fields of an alert that are fields of its entry."""
LEVELS: Final = {"firing": logging.WARNING}
"""Every other state of an alarm is information."""


def log_banner(loaded: Loaded, client_id: str) -> None:
    """Say at start who we are, what is watched, where steps come from and where alerts go; an entry for each."""
    config, topics = loaded.config, loaded.topics
    _say(f"counterfactual-monitor {__version__} starts as {client_id}", version=__version__, client_id=client_id)
    log_watched(loaded)
    broker = config.mqtt.broker.address
    status = f"{topics.status}/{client_id}"
    _say(
        f"steps from {topics.steps} at {broker}; alerts to {topics.alerts}/<agent>/<formula>, status to {status}",
        broker=broker,
        steps=topics.steps,
        alerts=topics.alerts,
        status=status,
    )
    if config.store.path is not None:
        _say(f"state and evidence are kept in {config.store.path.parent}", store=str(config.store.path))


def log_watched(loaded: Loaded) -> None:
    """Say what is watched, and by which model and policies."""
    identity, model = loaded.identity, loaded.model
    _say(
        f"model {identity.model_name}: {model.states:,} states, {model.actions:,} actions, sha256 "
        f"{identity.model_sha256[:12]}",
        model=identity.model_name,
        sha256=identity.model_sha256,
    )
    for name, sha256 in sorted(identity.policies.items()):
        _say(f"policy {name}: sha256 {sha256[:12]}", policy=name, sha256=sha256)
    for spec in loaded.formulas:
        alarm = spec.alarm
        text = " ".join(spec.text.split())
        _say(
            f"formula {spec.name}: {text} ({alarm.severity}; fires after {alarm.for_}, resolves after {alarm.keep})",
            formula=spec.name,
            text=text,
            severity=alarm.severity,
        )


def _say(message: str, **fields: object) -> None:
    ABOUT.info(message, extra={"fields": fields})


class Logbook:
    """Logs what happens to alarms and to sight, as it is published and told.

    `alerts`: the topic under which alerts are published.
    """

    def __init__(self, alerts: str) -> None:
        self._alerts = alerts
        self._seldom = Seldom(LOG)
        self._firing: set[str] = set()
        self._deviating: set[str] = set()

    def take(self, notices: Iterable[Notice], publications: Iterable[Publication], now: Instant) -> None:
        """Log what one event caused."""
        self._blindness([notice for notice in notices if isinstance(notice, Blind)], now)
        for notice in notices:
            if isinstance(notice, Deviates):
                self._deviation(notice, now)
        if any(isinstance(notice, Alert) for notice in notices):
            self.publish(publications)

    def publish(self, publications: Iterable[Publication]) -> None:
        """Log the alerts among these messages."""
        for publication in publications:
            if publication.payload and not publication.repeats and publication.topic.startswith(f"{self._alerts}/"):
                self._alert(json.loads(publication.payload))

    def _alert(self, alert: dict[str, Any]) -> None:
        state, name = alert["state"], alert["formula"]["name"]
        evidence = alert["evidence"]["id"] if alert["evidence"] else None
        again = state == "firing" and alert["id"] in self._firing
        (self._firing.add if state == "firing" else self._firing.discard)(alert["id"])
        level = logging.DEBUG if again else LEVELS.get(state, logging.INFO)
        fields = {"alarm": alert["id"], "formula": name, "evidence": evidence, **{key: alert[key] for key in TOLD}}
        proof = f" [evidence {evidence}]" if evidence and not again else ""
        what = "still firing" if again else state
        LOG.log(level, "ALARM %s: %s: %s%s", what, name, alert["summary"], proof, extra={"fields": fields})

    def _deviation(self, notice: Deviates, now: Instant) -> None:
        """When it becomes notable, and when there is none any more; what lies between says nothing new."""
        agent, share = notice.agent, notice.share
        fields = {"agent": agent, "off_policy_ratio": share}
        if share >= NOTABLE and agent not in self._deviating:
            self._deviating.add(agent)
            words = (
                "%s departs from its nominal policy: on %.0f %% of its last %d steps that would have acted otherwise"
            )
            said = agent, 100 * share, notice.steps
            self._seldom.say(logging.WARNING, ("deviates", agent), now, words, *said, fields=fields)
        elif share == 0.0 and agent in self._deviating:
            self._deviating.discard(agent)
            words = "%s follows its nominal policy again"
            self._seldom.say(logging.INFO, ("follows", agent), now, words, agent, fields=fields)

    def _blindness(self, notices: list[Blind], now: Instant) -> None:
        """One entry for each reason, with the agents it concerns; of one agent and reason one a minute."""
        groups: dict[BlindReason | None, dict[str, list[Blind]]] = defaultdict(lambda: defaultdict(list))
        for notice in notices:
            groups[notice.reason][notice.agent].append(notice)
        for reason, agents in groups.items():
            if len(agents) > MOST_NAMED:
                self._many(reason, agents, now)
                continue
            for agent, told in agents.items():
                self._one(reason, agent, told, now)

    def _one(self, reason: BlindReason | None, agent: str, told: list[Blind], now: Instant) -> None:
        names = [notice.formula for notice in told]
        fields: dict[str, object] = {"agent": agent, "formulas": names, "blind": reason}
        listed, kind = ", ".join(names), (reason, agent)
        if reason is None:
            self._seldom.say(logging.INFO, kind, now, "%s: answered again: %s", agent, listed, fields=fields)
            return
        why = told[0].detail or BLIND_WORDS[reason]
        words = "%s: blind (%s: %s): %s" if reason != "model_doubt" else "%s: in doubt (%s: %s): %s"
        fields["detail"] = why
        self._seldom.say(logging.WARNING, kind, now, words, agent, reason, why, listed, fields=fields)

    def _many(self, reason: BlindReason | None, agents: dict[str, list[Blind]], now: Instant) -> None:
        fields: dict[str, object] = {"agents": len(agents), "blind": reason}
        if reason is None:
            self._seldom.say(logging.INFO, reason, now, "%d agents are answered again", len(agents), fields=fields)
            return
        words = "%d agents are blind (%s: %s)" if reason != "model_doubt" else "%d agents are in doubt (%s: %s)"
        self._seldom.say(logging.WARNING, reason, now, words, len(agents), reason, BLIND_WORDS[reason], fields=fields)
