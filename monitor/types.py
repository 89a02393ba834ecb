"""Values passed between packages of the monitor: settings, observations, verdicts, notices.

All of them are frozen and fast to create, because each message creates several. Times are in seconds: `wall` since the
epoch, `ticks` on a monotonic clock. Probabilities lie in [0, 1]. The order of the types is that of the route: a message
becomes an `Observation`, this becomes a `Step`, the held path gives a `Verdict`, and verdicts lead to an `Alert`.

This is one module in four parts: settings, observations, verdicts, notices. The parts refer to each other, and every
room needs names of several parts, so separate modules would only make imports longer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

__all__ = [
    "MOST_BELIEVED",
    "NO_EXTREMES",
    "UNEXAMINED",
    "UNKNOWN_POLICY",
    "UNRECORDED",
    "YEAR_10000",
    "AlarmMoved",
    "AlarmOnlyIf",
    "AlarmSpec",
    "AlarmState",
    "AlarmWhen",
    "Alert",
    "Alternative",
    "Avoidable",
    "BandSettings",
    "Bands",
    "BandsWhen",
    "Blind",
    "BlindReason",
    "Break",
    "Calibrated",
    "Calibration",
    "CausalModel",
    "Changes",
    "Contradictions",
    "Departing",
    "Drawn",
    "End",
    "Ended",
    "Engine",
    "Episode",
    "Figures",
    "Fired",
    "Forecast",
    "Forgotten",
    "FormulaSpec",
    "Handover",
    "Instant",
    "Judged",
    "MessageResult",
    "Notice",
    "Observation",
    "OffPolicy",
    "Outcome",
    "ProfileExtremes",
    "Quantity",
    "RawInputs",
    "RawState",
    "Received",
    "Recourse",
    "RecourseWhen",
    "Refreshed",
    "RequestedModel",
    "RewardMismatch",
    "Sampling",
    "Skipped",
    "State",
    "Step",
    "StreamSettings",
    "TakenOver",
    "TakeoverOutcome",
    "TestName",
    "Threshold",
    "Tier",
    "Trust",
    "TrustSettings",
    "Verdict",
    "WrongAgent",
    "WrongRow",
]

Episode = str | int
RawState = int | str | tuple[float | str | bool, ...] | dict[str, float | str | bool]
"""A state as the agent sends it; the model's state encoder converts it to a `State`. The names of a map are sorted."""
RawInputs = tuple[float | str | bool, ...] | dict[str, float | str | bool]
"""Recorded inputs as the agent sends them."""
if TYPE_CHECKING:
    State = Any
else:
    State = int | tuple[float, ...] | None
"""A state: the index in a table, or the features in a world with numbers. If states are hidden, it is the observation,
or None. The type depends on the model, so the type checker cannot know it.
"""

BlindReason = Literal[
    "gap",
    "stale",
    "conflict",
    "impossible_step",
    "unknown_state",
    "out_of_range",
    "policy_mismatch",
    "dropped",
    "warming_up",
    "disconnected",
    "deadline",
    "old_episode",
    "idle",
    "overload",
    "model_doubt",
]
"""Why a formula cannot be evaluated now, or why its value must not be relied on; docs/blindness.md lists them."""

AlarmState = Literal["clear", "pending", "firing", "resolved", "ended", "removed"]
"""`clear`, `pending` and `firing` are the states of an alarm; `resolved`, `ended` and `removed` close a firing one."""

AlarmWhen = Literal["fails", "holds", "regret", "unavoidable"]
"""The answer that is bad for the alarm."""
AlarmOnlyIf = Literal["robust"]
"""Condition under which a bad answer counts."""

Outcome = Literal["safe", "regret", "unavoidable", "undecided"]
TakeoverOutcome = Literal["needed", "needless", "harmful", "futile", "undecided"]
"""Judgement of a takeover. `needed`: the goal was met, and the deployed policy would have missed it; `needless`: the
deployed policy would have met it too; `harmful`: only the deployed policy would have met it; `futile`: both miss it.
"""
RequestedModel = Literal["gumbel", "any", "stable"]
"""Classes of causal models that may be requested."""
CausalModel = Literal["gumbel", "any", "stable", "world"]
"""Class of causal models of an answer: as requested, or `world`: a world with numbers is its own causal model."""
ProfileExtremes = tuple[tuple[float, float, float, float], ...]
"""For each offset from 0 on: least and greatest value under nominal, then least and greatest under the alternative."""
Rate = Annotated[float, Meta(gt=0, lt=1)]
Positive = Annotated[int, Meta(ge=1)]
Engine = Literal["auto", "exact", "sampled"]
"""How a formula is evaluated. `auto`: exactly if the limits allow it, otherwise by sampling."""

