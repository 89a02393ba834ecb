"""Run the demo's agent: choose actions with an ONNX policy, act in a simulator, publish every step over MQTT.

The agent is a separate process and shares only the broker with the monitor. It stops at SIGTERM, or at the end of the
episode in which it has published `--steps` steps.
"""

from __future__ import annotations

import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgpack
import numpy as np
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion

from monitor.demo.heating import House
from monitor.demo.model_environment import ModelEnvironment
from monitor.errors import MonitorError
from monitor.evaluation.models import AnyModel, load_any_policy, require_table
from monitor.model import load_model
from monitor.policy.controller import Reader
from monitor.policy.onnx_policy import Actor
from monitor.sidecar.mqtt.broker import parse_broker
from monitor.worlds import load_world

MAX_EPISODE_STEPS = 200
"""Maximum number of steps of an episode. Longer episodes are truncated, as in other simulators."""

ACKNOWLEDGED_WITHIN = 20.0
"""Seconds within which the broker must acknowledge a step."""


LOST = 0.05
"""Probability that an observation of a hidden state is not sent to the monitor."""

Decide = Callable[[int, np.random.Generator], int]
"""Function that chooses an action for an observation."""


@dataclass(frozen=True)
class SimulatedAgent:
    """A policy that acts in a simulator.

    `begin` returns the function that chooses the actions of one episode. `policy`: SHA-256 of the policy's file. `run`:
    prefix of episode names, so that two runs never share an episode name.
    """

    simulator: ModelEnvironment
    begin: Callable[[], Decide]
    policy: str
    rng: np.random.Generator
    run: str

    @classmethod
    def of(cls, model: AnyModel, policy: str | Path, seed: int) -> SimulatedAgent:
        """Return the agent of a policy's manifest, in a model's simulator.

        Raises ConfigError if the model is no table; ModelError, PolicyError.
        """
        model = require_table(model, "a simulated agent acts in a table of states")
        environment_rng, policy_rng = np.random.default_rng(seed).spawn(2)
        simulator, run = ModelEnvironment(model, environment_rng), f"seed{seed}"
        loaded = load_any_policy(policy, model)
        if isinstance(reader := loaded.table, Reader):
            return cls(simulator, lambda: _Rememberer(reader, simulator).decide, loaded.sha256, policy_rng, run)
        actor = Actor.load(policy, model)
        return cls(simulator, lambda: actor.decide, actor.manifest.sha256, policy_rng, run)

    def episode(self, number: int) -> Iterator[dict[str, object]]:
        """Yield the messages of one episode, without `time`: one for each decision, and one for the terminal state."""
        seen, decide = self.simulator.reset(), self.begin()
        for seq in range(MAX_EPISODE_STEPS):
            message: dict[str, object] = {
                "v": 1,
                "episode": f"{self.run}-{number}",
                "seq": seq,
                **self._shown(seen),
            }
            if self.simulator.over:
                yield {**message, "terminated": True}
                return
            action = decide(seen, self.rng)
            cut_off = {"truncated": True} if seq == MAX_EPISODE_STEPS - 1 else {}
            yield {**message, "action": action, "policy": self.policy, **cut_off}
            seen = self.simulator.step(action)

    def messages(self, steps: int) -> Iterator[dict[str, object]]:
        """Yield whole episodes until there are at least `steps` messages; with 0, without end."""
        sent = number = 0
        while steps == 0 or sent < steps:
            for message in self.episode(number):
                yield message
                sent += 1
            number += 1

    def _shown(self, seen: int) -> dict[str, object]:
        """Return the part of a message with the agent's observation, and with the true state if states are hidden."""
        if not self.simulator.hidden:
            return {"state": seen}
        return {"observation": None if self.rng.random() < LOST else seen, "state": self.simulator.state}


class _Rememberer:
    """One episode of a policy that sees observations or has a memory."""

    def __init__(self, reader: Reader, simulator: ModelEnvironment) -> None:
        self._reader, self._simulator = reader, simulator
        self._memory = 0

    def decide(self, seen: int, rng: np.random.Generator) -> int:
        """Return the action for an observation."""
        read = self._simulator.state if self._reader.sees_state else seen
        self._memory, chances = self._reader.read(self._memory, read)
        return int(rng.choice(len(chances), p=chances))


def publish(agent: SimulatedAgent | House, arguments: Namespace) -> None:
    """Publish each step at QoS 1 until `steps` steps are sent and the episode is over; with 0, without end.

    Raises OSError if the broker cannot be reached, or if it does not acknowledge a step in time.
    """
    broker = parse_broker(arguments.url)
    client = Client(CallbackAPIVersion.VERSION2, client_id=arguments.topic.replace("/", "-"))
    client.username_pw_set(broker.username, broker.password)
    client.connect(broker.host, broker.port)
    client.loop_start()
    try:
        for message in agent.messages(arguments.steps):
            sent = client.publish(arguments.topic, msgpack.packb({**message, "time": time.time()}), qos=1)
            sent.wait_for_publish(ACKNOWLEDGED_WITHIN)
            if not sent.is_published():
                raise TimeoutError(f"{broker.address} did not acknowledge a step within {ACKNOWLEDGED_WITHIN:.0f} s")
            time.sleep(arguments.interval)
    except RuntimeError as error:  # paho raises this when the connection is lost
        raise ConnectionError(f"lost the connection to {broker.address}: {error}") from error
    finally:
        client.disconnect()
        client.loop_stop()


def main(argv: Sequence[str] | None = None) -> int:
    """Run the agent that the command line describes; return the exit code."""
    parser = ArgumentParser("python -m monitor.demo.agent", description=__doc__)
    parser.add_argument("--model", required=True, help="model to simulate")
    parser.add_argument("--policy", required=True, type=Path, help="manifest of the ONNX policy to act with")
    parser.add_argument("--weather", type=Path, help="recorded inputs, if the model is a world with numbers")
    parser.add_argument("--url", required=True, help="URL of the MQTT broker")
    parser.add_argument("--topic", required=True, help="topic to publish steps on")
    parser.add_argument(
        "--steps", type=int, default=0, help="steps to publish, rounded up to whole episodes; 0: run until stopped"
    )
    parser.add_argument("--seed", type=int, default=0, help="random seed of the simulator and the policy")
    parser.add_argument("--interval", type=float, default=0.1, help="seconds between two steps")
    arguments = parser.parse_args(argv)
    try:
        publish(_agent(arguments), arguments)
    except (MonitorError, OSError) as error:
        sys.stderr.write(f"agent: {error}\n")
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


def _agent(arguments: Namespace) -> SimulatedAgent | House:
    if arguments.weather is not None:
        world = load_world(arguments.model)
        policy = load_any_policy(arguments.policy, world)
        return House.of(world, policy.table, arguments.weather, arguments.seed, policy.sha256)  # type: ignore[arg-type] # of a world
    model = load_model(arguments.model)
    return SimulatedAgent.of(model, arguments.policy, arguments.seed)


if __name__ == "__main__":
    sys.exit(main())
