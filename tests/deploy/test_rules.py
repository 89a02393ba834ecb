"""The alert rules: promtool accepts and tests them, they name only what exists, every alert explains itself."""

import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from prometheus_client import CollectorRegistry
from prometheus_client.metrics import MetricWrapperBase

from monitor.alarm.blindness import BLINDNESS, MARKS
from monitor.sidecar.sinks.exposition import HistogramFamily
from monitor.sidecar.sinks.instruments import Instruments
from monitor.sidecar.webhooks.sender import PostResult
from monitor.stream.decode import REASONS
from monitor.types import AlarmState, BlindReason, MessageResult

DEPLOY = Path(__file__).parents[2] / "deploy"
PROMETHEUS = DEPLOY / "prometheus"
NEVER_SILENT = {"Watchdog"}  # its silence is the alarm: it means that Prometheus does not evaluate these rules


def load(name: str) -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load((PROMETHEUS / name).read_text())
    return content


def rules() -> list[dict[str, Any]]:
    return [rule for group in load("cfmon.rules.yml")["groups"] for rule in group["rules"]]


ALERTS = [rule["alert"] for rule in rules()]


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is missing (Debian: prometheus)")
@pytest.mark.parametrize(
    "arguments",
    [
        ("check", "rules", "--lint-fatal", "cfmon.rules.yml"),
        ("check", "config", "--lint-fatal", "prometheus.yml"),
        ("test", "rules", "cfmon.rules.test.yml"),
    ],
    ids=" ".join,
)
def test_promtool_is_content(arguments: tuple[str, ...]) -> None:
    done = subprocess.run(["promtool", *arguments], cwd=PROMETHEUS, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@cache
def expectations() -> dict[str, set[bool]]:
    """For each alert whether the promtool tests expect it firing (True) and silent (False)."""
    seen: dict[str, set[bool]] = {alert: set() for alert in ALERTS}
    for test in load("cfmon.rules.test.yml")["tests"]:
        for case in test.get("alert_rule_test", []):
            seen[case["alertname"]].add(bool(case["exp_alerts"]))
        for case in test.get("promql_expr_test", []):
            matcher = re.search(r'alertname=~?"([^"]+)"', case["expr"])
            assert matcher, case["expr"]
            firing = " ".join(sample["labels"] for sample in case["exp_samples"])
            for alert in matcher[1].split("|"):
                seen[alert].add(f'alertname="{alert}"' in firing)
    return seen


@pytest.mark.parametrize("alert", ALERTS)
def test_promtool_sees_every_rule_firing_and_silent(alert: str) -> None:
    assert expectations()[alert] == ({True} if alert in NEVER_SILENT else {True, False})


@pytest.mark.parametrize("rule", rules(), ids=ALERTS)
def test_an_alert_explains_itself(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in {"critical", "warning", "none"}
    assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}
    base, name = rule["annotations"]["runbook_url"].split("/runbooks/")
    assert name == rule["alert"]
    assert base.startswith("{{ with $externalLabels.monitor_url }}{{ . }}{{ else }}http://")
    runbook = (DEPLOY / "runbooks" / f"{rule['alert']}.md").read_text()
    assert runbook.startswith(f"# {rule['alert']}\n")
    for part in ("**What it means.**", "**How to see it", "**What to do**"):
        assert part in runbook


@pytest.mark.parametrize("rule", rules(), ids=ALERTS)
def test_no_rule_relies_on_one_name_of_a_job(rule: dict[str, Any]) -> None:
    assert set(re.findall(r'job\S+"', rule["expr"])) <= {'job=~".*cfmon.*"'}


@pytest.mark.parametrize("alert", ["CfmonAlarmCritical", "CfmonAlarmWarning"])
def test_what_pages_a_person_has_the_numbers_and_a_link(alert: str) -> None:
    """How they read, with values and without, is in the promtool tests."""
    said = next(rule["annotations"] for rule in rules() if rule["alert"] == alert)
    for text in (said["summary"], said["description"]):
        numbers = {"cfmon_formula_value", "cfmon_formula_threshold", "cfmon_alternative_value"}
        assert set(metrics_named_in(text)) == numbers
        assert text.count("unknown{{ end }}") == len(numbers)
    assert said["description"].endswith("/agent?name={{ $labels.agent | urlquery }}")


def test_the_links_of_the_compose_file_lead_to_where_it_publishes_the_monitor() -> None:
    config = load("prometheus.yml")
    url = config["global"]["external_labels"]["monitor_url"]
    (published,) = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]["cfmon"]["ports"]
    assert url == f"http://{published.rsplit(':', 1)[0]}"
    (dropped,) = config["alerting"]["alert_relabel_configs"]
    assert dropped == {"action": "labeldrop", "regex": "monitor_url"}  # no receiver groups by it


