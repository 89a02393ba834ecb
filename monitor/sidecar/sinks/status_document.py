"""The newest state of each agent and formula, and the documents made from it for the page and the API: plain data."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import msgspec

from monitor.alarm.blindness import BLIND_WORDS, BLINDNESS, COMPLETE
from monitor.alarm.figures import effect_of, other, own
from monitor.alarm.message import alert_bands, json_bytes, known_profile, plain_message, refreshed_payload, rfc3339
from monitor.alarm.recourse_sentences import alert_recourse, instead
from monitor.alarm.refresh import refreshed
from monitor.alarm.summary import tell
from monitor.logic.traversal import longest_interval
from monitor.model.action_names import WordsOfActions, action_in_words
from monitor.runtime.query import Query
from monitor.sidecar.sinks.curve import Curve
from monitor.sidecar.sinks.metrics import outcome_of
from monitor.statistics.calibration import CalibrationCounts
from monitor.statistics.deviation import NOTABLE
from monitor.types.alerts import Alert
from monitor.types.notices import Blind, Contradictions, Deviates, Judged, Refreshed, Trust
from monitor.types.stream_events import BlindReason
from monitor.types.verdicts import Recourse, Verdict

FormulaState = Literal["firing", "pending", "blind", "unknown", "fine"]
"""State of a formula for an agent. `firing`, `pending`: the alarm fires or is pending. `blind`: the formula is blind.
`unknown`: there is no decided verdict. `fine`: all other cases."""


@dataclass(slots=True)
class FormulaStatus:
    """The newest state of one formula for one agent.

    `alert`: the alert as last published. `payload`: the same alert as JSON. `news`: a newer verdict, if there is one.
    `blind_since`: when it became blind, in seconds since the epoch; None if it is not blind or the time is unknown.
    `curve`: the agent's own value and the alternative's value over time. `forecasts`: outcomes of the forecasts; None
    if none was due yet.
    """

    curve: Curve
    forecasts: CalibrationCounts | None = None
    judged: Judged | None = None
    blind: Blind | None = None
    blind_since: float | None = None
    alarm: str = "clear"
    alert: Alert | None = None
    payload: bytes | None = None
    news: Refreshed | None = None

    def newest_alert(self) -> dict[str, Any] | None:
        """Return the alert as JSON, with the newest verdict; None if there is no alert."""
        if self.payload is None:
            return None
        document: dict[str, Any] = msgspec.json.decode(self.payload)
        if self.alert is not None and self.news is not None:
            document = refreshed_payload(document, refreshed(self.alert, self.news))
            self.payload, self.news = json_bytes(document), None
        return document


@dataclass(slots=True)
class AgentStatus:
    """The newest state of one agent. `lag`: delay of its last message in seconds; None if the agent sends no time.

    `first`, `newest`: the first and the newest verdict of the newest episode, of any formula. `trust`: newest result of
    the test of the model on the agent's transitions. `deviates`: deviation of the agent's actions from the nominal
    policy. None if not reported yet.
    """

    last_message: float
    lag: float | None = None
    first: Judged | None = None
    newest: Judged | None = None
    trust: Trust | None = None
    deviates: Deviates | None = None
    rows: dict[str, FormulaStatus] = field(default_factory=dict)

    def judge(self, notice: Judged) -> None:
        """Take a verdict, which may be the first one of an episode, or after an agent began it again."""
        if self.newest is None or self.newest.episode != notice.episode or notice.seq < self.newest.seq:
            self.first = notice
        self.newest = notice

    def seconds_per_step(self) -> float | None:
        """Return the mean time between two steps of the newest episode, by their times; None while it is not known."""
        if self.first is None or self.newest is None or self.newest.seq <= self.first.seq:
            return None
        each = (self.newest.time - self.first.time) / (self.newest.seq - self.first.seq)
        return each if 0 < each < math.inf else None


def status_of(query: Query | None) -> FormulaStatus:
    """Return the status of a formula before its first verdict.

    The curve in it knows whether low or high values are bad.
    """
    return FormulaStatus(Curve() if query is None else Curve(low=query.low_is_worse))


def doubt_of(trust: Trust | None) -> dict[str, Any]:
    """Return the result of testing the model.

    `doubted` is null if the model is not tested or no result was reported yet.
    """
    if trust is None or (trust.transitions == 0 and not trust.doubted):
        return {"doubted": None, "log10_e": None, "transitions": 0, "departing": []}
    return {
        "doubted": trust.doubted,
        "log10_e": finite(trust.log10_e),
        "transitions": trust.transitions,
        "departing": [msgspec.structs.asdict(each) for each in trust.departing],
    }


def contradictions_of(notice: Contradictions) -> dict[str, Any]:
    """Return the rejected rows of the model and the rejected agents. `rows_tested` is 0 if rows are not tested."""
    return {
        "rows": [msgspec.structs.asdict(row) for row in notice.rows],
        "agents": [msgspec.structs.asdict(agent) for agent in notice.agents],
        "rows_rejected": notice.rows_rejected,
        "agents_rejected": notice.agents_rejected,
        "rows_tested": notice.rows_tested,
    }


def deviation_of(notice: Deviates | None) -> dict[str, Any]:
    """Return the deviation of an agent's actions from the nominal policy; 0 if nothing was reported."""
    share, steps = (0.0, 0) if notice is None else (notice.share, notice.steps)
    return {"share": share, "steps": steps, "notable": share >= NOTABLE}


