"""The values that packages exchange.

All are frozen and cheap to make, because several are made at each message. Times are seconds: `wall` since the epoch,
`ticks` on a monotonic clock. Probabilities are in [0, 1]. The order below is that of the route: a message becomes an
`Observation`, then a `Step`, then (on the held path) a `Verdict`, then an `Alert`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

__all__ = [
    "AlarmMoved",
    "AlarmSpec",
    "AlarmState",
    "Alert",
    "Alternative",
    "Blind",
    "BlindReason",
    "Break",
    "Calibrated",
    "Calibration",
    "CausalModel",
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
    "Quantity",
    "RawState",
    "Received",
    "Refreshed",
    "RewardMismatch",
    "Sampling",
    "Skipped",
    "Step",
    "StreamSettings",
    "TestName",
    "Threshold",
    "Trust",
    "TrustSettings",
    "Verdict",
    "Wait",
]

Episode = str | int
RawState = int | str | tuple[float | str | bool, ...]
"""A state as the agent sends it; the model's state encoder turns it into an index."""

BlindReason = Literal[
    "gap",
    "stale",
    "conflict",
    "impossible_step",
    "unknown_state",
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
"""Why a formula cannot be evaluated now, or why its result is flagged. Each value needs a row in docs/blindness.md;
the tests check this.
"""

AlarmState = Literal["clear", "pending", "firing", "resolved", "ended", "removed"]
"""`clear`, `pending`, `firing` are states of an alarm; `resolved`, `ended`, `removed` say how a firing one closed."""

Outcome = Literal["safe", "regret", "unavoidable", "undecided"]
CausalModel = Literal["gumbel", "any", "stable"]
Engine = Literal["auto", "exact", "sampled"]
"""How a formula is evaluated; `auto`: exactly if possible, else by sampling."""

TestName = Literal["betting", "paper"]
"""The tests by which sampled values are compared with bounds."""

MessageResult = Literal["accepted", "duplicate", "stale", "conflict", "gap", "rejected", "dropped"]


class Instant(msgspec.Struct, frozen=True):
    """Reading of both clocks. `wall`: seconds since the epoch. `ticks`: seconds, monotonic, arbitrary zero."""

    wall: float
    ticks: float


class AlarmSpec(msgspec.Struct, frozen=True):
    """Rule by which verdicts raise an alarm. `for_`, `keep`: verdicts in a row before firing, before resolving (>= 1).

    `when`: for a plain formula `fails` or `holds`; for `regret(...)` `regret`, or `unavoidable` to fire on that too.
    `step`: a firing alarm is published again when its value has changed by more than this since it was last published.
    """

    for_: int = 1
    keep: int = 1
    severity: str = "warning"
    runbook: str | None = None
    when: Literal["fails", "holds", "regret", "unavoidable"] | None = None
    step: float = 0.05


class Sampling(msgspec.Struct, frozen=True):
    """Settings of sampled evaluation; `monitor.engine.check_sampling` checks their ranges."""

    seed: int = 0
    """Seed of all noise, 0 to 2**53 - 1."""
    alpha: float = 0.01
    """Probability of a false alarm: the answer *false* or *regret* where it is wrong. On a stream it bounds the
    probability of any wrong firing answer among all verdicts of one formula on one agent.
    """
    beta: float = 0.01
    """Probability of the opposite error, for one verdict."""
    delta: float = 0.01
    """Half-width of the indifference region around a bound, as a fraction of the range of one sample: of 1 for a `P`.
    `betting` on a stream has no such region.
    """
    deviation: float = 0.1
    """The same for `R` and for `delta(..)` with the test `paper`, in standard deviations of one sample."""
    error: float = 0.02
    """Requested half-width for a `=?`, as a fraction of the same range."""
    error_alpha: float = 0.05
    """Probability that a reported interval misses the true value."""
    limit: int = 20_000
    """Maximal number of samples of a quantity; if it is still open then, it is undecided."""
    rewards: tuple[float, float] | None = None
    """The smallest and the largest reward of a step, for models that cannot be enumerated."""
    test: TestName = "betting"
    """How values are compared with bounds. `betting`: alpha and beta hold for every model (a single `P` is decided by
    Wald's test, whose rates hold too). `paper`: the paper's tests; for `R` and `delta(..)` a sequential t-test, whose
    rates are nominal.
    """


class FormulaSpec(msgspec.Struct, frozen=True, eq=False):
    """Formula to monitor. `every`: an int counts steps, a float is a duration in seconds on the monotonic clock.

    `labels`: label -> words for it in sentences, as pairs. Neither they nor the alarm's `runbook` change the query, so
    a comparison of two formulas ignores them.

    >>> FormulaSpec("f", "true", every=1) == FormulaSpec("f", "true", every=1.0)
    False
    """

    name: str
    text: str
    every: int | float = 1
    causal_model: CausalModel = "gumbel"
    alarm: AlarmSpec = msgspec.field(default_factory=AlarmSpec)
    engine: Engine = "auto"
    labels: tuple[tuple[str, str], ...] = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FormulaSpec) and self._content() == other._content()

    def __hash__(self) -> int:
        return hash(self._content())

    def _content(self) -> tuple[object, ...]:
        """Return the parts that change verdicts: `every` with its type, neither `labels` nor `runbook`."""
        query = self.name, self.text, self.every, type(self.every), self.causal_model, self.engine
        return *query, msgspec.structs.replace(self.alarm, runbook=None)


