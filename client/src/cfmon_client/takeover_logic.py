"""Decide which policy acts: the state machine of takeovers, and what is known of the monitor. No clock and no I/O.

Times are seconds on any monotonic clock.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from cfmon_client.alert import Alert
from cfmon_client.shard import is_elsewhere
from cfmon_client.takeover_rules import Rules

__all__ = ["NOBODY", "Cause", "Current", "Held", "Known", "Situation", "situation", "step"]

Cause = Literal["alarm", "blind", "silent"]

_UNRELIABLE_BUT_KNOWN: Final = "model_doubt"
"""The only reason for blindness with which alerts still say whether handing over helps."""


@dataclass(frozen=True)
class Known:
    """What is known from the monitor's messages.

    A *sign of life* is a status that the monitor sends now. A message that the broker retains is no sign of life,
    because it may be old, and its monitor may have stopped.

    Attributes:
        heard: Time of the monitor's last sign of life; at the beginning, the time at which the guard started.
        alerts: Formula -> the newest alert of its newest alarm, also if this alarm has closed.
        sha256: Policy -> SHA-256 of its file in the monitor's configuration.
        blind: Formulas that are blind for the agent, by the newest status. None if they are unknown, because so many
            formulas are blind that the status cannot list all.
        sent: Topic of a status -> time at which its newest status was sent, on the clock of its monitor.
        signs: Number of signs of life so far.
    """

    heard: float
    alerts: Mapping[str, Alert] = field(default_factory=dict)
    sha256: Mapping[str, str] = field(default_factory=dict)
    blind: frozenset[str] | None = frozenset()
    sent: Mapping[str, float] = field(default_factory=dict)
    signs: int = 0

    def with_alert(self, alert: Alert, *, retained: bool = False) -> Known:
        """Return what is known after an alert about the agent.

        An earlier revision of the known alarm changes nothing. A retained alert that was sent before the known alert
        changes nothing either, because a killed broker may have saved only earlier alerts.
        """
        known = self.alerts.get(alert.formula.name)
        if known is not None and (_is_earlier(alert, known) or (retained and _sent(alert) < _sent(known))):
            return self
        alerts = {**self.alerts, alert.formula.name: alert}
        return replace(self, alerts=alerts, sha256={**self.sha256, **_sha256s(alert.document)})

    def with_status(
        self, document: Mapping[str, Any], agent: str, now: float, *, topic: str = "", retained: bool = False
    ) -> Known:
        """Return what is known after a status. Only a status that the monitor sends now is a sign of life.

        A status is no sign of life if it is not `online`, if it comes from the monitor of another shard, or if the
        broker retained it. It is also no sign of life if its time of sending is missing, or is the same as that of the
        last status. This rule is for bridges between brokers, which repeat retained messages as if they were new. Times
        of sending are only compared with each other, so the monitor's clock need not agree with the agent's clock.
        """
        if document.get("state") != "online" or is_elsewhere(document, agent):
            return self
        known = replace(self, sha256={**self.sha256, **_sha256s(document)})
        sent = document.get("sent_unix")
        if not isinstance(sent, int | float) or isinstance(sent, bool) or sent == self.sent.get(topic):
            return known
        known = replace(known, sent={**self.sent, topic: sent})
        if retained:
            return known
        return replace(known, heard=now, signs=self.signs + 1, blind=_blind_formulas(document, agent))


@dataclass(frozen=True)
class Current:
    """The agent's current episode, which decides which alarms count.

    An alarm of the last episode may be received after this episode has begun, because the monitor is a little behind.
    Only the name of the alarm's episode shows that the alarm is late. The alarm's time does not show it, because it
    comes from another clock.

    Attributes:
        name: Name of the episode; alarms of other episodes do not count. None: the name is unknown, so alarms of all
            episodes count.
        over: Ids of the alarms that were known when this episode began; they do not count.
        since: Time at which this episode began.
    """

    name: str | int | None = None
    over: frozenset[str] = frozenset()
    since: float = -math.inf

    def has(self, alert: Alert) -> bool:
        """Return whether an alert is about this episode."""
        return self.name in {None, alert.episode} and alert.id not in self.over


@dataclass(frozen=True)
class Situation:
    """The facts that decide which policy acts in the next step.

    Attributes:
        wanted: The policy that an alert wants; None: no alert wants a takeover.
        firing: True if an alarm to which the rules apply fires, whether handing over helps or not.
        blind: True if such an alarm, or another formula to which the rules apply, is blind.
        silent: True if the last sign of life of the monitor is older than `silent_after`.
    """

    wanted: str | None = None
    firing: bool = False
    blind: bool = False
    silent: bool = False


@dataclass(frozen=True)
class Held:
    """The policy that acts. `policy`: the policy that has taken over; None: the agent's own policy acts.

    `steps`: number of steps that this policy has taken since the takeover. `cause`: why it took over.
    """

    policy: str | None = None
    steps: int = 0
    cause: Cause | None = None


NOBODY: Final = Held()
"""The agent's own policy acts."""


