"""The job on Flink, with a TaskManager or the JobManager killed: exactly the alerts of an undisturbed run.

The expected alerts come from a loop over the log without Flink and without checkpoints.
"""

from __future__ import annotations

import json
import random
import re
import socket
import time
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import pytest
from cfmon_flink.arrival import Arrival, read_line, write_line
from cfmon_flink.keyed import KeyedAgent
from cfmon_flink.messages import document_of, messages

from monitor.errors import InputError
from monitor.sidecar.config.load import assemble
from tests.faults.flink_cluster import Cluster, cluster, job_python
from tests.faults.harness import Listener
from tests.faults.world import AGENTS, agent_steps, number_steps, write_numbers, write_world
from tests.servers import PATIENCE, end, free_port, mosquitto, wait_until
from tests.tiers import slow

LINES: Final = 100_000
START: Final = 1_795_259_763_700
"""Milliseconds since the epoch; a line comes each 10 ms, so silence and revisions have time to happen."""

NONSENSE: Final = (
    "no line of the bridge",
    "[]",
    '{"agent": "a\U0001f600"}',
    '{"agent": "a1"} \x1e {"agent": "a2"}',
    '"\x00',
)
"""Also what Java reads as JSON, the separator of batches, and characters that Java's strings have in two parts."""

OFTEN: Final[dict[str, object]] = {"execution.checkpointing.interval": "200ms"}
"""So that there are enough checkpoints before the last line."""

PATIENT: Final = {"max_lag": "30m", "stale_after": "5s"}

needs_flink = pytest.mark.skipif(not job_python().exists(), reason="Flink is missing: make flink (1.4 GB, and Java 17)")
pytestmark = [slow, needs_flink]


def write_log(folder: Path, count: int, plant: Path | None = None) -> list[str]:
    """Write the steps of ten agents, with duplicates, losses, swapped lines, nonsense and silence; return the lines.

    `plant`: the folder of one, whose agents they are instead of those on the grid.
    """
    draw, steps = random.Random(3), agent_steps(3) if plant is None else number_steps(plant, 3)
    lines: list[str] = []
    for number in range(count):
        agent, step = next(steps)
        if number // 4000 % AGENTS == int(agent[1:]):  # each agent is silent for 40 seconds, and again later
            continue
        line = write_line(agent, START + 10 * number, json.dumps(step).encode())
        match draw.randrange(500):
            case 0:
                lines += [line, line]
            case 1:
                pass
            case 2:
                lines += [line, draw.choice(NONSENSE)]
            case 4:
                lines.append(unusual(line))
            case 3 if lines:
                lines.insert(-1, line)
            case _:
                lines.append(line)
    folder.mkdir()
    (folder / "steps").write_text("".join(f"{line}\n" for line in lines))
    return lines


def unusual(line: str) -> str:
    """Return a line that says the same in another form."""
    said = json.loads(line)
    text = json.dumps({"note": {"agent": "a9", "\U0001f600": ["agent"]}, **said, "agent": "one"}, ensure_ascii=False)
    name = "".join(f"\\u{ord(each):04x}" for each in said["agent"])
    return f'{text.removesuffix("}")}, "\\u0061gent": "{name}"}}'


def expected(config: Path, lines: Sequence[str]) -> list[str]:
    """Return the documents of one loop over the lines, and of the timers after the last, sorted."""
    loaded = assemble(config, {})
    names, topic = [formula.name for formula in loaded.formulas], loaded.config.mqtt.alerts
    agents: dict[str, KeyedAgent] = {}
    found: list[str] = []
    for line in lines:
        try:
            arrival = read_line(line)
        except InputError:
            continue
        if arrival.agent not in agents:
            agents[arrival.agent] = KeyedAgent(loaded.monitor, arrival.agent)
        found += messages(agents[arrival.agent].take(arrival), loaded.identity, topic, names)
    for name, agent in agents.items():
        while agent.due is not None:
            found += messages(agent.take(Arrival(name, agent.due)), loaded.identity, topic, names)
    return sorted(document for each in found if (document := document_of(each)))


def written(folder: Path) -> list[str]:
    """Return the documents in the finished files of a file sink, sorted."""
    files = [path for path in folder.rglob("part-*") if not path.name.startswith(".")]
    return sorted(line for path in files for line in path.read_text().splitlines())


@dataclass
class World:
    """What to run, and what an undisturbed run writes."""

    arguments: list[str]
    expected: list[str]
    out: Path


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, list[str]]:
    """Return configuration, log, and the expected documents."""
    folder = tmp_path_factory.mktemp("flink")
    config = write_world(folder / "world", "mqtt://127.0.0.1:1", store={"path": None}, stream=PATIENT)
    wanted = expected(config, write_log(folder / "in", LINES))
    assert len(wanted) > 500, "too few alerts for a test"
    return config, folder / "in", wanted


@pytest.fixture
def world(log: tuple[Path, Path, list[str]], tmp_path: Path) -> World:
    config, lines, wanted = log
    out = tmp_path / "out"
    return World(["--config", str(config), "--from", f"file:{lines}", "--to", f"file:{out}"], wanted, out)


