"""Candidates for a learned world, and the choice among them by their scores on episodes that they were not fitted to.

A world is location + scale x noise. `fits` gives location and scale. The noise consists of residuals in the episodes
that are held back for the choice, because the residuals of a flexible fit on its own steps are too small. The chosen
world also gets recorded inputs, the recorded ranges of each action, and fits to resampled episodes. If these fits give
different answers, the recordings do not determine the answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from typing import Final, NamedTuple

import numpy as np
import yaml
from scipy.special import ndtr

from monitor.arrays import Bools, Floats, Ints
from monitor.authoring.dynamics.fits import KINDS, Fit, FitKind, fitted
from monitor.authoring.dynamics.onnx_graph import GraphWriter
from monitor.authoring.dynamics.ranges import recorded_actions
from monitor.authoring.dynamics.steps import RecordedSteps
from monitor.worlds.location_scale import LocationScale
from monitor.worlds.resampling import EPISODE, MOST_RECORDED
from monitor.worlds.world_manifest import FeatureSpec, File, Noise, WorldManifest, WorldNumber

PASSES: Final = 20
"""Iterations of the EM algorithm that replaces cut-off numbers by their expectations."""
RESIDUALS: Final = 1_000
"""Number of quantiles of a feature's residuals in a manifest. All features together have at most `ALL_RESIDUALS`."""
ALL_RESIDUALS: Final = 20_000
SMALLEST: Final = 1e-6
"""Smallest scale, in standard deviations of the feature."""
WITHIN: Final = 0.1
IMPOSSIBLE: Final = 1e-9
"""Smallest probability in a score.

A score is the logarithm of the probability that a number is within `WITHIN` standard deviations of the residuals. A
smaller probability than `IMPOSSIBLE` is replaced by `IMPOSSIBLE`.
"""
CLEAR: Final = 3.0
"""A residual counts as not cut off if its location is at least this many standard deviations from the bound."""
ENOUGH: Final = 100


@dataclass(frozen=True)
class Draft:
    """The description of a world without its graphs and noise. `stem`: first part of the names of its files."""

    stem: str
    features: tuple[FeatureSpec, ...]
    inputs: tuple[WorldNumber, ...]
    actions: tuple[str, ...]
    labels: dict[str, str]

    @property
    def widths(self) -> dict[str, int]:
        """Return the widths of the inputs of a graph."""
        return {"x": len(self.features), "a": len(self.actions), "w": len(self.inputs)}

    @property
    def bounds(self) -> tuple[Floats, Floats]:
        """Return the lower and the upper ends of the features' ranges, [f] each."""
        return np.array([each.low for each in self.features]), np.array([each.high for each in self.features])


@dataclass(frozen=True)
class Parts:
    """Steps for fitting, for choosing, and for checking the chosen world. Each part consists of whole episodes."""

    fit: RecordedSteps
    choice: RecordedSteps
    check: RecordedSteps


class Form(NamedTuple):
    """How location and scale are fitted. `varying`: the scale is fitted like the location; otherwise it is constant."""

    kind: FitKind
    varying: bool

    def __str__(self) -> str:
        """Return the name of the form."""
        return f"{self.kind}, {'varying' if self.varying else 'constant'} scale"


@dataclass(frozen=True, eq=False)
class Candidate:
    """A candidate world. `files`: the content of each file of its manifest. `form`: None for the baseline."""

    form: Form | None
    manifest: WorldManifest
    files: dict[str, bytes]

    @cached_property
    def world(self) -> LocationScale:
        """The world that the manifest describes."""
        return LocationScale(self.manifest, lambda file: self.files[file.file], self.manifest.version)

    @property
    def name(self) -> str:
        """Return the candidate's name in comparisons."""
        return str(self.form or "last value")

    @property
    def text(self) -> str:
        """Return the manifest as YAML."""
        content = {"kind": "world", **self.manifest.model_dump(mode="json", exclude_defaults=True)}
        return yaml.safe_dump(content, sort_keys=False, default_flow_style=None, width=120)


@dataclass(frozen=True)
class Score:
    """Mean score of a candidate.

    `difference`, `error`: difference from the chosen candidate's score, and standard error of this difference.
    """

    name: str
    value: float
    difference: float
    error: float
    taken: bool


