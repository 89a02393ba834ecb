"""The whole sidecar against real servers: `cfmon run`, mosquitto, a publisher, a subscriber, Prometheus."""

from __future__ import annotations

import json
import re
import signal
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from monitor.audit.partition import ALERTS, alert_line
from monitor.audit.plan import days_of, opened, partitions
from monitor.audit.schedule import run_all
from monitor.errors import ConfigError, RecordingError
from monitor.evidence.document import read_evidence
from monitor.model import MDP
from monitor.sidecar.config.load import assemble
from monitor.sidecar.recording import Recorder
from monitor.sidecar.recording_formats import open_recording
from monitor.sidecar.service import Service, make_client_id
from tests.processes import fork_monitor
from tests.servers import PATIENCE, Mosquitto, prometheus, sidecar, wait_until
from tests.sidecar.by_hand import by_hand, stopped_time
from tests.sidecar.project import CONFIG, write_project
from tests.sidecar.running import Subscriber, inside, publish, steps, subscriber

RASH, CAREFUL, HOME = 0, 1, 5
RISE_AND_FALL = [(0, RASH), (1, CAREFUL), (1, CAREFUL), (HOME, RASH), (HOME, RASH), (HOME, RASH)]


@pytest.fixture
def config(tmp_path: Path, corridor: MDP, broker: Mosquitto) -> Path:
    return write_project(tmp_path / "project", corridor, CONFIG.replace("mqtt://127.0.0.1:1", broker.url))


@pytest.mark.parametrize("name", ["recording", "recording.parquet"])
def test_steps_in_alerts_out_and_the_recording_gives_the_same_bytes(
    tmp_path: Path, config: Path, broker: Mosquitto, name: str
) -> None:
    recording = tmp_path / name
    with subscriber(broker) as listening:
        with sidecar(config, "--record", str(recording)) as running:
            wait_until(lambda: any("/status/" in topic for topic, _ in listening.received), "the sidecar says hello")
            publish(broker, ["nonsense", *steps(RISE_AND_FALL), '{"v": 1}'])
            told = wait_until(lambda: closed(listening), "the alarm resolves")
            states = [state for state, _ in groupby(alert["state"] for alert in told)]
            assert states == ["firing", "resolved"]
            seen = len(listening.received)
            wait_until(lambda: len(listening.received) > seen, "a heartbeat")
            rejected = 'cfmon_messages_total{result="rejected"}'
            wait_until(lambda: running.metric(rejected) == 2, "the last message")
            assert running.metric('cfmon_messages_total{result="accepted"}') == 6
            assert running.metric('cfmon_rejected_total{reason="missing_key"}') == 1
            assert running.metric('cfmon_alarms_total{formula="watch",severity="critical",state="firing"}') == 1
            evidence = running.get(f"/evidence/{listening.alerts()[0]['evidence']['id']}")
            assert read_evidence(evidence).agent == "ada"
            assert running.stop() == 0
        wait_until(lambda: listening.received[-1][1] == b'{"state":"offline"}', "the sidecar says goodbye")
    # What was said while the sidecar was ending may not have been sent; everything before is there, byte for byte.
    said = replayed(config, recording)
    assert replayed(config, recording) == said
    assert listening.received[:-1] == said[: len(listening.received) - 1]
    assert listening.received[0][0].startswith("cfmon/status/")
    objects = {path.name for path in (config.parent / "var" / "objects").iterdir()}
    assert objects == set(assemble(config).objects())
    if name.endswith(".parquet"):
        audited = run_audit(config, recording, tmp_path / "audit")
        assert len(audited) > 1
        assert audited <= {alert_line(*message) for message in listening.received}


def run_audit(config: Path, recording: Path, out: Path) -> set[str]:
    """Audit a recording; return the alerts."""
    loaded = assemble(config)
    plan = partitions(days_of(opened([recording], loaded), loaded), loaded, config, out, in_order=False)
    run_all(plan, lambda _done: None)
    return {line for file in out.rglob(ALERTS) for line in file.read_text().splitlines(keepends=True)}


def closed(listening: Subscriber) -> list[dict[str, Any]]:
    """All alerts, once the last one closes an alarm."""
    alerts = listening.alerts()
    return alerts if alerts and alerts[-1]["state"] == "resolved" else []