class StreamSettings(msgspec.Struct, frozen=True):
    """Limits and waiting times of the stream. Durations in seconds, counts in steps or agents.

    `pending`: maximal number of steps of one agent waiting for evaluation; beyond it, all of them are given up.
    `nominal_sha256`: of the configured nominal policy's ONNX file, compared with the `policy` an agent sends.
    """

    window: int = 64
    reorder_steps: int = 256
    reorder_wait: float = 0.5
    stale_after: float = 5.0
    idle_after: float = 900.0
    forget_after: float = 3600.0
    max_lag: float = 2.0
    agents: int = 1000
    pending: int = 100_000
    encoder: Literal["index", "name", "valuation", "bins"] = "index"
    nominal_sha256: str | None = None


class TrustSettings(msgspec.Struct, frozen=True):
    """Settings of the test of the model against observed transitions (`monitor.statistics.model_test`).

    `alpha`: the probability that a correct model is ever rejected. `impossible`: the fraction of steps that may have
    probability 0 although the model is correct (a sensor glitch). `acknowledged`: agent -> why its test was restarted,
    `*` for all; a new or changed entry restarts it.
    """

    alpha: float = 0.001
    impossible: float = 0.0001
    enabled: bool = True
    acknowledged: Mapping[str, str] = {}


class Observation(msgspec.Struct, frozen=True):
    """Decoded message, not yet ordered or mapped to the model.

    `agent` comes from the topic, never from the payload. `action` is None only if the agent sent none, which is
    allowed in the last message of an episode. `time`: the agent's clock, seconds since the epoch. `reward`: of the
    transition into this state. `policy`: sha256 of the policy that the agent runs.
    """

    agent: str
    episode: Episode
    seq: int
    state: RawState
    action: int | str | None = None
    time: float | None = None
    reward: float | None = None
    terminated: bool = False
    truncated: bool = False
    policy: str | None = None


class Step(msgspec.Struct, frozen=True, tag=True):
    """Step of the path, in order, in the model's indices.

    `late`: older than `max_lag` when it arrived. `foreign`: the agent ran another policy than the nominal one.
    """

    episode: Episode
    seq: int
    state: int
    action: int | None
    time: float
    late: bool = False
    foreign: bool = False


class Break(msgspec.Struct, frozen=True, tag=True):
    """Interruption of the path before the next step, with its reason."""

    reason: BlindReason
    detail: str


class End(msgspec.Struct, frozen=True, tag=True):
    """End of the episode. `terminated`: the last state is absorbing for the rest of every horizon."""

    episode: Episode
    terminated: bool


class Wait(msgspec.Struct, frozen=True):
    """A step is missing and may still come. `missing`: its seq. `held`: the number of later steps that wait for it."""

    missing: int
    held: int


class Quantity(msgspec.Struct, frozen=True):
    """Probability or reward of a formula (outside all brackets), and how it was obtained."""

    text: str
    """The query, in the formula language."""
    value: float
    """The Gumbel-Max value; if sampled, the mean of the samples."""
    offset: int
    """The offset used, in the convention of the formula (`@5`, `@-1`)."""
    clipped: bool
    """True if the offset was clipped because the path is too short."""
    bounds: tuple[float, float] | None = None
    """Bounds over every causal model of the requested class; if sampled, an interval that contains the true value with
    `confidence`.
    """
    threshold: float | None = None
    """The bound of the comparison; `null` for `=?`."""
    holds: bool | None = None
    """True if the comparison holds; `null` for `=?`, and if samples left it undecided."""
    robust: bool | None = None
    """True if no causal model of the class changes `holds`; `null` if not requested."""
    samples: int = 0
    """Number of samples; absent in an exact answer."""
    confidence: float | None = None
    """Confidence of the interval, if there is one; absent in an exact answer."""


