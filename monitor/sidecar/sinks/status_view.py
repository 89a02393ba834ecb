"""What the status page and the API show: the latest of everything, for each agent and formula."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from typing import Any, Final

from monitor.alarm.figures import other, own
from monitor.sidecar.pipeline import Effects
from monitor.sidecar.sinks.metrics import UNREAD
from monitor.sidecar.sinks.reliability import Reliability, counted, with_diagrams
from monitor.sidecar.sinks.status_document import (
    AgentStatus,
    FormulaStatus,
    blind_groups,
    deviation_of,
    doubt_of,
    explained,
    finite,
    rank,
    shown,
    status_of,
)
from monitor.sidecar.store.alarm_history import Alarm, Filter, History
from monitor.types import (
    AlarmMoved,
    Alert,
    Blind,
    BlindReason,
    Calibrated,
    Deviates,
    Ended,
    Forecast,
    Forgotten,
    FormulaSpec,
    Instant,
    Judged,
    Notice,
    Received,
    Refreshed,
    Trust,
)

__all__ = ["StatusView"]

MOST_RECENT = 10
"""Alarms shown that are over."""
SEEING: Final[frozenset[BlindReason]] = frozenset({"model_doubt", "idle", "old_episode", "overload"})
"""Reasons with which the monitor itself sees."""
RANKS: Final = {"critical": 0, "warning": 2, "info": 3}
"""What stands first; a severity of another name comes after `critical`, for it may mean as much."""


class StatusView:
    """A sink for effects on the loop's thread, a source of plain data on the server's; a lock stands between.

    `alerts`: the topic under which alerts are published, by agent and formula. `history`: the list of alarms.
    """

    def __init__(self, formulas: Sequence[FormulaSpec], alerts: str) -> None:
        self._lock = threading.Lock()
        self._formulas = tuple(formulas)
        self._alerts = alerts
        self._agents: dict[str, AgentStatus] = {}
        self._trust: Trust | None = None
        self.history = History(alerts)

    def take(self, effects: Effects, now: Instant, *, listed: bool = False) -> None:
        """Note what happened. `listed`: the list of alarms has it already."""
        if not listed:
            self.history.note(effects.publications)
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
        """The latest alert of every alarm of a known agent that has ever fired, by the newest verdict."""
        with self._lock:
            return [
                told
                for _, agent in sorted(self._agents.items())
                for _, row in sorted(agent.rows.items())
                if (told := row.told()) is not None
            ]

    def found(self, asked: Filter, most: int | None = None) -> list[dict[str, Any]]:
        """The alarms asked for, also of agents that are forgotten, the newest first; what fires by its newest verdict.

        `most`: no more than so many.
        """
        alarms = self.history.find(asked, most)
        with self._lock:
            return [alarm.shown(self._live(alarm)) for alarm in alarms]

    def overview(self, search: str, most: int) -> dict[str, Any]:
        """What a person needs first: what fires, what is blind, at most `most` agents whose name holds `search`.

        Agents with a firing alarm come first, then blind ones, then the others by name; alarms by severity, then the
        newest first.
        """
        over = Filter(state="over")
        alarms, recent = self.history.find(Filter(state="firing")), self.found(over, MOST_RECENT)
        alarms.sort(key=lambda alarm: RANKS.get(alarm.severity, 1))
        with self._lock:
            found = sorted((rank(agent), name) for name, agent in self._agents.items() if search in name)
            firing = [alarm.shown(self._live(alarm)) for alarm in alarms[:most]]
            blind = blind_groups(self._agents)
            agents = [self._show_agent(name, self._agents[name]) for _, name in found[:most]]
            doubt = self._doubt()
            deviating = self._deviating()
            count = len(self._agents)
        told = {
            "firing": firing,
            "recent": recent,
            "blind": blind[:most],
            "agents": agents,
            "doubt": doubt,
            "deviating": deviating,
        }
        counts = {"firing": len(alarms), "blind": len(blind), "agents": count, "found": len(found)}
        return {**told, "count": counts, "formulas": self.formulas()}

    def life(self, name: str, most: int) -> dict[str, Any] | None:
        """One agent over time: each formula's values in words and as curves, how its forecasts turned out, its alarms.

        `most`: alarms at most. None if it is not known, and never had an alarm.
        """
        alarms = self.found(Filter(agent=name), most)
        with self._lock:
            agent = self._agents.get(name)
            if agent is None:
                return {"name": name, "known": False, "formulas": [], "alarms": alarms} if alarms else None
            shown, forecasts = self._show_agent(name, agent), self._reliability(agent)
            model_doubt = doubt_of(self._trust)
            for spec, formula in zip(self._formulas, shown["formulas"], strict=True):
                row = agent.rows.get(spec.name) or status_of(spec)
                formula |= {"text": spec.text, "curve": row.curve.columns(), **explained(name, spec, row)}
        return {**with_diagrams(shown, forecasts), "known": True, "alarms": alarms, "model_doubt": model_doubt}

    def seeing(self) -> bool:
        """Whether anything can be answered: not if every formula of every agent is blind.

        A doubted model has answers, and of an agent that rests there is nothing to ask; to take it out of service for
        that is not ours to decide.
        """
        with self._lock:
            rows = [row for agent in self._agents.values() for row in agent.rows.values()]
            return not rows or any(row.blind is None or row.blind.reason in SEEING for row in rows)

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
                row.curve.add(now.wall, finite(own(notice.verdict)[0]), finite(other(notice.verdict)[0]))
                self._agents[notice.agent].episode = notice.episode
            case Blind():
                row = self._row(notice.agent, notice.formula, now)
                row.blind = notice if notice.reason is not None else None
                row.curve.add(now.wall, None, None)
            case AlarmMoved():
                self._row(notice.agent, notice.formula, now).alarm = notice.state
            case Alert():
                row = self._row(notice.agent, notice.formula, now)
                row.alarm, row.alert, row.news = "firing" if notice.state == "firing" else "clear", notice, None
            case Refreshed(judged):
                self._row(judged.agent, judged.formula, now).news = notice
            case Ended():
                for row in self._agents[notice.agent].rows.values() if notice.agent in self._agents else ():
                    row.judged = None
                    row.curve.add(now.wall, None, None)
            case Forgotten():
                self._agents.pop(notice.agent, None)
            case Deviates():
                self._agent(notice.agent, now).deviates = notice
            case Forecast() | Calibrated():
                self._count_forecast(notice, now)
            case Trust():
                self._keep_trust(notice, now)
            case _:
                pass  # OffPolicy, RewardMismatch and Skipped are counted by the metrics

    def _count_forecast(self, notice: Forecast | Calibrated, now: Instant) -> None:
        if notice.agent:  # else of all agents together, which is a metric
            row = self._row(notice.agent, notice.formula, now)
            row.forecasts = counted(row.forecasts, notice)

    def _keep_trust(self, notice: Trust, now: Instant) -> None:
        if notice.agent:
            self._agent(notice.agent, now).trust = notice
        else:
            self._trust = notice

    def _row(self, agent: str, formula: str, now: Instant) -> FormulaStatus:
        rows = self._agent(agent, now).rows
        row = rows.get(formula)
        if row is None:
            row = rows[formula] = self._new_row(formula)
        return row

    def _new_row(self, formula: str) -> FormulaStatus:
        return status_of(next((spec for spec in self._formulas if spec.name == formula), None))

    def _agent(self, name: str, now: Instant) -> AgentStatus:
        agent = self._agents.get(name)
        if agent is None:
            agent = self._agents[name] = AgentStatus(now.wall)
        return agent

    def _keep_alert(self, topic: str, payload: bytes) -> None:
        """An alert's topic ends in agent and formula; the status topic does not, whatever it is called."""
        *prefix, name, formula = topic.split("/")
        if "/".join(prefix) != self._alerts:
            return
        agent = self._agents.get(name)
        if agent is not None and payload:
            row = agent.rows.get(formula)
            if row is None:
                row = agent.rows[formula] = self._new_row(formula)
            row.payload = json.loads(payload)

    # ---- showing ----

    def _live(self, alarm: Alarm) -> dict[str, Any] | None:
        """The alert of an alarm that fires, by the newest verdict; None if there is no newer one than the list has."""
        agent = self._agents.get(alarm.agent)
        row = None if agent is None else agent.rows.get(alarm.formula)
        told = None if row is None or alarm.state != "firing" else row.told()
        return told if told is not None and told["id"] == alarm.id else None

    def _doubt(self) -> dict[str, Any]:
        """Whether steps go as the model says: of all agents together, and the agents whose own do not."""
        doubted = [
            {"agent": name, **doubt_of(agent.trust)}
            for name, agent in sorted(self._agents.items())
            if agent.trust is not None and agent.trust.doubted
        ]
        return {"model": doubt_of(self._trust), "agents": doubted}

    def _deviating(self) -> list[dict[str, Any]]:
        """The agents whose actions depart from the nominal policy so far that a person should know."""
        shown = [(name, deviation_of(agent.deviates)) for name, agent in sorted(self._agents.items())]
        return [{"agent": name, **deviation} for name, deviation in shown if deviation["notable"]]

    def _reliability(self, agent: AgentStatus) -> list[Reliability]:
        """Of each formula what its forecasts came to. The diagrams take a while, so they are made without the lock."""
        rows = [(spec, agent.rows.get(spec.name) or status_of(spec)) for spec in self._formulas]
        return [Reliability.of(spec, row.forecasts, row.judged) for spec, row in rows]

    def _show_agent(self, name: str, agent: AgentStatus) -> dict[str, Any]:
        return {
            "name": name,
            "last_message": agent.last_message,
            "lag": agent.lag,
            "episode": agent.episode,
            "doubt": doubt_of(agent.trust),
            "deviation": deviation_of(agent.deviates),
            "formulas": [shown(spec, agent.rows.get(spec.name) or status_of(spec)) for spec in self._formulas],
        }
