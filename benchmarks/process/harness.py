"""The whole process, measured from outside: `cfmon run` behind mosquitto, and two subscribers that only decode.

`python -m benchmarks.process.harness [NAME...]` runs these functions and prints what they return; `shipped:CONFIG` is
the fleet under a shipped configuration. Each function returns plain values for the table.
"""

from __future__ import annotations

import json
import os
import re
import select
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import IO, Any

from benchmarks.process.grid import FALLBACK, FORMULA, NOMINAL, grid
from benchmarks.process.publisher import FLOOD
from tests.servers import end, mosquitto
from tests.sidecar.project import CONFIG, write_policy, write_project

__all__ = ["Fleet", "Shipped", "Start", "Throughput", "many_agents", "shipped", "starting", "whole_process"]

SETTINGS = ("max_inflight_messages 1000",)
"""Settings of the broker for both sides; `tests.servers` already raises max_queued_messages to 65000."""

PATIENCE = 300.0
REPOSITORY = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Throughput:
    """Rate of ours and of the bare subscribers in a flood, per second; lag (p50, p99) in seconds at a steady `pace`.

    The bare subscribers: one with aiomqtt, one with gmqtt, whose figures are None if it is not installed.

    `unstored_lag`: without a store, so that no message waits for the disk. `answered`: fraction of the flood's steps
    that were evaluated; the others were skipped, and counted as skipped. `steady_answered`: the same at the steady
    pace. `every_rate`: rate of a flood in which no evaluation is skipped. `busy`, `every_busy`, `bare_busy`,
    `gmqtt_busy`: CPU seconds per message of the flood in that process only; unlike the rates, they exclude the broker
    and the publisher, which use the same cores.
    """

    rate: float
    every_rate: float
    bare_rate: float
    gmqtt_rate: float | None
    busy: float
    every_busy: float
    bare_busy: float
    gmqtt_busy: float | None
    lag: tuple[float, float]
    unstored_lag: tuple[float, float]
    bare_lag: tuple[float, float]
    pace: float
    answered: float
    steady_answered: float


@dataclass(frozen=True)
class Fleet:
    """Many agents on one core: steps accepted and evaluated, lag in seconds (p50, p99, largest), memory per agent."""

    agents: int
    pace: float
    sent: int
    accepted: int
    answered: int
    lag: tuple[float, float, float]
    bytes_an_agent: float
    busy: float
    scrape: float


@dataclass(frozen=True)
class Shipped:
    """A thousand agents under a configuration as it is shipped, ten steps a second each, the sidecar on one core.

    `sent`, `accepted`: messages of one round. `bare_busy`: CPU seconds per message of the bare subscriber with aiomqtt.
    Of each round, the first ones of a new monitor and as many after them: `busy`: CPU seconds per message; `alerts`:
    alerts per message; `answered`: fraction of the steps that were evaluated; `lag`: seconds (p50, p99).
    """

    sent: int
    accepted: list[int]
    bare_busy: float
    busy: list[float]
    alerts: list[float]
    answered: list[float]
    lag: list[tuple[float, float]]


@dataclass(frozen=True)
class Start:
    """Medians over starts of new processes.

    `imported`: seconds of importing all that `cfmon run` needs, without the interpreter's own start. `ready`: seconds
    from the start of `cfmon run` until /readyz is 200. `memory`: bytes in memory then.
    """

    imported: float
    ready: float
    memory: float


def write_world(folder: Path, url: str, *, agents: int = 1000, stored: bool = True) -> Path:
    """Write the project of the grid; return its configuration file. `stored`: the monitor has a store."""
    formula = json.dumps({"name": "kept", "formula": FORMULA})
    head, _, rest = CONFIG.partition("formulas:\n")
    rest = "heartbeat:" + rest.partition("heartbeat:")[2]
    config = f"{head}formulas:\n  - {formula}\n{rest}limits: {{agents: {agents}}}\n"
    config = config.replace("rash.yaml, careful:", "rash.yaml, fallback:").replace("mqtt://127.0.0.1:1", url)
    config = config.replace("window: 16", "window: 64").replace("heartbeat: 1s", "heartbeat: 10s")
    if not stored:
        config = re.sub(r"(?m)^store: .*$", "store: {path: null}", config)
    path = write_project(folder, model := grid(), config)
    for name, actions in (("rash", NOMINAL), ("careful", FALLBACK)):
        write_policy(folder, name, list(actions), model.actions)
    return path


