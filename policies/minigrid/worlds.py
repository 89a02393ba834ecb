"""Make the models of four MiniGrid environments, 6x6, from the real environments: `python -m policies.minigrid.worlds`.

Every reachable state is found by stepping copies of the environment itself; no rule is reimplemented here.
An action then goes wrong as in MiniGrid's own `StochasticActionWrapper`: with probability .1 an action drawn uniformly
from all seven is done instead. PROVENANCE.md lists the formula of each environment.

Needs the `minigrid` package (the extra `train`).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import minigrid  # noqa: F401 - its import registers the environments
import numpy as np
import numpy.typing as npt

from monitor.model.io import save_model
from monitor.model.mdp import MDP

INTENDED = 0.9
ACTIONS = ("left", "right", "forward", "pickup", "drop", "toggle", "done")
DIRECTIONS = ("east", "south", "west", "north")
SIDE = 6
HERE = Path(__file__).parent

State = tuple[int, int, str, str, str, int, int, str]
"""Column, row and direction of the agent; carried object; door; column and row of the key; how the episode ended.

`door` is set in environments with a single door, `key` if it also lies on the floor there; else empty and 0.
"""


@dataclass(frozen=True)
class World:
    """Environment in one layout. `seed`: seed of the reset that generates it."""

    name: str
    environment: str
    seed: int

    def reset(self) -> Any:  # noqa: ANN401 - minigrid ships no types
        """Return the unwrapped environment at its start."""
        world = gymnasium.make(self.environment).unwrapped
        world.reset(seed=self.seed)
        return world


WORLDS = {
    world.name: world
    for world in (
        World("empty", "MiniGrid-Empty-6x6-v0", 0),
        World("doorkey", "MiniGrid-DoorKey-6x6-v0", 0),
        World("gotodoor", "MiniGrid-GoToDoor-6x6-v0", 7),
        World("fetch", "MiniGrid-Fetch-6x6-N2-v0", 0),
    )
}


def main() -> None:
    """Write one .npz for each environment."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=HERE, help="where to write (default: beside this script)")
    out = parser.parse_args().out
    for world in WORLDS.values():
        model = enumerate_world(world)
        file = out / f"{world.name}.npz"
        save_model(model, file)
        size = f"{model.states} states, {model.probabilities.size} transitions, {file.stat().st_size} bytes"
        print(f"{file.name}: {size}")


def enumerate_world(world: World) -> MDP:
    """Return the model of all reachable states, in breadth-first order: state 0 is the start.

    The step count is no part of a state: it affects only the size of the reward, and the truncation of an episode
    after 144 steps or more. The reward here is 1 for the step that fulfils the mission.
    """
    first = world.reset()
    states, envs, ends = [variables(first)], [first], [""]
    numbers = {states[0]: 0}
    moves: list[list[int]] = []
    for s, env in enumerate(envs):  # the list grows meanwhile
        moves.append([])
        for action in range(len(ACTIONS)):
            after, ended = (env, ends[s]) if ends[s] else stepped(env, action)
            state = variables(after, ended)
            if state not in numbers:
                numbers[state] = len(states)
                states.append(state)
                envs.append(after)
                ends.append(ended)
            target = numbers[state]
            if not ended and not same(after, envs[target]):
                raise AssertionError(f"{world.name}: {state} does not distinguish two states")
            moves[s].append(target)
    return MDP.from_transitions(
        states=len(states),
        actions=len(ACTIONS),
        transitions=slipping(moves),
        rewards=rewards(moves, ends),
        labels=labels(world, envs, ends),
        initial={0: 1.0},
        observations=observations(states),
        action_names=ACTIONS,
        valuations=states,
        source=f"{world.environment}, seed {world.seed}",
    )


def stepped(env: Any, action: int) -> tuple[Any, str]:  # noqa: ANN401
    """Return a copy of the environment after one step, and how the step ended the episode, or ""."""
    after = deepcopy(env)
    after.step_count = 0
    _, reward, terminated, _, _ = after.step(action)
    return after, ("success" if reward > 0 else "failure") if terminated else ""


def same(one: Any, other: Any) -> bool:  # noqa: ANN401
    """Return whether two environments agree in everything that a step depends on."""
    held = [env.carrying.encode() if env.carrying else None for env in (one, other)]
    poses = [(tuple(env.agent_pos), env.agent_dir) for env in (one, other)]
    return held[0] == held[1] and poses[0] == poses[1] and np.array_equal(one.grid.encode(), other.grid.encode())


