"""What the fault suite runs: ten agents on the benchmark's grid in short episodes, and a configuration to watch them.

Formulas are such that state matters over a restart (`every`, `for`, `keep` above 1) and that every step leaves a trace:
`tally` fires in every episode and looks back further than most are long, so after one lost step it is blind to the
episode's end, and its closing alert tells another step than it should.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.process.grid import FALLBACK, NOMINAL, grid, outcomes
from tests.sidecar.project import write_policy, write_project

__all__ = ["AGENTS", "CLIENT_ID", "agent_steps", "write_world"]

AGENTS = 10
CLIENT_ID = "monitor"
SLIP = 0.1
SHORTEST, LONGEST = 20, 60
"""Steps of an episode; seven agents of ten say how it ended, the others just begin the next."""

FORMULAS: list[dict[str, Any]] = [
    {
        "name": "tally",
        "formula": 'fallback@40.P>=1 [ G<=8 !"unsafe" ]',
        "alarm": {"severity": "info"},
    },
    {
        "name": "watch",
        "formula": 'regret(fallback@10, P>=0.9 [ G<=20 !"unsafe" ])',
        "every": 3,
        "alarm": {"for": 2, "keep": 3, "severity": "critical"},
    },
    {
        "name": "bounded",
        "formula": 'fallback@5.P>=0.95 [ G<=8 !"unsafe" ]',
        "causal_model": "any",
        "every": 2,
        "alarm": {"for": 2, "keep": 2, "severity": "warning"},
    },
]


def write_world(folder: Path, url: str, **sections: object) -> Path:
    """Model, policies and configuration below `folder`; returns the configuration. `sections` replace its own."""
    config: dict[str, Any] = {
        "mqtt": {"url": url, "client_id": CLIENT_ID},
        "model": "model.npz",
        "policies": {"nominal": "rash.yaml", "fallback": "careful.yaml"},
        "path": {"window": 64},
        "formulas": FORMULAS,
        # Longer than any fault here, so that nothing is late, passed over or hidden for being old.
        "stream": {"max_lag": "30m", "stale_after": "30m"},
        "heartbeat": "1s",
        "http": {"listen": "127.0.0.1:0"},
        "store": {"path": "var/cfmon.sqlite"},
        **sections,
    }
    path = write_project(folder, model := grid(SLIP), json.dumps(config))  # JSON is YAML
    for name, actions in (("rash", NOMINAL), ("careful", FALLBACK)):
        write_policy(folder, name, list(actions), model.actions)
    return path


def agent_steps(seed: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """(agent, step) without end, the agents in turn; the same for the same seed."""
    draw = random.Random(seed)
    walks = [_walk(random.Random(draw.random()), said=n % 10 < 7) for n in range(AGENTS)]
    while True:
        for n, walk in enumerate(walks):
            yield f"a{n}", next(walk)


def _walk(draw: random.Random, *, said: bool) -> Iterator[dict[str, Any]]:
    """One agent, episode after episode."""
    episode = 0
    while True:
        cell, length = draw.choice((0, 1, 2, 4, 8)), draw.randint(SHORTEST, LONGEST)
        for seq in range(length):
            step = {"v": 1, "episode": episode, "seq": seq, "state": cell, "action": NOMINAL[cell]}
            yield {**step, "terminated": True} if said and seq == length - 1 else step
            targets, weights = zip(*outcomes(cell, NOMINAL[cell], SLIP), strict=True)
            [cell] = draw.choices(targets, weights)
        episode += 1