BandsWhen = Literal["auto", "always", "off"]
"""Which verdicts on a learned model get a credible band and a support."""

RecourseWhen = Literal["auto", "always", "off"]
"""For which missed goals of `regret` it is examined whether other decisions could have met them."""

Avoidable = Literal["foresight", "hindsight", "no"]
"""Whether a missed goal could have been met from the intervention on. `foresight`: by the policy that is best without
knowledge of the observations; `hindsight`: only with this knowledge; `no`: by no decisions.
"""

Tier = Literal["recorded", "point", "interval", "posterior", "learned"]
"""What is known of the noise of a step in a world with numbers. `recorded`: a part of the noise was recorded as inputs.
`point`: all of the noise is known. `interval`: bounds of each component are known. `posterior`: the noise can only be
drawn. `learned`: the noise is that of a world estimated from data.
"""

TestName = Literal["betting", "paper"]
"""The tests that compare sampled values with thresholds."""

MessageResult = Literal["accepted", "duplicate", "stale", "conflict", "gap", "rejected", "dropped"]


# ---- settings ----


class Instant(msgspec.Struct, frozen=True, gc=False):
    """One reading of both clocks, in seconds. `wall`: since the epoch. `ticks`: on a monotonic clock, from any zero."""

    wall: float
    ticks: float


class AlarmSpec(msgspec.Struct, frozen=True):
    """When verdicts raise an alarm, and what is published with the alarm."""

    for_: Positive = 1
    """Number of bad verdicts, without a good verdict in between, that fire the alarm."""
    keep: Positive = 1
    """Number of good verdicts, without a bad verdict or a breach in between, that resolve the alarm."""
    severity: str = "warning"
    """Severity published with the alarm; the shipped alert rules know `warning` and `critical`."""
    runbook: str | None = None
    """Link to instructions, published with the alarm. If absent: the monitor's own runbook page for the severity."""
    when: AlarmWhen | None = None
    """The bad answer. If absent: `regret` for `regret(...)`, else `fails`. `unavoidable` also fires on regret."""
    step: Annotated[float, Meta(ge=0)] = 0.05
    """While the alarm fires, a new revision is published if the value differs by more than this from the last one."""
    only_if: AlarmOnlyIf | None = None
    """If `robust`, a bad verdict counts only if no model in its widest band changes it; any other bad verdict is
    ignored. Needs `causal_model` `any` or `stable`.
    """


class Sampling(msgspec.Struct, frozen=True):
    """Error rates and limits of sampled answers; `monitor.evaluation.check_sampling` checks them."""

    seed: Annotated[int, Meta(ge=0, le=(1 << 53) - 1)] = 0
    """Seed of all noise; the same seed draws the same samples."""
    alpha: Rate = 0.01
    """Probability of a false alarm, i.e. of a wrong *false* or *regret*. On a stream the rate holds for all verdicts of
    one formula on one agent together, and for the verdict on which the alarm fires.
    """
    beta: Rate = 0.01
    """Probability of the opposite error (a missed breach), per verdict."""
    delta: Rate = 0.01
    """Half-width of the indifference region around a threshold, as a fraction of the range of a world's outcome (1
    for a `P`). Within it either answer is accepted. `betting` on a stream has no such region.
    """
    deviation: float = 0.1
    """Half-width of the indifference region for `R` and `delta(..)` with the test `paper`, in standard deviations of
    one sample.
    """
    error: Rate = 0.02
    """Required half-width of the interval of a `=?`, as a fraction of the range of its outcome."""
    error_alpha: Rate = 0.05
    """Probability that a reported interval misses the true value."""
    limit: Positive = 20_000
    """Maximum number of samples of a quantity; a quantity that is open after them is undecided."""
    rewards: tuple[float, float] | None = None
    """Smallest and largest reward of a step, for models that cannot be enumerated."""
    test: TestName = "betting"
    """The test that compares values with thresholds. `betting`: `alpha` and `beta` hold for every model (outside a
    stream, a single `P` uses Wald's test, whose rates hold too). `paper`: the tests of the paper; for `R` and
    `delta(..)` this is a sequential t-test, whose rates are nominal.
    """


