"""Models of the fault suite: agents on the benchmark's grid, on a plant with numbers, or unseen on ice, short episodes.

Each comes with a configuration to monitor them.

The formulas have state that must survive a restart (`every`, `for`, `keep` above 1), and every lost step is visible:
`tally` fires in every episode and looks back further than most episodes are long, so after one lost step it is blind
until the episode's end, and its last alert has a wrong step.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.process.grid import FALLBACK, NOMINAL, grid, outcomes
from tests.hidden import robot
from tests.sidecar.project import write_policy, write_project
from tests.worlds import plant

__all__ = ["AGENTS", "CLIENT_ID", "FORMULAS", "KINDS", "Kind", "agent_steps", "number_steps", "walk", "write_grid",
           "write_numbers", "write_world"]  # fmt: skip

AGENTS = 10
CLIENT_ID = "monitor"
SLIP = 0.1
SHORTEST, LONGEST = 20, 60
"""Number of steps of an episode; seven of ten agents send its end, the others just begin the next."""

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


NUMBERS = 4
"""Agents on the plant."""
TALLY: dict[str, Any] = {
    "name": "tally",
    "formula": 'careful@11.P<=0 [ F<=2 !"overflow" ]',
    "alarm": {"severity": "info"},
}


HIDDEN = 5
"""Robots on ice, whose states nobody sees; one policy is a controller, one a recurrent network."""

Steps = Iterator[tuple[str, dict[str, Any]]]


def common_settings(url: str) -> dict[str, Any]:
    """Return what all configurations say."""
    return {
        "mqtt": {"url": url, "client_id": CLIENT_ID},
        # Longer than any fault here, so that nothing is late, skipped or stale.
        "stream": {"max_lag": "30m", "stale_after": "30m"},
        "heartbeat": "1s",
        "http": {"listen": "127.0.0.1:0"},
        "store": {"path": "var/cfmon.sqlite"},
    }


def write_numbers(folder: Path, url: str, **sections: object) -> Path:
    """Write the plant, its policies and a configuration to `folder`; return the configuration."""
    return plant.write_plant(folder, **{**common_settings(url), "formulas": [TALLY, *plant.FORMULAS], **sections})


def write_hidden(folder: Path, url: str, **sections: object) -> Path:
    """Write the robot's model, its policies and a configuration to `folder`; return the configuration.

    A step that was lost would be one at which nothing was seen, so later numbers would differ.
    """
    return robot.write_robot(folder, **{**common_settings(url), **sections})


def hidden_steps(folder: Path, seed: int) -> Steps:
    """Yield (agent, step) endlessly, as `agent_steps`; `folder`: of the robot."""
    return _in_turn([robot.agent_steps(folder, seed + n) for n in range(HIDDEN)])


def number_steps(folder: Path, seed: int) -> Steps:
    """Yield (agent, step) endlessly, as `agent_steps`; `folder`: of the plant."""
    return _in_turn([plant.agent_steps(folder, seed + n) for n in range(NUMBERS)])


def write_world(folder: Path, url: str, **sections: object) -> Path:
    """Write model, policies and configuration to `folder`; return the configuration. `sections` replace its own."""
    config: dict[str, Any] = {
        **common_settings(url),
        "model": "model.npz",
        "policies": {"nominal": "rash.yaml", "fallback": "careful.yaml"},
        "path": {"window": 64},
        "formulas": FORMULAS,
        **sections,
    }
    return write_grid(folder, config, SLIP)


def write_grid(folder: Path, config: dict[str, Any], slip: float) -> Path:
    """Write the grid, the policies `rash` and `careful`, and this configuration to `folder`; return the last."""
    path = write_project(folder, model := grid(slip), json.dumps(config))  # JSON is YAML
    for name, actions in (("rash", NOMINAL), ("careful", FALLBACK)):
        write_policy(folder, name, list(actions), model.actions)
    return path


def agent_steps(seed: int) -> Steps:
    """Yield (agent, step) endlessly, the agents in turn; a function of the seed."""
    draw = random.Random(seed)
    return _in_turn([walk(random.Random(draw.random()), SLIP, sends_end=n % 10 < 7) for n in range(AGENTS)])


def _in_turn(agents: Sequence[Iterator[dict[str, Any]]]) -> Steps:
    while True:
        for n, steps in enumerate(agents):
            yield f"a{n}", next(steps)


Act = Callable[[int, int, int], dict[str, Any]]
"""Returns the action in a step, and what else is said of it, from (episode, seq, cell)."""


def nominal(_episode: int, _seq: int, cell: int) -> dict[str, Any]:
    """Return the action of the nominal policy."""
    return {"action": NOMINAL[cell]}


def walk(draw: random.Random, slip: float, *, sends_end: bool, act: Act = nominal) -> Iterator[dict[str, Any]]:
    """Yield the steps of one agent on the grid, episode after episode, endlessly."""
    episode = 0
    while True:
        cell, length = draw.choice((0, 1, 2, 4, 8)), draw.randint(SHORTEST, LONGEST)
        for seq in range(length):
            step = {"v": 1, "episode": episode, "seq": seq, "state": cell, **act(episode, seq, cell)}
            yield {**step, "terminated": True} if sends_end and seq == length - 1 else step
            targets, weights = zip(*outcomes(cell, step["action"], slip), strict=True)
            [cell] = draw.choices(targets, weights)
        episode += 1


@dataclass(frozen=True)
class Kind:
    """A kind of agents: their number, what writes them to a folder, their steps from there, and how many are enough.

    `rate`: steps a second in all, at most.
    """

    agents: int
    write: Callable[..., Path]
    steps: Callable[[Path, int], Steps]
    rate: float
    enough: int


KINDS = {
    "grid": Kind(AGENTS, write_world, lambda _, seed: agent_steps(seed), 500.0, 1000),
    "numbers": Kind(NUMBERS, write_numbers, number_steps, 15.0, 240),  # answers are drawn, and take longer
    "hidden": Kind(HIDDEN, write_hidden, hidden_steps, 60.0, 400),
}
