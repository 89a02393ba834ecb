"""Answer to a formula on a path, and its parts: quantities, bands, recourse, and the settings of samples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from monitor.types.specs import CausalModel, Sampling
from monitor.types.stream_events import State

Band = tuple[float, float]
"""Lower and upper end of an interval of values."""

Outcome = Literal["safe", "regret", "unavoidable", "undecided"]

Avoidable = Literal["foresight", "hindsight", "no"]
"""Whether a missed goal could have been met from the intervention on. `foresight`: by the policy that is best without
knowledge of the observations; `hindsight`: only with this knowledge; `no`: by no decisions.
"""

Tier = Literal["recorded", "point", "interval", "posterior", "learned"]
"""What is known of the noise of a step in a world with numbers. `recorded`: a part of the noise was recorded as inputs.
`point`: all of the noise is known. `interval`: bounds of each component are known. `posterior`: the noise can only be
drawn. `learned`: the noise belongs to a world that was estimated from data.
"""

ProfileExtremes = tuple[tuple[float, float, float, float], ...]
"""For each offset from 0 on: least and greatest value under nominal, then least and greatest under the alternative."""

NO_EXTREMES: Final = "no extremes"
"""First words of `Bands.reason` for a quantity of unknown value that has no least and greatest value."""

UNRECORDED: Final = "what was never recorded decides it"
"""Reason of an undecided verdict of the exact engine, if more recordings could decide the verdict."""

UNEXAMINED: Final = "other decisions are examined only where the state is seen and policies remember nothing"
"""Reason of an unknown recourse if states are hidden or policies have a memory."""

NO_NETWORKS: Final = "no credible band: each drawn model would need its own memories of a recurrent network"
NO_USES: Final = "no support: where states are hidden, or policies remember, uses of rows are not counted"
NOT_FROM_START: Final = (
    "no credible band: the path does not begin with the episode, and the belief before it is another one on each drawn "
    "model; let path.window hold a whole episode"
)
"""Parts of `Bands.reason` on learned models with hidden states, or with policies that remember."""

MOST_BELIEVED: Final = 5
"""Largest number of states that the belief in a verdict lists."""

BELIEF_DIGITS: Final = 9
"""Decimals by which the likeliest states are ordered, so that rounding does not decide between equally likely
states."""


class RestsOn(msgspec.Struct, frozen=True, gc=False):
    """Recordings on which a value on a learned model rests, in the value's own world."""

    steps: int
    """Number of recorded steps of the pairs (state, action) that the value uses; in a world with numbers: number of
    steps that the world was learned from.
    """
    rare: float | None
    """Fraction of the value's expected uses of pairs that are uses of pairs recorded fewer than 5 times; `null` in a
    world with numbers.
    """
    never: float
    """Probability that a pair that was never recorded is reached while the value is still open. In a world with
    numbers: fraction of draws that take an action outside the range in which this action was recorded.
    """


class Quantity(msgspec.Struct, frozen=True, gc=False):  # no cycles: the garbage collector need not look at it
    """One probability or expected reward of a formula (outside all brackets), and how it was computed."""

    text: str
    """The quantity in the formula language."""
    value: float
    """Value under the Gumbel-Max causal model; if sampled, the mean of the samples."""
    offset: int
    """Offset that was used, in the convention of the formula (`@5`, `@-1`)."""
    clipped: bool
    """True if the path of n pairs is too short for the formula's offset, which was then clipped to [-(n-1), n-1]."""
    bounds: Band | None = None
    """Smallest and largest value over the class of causal models; if sampled, a confidence interval at the level
    `confidence`.
    """
    threshold: float | None = None
    """Bound with which the value is compared; `null` for `=?`."""
    holds: bool | None = None
    """True if the comparison holds. `null` for `=?`, if samples left the comparison undecided, or if the comparison
    holds at only one of the `extremes`.
    """
    robust: bool | None = None
    """True if no causal model of the class changes `holds`; if there is a guaranteed band, true if no model in the band
    changes it. `null` without bounds.
    """
    samples: int = 0
    """Number of samples; left out of an exact answer."""
    confidence: float | None = None
    """Level of the confidence interval, in (0, 1); left out of an exact answer."""
    credible: Band | None = None
    """On a learned model: band of the Gumbel-Max value over models drawn from the posterior, at the level in the
    verdict's `bands`. At the lower end everything that was never observed is as bad as possible; at the upper end it is
    as good as possible. In a learned world with numbers: band of the value over the fits. Left out otherwise.
    """
    guaranteed: Band | None = None
    """On a learned model: bounds over every causal model and every row in the confidence set; left out otherwise."""
    extremes: Band | None = None
    """On a learned model with pairs (state, action) that were never recorded: the value with the worst outcomes of
    these pairs, and the value with the best outcomes; all other rows are as estimated. Left out otherwise.
    """
    support: int | None = None
    """On a learned model: smallest number of visits among the rows that contribute 90 % of the answer. Left out
    otherwise."""
    rests_on: RestsOn | None = None
    """On a learned model: recordings on which the value rests; for a difference of two worlds, on which the first
    world's value rests. In a world with numbers: recordings behind the value of handing over now, for `handover(...)`
    and if the goal is missed. Left out otherwise.
    """


