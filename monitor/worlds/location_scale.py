"""The world of a manifest: the next value of a feature is location + scale x noise, rounded and clipped.

The inverse distribution function chooses the value of a feature with named values. Each feature has one number of the
noise, unless its scale is the number 0. So an observed step determines a point or an interval for each noise number.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import partial
from pathlib import Path, PurePosixPath

import numpy as np

from monitor.arrays import Bools, Floats, Ints
from monitor.errors import ModelError
from monitor.policy.onnx_policy import read_bytes, read_pinned
from monitor.worlds.abduction import LARGEST, SMALLEST
from monitor.worlds.checked import TOLERANCE
from monitor.worlds.content import of_manifest, opened
from monitor.worlds.distributions import Empirical, NoiseDistribution, Normal, Student
from monitor.worlds.feature_conditions import compiled
from monitor.worlds.graph import Graph, as_model_errors
from monitor.worlds.resampling import ResampledInputs
from monitor.worlds.world_manifest import MAX_MANIFEST_BYTES, FeatureSpec, File, Noise, WorldManifest, read_manifest

UNLIKELY = 1e-6
"""If the probability of a feature's noise is below this, the feature is named as the reason for an impossible step."""
SUM_TOLERANCE = 1e-5
"""Tolerance for the sum of probabilities, which are 32-bit floats."""


def read_world(path: Path) -> LocationScale:
    """Return the world of a manifest. Raises ModelError if a file is missing, altered, unsafe, or does not fit."""
    where, files = str(path), dict[str, bytes]()
    with as_model_errors():
        text = read_bytes(path, f"policy {where}", MAX_MANIFEST_BYTES)

    def content(file: File) -> bytes:
        with as_model_errors():
            files[file.sha256] = read_pinned(path, file.file, file.sha256)
        return files[file.sha256]

    world = LocationScale(read_manifest(text, where), content, where)
    world.content = of_manifest(text, files)
    return world


def world_of(packed: bytes, where: str) -> LocationScale:
    """Return the world in the bytes of `LocationScale.content`. Raises ModelError if they are not a valid world."""
    text, files = opened(packed)

    def content(file: File) -> bytes:
        found = files.get(file.sha256, b"")
        if hashlib.sha256(found).hexdigest() != file.sha256:
            raise ModelError(f"world {where}: its file {file.file} is missing or altered")
        return found

    world = LocationScale(read_manifest(text, where), content, where)
    world.content = packed
    return world