def replayed(config: Path, recording: Path) -> list[tuple[str, bytes]]:
    with open_recording(recording) as events:
        pipeline = assemble(config).pipeline(events.header.client_id)
        return [(p.topic, p.payload) for event in events for p in pipeline.step(event).publications]


def test_prometheus_scrapes_the_running_monitor(tmp_path: Path, config: Path, broker: Mosquitto) -> None:
    rules = Path(__file__).parents[2] / "deploy" / "prometheus" / "cfmon.rules.yml"
    with (
        sidecar(config) as running,
        prometheus(tmp_path / "prometheus", [running.url.removeprefix("http://")], rules=[rules]) as server,
    ):
        publish(broker, steps(RISE_AND_FALL[:1]))
        firing = 'cfmon_alarm_state{agent="ada",formula="watch",severity="critical",state="firing"} == 1'
        wait_until(lambda: server.query(firing), "Prometheus sees the alarm")
        up = [("up", "")]
        wait_until(lambda: [(each["health"], each["lastError"]) for each in server.targets()] == up, "it is up")
        assert server.query("cfmon_mqtt_connected")[0]["value"][1] == "1"
        groups = server.get("rules")["groups"]
        assert {rule["health"] for group in groups for rule in group["rules"]} <= {"ok", "unknown"}


def test_a_config_with_a_mistake_stops_before_connecting(config: Path, broker: Mosquitto) -> None:
    config.write_text(config.read_text().replace("heartbeat", "hartbeat"))
    log = config.parent / "log"
    assert fork_monitor("run", str(config), log=log).wait(PATIENCE) == 2
    said = log.read_text()
    assert "config.yaml, line 12, hartbeat: unknown key; did you mean 'heartbeat'?" in said
    assert "Traceback" not in said
    assert "as " + make_client_id(assemble(write_fixed(config))) not in broker.log


def write_fixed(config: Path) -> Path:
    config.write_text(config.read_text().replace("hartbeat", "heartbeat"))
    return config


# ---- in this process, where a test can look inside ----


def test_without_a_broker_it_serves_is_not_ready_and_ends_when_told(tmp_path: Path, corridor: MDP) -> None:
    with inside(write_project(tmp_path, corridor)) as running:
        assert running.lines == [f"metrics, health and status page at {running.url}"]
        wait_until(lambda: running.http.get("/healthz").status_code == 200, "it is alive")
        unready = "not connected to the broker"
        wait_until(lambda: running.http.get("/readyz").text == unready, "it says what it waits for")
        assert running.http.get("/readyz").status_code == 503
        status = running.http.get("/api/status").json()
        assert (status["connected"], status["client_id"]) == (False, running.service.client_id)


def test_an_alarm_goes_out_even_if_its_evidence_cannot_be_kept(config: Path, broker: Mosquitto) -> None:
    with inside(config) as running, subscriber(broker) as listening:
        running.until_ready()
        evidence = config.parent / "var" / "evidence"
        evidence.rmdir()
        evidence.write_text("in the way")
        publish(broker, steps(RISE_AND_FALL[:1]))
        wait_until(listening.alerts, "the alert")
        wait_until(lambda: running.metric("cfmon_store_errors_total") == 1, "the error is counted")


class FullRecorder(Recorder):
    """On a disk that is full."""

    def flush(self) -> None:
        raise OSError(28, "No space left on device")


