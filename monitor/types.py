"""Values passed between packages of the monitor: settings, observations, verdicts, notices.

All are frozen and cheap to create: each message creates several. Times are in seconds: `wall` since the epoch, `ticks`
on a monotonic clock. Probabilities lie in [0, 1]. The order is that of the route: a message becomes an `Observation`,
that a `Step`, that (on the held path) a `Verdict`, that an `Alert`.

It is one module, in four parts: settings, what is observed, verdicts, notices. The parts refer to each other, and every
room needs names of several of them, so separate modules would only make imports longer.
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
"""A state as the agent sends it; the model's state encoder converts it to a `State`. A map is sorted by its names."""
RawInputs = tuple[float | str | bool, ...] | dict[str, float | str | bool]
"""Recorded inputs as the agent sends them."""
if TYPE_CHECKING:
    State = Any
else:
    State = int | tuple[float, ...] | None
"""A state of a table, by its index; of a world with numbers, its features; where states are hidden, the observation, or
None. The type checker cannot know which: that depends on the model.
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
"""Why a formula cannot be answered now, or why not to rely on its answer. docs/blindness.md has a row for each."""

AlarmState = Literal["clear", "pending", "firing", "resolved", "ended", "removed"]
"""`clear`, `pending` and `firing` are the states of an alarm; `resolved`, `ended` and `removed` close a firing one."""

AlarmWhen = Literal["fails", "holds", "regret", "unavoidable"]
"""The bad answer."""
AlarmOnlyIf = Literal["robust"]
"""What a bad answer must be to count."""

Outcome = Literal["safe", "regret", "unavoidable", "undecided"]
TakeoverOutcome = Literal["needed", "needless", "harmful", "futile", "undecided"]
"""Whether a goal needed a takeover. `needed`: it was met, and the deployed policy would have missed it; `needless`: the
deployed policy would have met it too; `harmful`: only the deployed policy would have met it; `futile`: neither.
"""
RequestedModel = Literal["gumbel", "any", "stable"]
"""Classes of causal models that may be requested."""
CausalModel = Literal["gumbel", "any", "stable", "world"]
"""The same of an answer; `world`: a world with numbers is its own causal model."""
ProfileExtremes = tuple[tuple[float, float, float, float], ...]
"""For each offset from 0 on: least and greatest value under nominal, least and greatest under the alternative."""
Rate = Annotated[float, Meta(gt=0, lt=1)]
Positive = Annotated[int, Meta(ge=1)]
Engine = Literal["auto", "exact", "sampled"]
"""How a formula is answered; `auto`: exactly if the limits allow, else by sampling."""

BandsWhen = Literal["auto", "always", "off"]
"""Which verdicts on a learned model get a credible band and their support."""

RecourseWhen = Literal["auto", "always", "off"]
"""Which missed goals of `regret` are examined: whether other decisions could have met them."""

Avoidable = Literal["foresight", "hindsight", "no"]
"""Whether a missed goal could have been met from the intervention on. `foresight`: by the policy that is best without
knowledge of what was observed; `hindsight`: only with it; `no`: by nobody.
"""

Tier = Literal["recorded", "point", "interval", "posterior", "learned"]
"""What is known of the noise of a step in a world with numbers. `recorded`: a part of it was recorded, as inputs;
`point`: all of it; `interval`: bounds of each component; `posterior`: only what can be drawn; `learned`: it is that of
a world estimated from data.
"""

TestName = Literal["betting", "paper"]
"""Which tests compare sampled values with thresholds."""

MessageResult = Literal["accepted", "duplicate", "stale", "conflict", "gap", "rejected", "dropped"]


# ---- settings ----


class Instant(msgspec.Struct, frozen=True, gc=False):
    """One reading of both clocks. `wall`: seconds since the epoch. `ticks`: seconds, monotonic, arbitrary zero."""

    wall: float
    ticks: float


class AlarmSpec(msgspec.Struct, frozen=True):
    """When verdicts become an alarm, and what is published with it."""

    for_: Positive = 1
    """Number of bad verdicts, without a good one in between, that fire the alarm."""
    keep: Positive = 1
    """Number of good verdicts, without a bad one or a breach in between, that resolve it."""
    severity: str = "warning"
    """Published with the alarm; the shipped alert rules know `warning` and `critical`."""
    runbook: str | None = None
    """Link published with the alarm: what to do. If absent, the monitor's own page of the runbook for its severity."""
    when: AlarmWhen | None = None
    """The bad answer; if absent, `regret` for `regret(...)`, else `fails`. `unavoidable`: fires on regret as well."""
    step: Annotated[float, Meta(ge=0)] = 0.05
    """While the alarm fires, a new revision is published when the value has moved by more than this since the last."""
    only_if: AlarmOnlyIf | None = None
    """If `robust`, a bad verdict counts only if no model in its widest band changes it; another one counts for nothing.
    Needs `causal_model` `any` or `stable`.
    """