@contextmanager
def child(
    module: str, *arguments: object, log: IO[bytes] | None = None, writable: bool = False
) -> Iterator[subprocess.Popen[str]]:
    """Run one of our modules as a separate process. `writable`: its standard input is a pipe from this process."""
    command = [sys.executable, "-m", module, *map(str, arguments)]
    stdin = subprocess.PIPE if writable else None
    with subprocess.Popen(command, stdin=stdin, stdout=subprocess.PIPE, stderr=log, text=True) as process:
        try:
            yield process
        finally:
            end(process)


def publish(port: int, agents: int, rate: float, seconds: float, config: Path | None = None) -> None:
    """Publish the steps of agents in the grid, or of those of a configuration."""
    arguments = [str(a) for a in (port, agents, rate, seconds)] + ([] if config is None else ["--config", str(config)])
    subprocess.run([sys.executable, "-m", "benchmarks.process.publisher", *arguments], check=True, timeout=PATIENCE)


def printed(process: subprocess.Popen[str]) -> dict[str, Any]:
    """Return the next line of JSON that a process prints."""
    assert process.stdout is not None
    assert select.select([process.stdout], [], [], PATIENCE)[0], "messages are missing: the broker dropped them"
    line = process.stdout.readline()
    assert line.startswith("{"), line
    measured: dict[str, Any] = json.loads(line)
    return measured


def quantile(values: Sequence[float], part: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]


# ---- ours and the bare subscribers ----


def measure_bare(
    folder: Path, agents: int, rate: float, seconds: float, *, module: str = "bare", config: Path | None = None
) -> dict[str, Any]:
    count = round((rate or FLOOD) * seconds)
    with mosquitto(folder, *SETTINGS) as broker, child(f"benchmarks.process.{module}", broker.port, count) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        publish(broker.port, agents, rate, seconds, config)
        return printed(process)


@contextmanager
def probed(folder: Path, config: Path, count: int, *options: object) -> Iterator[tuple[Any, str]]:
    """Run the sidecar with its probe until ready; yield the process and its URL."""
    log_file = folder / "sidecar.log"
    with log_file.open("wb") as log, child("benchmarks.process.probe", config, count, *options, log=log) as process:
        yield process, _until_ready(process, log_file)


def _until_ready(process: subprocess.Popen[Any], log_file: Path) -> str:
    """Wait until a sidecar is ready; return its URL."""
    deadline = time.monotonic() + PATIENCE
    while "connected to" not in (text := log_file.read_text()):
        assert process.poll() is None, text
        assert time.monotonic() < deadline, text
        time.sleep(0.02)
    url = text.partition("status page at ")[2].split()[0]
    while not _ready(url):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return url


def measure_ours(
    folder: Path, agents: int, rate: float, seconds: float, *options: str, stored: bool = True
) -> dict[str, Any]:
    count = round((rate or FLOOD) * seconds)
    with (
        mosquitto(folder / "broker", *SETTINGS) as broker,
        probed(folder, write_world(folder / "project", broker.url, stored=stored), count, *options) as (process, _),
    ):
        publish(broker.port, agents, rate, seconds)
        return printed(process)


