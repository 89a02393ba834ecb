"""What is made of the rules for Prometheus: each alert's runbook as a dashboard, and rules and routes for Grafana.

Nothing about an alert is said twice: rules, runbooks and Alertmanager's routes are read from where they are kept.
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
"""A number in a text: in Prometheus it is asked for when the text is made."""
BASE = re.compile(r"\{\{ with \$externalLabels\.monitor_url \}\}.*?(?=/runbooks/|/agent\?)")
"""Where a link leads: Grafana knows no external labels."""

Figures = Mapping[str, tuple[str, re.Match[str]]]
"""Of each metric whose number stands in a text: the letter of its query, and where it was found first."""


def alerts() -> list[str]:
    """The names of all."""
    return [rule["alert"] for group in _groups() for rule in group["rules"]]


def runbook(alert: str) -> Dashboard:
    """The alert's page, so that it can be read where it is needed, and when the alert was there."""
    page = (DEPLOY / "runbooks" / f"{alert}.md").read_text().split("\n", 2)[2]
    page = re.sub(r"\]\((\w+)\.md\)", r"](/d/cfmon-\1)", page)
    page = re.sub(r"\[([^]]+)\]\(\.\./[^)]+\)", r"`\1`", page)  # elsewhere in the repository: not served here
    one = f'ALERTS{{alertname="{alert}", job=~"$job|"'  # some are about no job: the watchdogs, no monitor at all
    state = f'{one}, alertstate="firing"}} * 2 or {one}, alertstate="pending"}}'
    seen = timeline(
        "When it was there",
        "A row for each agent, formula or monitor it was about. Pending: its cause is there, but not yet for long "
        "enough.",
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
    """Rules, contact points and policies as Grafana provisions them from a file."""
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
    """The same question: in Prometheus a series that is there fires, in Grafana one that is not 0.

    So B says of each series that it is there (`up == 0` has the value 0). None at all is `noDataState`: fine.
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
        "data": [_asked("A", "prometheus", model), _asked("B", "__expr__", there), *_figures(letters)],
        "noDataState": "OK",
        "execErrState": "Error",
        "for": rule.get("for", "0s"),
        "annotations": {name: _words(text, letters) for name, text in rule["annotations"].items()},
        "labels": rule["labels"],
    }


def _expression(text: str) -> str:
    """What fired when its monitor was lost, Prometheus finds in its own ALERTS; here, in the last hour's samples."""
    if "ALERTS" not in text:
        return " ".join(text.split())
    (state,) = set(re.findall(r"cfmon_alarm_state\{[^}]*\}", text))
    lost = f"(last_over_time({state}[1h])) == 1"
    return " ".join(re.sub(r"\(ALERTS\{[^}]*\}\)", lambda _: lost, text).split())


def _first_of_each(found: list[re.Match[str]]) -> list[re.Match[str]]:
    return list({match["metric"]: match for match in reversed(found)}.values())[::-1]


def _figures(letters: Figures) -> list[dict[str, Any]]:
    """Queries whose numbers stand in the text and decide nothing; a value that is NaN is none."""
    made = []
    for metric, (letter, match) in letters.items():
        labels = match["labels"].replace("=%q", "")
        model = {"refId": letter, "expr": f"max by ({labels}) ({metric}) >= -Inf", "instant": True, "range": False}
        made.append(_asked(letter, "prometheus", model))
    return made


def _words(text: str, letters: Figures) -> str:
    """In Grafana `$value` is a sentence; the number is that of query A, and others are those of queries of their own.

    Grafana hands over what it found with labels; of what it did not find it would say 0.
    """

    def number_of(match: re.Match[str]) -> str:
        letter = letters[match["metric"]][0]
        number = f"{{{{ $values.{letter}.Value | {match['shown']} }}}}"
        return f"{{{{ if $values.{letter}.Labels }}}}{number}{{{{ else }}}}{match['unknown']}{{{{ end }}}}"

    text = BASE.sub(PAGE, FIGURE.sub(number_of, text))
    return re.sub(r"\$value\b", "$values.A.Value", text)


def _asked(letter: str, source: str, model: dict[str, Any]) -> dict[str, Any]:
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
