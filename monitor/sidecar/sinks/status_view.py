"""Data of the status page and the API: the newest state of each agent and formula, and the list of alarms."""

from __future__ import annotations

import threading
from collections import Counter
from itertools import zip_longest
from typing import Any, Final, get_args

from monitor.alarm.blindness import READY
from monitor.alarm.figures import other, own
from monitor.runtime.query import Query
from monitor.sidecar.effects import Effects
from monitor.sidecar.sinks.metrics import UNREAD
from monitor.sidecar.sinks.reliability import Reliability, counted, with_diagrams
from monitor.sidecar.sinks.sink import Watched
from monitor.sidecar.sinks.status_document import (
    AgentStatus,
    FormulaState,
    FormulaStatus,
    blind_groups,
    contradictions_of,
    deviation_of,
    doubt_of,
    explained,
    finite,
    in_need,
    rank,
    shown,
    state_of,
    status_of,
)
from monitor.sidecar.store.alarm_history import AlarmFilter, AlarmHistory, AlarmRecord
from monitor.types.alerts import Alert
from monitor.types.notices import (
    AlarmMoved,
    Blind,
    Calibrated,
    Contradictions,
    Deviates,
    Ended,
    Forecast,
    Forgotten,
    Judged,
    Notice,
    Received,
    Refreshed,
    Trust,
)
from monitor.types.stream_events import Instant

MOST_RECENT = 10
"""Maximum number of closed alarms shown."""
RECENT: Final = 300.0
"""Seconds of recent values that an overview shows for each formula."""
RECENT_POINTS: Final = 240
"""Approximate maximum number of points of these values."""
DRAWN: Final = 12
"""Default number of agents whose recent values an overview contains: as many as the page shows unfolded."""
DAY: Final = 86_400.0
"""Seconds that an overview's timeline of alarms covers."""
MOST_OUTLINED: Final = 200
"""Maximum number of alarms in the timeline; the newest are shown. `count` counts all."""
RANKS: Final = {"critical": 0, "warning": 2, "info": 3}
"""Order of severities. An unknown severity comes directly after `critical`, because it may be as severe."""