def situation(rules: Rules, known: Known, current: Current, policies: Collection[str], now: float) -> Situation:
    """Return the facts that decide which policy acts next. `policies`: names of the policies that can take over."""
    alerts = [
        alert
        for _, alert in sorted(known.alerts.items())
        if alert.firing and current.has(alert) and _concerns(rules, alert)
    ]
    wanted = [alert.handover.policy for alert in alerts if alert.handover is not None and _wants(rules, alert)]
    return Situation(
        wanted=next((policy for policy in wanted if policy in policies), None),
        firing=bool(alerts),
        blind=_blind(rules, known) or any(alert.blind not in {None, _UNRELIABLE_BUT_KNOWN} for alert in alerts),
        silent=now - known.heard > rules.silent_after,
    )


def step(rules: Rules, held: Held, now: Situation, fallback: str) -> Held:
    """Return which policy acts in the next step. `fallback`: policy that takes over if the monitor is blind or silent.

    While the monitor is silent, or an alarm is blind, no policy hands back, and a policy takes over only if the rules
    say so. A takeover keeps its policy until the takeover is over.
    """
    if now.silent:
        return _without_sight(held, rules.when_silent == "fallback", fallback, "silent")
    if now.wanted is not None:
        return _taken(held, now.wanted, "alarm")
    if now.blind:
        return _without_sight(held, rules.when_blind == "fallback", fallback, "blind")
    over = held.steps >= rules.hold and rules.back == "resolved" and not now.firing
    if held.policy is None or over:
        return NOBODY
    return replace(held, steps=held.steps + 1)


def _without_sight(held: Held, hand_over: bool, fallback: str, cause: Cause) -> Held:  # noqa: FBT001 - a rule
    if held.policy is None and not hand_over:
        return NOBODY
    return _taken(held, fallback, cause)


def _taken(held: Held, policy: str, cause: Cause) -> Held:
    """Return the takeover that continues, or a new takeover if the agent's own policy acts."""
    if held.policy is not None:
        return replace(held, steps=held.steps + 1)
    return Held(policy, 1, cause)


def _is_earlier(alert: Alert, known: Alert) -> bool:
    return alert.id == known.id and alert.revision < known.revision


def _sent(alert: Alert) -> float:
    return -math.inf if alert.sent_unix is None else alert.sent_unix


def _blind(rules: Rules, known: Known) -> bool:
    """Return whether a formula to which the rules apply is, or may be, blind according to the newest status."""
    if known.blind is None:
        return True
    return any(rules.formulas is None or formula in rules.formulas for formula in known.blind)


def _concerns(rules: Rules, alert: Alert) -> bool:
    return alert.severity in rules.severity and (rules.formulas is None or alert.formula.name in rules.formulas)


def _wants(rules: Rules, alert: Alert) -> bool:
    """Return whether the rules want a takeover for this alert, which must have a `handover`."""
    assert alert.handover is not None
    helps = alert.handover.helps_now is True or not rules.only_if_helps
    return helps and (alert.robust is True or not rules.only_if_robust)


def _sha256s(document: Mapping[str, Any]) -> dict[str, str]:
    """Return policy -> SHA-256 for the policies that an alert or a status lists."""
    listed = document.get("policies")
    found = {}
    for each in listed if isinstance(listed, list) else ():
        if isinstance(each, dict) and isinstance(each.get("name"), str) and isinstance(each.get("sha256"), str):
            found[each["name"]] = each["sha256"]
    return found


def _blind_formulas(document: Mapping[str, Any], agent: str) -> frozenset[str] | None:
    """Return the formulas that a status lists as blind for an agent; None if a list that is cut off lacks the agent."""
    listed, count = document.get("blind_formulas"), document.get("blind")
    if not isinstance(listed, dict):
        return frozenset()
    own = listed.get(agent)
    if isinstance(own, dict):
        return frozenset(formula for formula, reason in own.items() if reason != _UNRELIABLE_BUT_KNOWN)
    complete = not isinstance(count, int) or count <= sum(
        len(each) for each in listed.values() if isinstance(each, dict)
    )
    return frozenset() if complete else None
