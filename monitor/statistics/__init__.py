"""Decisions from samples: sequential tests, sample sizes, intervals, and error rates over a stream.

Samples are arguments. Nothing here draws random numbers, reads a clock or knows formulas. A decision is True, False, or
None if the test is undecided after the given samples.

A sequential test has three methods: `start()`, `update(state, samples)`, and `decide(runs)` for many tests at once.
`update` stops at the sample that decides, however the samples are divided into batches. A state has `samples` and
`holds`.

Which test to use:

- a probability against a threshold: `Sprt`; a reward or an effect: `RegionBets`; Boolean combinations: `combine`;
- a number (`=?`): `sample_size` and the intervals;
- on a stream: `ConfidenceSequence` or `ThresholdBets` within a verdict, and `StreamRule` across verdicts.

`TSprt` with `EqualOutcome` is the paper's test of a reward or an effect. Its error rates are valid for normal samples
only.
"""

from monitor.statistics.alpha_spending import StreamRule, fraction
from monitor.statistics.anytime import ConfidenceSequence, ConfidenceState
from monitor.statistics.combine import Conjunction, Disjunction, Leaf, Negation, Tree, evaluate, iff, implies, strengths
from monitor.statistics.equal import EqualOutcome
from monitor.statistics.intervals import clopper_pearson, normal, normal_applies, student
from monitor.statistics.region import RegionBets, RegionBetsState
from monitor.statistics.sizes import error_bound, reward_width, sample_size
from monitor.statistics.sprt import Sprt, SprtState
from monitor.statistics.strength import Strength
from monitor.statistics.threshold import ThresholdBets, ThresholdBetsState
from monitor.statistics.tsprt import TSprt, TSprtState
from monitor.statistics.wald import acceptance, expected_samples

__all__ = [
    "ConfidenceSequence",
    "ConfidenceState",
    "Conjunction",
    "Disjunction",
    "EqualOutcome",
    "Leaf",
    "Negation",
    "RegionBets",
    "RegionBetsState",
    "Sprt",
    "SprtState",
    "StreamRule",
    "Strength",
    "TSprt",
    "TSprtState",
    "ThresholdBets",
    "ThresholdBetsState",
    "Tree",
    "acceptance",
    "clopper_pearson",
    "error_bound",
    "evaluate",
    "expected_samples",
    "fraction",
    "iff",
    "implies",
    "normal",
    "normal_applies",
    "reward_width",
    "sample_size",
    "strengths",
    "student",
]
