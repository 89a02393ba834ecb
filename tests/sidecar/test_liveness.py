"""How one sees from outside that the monitor lives, sees, hangs, begins or is gone: probes, watchdog, last will."""

from __future__ import annotations

import asyncio
import json
import signal
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from monitor.model import MDP
from monitor.sidecar import service
from monitor.sidecar.effects import Effects
from monitor.sidecar.events import Event, Message
from monitor.sidecar.pipeline import Pipeline
from monitor.sidecar.recovery import Recovered, take_up
from monitor.sidecar.store.journal import Journal
from monitor.sidecar.systemd import ServiceManager, reporting
from tests.servers import PATIENCE, Mosquitto, sidecar, wait_until
from tests.sidecar.project import CONFIG, write_project
from tests.sidecar.running import Inside, inside, publish, steps, subscriber
from tests.sidecar.test_systemd import Manager

RASH, CAREFUL, HOME = 0, 1, 5
WELL = (200, "ok")
get = partial(httpx.get, timeout=PATIENCE)


@pytest.fixture
def config(tmp_path: Path, corridor: MDP, broker: Mosquitto) -> Path:
    return write_project(tmp_path / "project", corridor, CONFIG.replace("mqtt://127.0.0.1:1", broker.url))


def probe(there: Inside, path: str) -> tuple[int, str]:
    answer = get(f"{there.url}{path}")
    return answer.status_code, answer.text


def until(there: Inside, path: str, expected: tuple[int, str]) -> None:
    wait_until(lambda: probe(there, path) == expected, f"{path} says {expected}")


def test_without_a_broker_it_is_alive_and_not_ready(tmp_path: Path, corridor: MDP) -> None:
    with inside(write_project(tmp_path, corridor, CONFIG)) as there:
        until(there, "/readyz", (503, "not connected to the broker"))
        until(there, "/healthz", WELL)


def test_when_the_broker_goes_and_comes_back_readiness_follows_and_life_does_not(
    config: Path, broker: Mosquitto
) -> None:
    with inside(config) as there:
        until(there, "/readyz", WELL)
        broker.kill()
        until(there, "/readyz", (503, "not connected to the broker"))
        until(there, "/healthz", WELL)
        broker.start()
        until(there, "/readyz", WELL)


def test_blind_in_every_formula_it_is_alive_and_not_ready(config: Path, broker: Mosquitto) -> None:
    with inside(config) as there:
        until(there, "/readyz", WELL)
        publish(broker, steps([(0, CAREFUL)] * 8)[7:])  # in the middle of an episode
        until(there, "/readyz", (503, "every formula is blind"))
        until(there, "/healthz", WELL)
        publish(broker, steps([(0, CAREFUL)], episode="two"))
        until(there, "/readyz", WELL)


