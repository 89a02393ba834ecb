"""The demo's agent, a process of its own: decides by its ONNX file, acts in a simulator, publishes every step.

`python -m monitor.cli.agent --help`. It shares no memory with the monitor, only the broker; it ends at SIGTERM, or
after `--steps` steps at the end of the episode it is in.
"""

from __future__ import annotations

import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgpack
import numpy as np
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion

from monitor.cli.simulator import Simulator
from monitor.errors import MonitorError
from monitor.model import load_model
from monitor.policy.session import Actor
from monitor.sidecar.mqtt.broker import parse_broker

__all__ = ["Life", "main", "publish"]

MAX_EPISODE_STEPS = 200
"""An episode that has not ended by then is truncated, as simulators do."""

PATIENCE = 20.0
"""Seconds for the broker to acknowledge one step."""


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

    def messages(self, steps: int) -> Iterator[dict[str, object]]:
        """Whole episodes, one after the other, until there are `steps` messages or more; 0: no end."""
        sent = number = 0
        while steps == 0 or sent < steps:
            for message in self.episode(number):
                yield message
                sent += 1
            number += 1


def publish(life: Life, arguments: Namespace) -> None:
    """Live episode after episode, each step at QoS 1, until `steps` are sent and the episode is over; 0: for ever.

    Raises OSError if the broker cannot be reached, or does not take a step over in time.
    """
    broker = parse_broker(arguments.url)
    client = Client(CallbackAPIVersion.VERSION2, client_id="cfmon-demo-agent")
    client.username_pw_set(broker.username, broker.password)
    client.connect(broker.host, broker.port)
    client.loop_start()
    try:
        for message in life.messages(arguments.steps):
            sent = client.publish(arguments.topic, msgpack.packb({**message, "time": time.time()}), qos=1)
            sent.wait_for_publish(PATIENCE)
            if not sent.is_published():
                raise TimeoutError(f"{broker.address} did not take a step over within {PATIENCE:.0f} s")
            time.sleep(arguments.interval)
    except RuntimeError as error:  # what paho says of a connection that is gone
        raise ConnectionError(f"{broker.address} is gone: {error}") from error
    finally:
        client.disconnect()
        client.loop_stop()


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
        publish(_born(arguments), arguments)
    except (MonitorError, OSError) as error:
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
