"""Parts of a fault test: a broker with the shipped settings, the monitor, its agents and a listener.

The first three are separate processes, so that they can be killed, stopped and disconnected. The listener has a
persistent session and records every message.

Each test has a long form for `make faults` (CFMON_FAULTS=long), whose figures the documentation quotes, and a short one
with fewer and shorter faults. Times are measured and reported. What a test asserts is what was delivered, lost and
repeated, because a busy machine needs more time.
"""

from __future__ import annotations

import json
import os
import pwd
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion

from tests.faults.expected import ALERTS, Expected, Fault, Heard, Outcome, compare, replay
from tests.faults.publisher import read_log
from tests.faults.world import KINDS
from tests.processes import fork_monitor
from tests.servers import PATIENCE, Sidecar, end, free_port, listens, need, wait_until

__all__ = [
    "ENOUGH",
    "HEARTBEAT",
    "LONG",
    "PROMPT",
    "RATE",
    "Broker",
    "Listener",
    "Monitor",
    "Scene",
    "scene",
    "stepped",
    "until_stepped",
]

LONG = os.environ.get("CFMON_FAULTS") == "long"

SHIPPED = Path(__file__).parents[2] / "deploy" / "mosquitto" / "mosquitto.conf"
MEMORY = Path("/dev/shm")
RATE = KINDS["grid"].rate
"""Steps a second, at most: a slow machine sends fewer."""

ENOUGH = KINDS["grid"].enough
"""Steps that lead to some ninety alerts."""

Saves = Literal["often", "each second", "when asked"]
SAVES: dict[Saves, str] = {
    "often": "autosave_on_changes true\nautosave_interval 20\n",
    "each second": "autosave_on_changes false\nautosave_interval 1\n",
    "when asked": "autosave_on_changes false\nautosave_interval 1800\n",
}

PROMPT = 0.5
"""Largest mean lag in seconds of steps that did not wait."""

FEW = 200
"""Number of unsent messages that is normal at any moment: those of the last cycles."""

HEARTBEAT = 1.0
"""Seconds, as `world` configures it."""


class Broker:
    """mosquitto with the shipped configuration, for many steps a second, and a data folder that survives it.

    `saves`: when it writes its store; with "when asked", at its default interval and when `save` is called.

    The folder is in memory if possible: mosquitto writes its whole store after each change, and on a busy disk it is
    slower than the agents. A killed process keeps its files, so that this makes no other difference.
    """

    def __init__(
        self, folder: Path, *, hosts: Sequence[str] = ("127.0.0.1",), inside: Sequence[str] = (), saves: Saves = "often"
    ) -> None:
        self.port = free_port()
        self._folder = folder
        self._inside = tuple(inside)
        self.process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True)
        self._memory = tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None, prefix="cfmon-broker-")
        listeners = "\n".join(f"listener {self.port} {host}" for host in hosts)
        text = re.sub(r"(?m)^listener 1883$", listeners, SHIPPED.read_text())
        text = re.sub(r"(?m)^persistence_location .*$", f"persistence_location {self._memory.name}/", text)
        text = text.replace("log_dest stdout", f"log_dest file {folder}/broker.log")
        shipped = "autosave_on_changes true\nautosave_interval 1\n"
        assert shipped in text, "the shipped configuration has changed; is its advice still the same?"
        text = text.replace(shipped, SAVES[saves])
        (folder / "mosquitto.conf").write_text(f"{text}user {pwd.getpwuid(os.getuid()).pw_name}\n")

    def start(self) -> None:
        with (self._folder / "mosquitto.log").open("ab") as log:
            command = [*self._inside, need("mosquitto", "mosquitto"), "-c", str(self._folder / "mosquitto.conf")]
            self.process = process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        if not self._inside:
            wait_until(lambda: process.poll() is not None or listens(self.port), "mosquitto listens")
            assert process.poll() is None, (self._folder / "mosquitto.log").read_text()

    def kill(self) -> None:
        assert self.process is not None
        end(self.process, with_signal=signal.SIGKILL)

    def save(self) -> None:
        """Let it write its store; return when that is done."""
        assert self.process is not None
        file = Path(self._memory.name) / "mosquitto.db"
        before = file.stat().st_mtime_ns if file.exists() else 0
        self.process.send_signal(signal.SIGUSR1)
        wait_until(lambda: file.exists() and file.stat().st_mtime_ns > before, "the broker has saved")

    def remove(self) -> None:
        """Kill the broker and delete its data."""
        self.kill()
        self._memory.cleanup()