class LocationScale:
    """A `World` made from a manifest.

    `content`: the bytes of the manifest and of its files; empty until they are known. `fits`: the worlds of the
    manifests under `fits`, with the ranges, labels, rewards and future inputs of this world. `reward`: the reward of n
    transitions, [n]; None if the manifest has none. `learned_from`: number of recorded steps; 0 if the recorded data
    are unknown.

    Args:
        manifest: the description of the world.
        content: returns the bytes of a file of the manifest.
        where: name of the world in messages.
    """

    def __init__(self, manifest: WorldManifest, content: Callable[[File], bytes], where: str) -> None:
        self.content = b""
        self.version, self.actions, self.learned = manifest.version, manifest.actions, manifest.learned
        self.features = tuple(each.feature for each in manifest.features)
        self.inputs = tuple(each.feature for each in manifest.inputs)
        self.recorded_steps, self.resample = 0, None
        if (recorded := manifest.recorded_inputs) is not None:
            source = ResampledInputs(content(recorded), self.inputs, f"{where}, {recorded.file}")
            self.recorded_steps, self.resample = source.steps, source.resample
        self._recorded = _recorded_ranges(manifest)
        self._recorded_steps = [
            manifest.recorded[name].steps if name in manifest.recorded else 0 for name in manifest.actions
        ]
        self.learned_from = sum(self._recorded_steps)
        widths = {"x": len(self.features), "a": len(self.actions), "w": len(self.inputs)}

        def graph(file: File, columns: int) -> Graph:
            return Graph(content(file), f"{where}, {file.file}", widths, columns)

        self.reward = None
        if (paid := manifest.reward) is not None:
            given = {"x": widths["x"], "a": widths["a"], "x_next": widths["x"]}
            self.reward = partial(_reward, Graph(content(paid), f"{where}, {paid.file}", given, 1), len(self.actions))
        numbers = [n for n, each in enumerate(manifest.features) if not each.values]
        still = (
            ()
            if isinstance(manifest.scale, File)
            else {n for n, s in zip(numbers, manifest.scale, strict=True) if not s}
        )
        self.noise_features = tuple(n for n in range(len(self.features)) if n not in still)
        self.noise, number_of = len(self.noise_features), {n: k for k, n in enumerate(self.noise_features)}
        self._numbers = [
            _Number(manifest.features[n], n, number_of.get(n), _distribution(manifest, n, where)) for n in numbers
        ]
        self._location = None if manifest.location is None else graph(manifest.location, len(numbers))
        scale = manifest.scale
        self._scale = graph(scale, len(numbers)) if isinstance(scale, File) else np.array(scale, dtype=np.float64)
        self._categories = [
            (n, number_of[n], graph(each.probabilities, len(each.values)))
            for n, each in enumerate(manifest.features)
            if each.probabilities is not None
        ]
        names = [each.name for each in manifest.features]
        values = {each.name: each.values for each in manifest.features if each.values}
        self._conditions = {
            label: compiled(text, names, values, f"world {where}: label {label!r}")
            for label, text in manifest.labels.items()
        }
        self.labels = tuple(self._conditions)
        self._where = where
        self.fits = tuple(self._fit(each, manifest, content) for each in manifest.fits)

    def step(self, x: Floats, a: Ints, u: Floats, w: Floats) -> Floats:
        """Return the next states [n, f]."""
        given, moved = self._given(x, a, w), np.empty_like(x)
        location, scale = self._located(given)
        for k, number in enumerate(self._numbers):
            moved[:, number.column] = number.moved(location[:, k], scale[:, k], u)
        for column, noise, graph in self._categories:
            moved[:, column] = (u[:, noise, np.newaxis] > self._ends(graph, given)[:, :-1]).sum(axis=1)
        return moved

    def invert(self, x: Floats, a: int, x_next: Floats, w: Floats) -> tuple[Floats, Floats]:
        """Return the lower and upper ends [m], [m] of the noise of a step; equal ends are a point."""
        low, high = self.intervals(x[np.newaxis], np.array([a]), x_next[np.newaxis], w[np.newaxis])
        return low[0], high[0]

    def intervals(
        self, x: Floats, a: Ints, x_next: Floats, w: Floats, within: Floats | float = 0.0
    ) -> tuple[Floats, Floats]:
        """Return the lower and upper ends [n, m], [n, m] of the noise of n steps.

        `within`: [f], the tolerance for each number of `x_next`. For a rounded number it is at least half a unit.
        """
        given, within = self._given(x, a, w), np.broadcast_to(within, x.shape[1:])
        low, high = np.zeros((len(x), self.noise)), np.ones((len(x), self.noise))
        location, scale = self._located(given)
        for k, number in enumerate(self._numbers):
            if (n := number.noise) is not None:
                wanted, near = x_next[:, number.column], float(within[number.column])
                low[:, n], high[:, n] = number.interval(location[:, k], scale[:, k], wanted, near)
        rows = np.arange(len(x))
        for column, noise, graph in self._categories:
            ends, value = self._ends(graph, given), x_next[:, column].astype(np.int64)
            low[:, noise] = np.where(value > 0, ends[rows, value - 1], 0.0)
            high[:, noise] = ends[rows, value]
        return low, high

    def located(self, x: Floats, a: Ints, w: Floats) -> tuple[Floats, Floats]:
        """Return location and scale [n, k] of the features without named values."""
        return self._located(self._given(x, a, w))

    def unexplained(self, x: Floats, a: int, x_next: Floats, w: Floats) -> str:
        """Return which feature of a step is nearly impossible, by how much, and what to do; empty if no feature is."""
        at, action, inputs = x[np.newaxis], np.array([a]), w[np.newaxis]
        location, scale = self.located(at, action, inputs)
        found = [
            number.departure(location[0, k], scale[0, k], x_next[number.column])
            for k, number in enumerate(self._numbers)
        ]
        low, high = self.intervals(at, action, x_next[np.newaxis], inputs)
        for column, noise, _ in self._categories:
            value = self.features[column].shown(x_next[column])
            found.append((float(high[0, noise] - low[0, noise]), f"its graph gives {value} no probability"))
        chance, words = min(found)
        if chance > UNLIKELY:
            return ""
        known, again = (", as learned", ", learn again with such steps,") if self.learned else ("", "")
        return f"{words}{known}; check the sensor{again} or widen scale or noise in the manifest"

    def forecast(self, w: Floats) -> Floats:
        """Return the inputs unchanged. Worlds without recorded inputs use this forecast."""
        return w

    def recorded(self, x: Floats, a: Ints, w: Floats) -> Bools:
        """Return for each of n steps whether its numbers are within the recorded ranges of its action, [n].

        Each number is tested separately.
        """
        given, (low, high) = np.concatenate([x, w], axis=1), self._recorded
        return np.asarray(((low[a] <= given) & (given <= high[a])).all(axis=1))

    def recorded_numbers(self, chances: Floats) -> Floats:
        """Return features and inputs [n, f + i] in the recorded ranges (see `CheckedWorld.recorded_numbers`)."""
        low, high = self._recorded
        action = np.searchsorted(np.cumsum(self._recorded_steps) / self.learned_from, chances[:, 0])
        within = np.array([(each.low, each.high) for each in (*self.features, *self.inputs)]).T
        low, high = np.maximum(low[action], within[0]), np.minimum(high[action], within[1])
        low, high = np.where(np.isfinite(low), low, 0.0), np.where(np.isfinite(high), high, 1.0)
        numbers = low + chances[:, 1:] * (high - low)
        whole = [each.whole or bool(each.values) for each in (*self.features, *self.inputs)]
        return np.where(whole, np.round(numbers), numbers)

    def holds(self, label: str, x: Floats) -> Bools:
        """Return for each of n states whether a label's condition holds, [n]."""
        return self._conditions[label](x)

    def _fit(self, pinned: File, described: WorldManifest, content: Callable[[File], bytes]) -> LocationScale:
        """Return the world of a fit's manifest. The fit's files are in the same folder as its manifest."""
        folder, where = PurePosixPath(pinned.file).parent, f"{self._where}, {pinned.file}"
        manifest = read_manifest(content(pinned), where)
        if manifest.fits or manifest.recorded_inputs or manifest.reward:
            problem = "it is a fit; take fits, recorded_inputs and reward out, as the world's are used"
            raise ModelError(f"world {where}: {problem}")
        fit = LocationScale(
            manifest.described_by(described),
            lambda file: content(file.model_copy(update={"file": str(folder / file.file)})),
            where,
        )
        fit.recorded_steps, fit.resample, fit.reward = self.recorded_steps, self.resample, self.reward
        return fit

    def _given(self, x: Floats, a: Ints, w: Floats) -> dict[str, Floats]:
        return {"x": x, "a": np.eye(len(self.actions))[a], "w": w}

    def _located(self, given: dict[str, Floats]) -> tuple[Floats, Floats]:
        if self._location is None:
            return np.zeros((len(given["x"]), 0)), np.zeros((len(given["x"]), 0))
        location = self._location(given)
        if not isinstance(self._scale, Graph):
            return location, np.broadcast_to(self._scale, location.shape)
        scale = self._scale(given)
        if (scale < 0.0).any():
            raise ModelError(f"world {self._where}: the scale graph gives {scale.min():.6g}; a scale is 0 or more")
        return location, scale

    def _ends(self, graph: Graph, given: dict[str, Floats]) -> Floats:
        """Return the upper ends [n, values] of the intervals of the named values."""
        chances = graph(given)
        if (chances < 0.0).any() or (np.abs(chances.sum(axis=1) - 1.0) > SUM_TOLERANCE).any():
            raise ModelError(
                f"world {self._where}: a row of probabilities is {chances[0].tolist()!r:.100}; they must be 0 or more "
                "and sum to 1: end the graph with a softmax"
            )
        ends = chances.cumsum(axis=1)
        return np.asarray(ends / ends[:, -1:])


