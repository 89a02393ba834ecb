"""The demo's agent, a process of its own: decides by its ONNX file, acts in a simulator, publishes every step.

`python -m monitor.cli.agent --help`. It shares no memory with the monitor, only the broker; it ends at SIGTERM, or
after `--steps` steps at the end of the episode it is in.
"""

from __future__ import annotations

import asyncio
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import aiomqtt
import msgpack
import numpy as np

from monitor.cli.simulator import Simulator
from monitor.errors import MonitorError
from monitor.model import load_model
from monitor.policy.session import Actor
from monitor.sidecar.broker import parse_broker

__all__ = ["Life", "main", "publish"]

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
        """The messages of one episode, all but the clock: one for each decision, and a last one where it ends."""
        state = self.simulator.reset()
        for seq in range(MAX_EPISODE_STEPS):
            message: dict[str, object] = {"v": 1, "episode": f"{self.run}-{number}", "seq": seq, "state": state}
            if self.simulator.over:
                yield {**message, "terminated": True}
                return
            action = self.actor.decide(state, self.rng)
            cut_off = {"truncated": True} if seq == MAX_EPISODE_STEPS - 1 else {}
            yield {**message, "action": action, "policy": self.actor.manifest.sha256, **cut_off}
            state = self.simulator.step(action)


async def publish(life: Life, arguments: Namespace) -> None:
    """Live episode after episode, each step at QoS 1, until `steps` are sent and the episode is over; 0: for ever."""
    broker = parse_broker(arguments.url)
    sent = number = 0
    async with aiomqtt.Client(broker.host, broker.port, identifier="cfmon-demo-agent") as client:
        while arguments.steps == 0 or sent < arguments.steps:
            for message in life.episode(number):
                await client.publish(arguments.topic, msgpack.packb({**message, "time": time.time()}), qos=1)
                sent += 1
                await asyncio.sleep(arguments.interval)
            number += 1


def main(argv: Sequence[str] | None = None) -> int:
    """Read the command line, be the agent; returns the exit code."""
    parser = ArgumentParser("python -m monitor.cli.agent", description=__doc__)
    parser.add_argument("--model", required=True, help="whose rows are the world's dynamics")
    parser.add_argument("--policy", required=True, type=Path, help="manifest of the ONNX file it decides by")
    parser.add_argument("--url", required=True, help="the broker's")
    parser.add_argument("--topic", required=True, help="to publish on")
    parser.add_argument("--steps", type=int, default=0, help="how many, rounded up to whole episodes; 0: no end")
    parser.add_argument("--seed", type=int, default=0, help="of the world's chance and its own")
    parser.add_argument("--interval", type=float, default=0.1, help="seconds between two steps")
    arguments = parser.parse_args(argv)
    try:
        asyncio.run(publish(_born(arguments), arguments))
    except (MonitorError, aiomqtt.MqttError) as error:
        sys.stderr.write(f"agent: {error}\n")
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


def _born(arguments: Namespace) -> Life:
    model = load_model(arguments.model)
    world, own = np.random.default_rng(arguments.seed).spawn(2)
    actor = Actor.load(arguments.policy, model)
    return Life(Simulator(model, world), actor, own, f"seed{arguments.seed}")


if __name__ == "__main__":
    sys.exit(main())