class Monitor:
    """`cfmon run CONFIG`, which a test can start repeatedly; each run has its own log.

    In the long form it is a new interpreter each time, which is part of what its figures measure.
    """

    def __init__(self, config: Path) -> None:
        self.config = config
        self.starts = 0
        self._running: Sidecar | None = None

    @property
    def running(self) -> Sidecar:
        assert self._running is not None, "not started"
        return self._running

    @property
    def logs(self) -> str:
        """Logs of all runs."""
        return "".join(path.read_text(errors="replace") for path in sorted(self.config.parent.glob("monitor-*.log")))

    def start(self) -> None:
        """Start without waiting."""
        self.starts += 1
        log_file = self.config.parent / f"monitor-{self.starts:04}.log"
        if not LONG:
            self._running = Sidecar(fork_monitor("run", str(self.config), log=log_file), log_file)
            log_file.touch()
            return
        with log_file.open("wb") as log:
            command = [sys.executable, "-m", "monitor", "run", str(self.config)]
            environment = {**os.environ}
            del environment["CFMON_FAULTS"]  # the monitor would read it as a setting
            process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment)
        self._running = Sidecar(process, log_file)

    def until_ready(self, *, patience: float = PATIENCE) -> float:
        """Wait until it is ready; return the seconds that took."""
        began, running = time.monotonic(), self.running

        def settled() -> bool:
            ended = running.process.poll() is not None
            return ended or ("status page at" in running.log and running.ready())

        wait_until(settled, "the monitor is ready", patience=patience)
        assert running.process.poll() is None, running.log
        return time.monotonic() - began

    def kill(self) -> None:
        """Kill it, as the kernel does when memory runs out."""
        end(self.running.process, with_signal=signal.SIGKILL)

    def stop(self) -> tuple[int, float]:
        """Send SIGTERM, as systemd does; return the exit code and the seconds it took."""
        began = time.monotonic()
        return self.running.stop(), time.monotonic() - began

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.running.get("/api/status"))
        return found

    def lags(self) -> tuple[float, float]:
        """Return the total lag in seconds of this run's steps, and their number."""
        found = [self.running.metric(f"cfmon_message_lag_seconds_{kind}") or 0.0 for kind in ("sum", "count")]
        return found[0], found[1]

    def catch_up(self) -> None:
        """Return once it receives steps that were sent after the call: they come in order, so no earlier one waits.

        In the long form, which knows what machine it is on, once it is up to date.
        """
        since = looked = time.monotonic()
        seen = self.lags()

        def current() -> bool:
            nonlocal looked, seen
            at, (lag, steps) = looked, seen
            looked, seen = time.monotonic(), self.lags()
            lag, steps = seen[0] - lag, seen[1] - steps
            return steps > 0 and lag / steps < (PROMPT if LONG else at - since)

        wait_until(current, "the monitor has caught up", patience=4 * PATIENCE)

    def unsent(self) -> int:
        """Return the number of messages that the broker has not acknowledged."""
        return int(json.loads(self.running.get("/api/status"))["unsent"])

    def newest(self) -> dict[tuple[str, str], tuple[int, float]]:
        """Return (agent, formula) -> seq and value of the last verdict on the status page, unless blind."""
        agents = json.loads(self.running.get("/api/agents"))
        rows = [(agent["name"], row) for agent in agents for row in agent["formulas"]]
        return {(name, row["name"]): (row["seq"], row["value"]) for name, row in rows if row["seq"] is not None}

    def lost(self) -> dict[str, float]:
        """Return what this run counts as lost or skipped; empty if nothing was, or if it does not respond."""
        try:
            text = self.running.get("/metrics").decode()
        except (OSError, AssertionError):
            return {}
        results = r'cfmon_messages_total\{result="(?:gap|conflict|dropped|rejected|stale)"\}'
        pattern = rf"({results}|cfmon_evaluations_skipped_total\{{[^}}]*\}}) (\S+)"
        return {series: count for series, number in re.findall(pattern, text) if (count := float(number))}