def explained(agent: str, query: Query, row: FormulaStatus) -> dict[str, Any]:
    """Return the newest verdict in words."""
    if row.judged is None or row.blind is not None:
        words = "" if row.blind is None or row.blind.reason is None else BLIND_WORDS[row.blind.reason]
        return {"summary": words, "details": []}
    told = tell(
        agent=agent,
        formula=query.spec,
        parsed=query.formula,
        state="firing" if row.alarm == "firing" else "clear",
        blind=None,
        verdict=row.judged.verdict,
        path_length=0,
        seq=row.judged.seq,
    )
    return {"summary": told.summary, "details": list(told.details)}


def shown(query: Query, row: FormulaStatus) -> dict[str, Any]:
    """Return one formula of one agent as a document. Unknown values are null."""
    threshold, alternative = query.threshold, query.alternative
    shown_row: dict[str, Any] = {
        "name": query.spec.name,
        "alarm": row.alarm,
        "state": state_of(row),
        "severity": query.spec.alarm.severity,
        "blind": row.blind.reason if row.blind else None,
        "detail": row.blind.detail if row.blind else "",
        "blind_since": row.blind_since,
        "outcome": None,
        "value": None,
        "bounds": None,
        "threshold": None if threshold is None else {"comparison": threshold.comparison, "bound": threshold.bound},
        "horizon": longest_interval(query.formula),
        "bad_while": query.spec.alarm.fires_while,
        "fires_after": None if threshold is None else query.spec.alarm.for_,
        "probability": query.probability,
        "alternative": None if alternative is None else {"name": alternative, "value": None, "bounds": None},
        "effect": None,
        "profile": [],
        "seq": None,
        "time": None,
        "time_unix": None,
    }
    if row.judged is not None and row.blind is None:
        verdict = row.judged.verdict
        shown_row |= {
            "outcome": outcome_of(verdict),
            **_both(*own(verdict)),
            "effect": finite(effect_of(verdict)),
            "profile": [
                {"offset": offset, "nominal": finite(nominal), "alternative": finite(alternative)}
                for offset, (nominal, alternative), _ in known_profile(verdict)
            ],
            "seq": row.judged.seq,
            "time": rfc3339(row.judged.time),
            "time_unix": row.judged.time,
        }
        if (bands := alert_bands(verdict)) is not None:
            shown_row["bands"] = plain_message(bands)
        if verdict.recourse is not None:
            shown_row["recourse"] = _recourse(verdict, verdict.recourse, row.judged.seq, query.spec.actions)
        if alternative is not None:
            shown_row["alternative"] = {"name": alternative, **_both(*other(verdict))}
    return shown_row


def _recourse(verdict: Verdict, recourse: Recourse, seq: int, actions: WordsOfActions) -> dict[str, Any]:
    """Return recourse as in an alert, with the first other decision in words as `instead`."""
    message, in_words = alert_recourse(recourse, seq, actions), partial(action_in_words, words=actions)
    assert message is not None
    return {
        **plain_message(message),
        "hindsight": verdict.offset != 0,
        "instead": None if recourse.changes is None else instead(recourse.changes, in_words),
    }


def _both(value: float | None, bounds: tuple[float, float] | None) -> dict[str, Any]:
    return {"value": finite(value), "bounds": None if bounds is None else [finite(bound) for bound in bounds]}


def state_of(row: FormulaStatus) -> FormulaState:
    """Return the state of a formula for an agent. A blind formula whose alarm fires is `firing`."""
    if row.alarm == "firing":
        return "firing"
    if row.blind is not None:
        return "blind"
    if row.alarm == "pending":
        return "pending"
    undecided = row.judged is None or outcome_of(row.judged.verdict) == "undecided"
    return "unknown" if undecided else "fine"


def rank(agent: AgentStatus) -> int:
    """Return the agent's rank by urgency: firing alarm, pending alarm, blind formula, doubt or deviation, nothing."""
    states = {state_of(row) for row in agent.rows.values()}
    for place, state in enumerate(("firing", "pending", "blind")):
        if state in states:
            return place
    doubted = agent.trust is not None and agent.trust.doubted
    return 3 if doubted or deviation_of(agent.deviates)["notable"] else 4


def in_need(agents: dict[str, AgentStatus]) -> dict[str, list[str]]:
    """Return the names of the agents with a formula that fires, and of those that are blind and may hide an alarm."""
    firing = {name for name, agent in agents.items() if any(row.alarm == "firing" for row in agent.rows.values())}
    blind = {group["agent"] for group in blind_groups(agents) if not group["complete"]}
    return {"firing": sorted(firing), "blind": sorted(blind - firing)}


def blind_groups(agents: dict[str, AgentStatus]) -> list[dict[str, Any]]:
    """Return one entry for each agent and reason, with its formulas."""
    groups: dict[tuple[str, BlindReason], dict[str, Any]] = {}
    for name, agent in sorted(agents.items()):
        for formula, row in agent.rows.items():
            if row.blind is not None and row.blind.reason is not None:
                reason = row.blind.reason
                words = {"words": BLIND_WORDS[reason], "detail": row.blind.detail, "complete": reason in COMPLETE}
                words |= {"first": BLINDNESS[reason].first, "runbook": f"runbooks/{BLINDNESS[reason].alert}"}
                group = groups.setdefault((name, reason), {"agent": name, "reason": reason, **words, "formulas": []})
                group["formulas"].append(formula)
    return list(groups.values())


def finite(number: float | None) -> float | None:
    """Return a finite number unchanged, else None, because JSON has finite numbers only."""
    return number if number is not None and math.isfinite(number) else None
