"""Grafana's version of the alerts: each runbook as a dashboard, and alert rules and routes for Grafana.

Everything is generated from the rules of Prometheus, the runbooks and the routes of Alertmanager.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from frame import PAGE, board
from grafana_foundation_sdk.builders.dashboard import Dashboard
from grafana_foundation_sdk.builders.text import Panel as Text
from grafana_foundation_sdk.models.text import TextMode
from panels import TROUBLE, WAIT, Words, query, timeline

__all__ = ["alerting", "alerts", "runbook"]

DEPLOY = Path(__file__).resolve().parents[2]
STATES: Words = {1: ("pending", WAIT), 2: ("FIRING", TROUBLE)}
LABELS = ("agent", "formula", "reason", "result", "instance")
FIGURE = re.compile(
    r'\{\{ with printf "(?P<metric>\w+)\{(?P<labels>[^}]*)\} >= -Inf" [^|]*\| query \}\}'
    r"\{\{ \. \| first \| value \| (?P<shown>[^}]*) \}\}\{\{ else \}\}(?P<unknown>[^{]*)\{\{ end \}\}"
)
"""Number in a text; Prometheus queries it when it renders the text."""
BASE = re.compile(r"\{\{ with \$externalLabels\.monitor_url \}\}.*?(?=/runbooks/|/agent\?)")
"""Base of a link; Grafana has no external labels."""

Figures = Mapping[str, tuple[str, re.Match[str]]]
"""For each metric in a text: the letter of its query, and its first match."""


def alerts() -> list[str]:
    """Return the names of all alerts."""
    return [rule["alert"] for group in _groups() for rule in group["rules"]]


def runbook(alert: str) -> Dashboard:
    """Return the dashboard of an alert: its runbook, and when the alert was active."""
    page = (DEPLOY / "runbooks" / f"{alert}.md").read_text().split("\n", 2)[2]
    page = re.sub(r"\]\((\w+)\.md\)", r"](/d/cfmon-\1)", page)
    page = re.sub(r"\[([^]]+)\]\(\.\./[^)]+\)", r"`\1`", page)  # other files of the repository are not served here
    one = f'ALERTS{{alertname="{alert}", job=~"$job|"'  # watchdogs have no job
    state = f'{one}, alertstate="firing"}} * 2 or {one}, alertstate="pending"}}'
    seen = timeline(
        "When the alert was active",
        "A row for each agent, formula or monitor. Pending: the condition is true, but not yet for long enough.",
        [query(f"max by ({', '.join(LABELS)}) ({state})", " ".join(f"{{{{{label}}}}}" for label in LABELS))],
        STATES,
        nothing="not in the time shown",
        height=7,
    )
    text = Text().title(alert).description("What it means, how to see it, what to do.").mode(TextMode.MARKDOWN)
    made = board(
        f"cfmon-{alert}", f"Runbook: {alert}", "What it means, how to see it, what to do.", [], tag="cfmon-runbook"
    )
    return made.with_panel(text.content(page).span(24).height(14)).with_panel(seen)


def alerting() -> dict[str, Any]:
    """Return rules, contact points and policies in Grafana's provisioning format."""
    routes = yaml.safe_load((DEPLOY / "alertmanager" / "alertmanager.yml").read_text())
    return {
        "apiVersion": 1,
        "groups": [
            {
                "orgId": 1,
                "name": group["name"],
                "folder": "Counterfactual monitor",
                "interval": "10s",
                "rules": [_rule(rule) for rule in group["rules"]],
            }
            for group in _groups()
        ],
        "contactPoints": [_contact_point(receiver) for receiver in routes["receivers"]],
        "policies": [{"orgId": 1, **_policy(routes["route"])}],
    }


def _groups() -> list[dict[str, Any]]:
    groups: list[dict[str, Any]] = yaml.safe_load((DEPLOY / "prometheus" / "cfmon.rules.yml").read_text())["groups"]
    return groups


