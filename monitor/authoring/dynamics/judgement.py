"""Checks of a learned world on episodes that were not used to fit or to choose the world."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from scipy.spatial import cKDTree
from scipy.special import erfc, kolmogorov

from monitor.arrays import AnyArray, Floats, Ints
from monitor.authoring.dynamics.learned_world import Candidate, Parts, per_episode, scores, tolerances
from monitor.authoring.dynamics.steps import RecordedSteps
from monitor.worlds.location_scale import LocationScale

LEVEL: Final = 0.001
"""Significance level of each kind of test, for all features together."""
NOISE_APART: Final = 0.05
FORECAST_APART: Final = 0.1
RELATED: Final = 0.1
"""Significant correlations count only above this size. Significant distances from the uniform distribution count only
above `NOISE_APART` or `FORECAST_APART`."""
HORIZON: Final = 10
DRAWS: Final = 200
FORECASTS: Final = 500
"""Largest number of forecasts. They are drawn at random from all forecasts."""
COVERED: Final = 0.8
NEIGHBOURS: Final = 5
"""A forecast draws its action from the recorded steps with the nearest states and inputs. This is their number."""
MEMORY: Final = 50_000
IMPOSSIBLE: Final = 0.001
LEAST_STEPS: Final = 100
LEAST_TAKEN: Final = 30
BINS: Final = 10


class TestResult(NamedTuple):
    """Result of a test: `size`, a difference from the correct value or a correlation, and `chance`, its p-value."""

    size: float
    chance: float

    def fails(self, least: float, level: float) -> bool:
        """Return whether the size is larger than `least` and significant at `level`."""
        return abs(self.size) > least and self.chance < level


@dataclass(frozen=True)
class ForecastCheck:
    """Checks of the forecasts of one number, a feature or a resampled input.

    Each forecast is of the number at the last of `HORIZON` steps.

    Attributes:
        name: name of the number.
        covered: fraction of the outcomes that lie in the central interval of their forecast's draws. This interval has
            the fraction `COVERED` of the draws.
        forecast: test whether the ranks of the outcomes among the draws are uniform.
        problems: reasons why the forecasts are not good enough.
    """

    name: str
    covered: float
    forecast: TestResult
    problems: tuple[str, ...]


@dataclass(frozen=True)
class FeatureCheck(ForecastCheck):
    """Checks of a feature. Its forecasts are of the state after `HORIZON` steps.

    Attributes:
        score, baseline: mean score of the world and of the baseline.
        histogram: fractions of the noise, as inferred from the steps, in `BINS` equal parts of (0, 1).
        uniform: distance of this noise from the uniform distribution.
        related: correlation of this noise with the noise of the previous step.
    """

    score: float
    baseline: float
    histogram: tuple[float, ...]
    uniform: TestResult
    related: TestResult


@dataclass(frozen=True)
class Judgement:
    """Checks of a world.

    `steps`, `paths`, `forecasts`: numbers of steps, paths and forecasts in the checks. `gain`: score of the world minus
    the score of the baseline, and its standard error. `problems`: reasons why the world is not good enough; empty if
    the world is good enough.
    """

    features: tuple[FeatureCheck, ...]
    inputs: tuple[ForecastCheck, ...]
    steps: int
    paths: int
    forecasts: int
    gain: tuple[float, float]
    problems: tuple[str, ...]


def judged(world: Candidate, baseline: Candidate, parts: Parts, seed: int) -> Judgement:
    """Return the checks of a world."""
    steps, rng = parts.check, np.random.default_rng(seed)
    within = tolerances([world], parts.choice)
    own, other = (scores(each, steps, within) for each in (world, baseline))
    gain = per_episode((own - other).sum(axis=1), steps)
    low, high = world.world.intervals(steps.x, steps.a, steps.x_next, steps.w)
    impossible = float(((low >= 1.0) | (high <= 0.0)).any(axis=1).mean())
    noise = low + (high - low) * rng.uniform(size=low.shape)
    windows = _windows(steps.linked, rng)
    ranks = _forecast_ranks(world.world, parts, windows, rng)
    problems = [*_too_few(parts)]
    if gain[0] <= 2 * gain[1]:
        problems.append("it predicts the next state no better than the last state does, with noise of constant scale")
    if impossible > IMPOSSIBLE:
        problems.append(f"{impossible:.2%} of held-out steps are practically impossible in it")
    features = []
    for n, each in enumerate(world.world.features):
        tests = (
            _from_uniform(noise[:, n], len(parts.choice)),
            _correlation(noise[:, n], steps.linked),
            _from_uniform(ranks[:, n]),
        )
        features.append(
            FeatureCheck(
                name=each.name,
                score=float(own[:, n].mean()),
                baseline=float(other[:, n].mean()),
                histogram=tuple((np.histogram(noise[:, n], BINS, (0.0, 1.0))[0] / len(steps)).tolist()),
                uniform=tests[0],
                related=tests[1],
                covered=_covered(ranks[:, n]),
                forecast=tests[2],
                problems=tuple(_problems(each.name, *tests, LEVEL / noise.shape[1])),
            )
        )
    inputs = _input_checks(world.world, steps, windows, rng)
    problems += [problem for each in (*features, *inputs) for problem in each.problems]
    paths = len(np.unique(steps.path))
    return Judgement(tuple(features), inputs, len(steps), paths, len(ranks), gain, tuple(problems))


def _too_few(parts: Parts) -> Iterator[str]:
    """Yield a sentence for each action with too few recorded steps, and one if there are too few held-out steps."""
    for name, count in zip(parts.fit.actions, np.bincount(parts.fit.a, minlength=len(parts.fit.actions)), strict=True):
        if count < LEAST_TAKEN:
            yield f"action {name!r} was taken in {count} steps only of those that were learned from; record more"
    if len(parts.check) < LEAST_STEPS:
        yield f"{len(parts.check)} held-out steps are too few to judge it; record more"


def _input_checks(
    world: LocationScale, steps: RecordedSteps, windows: Ints, rng: np.random.Generator
) -> tuple[ForecastCheck, ...]:
    """Return the checks of resampled inputs. The input of a window's last step is forecast from its first step."""
    if world.resample is None or not len(windows):
        return ()
    first, last = steps.w[windows[:, 0]], steps.w[windows[:, -1]]
    drawn = np.array([world.resample(w, HORIZON - 1, rng.uniform(1e-9, 1 - 1e-9, DRAWS)) for w in first])
    ranks = _ranks(drawn, last, rng)
    found = []
    for n, each in enumerate(world.inputs):
        test = _from_uniform(ranks[:, n])
        fails = test.fails(FORECAST_APART, LEVEL / len(world.inputs))
        problem = f"{each.name}: inputs resampled for {HORIZON - 1} steps ahead are miscalibrated; add inputs that say "
        problem += "what they depend on, such as the time of day"
        found.append(ForecastCheck(each.name, _covered(ranks[:, n]), test, (problem,) if fails else ()))
    return tuple(found)


