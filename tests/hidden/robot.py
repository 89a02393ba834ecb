"""A robot on ice, which nobody sees, for whole routes: its model, policies of each kind, files, agents and events."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

import monitor
from monitor.policy.manifest import Output
from monitor.sidecar.events import Connected, Evaluate, Event, Heartbeat, Lost, Message
from monitor.types import Instant
from tests.hidden.files import write_controller, write_network
from tests.hidden.recurrent import hysteresis, write_recurrent

__all__ = ["CREEP", "DAY", "FALLEN", "GO", "GROUND", "ICE", "WARY", "agent_steps", "events", "policies", "robot",
           "write_robot"]  # fmt: skip

GROUND, ICE, FALLEN = 0, 1, 2
GO, CREEP = 0, 1
SHOWN = ("dry", "slippery")
WARY: dict[str, Any] = {"choice": [[[1, 0], [1, 0]], [[0, 1], [0, 1]]], "next": [[0, 1], [1, 1]]}
START, DAY = 1_790_000_000.0, 86_400.0
SHORTEST, LONGEST = 8, 24
"""Steps of an episode; of three, one ends terminated, one truncated, and after one the next just begins."""
FORMULAS: list[dict[str, Any]] = [
    {"name": "tally", "formula": 'brood@5.P<=0 [ F<=3 "fallen" ]', "alarm": {"severity": "info"}},
    {"name": "watch", "formula": 'regret(careful@3, P<=0.6 [ F<=4 "fallen" ])', "every": 2, "alarm": {"for": 2}},
    {"name": "icy", "formula": 'wary@2.P<=0.4 [ F<=2 "ice" ]', "alarm": {"keep": 2}},
]


def robot() -> monitor.MDP:
    moves = [
        (GROUND, GO, GROUND, 0.7), (GROUND, GO, ICE, 0.3), (GROUND, CREEP, GROUND, 0.8), (GROUND, CREEP, ICE, 0.2),
        (ICE, GO, ICE, 0.4), (ICE, GO, GROUND, 0.2), (ICE, GO, FALLEN, 0.4),
        (ICE, CREEP, ICE, 0.6), (ICE, CREEP, GROUND, 0.35), (ICE, CREEP, FALLEN, 0.05),
        (FALLEN, GO, FALLEN, 1), (FALLEN, CREEP, FALLEN, 1),
    ]  # fmt: skip
    shows = [(GROUND, 0, 0.9), (GROUND, 1, 0.1), (ICE, 0, 0.3), (ICE, 1, 0.7), (FALLEN, 0, 0.5), (FALLEN, 1, 0.5)]
    return monitor.MDP.from_transitions(
        states=3,
        actions=2,
        transitions=moves,
        labels={"fallen": [FALLEN], "ice": [ICE]},
        initial={GROUND: 0.5, ICE: 0.5},
        signals=2,
        emissions=shows,
    )


def policies() -> dict[str, object]:
    return {"nominal": [GO, GO], "careful": [GO, CREEP], "wary": monitor.Controller(**WARY)}


def write_robot(folder: Path, **sections: object) -> Path:
    """Write model, policies and configuration to `folder`; return the configuration. `sections` replace its own.

    `brood` is a recurrent network that does what `wary` does.
    """
    folder.mkdir(parents=True, exist_ok=True)
    model = robot()
    assert model.emissions is not None
    monitor.save_model(dataclasses.replace(model, emissions=model.emissions.named(SHOWN)), folder / "robot.npz")
    write_network(folder / "nominal.yaml", [GO, GO])
    write_network(folder / "careful.yaml", [GO, CREEP])
    write_controller(folder / "wary.yaml", **WARY)
    brooding, logits = hysteresis((0.1, 0.9), "keep raise"), Output(name="logits", kind="logits")
    write_recurrent(folder / "brood.yaml", brooding, logits, mode="greedy")
    config = {
        "mqtt": {"url": "mqtt://127.0.0.1:1"},
        "model": "robot.npz",
        "policies": {name: f"{name}.yaml" for name in ("nominal", "careful", "wary", "brood")},
        "path": {"window": 8},
        "stream": {"max_lag": "30m", "stale_after": "30m"},
        "formulas": FORMULAS,
        **sections,
    }
    path = folder / "cfmon.yaml"
    path.write_text(json.dumps(config))  # JSON is YAML
    return path


def agent_steps(folder: Path, seed: int) -> Iterator[dict[str, Any]]:
    """Yield the messages of one agent endlessly, episode after episode; `folder`: of `write_robot`.

    At some steps the sensor says nothing. In each third episode another policy takes over.
    """
    careful = hashlib.sha256((folder / "careful.onnx").read_bytes()).hexdigest()
    rng, model, episode = np.random.default_rng(seed), robot(), 0
    while True:
        length, state = int(rng.integers(SHORTEST, LONGEST)), int(rng.integers(2))
        ending: dict[str, Any] = ({"terminated": True}, {"truncated": True}, {})[(episode + seed) % 3]
        for seq in range(length):
            last = bool(ending) and seq == length - 1
            shown = int(rng.random() < (0.1, 0.7, 0.5)[state])
            taken = (episode + seed) % 3 == 1 and seq >= length // 2
            action = CREEP if (taken and shown) or rng.random() < 0.05 else GO
            seen = None if rng.random() < 0.15 else SHOWN[shown] if seq % 2 else shown
            yield {
                "v": 1,
                "episode": episode,
                "seq": seq,
                "observation": seen,
                **({} if last and rng.random() < 0.5 else {"action": action}),
                **({"policy": careful} if taken else {}),
                **(ending if last else {}),
            }
            states, chances = model.row(state, action)
            state = int(rng.choice(states, p=chances))
        episode += 1


def events(folder: Path, steps: int, agents: int = 3, *, days: float = 0.5) -> list[Event]:
    """Steps of agents over midnight, some of them lost, repeated or nonsense; `folder`: of `write_robot`."""
    rng, pause = np.random.default_rng(steps), days * DAY / steps
    sources = [agent_steps(folder, seed) for seed in range(agents)]
    found: list[Event] = [Connected(Instant(START, 0.0), up=True)]
    for n in range(steps):
        for agent, source in enumerate(sources):
            ticks = n * pause + agent * 0.01
            now, topic = Instant(START + ticks, ticks), f"agents/robot-{agent}/steps"
            step = {**next(source), "time": START + ticks}
            message = Message(now, topic, msgspec.msgpack.encode(step) if agent % 2 else json.dumps(step).encode())
            luck = rng.random()
            found += [] if luck < 0.02 else [message] * (1 + (luck > 0.97))
            found += [Lost(now, topic, 1)] if luck < 0.01 else []
            found += [Message(now, topic, message.payload[:-9])] if 0.02 < luck < 0.03 else []
            found.append(Evaluate(now, steps=1000))
        found.append(Heartbeat(now))
    return found