def whole_process(seconds: float = 3.0, *, pace: float = 2000.0, agents: int = 10, rounds: int = 3) -> Throughput:
    """Measure a flood of `seconds` times 10,000 messages, then a steady pace, on both sides; medians over rounds."""
    kinds = ("flood", "every", "bare", "gmqtt", "steady", "unstored steady", "bare steady")
    runs: dict[str, list[dict[str, Any]]] = {kind: [] for kind in kinds}
    with tempfile.TemporaryDirectory() as name:
        for n in range(rounds):
            folder = Path(name) / str(n)
            runs["flood"].append(measure_ours(folder / "flood", agents, 0.0, seconds))
            runs["every"].append(measure_ours(folder / "every", agents, 0.0, seconds, "--every"))
            runs["bare"].append(measure_bare(folder / "bare", agents, 0.0, seconds))
            if find_spec("gmqtt") is not None:
                runs["gmqtt"].append(measure_bare(folder / "gmqtt", agents, 0.0, seconds, module="bare_gmqtt"))
            runs["steady"].append(measure_ours(folder / "steady", agents, pace, seconds))
            runs["unstored steady"].append(measure_ours(folder / "unstored", agents, pace, seconds, stored=False))
            runs["bare steady"].append(measure_bare(folder / "bare-steady", agents, pace, seconds))
    assert all(run["answered"] == run["accepted"] for run in runs["every"]), "with --every no evaluation is skipped"
    return Throughput(
        rate=_middle(runs["flood"], "rate"),
        every_rate=_middle(runs["every"], "rate"),
        bare_rate=_middle(runs["bare"], "rate"),
        gmqtt_rate=_middle(runs["gmqtt"], "rate") if runs["gmqtt"] else None,
        busy=_middle(runs["flood"], "busy"),
        every_busy=_middle(runs["every"], "busy"),
        bare_busy=_middle(runs["bare"], "busy"),
        gmqtt_busy=_middle(runs["gmqtt"], "busy") if runs["gmqtt"] else None,
        lag=_lag(runs["steady"]),
        unstored_lag=_lag(runs["unstored steady"]),
        bare_lag=_lag(runs["bare steady"]),
        pace=pace,
        answered=median(run["answered"] / run["accepted"] for run in runs["flood"]),
        steady_answered=median(run["answered"] / run["accepted"] for run in runs["steady"]),
    )


def _middle(runs: Sequence[dict[str, Any]], what: str) -> float:
    return float(median(run[what] for run in runs))


def _lag(results: Sequence[dict[str, Any]]) -> tuple[float, float]:
    return median(quantile(r["lags"], 0.5) for r in results), median(quantile(r["lags"], 0.99) for r in results)


# ---- many agents ----


class Scraper:
    """Scraper of /metrics, once a second as Prometheus; `longest` is the largest duration in seconds."""

    def __init__(self, url: str) -> None:
        self.longest = 0.0
        self._url = url
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(1.0):
            begun = time.monotonic()
            _get(self._url + "/metrics")
            self.longest = max(self.longest, time.monotonic() - begun)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()


def many_agents(seconds: float = 10.0, *, agents: int = 1000, each: float = 10.0) -> Fleet:
    """Measure `agents` agents at `each` messages a second, with the sidecar on one core, scraped every second."""
    pace = agents * each
    count = round(pace * seconds)
    with (
        tempfile.TemporaryDirectory() as name,
        mosquitto(Path(name) / "broker", *SETTINGS) as broker,
        probed(Path(name), write_world(Path(name) / "project", broker.url, agents=agents), count, "--core", 0) as (
            process,
            url,
        ),
    ):
        _get(url + "/metrics")
        before, scraper = memory(process.pid), Scraper(url)
        begun, cpu = time.monotonic(), cpu_seconds(process.pid)
        try:
            publish(broker.port, agents, pace, seconds)
            measured = printed(process)
        finally:
            scraper.stop()
        busy = (cpu_seconds(process.pid) - cpu) / (time.monotonic() - begun)
        grown = memory(process.pid) - before
    lags = measured["lags"]
    return Fleet(
        agents=agents,
        pace=pace,
        sent=count,
        accepted=measured["accepted"],
        answered=measured["answered"],
        lag=(quantile(lags, 0.5), quantile(lags, 0.99), max(lags)),
        bytes_an_agent=grown / agents,
        busy=busy,
        scrape=scraper.longest,
    )


