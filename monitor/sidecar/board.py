"""What the status page and the API show: the latest of everything, for each agent and formula."""

from __future__ import annotations

import json
import math
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from monitor.alarm.summary import BLIND_WORDS
from monitor.sidecar.metrics import UNREAD, outcome_of, shown
from monitor.sidecar.pipeline import Effects
from monitor.types import (
    AlarmMoved,
    Alert,
    Blind,
    BlindReason,
    Ended,
    Episode,
    Forgotten,
    FormulaSpec,
    Instant,
    Judged,
    Notice,
    Received,
    Verdict,
)

__all__ = ["HISTORY", "Board"]

HISTORY = 60
"""Values remembered of each formula and agent, for a curve."""
UNKNOWN = (None, None)
MOST_RECENT = 10
"""Alarms shown that are over."""


@dataclass(slots=True)
class _Row:
    """The latest of one formula for one agent."""

    judged: Judged | None = None
    blind: Blind | None = None
    alarm: str = "clear"
    alert: dict[str, Any] | None = None
    history: deque[tuple[float | None, float | None]] = field(default_factory=lambda: deque(maxlen=HISTORY))


@dataclass(slots=True)
class _Agent:
    """The latest of one agent. `lag`: seconds its last message was under way, None if it told no time."""

    last_message: float
    lag: float | None = None
    episode: Episode | None = None
    rows: dict[str, _Row] = field(default_factory=dict)


class Board:
    """A sink for effects on the loop's thread, a source of plain data on the server's; a lock stands between.

    `alerts`: the topic under which alerts are published, by agent and formula.
    """

    def __init__(self, formulas: Sequence[FormulaSpec], alerts: str) -> None:
        self._lock = threading.Lock()
        self._formulas = tuple(formulas)
        self._alerts = alerts
        self._agents: dict[str, _Agent] = {}

    def take(self, effects: Effects, now: Instant) -> None:
        """Note what happened."""
        with self._lock:
            for notice in effects.notices:
                self._take(notice, now)
            for publication in effects.publications:
                self._keep_alert(publication.topic, publication.payload)

    def adopt(self, formulas: Sequence[FormulaSpec]) -> None:
        """Other formulas are watched from now on; take what says where they stand."""
        with self._lock:
            self._formulas = tuple(formulas)
            for agent in self._agents.values():
                agent.rows.clear()

    def formulas(self) -> list[dict[str, Any]]:
        """What is watched."""
        return [
            {
                "name": spec.name,
                "text": spec.text,
                "every": spec.every,
                "causal_model": spec.causal_model,
                "alarm": {
                    "for": spec.alarm.for_,
                    "keep": spec.alarm.keep,
                    "severity": spec.alarm.severity,
                    "runbook": spec.alarm.runbook,
                    "when": spec.alarm.when,
                },
            }
            for spec in self._formulas
        ]

    def agents(self) -> list[dict[str, Any]]:
        """Every agent with its formulas' latest values."""
        with self._lock:
            return [self._show_agent(name, agent) for name, agent in sorted(self._agents.items())]

    def agent(self, name: str) -> dict[str, Any] | None:
        """One agent; None if it is not known."""
        with self._lock:
            agent = self._agents.get(name)
            return None if agent is None else self._show_agent(name, agent)

    def alarms(self) -> list[dict[str, Any]]:
        """The latest alert of every alarm of a known agent that has ever fired: as published, and whose it is."""
        with self._lock:
            return [
                row.alert
                for _, agent in sorted(self._agents.items())
                for _, row in sorted(agent.rows.items())
                if row.alert is not None
            ]

    def overview(self, search: str, most: int) -> dict[str, Any]:
        """What a person needs first: what fires, what is blind, at most `most` agents whose name holds `search`.

        Agents with a firing alarm come first, then blind ones, then the others by name.
        """
        with self._lock:
            found = sorted((_rank(agent), name) for name, agent in self._agents.items() if search in name)
            alerts = [row.alert for agent in self._agents.values() for row in agent.rows.values() if row.alert]
            blind = _blind_groups(self._agents)
            agents = [self._show_agent(name, self._agents[name]) for _, name in found[:most]]
            count = len(self._agents)
        firing = sorted((alert for alert in alerts if alert["state"] == "firing"), key=lambda alert: -alert["since"])
        over = sorted((alert for alert in alerts if alert["state"] != "firing"), key=lambda alert: -alert["sent"])
        told = {"firing": firing[:most], "recent": over[:MOST_RECENT], "blind": blind[:most], "agents": agents}
        counts = {"firing": len(firing), "blind": len(blind), "agents": count, "found": len(found)}
        return {**told, "count": counts, "formulas": self.formulas()}

    def seeing(self) -> bool:
        """Whether anything can be answered: not if every formula of every agent is blind.

        A doubted model has answers; to take the agent out of service for it is not ours to decide.
        """
        with self._lock:
            rows = [row for agent in self._agents.values() for row in agent.rows.values()]
            return not rows or any(row.blind is None or row.blind.reason == "model_doubt" for row in rows)

    # ---- taking ----

    def _take(self, notice: Notice, now: Instant) -> None:
        match notice:
            case Received():
                if notice.agent and notice.result not in UNREAD:
                    agent = self._agent(notice.agent, now)
                    agent.last_message, agent.lag = now.wall, notice.lag
            case Judged():
                row = self._row(notice.agent, notice.formula, now)
                row.judged = notice
                row.history.append((_finite(shown(notice.verdict)[0]), _finite(_nominal(notice.verdict))))
                self._agents[notice.agent].episode = notice.episode
            case Blind():
                row = self._row(notice.agent, notice.formula, now)
                row.blind = notice if notice.reason is not None else None
                row.history.append(UNKNOWN)
            case AlarmMoved():
                self._row(notice.agent, notice.formula, now).alarm = notice.state
            case Alert():
                firing = notice.state == "firing"
                self._row(notice.agent, notice.formula, now).alarm = "firing" if firing else "clear"
            case Ended():
                for row in self._agents[notice.agent].rows.values() if notice.agent in self._agents else ():
                    row.judged = None
                    row.history.append(UNKNOWN)
            case Forgotten():
                self._agents.pop(notice.agent, None)
            case _:
                pass  # OffPolicy, RewardMismatch and Skipped are counted by the metrics

    def _row(self, agent: str, formula: str, now: Instant) -> _Row:
        rows = self._agent(agent, now).rows
        row = rows.get(formula)
        if row is None:
            row = rows[formula] = _Row()
        return row

    def _agent(self, name: str, now: Instant) -> _Agent:
        agent = self._agents.get(name)
        if agent is None:
            agent = self._agents[name] = _Agent(now.wall)
        return agent

    def _keep_alert(self, topic: str, payload: bytes) -> None:
        """An alert's topic ends in agent and formula; the status topic does not, whatever it is called."""
        *prefix, name, formula = topic.split("/")
        if "/".join(prefix) != self._alerts:
            return
        agent = self._agents.get(name)
        if agent is not None and payload:
            agent.rows.setdefault(formula, _Row()).alert = {"agent": name, **json.loads(payload)}

    # ---- showing ----

    def _show_agent(self, name: str, agent: _Agent) -> dict[str, Any]:
        return {
            "name": name,
            "last_message": agent.last_message,
            "lag": agent.lag,
            "episode": agent.episode,
            "formulas": [_show_row(spec, agent.rows.get(spec.name, _Row())) for spec in self._formulas],
        }


