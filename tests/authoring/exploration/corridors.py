"""Four rooms in a row, seen in every way that Gymnasium has a space for; the command takes them as `corridors.py:bits`.

Action 0 goes back, 1 goes on; the last room ends the episode.
"""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces

ROOMS = 4
SPACES: dict[str, Any] = {
    "box": spaces.Box(0, ROOMS, (1,), np.float32),
    "bits": spaces.MultiBinary(ROOMS),
    "table": spaces.MultiBinary((2, 2)),
    "number": spaces.Discrete(ROOMS),
    "from_five": spaces.Discrete(ROOMS, start=5),
    "pair": spaces.MultiDiscrete([ROOMS, 2]),
    "named": spaces.Dict(room=spaces.Discrete(ROOMS), lit=spaces.MultiBinary(1), depth=spaces.Box(0, 9, (2,))),
    "nested": spaces.Dict(inner=spaces.Dict(room=spaces.Discrete(ROOMS)), metres=spaces.Box(0, 9, (1,))),
    "both": spaces.Tuple((spaces.Discrete(ROOMS), spaces.Box(0, 9, (2,)))),
    "metres": spaces.Box(0, 1e9, (1,), np.float64),
    "thirds": spaces.Box(0, 9, (1,), np.float64),
    "nanoseconds": spaces.Box(0, 1 << 62, (1,), np.int64),
    "seconds": spaces.Box(0, 1 << 62, (1,), np.int64),
    "picture": spaces.Box(0, 255, (6, 6, 3), np.uint8),
    "grid": spaces.Box(0, 255, (2, 3), np.uint8),
    "wide": spaces.Box(0, 1e9, (100,), np.float64),
}


class Corridor(gymnasium.Env[Any, int]):
    """`sees`: the name of a space."""

    action_space: Any = spaces.Discrete(2)

    def __init__(self, sees: str = "box") -> None:
        self.sees, self.room = sees, 0
        self.observation_space = SPACES[sees]

    def seen(self) -> Any:  # noqa: ANN401 - of any space
        room, lit = self.room, int(self.room > 1)
        match self.sees:
            case "bits" | "table":
                return np.eye(ROOMS, dtype=np.int8)[room].reshape(self.observation_space.shape)
            case "number" | "from_five":
                return room + (5 if self.sees == "from_five" else 0)
            case "pair":
                return np.array([room, lit])
            case "named":
                depth = np.array([room, 2 * lit], np.float32)
                return {"room": room, "lit": np.array([lit], np.int8), "depth": depth}
            case "nested":
                return {"inner": {"room": room}, "metres": np.array([room], np.float32)}
            case "both":
                return room, np.array([room, lit], np.float32)
            case "metres" | "wide":
                return np.full(self.observation_space.shape, 5.3e8 + room)
            case "thirds":
                return np.array([room / 3])
            case "nanoseconds":
                return np.array([1_800_000_000_000_000_000 + room])
            case "seconds":
                return np.array([1_800_000_000 + room])
            case _:
                return np.full(self.observation_space.shape, room, self.observation_space.dtype)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self.room = 0
        return self.seen(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.room = max(0, self.room + (1 if action else -1))
        return self.seen(), float(self.room == ROOMS - 1), self.room == ROOMS - 1, False, {}


class Masked(Corridor):
    """Says which actions a room has, as environments of MaskablePPO do: none goes back from the first one."""

    def action_masks(self) -> Any:  # noqa: ANN401 - a list or an array
        return [self.room > 0, True]


class Switches(Corridor):
    """Its actions are pairs of bits."""

    action_space = spaces.MultiBinary(2)


class FromOne(Corridor):
    """Its actions are 1 and 2."""

    action_space = spaces.Discrete(2, start=1)


class HookFromOne(FromOne):
    """The same, with its own probabilities."""

    def successors(self, state: int, action: int) -> list[tuple[float, int, float, bool]]:
        return [(1.0, state + action, 0.0, True)]


class Fickle(Masked):
    """Whether the second room has a way back depends on where it was entered from."""

    before = 0

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.before = self.room
        return super().step(action)

    def action_masks(self) -> Any:  # noqa: ANN401
        return [self.room > 0 and (self.room, self.before) != (1, 2), True]


class Late(Masked):
    """Its masks count how often they were asked for, so they differ when it is run again."""

    asked: ClassVar[list[int]] = [0]

    def action_masks(self) -> Any:  # noqa: ANN401
        self.asked[0] += 1
        return [self.asked[0] < 20, True]


class Misshapen(Masked):
    def action_masks(self) -> Any:  # noqa: ANN401
        return [True]


class Unmasking(Masked):
    def action_masks(self) -> Any:  # noqa: ANN401
        raise KeyError(self.room)


def __getattr__(name: str) -> Any:  # noqa: ANN401 - a function that makes an environment
    if name not in SPACES:
        raise AttributeError(name)
    return lambda: Corridor(name)
