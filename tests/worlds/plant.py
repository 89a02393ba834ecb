"""A plant for whole routes: a clipped number, named values, a count and inputs; its files, agents and events."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from monitor.sidecar.events import Connected, Evaluate, Event, Heartbeat, Lost, Message
from monitor.types import Instant
from monitor.worlds import load_world
from tests.worlds.graphs import linear, world_files

__all__ = ["DAY", "FORMULAS", "LENGTH", "PLANT", "agent_steps", "events", "write_plant", "write_policy"]

START, DAY = 1_790_000_000.0, 86_400.0
LENGTH = 24
"""Steps of an episode; every second one ends terminated, the others truncated."""
NAMES = ("level", "pump", "fish")
PUMPS = ("idle", "busy", "down")
PLANT: dict[str, Any] = {
    "features": [
        {"name": "level", "unit": "m", "low": 0, "high": 10, "clip": True},
        {"name": "pump", "values": list(PUMPS), "probabilities": "file:pump"},
        {"name": "fish", "low": 0, "high": 30, "whole": True, "clip": True},
    ],
    "actions": ["shut", "open"],
    "inputs": [{"name": "rain", "low": 0}, {"name": "tide"}],
    "location": "file:location",
    "scale": [0.2, 1.5],
    "labels": {"overflow": "level >= 9", "broken": "pump == 'down'"},
}
WEATHER = [(round(0.5 + 0.3 * math.sin(n / 3), 3), round(math.cos(n), 3)) for n in range(60)]
"""Inputs recorded earlier, of which those to come are resampled."""
GRAPHS = {
    "location": linear(
        {"x": [[1, 0], [-0.2, 0], [0, 0.9]], "a": [[0, 0], [-1.2, 0.5]], "w": [[1, 0], [0, 0.5]]}, [0.0, 1.0]
    ),
    "pump": linear({"x": [[0, 0.1, 0], [0.5, 1, 0.2], [0, 0, 0]]}, [2.0, 1.0, 0.0], softmax=True),
}
POLICIES = {"nominal": 99.0, "careful": 6.5}
"""The level beyond which each opens the valve."""
FORMULAS: list[dict[str, Any]] = [
    {"name": "watch", "formula": 'regret(careful@4, P>=0.9 [ G<=3 !"overflow" ])', "alarm": {"keep": 2}},
    {"name": "pumping", "formula": 'careful@2.P>=0.5 [ F<=2 "broken" ]', "every": 3, "alarm": {"for": 2}},
]


def write_plant(folder: Path, **sections: object) -> Path:
    """Write world, policies and configuration; return the configuration."""
    folder.mkdir(parents=True, exist_ok=True)
    weather = "".join(f"{rain},{tide}\n" for rain, tide in [("rain", "tide"), *WEATHER]).encode()
    (folder / "weather.csv").write_bytes(weather)
    recorded = {"file": "weather.csv", "sha256": hashlib.sha256(weather).hexdigest()}
    world_files(folder, PLANT | {"recorded_inputs": recorded}, **GRAPHS)
    for name, opens in POLICIES.items():
        write_policy(folder, name, linear({"x": [[0, 1.0], [0, 0], [0, 0]]}, [opens, 0.0]))
    config = {
        "mqtt": {"url": "mqtt://127.0.0.1:1"},
        "model": "world.yaml",
        "state_encoder": "features",
        "policies": {name: f"{name}.yaml" for name in POLICIES},
        "path": {"window": 12},
        "stream": {"max_lag": "30m", "stale_after": "30m"},
        "formulas": FORMULAS,
        **sections,
    }
    path = folder / "cfmon.yaml"
    path.write_text(json.dumps(config))  # JSON is YAML
    return path


def write_policy(folder: Path, name: str, network: bytes) -> None:
    """Write a network from the state, `x`, to the values of actions, and its manifest."""
    (folder / f"{name}.onnx").write_bytes(network)
    manifest = {
        "file": f"{name}.onnx",
        "sha256": hashlib.sha256(network).hexdigest(),
        "input": {"name": "x", "kind": "observation"},
        "output": {"name": "y", "kind": "q_values"},
        "mode": "greedy",
        "mask": False,
    }
    (folder / f"{name}.yaml").write_text(json.dumps(manifest))  # JSON is YAML


def agent_steps(folder: Path, seed: int) -> Iterator[dict[str, Any]]:
    """Yield the messages of one agent endlessly, episode after episode; by name and in order in turn.

    In each third episode, the first one of agent 1, the careful policy takes over in the middle.
    """
    careful = json.loads((folder / "careful.yaml").read_text())["sha256"]
    world, rng, episode = load_world(folder / "world.yaml"), np.random.default_rng(seed), 0
    while True:
        state = np.array([[6.0, 0.0, 9.0]])
        for seq in range(LENGTH):
            rain, tide = float(rng.uniform(0.2, 0.8)), float(rng.normal())
            level, pump, fish = state[0].tolist()
            taken = (episode + seed) % 3 == 1 and seq >= LENGTH // 2
            action = int(level > POLICIES["careful"]) if taken else int(rng.random() < 0.1)
            named = {"level": level, "pump": PUMPS[int(pump)], "fish": fish}
            yield {
                "v": 1,
                "episode": episode,
                "seq": seq,
                "state": named if seq % 2 else [level, int(pump), int(fish)],
                "action": ("shut", "open")[action] if seq % 3 else action,
                "inputs": {"tide": tide, "rain": rain} if seq % 5 else [rain, tide],
                **({"policy": careful} if taken else {}),
                **({("terminated", "truncated")[episode % 2]: True} if seq == LENGTH - 1 else {}),
            }
            noise = rng.uniform(size=(1, world.noise))
            state = world.step(state, np.array([action]), noise, (rain, tide))
        episode += 1


def events(folder: Path, steps: int, agents: int = 3, *, days: float = 0.5) -> list[Event]:
    """Steps of agents over midnight, some of them lost, repeated or nonsense; `folder`: of `write_plant`."""
    rng, pause = np.random.default_rng(steps), days * DAY / steps
    sources = [agent_steps(folder, seed) for seed in range(agents)]
    found: list[Event] = [Connected(Instant(START, 0.0), up=True)]
    for n in range(steps):
        for agent, source in enumerate(sources):
            ticks = n * pause + agent * 0.01
            now, topic = Instant(START + ticks, ticks), f"agents/house-{agent}/steps"
            step = {**next(source), "time": START + ticks}
            message = Message(now, topic, msgspec.msgpack.encode(step) if agent % 2 else json.dumps(step).encode())
            luck = rng.random()
            found += [Lost(now, topic, 1)] if luck < 0.01 else [message] * (1 + (luck > 0.97))
            found += [Message(now, topic, message.payload[:-9])] if 0.01 < luck < 0.02 else []
            found.append(Evaluate(now, steps=1000))
        found.append(Heartbeat(now))
    return found
