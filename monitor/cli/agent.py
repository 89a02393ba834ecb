"""The demo's agent, a process of its own: decides by its ONNX file, acts in a simulator, publishes every step.

`python -m monitor.cli.agent --help`. It shares no memory with the monitor, only the broker; it ends at SIGTERM, or
after `--steps` steps at the end of the episode it is in.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import time
from argparse import ArgumentParser, ArgumentDefaultsHelpFormatter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import aiomqtt
import msgpack
import numpy as np

from monitor.cli.simulator import Simulator
from monitor.errors import MonitorError
from monitor.model.io import load_model
from monitor.policy.session import Actor

__all__ = ["episodes", "main"]

MAX_EPISODE_STEPS = 200
"""An episode that has not ended by then is truncated, as simulators do."""


@dataclass(frozen=True)
class Life:
    """Who acts where. `run` begins every episode's name, so that two runs never share one."""

    simulator: Simulator
    actor: Actor
    rng: np.random.Generator
    run: str

    def episode(self, number: int) -> Iterator[dict[str, object]]:
        """The messages of one episode, without the clock: one a decision, and a last one that ends it."""
        state = self.simulator.reset()
        for seq in range(MAX_EPISODE_STEPS):
            message: dict[str, object] = {"v": 1, "episode": f"{self.run}-{number}", "seq": seq, "state": state}
            if self.simulator.over:
                yield {**message, "terminated": True}
                return
            action = self.actor.decide(state, self.rng)
            yield {**message, "action": action, "policy": self.actor.sha256, **_last(seq)}
            state = self.simulator.step(action)


def _last(seq: int) -> dict[str, object]:
    return {"truncated": True} if seq == MAX_EPISODE_STEPS - 1 else {}


async def _publish(life: Life, url: str, topic: str, steps: int, interval: float) -> None:
    address = urlsplit(url)
    sent = 0
    async with aiomqtt.Client(address.hostname or "localhost", address.port or 1883) as client:
        number = 0
        while steps == 0 or sent < steps:
            for message in life.episode(number):
                payload = msgpack.packb({**message, "time": time.time()})
                await client.publish(topic, payload, qos=1)
                sent += 1
                await asyncio.sleep(interval)
            number += 1
