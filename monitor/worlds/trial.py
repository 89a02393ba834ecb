"""Trial calls of a world before it is used. The results on states in the declared ranges must be consistent."""

from __future__ import annotations

from typing import Final

import numpy as np

from monitor.arrays import Floats
from monitor.errors import ModelError, PathError
from monitor.worlds.abduction import Moment
from monitor.worlds.checked import TOLERANCE, CheckedWorld
from monitor.worlds.protocol import Feature

STATES: Final = 8
"""Number of states in which each action is tried. The first two are at the ends of the ranges."""


def examine(world: CheckedWorld) -> None:
    """Raise ModelError unless `step` is a function of its arguments, row by row, and abduction recovers the noise.

    The trial uses states in the declared ranges, and numbers near 0 for features without a range.
    """
    rng = np.random.default_rng(0)
    inputs = tuple(_tried(world.inputs, rng)[-1].tolist())
    for action in range(world.actions):
        states = _tried(world.features, rng)
        noise = rng.uniform(0.01, 0.99, (STATES, world.noise))
        moved = world.step(states, np.full(STATES, action), noise, inputs)
        if not np.array_equal(moved, world.step(states, np.full(STATES, action), noise, inputs)):
            raise ModelError(
                f"{world}: step gives two answers to one call; all its randomness must come from u, and it must not "
                "keep anything from call to call"
            )
        for n in (0, STATES - 1):
            alone = world.step(states[n : n + 1], np.array([action]), noise[n : n + 1], inputs)
            _check_row(world, states[n], moved[n], alone[0])
        for n in range(STATES):
            _check_inverse(world, Moment(tuple(states[n].tolist()), action, inputs), noise[n], moved[n])
        if world.has_rewards:
            world.rewards(states, np.full(STATES, action), moved)
    _try_later_inputs(world, inputs)
    for label in world.labels:
        world.holds(label, states)


def _try_later_inputs(world: CheckedWorld, inputs: tuple[float, ...]) -> None:
    if not world.recorded_steps:
        world.forecast(inputs)
        return
    chances = np.linspace(0.01, 0.99, STATES)
    for ahead in (1, 2):
        drawn = world.resample(inputs, ahead, chances)
        alone = world.resample(inputs, ahead, chances[-1:])
        if not (np.array_equal(drawn, world.resample(inputs, ahead, chances)) and np.array_equal(drawn[-1:], alone)):
            raise ModelError(
                f"{world}: resample gives two answers to one call; its row k must be a function of w, ahead and "
                "number k of u"
            )


def some_moment(world: CheckedWorld) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return a state and inputs in the declared ranges."""
    rng = np.random.default_rng(0)
    return tuple(_tried(world.features, rng)[-1].tolist()), tuple(_tried(world.inputs, rng)[-1].tolist())


def some_states(world: CheckedWorld, count: int) -> Floats:
    """Return states [count, f] in the declared ranges, the first two at the ends; without a range, near 0."""
    return _tried(world.features, np.random.default_rng(0), count)


def some_inputs(world: CheckedWorld, count: int) -> Floats:
    """Return inputs [count, i] in the declared ranges, the first two at the ends; without a range, near 0."""
    return _tried(world.inputs, np.random.default_rng(1), count)


def _tried(features: tuple[Feature, ...], rng: np.random.Generator, count: int = STATES) -> Floats:
    """Return states [count, f] in the ranges of the features."""
    states = np.empty((count, len(features)))
    for column, each in enumerate(features):
        if np.isfinite([each.low, each.high]).all():
            values = np.concatenate([[each.low, each.high], rng.uniform(each.low, each.high, count - 2)])
        elif np.isfinite(each.low):
            values = each.low + np.abs(rng.normal(size=count))
        elif np.isfinite(each.high):
            values = each.high - np.abs(rng.normal(size=count))
        else:
            values = rng.normal(size=count)
        states[:, column] = np.round(values) if each.whole else values
    return states


def _check_row(world: CheckedWorld, state: Floats, among: Floats, alone: Floats) -> None:
    if not np.allclose(alone, among, rtol=TOLERANCE, atol=TOLERANCE):
        raise ModelError(
            f"{world}: step gives {world.shown(alone)} for {world.shown(state)} alone and {world.shown(among)} among "
            "other states; row k of the result may depend on row k of the arguments only"
        )


def _check_inverse(world: CheckedWorld, pair: Moment, noise: Floats, moved: Floats) -> None:
    try:
        found = world.abduce(pair, tuple(moved.tolist()))
    except PathError as error:
        raise ModelError(f"{world}: noise does not come back from its own step: {error}") from error
    outside = (noise < found.low - TOLERANCE) | (noise > found.high + TOLERANCE)
    if outside.any():
        component = int(np.flatnonzero(outside)[0])
        assert pair.action is not None
        raise ModelError(
            f"{world}: from {world.shown(pair.state)} by {world.action_names[pair.action]!r} noise {component} was "
            f"{noise[component]:.6g}, and invert says {found.low[component]:.6g} to {found.high[component]:.6g}; it "
            "must give back all noise that leads to the observed state: an interval where several do, None and a "
            "posterior where these are no box"
        )