def _rule(rule: dict[str, Any]) -> dict[str, Any]:
    """Return the rule for Grafana. In Prometheus each series of the result fires, in Grafana each that is not 0.

    So query B is 1 for each series that exists, because `up == 0` has the value 0. If there is no series at all,
    `noDataState` gives OK.
    """
    model = {"refId": "A", "expr": _expression(rule["expr"]), "instant": True, "range": False}
    found = [match for text in rule["annotations"].values() for match in FIGURE.finditer(text)]
    letters = {match["metric"]: (chr(ord("C") + at), match) for at, match in enumerate(_first_of_each(found))}
    there = {
        "refId": "B",
        "type": "math",
        "expression": "is_number($A)",
        "datasource": {"type": "__expr__", "uid": "__expr__"},
    }
    return {
        "uid": f"cfmon-{rule['alert']}",
        "title": rule["alert"],
        "condition": "B",
        "data": [_query("A", "prometheus", model), _query("B", "__expr__", there), *_figures(letters)],
        "noDataState": "OK",
        "execErrState": "Error",
        "for": rule.get("for", "0s"),
        "annotations": {name: _words(text, letters) for name, text in rule["annotations"].items()},
        "labels": rule["labels"],
    }


def _expression(text: str) -> str:
    """Return the expression with ALERTS, which keeps alarms of a lost monitor, replaced by samples of the last hour."""
    if "ALERTS" not in text:
        return " ".join(text.split())
    (state,) = set(re.findall(r"cfmon_alarm_state\{[^}]*\}", text))
    lost = f"(last_over_time({state}[1h])) == 1"
    return " ".join(re.sub(r"\(ALERTS\{[^}]*\}\)", lambda _: lost, text).split())


def _first_of_each(found: list[re.Match[str]]) -> list[re.Match[str]]:
    return list({match["metric"]: match for match in reversed(found)}.values())[::-1]


def _figures(letters: Figures) -> list[dict[str, Any]]:
    """Return the queries of the numbers in the text, which do not decide the alert. NaN counts as no value."""
    made = []
    for metric, (letter, match) in letters.items():
        labels = match["labels"].replace("=%q", "")
        model = {"refId": letter, "expr": f"max by ({labels}) ({metric}) >= -Inf", "instant": True, "range": False}
        made.append(_query(letter, "prometheus", model))
    return made


def _words(text: str, letters: Figures) -> str:
    """Return the text with numbers from queries, because in Grafana `$value` is a sentence; the number is query A's.

    A query without a result would show 0, so the text first tests whether the query has labels.
    """

    def number_of(match: re.Match[str]) -> str:
        letter = letters[match["metric"]][0]
        number = f"{{{{ $values.{letter}.Value | {match['shown']} }}}}"
        return f"{{{{ if $values.{letter}.Labels }}}}{number}{{{{ else }}}}{match['unknown']}{{{{ end }}}}"

    text = BASE.sub(PAGE, FIGURE.sub(number_of, text))
    return re.sub(r"\$value\b", "$values.A.Value", text)


def _query(letter: str, source: str, model: dict[str, Any]) -> dict[str, Any]:
    return {"refId": letter, "relativeTimeRange": {"from": 600, "to": 0}, "datasourceUid": source, "model": model}


def _contact_point(receiver: dict[str, Any]) -> dict[str, Any]:
    hooks = [
        {
            "uid": f"cfmon-{receiver['name']}",
            "type": "webhook",
            "settings": {"url": hook["url"], "httpMethod": "POST"},
            "disableResolveMessage": not hook.get("send_resolved", True),
        }
        for hook in receiver["webhook_configs"]
    ]
    return {"orgId": 1, "name": receiver["name"], "receivers": hooks}


def _policy(route: dict[str, Any]) -> dict[str, Any]:
    made = {key: value for key, value in route.items() if key not in {"routes", "matchers"}}
    if "matchers" in route:
        made["object_matchers"] = [matcher.split(" ", 2) for matcher in route["matchers"]]
    if "routes" in route:
        made["routes"] = [_policy(one) for one in route["routes"]]
    return made
