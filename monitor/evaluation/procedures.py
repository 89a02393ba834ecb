"""Statistical procedures, by quantity (docs/semantics/streams.md, section 9).

Source: Kazemi & Paoletti, Appendix "Decision procedures".

A single query for `P` uses Wald's test, with thresholds a little further apart so that the test exceeds neither error
rate. A single query for `R` or `delta(..)` uses betting with an indifference region, because betting needs only the
range of a world's outcome. A query with `=?` uses a number of samples that is fixed in advance (Hoeffding).

A stream uses betting, because betting is valid at every number of samples. This test has no indifference region, so a
value that equals the bound (`P>=1` for a certain event) stays undecided.

With `sampling.test: paper`, exactly the paper's tests are used, also on a stream: Wald's test for `P`, and the
sequential t-test with the equal-outcome test for `R` and `delta(..)`. The error rates of the t-test hold for normal
samples. For other samples they are only nominal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, assert_never

import numpy as np

from monitor.arrays import Floats
from monitor.errors import ConfigError, ModelError
from monitor.logic import print_formula
from monitor.logic.syntax import Goal, Probability, Reward, Test
from monitor.statistics.anytime import ConfidenceSequence
from monitor.statistics.equal import EqualOutcome
from monitor.statistics.intervals import clopper_pearson, error_bound, sample_size
from monitor.statistics.region import RegionBets
from monitor.statistics.samples import SLACK
from monitor.statistics.sprt import Sprt
from monitor.statistics.strength import Strength
from monitor.statistics.threshold import ThresholdBets
from monitor.statistics.tsprt import TSprt
from monitor.types.specs import Sampling
from monitor.types.verdicts import Drawn

Draw = Callable[[range], Floats]
"""Function from the numbers of n particles to their outcomes [n]."""
Procedure = Sprt | TSprt | RegionBets | ThresholdBets

FIRST_BATCH, LARGEST_BATCH = 256, 1 << 14
DRAWS = 1024
"""Number of samples for a value that readers see. The standard error of a probability is then below 0.016."""
NESTED_DRAWS = FIRST_BATCH
"""Number of samples of a value of `handover`, each of which needs thousands of samples. The standard error is below
0.032."""
NESTED_LIMIT = 2_000
"""Maximum number of samples of `handover`, even if `sampling.limit` allows more. They take some seconds."""
SEQUENCE_BATCH = 1 << 12
"""Number of samples after which it is tested again whether an estimate is good enough."""


class Span(NamedTuple):
    """Range of an outcome of one world, or of the difference of two worlds."""

    lo: float
    hi: float


class SampledMean(NamedTuple):
    """Mean of samples, and an interval for the true mean, if there is one.

    `short`: the limit was reached before the interval was as narrow as requested.
    """

    mean: float
    samples: int
    bounds: tuple[float, float] | None
    short: bool = False


def span(goal: Goal, rewards: tuple[float, float] | None) -> Span | None:
    """Return the range of a goal's outcome; None for a reward in a model with unknown range of rewards."""
    match goal.measure:
        case Probability():
            one = Span(0.0, 1.0)
        case Reward(low, high):
            if rewards is None:
                return None
            terms = high - low + 1  # each term may be missing: a terminated episode earns nothing
            one = Span(terms * min(rewards[0], 0.0), terms * max(rewards[1], 0.0))
        case _:
            assert_never(goal.measure)
    return one if goal.world.baseline is None else Span(one.lo - one.hi, one.hi - one.lo)


def check_outcomes(goal: Goal, values: Floats, within: Span | None) -> None:
    """Raise an error if outcomes would make an interval unreliable.

    Raises:
        ModelError: a simulator's reward is not finite.
        ConfigError: an outcome lies outside what `sampling.rewards` allows.
    """
    if not (finite := np.isfinite(values)).all():
        found = values[~finite][0]
        raise ModelError(f"{print_formula(goal)}: the reward of a sample is {found}; it must be a finite number")
    if within is None:
        return
    slack = SLACK * (within.hi - within.lo)
    if values.min() < within.lo - slack or values.max() > within.hi + slack:
        raise ConfigError(
            f"{print_formula(goal)}: the rewards of samples are {values.min():.6g} to {values.max():.6g}, outside "
            f"[{within.lo:.6g}, {within.hi:.6g}]; sampling.rewards must hold the smallest and the largest of a step"
        )


def decided_by_range(test: Test, within: Span | None) -> bool | None:
    """Return whether value >= bound (or > bound) if the range alone decides the comparison, else None.

    Tests with `<=` and `<` are negations of tests with `>` and `>=`. The result is the truth value of the test with `>`
    or `>=`.
    """
    if within is None:
        return None
    strict = is_strict(test)
    if test.bound < within.lo or (test.bound == within.lo and not strict):
        return True
    if test.bound > within.hi or (test.bound == within.hi and strict):
        return False
    return None


def is_strict(test: Test) -> bool:
    """Return whether the test, or the test that it negates, is `>`."""
    return test.comparison in (">", "<=")