class Drawn(msgspec.Struct, frozen=True):
    """Settings and seed of a sampled verdict. With these and the path, the samples can be drawn again."""

    sampling: Sampling
    """The settings `sampling` of the configuration, with three more. `delta`: half-width of the indifference region
    around a threshold, as a fraction of the range of a world's outcome. `deviation`: the same for `R` and `delta(..)`
    with the test `paper`, in standard deviations of a sample. `rewards`: smallest and largest reward of a step.
    """
    seed: int
    """Seed of this verdict's noise."""
    first: int
    """The seq of the first step of the path."""
    alpha: float
    """Probability of a false alarm allowed for the whole formula."""
    beta: float
    """Probability of a miss allowed for the whole formula."""
    test: int = 0
    """Number of the test in its stream, from 1; 0: not on a stream."""


class Bands(msgspec.Struct, frozen=True):
    """Settings of the bands of a learned model. With these and the path, the bands can be computed again."""

    draws: int = 0
    """Number of posterior models for the credible band; 0 if no band was requested, and in a world with numbers."""
    seed: int = 0
    """Seed of these models."""
    level: float | None = None
    """Level of the credible band, in (0, 1); `null` if no band was requested. In a world with numbers it is lower than
    configured if there are too few fits for the configured level.
    """
    delta: float | None = None
    """Probability that the guaranteed band fails, for all answers together; `null` without a guaranteed band."""
    reason: str = ""
    """Why a band or the support is missing, or why some fits give no answer; empty if nothing is missing."""
    fits: int = 0
    """In a learned world with numbers: number of fits to resampled recordings that give the credible band."""
    doubt: str = ""
    """`bands.doubt` of the configuration: reason to doubt the model when it says that handing over now does not help;
    otherwise empty."""


class Changes(msgspec.Struct, frozen=True):
    """The fewest changed decisions that meet a missed goal, and the first of these decisions.

    The decisions are chosen in hindsight, with the noise inferred from the observed path.
    """

    count: int
    """Number of changed decisions; all others are unchanged."""
    value: float
    """Value with these changes."""
    offset: int
    """Offset of the first changed decision: number of steps before the newest step; 0: the newest step."""
    state: State
    """State in which the decision was made."""
    taken: int | None
    """Action that was taken; `null` if no action has been taken yet."""
    proposed: int
    """Action that meets the goal instead."""
    taken_name: str = ""
    """Name of the taken action in the model; empty if actions have no names."""
    proposed_name: str = ""
    """Name of the proposed action in the model; empty if actions have no names."""
    samples: int = 0
    """Number of draws whose mean is the value; left out if the value is exact."""


class Recourse(msgspec.Struct, frozen=True):
    """Whether other decisions, from the intervention on, could have met a missed goal.

    The values are exact under the Gumbel-Max causal model. The exception is a world with numbers, where noise may be
    drawn and only one changed decision at a time is tried. See docs/semantics/decisions.md, section 14.3.
    """

    avoidable: Avoidable | None = None
    """`foresight`: the policy that is best without hindsight meets the goal. `hindsight`: only the best decisions in
    hindsight meet the goal. `no`: no decisions meet the goal. `null`: not known; `reason` says why.
    """
    robust: bool | None = None
    """True if no causal model of the requested class changes `avoidable`; `null` if no class was requested, or if the
    answer is not known.
    """
    best: float | None = None
    """Value of the best decisions in hindsight; no policy has a better value."""
    optimal: float | None = None
    """Value of the policy that is best without hindsight."""
    changes: Changes | None = None
    """The fewest changes that meet the goal; `null` if three changes are not enough, or if the goal could not be met.
    """
    reason: str = ""
    """Why something is not known; empty if everything is known."""