def _covered(ranks: Floats) -> float:
    """Return the fraction of ranks in the middle `COVERED`."""
    return float((np.abs(ranks - 0.5) <= COVERED / 2).mean()) if len(ranks) else float("nan")


def _ranks(drawn: Floats, seen: Floats, rng: np.random.Generator) -> Floats:
    """Return the ranks in (0, 1) of the outcomes [n, k] among the draws [n, DRAWS, k]. Ties are broken at random."""
    below, equal = ((compared(drawn, seen[:, np.newaxis])).sum(axis=1) for compared in (np.less, np.equal))
    return np.asarray((below + rng.uniform(size=below.shape) * (equal + 1)) / (DRAWS + 1))


def _problems(name: str, uniform: TestResult, related: TestResult, forecast: TestResult, level: float) -> Iterator[str]:
    if uniform.fails(NOISE_APART, level):
        yield f"{name}: its noise on held-out steps is not uniform: the distribution of its residuals changes"
    if related.fails(RELATED, level):
        yield (
            f"{name}: its noise is correlated with that of the step before ({related.size:+.2f}): something lasting is "
            "not among the columns; add what it depends on, such as the value before, as a feature or an input"
        )
    if forecast.fails(FORECAST_APART, level):
        yield f"{name}: forecasts of {HORIZON} steps are miscalibrated"