class Sampling(msgspec.Struct, frozen=True):
    """Error rates and limits of sampled answers; `monitor.evaluation.check_sampling` checks them."""

    seed: Annotated[int, Meta(ge=0, le=(1 << 53) - 1)] = 0
    """Seed of all noise: the same seed draws the same samples."""
    alpha: Rate = 0.01
    """Probability of a false alarm, i.e. a wrong *false* or *regret*. On a stream it holds for all verdicts of one
    formula on one agent together, and for the answer the alarm fires on.
    """
    beta: Rate = 0.01
    """Probability of the opposite error (a missed breach), per verdict."""
    delta: Rate = 0.01
    """Half-width of the indifference region around a threshold, as a fraction of the range of a world's outcome (1
    for a `P`). Within it either answer is accepted. `betting` on a stream has no such region.
    """
    deviation: float = 0.1
    """The same for `R` and for `delta(..)` with the test `paper`, in standard deviations of one sample."""
    error: Rate = 0.02
    """Required half-width of the interval of a `=?`, as a fraction of the range of its outcome."""
    error_alpha: Rate = 0.05
    """Probability that a reported interval misses the true value."""
    limit: Positive = 20_000
    """Maximum number of samples of a quantity; if it does not suffice, the verdict is undecided."""
    rewards: tuple[float, float] | None = None
    """Smallest and largest reward of a step, for models that cannot be enumerated."""
    test: TestName = "betting"
    """How values are compared with thresholds. `betting`: `alpha` and `beta` hold for every model (outside a stream, a
    `P` alone uses Wald's test, whose rates hold too). `paper`: as in the paper; for `R` and `delta(..)` a sequential
    t-test, whose rates are nominal.
    """


class BandSettings(msgspec.Struct, frozen=True):
    """How the bands of a learned model are computed; `monitor.evaluation` checks it."""

    draws: Annotated[int, Meta(ge=1, le=10_000)] = 64
    """Number of models drawn from the posterior; the answer is evaluated exactly on each, twice: with what was never
    observed as bad, and as good, as can be. In a world with numbers: the most of its fits that are used.
    """
    seed: Annotated[int, Meta(ge=0, le=(1 << 53) - 1)] = 0
    """Seed of the draws: the same seed draws the same models."""
    level: Rate = 0.95
    """Probability that the band contains the value of the true model, if that is distributed as the posterior says."""
    delta: Rate = 0.05
    """Probability that the guaranteed band misses, for all answers together."""
    doubt: str = ""
    """Why the model cannot be relied on where it says that handing over does not suffice, or that carrying on does;
    empty if it can. `cfmon init` writes what it found wrong with the model. It counts where verdicts have bands.
    """