def test_no_runbook_is_without_its_alert() -> None:
    assert sorted(page.stem for page in (DEPLOY / "runbooks").glob("*.md")) == sorted(ALERTS)


def test_links_between_runbooks_lead_somewhere() -> None:
    for page in (DEPLOY / "runbooks").glob("*.md"):
        for target in re.findall(r"\]\(([^)]+)\)", page.read_text()):
            assert (page.parent / target).is_file(), f"{page.name} links to {target}"


# ---- what the rules name exists ----


def metrics() -> dict[str, set[str]]:
    """The labels of every metric: of those on the registry, and of those that are written out beside it."""
    instruments = Instruments(CollectorRegistry())
    families = instruments._families  # noqa: SLF001 - the labels of a metric without series are in no exposition
    found = {name: set(series.labels) for series in families for name in series._names}  # noqa: SLF001 - likewise
    for name, collector in instruments._registry._names_to_collectors.items():  # noqa: SLF001 - likewise
        assert isinstance(collector, MetricWrapperBase | HistogramFamily)
        if isinstance(collector, HistogramFamily):
            found[name] = set(collector.labels)
        else:
            found[name] = set(collector._labelnames)  # noqa: SLF001 - likewise
    return found


METRICS = metrics()
VALUES: dict[tuple[str, str], frozenset[str]] = {
    ("cfmon_alarm_state", "state"): frozenset(get_args(AlarmState)),
    ("cfmon_blind", "reason"): frozenset(get_args(BlindReason)),
    ("cfmon_messages_total", "result"): frozenset(get_args(MessageResult)),
    ("cfmon_webhook_posts_total", "result"): frozenset(get_args(PostResult)),
    ("cfmon_rejected_total", "reason"): REASONS | {"too_many_agents"},
}


def metrics_named_in(text: str) -> list[str]:
    return re.findall(r"\bcfmon_[a-z0-9_]+\b", text)


def test_every_metric_named_in_rules_tests_and_runbooks_exists() -> None:
    pages = [*PROMETHEUS.glob("cfmon.*.yml"), *(DEPLOY / "runbooks").glob("*.md")]
    named = {metric for page in pages for metric in metrics_named_in(page.read_text())}
    assert len(named) > len(VALUES)
    assert named <= set(METRICS)


@pytest.mark.parametrize("rule", rules(), ids=ALERTS)
def test_every_label_and_every_value_named_in_a_rule_exists(rule: dict[str, Any]) -> None:
    kept = {"job", "instance"}
    for metric, matchers in re.findall(r"\b(cfmon_[a-z_]+)\{([^}]*)\}", rule["expr"]):
        for label, _, values in re.findall(r'(\w+)(=~|!~|!=|=)"([^"]*)"', matchers):
            assert label in METRICS[metric]
            assert set(values.split("|")) <= VALUES.get((metric, label), {values})
    known = kept.union(*(METRICS[metric] for metric in metrics_named_in(rule["expr"])))
    grouped = {name for group in re.findall(r"\b(?:by|on) \(([^)]+)\)", rule["expr"]) for name in group.split(", ")}
    assert grouped <= known
    told = {name for text in rule["annotations"].values() for name in re.findall(r"\$labels\.(\w+)", text)}
    assert told <= (grouped | kept)


def test_the_rules_leave_out_the_reasons_that_the_table_of_reasons_says() -> None:
    left_out = {
        rule["alert"]: set(re.findall(r'cfmon_blind\{reason!~"([^"]+)"', rule["expr"])[0].split("|"))
        for rule in rules()
        if "cfmon_blind{reason!~" in rule["expr"]
    }
    others = {reason for reason, each in BLINDNESS.items() if each.alert != "CfmonFormulaBlind"}
    # An agent is reported as silent in the middle of an episode only; the other marks say that it is not, or why.
    assert left_out == {"CfmonFormulaBlind": others, "CfmonAgentSilent": MARKS - {"stale"}}


def test_every_reason_for_blindness_has_a_row_in_the_runbook() -> None:
    runbook = (DEPLOY / "runbooks" / "CfmonFormulaBlind.md").read_text()
    rows = set(re.findall(r"(?m)^\| `(\w+)` \|", runbook))
    assert rows == {reason for reason, each in BLINDNESS.items() if each.alert == "CfmonFormulaBlind"}
