"""Grafana's files: made from their source, known to its schema; links lead somewhere, words go with colours."""

from __future__ import annotations

import copy
import json
import re
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.alerting import NotificationPolicy, Rule
from grafana_foundation_sdk.models.dashboard import Dashboard

from tests.deploy.grafana_files import BOARDS, GRAFANA, RULES, asked, panels
from tests.deploy.test_compose import SERVICES, here
from tests.deploy.test_rules import METRICS, load, metrics_named_in, rules

(PAGE,) = {
    variable["query"]
    for board in BOARDS.values()
    for variable in board["templating"]["list"]
    if variable["name"] == "page"
}
"""Where browsers reach the monitor's own page."""
PANELS = {f"{name}: {panel['title']}": panel for name, board in BOARDS.items() for panel in panels(board)}
UIDS = {board["uid"] for board in BOARDS.values()}
NOT_IN_THE_SCHEMA = {"titleFormat", "textFormat", "step"}
"""How Prometheus' annotations are worded: fields of the data source, not of the dashboard."""


def test_they_are_what_their_source_makes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["make.py", str(tmp_path)])
    monkeypatch.setattr(sys, "path", [str(GRAFANA / "source"), *sys.path])
    before = set(sys.modules)
    try:
        runpy.run_path(str(GRAFANA / "source" / "make.py"), run_name="__main__")
    finally:
        for name in set(sys.modules) - before:  # they have names such as `agent`
            del sys.modules[name]
    made = {path.relative_to(tmp_path): path.read_text() for path in tmp_path.rglob("*") if path.is_file()}
    kept = {
        path.relative_to(GRAFANA): path.read_text()
        for folder in ("dashboards", "alerting")
        for path in (GRAFANA / folder).rglob("*")
        if path.is_file()
    }
    assert made == kept, "make dashboards"


@pytest.mark.parametrize("name", BOARDS)
def test_the_schema_of_that_grafana_knows_every_field(name: str) -> None:
    register_default_plugins()
    board = copy.deepcopy(BOARDS[name])
    read = json.loads(JSONEncoder().encode(Dashboard.from_json(board)))
    for annotation in board.get("annotations", {}).get("list", []):
        for field in NOT_IN_THE_SCHEMA:
            del annotation[field]
    assert read == board


def test_the_schema_is_that_of_the_grafana_that_is_started() -> None:
    declared = (GRAFANA.parents[1] / "pyproject.toml").read_text()
    version = re.search(r'"grafana-foundation-sdk==\d+!([\d.]+)"', declared)
    assert version
    assert SERVICES["grafana"]["image"].endswith(f"grafana:{version[1]}")


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: str(rule["title"]))
def test_a_rule_has_the_fields_that_are_provisioned_and_no_others(rule: dict[str, Any]) -> None:
    known = {"uid", "title", "condition", "data", "noDataState", "execErrState", "for", "annotations", "labels"}
    assert set(rule) == known
    read = json.loads(JSONEncoder().encode(Rule.from_json(rule)))
    assert {field: read[field] for field in known - {"data"}} == {field: rule[field] for field in known - {"data"}}
    assert rule["condition"] in {query["refId"] for query in rule["data"]}
    assert len(rule["uid"]) <= 40


def test_grafanas_rules_ask_what_prometheus_asks() -> None:
    """But for what fired when the monitor was lost, which only Prometheus' own rules leave a trace of."""
    ours = {rule["title"]: rule for rule in RULES}
    assert list(ours) == [rule["alert"] for rule in rules()]
    for rule in rules():
        expression = " ".join(rule["expr"].split())
        at = ours[rule["alert"]]
        mine = at["data"][0]["model"]["expr"]
        assert mine == expression or (
            mine.split(" or ")[:2] == expression.split(" or ")[:2] and "ALERTS" in expression and "ALERTS" not in mine
        )
        assert at["labels"] == rule["labels"]
        assert at["for"] == rule.get("for", "0s")
        assert at["annotations"]["runbook_url"] == f"{PAGE}/runbooks/{rule['alert']}"
        text = " ".join(at["annotations"].values())
        assert not re.search(r"\$value\b|\$externalLabels|\| query", text)  # Grafana knows none of these