class FormulaSpec(msgspec.Struct, frozen=True, eq=False):
    """One formula to monitor.

    `labels`, `actions`, `recourse` and the alarm's `runbook` do not count when two are compared.

    >>> FormulaSpec("f", "true", every=1) == FormulaSpec("f", "true", every=1.0)
    False
    """

    name: str
    """Name in topics, metrics and alarms."""
    text: str
    """The formula, in the formula language."""
    every: int | float = 1
    """Answered after so many steps (a whole number) or after this duration (in Python: seconds, as a float)."""
    causal_model: CausalModel = "gumbel"
    """Class of causal models for bounds beside the Gumbel-Max value: `any`, or the counterfactually `stable` ones."""
    alarm: AlarmSpec = msgspec.field(default_factory=AlarmSpec)
    """When its verdicts become an alarm."""
    engine: Engine = "auto"
    """`auto`: exact where the formula allows it, else sampled."""
    labels: tuple[tuple[str, str], ...] = ()
    """Pairs of a label and the words for it in sentences."""
    actions: tuple[tuple[str, str], ...] = ()
    """Pairs of an action and the words for it in sentences: by its name in the model, or its number if it has none."""
    bands: BandsWhen = "auto"
    """On a model learned from data, which verdicts get a credible band and their support. `auto`: those that miss the
    goal, and all while the alarm is pending or fires; `always`, `off`.
    """
    recourse: RecourseWhen = "auto"
    """Which missed goals of `regret(...)` are examined: whether other decisions could have met them, and how few.
    `auto`: those while the alarm is pending or fires; `always`, `off`.
    """

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FormulaSpec) and self._content() == other._content()

    def __hash__(self) -> int:
        return hash(self._content())

    def _content(self) -> tuple[object, ...]:
        """Return all that changes an alarm: `every` with its type, no words, no `recourse` and no `runbook`."""
        query = self.name, self.text, self.every, type(self.every), self.causal_model, self.engine, self.bands
        return *query, msgspec.structs.replace(self.alarm, runbook=None)


class StreamSettings(msgspec.Struct, frozen=True):
    """Limits of the stream. Durations in seconds."""

    window: Positive = 64
    """Number of steps held of each agent; the oldest is dropped first."""
    reorder_steps: int = 256
    """Maximum number of later steps that wait for a missing one before it counts as lost."""
    reorder_wait: float = 0.5
    """Maximum time that they wait."""
    stale_after: float = 5.0
    """Silence in mid-episode after which an agent's formulas are marked `stale`; steps may wait as long for answers."""
    idle_after: float = 900.0
    """Silence between episodes after which an agent's formulas are marked `idle`: it has finished, or it has failed."""
    forget_after: float = 3600.0
    """Silence after which an agent is forgotten, with its alerts and series."""
    max_lag: float = 2.0
    """Alarms on older steps are marked `late`. If more steps come than can be answered, and have waited half as long,
    answers are skipped.
    """
    agents: Positive = 1000
    """Maximum number of agents. Others are refused, counted and alerted, unless one that sent little and fell silent
    can be forgotten.
    """
    pending: Positive = 100_000
    """Maximum number of steps of one agent without an answer; beyond it, all of them are given up."""
    encoder: Literal["index", "name", "valuation", "bins", "nearest", "features"] = "index"
    """Form of the agents' states: numbers, names, values of variables, floats (and texts) that the model's bins sort or
    whose nearest centre counts, or the features of a world with numbers."""
    policies: Mapping[str, str] = {}
    """The known policies: digest of the ONNX file -> name. An agent that reports another digest is blind; if there are
    none, nothing that it reports is compared.
    """


class TrustSettings(msgspec.Struct, frozen=True):
    """The test of the model against the observed transitions; `monitor.statistics.model_betting` says how it works."""

    alpha: Rate = 0.001
    """Probability that a correct model is rejected, for each agent and for all together."""
    impossible: Annotated[float, Meta(gt=0, le=0.005)] = 0.0001
    """Fraction of the steps that may contradict a correct model, such as a sensor's glitches."""
    enabled: bool = True
    """If false, the model is not tested."""
    acknowledged: Mapping[str, str] = {}
    """Agent, or `*` for all: why its rejection is settled. A new or changed text restarts the test, also on reload."""


# ---- what is observed ----