class Verdict(msgspec.Struct, frozen=True, gc=False):
    """Answer to one formula on one path.

    Exactly one of `value` (for `=?`), `holds` (for a truth value) and `outcome` (for `regret`) is set. An undecided
    truth value has none of them; `reason` says why.
    """

    formula: str
    """The formula's text."""
    method: Literal["exact", "sampled"]
    """`exact`: the values are computed; `sampled`: they are estimated from samples, with error rates."""
    causal_model: CausalModel
    """Class of causal models for the bounds. `gumbel`: no bounds. `world`: the world's own causal model, no bounds."""
    quantities: tuple[Quantity, ...]
    """All probabilities and expected rewards of the formula; for `regret` first nominal's, then the alternative's."""
    value: float | None = None
    """Value of a `=?` query, under the Gumbel-Max causal model."""
    holds: bool | None = None
    """Truth value of a formula that has a truth value."""
    outcome: Outcome | None = None
    """Outcome of `regret(...)`."""
    bounds: Band | None = None
    """Bounds of the only quantity; for `regret` those of the alternative. If sampled, a confidence interval."""
    robust: bool | None = None
    """True if no causal model of the class changes the answer; `null` without bounds. With a guaranteed band (or if one
    was requested but cannot be computed): true if no model in the band changes the answer.
    """
    effect: float | None = None
    """For `regret`: value under the alternative minus value under nominal."""
    effect_bounds: Band | None = None
    """Bounds of the effect."""
    profile: Mapping[int, Band] = msgspec.field(default_factory=dict)
    """Offset -> (value under nominal, value under the alternative), each from the start point of its offset. For
    `handover(F, Q, h)`: the values of Q under nominal and under F, at offset 0.
    """
    latest_useful: int | None = None
    """Smallest offset at which the alternative meets the threshold and nominal does not; `null` if there is none. For
    `handover(F, Q, h)`: 0 if F meets Q now. If `profile_extremes` is given, the values compared are the extremes that
    are least favourable to the alternative.
    """
    offset: int = 0
    """Offset that was used, in steps."""
    clipped: bool = False
    """True if the path of n pairs is too short for the formula's offset, which was then clipped to [-(n-1), n-1]."""
    start_dropped: bool = False
    """True if the episode's start is no longer held, so that `@-k` counts from the oldest pair of the path."""
    reason: str = ""
    """Why the verdict is undecided, or why the engine is not the configured one."""
    drawn: Drawn | None = None
    """Settings and seed of the samples; left out of an exact answer."""
    credible: Band | None = None
    """Credible band of the only quantity; for `regret` that of the alternative. This field and the next six fields are
    for learned models and are left out otherwise.
    """
    guaranteed: Band | None = None
    """Guaranteed band of the only quantity; for `regret` that of the alternative."""
    effect_credible: Band | None = None
    """Credible band of the effect, computed from its values on the posterior models; it is not a difference of bands.
    """
    effect_guaranteed: Band | None = None
    """Guaranteed band of the effect: the difference of the bands."""
    support: int | None = None
    """Smallest support of the quantities; `null` if no learned row matters."""
    to_visit: tuple[tuple[int, int], ...] = ()
    """Up to three pairs (state, action) whose visits would narrow the credible band most, the best first."""
    bands: Bands | None = None
    """How the bands were computed."""
    recourse: Recourse | None = None
    """For `regret(...)` with a missed goal: whether other decisions could have met the goal. Left out otherwise, and if
    this was not examined.
    """
    profile_extremes: ProfileExtremes = ()
    """Extremes (`Quantity.extremes`) of the values in `profile`, from offset 0 on: least and greatest value under
    nominal, then least and greatest value under the alternative; left out if the values have no extremes.
    """
    credible_now: tuple[float, float, float, float] | None = None
    """On a learned model: credible bands of the two values in `profile` at offset 0, under nominal and under the policy
    or action to which control would be handed over; left out otherwise.
    """
    tiers: tuple[Tier, ...] = ()
    """In a world with numbers: what is known of the noise of the held steps that the verdict uses; left out otherwise.
    """
    resampled_from: int | None = None
    """In a world with numbers: number of recorded steps from which future inputs are drawn, if the draws depend on such
    inputs; left out otherwise.
    """
    belief: Mapping[int, float] | None = None
    """If states are hidden: the likeliest states now, as state -> probability given all observations; left out
    otherwise.
    """
    evidence: float | None = None
    """If states are hidden: probability of all observations on the path; left out otherwise."""
    believed: Mapping[str, float] | None = None
    """If states are hidden and have names: `belief` by these names; left out otherwise."""
    likely: Mapping[str, float] | None = None
    """If states are hidden: label -> probability that the label holds now, given all observations; left out otherwise.
    """
    unseen: int | None = None
    """If states are hidden: number of steps of the path without an observation; left out otherwise."""