class BandSettings(msgspec.Struct, frozen=True):
    """Settings for the bands of a learned model; `monitor.evaluation` checks them."""

    draws: Annotated[int, Meta(ge=1, le=10_000)] = 64
    """Number of models drawn from the posterior. The answer is evaluated exactly on each of them twice: with everything
    that was never observed as bad as possible, and as good as possible. In a world with numbers: largest number of fits
    that are used.
    """
    seed: Annotated[int, Meta(ge=0, le=(1 << 53) - 1)] = 0
    """Seed of the draws; the same seed draws the same models."""
    level: Rate = 0.95
    """Probability that the band contains the value of the true model, if that model has the posterior distribution."""
    delta: Rate = 0.05
    """Probability that the guaranteed band misses the true value, for all answers together."""
    doubt: str = ""
    """Why the model cannot be relied on if it says that handing over, or carrying on, does not suffice; empty if it
    can. `cfmon init` writes the problems of the model here. The text is used for verdicts that have bands.
    """


class FormulaSpec(msgspec.Struct, frozen=True, eq=False):
    """One formula to monitor.

    `labels`, `actions`, `recourse` and the alarm's `runbook` are ignored in comparisons of formulas.

    >>> FormulaSpec("f", "true", every=1) == FormulaSpec("f", "true", every=1.0)
    False
    """

    name: str
    """Name in topics, metrics and alarms."""
    text: str
    """The formula, in the formula language."""
    every: int | float = 1
    """The formula is evaluated after this number of steps (int) or after this duration (float, in seconds)."""
    causal_model: CausalModel = "gumbel"
    """Class of causal models for bounds beside the Gumbel-Max value: `any`, or the counterfactually `stable` ones."""
    alarm: AlarmSpec = msgspec.field(default_factory=AlarmSpec)
    """When the formula's verdicts raise an alarm."""
    engine: Engine = "auto"
    """`auto`: exact if the formula allows it, otherwise sampled."""
    labels: tuple[tuple[str, str], ...] = ()
    """Pairs of a label and the words that replace it in sentences."""
    actions: tuple[tuple[str, str], ...] = ()
    """Pairs of an action and the words for it in sentences: by its name in the model, or its number if it has none."""
    bands: BandsWhen = "auto"
    """Which verdicts on a learned model get a credible band and a support. `auto`: verdicts that miss the goal, and all
    verdicts while the alarm is pending or fires. Also `always` and `off`.
    """
    recourse: RecourseWhen = "auto"
    """For which missed goals of `regret(...)` it is examined whether other decisions could have met them, and how few.
    `auto`: missed goals while the alarm is pending or fires. Also `always` and `off`.
    """

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FormulaSpec) and self._content() == other._content()

    def __hash__(self) -> int:
        return hash(self._content())

    def _content(self) -> tuple[object, ...]:
        """Return all that changes an alarm, with the type of `every`; no words, `recourse` or `runbook`."""
        query = self.name, self.text, self.every, type(self.every), self.causal_model, self.engine, self.bands
        return *query, msgspec.structs.replace(self.alarm, runbook=None)


class StreamSettings(msgspec.Struct, frozen=True):
    """Limits of the stream. Durations in seconds."""

    window: Positive = 64
    """Number of steps held for each agent; the oldest step is dropped first."""
    reorder_steps: int = 256
    """Maximum number of later steps that wait for a missing step before the missing step counts as lost."""
    reorder_wait: float = 0.5
    """Maximum time that later steps wait for a missing step."""
    stale_after: float = 5.0
    """Silence in an episode after which an agent's formulas are marked `stale`; steps may wait that long, too."""
    idle_after: float = 900.0
    """Silence between episodes after which an agent's formulas are marked `idle`: it has finished, or has failed."""
    forget_after: float = 3600.0
    """Silence after which an agent is forgotten, with its alerts and metrics."""
    max_lag: float = 2.0
    """Alarms on steps older than this are marked `late`. If more steps arrive than can be evaluated, and they have
    waited half as long, evaluations are skipped.
    """
    agents: Positive = 1000
    """Maximum number of agents. Further agents are refused, counted and reported, unless an agent that sent few steps
    and fell silent can be forgotten.
    """
    pending: Positive = 100_000
    """Maximum number of unevaluated steps of one agent; if there are more, all of them are dropped."""
    encoder: Literal["index", "name", "valuation", "bins", "nearest", "features"] = "index"
    """Form of the agents' states: numbers, names, values of variables, floats (and texts) to be sorted into the model's
    bins or assigned to the nearest centre, or the features of a world with numbers.
    """
    policies: Mapping[str, str] = {}
    """The known policies: digest of the ONNX file -> name. An agent that reports another digest is blind; if the map is
    empty, reported digests are not compared.
    """