class Observation(msgspec.Struct, frozen=True, gc=False):
    """One decoded message, before ordering and encoding.

    `agent` comes from the topic, never from the payload. `action` is None only where the agent sent none, which is
    allowed in the last message of an episode. `time`: the agent's clock, seconds since the epoch. `reward`: what the
    transition into this state earned. `policy`: sha256 of the policy the agent says it runs. `inputs`: recorded
    inputs of a world with numbers. `observation`: in place of `state`, which is None then, where the model has hidden
    states; None: the sensor said nothing. In Python numbers and arrays of numpy count as numbers and lists.
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


NO_EXTREMES: Final = "no extremes"
"""How `Bands.reason` begins for a quantity of unknown value that has no least and greatest one."""
UNRECORDED: Final = "what was never recorded decides it"
"""Reason of an undecided verdict of the exact engine that more recordings could decide."""
UNEXAMINED: Final = "other decisions are examined only where the state is seen and policies remember nothing"
"""Reason of an unknown recourse where states are hidden or policies remember."""
MOST_BELIEVED: Final = 5
"""States of the belief that a verdict names."""
UNKNOWN_POLICY: Final = ""
"""In place of the name of a policy that acted: it is not among the configured ones, so nobody has its table."""
BELIEF_DIGITS: Final = 9
"""Decimals by which the likeliest states are ordered, so that rounding does not choose among equal ones."""


class Step(msgspec.Struct, frozen=True, tag=True, gc=False):
    """One step of the path, in order, as the model has it: indices, or numbers.

    `time`: seconds since the epoch. `late`: older than `max_lag` on arrival. `foreign`: the agent ran a policy that is
    not among the configured ones. `policy`: the name of the one that acted, UNKNOWN_POLICY if it is not known.
    `inputs`: recorded inputs, in a world with numbers. Where states are hidden `state` is the observation, None if
    there was none, and `inputs` the belief before it (`monitor.hidden.filtering`).
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
    """An interruption of the path before the next step, with its reason; what lies between is unknown.

    `unrecorded`: the model is learned, and the newest pair of the path led to what was never recorded after it.
    `unpredicted`: it led where the model gives probability 0. `failed`: the code of a world with numbers failed, which
    says nothing about its truth.
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
    """What a value on a learned model rests on, in the world it is of."""

    steps: int
    """Recorded steps of the pairs (state, action) that it uses; those that a world with numbers was learned from."""
    rare: float | None
    """Fraction of its expected uses that are of pairs recorded fewer than 5 times; `null` in a world with numbers."""
    never: float
    """Probability of coming to a pair that was never recorded before the value is decided; in a world with numbers the
    fraction of draws that take an action outside the numbers at which it was recorded.
    """


class Quantity(msgspec.Struct, frozen=True, gc=False):  # no cycles: the garbage collector need not look at it
    """One probability or expected reward of a formula (outside all brackets), and how it was obtained."""

    text: str
    """The quantity in the formula language."""
    value: float
    """The Gumbel-Max answer; if sampled, the mean of the samples."""
    offset: int
    """The offset used, in the convention of the formula (`@5`, `@-1`)."""
    clipped: bool
    """The path of n pairs is too short for the formula's offset, which was clipped to [-(n-1), n-1]."""
    bounds: tuple[float, float] | None = None
    """Smallest and largest value over the class of causal models; if sampled, a confidence interval at the level
    `confidence`.
    """
    threshold: float | None = None
    """The bound it is compared with; `null` for `=?`."""
    holds: bool | None = None
    """True if the comparison holds; `null` for `=?`, if samples left it undecided, and if it holds at one of the
    `extremes` only.
    """
    robust: bool | None = None
    """True if no causal model of the class changes `holds`, or no model in the guaranteed band if there is one; `null`
    without bounds.
    """
    samples: int = 0
    """Number of samples; left out of an exact answer."""
    confidence: float | None = None
    """Level of the confidence interval, in (0, 1); left out of an exact answer."""
    credible: tuple[float, float] | None = None
    """On a learned model: the Gumbel-Max value over models drawn from the posterior, in which what was never observed
    is as bad and as good as can be, at the level of the verdict's `bands`; in a learned world with numbers the value
    over its fits; left out otherwise.
    """
    guaranteed: tuple[float, float] | None = None
    """On a learned model: bounds over every causal model and every row in the confidence set; left out otherwise."""
    extremes: tuple[float, float] | None = None
    """On a learned model with pairs (state, action) that were never recorded: the value with what they lead to as bad,
    and as good, as can be, all else as estimated; left out otherwise.
    """
    support: int | None = None
    """On a learned model: the fewest visits among the rows that carry 90 % of the answer; left out otherwise."""
    rests_on: RestsOn | None = None
    """On a learned model: what the value rests on; of a difference of two worlds, in the first of them. In a world with
    numbers where the goal is missed, and of `handover(...)`: the value if handed over now. Left out otherwise.
    """


