"""Every question that Grafana's files ask, in Debian's Prometheus, scraping `cfmon run`: each has an answer.

That is every panel, variable, annotation and alert rule. Most are answered while all is well. What is about trouble is
answered once there is trouble: real where it can be (steps and faults published to mosquitto, the broker killed, the
monitor ended), and otherwise from a second target that serves the sidecar's own metrics, fed by hand (a hang, a
question too large, doubt, a broken store, a configuration that is refused), as in the test of the rules themselves.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from monitor.sidecar.clock import read_clock
from monitor.types import Contradictions, Trust
from tests.deploy.chain import ALERTS, cfmon, hastened, publisher
from tests.deploy.grafana_files import asked, in_runbooks, runnable
from tests.deploy.small_world import DRIFT, EDGE, write_world
from tests.deploy.test_live_prometheus import WHILE_ALL_IS_WELL, Scene, Watcher, hanging_target, wait_for
from tests.servers import Prometheus, free_port, mosquitto, prometheus, wait_until
from tests.sidecar.watched import take
from tests.tiers import slow

TROUBLED = ALERTS - WHILE_ALL_IS_WELL
ABOUT_TROUBLE = {
    *(f"rule {alert}" for alert in TROUBLED),
    *(f"runbooks/{alert}, panel 2 When the alert was active, A" for alert in TROUBLED),
    "agent, annotation alarm firing",
    "agent, annotation blind",
    "agent, panel 4 Last alarm, A",
    "agent, panel 7 Why it was blind, A",
    "fleet, panel 8 Alerts now, A",
    "fleet, panel 14 Blind, by reason, A",
    "monitor, panel 16 How far off these rows are, A",
    "monitor, panel 16 How far off these rows are, B",
}
WITHOUT_THE_BROKER = ("BrokerDisconnected", "annotation blind", "Why it was blind")  # w1 is never blind before
EVERYBODY = "fleet, panel 10 Monitors and agents over time, B"
WITHOUT_A_MONITOR = ("rule CfmonDown", "runbooks/CfmonDown")
CLEAR, FIRING, BLIND, BLIND_FIRING, WATCHES, NOT_WATCHED, DOWN = "0", "16", "2", "18", "32", "1", "34"
FITS = Trust(doubted=False, log10_e=0.1, transitions=100)


@dataclass
class Questions:
    """Those still without an answer, by where they stand."""

    prometheus: Prometheus
    open: dict[str, str] = field(default_factory=asked)

    def answered(self, question: str) -> bool:
        """Whether there is data: for a variable a value to choose, else a number that is one."""
        question = runnable(question)
        if found := re.fullmatch(r"query_result\((.+)\)", question):
            return bool(self.prometheus.query(found[1]))
        if label := re.fullmatch(r"label_values\((.+), (\w+)\)", question):
            return bool(self.prometheus.get(f"label/{label[2]}/values", **{"match[]": label[1]}))
        return any(not math.isnan(float(series["value"][1])) for series in self.prometheus.query(question))

    def until(self, wanted: Callable[[str], bool], meanwhile: Callable[[], None]) -> None:
        """Let things go on until every question that is wanted has had an answer."""

        def look() -> bool:
            meanwhile()
            for place in [place for place, question in self.open.items() if wanted(place) and self.answered(question)]:
                del self.open[place]
            return not any(wanted(place) for place in self.open)

        wait_for(
            look, lambda: f"no answer: { {place: runnable(q) for place, q in self.open.items() if wanted(place)} }"
        )

    def shown(self, place: str, label: str = "") -> dict[str, str]:
        """What stands there now, by a label."""
        found = self.prometheus.query(runnable(asked()[place]))
        return {series["metric"].get(label, ""): series["value"][1] for series in found}

    def until_shown(self, states: dict[str, str], meanwhile: Callable[[], None]) -> None:
        """Let things go on until the fleet's page has these states of the agents, in its table and its timeline.

        w9 is the second target's: it stays as it is, whatever becomes of the monitor.
        """

        def look() -> bool:
            meanwhile()
            seen[:] = [self.shown(place, "agent") for place in ("fleet, panel 9 Agents now, A", EVERYBODY)]
            return seen == [states, states]

        seen: list[dict[str, str]] = []
        wait_for(look, lambda: f"{states} is not shown, but {seen}")


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[tuple[Scene, Path]]:
    with (
        mosquitto(tmp_path / "mosquitto") as broker,
        publisher(broker.port) as agents,
        hanging_target() as (stalling, stalling_at),
    ):
        listen = f"127.0.0.1:{free_port()}"
        config = write_world(tmp_path, broker.url, listen, learned=True)
        content = json.loads(config.read_text())
        content["formulas"][0] |= {"causal_model": "any", "bands": "always"}  # bounds and bands are shown too
        # Cheap to evaluate: on a slow machine steps may come faster than answers, and w1 would be blind (`deadline`).
        content["path"]["window"], content["bands"] = 4, {"draws": 8, "level": 0.5}
        config.write_text(json.dumps(content))
        targets = [listen, stalling_at]
        with prometheus(tmp_path / "prom", targets, rules=[hastened(tmp_path)], interval="500ms") as server:
            yield Scene(broker, agents, stalling, Watcher(server)), config


@slow
def test_every_question_has_an_answer(stage: tuple[Scene, Path]) -> None:
    here, config = stage
    server = here.watch.prometheus
    questions = Questions(server)
    assert questions.open.keys() >= ABOUT_TROUBLE

    def well() -> None:
        take(here.stalling, FITS, Contradictions(rows_tested=4), now=read_clock())
        here.well()

    def astray() -> None:
        """No faster than answers are given, and never late, however slow; w2 stays as silent as it was."""
        here.agents.step("w1", EDGE, DRIFT, episode="bad", time=None)

    with cfmon(config):
        wait_until(lambda: len(server.query("cfmon_mqtt_connected == 1")) == 2, "both targets are scraped")
        here.begin()
        questions.until(lambda place: place not in ABOUT_TROUBLE, well)
        assert len(in_runbooks()) > len(ALERTS)
        for question in in_runbooks().values():
            server.query(question)  # Prometheus refuses what it cannot read
        here.spoil()
        questions.until(lambda place: not any(end in place for end in WITHOUT_THE_BROKER + WITHOUT_A_MONITOR), here.ill)
        questions.until_shown({"w1": FIRING, "w2": BLIND, "w9": BLIND}, astray)
        here.broker.kill()
        questions.until(lambda place: not place.startswith(WITHOUT_A_MONITOR), well)
        questions.until_shown({"w1": BLIND_FIRING, "w2": BLIND, "w9": BLIND}, well)
    questions.until(lambda _place: True, well)
    questions.until_shown({"w1": NOT_WATCHED, "w2": NOT_WATCHED, "w9": BLIND}, well)
    assert questions.shown("agent, panel 1 Now, A") == {"": NOT_WATCHED}
    assert set(questions.shown("agent, panel 6 Each formula over time, A", "formula").values()) == {NOT_WATCHED}
    assert sorted(questions.shown(EVERYBODY[:-1] + "A", "instance").values()) == sorted([DOWN, WATCHES])
    assert questions.shown("fleet, panel 6 Monitors down, A") == {"": "1"}