class TrustSettings(msgspec.Struct, frozen=True):
    """The test of the model against the observed transitions; `monitor.statistics.model_betting` defines the test."""

    alpha: Rate = 0.001
    """Probability that a correct model is rejected, for each agent and for all agents together."""
    impossible: Annotated[float, Meta(gt=0, le=0.005)] = 0.0001
    """Fraction of the steps that may contradict a correct model, such as a sensor's glitches."""
    enabled: bool = True
    """If false, the model is not tested."""
    acknowledged: Mapping[str, str] = {}
    """Agent, or `*` for all agents -> why its rejection is settled. A new or changed text restarts the test, also on
    reload.
    """


# ---- what is observed ----


class Observation(msgspec.Struct, frozen=True, gc=False):
    """One decoded message, before ordering and encoding.

    `agent` comes from the topic, never from the payload. `action` is None only if the agent sent none, which is allowed
    in the last message of an episode, and if states are hidden. `time`: the agent's clock, seconds since the epoch.
    `reward`: reward of the transition into this state. `policy`: sha256 of the policy that the agent reports. `inputs`:
    recorded inputs of a world with numbers. `observation`: if the model has hidden states, sent in place of `state`,
    which is then None; an observation of None means that the sensor said nothing. `truth`: the true state beside an
    observation, if it is known; no verdict uses it, only `cfmon report`. In Python, numpy numbers and arrays count as
    numbers and lists.
    """

    agent: str
    episode: Episode
    seq: int
    state: RawState | None = None
    action: int | float | str | None = None
    time: float | None = None
    reward: float | None = None
    terminated: bool = False
    truncated: bool = False
    policy: str | None = None
    inputs: RawInputs | None = None
    observation: RawState | None = None
    truth: RawState | None = None


NO_EXTREMES: Final = "no extremes"
"""First words of `Bands.reason` for a quantity of unknown value that has no least and greatest value."""
UNRECORDED: Final = "what was never recorded decides it"
"""Reason of an undecided verdict of the exact engine that more recordings could decide."""
UNEXAMINED: Final = "other decisions are examined only where the state is seen and policies remember nothing"
"""Reason of an unknown recourse if states are hidden or policies have a memory."""
MOST_BELIEVED: Final = 5
"""Largest number of states of the belief in a verdict."""
YEAR_10000: Final = 253_402_300_800.0
"""Its start, in seconds since the epoch. Times from there on are not written as dates."""
UNKNOWN_POLICY: Final = ""
"""Name used for an acting policy that is not configured; the monitor has no table for it."""
BELIEF_DIGITS: Final = 9
"""Decimals by which the likeliest states are ordered, so that rounding does not choose among equally likely ones."""


class Step(msgspec.Struct, frozen=True, tag=True, gc=False):
    """One step of the path, in order, converted to the model: indices, or numbers.

    `time`: seconds since the epoch. `late`: the step was older than `max_lag` on arrival. `foreign`: the agent ran a
    policy that is not configured. `policy`: name of the policy that acted, UNKNOWN_POLICY if it is not known. `inputs`:
    recorded inputs, in a world with numbers. If states are hidden, `state` is the observation (None if there was none)
    and `inputs` is the belief before the observation (`monitor.hidden.filtering`).
    """

    episode: Episode
    seq: int
    state: State
    action: int | None
    time: float
    late: bool = False
    foreign: bool = False
    policy: str = "nominal"
    inputs: tuple[float, ...] = ()


class Break(msgspec.Struct, frozen=True, tag=True):
    """An interruption of the path before the next step, with its reason; the steps in between are unknown.

    `unrecorded`: the model is learned, and the newest pair of the path led to a successor that was never recorded after
    the pair. `unpredicted`: the pair led to a successor of probability 0 in the model. `failed`: the code of a world
    with numbers failed, which says nothing about whether the world is right.
    """

    reason: BlindReason
    detail: str
    unrecorded: bool = False
    unpredicted: bool = False
    failed: bool = False


class End(msgspec.Struct, frozen=True, tag=True):
    """End of an episode. `terminated`: the last state is absorbing for the rest of every horizon."""

    episode: Episode
    terminated: bool


# ---- verdicts ----


