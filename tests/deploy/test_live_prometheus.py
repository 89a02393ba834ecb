"""The shipped rules in Debian's Prometheus, scraping `cfmon run`: each is seen silent, firing, and silent again.

Conditions are brought about for real: by steps and faults published to mosquitto, by killing the broker, by ending
the monitor. Nine are not: the running monitor cannot be made to hang, a question too large takes minutes, doubt
stays, an agent rests for minutes before it is idle and acts for as long before it departs from its policy, overload
lasts, and the store, the configuration and a webhook are broken in tests of their own. For these a second target serves
the sidecar's own metrics, fed by hand. Watchdog is never silent and CfmonWatchdog not while all is well; that is their
purpose.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from monitor.runtime.admission import ESTABLISHED
from monitor.sidecar.clock import read_clock
from monitor.sidecar.sinks.metrics import Metrics
from monitor.sidecar.sinks.sink import FleetShard
from monitor.stream.shard import Shard
from monitor.types import (
    Blind,
    Contradictions,
    Deviates,
    FormulaSpec,
    Instant,
    Judged,
    Skipped,
    Trust,
    Verdict,
    WrongRow,
)
from tests.deploy.chain import ALERTS, Publisher, cfmon, hastened, publisher
from tests.deploy.small_world import DRIFT, EDGE, PARK, ROAD, STAY, write_world
from tests.servers import Mosquitto, Prometheus, free_port, mosquitto, prometheus, wait_until
from tests.sidecar.watched import metrics_of, take
from tests.tiers import slow

WHILE_ALL_IS_WELL = {"Watchdog", "CfmonWatchdog"}
BY_STREAM = ALERTS - WHILE_ALL_IS_WELL - {"CfmonBrokerDisconnected", "CfmonDown"}
PATIENCE = 300.0
UNDECIDED = Judged("w9", "any", Verdict("true", "exact", "gumbel", ()), episode=0, seq=0, time=0.0)


@contextmanager
def hanging_target() -> Iterator[tuple[Metrics, str]]:
    """The sidecar's metrics without a sidecar, and where they are served."""
    metrics = metrics_of([FormulaSpec("any", "true")], agents=1)
    metrics.connected(up=True)
    metrics.watch_posts("pager", lambda: 0)
    show_shard(metrics, of=1)

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.end_headers()
            self.wfile.write(metrics.exposition())

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield metrics, f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


WRONG = Contradictions((WrongRow("park", "stay", 4.0, "road", 9, 30, 0.1, 0),), rows_rejected=1, rows_tested=4)


@dataclass
class Watcher:
    """Looks at Prometheus, lets something happen between two looks, and remembers what fired."""

    prometheus: Prometheus
    fired: set[str] = field(default_factory=set)
    instances: list[dict[str, Any]] = field(default_factory=list)

    def firing(self) -> set[str]:
        alerts = [alert for alert in self.prometheus.get("alerts")["alerts"] if alert["state"] == "firing"]
        self.instances += alerts
        names = {alert["labels"]["alertname"] for alert in alerts}
        self.fired |= names
        return names

    def until_fired(self, wanted: set[str], meanwhile: Callable[[], None]) -> None:
        def look() -> bool:
            meanwhile()
            seen.update(self.firing())
            return wanted <= seen

        seen: set[str] = set()
        wait_for(look, lambda: f"not seen firing: {sorted(wanted - seen)}")

    def until_silent(self, meanwhile: Callable[[], None]) -> None:
        """Silence counts only while the watchdog barks: else nothing is evaluated."""

        def look() -> bool:
            meanwhile()
            left.clear()
            left.update(self.firing() ^ WHILE_ALL_IS_WELL)
            return not left

        left: set[str] = set()
        wait_for(look, lambda: f"still firing (or, of those that always fire, silent): {sorted(left)}")

    def texts(self, alert: str) -> set[str]:
        found = [one["annotations"] for one in self.instances if one["labels"]["alertname"] == alert]
        return {text for annotations in found for text in annotations.values()}


def show_shard(metrics: Metrics, *, of: int) -> None:
    """Let these be the metrics of the first of so many shards."""
    metrics._on.shards.clear()  # noqa: SLF001 - a running monitor's part does not change
    metrics._on.show_part(FleetShard("fleet", Shard(0, of)))  # noqa: SLF001 - likewise


def wait_for(happened: Callable[[], bool], what: Callable[[], str]) -> None:
    """`wait_until`, with words that are only known at the end."""
    deadline = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < deadline, what()
        time.sleep(0.1)


