"""Damage to what the monitor keeps, as its operator sees it: in the log, the status, the metrics and the formulas."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from monitor.model import MDP
from monitor.sidecar.pipeline import SKIPPED
from tests.processes import fork_monitor
from tests.servers import Mosquitto, Sidecar, end, wait_until
from tests.sidecar.project import CONFIG, write_project
from tests.sidecar.running import inside, publish, steps, subscriber
from tests.tiers import first

RASH, CAREFUL = 0, 1
DANGER = [(0, RASH), (1, CAREFUL)]
"""Enough for the alarm to fire."""


@pytest.fixture
def config(tmp_path: Path, corridor: MDP, broker: Mosquitto) -> Path:
    return write_project(tmp_path / "project", corridor, CONFIG.replace("mqtt://127.0.0.1:1", broker.url))


@contextmanager
def started(config: Path) -> Iterator[Sidecar]:
    """`cfmon run`, connected; it need not see anything."""
    log = config.parent / "sidecar.log"
    log.write_bytes(b"")
    process = fork_monitor("run", str(config), log=log)
    running = Sidecar(process, log)
    try:
        wait_until(lambda: process.poll() is not None or "status page at" in running.log, "it serves")
        assert process.poll() is None, running.log
        wait_until(lambda: running.metric("cfmon_mqtt_connected") == 1, "it is connected")
        yield running
    finally:
        end(process)


def status(running: Sidecar) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(running.get("/api/status"))
    return told


def removed(log: Path) -> None:
    log.unlink()


def cut_off(log: Path) -> None:
    os.truncate(log, log.stat().st_size - 2 * (4096 + 24))


def flipped(log: Path) -> None:
    content = bytearray(log.read_bytes())
    content[len(content) * 2 // 3] ^= 1
    log.write_bytes(content)


@pytest.mark.parametrize("harm", first(1, [flipped, cut_off, removed]))
def test_a_log_that_lost_its_end_is_reported_counted_and_makes_blind(
    config: Path, broker: Mosquitto, harm: Callable[[Path], None]
) -> None:
    store = config.parent / "var" / "cfmon.sqlite"
    with subscriber(broker) as listening:
        with started(config) as running:
            publish(broker, steps(DANGER[:1]))
            wait_until(lambda: heard(running) == 1, "the first step")
            assert status(running)["store_damage"] == ""
            assert running.metric("cfmon_store_damage_total") == 0
            assert running.stop() == 0  # what was kept so far is in the database itself
        with started(config) as running:
            assert status(running)["store_damage"] == ""
            publish(broker, steps(DANGER)[1:])
            fired = wait_until(listening.alerts, "the alarm")
            end(running.process, with_signal=9)
        harm(store.with_name("cfmon.sqlite-wal"))
        with started(config) as running:
            assert "transactions that were written are missing" in running.log
            assert "transactions that were written are missing" in status(running)["store_damage"]
            assert running.metric("cfmon_store_damage_total") == 1
            assert (running.metric("cfmon_last_store_damage_timestamp_seconds") or 0) > 1e9
            wait_until(lambda: running.metric(BLIND) == 1, "the formula is blind for it")
            assert running.metric("cfmon_store_ok") == 1
            told = json.loads(running.get("/api/agents/ada"))
            assert "the store was damaged" in json.dumps(told)
            publish(broker, steps([(0, RASH), *DANGER], episode="two"))
            wait_until(lambda: running.metric(BLIND) == 0, "a new episode is seen")
        told = [alert for alert in listening.alerts() if alert["id"] == fired[0]["id"]]
        contents = {(alert["revision"], alert["state"], alert["blind"]) for alert in told}
        assert len(contents) == len({alert["revision"] for alert in told}), "no revision is given to two things"
        assert max(alert["revision"] for alert in told) > SKIPPED


BLIND = 'cfmon_blind{agent="ada",formula="watch",reason="dropped"}'


def heard(running: Sidecar) -> float | None:
    return running.metric('cfmon_messages_total{result="accepted"}')


def test_files_removed_while_it_runs_are_reported_and_rewritten(config: Path, broker: Mosquitto) -> None:
    store = config.parent / "var" / "cfmon.sqlite"
    with inside(config) as running:
        running.until_ready()
        publish(broker, steps(DANGER))
        wait_until(lambda: running.http.get("/api/alarms").json(), "the alarm")
        store.unlink()
        wait_until(store.exists, "it is there again")
        shown = wait_until(lambda: running.http.get("/api/status").json()["store_damage"], "it is told")
        assert shown == "cfmon.sqlite was removed while it was in use"
        wait_until(lambda: running.metric("cfmon_store_ok") == 1, "the store works again")
        assert running.metric("cfmon_store_damage_total") == 1
        assert running.metric("cfmon_store_errors_total") == 1
    with inside(config) as running:
        assert running.http.get("/api/status").json()["store_damage"] == ""
        assert running.http.get("/api/alarms").json()


def test_an_object_altered_before_or_while_it_runs_is_rewritten_and_reported(
    config: Path, caplog: pytest.LogCaptureFixture
) -> None:
    objects = config.parent / "var" / "objects"
    with inside(config):
        written = {path: path.read_bytes() for path in objects.iterdir()}
    altered, gone = list(written)[:2]
    altered.write_bytes(b"not a model")
    with inside(config) as running:
        assert altered.read_bytes() == written[altered]
        assert f"objects/{altered.name} was removed or altered, and is rewritten" in caplog.text
        gone.unlink()
        wait_until(gone.exists, "what was removed is there again")
        assert gone.read_bytes() == written[gone]
        content = bytearray(written[altered])
        content[-1] ^= 1
        before = altered.stat()
        altered.write_bytes(content)
        os.utime(altered, ns=(before.st_atime_ns, before.st_mtime_ns))  # as if nothing had happened to it
        wait_until(lambda: altered.read_bytes() == written[altered], "what was altered is as it was")
        wait_until(lambda: running.metric("cfmon_store_damage_total") == 3, "all three are counted")
