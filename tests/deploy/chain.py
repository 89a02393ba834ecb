"""Common parts of the tests of the alert chain: agents that publish, the monitor as a process, shortened rules."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgpack
import paho.mqtt.client as mqtt
import yaml
from paho.mqtt.enums import CallbackAPIVersion

from tests.processes import Forked, fork_monitor
from tests.servers import end

__all__ = ["ALERTS", "Publisher", "cfmon", "hastened", "publisher"]

RULES = Path(__file__).parents[2] / "deploy" / "prometheus" / "cfmon.rules.yml"
ALERTS = {rule["alert"] for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]}


def hastened(folder: Path) -> Path:
    """Write the shipped rules with all durations shortened and nothing else changed; return the file."""
    content = yaml.safe_load(RULES.read_text())
    changes = 0
    for rule in (rule for group in content["groups"] for rule in group["rules"]):
        rule["expr"], ages = re.subn(r"(?<=[<>] )(?:60|3600)\b", "4", rule["expr"])
        rule["expr"], windows = re.subn(r"\[5m\]", "[4s]", rule["expr"])
        changes += ages + windows + ("for" in rule)
        if "for" in rule:
            rule["for"] = "1s"
    assert changes > len(ALERTS) / 2
    path = folder / "rules.yml"
    path.write_text(yaml.safe_dump(content))
    return path


@dataclass
class Publisher:
    """Publisher of the agents' steps and of malformed messages."""

    client: mqtt.Client
    seq: dict[str, int] = field(default_factory=dict)
    episode: str = "first"

    def step(self, agent: str, state: int, action: int, *, qos: int = 1, **more: object) -> None:
        seq = self.seq[agent] = self.seq.get(agent, -1) + 1
        fields = {
            "v": 1,
            "episode": self.episode,
            "seq": seq,
            "state": state,
            "action": action,
            "time": time.time(),
            **more,
        }
        self.client.publish(f"agents/{agent}/steps", msgpack.packb(fields), qos=qos)

    def noise(self, agent: str) -> None:
        self.client.publish(f"agents/{agent}/steps", b"\xc1 not msgpack", qos=1)


@contextmanager
def publisher(port: int) -> Iterator[Publisher]:
    client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id="agents")
    client.reconnect_delay_set(1, 1)
    client.connect("127.0.0.1", port)
    client.loop_start()
    try:
        yield Publisher(client)
    finally:
        client.disconnect()
        client.loop_stop()


@contextmanager
def cfmon(config: Path) -> Iterator[Forked]:
    """Run `cfmon run` as a separate process, which must end cleanly on SIGTERM, unless it has been killed."""
    log = config.parent / "cfmon.log"
    process = fork_monitor("run", str(config), log=log)
    try:
        yield process
    finally:
        assert end(process) in {0, -signal.SIGKILL}, log.read_text()
