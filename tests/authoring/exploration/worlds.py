"""Small environments of a user, some of which mislead: for tests, and for the command as `worlds.py:...`."""

from __future__ import annotations

import random
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete, Sequence

LENGTH = 5


class Corridor(gymnasium.Env[Any, int]):
    """Cells 0 to 4: action 0 goes left, 1 right; 0 is a pit, 4 the goal. `heat`: counts visits of cell 1 up to 2."""

    observation_space = Box(0, LENGTH, (1,), np.float32)
    action_space: Any = Discrete(2)

    def __init__(self, *, overheats: bool = False, slips: str = "", pay: str = "goal") -> None:
        self.cell, self.heat = 2, 0
        self.overheats, self.slips, self.pay = overheats, slips, pay
        self.mine = random.Random(0)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self.cell, self.heat = 2, 0
        return self.seen(), {}

    def seen(self) -> Any:  # noqa: ANN401 - a NumPy array
        return np.array([self.cell], dtype=np.float32)

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        action = 1 - action if self.slipping() else action
        self.cell += 1 if action == 1 else -1
        self.heat = min(self.heat + (self.cell == 1), 2)
        dead = self.cell == 0 or (self.overheats and self.heat == 2)
        won = self.cell == LENGTH - 1
        reward = float(won) - float(dead) if self.pay == "goal" else 1.0
        return self.seen(), reward, dead or won, False, {}

    def slipping(self) -> bool:
        match self.slips:
            case "gymnasium":
                return bool(self.np_random.random() < 0.3)
            case "numpy":
                return bool(np.random.random() < 0.3)  # noqa: NPY002 - what users do
            case "own":
                return self.mine.random() < 0.3
            case "system":
                return random.SystemRandom().random() < 0.02
            case _:
                return False


class Named(NamedTuple):
    cell: int
    hot: bool


def corridor() -> Corridor:
    return Corridor()


def hot_corridor() -> Corridor:
    return Corridor(overheats=True)


def hidden() -> Corridor:
    return Corridor(slips="system")


def key(env: Any) -> Named:  # noqa: ANN401 - an environment
    return Named(env.unwrapped.cell, env.unwrapped.heat == 1)


def key_as_mapping(env: Any) -> dict[str, Any]:  # noqa: ANN401
    return {"cell": np.int64(env.unwrapped.cell), "more": [env.unwrapped.heat == 1]}


def bad_key(env: Any) -> object:  # noqa: ANN401
    return env.unwrapped.mine


def failing(env: Any) -> object:  # noqa: ANN401
    raise RuntimeError(f"no key of {type(env).__name__}")


def too_long(_: Any) -> list[int]:  # noqa: ANN401
    return list(range(65))


def colours(env: Any) -> list[str]:  # noqa: ANN401
    return ["edge"] if env.unwrapped.cell in (0, LENGTH - 1) else []


def terminal(_: Any) -> list[str]:  # noqa: ANN401
    return ["terminal"]


def nothing() -> object:
    return object()


def broken() -> object:
    raise OSError("no simulator here")


class Coin:
    """A hook without Gymnasium: heads up to three times, then the end. Action 1 is available at 0 only."""

    actions = 2
    action_names = ("toss", "stop")

    def initial_states(self) -> list[tuple[float, int]]:
        return [(0.75, 0), (0.25, 1), (0.0, 9)]

    def successors(self, state: int, action: int) -> list[tuple[float, int, float, bool]]:
        if action == 1:
            return [(1.0, 0, 0.0, True)] if state == 0 else []
        return [(0.5, state + 1, 1.0, state + 1 == 3), (0.5, 0, 0.0, False), (0.0, 7, 0.0, True)]


class Stuck(Coin):
    def successors(self, state: int, action: int) -> list[tuple[float, int, float, bool]]:
        return [] if state else super().successors(state, action)


class Named2(Coin):
    """States are text, so policies see what `observe` returns."""

    def initial_states(self) -> list[tuple[float, str]]:  # type: ignore[override]
        return [(1.0, "a")]

    def successors(self, state: str, action: int) -> list[tuple[float, str, float, bool]]:  # type: ignore[override]
        return [(1.0, "b" if state == "a" else "c", float(action), True)]

    def observe(self, state: str) -> list[int]:
        return [ord(state), 1]


class Unnumbered(Named2):
    observe = None  # type: ignore[assignment]


class Failing(Coin):
    def successors(self, state: int, action: int) -> list[tuple[float, int, float, bool]]:
        raise KeyError(state, action)


class Countless(Coin):
    actions = None  # type: ignore[assignment]


class Table(gymnasium.Env[int, int]):
    """FrozenLake by its table, as a hook: `reset` gives the initial state."""

    def __init__(self) -> None:
        self.inner: Any = gymnasium.make("FrozenLake-v1", is_slippery=True).unwrapped
        self.observation_space, self.action_space = self.inner.observation_space, self.inner.action_space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        state, info = self.inner.reset(seed=seed, options=options)
        return int(state), info

    def successors(self, state: int, action: int) -> list[tuple[float, int, float, bool]]:
        row: list[tuple[float, int, float, bool]] = self.inner.P[state][action]
        return row


class Uncopied(Corridor):
    """Cannot be copied, but has snapshots of its own."""

    def __deepcopy__(self, memo: object) -> object:
        raise TypeError("not this one")

    def clone_state(self) -> tuple[int, int]:
        return self.cell, self.heat

    def restore_state(self, state: tuple[int, int]) -> None:
        self.cell, self.heat = state


class Closed(Corridor):
    def __deepcopy__(self, memo: object) -> object:
        raise TypeError("not this one")


class Wordy(Corridor):
    """Its observation has no fixed size."""

    observation_space = Sequence(Discrete(9))  # type: ignore[assignment]

    def seen(self) -> str:
        return f"c{self.cell}"


class Continuous(Corridor):
    action_space: Any = Box(0, 1, (1,), np.float32)


class Wide(Corridor):
    """Its observation has 100 numbers."""

    observation_space = Box(0, LENGTH, (10, 10), np.float32)

    def seen(self) -> Any:  # noqa: ANN401
        return np.full((10, 10), self.cell, dtype=np.float32)


class Remembering(Corridor):
    """Its observation holds the cell before, too."""

    observation_space = Box(-1, LENGTH, (2,), np.float32)

    def seen(self) -> Any:  # noqa: ANN401
        before, self.before = getattr(self, "before", -1), self.cell
        return np.array([self.cell, before], dtype=np.float32)


def sometimes() -> Corridor:
    return SteppedOn()


class SteppedOn(Corridor):
    """Cell 1 ends the episode if it is entered from the left."""

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.cell = max(self.cell - 1, 0) if action == 0 else self.cell + 1
        ended = self.cell in (1, LENGTH - 1) and action == 1
        return self.seen(), 0.0, ended, False, {}


def paid_once() -> Corridor:
    return Paid()


class Paid(SteppedOn):
    """Cell 1 pays 5 if it is entered from the right."""

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        seen, _, _, truncated, info = super().step(action)
        return seen, 5.0 * (self.cell == 1 and action == 0), self.cell == LENGTH - 1, truncated, info


def cell_only(env: Any) -> int:  # noqa: ANN401
    cell: int = env.unwrapped.cell
    return cell


def go_right(_: Any) -> int:  # noqa: ANN401
    return 1


def surely_right(_: Any) -> list[float]:  # noqa: ANN401
    return [0.0, 1.0]