class Drawn(msgspec.Struct, frozen=True):
    """How a sampled verdict was drawn: together with the path, enough to draw it again."""

    sampling: Sampling
    """Settings of the sampling."""
    seed: int
    """Seed of this verdict's noise."""
    first: int
    """The seq of the first step of its path."""
    alpha: float
    """Probability of a false alarm allowed for the whole formula."""
    beta: float
    """Probability of a miss allowed for the whole formula."""
    test: int = 0
    """Number of the test in its stream, from 1; 0: not on a stream."""


class Bands(msgspec.Struct, frozen=True):
    """How the bands of a learned model were obtained: together with the path, enough to compute them again."""

    draws: int = 0
    """Number of posterior models for the credible band; 0: none was requested, or it is that of a world."""
    seed: int = 0
    """Seed they were drawn with."""
    level: float | None = None
    """Level of the credible band, in (0, 1); `null` if none was requested. In a world with numbers a lower one, if its
    fits are too few for the configured one.
    """
    delta: float | None = None
    """Probability with which the guaranteed band may fail, for all answers together; `null` without one."""
    reason: str = ""
    """Why a band or the support is missing, or fits have no answer; empty if none is."""
    fits: int = 0
    """In a learned world with numbers: number of its fits to resampled recordings, behind the credible band."""
    doubt: str = ""
    """Why the model cannot be relied on where it denies something, as configured; empty if it can."""


class Changes(msgspec.Struct, frozen=True):
    """The fewest decisions whose change meets a missed goal, with the first of them: up to it nothing is different.

    They are chosen in hindsight: with what the observed path says about the noise.
    """

    count: int
    """Number of changed decisions; all others are unchanged."""
    value: float
    """Value with these changes."""
    offset: int
    """Of the first changed decision: how many steps before the newest one; 0: the newest."""
    state: State
    """The state in which it was made."""
    taken: int | None
    """The action taken; `null`: none yet."""
    proposed: int
    """The action to take instead."""
    taken_name: str = ""
    """Its name in the model; empty if actions have none."""
    proposed_name: str = ""
    """Likewise."""
    samples: int = 0
    """Draws of which the value is the mean; left out if it is exact."""


class Recourse(msgspec.Struct, frozen=True):
    """Whether a missed goal could have been met by other decisions, from the intervention on.

    The values are exact, by the Gumbel-Max causal model, except in a world with numbers, where noise may be drawn and
    only one changed decision at a time is tried. docs/semantics.md, section 14.3.
    """

    avoidable: Avoidable | None = None
    """`foresight`: the policy that is best without hindsight meets the goal; `hindsight`: only the best decisions in
    hindsight do; `no`: none do. `null`: not known, for the `reason`.
    """
    robust: bool | None = None
    """True if no causal model of the requested class changes `avoidable`; `null` if none was requested, or not known.
    """
    best: float | None = None
    """Value of the best decisions in hindsight: no policy has a better one."""
    optimal: float | None = None
    """Value of the policy that is best without hindsight."""
    changes: Changes | None = None
    """The fewest changes that meet the goal; `null` if three are not enough, or if it could not be met."""
    reason: str = ""
    """Why something is not known; empty if all is."""