@pytest.mark.parametrize("title", ["CfmonAlarmCritical", "CfmonAlarmWarning"])
def test_a_number_in_a_text_is_that_of_a_query_and_said_only_where_it_was_found(title: str) -> None:
    rule = next(rule for rule in RULES if rule["title"] == title)
    asked_for = {query["refId"]: query["model"].get("expr", "") for query in rule["data"]}
    assert [metrics_named_in(asked_for[letter]) for letter in "CDE"] == [
        ["cfmon_formula_value"],
        ["cfmon_formula_threshold"],
        ["cfmon_alternative_value"],
    ]
    for text in (rule["annotations"]["summary"], rule["annotations"]["description"]):
        shown = re.findall(r"\{\{ if \$values\.(\w)\.Labels \}\}\{\{ \$values\.(\w)\.Value ", text)
        assert shown == [("C", "C"), ("D", "D"), ("E", "E")]
        assert text.count("$values.") == 2 * len(shown)


def test_the_job_is_chosen_at_the_top_and_every_question_keeps_to_it() -> None:
    for place, question in asked().items():
        if not place.startswith("rule ") and not place.endswith(", variable job"):
            series = re.findall(
                r"\b(?:cfmon_\w+|process_\w+|up|ALERTS|scrape_duration_seconds)(?:\{([^}]*)\})?", question
            )
            assert series, place
            assert all('job=~"$job' in matchers for matchers in series), place
    for board in BOARDS.values():
        assert [variable["name"] for variable in board["templating"]["list"]][:2] == ["datasource", "job"]


def test_grafanas_routes_are_alertmanagers() -> None:
    provisioned = yaml.safe_load((GRAFANA / "alerting" / "cfmon.yaml").read_text())
    points = {point["name"]: point["receivers"][0]["settings"]["url"] for point in provisioned["contactPoints"]}
    theirs = yaml.safe_load((GRAFANA.parent / "alertmanager" / "alertmanager.yml").read_text())
    assert points == {receiver["name"]: receiver["webhook_configs"][0]["url"] for receiver in theirs["receivers"]}
    (policy,) = provisioned["policies"]
    read = NotificationPolicy.from_json(policy)
    assert read.receiver == theirs["route"]["receiver"]
    assert [route.receiver for route in read.routes or []] == [route["receiver"] for route in theirs["route"]["routes"]]


# ---- a reader is told ----


@pytest.mark.parametrize("name", PANELS)
def test_a_panel_explains_itself_and_says_what_nothing_means(name: str) -> None:
    panel = PANELS[name]
    assert len(panel["description"].split()) >= 4
    if panel["type"] == "text":
        return
    defaults = panel["fieldConfig"]["defaults"]
    assert defaults["noValue"]
    if panel["type"] in {"stat", "timeseries"}:
        assert defaults["unit"]
    for target in panel["targets"]:
        assert panel["type"] in {"stat", "table"} or target["legendFormat"]
        assert panel["type"] not in {"stat", "table"} or target["instant"]  # else an old value would stand there


@pytest.mark.parametrize("name", PANELS)
def test_no_colour_stands_alone(name: str) -> None:
    """A state has a word; a threshold is drawn as a line or told in the description, and the words differ."""
    panel = PANELS[name]
    defaults = panel.get("fieldConfig", {}).get("defaults", {})
    words = [result for mapping in defaults.get("mappings", []) for result in texts(mapping)]
    assert all(words)
    assert len(words) == len(set(words))
    if panel["type"] == "statetimeline":
        assert words
        assert panel["options"]["showValue"] == "always"
    if len(defaults.get("thresholds", {}).get("steps", [])) > 1:
        drawn = defaults.get("custom", {}).get("thresholdsStyle", {}).get("mode") == "dashed"
        told = re.search(r"From (1:|one minute,)|If not", panel["description"])
        assert drawn or told


def texts(mapping: dict[str, Any]) -> list[str]:
    options = mapping["options"]
    return [options["result"]["text"]] if mapping["type"] == "special" else [one["text"] for one in options.values()]


def test_blindness_is_seen_in_the_fleet_and_of_one_agent() -> None:
    for name in ("fleet: Monitors and agents over time", "agent: Each formula over time", "agent: Now"):
        (mapping,) = PANELS[name]["fieldConfig"]["defaults"]["mappings"]
        colours: dict[str, set[str]] = {}
        for result in mapping["options"].values():
            colours.setdefault(result["color"], set()).add(result["text"].split(",")[0])
        assert {"BLIND"} in colours.values()  # all that is blind says so, and nothing else looks like it
        assert {"NOT MONITORED", "DOWN"} in colours.values()