@dataclass
class Scene:
    """Everything that runs, and the two states it can be in."""

    broker: Mosquitto
    agents: Publisher
    stalling: Metrics
    watch: Watcher

    def begin(self) -> None:
        """w1 is within an episode; w2 ends one, so that its silence is no trouble."""
        for count in range(ESTABLISHED):  # else they would make room for w3 when they fall silent
            self.agents.step("w1", PARK, STAY)
            self.agents.step("w2", PARK, STAY, truncated=count == ESTABLISHED - 1)

    def well(self) -> None:
        self.stalling.evaluated(0.0, [], read_clock())
        if self.agents.client.is_connected():
            self.agents.step("w1", PARK, STAY)

    def spoil(self) -> None:
        """A new episode of w1 goes astray; w2 loses steps and falls silent; w3 is one agent too many."""
        self.agents.step("w1", PARK, STAY, truncated=True)
        self.agents.seq.clear()
        self.agents.step("w1", ROAD, DRIFT, episode="bad")
        self.agents.step("w2", PARK, STAY, episode="bad")
        self.agents.seq["w2"] += 4
        self.agents.step("w2", PARK, STAY, episode="bad")

    def ill(self) -> None:
        self.stalling.evaluated(0.0, [], Instant(time.time() - 60.0, 0.0))
        doubt, rest = Trust(doubted=True, log10_e=3.1, transitions=500), Blind("w9", "any", "idle")
        take(self.stalling, UNDECIDED, doubt, rest, Skipped("w9", "any", 1), now=read_clock())
        take(self.stalling, Deviates("w9", 0.5, 100), WRONG, now=read_clock())
        self.stalling.store_failed()
        self.stalling.store_damaged(1, read_clock())
        self.stalling.reloaded(ok=False)
        self.stalling.watch_posts("pager", lambda: 1)
        show_shard(self.stalling, of=2)
        self.agents.step("w1", EDGE, DRIFT, episode="bad")
        self.agents.noise("w1")
        self.agents.step("w3", PARK, STAY)

    def mend(self) -> None:
        """Both episodes end: w1 steps back and is safe, w2 is allowed to be silent."""
        awake = Blind("w9", "any", None)
        fits = Trust(doubted=False, log10_e=0.0, transitions=0)
        take(self.stalling, fits, awake, Deviates("w9", 0.0, 100), Contradictions(rows_tested=4), now=read_clock())
        self.stalling.store_works()
        self.stalling.reloaded(ok=True)
        self.stalling.watch_posts("pager", lambda: 0)
        show_shard(self.stalling, of=1)
        self.agents.step("w1", EDGE, STAY, episode="bad")
        self.agents.step("w1", PARK, STAY, episode="bad", truncated=True)
        self.agents.seq["w1"] = -1
        self.agents.episode = "second"  # under the first one, long over, its steps would be stale
        self.agents.step("w2", PARK, STAY, episode="bad", truncated=True)


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[tuple[Scene, Path]]:
    with (
        mosquitto(tmp_path / "mosquitto") as broker,
        publisher(broker.port) as agents,
        hanging_target() as (stalling, stalling_at),
    ):
        listen = f"127.0.0.1:{free_port()}"
        config = write_world(tmp_path, broker.url, listen)
        with prometheus(
            tmp_path / "prom", [listen, stalling_at], rules=[hastened(tmp_path)], interval="500ms"
        ) as server:
            yield Scene(broker, agents, stalling, Watcher(server)), config


@slow
def test_every_rule_is_seen_silent_firing_and_silent(scene: tuple[Scene, Path]) -> None:
    here, config = scene
    watch = here.watch
    with cfmon(config):
        wait_until(lambda: len(watch.prometheus.query("cfmon_mqtt_connected == 1")) == 2, "both targets are scraped")
        here.begin()
        watch.until_silent(here.well)
        here.spoil()
        watch.until_fired(BY_STREAM, here.ill)
        here.mend()
        watch.until_silent(here.well)
        here.broker.kill()
        watch.until_fired({"CfmonBrokerDisconnected"}, here.well)
        here.broker.start()
        watch.until_silent(here.well)
    watch.until_fired({"CfmonDown"}, here.well)
    wait_until(lambda: "CfmonWatchdog" not in watch.firing(), "the dead monitor's watchdog is silent")
    with cfmon(config):
        watch.until_silent(here.well)
    assert watch.fired == ALERTS
    check_what_was_said(watch)


def check_what_was_said(watch: Watcher) -> None:
    number = r"-?[\d.]+(e-\d+)?"
    told = (
        rf"w1: critical alarm careful_would_have is firing. Value: {number}, threshold: {number}, alternative: {number}"
    )
    assert any(re.fullmatch(told, text) for text in watch.texts("CfmonAlarmCritical"))
    told = rf"w1: alarm likely_safe is firing. Value: {number}, threshold: {number}, alternative: none or unknown"
    assert any(re.fullmatch(told, text) for text in watch.texts("CfmonAlarmWarning"))
    assert "w2: careful_would_have is blind (gap)" in watch.texts("CfmonFormulaBlind")
    assert any("(malformed)" in text for text in watch.texts("CfmonMessagesRejected"))
    assert {one["labels"].get("agent") for one in watch.instances} == {None, "w1", "w2", "w9"}
    for text in set().union(*(watch.texts(alert) for alert in ALERTS)):
        assert "<error" not in text
        assert "<no value>" not in text
        assert "  " not in text  # a label that is not there leaves a hole
