"""Compute the key that identifies a state: from its observation, MiniGrid's variables, or a user's function."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from monitor.arrays import Floats, single_if_exact
from monitor.authoring.exploration.explorable import Environment
from monitor.authoring.exploration.minigrid_env import MiniGridState, grow_old, grow_young, is_minigrid, minigrid_state
from monitor.errors import ModelError
from monitor.model.annotations import Valuation
from monitor.user_code import explained, load_object

LONGEST_KEY: Final = 64
"""Largest number of entries of a key. A longer observation is replaced by a digest."""

LONGEST_TEXT: Final = 256
"""Largest number of characters of a text in a key, as in a state of a message."""

Flat = Floats
"""A flattened observation. Its numbers are the numbers of the environment."""


@dataclass(frozen=True)
class StateIdentity:
    """Rule that says which situations of an environment are the same state.

    Attributes:
        key: (environment, raw observation, flattened observation) -> key.
        shown: description, for messages.
        variables: names of the key's entries, or empty.
        ages: functions that set the environment's step count, which is not part of a state. Each step is taken once
            with each count. Only the rewards may depend on the count.
    """

    key: Callable[[Any, Any, Flat | None], Valuation]
    shown: str
    variables: tuple[str, ...] = ()
    ages: tuple[Callable[[Environment], None], ...] = (lambda _: None,)


def identity_of(environment: Environment, key: str | None) -> StateIdentity:
    """Return the identity that `key` names: `module.py:function`, `observation`, or None for the default.

    The default is `MiniGridState` in a MiniGrid environment, and the observation in any other one. Raises ModelError.
    """
    if key == "observation":
        return StateIdentity(_by_observation, "the observation", ages=_ages(environment))
    if key is not None:
        function = load_object(key, ModelError)
        return StateIdentity(
            lambda env, _, __: _by_function(function, env, key), key, _names(function, environment, key)
        )
    if is_minigrid(environment):
        names = f"MiniGrid's own variables ({', '.join(MiniGridState._fields)})"
        return StateIdentity(lambda env, _, __: minigrid_state(env), names, MiniGridState._fields, _ages(environment))
    return StateIdentity(_by_observation, "the observation")


def observation_key(observation: Flat) -> Valuation:
    """Return the key of a flattened observation: its numbers, or a digest of them if they are more than 64.

    The digest uses 32-bit floats if they represent every number exactly, else 64-bit floats. Equal numbers therefore
    have equal keys.

    >>> observation_key(np.array([3.0, 0.5], dtype=np.float32))
    (3.0, 0.5)
    """
    numbers = np.asarray(observation, dtype=np.float64)
    if len(numbers) <= LONGEST_KEY:
        return tuple(numbers.tolist())
    return (hashlib.sha256(single_if_exact(numbers).tobytes()).hexdigest()[:32],)


def shown(key: Valuation) -> str:
    """Return a key for messages, shortened."""
    text = repr(list(key))
    return text if len(text) <= 160 else f"{text[:160]}..."


def key_of(value: object, where: str) -> Valuation:
    """Return a user's key as a tuple of numbers, texts and Booleans. Raises ModelError for anything else.

    >>> key_of({"x": np.int64(3), "on": ["lava"]}, "here")
    (3.0, 'lava')
    """
    key = tuple(_entry(each, where) for each in _entries(value))
    if not 0 < len(key) <= LONGEST_KEY:
        raise ModelError(f"{where}: a key has 1 to {LONGEST_KEY} entries, this one has {len(key)}")
    return key


def flat(space: Environment, observation: Environment) -> Flat | None:
    """Return an observation flattened by `gymnasium.spaces.flatten`, or None if its space cannot be flattened.

    A whole number of a Discrete space becomes a one-hot vector. Raises ModelError if a 64-bit float cannot represent a
    number exactly.
    """
    from gymnasium import spaces  # noqa: PLC0415 - an optional extra, and slow to import

    try:
        if not space.is_np_flattenable:
            return None
        given = np.asarray(spaces.flatten(space, observation)).reshape(-1)
    except NotImplementedError:
        return None
    flattened = given.astype(np.float64)
    if given.dtype.kind in "iu":
        lost = flattened.astype(given.dtype) != given
        if lost.any():
            raise ModelError(
                f"an observation has the number {given[lost][0]}, which no 64-bit float holds, so states that differ "
                "would be one; subtract an offset from it in module.py:make_env"
            )
    return flattened if flattened.size else None


def _by_observation(_environment: object, raw: object, observation: Flat | None) -> Valuation:
    if isinstance(raw, int | np.integer) or (isinstance(raw, tuple) and all(np.isscalar(each) for each in raw)):
        return key_of(raw, "an observation")
    if isinstance(raw, np.ndarray) and raw.dtype.kind in "iu":  # as an agent publishes it, also for MultiDiscrete
        observation = raw.reshape(-1).astype(np.float64)
    if observation is None:
        raise ModelError(
            "the observation is not numbers of a fixed size, so it cannot identify a state; give --key "
            "module.py:function, or wrap the environment in module.py:make_env"
        )
    return observation_key(observation)


def _by_function(function: Callable[[Any], object], environment: Environment, where: str) -> Valuation:
    try:
        return key_of(function(environment), f"--key {where}")
    except ModelError:
        raise
    except Exception as error:
        raise ModelError(f"--key {where}: it failed ({explained(error)})") from error


def _names(function: Callable[[Any], object], environment: Environment, where: str) -> tuple[str, ...]:
    """Return the names of a key that is a mapping or a named tuple. The environment must have been reset."""
    try:
        value = function(environment)
    except Exception as error:
        raise ModelError(f"--key {where}: it failed ({explained(error)})") from error
    if isinstance(value, Mapping):
        return tuple(str(name) for name in value)
    return tuple(getattr(value, "_fields", ()))


def _ages(environment: Environment) -> tuple[Callable[[Environment], None], ...]:
    return (grow_young, grow_old) if is_minigrid(environment) else (lambda _: None,)


def _entries(value: object) -> Iterable[object]:
    match value:
        case Mapping():
            return [entry for each in value.values() for entry in _entries(each)]
        case np.ndarray():
            return value.reshape(-1).tolist()
        case tuple() | list():
            return [entry for each in value for entry in _entries(each)]
        case _:
            return [value]


def _entry(value: object, where: str) -> float | str | bool:
    plain = value.item() if isinstance(value, np.generic) else value
    match plain:
        case bool():
            return plain
        case str() if 0 < len(plain) <= LONGEST_TEXT:
            return plain
        case int() | float() if _held(plain):
            return float(plain)
        case _:
            raise ModelError(
                f"{where}: a key consists of finite numbers, Booleans and text of 1 to {LONGEST_TEXT} characters, not "
                f"{plain!r:.80}{' (no 64-bit float holds it)' if isinstance(plain, int) else ''}"
            )


def _held(number: float) -> bool:
    """Return whether a 64-bit float represents the number exactly."""
    try:
        return math.isfinite(number) and float(number) == number
    except OverflowError:  # a large int
        return False
