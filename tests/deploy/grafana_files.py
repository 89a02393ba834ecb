"""What stands in deploy/grafana: its dashboards and rules, and every question in them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

__all__ = ["BOARDS", "GRAFANA", "RULES", "asked", "in_runbooks", "panels", "runnable"]

GRAFANA = Path(__file__).parents[2] / "deploy" / "grafana"
BOARDS: dict[str, dict[str, Any]] = {
    str(path.relative_to(GRAFANA / "dashboards").with_suffix("")): json.loads(path.read_text())
    for path in sorted((GRAFANA / "dashboards").rglob("*.json"))
}
RULES: list[dict[str, Any]] = [
    rule
    for group in yaml.safe_load((GRAFANA / "alerting" / "cfmon.yaml").read_text())["groups"]
    for rule in group["rules"]
]
CHOSEN = {"job": ".*", "instance": ".*", "agents": ".*", "agent": "w1", "formula": ".*"}
"""What is taken for each variable; Grafana puts `.*` in the place of all."""


def panels(board: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for panel in board["panels"]:
        yield panel
        yield from panel.get("panels", [])


def asked() -> dict[str, str]:
    """Every question by where it stands: panels, variables, annotations, alert rules."""
    found: dict[str, str] = {}
    for name, board in BOARDS.items():
        for panel in panels(board):
            for target in panel.get("targets", []):
                found[f"{name}, panel {panel['id']} {panel['title']}, {target['refId']}"] = target["expr"]
        for variable in board["templating"]["list"]:
            if variable["type"] == "query":
                found[f"{name}, variable {variable['name']}"] = variable["query"]["query"]
        for annotation in board.get("annotations", {}).get("list", []):
            found[f"{name}, annotation {annotation['name']}"] = annotation["expr"]
    for rule in RULES:
        condition, _, *figures = rule["data"]
        found[f"rule {rule['title']}"] = condition["model"]["expr"]
        for figure in figures:
            found[f"rule {rule['title']}, figure {figure['refId']}"] = figure["model"]["expr"]
    return found


def in_runbooks() -> dict[str, str]:
    """Every PromQL expression that a runbook has people ask, by page and expression."""
    found: dict[str, str] = {}
    for page in sorted((GRAFANA.parent / "runbooks").glob("*.md")):
        for code in re.findall(r"`([^`]+)`", page.read_text()):
            if re.search(r"\b(cfmon_[a-z]|up\{)", code):
                found[f"{page.name}: {code}"] = code
    return found


def runnable(question: str) -> str:
    """As Grafana would send it, with one of the agents chosen, and with windows and ages for a test in a hurry."""
    question = question.replace("$__rate_interval", "4s").replace("$__range", "1m")
    question = re.sub(r"\[5m\]", "[4s]", question)
    question = re.sub(r"(?<=[<>] )60\b", "4", question)
    question = re.sub(r"\$(\w+)", lambda variable: CHOSEN[variable[1]], question)
    assert "$" not in question
    return question
