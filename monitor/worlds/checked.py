"""Check the shapes and ranges of all results of a world, and that `invert` is the inverse of `step`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import numpy as np

from monitor.arrays import AnyArray, Bools, Floats, Ints
from monitor.errors import LimitError, ModelError, MonitorError, PathError
from monitor.model.action_names import ActionNames
from monitor.user_code import explained
from monitor.worlds.abduction import LARGEST, SMALLEST, Abduction, Moment
from monitor.worlds.content import of_python
from monitor.worlds.description import Ranges, features_driven, features_listed, names_listed
from monitor.worlds.protocol import World

TOLERANCE: Final = 1e-6
"""Tolerance between an observed state and the state to which the inferred noise leads; relative for numbers above 1.
Noise near 0 or 1 is only known to 1e-16. At six standard deviations, a normal quantile turns this error into 1e-8.
"""
WITHIN: Final = (0.5, 1e-3, 1.0 - 1e-3)
"""Positions in an interval of noise that are tested: any noise in the interval must lead to the observed state."""
TRIED: Final = 256
"""Number of draws of a posterior that are tested on an observed step."""
MAX_ABDUCTIONS: Final = 4096
"""Number of observed steps, over all paths, whose noise is cached. If there are more, the cache is cleared."""
NO_REWARDS: Final = "add reward(x, a, x_next), or to a manifest a graph `reward`, or ask for a P"
EFFECTIVE: Final = 0.1
"""Least effective number of draws of a posterior, as a fraction of all draws. Below it, weights are too uneven."""


class CheckedWorld:
    """A `World` in the form that the engines use. Raises ModelError if its description is incomplete or malformed.

    If a result of the user's code breaks the contract, ModelError names the call. `abduce` raises PathError instead,
    because the cause may also be a wrong path.
    """

    def __init__(self, world: World, content: bytes = b"") -> None:
        self._world: Any = world
        self.version = str(self._part("version"))
        self.content = content or getattr(world, "content", b"") or of_python(self.version, b"")
        self.features = features_listed(self._part("features"), "feature")
        self.inputs = features_listed(getattr(world, "inputs", ()), "input")
        self.action_names = names_listed(self._part("actions"), "action")
        self.actions = len(self.action_names)
        self.named_actions = ActionNames(self.action_names, self.actions)
        self.labels = names_listed(self._part("labels"), "label", least=0)
        self.noise = self._part("noise")
        self.learned = bool(getattr(world, "learned", False))
        fits = getattr(world, "fits", ())
        if not isinstance(fits, Sequence):
            raise ModelError(f"{self}: fits is {fits!r:.100}; give a list of worlds like it, or leave it out")
        self.fits = tuple(CheckedWorld(each) for each in fits)
        if not (isinstance(self.noise, int) and self.noise >= 0):
            raise ModelError(f"{self}: noise is {self.noise!r}; it counts the uniform numbers of a step: 0, 1, ...")
        self.noise_features = features_driven(getattr(world, "noise_features", None), self.features, self.noise)
        for name in ("step", "holds"):
            if not callable(self._part(name)):
                raise ModelError(f"{self}: {name} is not a function")
        self._invert, self._posterior, self._forecast, self._resample, self._reward = (
            getattr(world, name, None) for name in ("invert", "posterior", "forecast", "resample", "reward")
        )
        resamples = bool(self.inputs) and self._resample is not None
        self.recorded_steps: int = getattr(world, "recorded_steps", 0) if resamples else 0
        if resamples and not (isinstance(self.recorded_steps, int) and self.recorded_steps > 0):
            raise ModelError(f"{self}: recorded_steps is {self.recorded_steps!r}; it counts what resample draws from")
        if self.noise and self._invert is None and self._posterior is None:
            raise ModelError(
                f"{self}: it has noise and no way back: add invert(x, a, x_next, w), or, where the noise of a step is "
                "no point and no interval, posterior(x, a, x_next, w, rng, n)"
            )
        if self.inputs and self._forecast is None and self._resample is None:
            raise ModelError(
                f"{self}: it has inputs and says nothing about those to come: add forecast(w), which gives the next "
                "inputs after w (`return w` keeps the last ones recorded), or resample(w, ahead, u)"
            )
        self.learned_from = int(getattr(world, "learned_from", 0))
        self._abductions: dict[tuple[Moment, tuple[float, ...]], Abduction] = {}
        self.has_rewards = self._reward is not None
        self._ranges, self._input_ranges = Ranges(self.features), Ranges(self.inputs)
        self._check_fits()

    def __str__(self) -> str:
        world = self._world
        return f"world {getattr(world, 'version', '') or type(world).__name__!r}"

    def step(self, states: Floats, actions: Ints, noise: Floats, inputs: tuple[float, ...] | Floats) -> Floats:
        """Return the next states [n, f] of states [n, f], in a new array. Inputs are [i] or [n, i]."""
        given = np.empty((len(states), len(self.inputs)))
        given[:] = inputs
        found = self._array("step", (states, actions, noise, given), states.shape)
        moved = np.array(found, dtype=np.float64)
        if (n := self._ranges.first_outside(moved)) is not None:
            raise ModelError(
                f"{self}: step({_shown(states[n])}, {self.action_names[actions[n]]!r}, u={_shown(noise[n])}) gives "
                f"{self.outside(moved[n])}; clip it in step, or declare what the feature can be"
            )
        return moved

    def outside(self, state: Sequence[float] | Floats, inputs: Sequence[float] = ()) -> str:
        """Return which number of a state, or of inputs, is impossible, and why; empty if all are possible."""
        return self._ranges.outside(state) or (self._input_ranges.outside(inputs) if inputs else "")

    def holds(self, label: str, states: Floats) -> Bools:
        """Return for each of n states whether a label holds, [n]."""
        marks = self._array("holds", (label, np.asarray(states, dtype=np.float64)), (len(states),))
        return marks.astype(np.bool_, copy=False)

    def unrecorded(self, states: Floats, actions: Ints, inputs: tuple[float, ...] | Floats) -> Bools:
        """Return for each of n pairs whether the world extrapolates, [n].

        It extrapolates at a pair if the pair's numbers are outside the recorded ranges of the pair's action. The world
        must have `learned_from`.
        """
        given = np.empty((len(states), len(self.inputs)))
        given[:] = inputs
        known = self._array("recorded", (states, actions, given), (len(states),))
        return ~known.astype(np.bool_, copy=False)

    def recorded_numbers(self, chances: Floats) -> Floats:
        """Return features and inputs [n, f + i] in the recorded ranges of an action; `chances`: uniform [n, 1 + f + i].

        The first number of each row chooses the action, with its recorded frequency. Without `learned_from` the result
        is empty, [0, f + i].
        """
        if not self.learned_from:
            return np.zeros((0, len(self.features) + len(self.inputs)))
        return self._array("recorded_numbers", (chances,), chances[:, 1:].shape).astype(np.float64)

    def rewards(self, states: Floats, actions: Ints, successors: Floats) -> Floats:
        """Return the rewards of n transitions, [n]."""
        if self._reward is None:
            raise ModelError(f"{self}: it has no rewards: {NO_REWARDS}")
        return self._array("reward", (states, actions, successors), (len(states),)).astype(np.float64)

    def forecast(self, inputs: tuple[float, ...]) -> tuple[float, ...]:
        """Return the inputs of the next step, beyond the recorded inputs."""
        if not inputs:
            return inputs
        found = self._array("forecast", (np.array(inputs),), (len(inputs),))
        following = tuple(map(float, found))
        if problem := self._input_ranges.outside(following):
            raise ModelError(f"{self}: forecast({_shown(inputs)}) gives {problem}")
        return following

    def resample(self, inputs: tuple[float, ...], ahead: int, chances: Floats) -> Floats:
        """Return the inputs [n, i] `ahead` steps after the last recorded inputs [i], from uniform numbers [n]."""
        found = self._array("resample", (np.array(inputs), ahead, chances), (len(chances), len(inputs)))
        if (n := self._input_ranges.first_outside(found)) is not None:
            problem = self._input_ranges.outside(found[n])
            raise ModelError(f"{self}: resample({_shown(inputs)}, {ahead}, {chances[n]:.6g}) gives {problem}")
        return found.astype(np.float64)

    def different_from(self, other: CheckedWorld) -> str:
        """Return a part in which two worlds differ, so that they cannot be compared; empty if there is none."""
        compared = ("features", "inputs", "action_names", "noise")
        return next((what.replace("_", " ") for what in compared if getattr(self, what) != getattr(other, what)), "")

    def abduce(self, pair: Moment, successor: tuple[float, ...]) -> Abduction:
        """Return the noise of an observed step. Raises PathError if the inferred noise does not lead to `successor`."""
        key = pair, successor
        found = self._abductions.get(key)
        if found is None:
            try:
                found = self._abduce(pair, successor)
            except PathError as error:
                raise self._in_its_words(pair, successor, error) from error
            if len(self._abductions) >= MAX_ABDUCTIONS:
                self._abductions.clear()
            self._abductions[key] = found
        return found

    def _in_its_words(self, pair: Moment, successor: tuple[float, ...], error: PathError) -> PathError:
        """Return the error for a step that no noise explains; with more details for a world with a manifest."""
        if not hasattr(self._world, "unexplained"):
            return error
        arguments = np.array(pair.state), pair.action, np.array(successor), np.array(pair.inputs, dtype=np.float64)
        found = self._call("unexplained", arguments)
        assert pair.action is not None
        step = f"from {self.shown(pair.state)} by {self.action_names[pair.action]!r} to {self.shown(successor)}"
        return PathError(f"no noise of {self} leads {step}: {found}") if found else error

    def _abduce(self, pair: Moment, successor: tuple[float, ...]) -> Abduction:
        state, action, inputs = pair
        assert action is not None
        arguments = np.array(state), action, np.array(successor), np.array(inputs, dtype=np.float64)
        box = np.zeros(0), np.zeros(0)
        if self.noise:
            found = None if self._invert is None else self._call("invert", arguments)
            if found is None:
                return self._drawn(pair, successor, arguments)
            box = self._box(found)
        low, high = box
        if not ((low >= 0.0) & (low <= high) & (high <= 1.0) & (low < 1.0) & (high > 0.0)).all():
            raise PathError(
                f"the noise of the step from {self.shown(state)} by {self.action_names[action]!r} to "
                f"{self.shown(successor)} is {_interval(low, high)}, not within (0, 1): in {self} it is "
                "practically impossible, or its invert is wrong"
            )
        noise = Abduction(state, action, successor, low, high)
        tried = [low + (high - low) * part for part in (WITHIN[:1] if noise.is_point else WITHIN)]
        self._check_round_trip(pair, successor, np.clip(np.array(tried), SMALLEST, LARGEST))
        return noise

    def shown(self, state: Sequence[float] | Floats, digits: int = 6) -> str:
        """Return a state for messages, such as `level=3.2 m`."""
        return " ".join(each.shown(value, digits) for each, value in zip(self.features, state, strict=True))

    def _box(self, found: object) -> tuple[Floats, Floats]:
        pair = found if isinstance(found, tuple) and len(found) == 2 else (found, found)
        try:
            low, high = (np.atleast_1d(np.asarray(each, dtype=np.float64)) for each in pair)
        except (TypeError, ValueError) as error:
            raise ModelError(f"{self}: invert gives {found!r:.100}, which are no numbers") from error
        if low.shape != (self.noise,) or high.shape != (self.noise,):
            raise ModelError(
                f"{self}: invert gives shape {low.shape} and {high.shape}; return {self.noise} numbers, "
                "or a tuple of two such arrays"
            )
        return low, high

    def _drawn(self, pair: Moment, successor: tuple[float, ...], arguments: tuple[object, ...]) -> Abduction:
        if self._posterior is None:
            raise ModelError(f"{self}: invert gives None for {self.shown(pair.state)}, and there is no posterior")
        draw = partial(self._draws, pair, successor, arguments)
        draw(np.random.Generator(np.random.Philox(key=0)), TRIED)  # so that an impossible path is reported at once
        none, all_ = np.zeros(self.noise), np.ones(self.noise)
        assert pair.action is not None
        return Abduction(pair.state, pair.action, successor, none, all_, draw)

    def _draws(
        self,
        pair: Moment,
        successor: tuple[float, ...],
        arguments: tuple[object, ...],
        generator: np.random.Generator,
        count: int,
    ) -> tuple[Floats, Floats | None]:
        found = self._call("posterior", (*arguments, generator, count))
        given, weights = found if isinstance(found, tuple) and len(found) == 2 else (found, None)
        draws = np.asarray(given, dtype=np.float64)
        if draws.shape != (count, self.noise) or not ((draws > 0.0) & (draws < 1.0)).all():
            raise ModelError(
                f"{self}: posterior gives shape {draws.shape}, not {(count, self.noise)} numbers in (0, 1)"
            )
        self._check_round_trip(pair, successor, draws)
        if weights is None:
            return draws, None
        weights = np.asarray(weights, dtype=np.float64)
        total = weights.sum() if weights.shape == (count,) else np.nan
        if not (0.0 < total < np.inf and (weights >= 0.0).all()):
            raise ModelError(f"{self}: posterior gives weights of shape {weights.shape}, not {count} numbers >= 0")
        effective = total**2 / (weights**2).sum()
        if effective < EFFECTIVE * count:
            raise LimitError(
                f"{self}: the weights of its posterior are worth {effective:.0f} draws of {count}, too few to rely on; "
                "draw more of what is likely"
            )
        return draws, weights / total

    def _check_round_trip(self, pair: Moment, successor: tuple[float, ...], noise: Floats) -> None:
        """Raise PathError if noise [k, m] does not lead to the observed state."""
        state, action, inputs = pair
        assert action is not None
        count = len(noise)
        moved = self.step(np.repeat(np.array([state]), count, axis=0), np.full(count, action), noise, inputs)
        wanted = np.array(successor)
        residual = np.abs(moved - wanted)
        wrong = residual > TOLERANCE * np.maximum(np.abs(wanted), 1.0)
        if wrong.any():
            row, column = (int(k) for k in np.argwhere(wrong)[0])
            raise PathError(
                f"no noise of {self} leads from {self.shown(state)} by {self.action_names[action]!r} to "
                f"{self.features[column].shown(wanted[column])}: with u={_shown(noise[row])}, which it gives back, "
                f"step comes to {moved[row, column]:.6g}; the path is wrong, or invert is not the inverse of step"
            )

    def _check_fits(self) -> None:
        if len(self.fits) == 1:
            raise ModelError(f"{self}: it has one fit, which leaves nothing open; give two or more, or none")
        for n, fit in enumerate(self.fits, 1):
            if differs := self.different_from(fit) or "labels" * (self.labels != fit.labels):
                raise ModelError(f"{self}: fit {n} has other {differs} than the world; it needs the same")

    def _part(self, name: str) -> Any:  # noqa: ANN401 - the caller checks each
        if not hasattr(self._world, name):
            raise ModelError(f"{self}: it has no {name!r}, which every world needs (docs/worlds.md)")
        return getattr(self._world, name)

    def _array(self, name: str, arguments: tuple[object, ...], shape: tuple[int, ...]) -> AnyArray:
        found = self._call(name, arguments)
        try:
            array = np.asarray(found)
        except ValueError as error:
            raise ModelError(f"{self}: {name} gives {found!r:.100}, which is no array") from error
        if array.shape != shape or array.dtype.kind not in "biuf":
            raise ModelError(f"{self}: {name} gives shape {array.shape} of {array.dtype}, not {shape} numbers")
        return array

    def _call(self, name: str, arguments: tuple[object, ...]) -> Any:  # noqa: ANN401 - checked by the caller
        try:
            return getattr(self._world, name)(*arguments)
        except MonitorError:
            raise
        except Exception as error:
            raise ModelError(f"{self}: {name} fails ({explained(error)})") from error


def _shown(values: Sequence[float] | Floats) -> str:
    return "[" + ", ".join(f"{value:.6g}" for value in values) + "]"


def _interval(low: Floats, high: Floats) -> str:
    return _shown(low) if np.array_equal(low, high) else f"from {_shown(low)} to {_shown(high)}"