class RestsOn(msgspec.Struct, frozen=True, gc=False):
    """Recordings on which a value on a learned model rests, in the value's own world."""

    steps: int
    """Number of recorded steps of the pairs (state, action) that the value uses; in a world with numbers: number of
    steps that the world was learned from.
    """
    rare: float | None
    """Fraction of the value's expected uses of pairs that falls on pairs recorded fewer than 5 times; `null` in a world
    with numbers.
    """
    never: float
    """Probability of reaching a pair that was never recorded before the value is decided. In a world with numbers:
    fraction of draws that take an action outside the range in which this action was recorded.
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
    bounds: tuple[float, float] | None = None
    """Smallest and largest value over the class of causal models; if sampled, a confidence interval at the level
    `confidence`.
    """
    threshold: float | None = None
    """Bound with which the value is compared; `null` for `=?`."""
    holds: bool | None = None
    """True if the comparison holds. `null` for `=?`, if samples left the comparison undecided, and if it holds at only
    one of the `extremes`.
    """
    robust: bool | None = None
    """True if no causal model of the class changes `holds`; if there is a guaranteed band, true if no model in the band
    changes it. `null` without bounds.
    """
    samples: int = 0
    """Number of samples; left out of an exact answer."""
    confidence: float | None = None
    """Level of the confidence interval, in (0, 1); left out of an exact answer."""
    credible: tuple[float, float] | None = None
    """On a learned model: band of the Gumbel-Max value over models drawn from the posterior, at the level in the
    verdict's `bands`; everything that was never observed is as bad as possible at the lower end and as good as possible
    at the upper end. In a learned world with numbers: band of the value over the fits. Left out otherwise.
    """
    guaranteed: tuple[float, float] | None = None
    """On a learned model: bounds over every causal model and every row in the confidence set; left out otherwise."""
    extremes: tuple[float, float] | None = None
    """On a learned model with pairs (state, action) that were never recorded: the values if such pairs lead to the
    worst and to the best, with all other rows as estimated. Left out otherwise.
    """
    support: int | None = None
    """On a learned model: fewest visits among the rows that carry 90 % of the answer; left out otherwise."""
    rests_on: RestsOn | None = None
    """On a learned model: recordings on which the value rests; for a difference of two worlds, in the first world. In a
    world with numbers, if the goal is missed, and for `handover(...)`: recordings behind the value of handing over now.
    Left out otherwise.
    """


class Drawn(msgspec.Struct, frozen=True):
    """Settings and seed of a sampled verdict: together with the path, enough to draw its samples again."""

    sampling: Sampling
    """Settings of the sampling."""
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
    """Settings of the bands of a learned model: together with the path, enough to compute the bands again."""

    draws: int = 0
    """Number of posterior models for the credible band; 0 if no band was requested, or if it is that of a world."""
    seed: int = 0
    """Seed of these models."""
    level: float | None = None
    """Level of the credible band, in (0, 1); `null` if no band was requested. In a world with numbers it is lower than
    configured if there are too few fits for the configured level.
    """
    delta: float | None = None
    """Probability that the guaranteed band fails, for all answers together; `null` without a guaranteed band."""
    reason: str = ""
    """Why a band or the support is missing, or why fits have no answer; empty if nothing is missing."""
    fits: int = 0
    """In a learned world with numbers: number of fits to resampled recordings that give the credible band."""
    doubt: str = ""
    """Why the model cannot be relied on when it denies something, as configured; empty if it can."""


class Changes(msgspec.Struct, frozen=True):
    """The fewest changed decisions that meet a missed goal, and the first of them; up to it everything is as observed.

    The decisions are chosen in hindsight, with what the observed path says about the noise.
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
    """Action that was taken; `null`: none yet."""
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
    drawn and only one changed decision at a time is tried. See docs/semantics.md, section 14.3.
    """

    avoidable: Avoidable | None = None
    """`foresight`: the policy that is best without hindsight meets the goal; `hindsight`: only the best decisions in
    hindsight meet it; `no`: no decisions meet it. `null`: not known; `reason` says why.
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
    bounds: tuple[float, float] | None = None
    """Bounds of the only quantity; for `regret` those of the alternative. If sampled, a confidence interval."""
    robust: bool | None = None
    """True if no causal model of the class changes the answer; `null` without bounds. With a guaranteed band (or if one
    was requested but cannot be computed): true if no model in the band changes the answer.
    """
    effect: float | None = None
    """For `regret`: value under the alternative minus value under nominal."""
    effect_bounds: tuple[float, float] | None = None
    """Bounds of the effect."""
    profile: Mapping[int, tuple[float, float]] = msgspec.field(default_factory=dict)
    """Offset -> (value under nominal, value under the alternative), each from the start point of its offset. For
    `handover(F, Q, h)`: the values of Q under nominal and under F, at offset 0.
    """
    latest_useful: int | None = None
    """Smallest offset at which the alternative meets the threshold and nominal does not; `null` if there is none. For
    `handover(F, Q, h)`: 0 if F meets Q now. If `profile_extremes` is given, both values are the least favourable ones.
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
    credible: tuple[float, float] | None = None
    """Credible band of the only quantity; for `regret` that of the alternative. This field and the following ones are
    for learned models and are left out otherwise.
    """
    guaranteed: tuple[float, float] | None = None
    """Guaranteed band of the only quantity; for `regret` that of the alternative."""
    effect_credible: tuple[float, float] | None = None
    """Credible band of the effect, computed from its values on the posterior models; it is not a difference of bands.
    """
    effect_guaranteed: tuple[float, float] | None = None
    """Guaranteed band of the effect: the difference of the bands."""
    support: int | None = None
    """Smallest support of the quantities; `null` if no learned row matters."""
    to_visit: tuple[tuple[int, int], ...] = ()
    """Up to three pairs (state, action) whose visits would narrow the credible band most, the best first."""
    bands: Bands | None = None
    """How the bands were computed."""
    recourse: Recourse | None = None
    """For `regret(...)` whose goal is missed: whether other decisions could have met the goal; left out otherwise, and
    if this was not examined.
    """
    profile_extremes: ProfileExtremes = ()
    """Extremes of the values in `profile`, from offset 0 on: least and greatest under nominal, then least and greatest
    under the alternative (`Quantity.extremes`); left out if there are none.
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