def split(steps: RecordedSteps, seed: int, first: Ints | None = None) -> Parts:
    """Return three parts of whole episodes. Those for choosing and checking have a fifth each, and at least two.

    `first`: the episodes of the part for checking; without them, it gets a fifth of all episodes.
    """
    episodes = np.random.default_rng(seed).permutation(np.unique(steps.episode))
    held = max(2, len(episodes) // 5)
    check = held
    if first is not None:
        episodes = np.roll(episodes[np.argsort(~np.isin(episodes, first), kind="stable")], held)
        check = min(max(2, len(first)), len(episodes) - 2 * held)
    parts = episodes[held + check :], episodes[:held], episodes[held : held + check]
    return Parts(*(steps[np.isin(steps.episode, each)] for each in parts))


def candidates(draft: Draft, parts: Parts, seed: int) -> list[Candidate]:
    """Return worlds of each kind of location, with a constant and with a fitted scale; the simplest come first."""
    found, wanted = [], _wanted(draft, parts.fit, seed)
    for kind in KINDS:
        location = fitted(kind, parts.fit.given, wanted, seed)
        found += [_scaled(Form(kind, varying), draft, parts, location, seed) for varying in (False, True)]
    return found


def refitted(form: Form, draft: Draft, parts: Parts, seed: int) -> Candidate:
    """Return the world of this form, fitted to these parts."""
    location = fitted(form.kind, parts.fit.given, _wanted(draft, parts.fit, seed), seed)
    return _scaled(form, draft, parts, location, seed)


def unchanged(draft: Draft, parts: Parts) -> Candidate:
    """Return the baseline: the next state is the present state plus noise of constant scale."""
    return _candidate(None, draft, parts.choice, _Unchanged(len(draft.features)), None)


def chosen(worlds: Sequence[Candidate], parts: Parts) -> tuple[Candidate, list[Score]]:
    """Return the best world, and the scores of all.

    A later world replaces an earlier one only if it is better by more than one standard error.
    """
    within = tolerances(worlds, parts.choice)
    found = [scores(each, parts.choice, within).sum(axis=1) for each in worlds]
    best = 0
    for n in range(1, len(worlds)):
        gain, error = per_episode(found[n] - found[best], parts.choice)
        best = n if gain > error else best
    return worlds[best], [
        Score(each.name, float(found[n].mean()), *per_episode(found[n] - found[best], parts.choice), taken=n == best)
        for n, each in enumerate(worlds)
    ]


def scores(candidate: Candidate, steps: RecordedSteps, within: Floats) -> Floats:
    """Return log P(next number within `within` of the recorded one), [n, f]; higher is better."""
    low, high = candidate.world.intervals(steps.x, steps.a, steps.x_next, steps.w, within)
    return np.asarray(np.log(np.maximum(high - low, IMPOSSIBLE)))


def per_episode(values: Floats, steps: RecordedSteps) -> tuple[float, float]:
    """Return the mean of values [n], and its standard error with episodes as independent units."""
    number = np.unique(steps.episode, return_inverse=True)[1]
    mean = float(values.mean())
    apart = np.bincount(number, weights=values - mean)
    count = len(apart)
    return mean, float(np.sqrt((apart**2).sum() * count / max(count - 1, 1)) / len(values))


def tolerances(worlds: Sequence[Candidate], steps: RecordedSteps) -> Floats:
    """Return the tolerance of each feature, [f]: `WITHIN` standard deviations of the residuals of the best location."""
    left = [(steps.x_next - each.world.located(steps.x, steps.a, steps.w)[0]).std(axis=0) for each in worlds]
    return np.asarray(WITHIN * np.maximum(np.min(left, axis=0), SMALLEST * steps.x.std(axis=0)))


class _Unchanged:
    def __init__(self, features: int) -> None:
        self._features = features

    def predict(self, given: Floats) -> Floats:
        return np.asarray(given[:, : self._features])

    def write(self, graph: GraphWriter) -> str:
        return graph.node("Identity", "x")


def _wanted(draft: Draft, steps: RecordedSteps, seed: int) -> Floats:
    """Return the targets for the fits of locations, [n, f]: the next state, with expectations for cut-off numbers."""
    given, wanted, unsure = steps.given, steps.x_next, np.zeros(steps.x.shape)
    cut = _cut(draft, steps)
    for _ in range(PASSES if cut.any() else 0):
        mean = fitted("linear", given, wanted, seed).predict(given)
        spread = np.sqrt(((wanted - mean) ** 2 + unsure).mean(axis=0)) + np.finfo(np.float64).tiny
        wanted, unsure = _uncut(draft, steps, mean, spread)
    return wanted


def _cut(draft: Draft, steps: RecordedSteps) -> Bools:
    """Return for each number of the next state whether it lies at an end of its range, [n, f]."""
    low, high = draft.bounds
    return np.asarray((steps.x_next == low) | (steps.x_next == high))


def _uncut(draft: Draft, steps: RecordedSteps, mean: Floats, spread: Floats) -> tuple[Floats, Floats]:
    """Return expectation and variance [n, f] of the numbers before they were cut off, under normal noise."""
    cut, side = _cut(draft, steps), np.where(steps.x_next == draft.bounds[1], 1.0, -1.0)
    beyond = np.clip(side * (steps.x_next - mean) / spread, -30.0, 30.0)
    ratio = np.exp(-(beyond**2) / 2) / np.sqrt(2 * np.pi) / ndtr(-beyond)
    variance = spread**2 * (1 + beyond * ratio - ratio**2)
    return np.where(cut, mean + side * spread * ratio, steps.x_next), np.where(cut, np.maximum(variance, 0.0), 0.0)


def _scale(kind: FitKind, draft: Draft, steps: RecordedSteps, location: Fit, seed: int) -> tuple[Fit, Floats]:
    """Return the fit of the logarithm of the absolute residual, and the range [2, f] of its values."""
    left = np.abs(steps.x_next - location.predict(steps.given))
    usual = left.mean(axis=0) + np.finfo(np.float64).tiny
    kept = ~_cut(draft, steps).any(axis=1)
    kept = kept if kept.sum() >= ENOUGH else np.ones(len(steps), np.bool_)
    given = steps.given[kept]
    fit = fitted(kind, given, np.log(np.maximum(left[kept], usual / 20)), seed)
    values = fit.predict(given)
    return fit, np.array([values.min(axis=0), values.max(axis=0)])


def _scaled(form: Form, draft: Draft, parts: Parts, location: Fit, seed: int) -> Candidate:
    """Return the world with this location and a scale of this form."""
    scale = _scale(form.kind, draft, parts.fit, location, seed) if form.varying else None
    return _candidate(form, draft, parts.choice, location, scale)


def _candidate(
    form: Form | None, draft: Draft, steps: RecordedSteps, location: Fit, scale: tuple[Fit, Floats] | None
) -> Candidate:
    """Return the world with this location and scale (None: constant). The residuals in `steps` are its noise."""
    width = len(draft.features)
    graph = GraphWriter(draft.widths)
    files = {f"{draft.stem}.location.onnx": graph.content(location.write(graph), width)}
    left = steps.x_next - location.predict(steps.given)
    clear = _clear(draft, steps, left)
    least = SMALLEST * steps.x.std(axis=0) + np.finfo(np.float64).tiny
    constant = np.maximum(left.std(axis=0, where=clear), least)
    if scale is not None:
        fit, (low, high) = scale
        graph = GraphWriter(draft.widths)
        held = graph.node("Min", graph.node("Max", fit.write(graph), np.maximum(low, np.log(least))), high)
        files[f"{draft.stem}.scale.onnx"] = graph.content(graph.node("Exp", held), width)
    pinned = [File(file=file, sha256=sha256(content).hexdigest()) for file, content in files.items()]
    digest = sha256("".join(each.sha256 for each in pinned).encode()).hexdigest()
    bare = WorldManifest(
        kind="world",
        version=f"{draft.stem} {digest[:12]}",
        features=draft.features,
        actions=draft.actions,
        inputs=draft.inputs,
        location=pinned[0],
        scale=tuple(constant.tolist()) if scale is None else pinned[1],
        labels=draft.labels,
        learned=True,
    )
    at, by = Candidate(form, bare, files).world.located(steps.x, steps.a, steps.w)
    noise = {
        each.name: _noise(((steps.x_next - at) / by)[clear[:, n], n], by[clear[:, n], n], each, width)
        for n, each in enumerate(draft.features)
    }
    return Candidate(form, bare.model_copy(update={"noise": noise}), files)


def _clear(draft: Draft, steps: RecordedSteps, left: Floats) -> Bools:
    """Return for each residual [n, f] whether it is complete: no bound cuts off this residual or its negative."""
    kept = ~_cut(draft, steps)
    kept[:, ~kept.any(axis=0)] = True
    low, high = draft.bounds
    reach, location = CLEAR * left.std(axis=0, where=kept), steps.x_next - left
    far = kept & (location - reach > low) & (location + reach < high)
    return np.where(far.sum(axis=0) >= ENOUGH, far, kept)


def _noise(residuals: Floats, scale: Floats, spec: FeatureSpec, features: int) -> Noise:
    """Return the distribution of scaled residuals as quantiles.

    Smoothing and rounding widen the distribution. The quantiles are therefore shrunk, so that the variance stays the
    same (Silverman 1986, Section 6.4). Rounding has the variance 1/12 (Sheppard).
    """
    variance = float(residuals.var())
    bandwidth = 0.9 * max(float(np.sqrt(variance)), SMALLEST) * len(residuals) ** -0.2
    added = bandwidth**2 + (float((scale**-2.0).mean()) / 12 if spec.whole else 0.0)
    shrunk = np.sqrt(max(1.0 - added / variance, 0.01)) if variance > 0.0 else 1.0
    count = min(RESIDUALS, ALL_RESIDUALS // features, len(residuals))
    centre = residuals.mean()
    quantiles = centre + shrunk * (np.quantile(residuals, np.linspace(0, 1, max(count, 2))) - centre)
    return Noise(residuals=tuple(float(f"{each:.6g}") for each in quantiles), bandwidth=float(f"{bandwidth:.6g}"))


def with_recorded_actions(world: Candidate, draft: Draft, parts: Parts) -> Candidate:
    """Return the world with the ranges in which each action was recorded, in the steps for fitting and choosing."""
    names = [each.name for each in (*draft.features, *draft.inputs)]
    a, x, w = (np.concatenate([getattr(part, name) for part in (parts.fit, parts.choice)]) for name in ("a", "x", "w"))
    found = recorded_actions(names, draft.actions, a, np.concatenate([x, w], axis=1))
    return replace(world, manifest=world.manifest.model_copy(update={"recorded": found}))


def with_recorded_inputs(world: Candidate, draft: Draft, parts: Parts) -> Candidate:
    """Return the world with the inputs of the steps used to fit or choose it, without the steps that check it."""
    if not draft.inputs:
        return world
    learned_from = parts.fit, parts.choice
    paths, rows = (np.concatenate([getattr(each, name) for each in learned_from]) for name in ("path", "w"))
    order = np.argsort(paths, kind="stable")[:MOST_RECORDED]
    lines = [",".join([EPISODE, *(each.name for each in draft.inputs)])]
    numbers = np.unique(paths[order], return_inverse=True)[1]
    for number, row in zip(numbers.tolist(), rows[order].tolist(), strict=True):
        lines.append(",".join([str(number), *map(repr, row)]))
    content, name = "\n".join([*lines, ""]).encode(), f"{draft.stem}.inputs.csv"
    pinned = File(file=name, sha256=sha256(content).hexdigest())
    manifest = world.manifest.model_copy(update={"recorded_inputs": pinned})
    return replace(world, manifest=manifest, files={**world.files, name: content})


def with_fits(world: Candidate, draft: Draft, parts: Parts, seed: int, count: int) -> Candidate:
    """Return the world with `count` fits of its form to episodes drawn with replacement (Efron 1979).

    The episodes for the fit and the episodes for the noise are resampled separately, and each sample has as many
    episodes as the original. Each fit has its own manifest, in a folder beside the manifest of the world.
    """
    assert world.form is not None
    rng, files, pinned = np.random.default_rng((seed, 1)), dict(world.files), []
    for number in range(1, count + 1):
        own = replace(draft, stem=f"{draft.stem}.fit{number}")
        again = Parts(_resampled(parts.fit, rng), _resampled(parts.choice, rng), parts.check)
        fit = refitted(world.form, own, again, seed + number)
        content = fit.text.encode()
        names = {**fit.files, f"{own.stem}.yaml": content}
        files |= {f"{draft.stem}.fits/{name}": each for name, each in names.items()}
        pinned.append(File(file=f"{draft.stem}.fits/{own.stem}.yaml", sha256=sha256(content).hexdigest()))
    return replace(world, manifest=world.manifest.model_copy(update={"fits": tuple(pinned)}), files=files)


def _resampled(steps: RecordedSteps, rng: np.random.Generator) -> RecordedSteps:
    """Return the same number of paths, drawn with replacement."""
    paths = list(steps.by_path().values())
    return steps[np.concatenate([paths[n] for n in rng.choice(len(paths), len(paths))])]