def test_a_store_that_fails_is_reported_and_stops_neither_life_nor_sight(
    config: Path, broker: Mosquitto, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with inside(config) as there:
        until(there, "/readyz", WELL)
        for write in ("commit", "checkpoint"):
            monkeypatch.setattr(Journal, write, full)
        publish(broker, steps([(0, RASH)]))
        wait_until(lambda: "cfmon_store_ok 0.0" in probe(there, "/metrics")[1], "the metric tells")
        assert "No space left" in get(f"{there.url}/api/status").json()["store"]
        wait_until(lambda: get(f"{there.url}/api/alarms").json(), "the alarm fires all the same")
        until(there, "/healthz", WELL)
        until(there, "/readyz", WELL)
        monkeypatch.undo()
        wait_until(lambda: "cfmon_store_ok 1.0" in probe(there, "/metrics")[1], "the next heartbeat notes everything")


def test_while_it_takes_up_what_was_kept_it_is_alive_and_not_ready(
    config: Path, broker: Mosquitto, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = threading.Event()

    async def slowly(*arguments: Any, incomplete: str) -> Recovered:  # noqa: ANN401 - passed on
        progress: Callable[[int], None] = arguments[-1]
        while not go_on.is_set():
            progress(200)
            await asyncio.sleep(0.01)
        return await take_up(*arguments, incomplete=incomplete)

    with inside(config) as there:
        until(there, "/readyz", WELL)
        publish(broker, steps([(0, CAREFUL)]))
        wait_until(lambda: get(f"{there.url}/api/agents").json(), "there is something to keep")
    monkeypatch.setattr(service, "take_up", slowly)
    with inside(config) as there:
        until(there, "/readyz", (503, "restoring stored state: 200 events so far"))
        until(there, "/healthz", WELL)
        go_on.set()
        until(there, "/readyz", WELL)


def test_an_evaluation_that_hangs_while_steps_wait_fails_healthz_and_starves_the_watchdog(
    tmp_path: Path, config: Path, broker: Mosquitto, monkeypatch: pytest.MonkeyPatch
) -> None:
    hanging, go_on, step = threading.Event(), threading.Event(), Pipeline.step

    def hang(self: Pipeline, event: Event) -> Effects:
        if isinstance(event, Message):
            hanging.set()
            assert go_on.wait(PATIENCE)
        return step(self, event)

    name = str(tmp_path / "notify")
    manager = ServiceManager({"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "300000"})
    with Manager(name) as heard, inside(config) as there:
        until(there, "/readyz", WELL)
        condition = there.service.health
        with reporting(manager, condition.health, condition.readiness):
            heard.hear_until("WATCHDOG=1")
            monkeypatch.setattr(Pipeline, "step", hang)
            publish(broker, steps([(0, RASH), (1, CAREFUL)]))
            assert hanging.wait(PATIENCE)
            wait_until(lambda: probe(there, "/healthz")[0] == 503, "three heartbeats later healthz fails")
            assert probe(there, "/healthz")[1].startswith("no evaluation for ")
            while "WATCHDOG=1" in (last := heard.hear()):
                pass
            assert last[0].startswith("STATUS=no evaluation for ")
            go_on.set()
            until(there, "/healthz", WELL)
            heard.hear_until("WATCHDOG=1")


def test_the_service_manager_hears_of_start_life_reload_and_end(
    tmp_path: Path, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = str(tmp_path / "notify")
    monkeypatch.setenv("NOTIFY_SOCKET", name)
    monkeypatch.setenv("WATCHDOG_USEC", "1000000")
    with Manager(name) as heard, sidecar(config) as running:
        assert heard.hear() == ["READY=1"]
        assert heard.hear_until("STATUS=watching") == ["WATCHDOG=1", "STATUS=watching"]
        running.process.send_signal(signal.SIGHUP)
        heard.hear_until("RELOADING=1")
        heard.hear_until("READY=1")
        assert running.stop() == 0
        heard.hear_until("STOPPING=1")


def test_a_killed_monitors_alerts_stand_beside_its_will_until_it_comes_back_and_corrects_them(
    config: Path, broker: Mosquitto
) -> None:
    with sidecar(config) as running, subscriber(broker) as listening:
        publish(broker, steps([(0, RASH), (1, CAREFUL)]))
        wait_until(listening.alerts, "the alarm fires")
        running.process.kill()
        offline = b'{"state":"offline"}'
        wait_until(lambda: listening.received[-1][1] == offline, "the will is published")
    with subscriber(broker) as later:  # who asks now gets what is retained
        wait_until(lambda: len(later.received) == 2, "alert and will are retained")
        assert sorted(payload == offline for _, payload in later.received) == [False, True]
        assert later.alerts()[0]["state"] == "firing"
        with sidecar(config):
            publish(broker, steps([(0, RASH), (1, CAREFUL), (1, CAREFUL), (HOME, RASH), (HOME, RASH)])[2:])
            wait_until(lambda: later.alerts()[-1]["state"] == "resolved", "what stood there is corrected")
            assert len({alert["id"] for alert in later.alerts()}) == 1
            states = [json.loads(payload)["state"] for topic, payload in later.received if "/status/" in topic]
            assert states[:2] == ["offline", "online"]