def _show_row(spec: FormulaSpec, row: _Row) -> dict[str, Any]:
    shown_row: dict[str, Any] = {
        "name": spec.name,
        "alarm": row.alarm,
        "blind": row.blind.reason if row.blind else None,
        "detail": row.blind.detail if row.blind else "",
        "outcome": None,
        "value": None,
        "nominal": None,
        "lower": None,
        "upper": None,
        "effect": None,
        "seq": None,
        "time": None,
        "threshold": None,
        "history": list(row.history),
    }
    if row.judged is not None and row.blind is None:
        verdict = row.judged.verdict
        value, bounds = shown(verdict)
        lower, upper = bounds or (math.nan, math.nan)
        shown_row |= {
            "outcome": outcome_of(verdict),
            "value": _finite(value),
            "nominal": _finite(_nominal(verdict)),
            "lower": _finite(lower),
            "upper": _finite(upper),
            "effect": _finite(verdict.effect),
            "seq": row.judged.seq,
            "time": row.judged.time,
            "threshold": verdict.quantities[-1].threshold if verdict.quantities else None,
        }
    return shown_row


def _rank(agent: _Agent) -> int:
    """0: an alarm of it fires, 1: a formula of it is blind, 2: neither."""
    rows = agent.rows.values()
    return 0 if any(row.alarm == "firing" for row in rows) else 1 if any(row.blind for row in rows) else 2


def _blind_groups(agents: dict[str, _Agent]) -> list[dict[str, Any]]:
    """One entry for each agent and reason, with the formulas it concerns."""
    groups: dict[tuple[str, BlindReason], dict[str, Any]] = {}
    for name, agent in sorted(agents.items()):
        for formula, row in agent.rows.items():
            if row.blind is not None and row.blind.reason is not None:
                reason = row.blind.reason
                entry = {"agent": name, "reason": reason, "words": BLIND_WORDS[reason], "detail": row.blind.detail}
                groups.setdefault((name, reason), {**entry, "formulas": []})["formulas"].append(formula)
    return list(groups.values())


def _nominal(verdict: Verdict) -> float | None:
    """What regret compares with: the value under nominal."""
    return verdict.quantities[0].value if verdict.outcome is not None and len(verdict.quantities) == 2 else None


def _finite(number: float | None) -> float | None:
    return number if number is not None and math.isfinite(number) else None
