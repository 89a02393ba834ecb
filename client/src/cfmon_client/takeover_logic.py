"""Who acts: what is known of the monitor, and the state machine of a takeover. No clock and no I/O.

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
"""The one reason of blindness with which the monitor still says whether handing over helps."""


@dataclass(frozen=True)
class Known:
    """What the monitor has said.

    What a broker retains was said at some time in the past, by a monitor that may be gone. It is no sign of life.

    Attributes:
        heard: Time of its last sign of life; at the beginning, the time at which listening began.
        alerts: Formula -> the newest alert of its newest alarm, closed ones included.
        sha256: Policy -> SHA-256 of its file, as the monitor has it.
        blind: Formulas that are blind for the agent, by the newest status; None: the status does not list the agent,
            because too many are blind.
        sent: Topic of a status -> when its newest one was sent, on that monitor's clock.
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

        An earlier revision of an alarm changes nothing, nor does a retained alert that was sent before the known one:
        a broker that was killed may retain what it had saved before.
        """
        known = self.alerts.get(alert.formula.name)
        if known is not None and (_is_earlier(alert, known) or (retained and _sent(alert) < _sent(known))):
            return self
        alerts = {**self.alerts, alert.formula.name: alert}
        return replace(self, alerts=alerts, sha256={**self.sha256, **_sha256s(alert.document)})

    def with_status(
        self, document: Mapping[str, Any], agent: str, now: float, *, topic: str = "", retained: bool = False
    ) -> Known:
        """Return what is known after a status; only one that the monitor sends now is a sign of life.

        No sign of life are: `offline`; the status of another shard's monitor; one that the broker retained; and one
        that was sent when the last one was, because a bridge between brokers repeats what it retains as if it were new.
        Times of sending are compared with each other only, so the monitor's clock need not agree with ours.
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
    """The agent's episode: which alarms are about it.

    An alarm of the last episode may come after the beginning of this one, because the monitor is a little behind. Only
    its episode's name tells it apart: a time of its own would have to be compared with that of another clock.

    Attributes:
        name: Alarms of an episode of another name do not count. None: not known, so alarms of any do.
        over: Ids of alarms that were known when this episode began.
        since: Time at which it began.
    """

    name: str | int | None = None
    over: frozenset[str] = frozenset()
    since: float = -math.inf

    def has(self, alert: Alert) -> bool:
        """Return whether an alert is about this episode."""
        return self.name in {None, alert.episode} and alert.id not in self.over


@dataclass(frozen=True)
class Situation:
    """What matters for the next step.

    Attributes:
        wanted: The policy that an alert wants; None: no alert wants a takeover.
        firing: An alarm that the rules are about fires, whether handing over helps or not.
        blind: One of these alarms, or another formula that the rules are about, is blind.
        silent: The monitor gives no sign of life.
    """

    wanted: str | None = None
    firing: bool = False
    blind: bool = False
    silent: bool = False


@dataclass(frozen=True)
class Held:
    """Who acts. `policy`: what was handed over to, None: the agent's own; `steps`: taken by it so far, and why."""

    policy: str | None = None
    steps: int = 0
    cause: Cause | None = None


NOBODY: Final = Held()
"""The agent's own policy acts."""


def situation(rules: Rules, known: Known, current: Current, policies: Collection[str], now: float) -> Situation:
    """Return what matters for the next step. `policies`: those that can take over."""
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
    """Return who acts in the next step. `fallback`: what to hand over to while the monitor is blind or silent.

    What cannot be known changes nothing, unless the rules say so: while the monitor is silent, or an alarm is blind,
    nobody hands back. A takeover keeps its policy until it is over.
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
    """Return the takeover that goes on, or a new one."""
    if held.policy is not None:
        return replace(held, steps=held.steps + 1)
    return Held(policy, 1, cause)


def _is_earlier(alert: Alert, known: Alert) -> bool:
    return alert.id == known.id and alert.revision < known.revision


def _sent(alert: Alert) -> float:
    return -math.inf if alert.sent_unix is None else alert.sent_unix


def _blind(rules: Rules, known: Known) -> bool:
    """Return whether a formula that the rules are about is blind by the newest status, or may be."""
    if known.blind is None:
        return True
    return any(rules.formulas is None or formula in rules.formulas for formula in known.blind)


def _concerns(rules: Rules, alert: Alert) -> bool:
    return alert.severity in rules.severity and (rules.formulas is None or alert.formula.name in rules.formulas)


def _wants(rules: Rules, alert: Alert) -> bool:
    """Return whether the rules want a takeover for this alert, if there is something to hand over to."""
    assert alert.handover is not None
    helps = alert.handover.helps_now is True or not rules.only_if_helps
    return helps and (alert.robust is True or not rules.only_if_robust)


def _sha256s(document: Mapping[str, Any]) -> dict[str, str]:
    """Return the policies in an alert or a status."""
    listed = document.get("policies")
    found = {}
    for each in listed if isinstance(listed, list) else ():
        if isinstance(each, dict) and isinstance(each.get("name"), str) and isinstance(each.get("sha256"), str):
            found[each["name"]] = each["sha256"]
    return found


def _blind_formulas(document: Mapping[str, Any], agent: str) -> frozenset[str] | None:
    """Return the formulas that a status lists as blind for an agent; None if its list is too short to have it."""
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