# ---- notices: results of the monitor; each sink uses those that concern it ----


class Received(msgspec.Struct, frozen=True, gc=False):
    """Result of one message. `lag`: receive time minus the agent's time, in seconds; None if the agent sent none."""

    agent: str
    result: MessageResult
    reason: str = ""
    detail: str = ""
    lag: float | None = None


class Judged(msgspec.Struct, frozen=True, gc=False):
    """Verdict on a formula for an agent at a step. `time`: time of the step, seconds since the epoch."""

    agent: str
    formula: str
    verdict: Verdict
    episode: Episode
    seq: int
    time: float
    late: bool = False


class Blind(msgspec.Struct, frozen=True):
    """A formula became blind for an agent, or is no longer blind (`reason` None). Sent only on a change."""

    agent: str
    formula: str
    reason: BlindReason | None
    detail: str = ""


class AlarmMoved(msgspec.Struct, frozen=True):
    """New state of a formula's alarm: `clear`, `pending` or `firing`. Sent only on a change."""

    agent: str
    formula: str
    state: AlarmState


class Threshold(msgspec.Struct, frozen=True):
    """Threshold with which a value is compared."""

    comparison: Literal["<", "<=", ">=", ">"]
    """Relation of the value to the bound with which the formula holds."""
    bound: float
    """A probability in [0, 1], or an expected reward."""


class Alternative(msgspec.Struct, frozen=True, omit_defaults=True):
    """The intervention of a regret formula, with its value."""

    name: str
    """The intervention as written in the formula: a policy, `do(action)`, `model:name`, or decisions made for the goal
    (`best`, `best[k]`, `best[<=k]`, `max`, `min`, `optimal`).
    """
    value: float | None
    """Value under the intervention, under the Gumbel-Max causal model."""
    bounds: tuple[float, float] | None
    """Smallest and largest value over the class of causal models; for a sampled verdict a confidence interval."""
    extremes: tuple[float, float] | None = None
    """Least and greatest value over all possible outcomes of pairs that were never recorded; left out if all were."""


class Handover(msgspec.Struct, frozen=True, omit_defaults=True):
    """Effect of handing over control, as of the newest step."""

    policy: str
    """The policy or `do(action)` to hand over to, as written in the formula."""
    helps_now: bool | None
    """True if handing over now meets the goal and carrying on does not. For `handover(...)`: true if handing over now
    meets the goal, so that it is not too late. For a comparison of `delta(policy,nominal)@0`: true if it holds. `null`:
    not known (while blind, for a sampled or undecided verdict, and if the answer depends on what was never recorded).
    On a learned model false only if the credible band excludes the opposite and no problem with the model is known.
    """
    latest_useful: int | None
    """Smallest number of steps ago at which handing over would have helped; 0: now. `null`: at none, or not known. For
    `handover(...)` and `delta(...)`: 0 or `null`.
    """
    extremes: tuple[float, float] | None = None
    """Least and greatest value of handing over now, over all possible outcomes of pairs that were never recorded; left
    out if all were recorded.
    """
    credible_now: tuple[float, float] | None = None
    """On a learned model: credible band of the value of handing over now; left out otherwise."""


