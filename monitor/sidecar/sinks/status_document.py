"""Where each agent and formula stands, and the same as the documents that the page and the API get: plain data."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import msgspec

from monitor.alarm.figures import change_of, other, own, threshold_of
from monitor.alarm.message import refreshed_payload, rfc3339
from monitor.alarm.refresh import refreshed
from monitor.alarm.summary import BLIND_WORDS, summary
from monitor.logic import parse
from monitor.logic.printer import print_change
from monitor.sidecar.sinks.curve import Curve
from monitor.sidecar.sinks.metrics import outcome_of
from monitor.statistics.calibration import CalibrationCounts
from monitor.statistics.deviation import NOTABLE
from monitor.types import Alert, Blind, BlindReason, Deviates, Episode, FormulaSpec, Judged, Refreshed, Threshold, Trust

__all__ = [
    "HISTORY",
    "AgentStatus",
    "FormulaStatus",
    "blind_groups",
    "deviation_of",
    "doubt_of",
    "explained",
    "finite",
    "rank",
    "shown",
    "status_of",
]

HISTORY = 60
"""Newest values of each formula and agent that an overview tells, for a small curve."""


@dataclass(slots=True)
class FormulaStatus:
    """The latest of one formula for one agent.

    `alert`: as last published, `payload`: as JSON; `news`: a newer verdict on it, if there was one. `curve`: the
    agent's own value and the alternative's, at the time at which they were told. `forecasts`: what those that were
    followed came to; None: none is decided.
    """

    curve: Curve

    forecasts: CalibrationCounts | None = None
    judged: Judged | None = None
    blind: Blind | None = None
    alarm: str = "clear"
    alert: Alert | None = None
    payload: dict[str, Any] | None = None
    news: Refreshed | None = None

    def told(self) -> dict[str, Any] | None:
        """The alert, with what the newest verdict says."""
        if self.payload is not None and self.alert is not None and self.news is not None:
            self.payload = refreshed_payload(self.payload, refreshed(self.alert, self.news))
            self.news = None
        return self.payload


@dataclass(slots=True)
class AgentStatus:
    """The latest of one agent. `lag`: seconds its last message was under way, None if it told no time.

    `trust`: how the model stands the test of its transitions, once that was told. `deviates`: the same of how its
    actions depart from the nominal policy.
    """

    last_message: float
    lag: float | None = None
    episode: Episode | None = None
    trust: Trust | None = None
    deviates: Deviates | None = None
    rows: dict[str, FormulaStatus] = field(default_factory=dict)


def status_of(spec: FormulaSpec | None) -> FormulaStatus:
    """A row of which nothing is known yet; of a curve, where the worse side is."""
    threshold = None if spec is None else _asked(spec.text)[0]
    low = threshold is None or threshold.comparison in (">", ">=")
    return FormulaStatus(Curve(low=low != (spec is not None and spec.alarm.when == "holds")))


def doubt_of(trust: Trust | None) -> dict[str, Any]:
    """How the model stands the test; `doubted` is null where it is not tested, or where nothing was told of it yet."""
    if trust is None or (trust.transitions == 0 and not trust.doubted):
        return {"doubted": None, "log10_e": None, "transitions": 0, "departing": []}
    return {
        "doubted": trust.doubted,
        "log10_e": finite(trust.log10_e),
        "transitions": trust.transitions,
        "departing": [msgspec.structs.asdict(each) for each in trust.departing],
    }


def deviation_of(told: Deviates | None) -> dict[str, Any]:
    """How far an agent's actions depart from the nominal policy; not at all where nothing was told of it."""
    share, steps = (0.0, 0) if told is None else (told.share, told.steps)
    return {"share": share, "steps": steps, "notable": share >= NOTABLE}


def explained(agent: str, spec: FormulaSpec, row: FormulaStatus) -> dict[str, Any]:
    """What the newest verdict says in words, and what a takeover would have changed at each moment looked at."""
    if row.judged is None or row.blind is not None:
        words = "" if row.blind is None or row.blind.reason is None else BLIND_WORDS[row.blind.reason]
        return {"summary": words, "profile": []}
    verdict = row.judged.verdict
    told = summary(
        agent=agent,
        formula=spec,
        parsed=parse(spec.text),
        state="firing" if row.alarm == "firing" else "clear",
        blind=None,
        verdict=verdict,
        path_length=0,
    )
    profile = [
        {"offset": offset, "nominal": finite(nominal), "alternative": finite(alternative)}
        for offset, (nominal, alternative) in sorted(verdict.profile.items())
    ]
    return {"summary": told, "profile": profile}


def shown(spec: FormulaSpec, row: FormulaStatus) -> dict[str, Any]:
    """Return one formula of one agent as a document; what is not known is null."""
    threshold, alternative = _asked(spec.text)
    shown_row: dict[str, Any] = {
        "name": spec.name,
        "alarm": row.alarm,
        "severity": spec.alarm.severity,
        "blind": row.blind.reason if row.blind else None,
        "detail": row.blind.detail if row.blind else "",
        "outcome": None,
        "value": None,
        "bounds": None,
        "threshold": None if threshold is None else {"comparison": threshold.comparison, "bound": threshold.bound},
        "alternative": None if alternative is None else {"name": alternative, "value": None, "bounds": None},
        "effect": None,
        "seq": None,
        "time": None,
        "time_unix": None,
        "history": row.curve.last(HISTORY),
    }
    if row.judged is not None and row.blind is None:
        verdict = row.judged.verdict
        shown_row |= {
            "outcome": outcome_of(verdict),
            **_both(*own(verdict)),
            "effect": finite(verdict.effect),
            "seq": row.judged.seq,
            "time": rfc3339(row.judged.time),
            "time_unix": row.judged.time,
        }
        if alternative is not None:
            shown_row["alternative"] = {"name": alternative, **_both(*other(verdict))}
    return shown_row


@lru_cache(maxsize=4096)
def _asked(text: str) -> tuple[Threshold | None, str | None]:
    """What a formula's value is compared with, and the alternative it asks about."""
    formula = parse(text)
    change = change_of(formula)
    return threshold_of(formula), None if change is None else print_change(change)


def _both(value: float | None, bounds: tuple[float, float] | None) -> dict[str, Any]:
    return {"value": finite(value), "bounds": None if bounds is None else [finite(bound) for bound in bounds]}


def rank(agent: AgentStatus) -> int:
    """0: an alarm of it fires, 1: a formula of it is blind, 2: neither."""
    rows = agent.rows.values()
    return 0 if any(row.alarm == "firing" for row in rows) else 1 if any(row.blind for row in rows) else 2


def blind_groups(agents: dict[str, AgentStatus]) -> list[dict[str, Any]]:
    """One entry for each agent and reason, with the formulas it concerns."""
    groups: dict[tuple[str, BlindReason], dict[str, Any]] = {}
    for name, agent in sorted(agents.items()):
        for formula, row in agent.rows.items():
            if row.blind is not None and row.blind.reason is not None:
                reason = row.blind.reason
                entry = {"agent": name, "reason": reason, "words": BLIND_WORDS[reason], "detail": row.blind.detail}
                groups.setdefault((name, reason), {**entry, "formulas": []})["formulas"].append(formula)
    return list(groups.values())


def finite(number: float | None) -> float | None:
    """Return a number that JSON has, else None."""
    return number if number is not None and math.isfinite(number) else None
