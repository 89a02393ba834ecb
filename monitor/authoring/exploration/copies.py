"""Explore environments by snapshots: deep copies, or the environment's own `clone_state` and `restore_state`.

A snapshot includes the states of the random generators, so a step repeated from a snapshot gives the same result even
in a random environment. Each step is therefore repeated with differently seeded generators. If the results differ, the
environment is random.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import numpy as np

from monitor.arrays import Bools
from monitor.authoring.exploration.explorable import Arrival, Environment, SimulatorSnapshot
from monitor.authoring.exploration.identity import Flat, StateIdentity, flat, shown
from monitor.errors import ModelError
from monitor.model.annotations import Valuation
from monitor.user_code import explained

REPEATS: Final = 3
"""How often each step is taken from its snapshot."""

Labeller = Callable[[Any], Iterable[str]]


class CopySimulator:
    """A Gymnasium environment explored by snapshots; see `Explorable`.

    Args:
        environment: environment with a Discrete action space; wrapped or not.
        identity: rule that says which situations are the same state.
        seeds: seeds of the resets. The states after these resets are the initial states, all equally likely.
        labeller: the user's function that returns the labels, or None.

    Attributes:
        masked: True if the environment's `action_masks()` says which actions a state has.
    """

    aliasing = True

    def __init__(
        self,
        environment: Environment,
        identity: StateIdentity,
        seeds: Sequence[int],
        labeller: Labeller | None = None,
    ) -> None:
        self._environment, self._identity, self._seeds = environment, identity, tuple(seeds)
        self._labeller = labeller
        self.actions = action_count(environment)
        self.action_names: Sequence[str] = _action_names(environment, self.actions)
        self.variables: Sequence[str] = identity.variables
        self.identified = identity.shown
        self.masked = action_mask(environment, self.actions) is not None
        self._steps = 0
        self._copies = _can_be_copied(environment)

    def starts(self) -> list[Arrival]:
        """Return the states after the resets, all equally likely."""
        return [self.reset(seed) for seed in self._seeds]

    def reset(self, seed: int) -> Arrival:
        """Reset the environment with a seed, and return the state. Its probability is 1 / number of seeds."""
        try:
            raw, _ = self._environment.reset(seed=seed)
        except Exception as error:
            raise ModelError(f"the environment cannot be reset ({explained(error)})") from error
        key, seen = self._seen(self._environment, raw)
        return Arrival(key, seen, self._keep(), probability=1 / len(self._seeds))

    def step(self, snapshot: SimulatorSnapshot, action: int) -> list[Arrival]:
        """Return the successor, or nothing if the mask rules the action out.

        Raises ModelError if the step is random or fails.
        """
        if self.masked and not self._allows(self._return(snapshot), action):
            return []
        ages = self._identity.ages
        first = self._once(snapshot, action, ages[0])
        low = high = first.rewards[0]
        for repeat in range(1, REPEATS):
            age = ages[repeat % len(ages)]
            other = self._once(snapshot, action, age)
            same = (first.key, first.terminated) == (other.key, other.terminated) and _equal(first, other)
            if not same or (age is ages[0] and other.rewards != first.rewards):
                raise ModelError(_random(first, other, action))
            low, high = min(low, other.rewards[0]), max(high, other.rewards[0])
        return [Arrival(first.key, first.observation, first.snapshot, first.terminated, (low, high))]

    def labels(self, snapshot: SimulatorSnapshot) -> Iterable[str]:
        """Return the labels that the user's function gives for the environment in this state."""
        if self._labeller is None:
            return ()
        try:
            return [str(name) for name in self._labeller(self._return(snapshot))]
        except Exception as error:
            raise ModelError(f"the function of the labels failed ({explained(error)})") from error

    def walk(self, actions: Iterator[int], seed: int) -> Iterator[tuple[Valuation, int, Valuation | None, bool, float]]:
        """Yield the steps (key, action, next key, terminated, reward) of one episode after a reset with a seed.

        If the environment's mask rules an action out, the action is not taken and its next key is None.
        """
        environment = self._environment
        raw, _ = environment.reset(seed=seed)
        key, _ = self._seen(environment, raw)
        for action in actions:
            if self.masked and not self._allows(environment, action):
                yield key, action, None, False, 0.0
                continue
            raw, reward, terminated, truncated, _ = environment.step(action)
            after, _ = self._seen(environment, raw)
            yield key, action, after, bool(terminated), float(reward)
            if terminated or truncated:
                return
            key = after

    @property
    def seeds(self) -> Sequence[int]:
        """The seeds of the resets."""
        return self._seeds

    def _allows(self, environment: Environment, action: int) -> bool:
        mask = action_mask(environment, self.actions)
        return mask is None or bool(mask[action])

    def _once(self, snapshot: SimulatorSnapshot, action: int, age: Callable[[Environment], None]) -> Arrival:
        environment = self._return(snapshot)
        self._steps += 1  # a new seed for each step, since a few fixed seeds might agree by chance in every state
        reseed(environment, self._steps)
        try:
            age(environment)
            raw, reward, terminated, _, _ = environment.step(action)
        except Exception as error:
            raise ModelError(f"action {action}: the environment cannot take this step ({explained(error)})") from error
        key, seen = self._seen(environment, raw)
        earned = float(reward)
        return Arrival(key, seen, self._keep(environment), bool(terminated), (earned, earned))

    def _seen(self, environment: Environment, raw: Environment) -> tuple[Valuation, Flat | None]:
        seen = flat(environment.observation_space, raw)
        return self._identity.key(environment, raw, seen), seen

    def _keep(self, environment: Environment | None = None) -> Environment:
        """Return a snapshot. A copy that nothing else uses is itself a snapshot."""
        if not self._copies:
            return self._environment.unwrapped.clone_state()
        return environment if environment is not None else copied(self._environment)

    def _return(self, snapshot: SimulatorSnapshot) -> Environment:
        """Return an environment in the state of a snapshot. The caller may change this environment."""
        if self._copies:
            return copied(snapshot)
        self._environment.unwrapped.restore_state(snapshot)
        return self._environment


