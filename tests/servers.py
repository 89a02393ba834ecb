"""Real servers on loopback for tests: mosquitto, Prometheus, Alertmanager, the monitor, each in a process.

Readiness is polled with a deadline. If a program is missing, the test is skipped with a message.
"""

from __future__ import annotations

import getpass
import http
import itertools
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

import pytest

from tests.processes import Forked, fork_monitor

__all__ = [
    "Mosquitto",
    "Prometheus",
    "Sidecar",
    "alertmanager",
    "children",
    "end",
    "free_port",
    "interruptible",
    "mosquitto",
    "need",
    "prometheus",
    "sidecar",
    "wait_until",
]

T = TypeVar("T")
PATIENCE = 300.0
"""Timeout in seconds for every operation of a server; generous, because machines can be busy."""


def wait_until(happened: Callable[[], T], what: str, *, patience: float = PATIENCE) -> T:
    """Poll until `happened` returns a true value, and return it; fail with `what` at the timeout."""
    deadline = time.monotonic() + patience
    while True:
        if result := happened():
            return result
        if time.monotonic() > deadline:
            pytest.fail(f"not within {patience:g} s: {what}")
        time.sleep(0.02)


def free_port() -> int:
    """Return a free port of the loopback interface, which no other test gets, nor the system for a connection.

    Each process takes ports in turn, from a place of its own below those of connections (Linux: from 32768 on).
    """
    while True:
        port = 10_000 + next(_PORTS) % 22_000
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


_PORTS: Final = itertools.count(os.getpid() * 211)


def need(program: str, package: str) -> str:
    """Return the path of a program; skip the test if it is not installed."""
    found = shutil.which(program) or shutil.which(program, path="/usr/sbin:/usr/local/sbin")
    if found is None:
        pytest.skip(f"{program} is missing (Debian: apt-get install {package})")
    return found


