"""A service as tests drive it: in this process or beside it, with agents that publish and somebody who listens."""

from __future__ import annotations

import asyncio
import json
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import httpx

from monitor.sidecar.config.load import assemble
from monitor.sidecar.service import Service
from tests.servers import PATIENCE, Mosquitto, end, need, wait_until

__all__ = ["Inside", "Subscriber", "inside", "publish", "steps", "subscriber"]

NUMBERS = count()
"""Of subscribers, so that each is known by its name."""


def steps(path: Sequence[tuple[int, int]], *, episode: str = "one") -> list[str]:
    return [
        json.dumps({"v": 1, "episode": episode, "seq": seq, "state": state, "action": action})
        for seq, (state, action) in enumerate(path)
    ]


def publish(
    broker: Mosquitto, lines: Sequence[str], *, agent: str = "ada", topic: str = "agents/{agent}/steps"
) -> None:
    """Each line a message, from a process of its own."""
    command = [need("mosquitto_pub", "mosquitto-clients"), "-p", str(broker.port), "-h", "127.0.0.1", "-q", "1"]
    command += ["-t", topic.format(agent=agent), "-l"]
    subprocess.run(command, input="\n".join(lines) + "\n", text=True, check=True, timeout=PATIENCE)


class Subscriber:
    """What another process receives under `cfmon/#`: (topic, payload), in order."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.received: list[tuple[str, bytes]] = []
        self._process = process
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            topic, _, payload = line.strip().partition(" ")
            self.received.append((topic, bytes.fromhex(payload)))

    def alerts(self) -> list[dict[str, Any]]:
        return [json.loads(payload) for topic, payload in self.received if "/alerts/" in topic and payload]

    def close(self) -> None:
        end(self._process)
        self._thread.join(timeout=PATIENCE)


@contextmanager
def subscriber(broker: Mosquitto) -> Iterator[Subscriber]:
    name = f"listener-{next(NUMBERS)}"
    command = [need("mosquitto_sub", "mosquitto-clients"), "-p", str(broker.port), "-h", "127.0.0.1", "-q", "1"]
    command += ["-i", name]
    with subprocess.Popen([*command, "-t", "cfmon/#", "-F", "%t %x"], stdout=subprocess.PIPE, text=True) as process:
        running = Subscriber(process)
        try:
            wait_until(lambda: f"Received SUBSCRIBE from {name}" in broker.log, "the subscriber subscribes")
            yield running
        finally:
            running.close()


class Inside:
    """A service running in a thread with a loop of its own. `http`: a client of its pages."""

    def __init__(self, config: Path, **more: Any) -> None:  # noqa: ANN401 - passed on
        self.lines: list[str] = []
        self.service = Service(assemble(config), tell=self.lines.append, **more)
        self.url = self.service.start()
        self.http = httpx.Client(base_url=self.url, timeout=PATIENCE)
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self.service.run(self._stop),))
        self._thread.start()

    def metric(self, series: str) -> float | None:
        """The value of a series, written as in the exposition; None if there is none."""
        for line in self.http.get("/metrics").text.splitlines():
            if line.startswith(f"{series} "):
                return float(line.rpartition(" ")[2])
        return None

    def until_ready(self) -> None:
        """Wait until it hears what agents say."""
        wait_until(lambda: self.http.get("/readyz").status_code == 200, "it is ready")

    def reload(self) -> None:
        """As a SIGHUP would."""
        self._loop.call_soon_threadsafe(self.service.reload)

    def close(self) -> None:
        self.http.close()
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(timeout=PATIENCE)
        assert not self._thread.is_alive()
        self._loop.close()


@contextmanager
def inside(config: Path, **more: Any) -> Iterator[Inside]:  # noqa: ANN401 - passed on
    with closing(Inside(config, **more)) as running:
        yield running
