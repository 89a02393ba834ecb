"""The soak's traffic through a real mosquitto into `cfmon run`: `python -m tests.faults.broker_soak`.

Fewer messages than the soak, since broker and publisher take most of the time; figures of the monitor's own process.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import tempfile
import time
from itertools import islice
from pathlib import Path
from typing import Any, Final

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion

from tests.faults.soak import Traffic, corridor, settings
from tests.servers import Sidecar, mosquitto, sidecar, wait_until
from tests.sidecar.project import write_project

__all__: list[str] = []

AHEAD: Final = 500
"""Messages on their way at most."""


def _publish(port: int, messages: list[tuple[str, bytes]]) -> None:
    client = mqtt.Client(CallbackAPIVersion.VERSION2)
    client.max_inflight_messages_set(AHEAD)
    client.connect("127.0.0.1", port)
    client.loop_start()
    for number, (topic, payload) in enumerate(messages):
        sent = client.publish(topic, payload, qos=1)
        if number % AHEAD == AHEAD - 1:
            sent.wait_for_publish()
    sent.wait_for_publish()
    client.disconnect()
    client.loop_stop()


def _taken(running: Sidecar) -> int:
    lines = running.get("/metrics").decode().splitlines()
    counted = [line for line in lines if line.startswith("cfmon_messages_total{") and 'result="gap"' not in line]
    return sum(int(float(line.rpartition(" ")[2])) for line in counted)


def _resident(running: Sidecar) -> float:
    pages = int(Path(f"/proc/{running.process.pid}/statm").read_text().split()[1])
    return round(pages * resource.getpagesize() / 2**20, 2)


def _run(folder: Path, count: int) -> dict[str, Any]:
    coming = Traffic(random.Random(1)).messages()
    with mosquitto(folder / "broker") as broker:
        faster = settings().replace("stale_after: 20s, forget_after: 60s", "stale_after: 2s, forget_after: 6s")
        config = write_project(folder, corridor(), faster.replace("127.0.0.1:1", f"127.0.0.1:{broker.port}"))
        with sidecar(config) as running:
            expected, series = 0, []
            began = time.perf_counter()
            for _ in range(10):
                messages = list(islice(coming, count // 10))
                expected += sum(topic.count("/") == 2 for topic, _ in messages)
                _publish(broker.port, messages)
                wait_until(lambda: _taken(running) >= expected, f"{expected} messages are taken over", patience=300.0)  # noqa: B023 - asked at once
                series.append({"messages": expected, "resident": _resident(running)})
            seconds = time.perf_counter() - began
    return {"messages": expected, "messages_per_second": round(expected / seconds), "series": series}


def main() -> None:
    """Run, print, and write what it came to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--out", type=Path, default=Path("var/soak-broker.json"))
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="cfmon-soak-") as folder:
        result = _run(Path(folder), chosen.messages)
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    chosen.out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result))  # noqa: T201 - what this command is for


if __name__ == "__main__":
    main()
