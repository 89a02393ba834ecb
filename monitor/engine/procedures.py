"""Which procedure answers which quantity (docs/semantics.md, section 9).

Source: Kazemi & Paoletti, Appendix "Decision procedures".

Asked alone: Wald's test for `P`, with lines a little further apart so that it exceeds neither rate; for `R` and
`delta(..)` betting with an indifference region, which needs the range of a world's outcome and nothing else; a number
of samples said in advance (Hoeffding) for `=?`. On a stream: betting too, right at every number of samples. It has no
indifference region: a value that is the bound itself (`P>=1` of what is certain) stays undecided there.

With `sampling.test: paper` the paper's tests.exact, on a stream as well: Wald's for `P`, the sequential t-test beside
the equal-outcome test for `R` and `delta(..)`. The rates of the t-test hold for normal samples and are nominal for
others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol, TypeVar, assert_never

import numpy as np

from monitor.arrays import Floats
from monitor.errors import ConfigError, ModelError
from monitor.logic import print_formula
from monitor.logic.syntax import Goal, Probability, Reward, Test
from monitor.statistics import (
    ConfidenceSequence,
    EqualOutcome,
    RegionBets,
    Sprt,
    Strength,
    ThresholdBets,
    TSprt,
    clopper_pearson,
    error_bound,
    sample_size,
)
from monitor.statistics.samples import SLACK
from monitor.types import Drawn, Sampling

__all__ = ["Draw", "Estimate", "Span", "check_outcomes", "decided", "decision", "estimate", "given", "settled", "span"]

Draw = Callable[[range], Floats]
"""Outcomes of the particles with these numbers."""
Decision = Sprt | TSprt | RegionBets | ThresholdBets

FIRST_BATCH, LARGEST_BATCH = 256, 1 << 14
FOLLOWED_BATCH = 1 << 12
"""After so many an estimate looks whether it is good enough."""


class Span(NamedTuple):
    """The range an outcome lies in: of one world, or of the difference of two."""

    lo: float
    hi: float


class Estimate(NamedTuple):
    """The mean of so many samples, and an interval for the true one, where there is one.

    `short`: the limit was reached before the interval was as narrow as asked.
    """

    mean: float
    samples: int
    bounds: tuple[float, float] | None
    short: bool = False


def span(goal: Goal, rewards: tuple[float, float] | None) -> Span | None:
    """The range of a goal's outcome; None: a reward in a model that does not say what a step may bring."""
    match goal.measure:
        case Probability():
            one = Span(0.0, 1.0)
        case Reward(low, high):
            if rewards is None:
                return None
            terms = high - low + 1  # each may be missing too: a terminated episode brings nothing
            one = Span(terms * min(rewards[0], 0.0), terms * max(rewards[1], 0.0))
        case _:
            assert_never(goal.measure)
    return one if goal.world.baseline is None else Span(one.lo - one.hi, one.hi - one.lo)


def check_outcomes(goal: Goal, values: Floats, within: Span | None) -> None:
    """Refuse outcomes that no interval can be relied on with.

    Raises:
        ModelError: a simulator's reward is no number.
        ConfigError: it lies outside `sampling.rewards`.
    """
    if not np.isfinite(values).all():
        raise ModelError(f"{print_formula(goal)}: a drawn world came to {values.sum()}; rewards must be finite numbers")
    if within is None:
        return
    slack = SLACK * (within.hi - within.lo)
    if values.min() < within.lo - slack or values.max() > within.hi + slack:
        raise ConfigError(
            f"{print_formula(goal)}: drawn worlds came to {values.min():.6g} to {values.max():.6g}, outside "
            f"[{within.lo:.6g}, {within.hi:.6g}]; sampling.rewards must hold the smallest and the largest of a step"
        )


def given(test: Test, within: Span | None) -> bool | None:
    """Whether value >= bound (or > bound) is settled by the range alone; None: it is not.

    Tests with `<=` and `<` are negations of those with `>` and `>=`, and this is about the latter.
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
    """Whether the test, or what it negates, is `>`."""
    return test.comparison in (">", "<=")


def decision(goal: Goal, strength: Strength, within: Span | None, drawn: Drawn) -> Decision:
    """Return the test of value >= bound (or > bound).

    Raises ConfigError for a reward whose range is not known, which betting needs.
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


