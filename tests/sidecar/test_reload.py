"""Another configuration without a restart: what changes, what goes on, and that a mistake changes nothing."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from monitor.model import MDP, save_model
from monitor.sidecar.clock import read_clock
from monitor.sidecar.config.load import Loaded, assemble
from monitor.sidecar.events import Evaluate, Message
from tests.exact.learned import learned_model
from tests.servers import PATIENCE, Mosquitto, sidecar, wait_until
from tests.sidecar.project import CONFIG, write_policy, write_project
from tests.sidecar.running import Inside, Subscriber, inside, publish, steps, subscriber

RASH, CAREFUL, HOME = 0, 1, 5
FIRES = 'cfmon_alarm_state{agent="ada",formula="watch",severity="critical",state="firing"}'
ACCEPTED = 'cfmon_messages_total{result="accepted"}'
FIRING = [(0, RASH), (1, CAREFUL)]
ADDED = """\
  - name: late
    formula: 'P>=0.5 [ G<=2 !"lost" ]'
heartbeat: 1s
"""


@pytest.fixture
def config(tmp_path: Path, corridor: MDP, broker: Mosquitto) -> Path:
    text = CONFIG.replace("mqtt://127.0.0.1:1", broker.url) + "trust: {enabled: false}\n"
    return write_project(tmp_path / "project", corridor, text)


@contextmanager
def running(config: Path) -> Iterator[Inside]:
    with inside(config, again=partial(assemble, config)) as there:
        there.until_ready()
        yield there


def change(config: Path, old: str, new: str) -> None:
    text = config.read_text()
    assert old in text
    config.write_text(text.replace(old, new))


def watched(there: Inside) -> list[str]:
    return [formula["name"] for formula in there.http.get("/api/formulas").json()]


def said(caplog: pytest.LogCaptureFixture, text: str) -> int:
    return sum(text in record.getMessage() for record in caplog.records)


@pytest.fixture(autouse=True)
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level("INFO", logger="monitor.service")
    return caplog


def reloaded(there: Inside, log: pytest.LogCaptureFixture, outcome: str = "the configuration is in force") -> None:
    before = said(log, outcome)
    there.reload()
    wait_until(lambda: said(log, outcome) > before, outcome)


def states(listening: Subscriber, formula: str) -> list[str]:
    """Of each alert in turn; what a heartbeat says again counts once."""
    told = {(alert["id"], alert["revision"]): alert for alert in listening.alerts()}
    return [alert["state"] for alert in told.values() if alert["formula"]["name"] == formula]


def fire(broker: Mosquitto, listening: Subscriber, there: Inside) -> None:
    publish(broker, steps(FIRING))
    wait_until(lambda: there.metric(ACCEPTED) == len(FIRING), "the steps are accepted")
    wait_until(lambda: "firing" in states(listening, "watch"), "the alarm fires")


def test_a_formula_is_added_and_the_others_go_on(
    config: Path, broker: Mosquitto, log: pytest.LogCaptureFixture
) -> None:
    with subscriber(broker) as listening, running(config) as there:
        fire(broker, listening, there)
        [before] = there.http.get("/api/alarms").json()
        change(config, "heartbeat: 1s\n", ADDED)
        reloaded(there, log)
        assert [formula["name"] for formula in there.http.get("/api/formulas").json()] == [
            "watch",
            "chance",
            "late",
        ]
        assert there.metric('cfmon_alarms_total{formula="late",severity="warning",state="firing"}') == 0
        assert there.metric('cfmon_alarms_total{formula="watch",severity="critical",state="firing"}') == 1
        assert there.metric(FIRES) == 1
        assert there.metric('cfmon_alarm_state{agent="ada",formula="late",severity="warning",state="clear"}') == 1
        assert there.metric(ACCEPTED) == 2
        [after] = there.http.get("/api/alarms").json()
        assert {**after, "sent": before["sent"], "sent_unix": before["sent_unix"]} == before
        publish(broker, steps([*FIRING, (1, CAREFUL), (1, RASH)])[2:])
        late = 'cfmon_verdicts_total{formula="late",outcome="%s",method="exact"}'
        wait_until(lambda: sum(there.metric(late % word) or 0 for word in ("holds", "fails")) == 2, "it is answered")
        assert "removed" not in states(listening, "watch")
        assert there.metric("cfmon_config_reload_success") == 1


def test_a_formula_that_is_gone_closes_its_alarm_and_leaves_nothing_behind(
    config: Path, broker: Mosquitto, log: pytest.LogCaptureFixture
) -> None:
    with subscriber(broker) as listening, running(config) as there:
        fire(broker, listening, there)
        text = config.read_text()
        begin, end = text.index("  - name: watch"), text.index("  - name: chance")
        config.write_text(text[:begin] + text[end:])
        reloaded(there, log)
        topic = "cfmon/alerts/ada/watch"
        wait_until(lambda: (topic, b"") in listening.received, "its topic is cleared")
        assert states(listening, "watch")[-1] == "removed"
        assert 'formula="watch"' not in there.http.get("/metrics").text
        assert [alarm["state"] for alarm in there.http.get("/api/alarms").json()] == ["removed"]
        assert there.http.get("/api/overview").json()["firing"] == []
        assert there.metric('cfmon_formula_value{agent="ada",formula="chance"}') is not None


@pytest.mark.parametrize("what", ["formula", "severity", "model", "policy"])
def test_what_is_asked_otherwise_begins_anew_from_the_held_path(
    config: Path, broker: Mosquitto, corridor: MDP, log: pytest.LogCaptureFixture, what: str
) -> None:
    with subscriber(broker) as listening, running(config) as there:
        fire(broker, listening, there)
        match what:
            case "formula":
                change(config, "P>=0.8", "P>=0.7")
            case "severity":
                change(config, "severity: critical", "severity: warning")
            case "policy":
                write_policy(config.parent, "careful", [CAREFUL] * 5 + [RASH], corridor.actions)
            case _:
                save_model(otherwise(), config.parent / "model.npz")
        reloaded(there, log)
        wait_until(lambda: "removed" in states(listening, "watch"), "the alarm is closed")
        first = states(listening, "watch").index("removed")
        severity = "warning" if what == "severity" else "critical"
        series = f'cfmon_alarm_state{{agent="ada",formula="watch",severity="{severity}",state="firing"}}'
        publish(broker, steps([*FIRING, (1, RASH)])[2:])
        wait_until(lambda: there.metric(series) == 1, "it fires again, on a path of three steps")
        wait_until(lambda: "firing" in states(listening, "watch")[first:], "it is told")
        alert = next(a for a in reversed(listening.alerts()) if a["formula"]["name"] == "watch")
        assert (alert["seq"], alert["severity"]) == (2, severity)
        assert states(listening, "watch")[first:] == ["removed", "firing"]
        assert there.metric(FIRES) == (None if what == "severity" else 1)


def otherwise() -> MDP:
    """The corridor, with an even smaller chance to be careful in vain."""
    transitions = [(s, RASH, min(s + 1, 3), 0.4) for s in range(4)] + [(s, RASH, 4, 0.6) for s in range(4)]
    transitions += [(s, CAREFUL, s, 0.8) for s in range(4)] + [(s, CAREFUL, HOME, 0.2) for s in range(4)]
    transitions += [(s, a, s, 1.0) for s in (4, HOME) for a in (RASH, CAREFUL)]
    return MDP.from_transitions(states=6, actions=2, transitions=transitions, labels={"lost": [4], "home": [HOME]})


def corridor_seen(times: int) -> MDP:
    """The corridor as learned from data: each transition seen once in every two or ten draws, or a multiple of that."""
    rash = [(s, RASH, t) for s in range(4) for t in (min(s + 1, 3), 4)] * 5
    careful = [(s, CAREFUL, s) for s in range(4) for _ in range(9)] + [(s, CAREFUL, HOME) for s in range(4)]
    rest = [(s, a, s) for s in (4, HOME) for a in (RASH, CAREFUL)] * 10
    labels = {"lost": frozenset({4, 6}), "home": frozenset({HOME})}
    return learned_model(7, 2, (rash + careful + rest) * times, labels)[0]


def test_a_learned_model_with_new_data_is_taken_up_with_its_counts(
    tmp_path: Path, broker: Mosquitto, log: pytest.LogCaptureFixture
) -> None:
    text = CONFIG.replace("mqtt://127.0.0.1:1", broker.url) + "trust: {enabled: false}\n"
    config = write_project(tmp_path / "learned", corridor_seen(1), text)
    support = 'cfmon_formula_support{agent="ada",formula="watch"}'
    with running(config) as there, subscriber(broker) as listening:
        publish(broker, steps(FIRING))
        wait_until(lambda: there.metric(support) == 10, "the support is that of the first data")
        save_model(corridor_seen(20), config.parent / "model.npz")
        reloaded(there, log)
        publish(broker, steps([*FIRING, (1, RASH)])[2:])
        wait_until(lambda: there.metric(support) == 200, "it is that of all data, on the held path")
        wait_until(lambda: "removed" in states(listening, "watch"), "the alarm on the old model is closed")
        alert = next(a for a in reversed(listening.alerts()) if a["formula"]["name"] == "watch" and "bands" in a)
        assert alert["bands"]["draws"] == 64


BROKEN: dict[str, tuple[Callable[[Path], None], str]] = {
    "yaml": (lambda config: change(config, "policies: {", "policies: {{"), "config.yaml, line 4: not valid YAML"),
    "key": (lambda config: change(config, "heartbeat:", "hartbeat:"), "did you mean 'heartbeat'?"),
    "formula": (lambda config: change(config, '!"lost" ])', '!"lots" ])'), "formulas[0].formula"),
    "onnx": (lambda config: (config.parent / "careful.onnx").unlink(), "careful.onnx"),
    "gone": (lambda config: config.unlink(), "cannot be read"),
    "broker": (
        lambda config: change(config, 'url: "mqtt://', 'url: "mqtt://u:secret@'),
        "line 1, mqtt.url: read at start only",
    ),
    "port": (lambda config: change(config, "127.0.0.1:0", "127.0.0.1:9"), "http.listen: read at start only"),
    "store": (lambda config: change(config, "var/cfmon", "var/other"), "store.path: read at start only"),
    "queue": (
        lambda config: change(config, "heartbeat:", "limits: {queue: 77}\nheartbeat:"),
        "limits.queue: read at start only",
    ),
}


@pytest.mark.parametrize("mistake", BROKEN)
def test_a_mistake_changes_nothing_and_is_reported_in_one_line(
    config: Path, broker: Mosquitto, log: pytest.LogCaptureFixture, mistake: str
) -> None:
    spoil, reason = BROKEN[mistake]
    text, network = config.read_text(), (config.parent / "careful.onnx").read_bytes()
    with subscriber(broker) as listening, running(config) as there:
        fire(broker, listening, there)
        spoil(config)
        reloaded(there, log, "the former one stays in force")
        [line] = [record.getMessage() for record in log.records if record.levelname == "ERROR"]
        assert reason in line
        assert "\n" not in line
        assert "secret" not in line
        wait_until(lambda: there.metric("cfmon_config_reload_success") == 0, "it is told")
        publish(broker, steps([*FIRING, (1, CAREFUL), (HOME, RASH), (HOME, RASH)])[2:])
        wait_until(lambda: "resolved" in states(listening, "watch"), "the alarm goes on as before")
        assert states(listening, "watch") == ["firing", "resolved"]
        config.write_text(text)
        (config.parent / "careful.onnx").write_bytes(network)
        reloaded(there, log)
        wait_until(lambda: there.metric("cfmon_config_reload_success") == 1, "it is told that all is well")


def test_a_state_that_cannot_be_carried_over_stays_where_it_is(
    config: Path, broker: Mosquitto, log: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("no")

    with subscriber(broker) as listening, running(config) as there:
        fire(broker, listening, there)
        monkeypatch.setattr("monitor.sidecar.pipeline.Pipeline.restore", refuse)
        reloaded(there, log, "This is a bug")
        monkeypatch.undo()
        publish(broker, steps([*FIRING, (1, CAREFUL), (HOME, RASH), (HOME, RASH)])[2:])
        wait_until(lambda: "resolved" in states(listening, "watch"), "the alarm goes on as before")


def test_steps_that_moved_are_not_heard_any_more_where_they_were(config: Path, broker: Mosquitto) -> None:
    """The broker keeps the session, and the subscription of before with it."""
    with running(config):
        pass
    change(config, "mqtt: {url", 'mqtt: {steps: "fleet/+/steps", url')
    with running(config) as there:
        wait_until(lambda: "Received UNSUBSCRIBE" in broker.log, "the old subscription is given up")
        publish(broker, steps([(0, RASH)]))
        publish(broker, steps([(0, RASH)]), topic="fleet/{agent}/steps")
        wait_until(lambda: there.metric(ACCEPTED) == 1, "the step is accepted")
        assert there.metric('cfmon_messages_total{result="rejected"}') == 0


def test_a_restart_after_a_reload_takes_up_the_new_configuration(
    config: Path, broker: Mosquitto, log: pytest.LogCaptureFixture
) -> None:
    with subscriber(broker) as listening:
        with running(config) as there:
            fire(broker, listening, there)
            change(config, "heartbeat: 1s\n", ADDED)
            reloaded(there, log)
        with running(config) as there:
            assert there.metric(FIRES) == 1
            publish(broker, steps([*FIRING, (1, CAREFUL), (HOME, RASH), (HOME, RASH)])[2:])
            wait_until(lambda: "resolved" in states(listening, "watch"), "the alarm goes on")
        assert {alert["id"] for alert in listening.alerts()} == {listening.alerts()[0]["id"]}
        assert set(states(listening, "watch")) == {"firing", "resolved"}


def test_a_recording_ends_with_a_line_that_says_so(tmp_path: Path, config: Path, log: pytest.LogCaptureFixture) -> None:
    recording = tmp_path / "recording"
    with inside(config, again=partial(assemble, config), record=recording) as there:
        reloaded(there, log)
        assert said(log, "the recording ends here, because another configuration is in force") == 1
        assert there.service.worker.recorder is None


def test_asked_again_while_it_reads_it_reads_once_more(config: Path, log: pytest.LogCaptureFixture) -> None:
    reading, go_on, read = threading.Event(), threading.Event(), []

    def again() -> Loaded:
        read.append(config.read_text())
        reading.set()
        assert go_on.wait(PATIENCE)
        return assemble(config)

    with inside(config, again=again) as there:
        there.reload()
        assert reading.wait(PATIENCE)
        change(config, "heartbeat: 1s\n", ADDED)
        there.reload()
        there.reload()
        go_on.set()
        wait_until(lambda: said(log, "the configuration is in force") == 2, "it has read it twice")
        assert len(read) == 2
        assert watched(there) == ["watch", "chance", "late"]


def test_it_ends_in_time_while_it_reads(config: Path) -> None:
    reading, go_on = threading.Event(), threading.Event()

    def again() -> Loaded:
        reading.set()
        assert go_on.wait(PATIENCE)
        return assemble(config)

    with inside(config, again=again) as there:
        there.reload()
        assert reading.wait(PATIENCE)
    go_on.set()


def test_without_a_thread_to_read_it_in_the_one_before_stays_until_asked_again(
    config: Path, log: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with inside(config, again=partial(assemble, config)) as there:
        change(config, "heartbeat: 1s\n", ADDED)
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refuse)
            reloaded(there, log, "the former one stays in force: ")
        assert watched(there) == ["watch", "chance"]
        assert said(log, "This is a bug") == 0
        reloaded(there, log)
        assert watched(there) == ["watch", "chance", "late"]


def test_without_a_file_there_is_nothing_to_read_again(config: Path, log: pytest.LogCaptureFixture) -> None:
    with inside(config) as there:
        reloaded(there, log, "the configuration cannot be reloaded")


# ---- under load, with the signal itself ----

LIFE = [(0, RASH), (1, CAREFUL), (1, CAREFUL), (1, RASH), (2, CAREFUL), (HOME, RASH), (HOME, CAREFUL)]
AT_ONCE = 10
"""Episodes."""

PAUSE = 0.05
"""Seconds before the next ones: a load, no flood."""

AGENTS = ("ada", "bob", "eve")


def lives(agent: str, first: int) -> Sequence[str]:
    """Some episodes. Each ends with its last step: nothing waits for a clock."""
    told = []
    for n in range(first, first + AT_ONCE):
        *lines, last = steps(LIFE, episode=f"{agent}-{n}")
        told += [*lines, json.dumps({**json.loads(last), "truncated": True})]
    return told


@contextmanager
def load(broker: Mosquitto) -> Iterator[dict[str, list[str]]]:
    """All agents live until the block ends; by then it holds what they said."""
    said: dict[str, list[str]] = {name: [] for name in AGENTS}
    enough = threading.Event()

    def live(name: str) -> None:
        for first in count(0, AT_ONCE):
            publish(broker, lines := lives(name, first), agent=name)
            said[name] += lines
            if enough.wait(PAUSE):
                break

    with ThreadPoolExecutor(len(AGENTS)) as pool:
        living = [pool.submit(live, name) for name in AGENTS]
        try:
            yield said
        finally:
            enough.set()
    for each in living:
        each.result()


def test_under_load_no_step_is_lost_and_the_alarms_are_those_of_a_run_without_it(
    config: Path, broker: Mosquitto
) -> None:
    # However late it comes, every step is answered, and nothing is marked for having waited.
    change(config, "heartbeat:", "stream: {max_lag: 1h, stale_after: 1h, forget_after: 2h}\nheartbeat:")
    with subscriber(broker) as listening, sidecar(config) as there:
        with load(broker) as said:
            wait_until(lambda: there.metric(ACCEPTED), "the first steps are accepted")
            for n in range(4):
                there.process.send_signal(signal.SIGHUP)
                wait_until(lambda n=n: there.log.count("the configuration is in force") > n, "it is reloaded")  # type: ignore[misc]
        total = sum(map(len, said.values()))
        wait_until(lambda: there.metric(ACCEPTED) == total, "every step is accepted")
        expected = without_reload(config, said)
        for result in ("duplicate", "gap", "conflict", "dropped", "rejected"):
            assert there.metric(f'cfmon_messages_total{{result="{result}"}}') == 0
        wait_until(lambda: {key(alert) for alert in listening.alerts()} >= expected, "every alert arrives")
        assert {key(alert) for alert in listening.alerts()} == expected


def without_reload(config: Path, said: Mapping[str, Sequence[str]]) -> set[tuple[Any, ...]]:
    pipeline = assemble(config).pipeline("test")
    alerts = []
    for agent, lines in said.items():
        for line in lines:
            for event in (Message(read_clock(), f"agents/{agent}/steps", line.encode()), Evaluate(read_clock())):
                alerts += [json.loads(p.payload) for p in pipeline.step(event).publications if "/alerts/" in p.topic]
    return {key(alert) for alert in alerts}


def key(alert: dict[str, Any]) -> tuple[Any, ...]:
    """What an alert says, but for when it was said: how often it is said anew while it fires depends on the time."""
    fired = (alert["id"], alert["state"], alert["fired"]["seq"], alert["fired"]["outcome"], alert["fired"]["value"])
    return fired if alert["state"] == "firing" else (*fired, alert["seq"], alert["outcome"], alert["effect"])


@pytest.mark.parametrize("ending", [SystemExit(3), StopIteration()], ids=["exit", "stop"])
def test_a_module_that_ends_the_process_at_its_import_changes_nothing(
    config: Path, log: pytest.LogCaptureFixture, ending: BaseException
) -> None:
    """A model may name a module, and a module can do anything where it is imported."""

    def again() -> Loaded:
        raise ending

    with inside(config, again=again) as there:
        reloaded(there, log, "This is a bug")
        wait_until(lambda: there.http.get("/healthz").status_code == 200, "it goes on")