class Verdict(msgspec.Struct, frozen=True, gc=False):
    """Answer to one formula on one path.

    Exactly one of `value` (for `=?`), `holds` (for a truth value) and `outcome` (for `regret`) is set; an undecided
    truth value has none of them, and `reason` says why.
    """

    formula: str
    """The formula's text."""
    method: Literal["exact", "sampled"]
    """Exact: computed; sampled: estimated from samples, with error rates."""
    causal_model: CausalModel
    """Class of causal models for the bounds; `gumbel`: no bounds; `world`: the world's own, without bounds."""
    quantities: tuple[Quantity, ...]
    """Every probability and expected reward of the formula; of `regret` nominal first, then the alternative."""
    value: float | None = None
    """Value of a `=?`, under the Gumbel-Max causal model."""
    holds: bool | None = None
    """Truth value of a formula that has one."""
    outcome: Outcome | None = None
    """Outcome of `regret(...)`."""
    bounds: tuple[float, float] | None = None
    """Bounds of the only quantity; of `regret` those of the alternative. If sampled, a confidence interval."""
    robust: bool | None = None
    """True if no causal model of the class changes the answer; `null` without bounds. With a guaranteed band (or where
    one was due and cannot be had): true if no model in that changes it.
    """
    effect: float | None = None
    """Of `regret`: value under the alternative minus value under nominal."""
    effect_bounds: tuple[float, float] | None = None
    """Bounds of the effect."""
    profile: Mapping[int, tuple[float, float]] = msgspec.field(default_factory=dict)
    """Offset -> (value under nominal, value under the alternative), each from its own starting point. Of
    `handover(F, Q, h)`: the values of Q under nominal and under F, at offset 0.
    """
    latest_useful: int | None = None
    """Smallest offset at which the alternative meets the threshold and nominal does not; `null` if there is none. Of
    `handover(F, Q, h)`: 0 if F meets Q now. Where `profile_extremes` is given, both are taken at their worst.
    """
    offset: int = 0
    """Offset used, in steps."""
    clipped: bool = False
    """The path of n pairs is too short for the formula's offset, which was clipped to [-(n-1), n-1]."""
    start_dropped: bool = False
    """The episode's start is no longer held, so `@-k` counts from the oldest pair of the path."""
    reason: str = ""
    """Why it is undecided, or why the engine differs from the one configured."""
    drawn: Drawn | None = None
    """How it was drawn, if sampled; left out of an exact answer."""
    credible: tuple[float, float] | None = None
    """Credible band of the only quantity; of `regret` that of the alternative. This and the following fields are of
    learned models and left out otherwise.
    """
    guaranteed: tuple[float, float] | None = None
    """Guaranteed band of the only quantity; of `regret` that of the alternative."""
    effect_credible: tuple[float, float] | None = None
    """Credible band of the effect: of its values over the posterior models, not a difference of bands."""
    effect_guaranteed: tuple[float, float] | None = None
    """Guaranteed band of the effect: the difference of the bands."""
    support: int | None = None
    """Smallest support of its quantities; `null` if no learned row matters."""
    to_visit: tuple[tuple[int, int], ...] = ()
    """Up to three pairs (state, action) whose visits would narrow the credible band most, the best first."""
    bands: Bands | None = None
    """How the bands were obtained."""
    recourse: Recourse | None = None
    """Of `regret(...)` whose goal is missed: whether other decisions could have met it; left out otherwise, and where
    it was not examined.
    """
    profile_extremes: ProfileExtremes = ()
    """Of the values in `profile`, from offset 0 on: least and greatest under nominal, least and greatest under the
    alternative (`Quantity.extremes`); left out where there are none.
    """
    credible_now: tuple[float, float, float, float] | None = None
    """On a learned model: credible bands of the values in `profile` at offset 0, under nominal and under the policy or
    action that is handed over to; left out otherwise.
    """
    tiers: tuple[Tier, ...] = ()
    """In a world with numbers: what is known of the noise of the held steps it rests on; left out otherwise."""
    resampled_from: int | None = None
    """In a world with numbers: number of recorded steps from which the inputs beyond those of the path are drawn, where
    what was drawn depends on them; left out otherwise.
    """
    belief: Mapping[int, float] | None = None
    """Where states are hidden: the likeliest ones now, state -> probability given all that was observed; left out
    otherwise.
    """
    evidence: float | None = None
    """Where states are hidden: probability of all that was observed on the path; left out otherwise."""
    likely: Mapping[str, float] | None = None
    """Where states are hidden: label -> probability that it holds now, given all that was observed; left out
    otherwise.
    """
    unseen: int | None = None
    """Where states are hidden: steps of the path at which nothing was seen; left out otherwise."""


# ---- notices: results of the monitor; each sink uses those that concern it ----


class Received(msgspec.Struct, frozen=True, gc=False):
    """Result of one message. `lag`: receive time minus the agent's time, in seconds; None if the agent sent none."""

    agent: str
    result: MessageResult
    reason: str = ""
    detail: str = ""
    lag: float | None = None


class Judged(msgspec.Struct, frozen=True, gc=False):
    """Verdict on a formula for an agent at a step. `time`: of the step, seconds since the epoch."""

    agent: str
    formula: str
    verdict: Verdict
    episode: Episode
    seq: int
    time: float
    late: bool = False