def copied(environment: Environment) -> Environment:
    """Return a deep copy. It shares objects that no step changes: spaces, and the table `P`."""
    shared: dict[int, Any] = {}
    for layer in layers(environment):
        for name, value in getattr(layer, "__dict__", {}).items():
            if name == "P" or name.endswith(("action_space", "observation_space", "mission_space", "spec")):
                shared[id(value)] = value
    return copy.deepcopy(environment, shared)


def layers(environment: Environment) -> Iterator[Environment]:
    """Yield the environment and each environment that it wraps, outermost first."""
    inner = environment.unwrapped
    while environment is not inner and hasattr(environment, "env"):
        yield environment
        environment = environment.env
    yield inner


def reseed(environment: Environment, seed: int) -> None:
    """Seed every random generator that the environment may use: in its attributes, in Python and in NumPy."""
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002 - a user's environment may use it
    for layer in layers(environment):
        for name, value in list(getattr(layer, "__dict__", {}).items()):
            match value:
                case np.random.Generator():
                    setattr(layer, name, np.random.default_rng(seed))
                case np.random.RandomState() | random.Random():
                    value.seed(seed)
                case _:
                    pass


@contextmanager
def kept_random_state() -> Iterator[None]:
    """Restore the global random generators of Python and NumPy at the end of the block."""
    python, arrays = random.getstate(), np.random.get_state()  # noqa: NPY002 - likewise
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(arrays)  # noqa: NPY002 - likewise


def action_count(environment: Environment) -> int:
    """Return the number of actions. Raises ModelError if the action space is not Discrete from 0."""
    from gymnasium.spaces import Discrete  # noqa: PLC0415 - an optional extra, and slow to import

    space = environment.action_space
    if not isinstance(space, Discrete) or int(space.start) != 0:
        raise ModelError(
            f"the action space is {space}; only Discrete(n) from 0 can be enumerated: wrap the environment"
        )
    return int(space.n)


def action_mask(environment: Environment, count: int) -> Bools | None:
    """Return for each action whether the environment allows it in its present state, [A]; None without such a mask.

    The mask is the result of a method `action_masks()` of the environment or of a wrapper, as for MaskablePPO of
    sb3-contrib. Raises ModelError if the method fails or returns anything else.
    """
    masks = next((each.action_masks for each in layers(environment) if hasattr(each, "action_masks")), None)
    if not callable(masks):
        return None
    try:
        mask = np.asarray(masks(), dtype=np.bool_)
    except Exception as error:
        raise ModelError(f"the environment's action_masks() failed ({explained(error)})") from error
    if mask.shape != (count,):
        raise ModelError(f"the environment's action_masks() has shape {list(mask.shape)}, not [{count}]")
    return mask


def _action_names(environment: Environment, count: int) -> tuple[str, ...]:
    """Return the names in the environment's enumeration `actions`, which MiniGrid has, or () without it."""
    names = tuple(getattr(each, "name", "") for each in getattr(environment.unwrapped, "actions", ()) or ())
    return names if len(names) == count and all(names) else ()


def _can_be_copied(environment: Environment) -> bool:
    """Return whether deep copies work.

    Raises ModelError if they do not work and the environment has no snapshots of its own.
    """
    try:
        copied(environment)
    except Exception as error:
        if hasattr(environment.unwrapped, "clone_state") and hasattr(environment.unwrapped, "restore_state"):
            return False
        raise ModelError(
            f"the environment cannot be copied ({explained(error)}), and has no clone_state and restore_state; give it "
            "these, or a method successors(state, action)"
        ) from error
    return True


def _equal(one: Arrival, other: Arrival) -> bool:
    if one.observation is None or other.observation is None:
        return one.observation is other.observation
    return np.array_equal(one.observation, other.observation)


def _random(one: Arrival, other: Arrival, action: int) -> str:
    def result(arrival: Arrival) -> str:
        end = ", terminated" if arrival.terminated else ""
        return f"{shown(arrival.key)}, reward {arrival.rewards[0]:g}{end}"

    if (one.key, one.terminated, one.rewards) == (other.key, other.terminated, other.rewards):
        found = "two observations of one state"
    else:
        found = f"{result(one)} and {result(other)}"
    return (
        f"the environment is random: action {action}, repeated from one snapshot with other random numbers, gave "
        f"{found}. A random environment cannot be enumerated by snapshots: give it a method successors(state, action) "
        "that returns its probabilities, or estimate it from roll-outs: cfmon model explore ENV steps.csv --rollouts N"
    )