def until_checkpoint(flink: Cluster, job: str, count: int) -> None:
    """Wait for so many completed checkpoints of a job that is still at work."""
    wait_until(lambda: flink.completed(job) >= count, f"{count} checkpoints")
    assert flink.state(job) == "RUNNING", "the job ended too early for a test"


def more_restored(flink: Cluster, job: str, before: int) -> bool:
    return flink.restored(job) > before


def test_killed_task_managers_change_no_alert(world: World, tmp_path: Path, report: Callable[..., None]) -> None:
    back: list[float] = []
    with cluster(tmp_path / "flink", 2, **OFTEN) as flink:
        job = flink.submit(world.arguments, parallelism=2)
        for kills in (1, 2):
            until_checkpoint(flink, job, 3 * kills)
            before = flink.restored(job)
            victim = flink.workers.pop(0)
            victim.kill()
            victim.wait()
            begun = time.monotonic()
            flink.add_worker()
            wait_until(partial(more_restored, flink, job, before), "the job restarts")
            flink.until(job, "RUNNING")
            back.append(round(time.monotonic() - begun, 1))
        flink.until(job, "FINISHED")
    assert written(world.out) == world.expected
    report(alerts=len(world.expected), seconds_until_running_again=back)


def test_numbers_as_states_are_monitored_as_in_a_loop(tmp_path: Path, report: Callable[..., None]) -> None:
    """The job's environment has other versions of packages, and draws the same."""
    config = write_numbers(tmp_path / "plant", "mqtt://127.0.0.1:1", store={"path": None}, stream=PATIENT)
    lines, out = write_log(tmp_path / "in", 600, config.parent), tmp_path / "out"
    with cluster(tmp_path / "flink", 1) as flink:
        job = flink.submit(["--config", str(config), "--from", f"file:{tmp_path / 'in'}", "--to", f"file:{out}"])
        flink.until(job, "FINISHED")
    wanted = expected(config, lines)
    assert written(out) == wanted
    assert sum('"method":"sampled"' in each for each in wanted) > 10
    report(alerts=len(wanted))


def test_a_killed_job_manager_changes_no_alert(world: World, tmp_path: Path, report: Callable[..., None]) -> None:
    back: list[float] = []
    with cluster(tmp_path / "flink", 2, **OFTEN) as flink:
        supervisor = flink.supervised(world.arguments, parallelism=2)
        try:
            for _ in range(2):
                wait_until(lambda: [each for each in flink.jobs() if each["state"] == "RUNNING"], "a job runs")
                until_checkpoint(flink, flink.jobs()[-1]["jid"], 3)
                assert flink.manager is not None
                flink.manager.kill()
                flink.manager.wait()
                begun = time.monotonic()
                flink.start_manager()
                wait_until(lambda: any(each["state"] == "RUNNING" for each in flink.jobs()), "the job runs again")
                back.append(round(time.monotonic() - begun, 1))
            assert supervisor.wait(PATIENCE) == 0
        finally:
            end(supervisor)
        assert (tmp_path / "flink" / "supervise.log").read_text().count("chk-") >= 2
    assert written(world.out) == world.expected
    report(alerts=len(world.expected), seconds_until_running_again=back)


def test_steps_from_a_socket_alerts_to_a_broker_and_metrics(tmp_path: Path) -> None:
    with mosquitto(tmp_path / "broker") as broker, cluster(tmp_path / "flink", 1) as flink:
        config = write_world(tmp_path / "world", broker.url, store={"path": None}, stream=PATIENT)
        lines = write_log(tmp_path / "in", 6000)
        listener = Listener(broker.port)
        port = free_port()
        with socket.create_server(("127.0.0.1", 0)) as server:
            source = f"socket:127.0.0.1:{server.getsockname()[1]}"
            arguments = ["--config", str(config), "--from", source, "--to", "mqtt", "--metrics", f"127.0.0.1:{port}"]
            job = flink.submit(arguments)
            server.settimeout(PATIENCE)
            peer, _ = server.accept()
            with peer:
                peer.sendall("".join(f"{line}\n" for line in lines).encode())
                wait_until(lambda: counted(port, "accepted") > 0, "metrics of evaluated lines")
                nonsense = sum(line in NONSENSE for line in lines)
                wait_until(lambda: counted(port, "rejected") == nonsense, "metrics of lines of nonsense")
        flink.until(job, "FINISHED")
        listener.catch_up()
        listener.stop()
    heard = sorted(told.payload.decode() for told in listener.heard if told.payload)
    assert heard == expected(config, lines)
    assert len(heard) > 100


def counted(port: int, result: str) -> float:
    """Return how many messages the metrics on a port count with a result; 0 while nothing answers."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE) as answer:
            text = answer.read().decode()
    except OSError:
        return 0.0
    found = re.search(rf'^cfmon_messages_total{{result="{result}"}} (\S+)$', text, re.MULTILINE)
    return float(found[1]) if found else 0.0
