"""What the status page and the API show: the latest of everything, for each agent and formula."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from monitor.sidecar.metrics import UNREAD, outcome_of, shown
from monitor.sidecar.pipeline import Effects
from monitor.types import (
    AlarmMoved,
    Alert,
    Blind,
    Ended,
    Episode,
    Forgotten,
    FormulaSpec,
    Instant,
    Judged,
    Notice,
    Received,
)

__all__ = ["Board"]


@dataclass(slots=True)
class _Row:
    """The latest of one formula for one agent."""

    judged: Judged | None = None
    blind: Blind | None = None
    alarm: str = "clear"
    alert: dict[str, Any] | None = None


@dataclass(slots=True)
class _Agent:
    """The latest of one agent."""

    last_message: float
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

    def seeing(self) -> bool:
        """Whether anything can be answered: not if every formula of every agent is blind."""
        with self._lock:
            rows = [row for agent in self._agents.values() for row in agent.rows.values()]
            return not rows or any(row.blind is None for row in rows)

    # ---- taking ----

    def _take(self, notice: Notice, now: Instant) -> None:
        match notice:
            case Received():
                if notice.agent and notice.result not in UNREAD:
                    self._agent(notice.agent, now).last_message = now.wall
            case Judged():
                self._row(notice.agent, notice.formula, now).judged = notice
                self._agents[notice.agent].episode = notice.episode
            case Blind():
                self._row(notice.agent, notice.formula, now).blind = notice if notice.reason is not None else None
            case AlarmMoved():
                self._row(notice.agent, notice.formula, now).alarm = notice.state
            case Alert():
                firing = notice.state == "firing"
                self._row(notice.agent, notice.formula, now).alarm = "firing" if firing else "clear"
            case Ended():
                for row in self._agents[notice.agent].rows.values() if notice.agent in self._agents else ():
                    row.judged = None
            case Forgotten():
                self._agents.pop(notice.agent, None)
            case _:
                pass  # OffPolicy and Skipped are counted by the metrics

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
        "lower": None,
        "upper": None,
        "effect": None,
        "seq": None,
        "time": None,
    }
    if row.judged is not None and row.blind is None:
        verdict = row.judged.verdict
        value, bounds = shown(verdict)
        lower, upper = bounds or (math.nan, math.nan)
        shown_row |= {
            "outcome": outcome_of(verdict),
            "value": _finite(value),
            "lower": _finite(lower),
            "upper": _finite(upper),
            "effect": _finite(verdict.effect),
            "seq": row.judged.seq,
            "time": row.judged.time,
        }
    return shown_row


def _finite(number: float | None) -> float | None:
    return number if number is not None and math.isfinite(number) else None
