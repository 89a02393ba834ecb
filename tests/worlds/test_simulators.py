"""Simulators as worlds: against the environments themselves, run again from a copy, and closed forms of their noise."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from gymnasium.wrappers import TransformAction

from monitor import GymnasiumWorld, SimulatorWorld, check, load_world
from monitor.errors import ModelError, PathError
from monitor.types import Sampling
from monitor.worlds import CheckedWorld, Feature, Moment
from tests.tiers import examples, scaled

Floats = Any


class Drone(gymnasium.Env[Any, Any]):
    """Height and rate of climb under gusts; lost at height 0."""

    action_space, observation_space = Discrete(3), Box(-np.inf, np.inf, (2,))
    start = 4.0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.state = np.array([self.start, 0.0])
        return self.state, {}

    def step(self, action: int) -> Any:
        height, climb = self.state
        climb = 0.95 * climb + 0.25 * (action - 1) + self.gust()
        height = max(height + 0.2 * climb + self.updraught(), 0.0)
        self.state = np.array([height, climb])
        return self.state, 0.0, bool(height == 0.0), False, {}

    def gust(self) -> float:
        return float(self.np_random.normal(0.0, 0.2))

    def updraught(self) -> float:
        return 0.0


class Squalls(Drone):
    """Gusts of five strengths, which leave intervals of noise, and updraughts."""

    def gust(self) -> float:
        return 0.1 * int(self.np_random.integers(-2, 3))

    def updraught(self) -> float:
        return float(self.np_random.uniform(-0.1, 0.1))


class DroneWorld(GymnasiumWorld):
    features = (Feature("height", low=0), "climb")
    actions = ("sink", "hold", "rise")
    labels = ("lost",)
    terminal: Any = ("lost",)
    noise = 1
    noise_features: Any = (1,)
    version = "drone 1"
    make: Any = Drone

    def holds(self, label: str, x: Floats) -> Any:
        return x[:, 0] == 0.0

    def reward(self, x: Floats, a: Any, x_next: Floats) -> Any:
        return x_next[:, 0]


def low(x: Floats) -> Any:
    return 1 + np.sign(np.round(2.0 - x[:, 0] - x[:, 1])).astype(int)


def high(x: Floats) -> Any:
    return 1 + np.sign(np.round(5.0 - x[:, 0] - x[:, 1])).astype(int)


def flown(env: Any, policy: Callable[[Floats], Any], steps: int) -> list[tuple[Floats, int]]:
    """Let the environment run; return its pairs (state, action), and the last state with an action."""
    path = []
    for _ in range(steps + 1):
        path.append((env.unwrapped.state, int(policy(env.unwrapped.state[np.newaxis])[0])))
        if len(path) <= steps:
            env.step(path[-1][1])
    return path


@scaled
def test_what_would_have_happened_is_what_happens_in_a_copy_of_the_environment() -> None:
    world = load_world(DroneWorld)
    for seed in range(examples(5, 50)):
        env = Drone()
        env.reset(seed=seed)
        flown(env, low, seed % 4)
        twin = copy.deepcopy(env)  # with its generator: the same gusts
        verdict = check(
            "high@10.R=? [ C<=9 ]", model=world, path=flown(env, low, 10), policies={"nominal": low, "high": high}
        )
        assert verdict.method == "exact"
        assert verdict.value == pytest.approx(sum(state[0] for state, _ in flown(twin, high, 10)[1:]), abs=1e-9)


@scaled
def test_noise_that_leaves_intervals_is_drawn_where_it_matters_and_agrees_with_the_copy() -> None:
    world = load_world(
        type("SquallsWorld", (DroneWorld,), {"make": Squalls, "noise": 2, "noise_features": ("climb", 0)})
    )
    for seed in range(examples(3, 50)):
        env = Squalls()
        env.reset(seed=seed)
        twin = copy.deepcopy(env)
        verdict = check(
            "high@6.R=? [ C<=5 ]",
            model=world,
            path=flown(env, low, 6),
            policies={"nominal": low, "high": high},
            sampling=Sampling(rewards=(0.0, 10.0), limit=200),
        )
        assert verdict.tiers == ("interval",)
        assert verdict.value == pytest.approx(sum(state[0] for state, _ in flown(twin, high, 6)[1:]), abs=1e-9)


class Cart(GymnasiumWorld):
    features = ("position", "speed", "angle", "turning")
    actions = ("left", "right")
    labels = ("end",)
    terminal = ("end",)
    version = "test"

    def make(self) -> Any:
        return gymnasium.make("CartPole-v1")

    def holds(self, label: str, x: Floats) -> Any:
        return (np.abs(x[:, 2]) > math.radians(12)) | (np.abs(x[:, 0]) > 2.4)


class MountainCar(Cart):
    features: Any = (Feature("position", low=-1.2, high=0.6), Feature("speed", low=-0.07, high=0.07))
    actions: Any = ("left", "none", "right")

    def make(self) -> Any:
        return gymnasium.make("MountainCar-v0")

    def holds(self, label: str, x: Floats) -> Any:
        return (x[:, 0] >= 0.5) & (x[:, 1] >= 0.0)


class Acrobot(Cart):
    actions: Any = ("left", "none", "right")

    def make(self) -> Any:
        return gymnasium.make("Acrobot-v1")

    def holds(self, label: str, x: Floats) -> Any:
        return -np.cos(x[:, 0]) - np.cos(x[:, 1] + x[:, 0]) > 1.0


class Pendulum(Cart):
    features: Any = ("angle", Feature("turning", low=-8, high=8))
    labels: Any = ()
    terminal: Any = ()

    def make(self) -> Any:
        return TransformAction(gymnasium.make("Pendulum-v1"), lambda a: np.array([4.0 * a - 2.0]), Discrete(2))


@pytest.mark.parametrize("kind", [Cart, MountainCar, Acrobot, Pendulum])
def test_the_environments_without_noise_are_followed_to_the_bit(kind: Any) -> None:
    world, env, rng = load_world(kind), kind().make(), np.random.default_rng(0)
    for seed in range(3):
        env.reset(seed=seed)
        for _ in range(60):
            state, action = np.array([env.unwrapped.state], dtype=np.float64), int(rng.integers(world.actions))
            ended = env.step(action)[2]
            assert np.array_equal(
                world.step(state, np.array([action]), np.zeros((1, 0)), ())[0], np.array(env.unwrapped.state)
            )
            if ended:
                break


def test_a_world_stays_where_its_environment_ends() -> None:
    world, fallen = load_world(Cart), np.array([[0.0, 1.0, 0.3, 1.0]])
    assert np.array_equal(world.step(fallen, np.array([0]), np.zeros((1, 0)), ()), fallen)


# ---- a simulator of one's own ----


class Pond(SimulatorWorld):
    """It fills by rain and is emptied, to 0 at most."""

    features: Any = (Feature("level", low=0),)
    actions = ("shut", "open")
    labels = ("full",)
    noise = 1
    noise_features: Any = (0,)
    version = "pond 1"

    def move(self, x: Floats, a: int, rng: Any, w: Floats) -> Any:
        return [max(x[0] + rng.exponential(0.3) - 0.5 * a, 0.0)]

    def holds(self, label: str, x: Floats) -> Any:
        return x[:, 0] > 3.0


class Rounded(Pond):
    """A level that is known to a tenth, and falls as its noise grows."""

    def move(self, x: Floats, a: int, rng: Any, w: Floats) -> Any:
        return [round(x[0] - rng.uniform(-0.5, 0.5), 1)] if x[0] > 2 else [round(x[0] + rng.random(), 1)]


def inverted(world: CheckedWorld, before: float, action: int, after: float) -> tuple[float, float]:
    found = world.abduce(Moment((before,), action), (after,))
    return float(found.low[0]), float(found.high[0])


def test_noise_is_a_point_or_the_interval_that_clipping_and_rounding_leave() -> None:
    pond, rounded = load_world(Pond), load_world(Rounded)
    chance = -math.expm1(-0.2 / 0.3)
    assert inverted(pond, 1.0, 0, 1.2) == pytest.approx((chance, chance), rel=1e-12)
    assert inverted(pond, 0.3, 1, 0.0) == pytest.approx((0.0, chance), rel=1e-12)
    assert inverted(rounded, 3.0, 0, 3.2) == pytest.approx((0.25, 0.35), rel=1e-9)
    assert inverted(rounded, 1.0, 0, 1.2) == pytest.approx((0.15, 0.25), rel=1e-9)
    with pytest.raises(PathError, match="practically impossible"):
        pond.abduce(Moment((1.0,), 0), (0.9,))


# ---- what cannot be a world ----


def drone(step: Any = None, **parts: Any) -> type[DroneWorld]:
    made = type("Changed", (Drone,), {"start": 0.5} | ({"gust": step} if step else {}))
    return type("ChangedWorld", (DroneWorld,), {"make": staticmethod(made)} | parts)


def twice(self: Any) -> float:
    return float(self.np_random.normal(0.0, 0.1, size=2).sum())


def sometimes(self: Any) -> float:
    return float(self.np_random.normal()) if self.np_random.random() < 0.5 else 0.0


def apart(self: Any) -> float:
    return float(np.random.default_rng().normal() + self.np_random.random())


def tiring(self: Any) -> float:
    self.flown = getattr(self, "flown", 0) + 1
    return float(self.np_random.normal(-0.01 * self.flown, 0.1))


class Quadratic(Pond):
    """Two noises lead to the same level."""

    def move(self, x: Floats, a: int, rng: Any, w: Floats) -> Any:
        return [x[0] + (rng.random() - 0.5) ** 2]


class Short(Pond):
    """One number would be taken for both."""

    features: Any = ("level", "volume")

    def move(self, x: Floats, a: int, rng: Any, w: Floats) -> Any:
        return [x[0] + rng.random()]


def unbound(_: Any) -> Any:
    env = Drone()
    env.action_space = Box(-1, 1)  # type: ignore[assignment]
    return env


@pytest.mark.parametrize(
    ("world", "says"),
    [
        (drone(twice), "a step draws 2 numbers or more, and noise is 1"),
        (drone(noise=2, noise_features=(1, 1)), "noise is 2, and the step from .* draws 1; draw as many numbers"),
        (drone(sometimes, noise=2, noise_features=(1, 0)), "draw as many numbers in every step"),
        (drone(lambda self: self.np_random.poisson(1.0)), r"it draws by poisson\(\), which is no known function"),
        (drone(apart), "depends on something that read_state and write_state leave out"),
        (drone(tiring), "depends on something that read_state and write_state leave out"),
        (drone(noise_features=None), "it draws 1 numbers and has no noise_features"),
        (drone(noise_features=(0,)), "noise does not come back from its own step"),
        (drone(terminal=()), r"ends an episode in \[0.0, .*\], where no label of terminal \(\) holds"),
        (drone(holds=lambda self, label, x: x[:, 0] < 1.0), "does not end an episode in .* where a label of"),
        (drone(actions=("sink", "rise")), r"actions are Discrete\(3\), and the world names 2"),
        (drone(make=unbound), r"actions are Box\(.*\), and the world names 3.* by gymnasium.wrappers.TransformAction"),
        (drone(features=("height",)), r"state has shape \(2,\), features are \('height',\)"),
        (
            drone(read_state=lambda self: self.env.unwrapped.position),
            "cannot be read and set .*position.*; write read_",
        ),
        (drone(write_state=lambda self, x: vars(self.env)[x]), "cannot be read and set .TypeError: unhashable"),
        (Short, r"move gives shape \(1,\), and a state has shape \(2,\)"),
        (Quadratic, "noise does not come back from its own step"),
    ],
)
def test_each_reason_why_a_simulator_is_no_world_is_one_clear_error(world: Any, says: str) -> None:
    with pytest.raises(ModelError, match=says) as found:
        load_world(world)
    assert "\n" not in str(found.value)