class Figures(msgspec.Struct, frozen=True):
    """Numbers of a verdict, with the same meaning in alerts, metrics, page and terminal.

    `value`: value under the nominal policy; for a plain formula with an intervention (`fallback@5.P>=0.9 [..]`), value
    under the intervention. `value` and `bounds` are None for a formula with several quantities. `handover` is None if
    there is no advice. `extremes`: least and greatest value.
    """

    value: float | None = None
    bounds: tuple[float, float] | None = None
    threshold: Threshold | None = None
    alternative: Alternative | None = None
    handover: Handover | None = None
    extremes: tuple[float, float] | None = None


class Fired(msgspec.Struct, frozen=True):
    """Figures of the verdict on which the alarm fired; the evidence proves this verdict."""

    outcome: Outcome | None
    """Outcome at that time."""
    value: float | None
    """Value under the nominal policy at that time."""
    alternative: Alternative | None
    """Alternative at that time."""
    seq: int
    """Step at which the alarm fired."""
    time: float
    """Time of that step, in seconds since the epoch."""


class Alert(msgspec.Struct, frozen=True):
    """Published change of an alarm; `docs/messages.md` lists the fields of the message.

    `verdict` is the newest verdict, `figures` has its numbers, and `fired` has the numbers of the verdict on which the
    alarm fired. `seq`, `time`: step of the newest verdict. `first_seq`, `since`: step and time of the first verdict of
    the breach. Times are seconds since the epoch. For the evidence, and not published: `path`: the (state, action)
    pairs of the verdict's path; `acted`: the policies that acted at these pairs (empty: always nominal); `inputs`: the
    recorded inputs (empty: the model has none).
    """

    id: str
    revision: int
    agent: str
    formula: str
    text: str
    state: AlarmState
    blind: BlindReason | None
    severity: str
    verdict: Verdict
    figures: Figures
    fired: Fired
    episode: Episode
    seq: int
    first_seq: int
    time: float
    since: float
    late: bool
    summary: str
    runbook: str | None
    path: tuple[tuple[State, int | None], ...]
    start_observed: bool
    terminated: bool
    acted: tuple[str, ...] = ()
    details: tuple[str, ...] = ()
    inputs: tuple[tuple[float, ...], ...] = ()
    actions: tuple[tuple[str, str], ...] = ()


class Refreshed(msgspec.Struct, frozen=True):
    """Newer verdict of a firing alarm that makes no new revision; it is published at the next heartbeat.

    `monitor.alarm.refresh` computes the alert from it. `pairs`: length of the verdict's path.
    """

    judged: Judged
    spec: FormulaSpec
    pairs: int


class OffPolicy(msgspec.Struct, frozen=True):
    """An action of the agent that the nominal policy never takes in that state."""

    agent: str


class Deviates(msgspec.Struct, frozen=True):
    """Deviation of the agent from the nominal policy; sent if it has changed by 0.01.

    `share`: fraction of the last `steps` steps, 0 to 1, whose actions the nominal policy would not have taken, beyond
    the number that its randomness explains (`monitor.statistics.deviation`).
    """

    agent: str
    share: float
    steps: int


class RewardMismatch(msgspec.Struct, frozen=True):
    """A reported reward that differs from the model's for the same transition.

    `detail`: the transition and both rewards. Path and verdicts do not depend on the reported reward.
    """

    agent: str
    detail: str


class Skipped(msgspec.Struct, frozen=True):
    """`count` due evaluations of a formula were skipped; the path is complete all the same.

    An alarm that only the skipped evaluations would have raised was not raised.
    """

    agent: str
    formula: str
    count: int


class Ended(msgspec.Struct, frozen=True):
    """End of an agent's episode; values are undefined until the agent's next episode begins."""

    agent: str
    episode: Episode


class Forgotten(msgspec.Struct, frozen=True):
    """An agent was silent for `forget_after`; everything stored or shown under its name can be deleted.

    `silent`: seconds since the agent's last message. `open`: the agent's episode had not ended.
    """

    agent: str
    silent: float = 0.0
    open: bool = False


class Departing(msgspec.Struct, frozen=True):
    """A transition that is observed more often than the model predicts.

    `seen`: number of transitions to `successor` in the last `of` steps from `state` with `action`; `expected`: the
    number that the model predicts. In a world with numbers `state` is a range of a feature, and `successor` a part of
    its noise.
    """

    state: int | str
    action: int | str
    successor: int | str
    seen: int
    of: int
    expected: float