def _from_uniform(values: Floats, estimated: float = np.inf) -> TestResult:
    """Return the Kolmogorov-Smirnov distance from the uniform distribution, with its asymptotic p-value.

    `estimated`: if the values were made uniform by an estimated distribution, the number of values that it was
    estimated from. The test is then the two-sample test.
    """
    if not len(values):
        return TestResult(0.0, 1.0)
    ordered, count = np.sort(values), len(values)
    grid = np.arange(count + 1) / count
    apart = float(max((grid[1:] - ordered).max(), (ordered - grid[:-1]).max()))
    return TestResult(apart, float(kolmogorov(apart / np.sqrt(1 / count + 1 / estimated))))


def _correlation(values: Floats, path: Ints) -> TestResult:
    """Return the correlation of values with the previous value on the same path."""
    order = np.argsort(path, kind="stable")
    same = path[order][1:] == path[order][:-1]
    before, after = values[order][:-1][same], values[order][1:][same]
    if len(before) < 3 or not (before.std() and after.std()):
        return TestResult(0.0, 1.0)
    related = float(np.corrcoef(before, after)[0, 1])
    return TestResult(related, float(erfc(abs(related) * np.sqrt(len(before) / 2))))


def _forecast_ranks(world: LocationScale, parts: Parts, windows: Ints, rng: np.random.Generator) -> Floats:
    """Return the ranks, [n, f] in (0, 1), of the recorded states after `HORIZON` steps among draws of the world.

    The draws use the recorded inputs. They do not use the recorded actions of the same steps, because these actions
    reacted to the states that are forecast. Their actions are drawn from the recorded behaviour.
    """
    steps = parts.check
    low, high = (np.array([getattr(each, end) for each in world.features]) for end in ("low", "high"))
    behaviour = _Behaviour(parts.fit, rng)
    x = np.repeat(steps.x[windows[:, 0]], DRAWS, axis=0)
    a = np.repeat(steps.a[windows[:, 0]], DRAWS)
    for k in range(HORIZON):
        w = np.repeat(steps.w[windows[:, k]], DRAWS, axis=0)
        a = a if k == 0 else behaviour.actions(x, w)
        x = np.clip(world.step(x, a, rng.uniform(1e-9, 1 - 1e-9, x.shape), w), low, high) if len(x) else x
    return _ranks(x.reshape(len(windows), DRAWS, x.shape[1]), steps.x_next[windows[:, -1]], rng)


def _windows(path: Ints, rng: np.random.Generator) -> Ints:
    """Return windows that do not overlap, as the rows of `HORIZON` consecutive steps of one path, [n, HORIZON]."""
    order = np.argsort(path, kind="stable")
    starts = np.flatnonzero(np.diff(path[order], prepend=path[order][0] - 1 if len(path) else 0))
    ends = np.append(starts[1:], len(order))
    first = [np.arange(s, e - HORIZON + 1, HORIZON) for s, e in zip(starts, ends, strict=True)]
    at: AnyArray = np.concatenate(first) if first else np.zeros(0, np.int64)
    at = np.sort(rng.permutation(at)[:FORECASTS]).astype(np.int64)
    return np.asarray(order[at[:, np.newaxis] + np.arange(HORIZON)])


class _Behaviour:
    """Draws actions that were recorded at the nearest states and inputs; distances are in standard deviations."""

    def __init__(self, steps: RecordedSteps, rng: np.random.Generator) -> None:
        rows = rng.permutation(len(steps))[:MEMORY]
        seen = np.concatenate([steps.x, steps.w], axis=1)
        spread = seen.std(axis=0)
        self._spread = np.where(spread > 0.0, spread, 1.0)
        self._tree, self._actions, self._rng = cKDTree(seen[rows] / self._spread), steps.a[rows], rng

    def actions(self, x: Floats, w: Floats) -> Ints:
        nearest = self._tree.query(np.concatenate([x, w], axis=1) / self._spread, NEIGHBOURS)[1]
        return np.asarray(self._actions[nearest[np.arange(len(x)), self._rng.integers(0, NEIGHBOURS, len(x))]])