def decided(test: Decision, draw: Draw, within: Span | None, sampling: Sampling) -> tuple[Estimate, bool | None]:
    """Draw until the test decides or the limit is reached; what was drawn beyond the decision does not count."""
    match test:  # each kind has walks of its own kind
        case Sprt():
            samples, holds = _walked(test.start(), test.update, draw, sampling.limit)
        case TSprt():
            samples, holds = _walked(test.start(), test.update, draw, sampling.limit)
        case RegionBets():
            samples, holds = _walked(test.start(), test.update, draw, sampling.limit)
        case ThresholdBets():
            samples, holds = _walked(test.start(), test.update, draw, sampling.limit)
        case _:
            assert_never(test)
    return summary(samples, within, sampling), holds


def summary(samples: Floats, within: Span | None, sampling: Sampling) -> Estimate:
    """What samples say of their mean, whatever rule they were stopped by."""
    if within is None or within.lo == within.hi:
        return Estimate(_mean(samples, within), len(samples), within)
    ends = ConfidenceSequence(sampling.error_alpha, within.lo, within.hi).interval(samples)
    return Estimate(_mean(samples, within), len(samples), ends)


def settled(draw: Draw, within: Span | None, sampling: Sampling) -> Estimate:
    """A look at a quantity whose truth needs no samples."""
    return summary(draw(range(min(FIRST_BATCH, sampling.limit))), within, sampling)


def estimate(goal: Goal, draw: Draw, within: Span | None, drawn: Drawn) -> Estimate:
    """What a `=?` comes to. Where the limit leaves the interval wider than asked, it is reported as wide as it is."""
    sampling = drawn.sampling
    if within is None:
        raise ConfigError(
            f"{print_formula(goal)}: how many samples this takes depends on the rewards a step may bring, and the "
            "model does not tell; give the smallest and the largest as sampling.rewards"
        )
    if within.lo == within.hi:
        return Estimate(_mean(draw(range(1)), within), 1, within)
    if drawn.test:
        return _followed(goal, draw, within, sampling)
    effect = goal.world.baseline is not None
    needed = sample_size(sampling.error, sampling.error_alpha, effect=effect)
    samples, short = min(needed, sampling.limit), needed > sampling.limit
    values = np.concatenate([draw(batch) for batch in _batches(samples)])
    mean = _mean(values, within)
    if isinstance(goal.measure, Probability) and not effect:
        return Estimate(mean, samples, clopper_pearson(round(values.sum()), samples, sampling.error_alpha), short)
    half = error_bound(samples, sampling.error_alpha, within.hi - within.lo)
    return Estimate(mean, samples, (max(mean - half, within.lo), min(mean + half, within.hi)), short)


def _followed(goal: Goal, draw: Draw, within: Span, sampling: Sampling) -> Estimate:
    """Until a confidence sequence is as narrow as asked."""
    enough = 2.0 * sampling.error * one_world(goal, within)
    seen = np.zeros(0)
    for batch in _batches(sampling.limit, FOLLOWED_BATCH):
        seen = np.concatenate([seen, draw(batch)])
        found = summary(seen, within, sampling)
        assert found.bounds is not None
        if found.bounds[1] - found.bounds[0] <= enough:
            return found
    return found._replace(short=True)


class _Walk(Protocol):
    @property
    def samples(self) -> int: ...

    @property
    def holds(self) -> bool | None: ...


W = TypeVar("W", bound=_Walk)


def _walked(walk: W, update: Callable[[W, Floats], W], draw: Draw, limit: int) -> tuple[Floats, bool | None]:
    """The samples a test took, and its decision."""
    taken: list[Floats] = []
    for batch in _batches(limit):
        values, before = draw(batch), walk.samples
        walk = update(walk, values)
        taken.append(values[: walk.samples - before])
        if walk.holds is not None:
            break
    return np.concatenate(taken), walk.holds


def _batches(limit: int, largest: int = LARGEST_BATCH) -> Iterator[range]:
    """Particles 0 to limit - 1, in batches that grow: few are drawn in vain, and many at once where many are needed."""
    start, size = 0, FIRST_BATCH
    while start < limit:
        yield range(start, min(start + size, limit))
        start, size = start + size, min(2 * size, largest)


def _mean(values: Floats, within: Span | None) -> float:
    """The mean; of the only value there is that value itself, whatever rounding a sum brings. Never out of range."""
    mean = float(values[0]) if values.min() == values.max() else float(values.mean())
    return mean if within is None else min(max(mean, within.lo), within.hi)