def test_a_recording_that_cannot_go_on_does_not_stop_the_watching(
    config: Path, broker: Mosquitto, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("monitor.sidecar.service.new_recorder", lambda path, header, _: FullRecorder(path, header))
    with inside(config, record=config.parent / "recording") as running:
        running.until_ready()
        wait_until(lambda: running.service.worker.recorder is None, "the recording ends")
        publish(broker, steps(RISE_AND_FALL[:1]))
        accepted = 'cfmon_messages_total{result="accepted"}'
        wait_until(lambda: running.metric(accepted) == 1, "the step is accepted")


def test_it_ends_whatever_the_broker_does(config: Path, broker: Mosquitto) -> None:
    with sidecar(config) as running:
        assert broker.process is not None
        broker.process.send_signal(signal.SIGSTOP)
        try:
            assert running.stop() == 0
        finally:
            broker.process.send_signal(signal.SIGCONT)


def test_a_stuck_evaluation_shows_in_healthz(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config.write_text(config.read_text().replace("heartbeat: 1s", "heartbeat: 100ms"))
    with inside(config) as running:
        monkeypatch.setattr(running.service.worker, "turn", running.service.inbox.take)
        wait_until(lambda: running.http.get("/healthz").status_code == 503, "healthz fails")
        assert "no evaluation for" in running.http.get("/healthz").text


def test_a_step_that_waits_at_our_own_door_is_no_gap(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Evaluation is late, the step is not: it came within the 200 ms for which a missing one is awaited."""
    with stopped_time() as time, by_hand(config) as there:
        for seq in (0, 2, 1):
            content = {"v": 1, "episode": 0, "seq": seq, "state": 0, "action": 1}
            there.put(json.dumps(content))
            time.advance(0.1)
        time.advance(0.5)
        for batch in (2, 1):
            monkeypatch.setattr("monitor.sidecar.worker.BATCH", batch)
            there.worker.turn()
        assert there.metric('cfmon_messages_total{result="accepted"}') == 3
        assert there.metric('cfmon_messages_total{result="gap"}') == 0


def test_what_cannot_be_opened_at_start_leaves_nothing_open(config: Path, tmp_path: Path) -> None:
    (tmp_path / "there").write_text("")
    service = Service(assemble(config), record=tmp_path / "there")
    with pytest.raises(RecordingError, match="already exists"):
        service.start()
    config.write_text(config.read_text().replace("127.0.0.1:0", "203.0.113.1:9108"))
    with pytest.raises(ConfigError, match=r"http\.listen: cannot listen on 203\.0\.113\.1:9108"):
        Service(assemble(config), record=tmp_path / "new").start()
    assert not (tmp_path / "new").exists()


def test_the_client_id_is_configured_or_of_this_host_and_configuration(config: Path) -> None:
    first = make_client_id(assemble(config))
    assert first == make_client_id(assemble(config))
    config.write_text(config.read_text().replace("heartbeat: 1s", "heartbeat: 2s"))
    assert make_client_id(assemble(config)) != first
    assert make_client_id(assemble(config, {"CFMON_MQTT__CLIENT_ID": "mine"})) == "mine"


@pytest.mark.parametrize("more", ["", ", token_file: token", ", hosts: [monitor.example]"])
def test_where_everyone_is_answered_under_any_name_that_is_reported_at_the_start(
    config: Path, caplog: pytest.LogCaptureFixture, more: str
) -> None:
    (config.parent / "token").write_text("0123456789abcdef")
    for listen, told in (("0.0.0.0:0", not more), ("127.0.0.1:0", False)):
        caplog.clear()
        config.write_text(re.sub(r"http: .*", f'http: {{listen: "{listen}"{more}}}', config.read_text()))
        service = Service(assemble(config))
        try:
            service.start()
        finally:
            service.close()
        assert ("http.listen: everyone who can reach" in caplog.text) == told


def test_a_picture_that_cannot_be_drawn_is_reported_and_counted(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("monitor.sidecar.web.pictures.PATIENCE", PATIENCE)
    monkeypatch.setattr("monitor.sidecar.web.pictures.NICE", 0)  # behind busy neighbours it would not be finished
    with inside(config) as running:
        name = "a" * 32
        (config.parent / "var" / "evidence" / name).write_bytes(b"no evidence")
        page = f"/picture/{name}.svg"
        wait_until(lambda: running.http.get(page).status_code != 202, "it is given up")
        assert running.metric("cfmon_picture_errors_total") == 1
        wait_until(lambda: "not one msgpack document" in running.http.get(page).text, "why is told")


def test_without_a_store_it_watches_all_the_same_and_says_so(
    config: Path, broker: Mosquitto, caplog: pytest.LogCaptureFixture
) -> None:
    config.write_text(config.read_text().replace("store: {path: var/cfmon.sqlite}", "store: {path: null}"))
    with inside(config) as running, subscriber(broker) as listening:
        assert "store.path is null: a restart loses paths" in caplog.text
        running.until_ready()
        publish(broker, steps(RISE_AND_FALL[:1]))
        assert wait_until(listening.alerts, "the alert")[0]["evidence"] is None
        assert running.http.get("/api/status").json()["store"] == "nothing is kept"
    assert not (config.parent / "var").exists()
