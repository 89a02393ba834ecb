"""The whole chain from Debian's packages: mosquitto, `cfmon run`, Prometheus, Alertmanager, and what is at its end.

The shipped rules and routes, in a hurry. Seen at the receiver, and nowhere else: an alarm that begins and ends; a
monitor that is killed while another alarm fires; a Prometheus that is killed. `receiver.py` is the stand-in for pager
and dead man's switches that the compose file starts.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.chain import ALERTS, Publisher, cfmon, hastened, publisher
from tests.deploy.small_world import DRIFT, EDGE, PARK, ROAD, STAY, write_world
from tests.servers import alertmanager, end, free_port, mosquitto, need, prometheus, wait_until

SHIPPED = Path(__file__).parents[2] / "deploy" / "alertmanager"
ROUTES: dict[str, Any] = yaml.safe_load((SHIPPED / "alertmanager.yml").read_text())
PATIENCE = 300.0
SILENCE = 8.0
"""Seconds without a sign of life after which the switches of this test complain."""


@dataclass
class Receiver:
    """The end of the chain: what arrived there, a line each."""

    address: str
    output: Path

    @property
    def lines(self) -> list[str]:
        return self.output.read_text().splitlines()

    def until(self, pattern: str, *, after: int = 0) -> int:
        """Wait for a line that begins so, from line `after` on; returns the number of the line behind it."""

        def found() -> int:
            return next((n + 1 for n, line in enumerate(self.lines) if n >= after and re.match(pattern, line)), 0)

        return wait_until(found, f"{pattern}; there are:\n" + "\n".join(self.lines), patience=PATIENCE)

    def seen(self, pattern: str, *, after: int = 0) -> bool:
        return any(re.match(pattern, line) for line in self.lines[after:])


@contextmanager
def receiver(folder: Path) -> Iterator[Receiver]:
    there = Receiver(f"127.0.0.1:{free_port()}", folder / "received")
    command = [sys.executable, str(SHIPPED / "receiver.py"), there.address, str(SILENCE)]
    with there.output.open("wb") as output:
        process = subprocess.Popen(command, stdout=output)
    try:
        there.until("listening on ")
        yield there
    finally:
        end(process)


def hastened_routes(folder: Path, address: str) -> Path:
    """The shipped routes with every time shortened, sent to `address`, and nothing else changed."""
    text = (SHIPPED / "alertmanager.yml").read_text()
    text, times = re.subn(r"(group_wait|group_interval|repeat_interval): (?!0s)\w+", r"\1: 1s", text)
    text, places = re.subn(r"http://receiver:9095/", f"http://{address}/", text)
    assert times > 6
    assert places == len(ROUTES["receivers"])
    path = folder / "alertmanager.yml"
    path.write_text(text)
    return path


def test_an_alarm_arrives_and_resolves_a_killed_monitor_and_a_killed_prometheus_are_noticed(tmp_path: Path) -> None:
    listen = f"127.0.0.1:{free_port()}"
    with (
        mosquitto(tmp_path / "mosquitto") as broker,
        publisher(broker.port) as agents,
        receiver(tmp_path) as end_of_chain,
        alertmanager(tmp_path / "alertmanager", hastened_routes(tmp_path, end_of_chain.address)) as address,
        ExitStack() as measuring,
    ):
        config = write_world(tmp_path, broker.url, listen)
        measuring.enter_context(
            prometheus(
                tmp_path / "prometheus",
                [listen],
                rules=[hastened(tmp_path)],
                interval="500ms",
                alertmanagers=[address],
            )
        )
        with cfmon(config) as monitor:
            end_of_chain.until("switch heard chain")
            end_of_chain.until("switch heard monitors")
            walk(agents, episode="one", states=[(ROAD, DRIFT), (EDGE, DRIFT)])
            fires = end_of_chain.until("critical firing CfmonAlarmCritical agent=w1 formula=careful_would_have")
            agents.step("w1", EDGE, STAY)
            agents.step("w1", PARK, STAY)
            closes = end_of_chain.until("critical resolved CfmonAlarmCritical agent=w1", after=fires)

            agents.step("w1", PARK, STAY, truncated=True)
            walk(agents, episode="two", states=[(ROAD, DRIFT), (EDGE, DRIFT)])
            fires = end_of_chain.until("critical firing CfmonAlarmCritical agent=w1", after=closes)
            monitor.kill()
        killed = len(end_of_chain.lines)
        down = end_of_chain.until(f"critical firing CfmonDown instance={listen}", after=fires)
        end_of_chain.until("switch SILENT monitors", after=fires)
        assert not end_of_chain.seen("critical resolved CfmonAlarmCritical", after=fires), "no all-clear from the dead"
        with cfmon(config):
            end_of_chain.until("critical resolved CfmonDown", after=down)
            end_of_chain.until("switch heard monitors", after=killed)
            agents.step("w1", EDGE, STAY)
            agents.step("w1", PARK, STAY)
            end_of_chain.until("critical resolved CfmonAlarmCritical agent=w1", after=fires)
            before = len(end_of_chain.lines)
            measuring.close()  # Prometheus is gone
            end_of_chain.until("switch SILENT chain", after=before)


def walk(agents: Publisher, *, episode: str, states: list[tuple[int, int]]) -> None:
    """A new episode of w1."""
    agents.episode = episode
    agents.seq.pop("w1", None)
    for state, action in states:
        agents.step("w1", state, action)


# ---- the shipped routes ----


def test_amtool_is_content() -> None:
    command = [need("amtool", "prometheus-alertmanager"), "check-config", str(SHIPPED / "alertmanager.yml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("labels", "receivers"),
    [
        (["alertname=Watchdog", "severity=none"], "chain_switch"),
        (["alertname=CfmonWatchdog", "severity=none"], "monitors_switch"),
        (["alertname=CfmonAlarmCritical", "severity=critical"], "critical"),
        (["alertname=CfmonDown", "severity=critical"], "critical"),
        (["alertname=CfmonFormulaBlind", "severity=warning"], "warning"),
        (["alertname=Other", "severity=curious"], "warning"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else value,
)
def test_every_alert_has_somewhere_to_go(labels: list[str], receivers: str) -> None:
    command = [need("amtool", "prometheus-alertmanager"), "config", "routes", "test"]
    command += [f"--config.file={SHIPPED / 'alertmanager.yml'}", f"--verify.receivers={receivers}", *labels]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_named_in_the_routes_exists() -> None:
    named = set(re.findall(r"alertname = (\w+)", (SHIPPED / "alertmanager.yml").read_text()))
    assert {"Watchdog", "CfmonWatchdog"} <= named <= ALERTS


def test_the_end_of_a_watchdog_is_no_sign_of_life() -> None:
    switches = [each for each in ROUTES["receivers"] if each["name"].endswith("_switch")]
    assert [hook["send_resolved"] for each in switches for hook in each["webhook_configs"]] == [False, False]
