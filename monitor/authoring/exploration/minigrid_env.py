"""The state of a MiniGrid environment as named variables.

The default observation of MiniGrid is a partial view, which does not identify a state. These variables identify it. An
agent publishes them as its state: `list(minigrid_state(env))`, with `state_encoder: valuation`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import NamedTuple

from monitor.authoring.exploration.explorable import Environment

_FIXED = ("wall", "floor", "lava", "goal")
"""Types of objects that never move or change."""

_LONGEST = 256
"""Largest number of characters of a text in a state of a message."""


class MiniGridState(NamedTuple):
    """The variables that a step depends on.

    Attributes:
        column, row: cell of the agent, from 0.
        direction: `east`, `south`, `west` or `north`.
        on: type of the object in the agent's cell, such as `lava` or `goal`; or `none`.
        carrying: the object that the agent carries; or `none`.
        things: text that lists every object that can move or change, with its cell; its digest if long; or `none`.
        layout: digest of everything else (walls, lava, goals, mission). Different rooms have different digests.
    """

    column: float
    row: float
    direction: str
    on: str
    carrying: str
    things: str
    layout: str


def is_minigrid(environment: Environment) -> bool:
    """Return whether the unwrapped environment has MiniGrid's variables."""
    inner = environment.unwrapped
    return all(hasattr(inner, name) for name in ("grid", "agent_pos", "agent_dir", "carrying", "step_count"))


def minigrid_state(environment: Environment) -> MiniGridState:
    """Return the state of a MiniGrid environment, wrapped or not."""
    inner = environment.unwrapped
    column, row = (int(x) for x in inner.agent_pos)
    below = inner.grid.get(column, row)
    fixed = hashlib.sha256(f"{inner.width} {inner.height} {inner.mission}".encode())
    things = []
    for x, y, thing in _objects(inner):
        shown = _shown(thing)
        if thing.type in _FIXED:
            fixed.update(f"{shown} {x} {y};".encode())
        else:
            things.append(f"{shown} at {x} {y}")
    return MiniGridState(
        float(column),
        float(row),
        ("east", "south", "west", "north")[int(inner.agent_dir)],
        "none" if below is None else str(below.type),
        "none" if inner.carrying is None else _shown(inner.carrying),
        _listed(things),
        fixed.hexdigest()[:12],
    )


def grow_young(environment: Environment) -> None:
    """Set the step count to its value in a new episode. Only the reward and the truncation depend on the step count."""
    environment.unwrapped.step_count = 0


def grow_old(environment: Environment) -> None:
    """Set the step count to its value before the last step that the environment allows."""
    environment.unwrapped.step_count = environment.unwrapped.max_steps - 1


def _objects(inner: Environment) -> Iterator[tuple[int, int, Environment]]:
    for x in range(inner.grid.width):
        for y in range(inner.grid.height):
            thing = inner.grid.get(x, y)
            if thing is not None:
                yield x, y, thing


def _listed(things: list[str]) -> str:
    """Return the things as a text that is short enough for a message."""
    text = ", ".join(things) or "none"
    return text if len(text) <= _LONGEST else hashlib.sha256(text.encode()).hexdigest()[:32]


def _shown(thing: Environment) -> str:
    """Return an object as text: colour, type, the state of a door, the content of a box."""
    words = [str(thing.color), str(thing.type)]
    if thing.type == "door":
        words.append("locked" if thing.is_locked else "open" if thing.is_open else "closed")
    if getattr(thing, "contains", None) is not None:
        words.append(f"with {_shown(thing.contains)}")
    return " ".join(words)