class Drawn(msgspec.Struct, frozen=True):
    """Settings and seed of a sampled verdict; with the path, enough to draw it again."""

    sampling: Sampling
    """The settings."""
    seed: int
    """Seed of this verdict's noise."""
    first: int
    """The seq of the first pair of its path."""
    alpha: float
    """Probability of a false alarm at which the whole formula was tested."""
    beta: float
    """Probability of a miss at which the whole formula was tested."""
    test: int = 0
    """Its number among the tests of its stream, from 1; 0: a single query."""


class Verdict(msgspec.Struct, frozen=True):
    """Result of evaluating one formula on one path.

    Exactly one of `value` (for `=?`), `holds` (for a comparison) and `outcome` (for `regret`) is set. An undecided
    comparison has none of them, and `reason` says why.
    """

    formula: str
    """The formula's text."""
    method: Literal["exact", "sampled"]
    """How it was evaluated."""
    causal_model: CausalModel
    """The class of causal models of the bounds; `gumbel`: no bounds."""
    quantities: tuple[Quantity, ...]
    """Every probability and reward of the formula; for `regret` nominal first, then the alternative."""
    value: float | None = None
    """Value of a `=?` formula: always that of Gumbel-Max."""
    holds: bool | None = None
    """Truth of any other formula but `regret(...)`."""
    outcome: Outcome | None = None
    """Outcome of `regret(...)`."""
    bounds: tuple[float, float] | None = None
    """Bounds of the single quantity; for `regret` those of the alternative. If sampled, a confidence interval."""
    robust: bool | None = None
    """True if no causal model of the requested class changes the answer; `null` if not requested."""
    effect: float | None = None
    """Value under the alternative minus value under nominal, for `regret`."""
    effect_bounds: tuple[float, float] | None = None
    """Bounds of the effect."""
    profile: Mapping[int, tuple[float, float]] = msgspec.field(default_factory=dict)
    """Offset, value under nominal, value under the alternative; each from its own intervention state."""
    latest_useful: int | None = None
    """The smallest offset at which the outcome is `regret`."""
    offset: int = 0
    """The offset used."""
    clipped: bool = False
    """True if the offset was clipped because the path is too short."""
    start_dropped: bool = False
    """The episode's start is no longer held, so that `@-k` counts from the oldest pair of the path."""
    reason: str = ""
    """Why it is undecided, or was not evaluated as requested."""
    drawn: Drawn | None = None
    """Settings and seed, if sampled; otherwise absent."""


# ---- notices: the output of `Monitor`; each sink handles the kinds it needs ----


class Received(msgspec.Struct, frozen=True):
    """Result of one message. `lag`: seconds from the agent's `time` to its arrival; None if the agent sent no time."""

    agent: str
    result: MessageResult
    reason: str = ""
    detail: str = ""
    lag: float | None = None


class Judged(msgspec.Struct, frozen=True):
    """Verdict of a formula for an agent at a step. `time`: the step's time, seconds since the epoch."""

    agent: str
    formula: str
    verdict: Verdict
    episode: Episode
    seq: int
    time: float
    late: bool = False


class Blind(msgspec.Struct, frozen=True):
    """Change of blindness: a formula became blind for an agent (`reason`), or is no longer (`reason` None)."""

    agent: str
    formula: str
    reason: BlindReason | None
    detail: str = ""


class AlarmMoved(msgspec.Struct, frozen=True):
    """Change of an alarm's state to `clear`, `pending` or `firing`."""

    agent: str
    formula: str
    state: AlarmState


class Threshold(msgspec.Struct, frozen=True):
    """Comparison and bound for a value."""

    comparison: Literal["<", "<=", ">=", ">"]
    """How the value must compare with the bound for the formula to hold."""
    bound: float
    """A probability, or a reward."""


class Alternative(msgspec.Struct, frozen=True):
    """The intervention of a regret formula, and its value."""

    name: str
    """The intervention, as in the formula: a policy, `do(action)` or `model:name`."""
    value: float | None
    """The value under it, in the Gumbel-Max causal model."""
    bounds: tuple[float, float] | None
    """Bounds over every causal model of the requested class; of a sampled verdict a confidence interval."""


class Handover(msgspec.Struct, frozen=True):
    """Effect of handing over at the newest step."""

    policy: str
    """What to hand over to, as in the formula: a policy, or `do(action)`."""
    helps_now: bool | None
    """True if handing over now meets the threshold and continuing does not. `null`: not known (while blind, and for a
    sampled or undecided verdict).
    """
    latest_useful: int | None
    """The smallest offset at which handing over would have helped: 0 is now. `null`: none, or not known."""