def decision(goal: Goal, strength: Strength, within: Span | None, drawn: Drawn) -> Procedure:
    """Return the test of value >= bound (or > bound).

    Raises ConfigError for a reward whose range is unknown, because betting needs it.
    """
    assert goal.test is not None
    theta, sampling, strict = goal.test.bound, drawn.sampling, is_strict(goal.test)
    effect = goal.world.baseline is not None
    betting = sampling.test == "betting"
    if isinstance(goal.measure, Probability) and not effect and not (betting and drawn.test):
        return Sprt(theta, sampling.delta, strength.guarded if betting else strength)
    if not betting:
        return TSprt(theta, sampling.deviation, strength, EqualOutcome(sampling.delta, strength), strict=strict)
    if within is None:
        raise ConfigError(
            f"{print_formula(goal)}: betting needs to know the rewards a step may bring, and the model does not say; "
            "give the smallest and the largest as sampling.rewards, or choose sampling.test 'paper', "
            "whose error rates are nominal"
        )
    if drawn.test:
        return ThresholdBets(theta, strength, within.lo, within.hi)
    return RegionBets(theta, sampling.delta * one_world(goal, within), strength, within.lo, within.hi, strict)


def one_world(goal: Goal, within: Span) -> float:
    """Return the width of the range of one world's outcome."""
    return (within.hi - within.lo) / (1.0 if goal.world.baseline is None else 2.0)


def decided(test: Procedure, draw: Draw, within: Span | None, sampling: Sampling) -> tuple[SampledMean, bool | None]:
    """Sample until the test decides or the limit is reached. Samples after the decision do not count."""
    drawn: list[Floats] = []
    count = look = 0
    for batch in _batches(sampling.limit):
        drawn.append(draw(batch))
        count += len(batch)
        if count < min(look, sampling.limit):
            continue
        samples = np.concatenate(drawn)
        used, side = test.decide(samples)
        if side:
            return summary(samples[:used], within, sampling), bool(side > 0)
        look = count + count // 8  # each look takes as long as all samples so far
    return summary(samples, within, sampling), None


def summary(samples: Floats, within: Span | None, sampling: Sampling) -> SampledMean:
    """Return the mean of samples with a confidence sequence, valid under any stopping rule."""
    if within is None or within.lo == within.hi:
        return SampledMean(_mean(samples, within), len(samples), within)
    ends = ConfidenceSequence(sampling.error_alpha, within.lo, within.hi).interval(samples)
    return SampledMean(_mean(samples, within), len(samples), ends)


def first_look(draw: Draw, within: Span | None, sampling: Sampling) -> SampledMean:
    """Return an estimate from few samples, for a quantity whose truth value needs no samples."""
    return summary(draw(range(min(FIRST_BATCH, sampling.limit))), within, sampling)


def estimate(goal: Goal, draw: Draw, within: Span | None, drawn: Drawn) -> SampledMean:
    """Estimate the value of a query with `=?`. If the limit is reached first, the interval is wider than requested."""
    sampling = drawn.sampling
    if within is None:
        raise ConfigError(
            f"{print_formula(goal)}: how many samples this takes depends on the rewards a step may bring, and the "
            "model does not say; give the smallest and the largest as sampling.rewards"
        )
    if within.lo == within.hi:
        return SampledMean(_mean(draw(range(1)), within), 1, within)
    if drawn.test:
        return _until_narrow(goal, draw, within, sampling)
    effect = goal.world.baseline is not None
    needed = sample_size(sampling.error, sampling.error_alpha, effect=effect)
    samples, short = min(needed, sampling.limit), needed > sampling.limit
    values = np.concatenate([draw(batch) for batch in _batches(samples)])
    mean = _mean(values, within)
    if isinstance(goal.measure, Probability) and not effect:
        return SampledMean(mean, samples, clopper_pearson(round(values.sum()), samples, sampling.error_alpha), short)
    half = error_bound(samples, sampling.error_alpha, within.hi - within.lo)
    return SampledMean(mean, samples, (max(mean - half, within.lo), min(mean + half, within.hi)), short)


def _until_narrow(goal: Goal, draw: Draw, within: Span, sampling: Sampling) -> SampledMean:
    """Sample until a confidence sequence is as narrow as requested."""
    enough = 2.0 * sampling.error * one_world(goal, within)
    samples = np.zeros(0)
    for batch in _batches(sampling.limit, SEQUENCE_BATCH):
        samples = np.concatenate([samples, draw(batch)])
        found = summary(samples, within, sampling)
        assert found.bounds is not None
        if found.bounds[1] - found.bounds[0] <= enough:
            return found
    return found._replace(short=True)


def _batches(limit: int, largest: int = LARGEST_BATCH) -> Iterator[range]:
    """Yield the particles 0 to limit - 1 in growing batches, so that few samples are wasted."""
    start, size = 0, FIRST_BATCH
    while start < limit:
        yield range(start, min(start + size, limit))
        start, size = start + size, min(2 * size, largest)


def _mean(values: Floats, within: Span | None) -> float:
    """Return the mean, exact if all values are equal, and clipped to the range."""
    mean = float(values[0]) if values.min() == values.max() else float(values.mean())
    return mean if within is None else min(max(mean, within.lo), within.hi)