class Blind(msgspec.Struct, frozen=True):
    """A formula became blind for an agent, or sees again (`reason` None). Sent on change only."""

    agent: str
    formula: str
    reason: BlindReason | None
    detail: str = ""


class AlarmMoved(msgspec.Struct, frozen=True):
    """State of a formula's alarm: `clear`, `pending` or `firing`. Sent on change only."""

    agent: str
    formula: str
    state: AlarmState


class Threshold(msgspec.Struct, frozen=True):
    """Threshold a value is compared with."""

    comparison: Literal["<", "<=", ">=", ">"]
    """Relation of value to bound under which the formula holds."""
    bound: float
    """A probability in [0, 1], or an expected reward."""


class Alternative(msgspec.Struct, frozen=True, omit_defaults=True):
    """The intervention of a regret formula, with its value."""

    name: str
    """The intervention as the formula writes it: a policy, `do(action)`, `model:name`, or decisions made for the goal:
    `best`, `best[k]`, `best[<=k]`, `max`, `min`, `optimal`.
    """
    value: float | None
    """Value under the intervention, by the Gumbel-Max causal model."""
    bounds: tuple[float, float] | None
    """Smallest and largest value over the class of causal models; of a sampled verdict a confidence interval."""
    extremes: tuple[float, float] | None = None
    """Least and greatest value, whatever pairs that were never recorded lead to; left out if there are none."""


class Handover(msgspec.Struct, frozen=True, omit_defaults=True):
    """Effect of handing over control, as of the newest step."""

    policy: str
    """What to hand over to, as the formula writes it: a policy, or `do(action)`."""
    helps_now: bool | None
    """True if handing over now meets the goal and carrying on does not; of `handover(...)`, if handing over now meets
    the goal: it is not too late; of a comparison of `delta(policy,nominal)@0`, if it holds. `null`: not known (while
    blind, by a sampled or undecided verdict, and where what was never recorded decides whether it meets the goal). On
    a learned model false only where the credible band excludes the opposite and nothing is known against the model.
    """
    latest_useful: int | None
    """Smallest number of steps ago at which handing over would have helped; 0: now. `null`: never, or not known. Of
    `handover(...)` and `delta(...)`, 0 or `null`.
    """
    extremes: tuple[float, float] | None = None
    """Least and greatest value of handing over now, whatever pairs that were never recorded lead to; left out if there
    are none.
    """
    credible_now: tuple[float, float] | None = None
    """On a learned model: credible band of the value of handing over now; left out otherwise."""


class Figures(msgspec.Struct, frozen=True):
    """Numbers of a verdict, with one meaning in alerts, metrics, page and terminal.

    `value`: under the nominal policy; of a plain formula with an intervention (`fallback@5.P>=0.9 [..]`) under that.
    None, like `bounds`, for a formula of several quantities. `handover` is None if there is no advice. `extremes`: of
    the value.
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

    `verdict` is the newest one, `figures` its numbers, `fired` those on which the alarm fired. `seq`, `time`: step of
    the verdict. `first_seq`, `since`: step and time of the first verdict of the breach; seconds since the epoch.
    `path`: (state, action) pairs of the verdict's path, `acted`: the policies that acted at them (none: always
    nominal), `inputs`: the recorded inputs (none: the model has none), for the evidence; not published.
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
    """Newer verdict of a firing alarm that makes no new revision; the next heartbeat publishes it.

    `monitor.alarm.refresh` derives the alert from it. `pairs`: length of the verdict's path.
    """

    judged: Judged
    spec: FormulaSpec
    pairs: int


class OffPolicy(msgspec.Struct, frozen=True):
    """An action of the agent that the nominal policy never takes in that state."""

    agent: str


class Deviates(msgspec.Struct, frozen=True):
    """Deviation of the agent from the nominal policy; sent when it has changed by 0.01.

    `share`: fraction of its last `steps` steps, 0 to 1, whose actions the nominal policy would not have taken, beyond
    what its randomness explains (`monitor.statistics.deviation`).
    """

    agent: str
    share: float
    steps: int


class RewardMismatch(msgspec.Struct, frozen=True):
    """A reported reward that differs from the model's for the same transition.

    `detail`: the transition and both rewards. Path and verdicts do not depend on it.
    """

    agent: str
    detail: str


class Skipped(msgspec.Struct, frozen=True):
    """`count` due answers of a formula were skipped; the path is complete all the same.

    An alarm that only those answers would have raised was not raised.
    """

    agent: str
    formula: str
    count: int


class Ended(msgspec.Struct, frozen=True):
    """End of an agent's episode; its values are undefined until the next one begins."""

    agent: str
    episode: Episode