def end(process: subprocess.Popen[Any] | Forked, *, with_signal: int = signal.SIGTERM) -> int:
    """End a process and wait for it; kill it at the timeout."""
    if process.poll() is None:
        process.send_signal(with_signal)
    try:
        return process.wait(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def children(pid: int | str = "self") -> set[int]:
    """Return the child processes of a process, including zombies."""
    found: set[int] = set()
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # the thread has just ended
            found.update(map(int, (task / "children").read_text().split()))
    return found


def interruptible() -> None:
    """Restore the default action of SIGINT in a child process, before it executes its program.

    Otherwise it inherits the setting of the tests, which a script may run in the background with SIGINT ignored.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def listens(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1.0):
            return True
    except OSError:
        return False


# ---- mosquitto ----


@dataclass
class Mosquitto:
    """Broker on `port`, which a test can `start` and `kill` repeatedly."""

    folder: Path
    port: int
    lines: Sequence[str] = ()
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def url(self) -> str:
        return f"mqtt://127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        return (self.folder / "mosquitto.log").read_text(errors="replace")

    def start(self) -> None:
        config = self.folder / "mosquitto.conf"
        settings = [f"listener {self.port} 127.0.0.1", "max_queued_messages 65000", "log_type all"]
        settings.append(f"user {getpass.getuser()}")  # otherwise root changes to a user that cannot read our files
        if not any(line.startswith("allow_anonymous") for line in self.lines):
            settings.append("allow_anonymous true")
        config.write_text("\n".join([*settings, *self.lines]) + "\n")
        with (self.folder / "mosquitto.log").open("ab") as log:
            command = [need("mosquitto", "mosquitto"), "-c", str(config)]
            self.process = process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        wait_until(lambda: process.poll() is not None or listens(self.port), "mosquitto listens")
        assert process.poll() is None, self.log

    def stop(self) -> None:
        if self.process is not None:
            end(self.process)

    def kill(self) -> None:
        """Kill the broker without a clean shutdown."""
        assert self.process is not None
        end(self.process, with_signal=signal.SIGKILL)


@contextmanager
def mosquitto(folder: Path, *lines: str, port: int | None = None) -> Iterator[Mosquitto]:
    """Run a broker with these additional lines of configuration until the block ends."""
    folder.mkdir(parents=True, exist_ok=True)
    broker = Mosquitto(folder, port or free_port(), lines)
    broker.start()
    try:
        yield broker
    finally:
        broker.stop()


# ---- Prometheus ----


@dataclass
class Prometheus:
    """Prometheus server on `port`."""

    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def get(self, path: str, **parameters: str) -> Any:  # noqa: ANN401 - any JSON
        """Return `data` of an API call such as `query` or `targets`."""
        query = urllib.parse.urlencode(parameters)
        with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{query}", timeout=PATIENCE) as answer:
            return json.load(answer)["data"]

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the current series of an expression."""
        result: list[dict[str, Any]] = self.get("query", query=expression)["result"]
        return result

    def targets(self) -> list[dict[str, Any]]:
        """Return the scraped targets, with health and last error."""
        active: list[dict[str, Any]] = self.get("targets")["activeTargets"]
        return active

    def alerts(self) -> dict[str, set[str]]:
        """Return alert name -> current states (`pending`, `firing`) of its instances."""
        states: dict[str, set[str]] = {}
        for alert in self.get("alerts")["alerts"]:
            states.setdefault(alert["labels"]["alertname"], set()).add(alert["state"])
        return states


@contextmanager
def prometheus(
    folder: Path,
    targets: Sequence[str],
    *,
    rules: Sequence[Path] = (),
    job: str = "cfmon",
    interval: str = "1s",
    alertmanagers: Sequence[str] = (),
    job_settings: Mapping[str, Any] | None = None,
) -> Iterator[Prometheus]:
    """Run Prometheus, scraping `targets` (host:port) every `interval`, until the block ends; yield it when ready."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "global": {"scrape_interval": interval, "scrape_timeout": interval, "evaluation_interval": interval},
        "rule_files": [str(rule.resolve()) for rule in rules],
        "scrape_configs": [{"job_name": job, "static_configs": [{"targets": list(targets)}], **(job_settings or {})}],
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": list(alertmanagers)}]}]},
    }
    (folder / "prometheus.yml").write_text(json.dumps(config))  # JSON is YAML
    server = Prometheus(free_port())
    command = [
        need("prometheus", "prometheus"),
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{server.port}",
        "--rules.alert.resend-delay=1s",
    ]
    log = folder / "prometheus.log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
    try:
        wait_until(lambda: process.poll() is not None or _answers(f"{server.url}/-/ready"), "Prometheus is ready")
        assert process.poll() is None, log.read_text()
        yield server
    finally:
        end(process)


# ---- Alertmanager ----


@contextmanager
def alertmanager(folder: Path, config: Path) -> Iterator[str]:
    """Run an Alertmanager with this configuration until the block ends; yield its address (host:port) when ready."""
    folder.mkdir(parents=True, exist_ok=True)
    address = f"127.0.0.1:{free_port()}"
    command = [
        need("prometheus-alertmanager", "prometheus-alertmanager"),
        f"--config.file={config}",
        f"--storage.path={folder / 'data'}",
        f"--web.listen-address={address}",
        "--cluster.listen-address=",  # no cluster, no port beyond loopback
    ]
    log = folder / "alertmanager.log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
    try:
        ready = f"http://{address}/-/ready"
        wait_until(lambda: process.poll() is not None or _answers(ready), "Alertmanager is ready")
        assert process.poll() is None, log.read_text()
        yield address
    finally:
        end(process)


# ---- the monitor itself ----


@dataclass
class Sidecar:
    """`cfmon run` as a process of its own."""

    process: subprocess.Popen[Any] | Forked
    log_file: Path

    @property
    def log(self) -> str:
        return self.log_file.read_text(errors="replace")

    @property
    def url(self) -> str:
        """URL of its metrics and status page, from its log."""
        found = re.search(r"status page at (http://[^\s\"]+)", self.log)
        assert found, self.log
        return found[1]

    def get(self, path: str) -> bytes:
        """Return the response for a path."""
        with urllib.request.urlopen(self.url + path, timeout=PATIENCE) as answer:
            content: bytes = answer.read()
            return content

    def metric(self, series: str) -> float | None:
        """Return the value of a series, written as in the exposition, such as `cfmon_up`; None during the start."""
        try:
            exposition = self.get("/metrics").decode()
        except urllib.error.HTTPError as error:
            if error.code != http.HTTPStatus.SERVICE_UNAVAILABLE:
                raise
            return None
        except ConnectionError:  # the start-up server is being replaced
            return None
        for line in exposition.splitlines():
            if line.startswith(f"{series} "):
                return float(line.rpartition(" ")[2])
        return None

    def ready(self) -> bool:
        """Return whether it is connected to the broker and ready."""
        return _answers(f"{self.url}/readyz")

    def stop(self) -> int:
        """Send SIGTERM, as systemd and Kubernetes do; return the exit code."""
        return end(self.process)


@contextmanager
def sidecar(config: Path, *arguments: str) -> Iterator[Sidecar]:
    """Run `cfmon run` on a configuration until the block ends; yield it when serving and connected."""
    log_file = config.parent / "sidecar.log"
    log_file.write_bytes(b"")
    process = fork_monitor("run", str(config), *arguments, log=log_file)
    running = Sidecar(process, log_file)
    try:
        wait_until(lambda: process.poll() is not None or "status page at" in running.log, "the sidecar serves")
        assert process.poll() is None, running.log
        wait_until(running.ready, "the sidecar is ready")
        yield running
    finally:
        end(process)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
