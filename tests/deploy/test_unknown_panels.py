"""Panels that count say "none" only where all was looked at: asked of promtool, with series as Prometheus has them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.deploy.grafana_files import BOARDS, panels

pytestmark = pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is missing (Debian: prometheus)")

EXPRESSIONS = {
    f"{board}: {panel['title']}": panel["targets"][0]["expr"]
    .replace("$instance", ".*")
    .replace("$job", "cfmon")
    .replace("$agent", "w1")
    for board in ("fleet", "agent")
    for panel in panels(BOARDS[board])
    if panel["type"] == "stat"
}
FLEET = ("fleet: Critical alarms", "fleet: Other alarms", "fleet: Blind agents")
FIRING = "agent: Formulas firing"
WELL = {
    'up{job="cfmon", instance="m"}': "1",
    'cfmon_mqtt_connected{job="cfmon", instance="m"}': "1",
    'cfmon_last_evaluation_timestamp_seconds{job="cfmon", instance="m"}': "600",
    'cfmon_last_message_timestamp_seconds{job="cfmon", instance="m", agent="w1"}': "600",
    'cfmon_alarm_state{job="cfmon", instance="m", agent="w1", formula="f", severity="critical", state="firing"}': "0",
}
"""At second 600 one monitor watches one agent."""
FIRES = {name: "1" if "alarm_state" in name else value for name, value in WELL.items()}
BLIND = 'cfmon_blind{job="cfmon", instance="m", agent="w1", formula="f", reason="gap"}'
IDLE = BLIND.replace("gap", "idle")
OTHER_DOWN = 'up{job="cfmon", instance="other"}'
UP, CONNECTED, JUDGED = list(WELL)[:3]


def answers(folder: Path, series: dict[str, str], expected: dict[str, float | None]) -> None:
    """Have promtool compare; None: there is no answer."""
    tests = [
        {
            "expr": EXPRESSIONS[name],
            "eval_time": "10m",
            "exp_samples": [] if value is None else [{"labels": "{}", "value": value}],
        }
        for name, value in expected.items()
    ]
    inputs = [{"series": name, "values": f"{value}x20"} for name, value in series.items()]
    document = {"tests": [{"interval": "1m", "input_series": inputs, "promql_expr_test": tests}]}
    (folder / "test.yml").write_text(yaml.safe_dump(document, width=10_000))
    done = subprocess.run(["promtool", "test", "rules", "test.yml"], cwd=folder, capture_output=True, text=True)  # noqa: PLW1510
    assert done.returncode == 0, done.stdout + done.stderr


def test_none_where_all_is_well(tmp_path: Path) -> None:
    answers(tmp_path, WELL, {**dict.fromkeys(FLEET, 0.0), FIRING: 0.0})
    answers(tmp_path, {**WELL, IDLE: "1"}, {**dict.fromkeys(FLEET[:2], 0.0), FIRING: 0.0})


@pytest.mark.parametrize(
    "change",
    [{CONNECTED: "0"}, {JUDGED: "500"}, {OTHER_DOWN: "0"}, {BLIND: "1"}],
    ids=lambda change: next(iter(change)),
)
def test_unknown_where_something_is_not_seen(tmp_path: Path, change: dict[str, str]) -> None:
    unknown: dict[str, float | None] = dict.fromkeys(FLEET[:2], -1.0)
    unknown[FLEET[2]] = {CONNECTED: 0.0, BLIND: 1.0}.get(next(iter(change)), -1.0)
    answers(tmp_path, {**WELL, **change}, {**unknown, FIRING: -1.0})


def test_unknown_where_no_agent_is_known(tmp_path: Path) -> None:
    nobody = {name: value for name, value in WELL.items() if "agent=" not in name}
    answers(tmp_path, nobody, {**dict.fromkeys(FLEET, -1.0), FIRING: None})


def test_what_fires_is_counted_also_where_not_all_is_seen(tmp_path: Path) -> None:
    answers(tmp_path, {**FIRES, BLIND: "1", OTHER_DOWN: "0"}, {FLEET[0]: 1.0, FIRING: 1.0})


def test_without_a_monitor_nothing_is_said(tmp_path: Path) -> None:
    answers(tmp_path, {}, {**dict.fromkeys(FLEET), FIRING: None})