class Forgotten(msgspec.Struct, frozen=True):
    """An agent was silent for `forget_after`; all that is kept or shown under its name can be deleted.

    `silent`: seconds since its last message. `open`: its episode had not ended.
    """

    agent: str
    silent: float = 0.0
    open: bool = False


class Departing(msgspec.Struct, frozen=True):
    """A transition observed more often than the model predicts.

    `seen`: its count in the last `of` steps from `state` by `action`; `expected`: the count the model predicts. In
    a world with numbers `state` is a feature's range, and `successor` a part of its noise.
    """

    state: int | str
    action: int | str
    successor: int | str
    seen: int
    of: int
    expected: float


class Trust(msgspec.Struct, frozen=True):
    """Result of the test of the model; sent when `doubted` changes, and from time to time.

    `doubted`: the observed transitions contradict the model. `log10_e`: log10 of the e-value against it (0: none,
    3: a thousand to one). `transitions`: number tested. `agent`: whose transitions; empty: all agents together.
    `departing`: if doubted, the transitions with the most evidence against the model, beside impossible steps.
    """

    doubted: bool
    log10_e: float
    transitions: int
    agent: str = ""
    departing: tuple[Departing, ...] = ()


class WrongRow(msgspec.Struct, frozen=True):
    """A row of the model that is rejected, and the next state whose frequency differs most from its probability.

    `state`, `action`, `successor`: by name, or by number where the model has no names. `seen`: steps to `successor`
    among the newest `visits` counted. `probability`: of `successor` in the model. `impossible`: visits that led where
    the row gives probability 0. `log10_e`: log10 of the e-value against the row.
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
    """An agent that does not follow the model. `log10_e`: log10 of the e-value, valid at any time."""

    agent: str
    log10_e: float


class Contradictions(msgspec.Struct, frozen=True):
    """Rows of the model, and agents, that are rejected; at most a fraction .05 of either is expected to be right.

    Sent when they change, or the evidence against them does. `rows`, `agents`: those with the strongest evidence first,
    at most ten of either. `rows_rejected`, `agents_rejected`: number of all. `rows_tested`: rows that can be rejected;
    0 if none is tested.
    """

    rows: tuple[WrongRow, ...] = ()
    agents: tuple[WrongAgent, ...] = ()
    rows_rejected: int = 0
    agents_rejected: int = 0
    rows_tested: int = 0


class Forecast(msgspec.Struct, frozen=True):
    """Outcome of a followed forecast: it came true, or did not, or was dropped (None).

    `value`: the forecast probability, in [0, 1], that the agent's own future satisfies the path formula.
    """

    agent: str
    formula: str
    value: float
    came_true: bool | None


class TakenOver(msgspec.Struct, frozen=True):
    """A takeover, judged by the goal of a formula when the goal's horizon has passed.

    `policy`: the one that took over, at step `first_seq`, at time `since` (seconds since the epoch). `seq`, `time`: the
    step at which it was judged; if it is undecided, that of the takeover. `reason`: why it is undecided. `verdict`: two
    quantities, what happened and what the deployed policy would have done; None if undecided. `path`: the pairs from
    the takeover on, `acted`: the policies that acted there, `inputs`: those recorded there, if the model has any.
    `evidence`: id of the evidence, if it is kept.
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

    `bins`: per tenth of [0, 1] number of forecasts, their sum, number that came true; empty: no forecasts.
    `squared`: sum of the squared errors. `expected`: its expectation if the forecasts are calibrated. `dropped`: number
    without a known outcome.
    """

    bins: tuple[tuple[int, float, int], ...] = ()
    squared: float = 0.0
    expected: float = 0.0
    dropped: int = 0


class Calibrated(msgspec.Struct, frozen=True):
    """Counts of the followed forecasts of a formula, those of earlier processes included.

    `agent`: whose forecasts; empty: all agents together, forgotten ones included.
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