def _recorded_ranges(manifest: WorldManifest) -> tuple[Floats, Floats]:
    """Return the ends [A, f + i] of the ranges in which each action was recorded; without recordings, empty ranges."""
    names = [each.name for each in (*manifest.features, *manifest.inputs)]
    low, high = np.full((2, len(manifest.actions), len(names)), np.inf)
    high *= -1.0
    for action, name in enumerate(manifest.actions):
        if (found := manifest.recorded.get(name)) is not None:
            ends = [found.ranges.get(each, (-np.inf, np.inf)) for each in names]
            low[action], high[action] = np.array(ends).T
    return low, high


class _Number:
    """A feature without named values: the effect of noise on it, and the inference of this noise."""

    def __init__(self, spec: FeatureSpec, column: int, noise: int | None, distribution: NoiseDistribution) -> None:
        self.column, self.noise, self._spec, self._distribution = column, noise, spec, distribution

    def moved(self, location: Floats, scale: Floats, u: Floats) -> Floats:
        value = location
        if self.noise is not None:
            value = location + scale * self._distribution.quantile(u[:, self.noise])
        if self._spec.whole:
            value = np.floor(value + 0.5)
        return np.clip(value, self._spec.low, self._spec.high) if self._spec.clip else value

    def departure(self, location: float, scale: float, value: float) -> tuple[float, str]:
        """Return the probability of noise at least as extreme as a value's noise, and a sentence about the value."""
        at, by, to = (np.array([each]) for each in (location, scale, value))
        shown = self._spec.feature.shown(value)
        if self.noise is None or not scale:
            off = abs(float(self.moved(at, by, np.full((1, (self.noise or 0) + 1), 0.5))[0]) - value)
            return float(off <= TOLERANCE * max(abs(value), 1.0)), f"{shown} is not {location:.6g}, and has no noise"
        low, high = self.interval(at, by, to, 0.0)
        least, most = self._distribution.quantile(np.array([SMALLEST, LARGEST]))
        return min(float(high[0]), 1.0 - float(low[0])), (
            f"{shown} is {(value - location) / scale:+.3g} scales from its location {location:.6g}, outside its noise "
            f"({least:.3g} to {most:.3g})"
        )

    def interval(self, location: Floats, scale: Floats, value: Floats, within: float) -> tuple[Floats, Floats]:
        half = max(0.5, within) if self._spec.whole else within
        low, high = value - half, value + half
        if self._spec.clip:
            low = np.where(value == self._spec.low, -np.inf, low)
            high = np.where(value == self._spec.high, np.inf, high)
        still = scale == 0.0  # the noise has no effect
        ends = [self._distribution.cumulative((end - location) / np.where(still, 1.0, scale)) for end in (low, high)]
        return np.where(still, 0.0, ends[0]), np.where(still, 1.0, ends[1])


def _reward(graph: Graph, actions: int, x: Floats, a: Ints, x_next: Floats) -> Floats:
    """Return the rewards [n] of n transitions."""
    return graph({"x": x, "a": np.eye(actions)[a], "x_next": x_next})[:, 0]


def _distribution(manifest: WorldManifest, column: int, where: str) -> NoiseDistribution:
    noise, name = manifest.noise, manifest.features[column].name
    chosen: str | Noise = noise.get(name, "normal") if isinstance(noise, dict) else noise
    if isinstance(chosen, str):
        return Normal()
    if chosen.student is not None:
        return Student(chosen.student)
    assert chosen.residuals is not None
    try:
        return Empirical(chosen.residuals, chosen.bandwidth)
    except ModelError as error:
        raise ModelError(f"world {where}: noise of {name}: {error}") from error