def shipped(config: str, seconds: float = 6.0, *, agents: int = 1000, each: float = 10.0) -> Shipped:
    """Measure a fleet under `config/<config>.yaml`, and a bare subscriber to the same messages.

    In each of two rounds at most as many messages as the broker queues, so that none is lost where the pace is not
    sustained; the second begins when the first is evaluated.
    """
    pace = agents * each
    count = round(pace * seconds)
    source = REPOSITORY / "config" / f"{config}.yaml"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        bare = measure_bare(folder / "bare", agents, pace, seconds, config=source)
        with mosquitto(folder / "broker", *SETTINGS) as broker:
            copy = folder / "config.yaml"
            copy.write_text(_moved(source.read_text(), broker.url, folder))
            fleet = broker.port, agents, pace, seconds, "--config", source, "--rounds", 2
            with (
                probed(folder, copy, count, "--core", 0) as (process, _),
                child("benchmarks.process.publisher", *fleet, writable=True) as publisher,
            ):
                rounds = [printed(process)]
                publisher.communicate("go on\n", timeout=PATIENCE)
                assert publisher.returncode == 0, "the publisher failed"
                rounds.append(printed(process))
    return Shipped(
        sent=count,
        accepted=[ours["accepted"] for ours in rounds],
        bare_busy=bare["busy"],
        busy=[ours["busy"] for ours in rounds],
        alerts=[ours["alerts"] / count for ours in rounds],
        answered=[ours["answered"] / (ours["answered"] + ours["skipped"]) for ours in rounds],
        lag=[(quantile(ours["lags"], 0.5), quantile(ours["lags"], 0.99)) for ours in rounds],
    )


def _moved(config: str, url: str, folder: Path) -> str:
    """Return a shipped configuration for another broker, port and folder."""
    changes = {
        "mqtt://localhost:1883": url,
        "../policies": str(REPOSITORY / "policies"),
        "../var": str(folder / "var"),
        "127.0.0.1:9108": "127.0.0.1:0",
    }
    for before, after in changes.items():
        assert before in config, f"the shipped configuration has no {before}"
        config = config.replace(before, after)
    return config


def memory(pid: int) -> int:
    """Return the resident bytes of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def cpu_seconds(pid: int) -> float:
    """Return the CPU seconds that a process has used, user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# ---- start ----


def starting(rounds: int = 5) -> Start:
    """Measure starts: the first one of each kind is not counted, since files are not in the cache yet."""
    imports = [_seconds("import monitor.sidecar.service") - _seconds("pass") for _ in range(rounds + 1)]
    starts, sizes = [], []
    with tempfile.TemporaryDirectory() as name, mosquitto(Path(name) / "broker") as broker:
        config = write_world(Path(name) / "project", broker.url)
        log_file = Path(name) / "sidecar.log"
        for _ in range(rounds + 1):
            begun = time.monotonic()
            with log_file.open("wb") as log:
                process = subprocess.Popen(
                    [sys.executable, "-m", "monitor", "run", str(config)], stdout=log, stderr=log
                )
            try:
                _until_ready(process, log_file)
                starts.append(time.monotonic() - begun)
                pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
                sizes.append(float(pages * os.sysconf("SC_PAGESIZE")))
            finally:
                end(process)
    return Start(median(imports[1:]), median(starts[1:]), median(sizes[1:]))


def _seconds(code: str) -> float:
    begun = time.monotonic()
    subprocess.run([sys.executable, "-c", code], check=True)
    return time.monotonic() - begun


def _get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=30) as answer:
        content: bytes = answer.read()
        return content


def _ready(url: str) -> bool:
    try:
        _get(url + "/readyz")
    except OSError:
        return False
    return True


if __name__ == "__main__":
    for name in (each for each in sys.argv[1:] if each.startswith("shipped:")):
        sys.stdout.write(f"{shipped(name.partition(':')[2])}\n")
    wanted = sys.argv[1:] or ["whole_process", "many_agents", "starting"]
    for measure in (whole_process, many_agents, starting):
        if measure.__name__ in wanted:
            sys.stdout.write(f"{measure()}\n")