class Trust(msgspec.Struct, frozen=True):
    """Result of the test of the model; sent when `doubted` changes, and from time to time.

    `doubted`: the observed transitions contradict the model. `log10_e`: log10 of the e-value against the model (0: no
    evidence, 3: a thousand to one). `transitions`: number of tested transitions. `agent`: agent whose transitions are
    tested; empty: all agents together. `departing`: if doubted, the transitions with the most evidence against the
    model, impossible steps not included.
    """

    doubted: bool
    log10_e: float
    transitions: int
    agent: str = ""
    departing: tuple[Departing, ...] = ()


class WrongRow(msgspec.Struct, frozen=True):
    """A rejected row of the model, and the next state whose observed frequency differs most from its probability.

    `state`, `action`, `successor`: names, or numbers if the model has no names. `seen`: number of steps to `successor`
    among the newest `visits` counted visits. `probability`: probability of `successor` in the model. `impossible`:
    number of visits that led to a successor of probability 0. `log10_e`: log10 of the e-value against the row.
    """

    state: str
    action: str
    log10_e: float
    successor: str
    seen: int
    visits: int
    probability: float
    impossible: int


class WrongAgent(msgspec.Struct, frozen=True):
    """An agent that does not follow the model. `log10_e`: log10 of its e-value, valid at any time."""

    agent: str
    log10_e: float


class Contradictions(msgspec.Struct, frozen=True):
    """Rejected rows of the model and rejected agents; the expected fraction of wrong rejections is at most 0.05.

    Sent if they change, or if the evidence against them changes. `rows`, `agents`: those with the strongest evidence
    first, at most ten of each. `rows_rejected`, `agents_rejected`: total numbers. `rows_tested`: number of rows that
    can be rejected; 0 if none is tested.
    """

    rows: tuple[WrongRow, ...] = ()
    agents: tuple[WrongAgent, ...] = ()
    rows_rejected: int = 0
    agents_rejected: int = 0
    rows_tested: int = 0


class Forecast(msgspec.Struct, frozen=True):
    """Outcome of a followed forecast: it came true, did not come true, or was dropped (None).

    `value`: the forecast probability, in [0, 1], that the agent's own future satisfies the path formula.
    """

    agent: str
    formula: str
    value: float
    came_true: bool | None


class TakenOver(msgspec.Struct, frozen=True):
    """A takeover, judged by the goal of a formula when the goal's horizon has passed.

    `policy`: the policy that took over at step `first_seq`, at time `since` (seconds since the epoch). `seq`, `time`:
    step of the judgement; if the judgement is undecided, step of the takeover. `reason`: why it is undecided.
    `verdict`: two quantities, for what happened and for the deployed policy; None if undecided. `path`: the pairs from
    the takeover on; `acted`: the policies that acted at these pairs; `inputs`: the inputs recorded there, if the model
    has inputs. `evidence`: id of the evidence, if evidence is stored.
    """

    agent: str
    formula: str
    policy: str
    outcome: TakeoverOutcome
    episode: Episode
    first_seq: int
    since: float
    seq: int
    time: float
    reason: str = ""
    verdict: Verdict | None = None
    path: tuple[tuple[State, int | None], ...] = ()
    acted: tuple[str, ...] = ()
    start_observed: bool = False
    terminated: bool = False
    evidence: str = ""
    inputs: tuple[tuple[float, ...], ...] = ()


class Calibration(msgspec.Struct, frozen=True):
    """Counts of followed forecasts as plain data, for `monitor.statistics.calibration`.

    `bins`: for each tenth of [0, 1] the number of forecasts, their sum, and the number that came true; empty: no
    forecasts. `squared`: sum of the squared errors. `expected`: expected value of `squared` if the forecasts are
    calibrated. `dropped`: number of forecasts without a known outcome.
    """

    bins: tuple[tuple[int, float, int], ...] = ()
    squared: float = 0.0
    expected: float = 0.0
    dropped: int = 0


class Calibrated(msgspec.Struct, frozen=True):
    """Counts of the followed forecasts of a formula, including those of earlier processes.

    `agent`: agent whose forecasts are counted; empty: all agents together, including forgotten ones.
    """

    formula: str
    calibration: Calibration
    agent: str = ""


Notice = (
    Received
    | Judged
    | Blind
    | AlarmMoved
    | Alert
    | Refreshed
    | OffPolicy
    | Deviates
    | RewardMismatch
    | Skipped
    | Ended
    | Forgotten
    | Trust
    | Contradictions
    | Forecast
    | Calibrated
    | TakenOver
)