class Listener:
    """Subscriber to all alerts with a persistent session; no fault affects it."""

    def __init__(self, port: int, *, host: str = "127.0.0.1") -> None:
        self.heard: list[Heard] = []
        self.states: list[Heard] = []
        """of the status topics"""
        self._marks: set[str] = set()
        self._deliveries: set[tuple[int, bytes]] = set()
        self._subscribed = threading.Event()
        self._client = client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id="listener", clean_session=False)
        client.on_connect = self._subscribe
        client.on_subscribe = lambda *_: self._subscribed.set()
        client.on_message = self._note
        client.max_queued_messages_set(0)
        client.reconnect_delay_set(min_delay=0.1, max_delay=0.5)  # type: ignore[arg-type] # a fraction of a second is fine
        client.connect_async(host, port, keepalive=60)
        client.loop_start()
        assert self._subscribed.wait(PATIENCE), "the listener cannot subscribe"

    def _subscribe(self, client: mqtt.Client, *_: object) -> None:
        client.subscribe([("cfmon/#", 1), ("marks/#", 1)])

    def _note(self, _client: object, _data: object, message: mqtt.MQTTMessage) -> None:
        if message.topic.startswith("marks/"):
            self._marks.add(message.topic)
            return
        # After a crash mosquitto redelivers what was just acknowledged, not always marked as duplicates, but with
        # the same message id.
        delivery = (message.mid, bytes(message.payload))
        again = message.dup or delivery in self._deliveries
        self._deliveries.add(delivery)
        noted = Heard(time.time(), message.topic, bytes(message.payload), again)
        (self.heard if message.topic.startswith(ALERTS) else self.states).append(noted)

    def catch_up(self) -> None:
        """Return once everything published before has arrived: wait for a marker message published now."""
        mark = f"marks/{time.monotonic_ns()}"
        self._client.publish(mark, b"", qos=1)
        wait_until(lambda: mark in self._marks, "the listener has everything")

    def stop(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()

    def write(self, path: Path) -> None:
        """Write all received messages, one line each, for the analysis of failures."""
        heard = (f"{h.at:.3f} {'again' if h.again else 'new'} {h.topic} {h.payload.decode()}\n" for h in self.heard)
        path.write_text("".join(heard))


@dataclass
class Scene:
    """Broker, listener, agents and monitor, all running."""

    broker: Broker
    listener: Listener
    monitor: Monitor
    agents: subprocess.Popen[str]
    log: Path
    faults: list[Fault] = field(default_factory=list)
    """at each, messages in flight between monitor and broker may be delivered once more"""
    broker_faults: list[Fault] = field(default_factory=list)
    """those of the broker; at each, messages in flight to the listener may be delivered once more, too"""
    lost: list[dict[str, float]] = field(default_factory=list)
    """what each run counted as lost when last queried, if anything"""
    enough: int = ENOUGH

    @contextmanager
    def fault(self, *, of_broker: bool = False) -> Iterator[None]:
        """Record a fault that lasts as long as the block: until what it made is dead, or connected again."""
        if lost := self.monitor.lost():
            self.lost.append(lost)
        begun = time.time()
        yield
        self.faults.append((begun, time.time()))
        if of_broker:
            self.broker_faults.append(self.faults[-1])

    def catch_up(self) -> None:
        """Return once the monitor has what waited for it, and in the long form has published the results."""
        self.monitor.until_ready()
        self.monitor.catch_up()
        wait_until(lambda: not LONG or self.monitor.unsent() < FEW, "the results are published", patience=4 * PATIENCE)

    @contextmanager
    def pause(self) -> Iterator[int]:
        """Let the agents wait; begin when the broker has their last step, and yield the number of steps."""
        assert self.agents.stdout is not None
        self.agents.send_signal(signal.SIGUSR1)
        steps = int(self.agents.stdout.readline())
        assert steps == stepped(self.log)
        yield steps
        self.agents.send_signal(signal.SIGUSR1)

    def until_quiet(self) -> None:
        """Wait until the last step of agents that wait is evaluated, and the listener has every alert."""
        self._until_quiet(replay(self.monitor.config, self.log, RATE))

    def outcome(self, *, late: bool = False) -> Outcome:
        """End the agents after enough steps, and compare the alerts with a run without faults.

        Wait until the last step is evaluated. Assert that no alert is missing or extra and no step lost or skipped.
        `late`: alarms may be published long after their steps.
        """
        until_stepped(self.agents, self.log, self.enough)
        self.agents.send_signal(signal.SIGTERM)
        printed, _ = self.agents.communicate(timeout=4 * PATIENCE)
        assert self.agents.returncode == 0, "the agents failed"
        expected = replay(self.monitor.config, self.log, RATE)
        assert expected.steps == int(printed.split()[-1])
        self._until_quiet(expected)
        outcome = compare(expected, self.listener.heard, [*self.faults, *self.broker_faults], late=late)
        assert not outcome.problems, "\n".join(outcome.problems[:20])
        assert not any(lost := [*self.lost, self.monitor.lost()]), lost
        assert outcome.alerts > self.enough // 20, "too few alerts for a test"
        return outcome

    def _until_quiet(self, expected: Expected) -> None:
        """Wait until the monitor shows these last verdicts and all its alerts have arrived."""
        deadline = time.monotonic() + 4 * PATIENCE
        while (shown := self._shown()) != expected.newest:
            late = {key: (shown.get(key), verdict) for key, verdict in expected.newest.items()}
            assert not any(lost := [*self.lost, self.monitor.lost()]), lost
            assert time.monotonic() < deadline, f"these are not evaluated: {late}"
            time.sleep(0.1)
        wait_until(lambda: self.monitor.status()["unsent"] == 0, "all alerts are sent")
        self.listener.catch_up()

    def _shown(self) -> dict[tuple[str, str], tuple[int, float]]:
        try:
            return self.monitor.newest()
        except OSError:
            return {}


def stepped(log: Path) -> int:
    """Return the number of steps that the agents have sent or are about to send."""
    return sum(1 for _ in read_log(log))


def until_stepped(agents: subprocess.Popen[str], log: Path, count: int) -> None:
    """Wait until the agents have sent so many steps."""
    wait_until(lambda: agents.poll() is not None or stepped(log) >= count, "steps are sent", patience=4 * PATIENCE)
    assert agents.poll() is None, "the agents failed"


@contextmanager
def scene(
    folder: Path,
    *,
    seed: int = 1,
    rate: float | None = None,
    through: int | None = None,
    broker: Broker | None = None,
    host: str = "127.0.0.1",
    monitor_host: str | None = None,
    kind: str = "grid",
    **sections: object,
) -> Iterator[Scene]:
    """Start everything, the monitor before the agents. `through`: the port it connects to, else the broker's.

    `kind`: of agents, which has a `rate` of its own.
    """
    agents = KINDS[kind]
    with ExitStack() as stack:
        broker = broker or Broker(folder / "broker")
        broker.start()
        stack.callback(broker.remove)
        listener = Listener(broker.port, host=host)
        stack.callback(listener.write, folder / "heard.txt")
        stack.callback(listener.stop)
        url = f"mqtt://{monitor_host or host}:{through or broker.port}"
        monitor = Monitor(agents.write(folder / "project", url, **sections))
        monitor.start()
        stack.callback(lambda: monitor.stop() if monitor.running.process.poll() is None else None)
        monitor.until_ready()
        log = folder / "steps.log"
        command = [
            sys.executable,
            "-m",
            "tests.faults.publisher",
            str(broker.port),
            str(log),
            str(rate or agents.rate),
            str(seed),
            host,
            kind,
            str(folder / "project"),
        ]
        acting = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        stack.callback(end, acting)
        wait_until(lambda: len(monitor.newest()) > agents.agents, "the first steps are evaluated")
        yield Scene(broker, listener, monitor, acting, log, enough=agents.enough)