class Figures(msgspec.Struct, frozen=True):
    """Numbers of a verdict, with one meaning in alerts, metrics, page and terminal.

    `value`: the agent's own; for a plain formula under one intervention (`fallback@5.P>=0.9 [..]`) the value under it.
    None, with `bounds`, for a formula of several quantities. `handover` is None if there is no advice.
    """

    value: float | None = None
    bounds: tuple[float, float] | None = None
    threshold: Threshold | None = None
    alternative: Alternative | None = None
    handover: Handover | None = None


class Fired(msgspec.Struct, frozen=True):
    """Summary of the verdict on which the alarm fired; the evidence proves this verdict."""

    outcome: Outcome | None
    """The outcome then."""
    value: float | None
    """The agent's own value then."""
    alternative: Alternative | None
    """The alternative then."""
    seq: int
    """The step at which it fired."""
    time: float
    """The time of that step, seconds since the epoch."""


class Alert(msgspec.Struct, frozen=True):
    """Published change of an alarm; `docs/messages.md` lists the fields of the message.

    `verdict`: the newest one. `figures`: its numbers. `fired`: those when the alarm fired. `path`: the held path of the
    verdict, for the evidence file; not published.
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
    path: tuple[tuple[int, int | None], ...]
    start_observed: bool
    terminated: bool


class Refreshed(msgspec.Struct, frozen=True):
    """Newer verdict of a firing alarm without a new revision; the next heartbeat publishes it.

    `monitor.alarm.refresh` makes the alert from it. `pairs`: the length of the verdict's path.
    """

    judged: Judged
    spec: FormulaSpec
    pairs: int


class OffPolicy(msgspec.Struct, frozen=True):
    """The agent took an action to which the nominal policy gives probability 0."""

    agent: str


class Deviates(msgspec.Struct, frozen=True):
    """Deviation of the agent's actions from the nominal policy; sent when it has changed by a hundredth.

    `share`: the fraction of its last `steps` steps on which nominal would have acted otherwise, beyond what chance
    explains (`monitor.statistics.deviation`), 0 to 1.
    """

    agent: str
    share: float
    steps: int


class RewardMismatch(msgspec.Struct, frozen=True):
    """The reward of a step contradicts the model's reward of the transition into its state.

    `detail`: the transition, its reward, and the model's. Path and verdicts do not depend on it.
    """

    agent: str
    detail: str


class Skipped(msgspec.Struct, frozen=True):
    """`count` due evaluations of a formula were skipped; the path is complete nevertheless.

    An alarm that only these evaluations would have raised was not raised.
    """

    agent: str
    formula: str
    count: int


class Ended(msgspec.Struct, frozen=True):
    """End of an agent's episode; its values have no meaning until the next one begins."""

    agent: str
    episode: Episode


class Forgotten(msgspec.Struct, frozen=True):
    """An agent has been silent for `forget_after`; sinks drop what they hold for it.

    `silent`: seconds since its last message. `open`: that was in the middle of an episode.
    """

    agent: str
    silent: float = 0.0
    open: bool = False


class Departing(msgspec.Struct, frozen=True):
    """Transition that was observed more often than the model predicts.

    `seen`: of the last `of` steps from `state` by `action`; `expected`: by the model.
    """

    state: int
    action: int
    successor: int
    seen: int
    of: int
    expected: float


class Trust(msgspec.Struct, frozen=True):
    """State of the test of the model; sent on a change of `doubted`, and periodically.

    `log10_e`: decimal logarithm of the e-value against the model (0 is no evidence, 3 a thousand to one).
    `transitions`: the number tested. `agent`: the agent tested; empty: all together. `departing`: if `doubted`, the
    transitions with the most evidence against the model, apart from impossible steps.
    """

    doubted: bool
    log10_e: float
    transitions: int
    agent: str = ""
    departing: tuple[Departing, ...] = ()


class Forecast(msgspec.Struct, frozen=True):
    """Outcome of a followed forecast; `came_true` is None if it was dropped.

    `value`: the forecast, the probability in [0, 1] that the agent's own future satisfies the path formula.
    """

    agent: str
    formula: str
    value: float
    came_true: bool | None


class Calibration(msgspec.Struct, frozen=True):
    """Counts of forecasts and their outcomes, as plain data; `monitor.statistics.calibration` makes and reads it.

    `bins`: for each tenth of [0, 1] the number of forecasts, their sum, how many came true; empty: none. `squared`: sum
    of the squared errors. `expected`: its expectation if each forecast is right. `dropped`: number of dropped ones.
    """

    bins: tuple[tuple[int, float, int], ...] = ()
    squared: float = 0.0
    expected: float = 0.0
    dropped: int = 0


class Calibrated(msgspec.Struct, frozen=True):
    """Current calibration of a formula, including counts restored from the store.

    `agent`: whose forecasts these are; empty: all agents together, including forgotten ones.
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
    | Forecast
    | Calibrated
)