# ---- links ----


def links() -> set[str]:
    text = json.dumps(BOARDS)
    return set(re.findall(r"/d/([\w-]+(?:\$\{[\w.]+\})?)", text))


def test_links_lead_to_dashboards_that_are_there() -> None:
    for uid in links():
        if uid == "cfmon-${__data.fields.alertname}":
            assert {f"cfmon-{alert['alert']}" for alert in rules()} <= UIDS
        else:
            assert uid in UIDS
    assert {"cfmon-agent", "cfmon-${__data.fields.alertname}"} <= links()


def test_every_dashboard_leads_to_the_status_page_and_to_the_runbooks() -> None:
    for board in BOARDS.values():
        assert "${page}/" in {link.get("url") for link in board["links"]}
        assert {"cfmon", "cfmon-runbook"} == {tag for link in board["links"] for tag in link["tags"]}
        assert "page" in {variable["name"] for variable in board["templating"]["list"]}


def test_what_a_link_hands_over_is_a_variable_of_the_agents_page() -> None:
    variables = {variable["name"] for variable in BOARDS["agent"]["templating"]["list"]}
    assert set(re.findall(r"[?&]var-(\w+)=", json.dumps(BOARDS))) <= variables


def test_a_runbooks_page_is_the_runbook() -> None:
    for rule in rules():
        text, _ = BOARDS[f"runbooks/{rule['alert']}"]["panels"]
        page = (GRAFANA.parent / "runbooks" / f"{rule['alert']}.md").read_text()
        shown = re.sub(r"\(/d/cfmon-(\w+)\)", r"(\1.md)", text["options"]["content"])
        assert shown.splitlines() == re.sub(r"\[([^]]+)\]\(\.\./[^)]+\)", r"`\1`", page).splitlines()[2:]
        assert ".md)" not in text["options"]["content"]


# ---- the rest ----


def test_uids_and_panels_are_numbered_once() -> None:
    assert len(UIDS) == len(BOARDS)
    for board in BOARDS.values():
        assert len(board["uid"]) <= 40
        numbers = [panel["id"] for panel in panels(board)]
        assert len(numbers) == len(set(numbers))
        assert board["editable"] is False


def test_every_metric_named_exists_and_each_is_shown_somewhere() -> None:
    named = {metric for question in asked().values() for metric in metrics_named_in(question)}
    named = {metric.removesuffix("_bucket") for metric in named}
    assert named <= set(METRICS)
    counted = {
        "cfmon_agents_forgotten",
        "cfmon_messages_of_other_shards",
        "cfmon_negative_lags",
        "cfmon_store_errors",
        "cfmon_store_damage",
        "cfmon_picture_errors",
    }  # the registry knows these without their ending too
    assert {name for name in METRICS if not re.search(r"_(created|sum|count|bucket)$", name)} - counted <= named


def test_histograms_are_read_by_quantile_over_rates_and_counters_never_bare() -> None:
    for question in asked().values():
        for found in re.finditer(r"\w+_(total|bucket)\b", question):
            assert re.search(r"(rate|increase)\($", question[: found.start()]), question
        if "_bucket" in question:
            assert re.search(r"histogram_quantile\([\d.]+, sum by \(le", question)


def test_provisioned_from_what_is_mounted() -> None:
    (provider,) = yaml.safe_load((GRAFANA / "provisioning" / "dashboards" / "cfmon.yaml").read_text())["providers"]
    assert here(provider["options"]["path"], "grafana").resolve() == (GRAFANA / "dashboards").resolve()
    home = SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert json.loads(here(home, "grafana").read_text())["uid"] == "cfmon-fleet"
    for path in (GRAFANA / "provisioning" / "datasources").iterdir():
        (source,) = yaml.safe_load(path.read_text())["datasources"]
        name, port = source["url"].removeprefix("http://").split(":")
        assert SERVICES[name]["ports"] == [f"127.0.0.1:{port}:{port}"]
    interval = load("prometheus.yml")["global"]["scrape_interval"]
    prometheus = yaml.safe_load((GRAFANA / "provisioning" / "datasources" / "prometheus.yaml").read_text())
    assert prometheus["datasources"][0]["jsonData"]["timeInterval"] == interval  # $__rate_interval is made of it
    assert prometheus["datasources"][0]["uid"] == "prometheus"  # as the rules name it