class StatusView:
    """The sink for the status page, written on the loop's thread and read on the server's thread, under a lock.

    `history`: the list of alarms. It gets the alerts when they are stored, so `take` does not add them again.
    """

    def __init__(self, watched: Watched) -> None:
        self._lock = threading.Lock()
        self._queries = tuple(watched.queries)
        self._alerts = watched.alerts
        self._agents: dict[str, AgentStatus] = {}
        self._trust: Trust | None = None
        self._contradictions = Contradictions()
        self.history = AlarmHistory(watched.alerts)

    def take(self, effects: Effects, now: Instant) -> None:
        """Show the effects of an event. Its alerts are already in `history`."""
        with self._lock:
            for notice in effects.notices:
                kind = type(notice)
                if kind is Received:  # nearly all are one of these two
                    self._received(notice, now)  # type: ignore[arg-type] # as its class says
                elif kind is Judged:
                    self._judged(notice, now)  # type: ignore[arg-type] # likewise
                else:
                    self._take(notice, now)
            for publication in effects.publications:
                self._keep_alert(publication.topic, publication.payload)

    def recall(self, effects: Effects, now: Instant) -> None:
        """Show the state of everything after a restart or a reload."""
        self.history.note(effects.publications)  # a store of an earlier version does not list these alarms
        self.take(effects, now)
        with self._lock:
            for agent in self._agents.values():
                for row in agent.rows.values():
                    row.blind_since = None  # it was blind before, since an unknown time

    def adopt(self, watched: Watched) -> None:
        """Continue with another configuration."""
        with self._lock:
            self._queries = tuple(watched.queries)
            for agent in self._agents.values():
                agent.rows.clear()

    def formulas(self) -> list[dict[str, Any]]:
        """Return the monitored formulas."""
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
            for spec in (query.spec for query in self._queries)
        ]

    def agents(self) -> list[dict[str, Any]]:
        """Return every agent with the newest values of its formulas."""
        with self._lock:
            return [self._show_agent(name, agent) for name, agent in sorted(self._agents.items())]

    def agent(self, name: str) -> dict[str, Any] | None:
        """Return one agent; None if it is not known."""
        with self._lock:
            agent = self._agents.get(name)
            return None if agent is None else self._show_agent(name, agent)

    def alarms(self) -> list[dict[str, Any]]:
        """Return the newest alert of each formula and known agent that has one, with the newest verdict."""
        with self._lock:
            return [
                alert
                for _, agent in sorted(self._agents.items())
                for _, row in sorted(agent.rows.items())
                if (alert := row.newest_alert()) is not None
            ]

    def found(self, wanted: AlarmFilter, most: int | None = None) -> list[dict[str, Any]]:
        """Return the newest `most` alarms that match, newest first. Firing alarms have their newest verdict.

        Alarms of forgotten agents are included.
        """
        alarms = self.history.find(wanted, most)
        with self._lock:
            return [alarm.shown(self._live(alarm)) for alarm in alarms]

    def overview(self, search: str, most: int, now: float, drawn: int = DRAWN) -> dict[str, Any]:
        """Return the overview: firing alarms, blind formulas, and `most` agents with `search` in their names.

        Agents are ordered by urgency (`rank`), then by name; alarms by severity, then the newest first. `last_minutes`
        has a formula's newest values, for the first `drawn` agents only. `states` counts all formulas of all agents.
        `now`: seconds since the epoch.
        """
        over = AlarmFilter(state="over")
        alarms, recent = self.history.find(AlarmFilter(state="firing")), self.found(over, MOST_RECENT)
        alarms.sort(key=lambda alarm: RANKS.get(alarm.severity, 1))
        with self._lock:
            found = sorted((rank(agent), name) for name, agent in self._agents.items() if search in name)
            firing = [alarm.shown(self._live(alarm)) for alarm in alarms[:most]]
            blind = blind_groups(self._agents)
            agents = [self._show_agent(name, self._agents[name]) for _, name in found[:most]]
            rows = [row for _, name in found[: min(drawn, most)] for _, row in self._rows(self._agents[name])]
            curves = [row.curve.since(now - RECENT) for row in rows]
            states = Counter(state_of(row) for agent in self._agents.values() for _, row in self._rows(agent))
            silent = {group["agent"] for group in blind if group["reason"] == "stale"}
            lags = ((agent.lag, name) for name, agent in self._agents.items() if agent.lag is not None)
            lag = max((each for each in lags if each[1] not in silent), default=None)
            doubt, contradictions = self._doubt(), contradictions_of(self._contradictions)
            deviating = self._deviating()
            count = len(self._agents)
        formulas = (formula for agent in agents for formula in agent["formulas"])
        for formula, curve in zip_longest(formulas, curves):
            # Thinning takes a while, so it is done without the lock.
            formula["last_minutes"] = None if curve is None else curve.thinned(RECENT_POINTS)
        day = self.history.find(AlarmFilter(since=now - DAY))
        lists = {
            "firing": firing,
            "recent": recent,
            "blind": blind[:most],
            "agents": agents,
            "doubt": doubt,
            "contradictions": contradictions,
            "deviating": deviating,
            "day": [alarm.outline() for alarm in day[:MOST_OUTLINED]],
        }
        counts = {"firing": len(alarms), "blind": len(blind), "agents": count, "found": len(found), "day": len(day)}
        return {
            **lists,
            "count": counts,
            "states": {state: states[state] for state in get_args(FormulaState)},
            "lag": None if lag is None else {"agent": lag[1], "seconds": lag[0]},
            "formulas": self.formulas(),
        }

    def life(self, name: str, most: int) -> dict[str, Any] | None:
        """Return the data of one agent's page: values in words and as curves, outcomes of forecasts, `most` alarms.

        The formulas are ordered by urgency. `older_alarms`: whether there are alarms beyond `most`. `others`: names of
        the other agents with a formula that fires or is blind, by state. Returns None if the agent is not known and no
        alarm of it is listed.
        """
        alarms = self.found(AlarmFilter(agent=name), most + 1)
        listed: dict[str, Any] = {"alarms": alarms[:most], "older_alarms": len(alarms) > most}
        with self._lock:
            listed["others"] = in_need({other: agent for other, agent in self._agents.items() if other != name})
            agent = self._agents.get(name)
            if agent is None:
                return {"name": name, "known": False, "formulas": [], **listed} if alarms else None
            shown, forecasts = self._show_agent(name, agent), self._reliability(agent)
            model_doubt = doubt_of(self._trust)
            for (query, row), formula in zip(self._rows(agent), shown["formulas"], strict=True):
                formula |= {"text": query.spec.text, "curve": row.curve.columns(), **explained(name, query, row)}
        shown = with_diagrams(shown, forecasts)
        shown["formulas"].sort(key=lambda formula: get_args(FormulaState).index(formula["state"]))
        return {**shown, "known": True, **listed, "model_doubt": model_doubt}

    def seeing(self) -> bool:
        """Return whether any formula can be evaluated. False if every formula of every agent is blind.

        A formula that is blind for a reason in `READY`, for example an idle agent, does not count as blind here. The
        cause of such a reason is outside the monitor.
        """
        with self._lock:
            rows = [row for agent in self._agents.values() for row in agent.rows.values()]
            return not rows or any(row.blind is None or row.blind.reason in READY for row in rows)

    # ---- taking ----

    def _received(self, notice: Received, now: Instant) -> None:
        if notice.agent and notice.result not in UNREAD:
            agent = self._agent(notice.agent, now)
            agent.last_message, agent.lag = now.wall, notice.lag

    def _judged(self, notice: Judged, now: Instant) -> None:
        agent = self._agent(notice.agent, now)
        row = self._row_of(agent, notice.formula)
        row.judged = notice
        row.curve.add(now.wall, finite(own(notice.verdict)[0]), finite(other(notice.verdict)[0]))
        agent.judge(notice)

    def _take(self, notice: Notice, now: Instant) -> None:
        match notice:  # the most frequent ones first
            case Refreshed(judged):
                self._row(judged.agent, judged.formula, now).news = notice
            case Forecast() | Calibrated():
                self._count_forecast(notice, now)
            case Alert():
                row = self._row(notice.agent, notice.formula, now)
                row.alarm, row.alert, row.news = "firing" if notice.state == "firing" else "clear", notice, None
            case AlarmMoved():
                self._row(notice.agent, notice.formula, now).alarm = notice.state
            case Blind():
                row = self._row(notice.agent, notice.formula, now)
                if notice.reason is None:
                    row.blind = row.blind_since = None
                else:
                    row.blind_since = row.blind_since if row.blind else now.wall
                    row.blind = notice
                row.curve.add(now.wall, None, None)
            case Ended():
                for row in self._agents[notice.agent].rows.values() if notice.agent in self._agents else ():
                    row.judged = None
                    row.curve.end_episode(now.wall)
            case Forgotten():
                self._agents.pop(notice.agent, None)
            case Deviates():
                self._agent(notice.agent, now).deviates = notice
            case Trust():
                self._keep_trust(notice, now)
            case Contradictions():
                self._contradictions = notice
            case _:
                pass  # OffPolicy, RewardMismatch and Skipped are counted by the metrics

    def _count_forecast(self, notice: Forecast | Calibrated, now: Instant) -> None:
        if notice.agent:  # otherwise the counts are of all agents together, which only a metric shows
            row = self._row(notice.agent, notice.formula, now)
            row.forecasts = counted(row.forecasts, notice)

    def _keep_trust(self, notice: Trust, now: Instant) -> None:
        if notice.agent:
            self._agent(notice.agent, now).trust = notice
        else:
            self._trust = notice

    def _row(self, agent: str, formula: str, now: Instant) -> FormulaStatus:
        return self._row_of(self._agent(agent, now), formula)

    def _row_of(self, agent: AgentStatus, formula: str) -> FormulaStatus:
        row = agent.rows.get(formula)
        if row is None:
            query = next((query for query in self._queries if query.spec.name == formula), None)
            row = agent.rows[formula] = status_of(query)
        return row

    def _agent(self, name: str, now: Instant) -> AgentStatus:
        agent = self._agents.get(name)
        if agent is None:
            agent = self._agents[name] = AgentStatus(now.wall)
        return agent

    def _keep_alert(self, topic: str, payload: bytes) -> None:
        """Keep the document of an alert. Only alerts have a topic that ends in agent and formula."""
        *prefix, name, formula = topic.split("/")
        if "/".join(prefix) != self._alerts:
            return
        agent = self._agents.get(name)
        if agent is not None and payload:
            self._row_of(agent, formula).payload = payload

    # ---- showing ----

    def _live(self, alarm: AlarmRecord) -> dict[str, Any] | None:
        """Return the newest alert of an alarm, with the newest verdict; None if it does not fire or is unknown."""
        agent = self._agents.get(alarm.agent)
        row = None if agent is None else agent.rows.get(alarm.formula)
        alert = None if row is None or alarm.state != "firing" else row.newest_alert()
        return alert if alert is not None and alert["id"] == alarm.id else None

    def _doubt(self) -> dict[str, Any]:
        """Return the result of testing the model on all agents, and the agents that contradict the model."""
        doubted = [
            {"agent": name, **doubt_of(agent.trust)}
            for name, agent in sorted(self._agents.items())
            if agent.trust is not None and agent.trust.doubted
        ]
        return {"model": doubt_of(self._trust), "agents": doubted}

    def _deviating(self) -> list[dict[str, Any]]:
        """Return the agents whose actions deviate notably from the nominal policy."""
        shown = [(name, deviation_of(agent.deviates)) for name, agent in sorted(self._agents.items())]
        return [{"agent": name, **deviation} for name, deviation in shown if deviation["notable"]]

    def _reliability(self, agent: AgentStatus) -> list[Reliability]:
        """Return the outcomes of the forecasts of each formula. Diagrams take time, so make them without the lock."""
        return [Reliability.of(query, row.forecasts) for query, row in self._rows(agent)]

    def _show_agent(self, name: str, agent: AgentStatus) -> dict[str, Any]:
        return {
            "name": name,
            "last_message": agent.last_message,
            "lag": agent.lag,
            "episode": None if agent.newest is None else agent.newest.episode,
            "seconds_per_step": agent.seconds_per_step(),
            "doubt": doubt_of(agent.trust),
            "deviation": deviation_of(agent.deviates),
            "formulas": [shown(query, row) for query, row in self._rows(agent)],
        }

    def _rows(self, agent: AgentStatus) -> list[tuple[Query, FormulaStatus]]:
        return [(query, agent.rows.get(query.spec.name) or status_of(query)) for query in self._queries]