def variables(env: Any, ended: str = "") -> State:  # noqa: ANN401
    """Return the variables of the environment's state."""
    things = [(x, y, env.grid.get(x, y)) for x in range(env.width) for y in range(env.height)]
    doors = [thing for _, _, thing in things if thing is not None and thing.type == "door"]
    door, key = "", (0, 0)
    if len(doors) == 1:
        door = "locked" if doors[0].is_locked else "open" if doors[0].is_open else "closed"
        key = next(((x, y) for x, y, thing in things if thing is not None and thing.type == "key"), key)
    carried = f"{env.carrying.color} {env.carrying.type}" if env.carrying else ""
    column, row = (int(x) for x in env.agent_pos)
    return (column, row, DIRECTIONS[env.agent_dir], carried, door, *key, ended)


def slipping(moves: list[list[int]]) -> Iterator[tuple[int, int, int, float]]:
    """Yield the transitions with slips: the intended action, or any of the seven."""
    for s, targets in enumerate(moves):
        for action, meant in enumerate(targets):
            yield s, action, meant, INTENDED
            for target in targets:
                yield s, action, target, (1 - INTENDED) / len(targets)


def rewards(moves: list[list[int]], ends: list[str]) -> Iterator[tuple[int, int, float]]:
    """Yield the probability that a step fulfils the mission."""
    for s, targets in enumerate(moves):
        if not ends[s]:
            wins = [float(ends[target] == "success") for target in targets]
            for action, meant in enumerate(wins):
                yield s, action, INTENDED * meant + (1 - INTENDED) * sum(wins) / len(wins)


def labels(world: World, envs: list[Any], ends: list[str]) -> dict[str, list[int]]:
    """Return the labels of the paper's formulas, computed from each environment."""
    holds: dict[str, Callable[[int], bool]] = {
        "start": lambda s: s == 0,
        "terminal": lambda s: bool(ends[s]),
        "goal": lambda s: ends[s] == "success",
    }
    match world.name:
        case "doorkey":
            holds["key"] = lambda s: envs[s].carrying is not None
            holds["door"] = lambda s: variables(envs[s])[4] == "open"
        case "gotodoor":
            # As the environment judges `done`: beside the door of the mission.
            holds["door"] = lambda s: beside(envs[s].agent_pos, envs[s].target_pos)
        case "fetch":
            holds["object"] = lambda s: wanted(envs[s], envs[s].carrying) or wanted(envs[s], ahead(envs[s]))
            holds["carrying"] = lambda s: envs[s].carrying is not None
        case _:
            pass
    return {name: [s for s in range(len(envs)) if test(s)] for name, test in holds.items()}


def beside(one: Any, other: Any) -> bool:  # noqa: ANN401
    """Return whether two cells share an edge."""
    return bool(sum(abs(a - b) for a, b in zip(one, other, strict=True)) == 1)


def ahead(env: Any) -> Any:  # noqa: ANN401
    """Return the object in the cell ahead of the agent."""
    return env.grid.get(*env.front_pos)


def wanted(env: Any, thing: Any) -> bool:  # noqa: ANN401
    """Return whether an object is that of the mission."""
    return thing is not None and (thing.type, thing.color) == (env.targetType, env.targetColor)


def observations(states: list[State]) -> npt.NDArray[np.float32]:
    """Return the policy's input, [S, 17 or 32]: each variable of a state except `ended` as a one-hot code.

    Columns: agent column 0..5, agent row 0..5, direction, carrying; and with a single door: locked, closed, open, then
    column and row of the key, 0..5 each (0, 0 when it is carried).
    """
    return np.array([observation(state) for state in states], dtype=np.float32)


def observation(state: State) -> list[float]:
    """Return one row of `observations`."""
    column, row, direction, carried, door, key_column, key_row, _ = state
    parts = [one_hot(column, SIDE), one_hot(row, SIDE), one_hot(DIRECTIONS.index(direction), 4), [float(bool(carried))]]
    if door:
        opened = one_hot(("locked", "closed", "open").index(door), 3)
        parts += [opened, one_hot(key_column, SIDE), one_hot(key_row, SIDE)]
    return [number for part in parts for number in part]


def one_hot(value: int, size: int) -> list[float]:
    """Return `value` as a one-hot vector."""
    return [float(value == k) for k in range(size)]


if __name__ == "__main__":
    main()
