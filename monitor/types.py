"""Every value that crosses a border between rooms, on one screen.

All are frozen, and cheap to make, for several are made at each message. Times are seconds: `wall` since the epoch,
`ticks` on a monotonic clock. Probabilities lie in [0, 1]. The order below is the order of the route: a message becomes
an `Observation`, that a `Step`, that (on the held path) a `Verdict`, that an `Alert`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

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
"""Why a formula cannot be answered now, or why not to rely on its answer. Without a row in docs/blindness.md a value
here fails the tests.
"""

AlarmState = Literal["clear", "pending", "firing", "resolved", "ended", "removed"]
"""`clear`, `pending`, `firing` are where an alarm can be; `resolved`, `ended`, `removed` how a firing one closes."""

Outcome = Literal["safe", "regret", "unavoidable", "undecided"]
CausalModel = Literal["gumbel", "any", "stable"]
Rate = Annotated[float, Meta(gt=0, lt=1)]
Positive = Annotated[int, Meta(ge=1)]
Engine = Literal["auto", "exact", "sampled"]
"""How a formula is answered; `auto`: exactly where that fits, else by sampling."""

TestName = Literal["betting", "paper"]
"""By which tests sampled values are compared with bounds."""

MessageResult = Literal["accepted", "duplicate", "stale", "conflict", "gap", "rejected", "dropped"]


class Instant(msgspec.Struct, frozen=True):
    """One reading of both clocks. `wall`: seconds since the epoch. `ticks`: seconds, monotonic, arbitrary zero."""

    wall: float
    ticks: float


class AlarmSpec(msgspec.Struct, frozen=True):
    """When verdicts become an alarm, and what is published with it."""

    for_: Positive = 1
    """Number of consecutive bad verdicts that fire the alarm."""
    keep: Positive = 1
    """Number of consecutive good verdicts that resolve it."""
    severity: str = "warning"
    """Published with the alarm; the shipped alert rules know `warning` and `critical`."""
    runbook: str | None = None
    """Link published with the alarm: what to do. If absent, the monitor's own page of the runbook for its severity."""
    when: Literal["fails", "holds", "regret", "unavoidable"] | None = None
    """The bad answer; if absent, `regret` for `regret(...)`, else `fails`. `unavoidable`: fires on regret as well."""
    step: Annotated[float, Meta(ge=0)] = 0.05
    """While the alarm fires, a new revision is published when the value has moved by more than this since the last."""


class Sampling(msgspec.Struct, frozen=True):
    """Error rates and limits of sampled answers; `monitor.engine.check_sampling` checks them."""

    seed: Annotated[int, Meta(ge=0, le=(1 << 53) - 1)] = 0
    """Seed of all noise: the same seed draws the same samples."""
    alpha: Rate = 0.01
    """Probability of a false alarm: that a formula is called *false*, or *regret*, where it is not. On a stream it
    holds for all verdicts of one formula on one agent together, and counts the answer on which the alarm fires.
    """
    beta: Rate = 0.01
    """Probability of the opposite error, that a breach is missed, in one verdict."""
    delta: Rate = 0.01
    """Half-width of the region around a bound within which either answer will do, as a part of the range one world's
    outcome may have: of 1 for a `P`. `betting` on a stream has no such region.
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
    """The smallest and the largest reward of a step, for models that cannot be enumerated."""
    test: TestName = "betting"
    """How values are compared with bounds. `betting`: `alpha` and `beta` hold for every model (a `P` queried alone is
    decided by Wald's test, whose rates hold too). `paper`: the paper's tests; for `R` and `delta(..)` a sequential
    t-test, whose rates are nominal.
    """


class FormulaSpec(msgspec.Struct, frozen=True, eq=False):
    """One formula to watch. `labels` and the alarm's `runbook` do not count when two are compared.

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

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FormulaSpec) and self._content() == other._content()

    def __hash__(self) -> int:
        return hash(self._content())

    def _content(self) -> tuple[object, ...]:
        """What is asked and how, not in which words it is told: `every` with its kind, no `labels` and no `runbook`."""
        asked = self.name, self.text, self.every, type(self.every), self.causal_model, self.engine
        return *asked, msgspec.structs.replace(self.alarm, runbook=None)


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
    encoder: Literal["index", "name", "valuation", "bins"] = "index"
    """Form of the agents' states: numbers, names, values of variables, or floats that the model's bin edges sort."""
    nominal_sha256: str | None = None
    """Digest of the nominal policy's ONNX file; an agent that reports another is blind."""


class TrustSettings(msgspec.Struct, frozen=True):
    """The test of the model against the observed transitions; `monitor.statistics.model_test` says how it works."""

    alpha: Rate = 0.001
    """Probability that a correct model is rejected, for each agent and for all together."""
    impossible: Annotated[float, Meta(gt=0, le=0.005)] = 0.0001
    """Fraction of the steps that may contradict a correct model, such as a sensor's glitches."""
    enabled: bool = True
    """If false, the model is not tested."""
    acknowledged: Mapping[str, str] = {}
    """Agent, or `*` for all: why its rejection is settled. A new or changed text restarts the test, also on reload."""


class Observation(msgspec.Struct, frozen=True):
    """One decoded message, not yet ordered or matched with the model.

    `agent` comes from the topic, never from the payload. `action` is None only where the agent sent none, which is
    allowed in the last message of an episode. `time`: the agent's clock, seconds since the epoch. `reward`: what the
    transition into this state earned. `policy`: sha256 of the policy the agent says it runs.
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
    """One step of the path, in order, in the model's indices.

    `late`: older than `max_lag` when it arrived. `foreign`: the agent then ran another policy than the nominal one.
    """

    episode: Episode
    seq: int
    state: int
    action: int | None
    time: float
    late: bool = False
    foreign: bool = False


class Break(msgspec.Struct, frozen=True, tag=True):
    """The path is interrupted before the next step: what lies between is unknown, for this reason."""

    reason: BlindReason
    detail: str


class End(msgspec.Struct, frozen=True, tag=True):
    """The episode is over. `terminated`: the last state is absorbing for the rest of every horizon."""

    episode: Episode
    terminated: bool


class Wait(msgspec.Struct, frozen=True):
    """Not yet: a step is missing and may still come. `missing` is its seq, `held` how many later ones wait for it."""

    missing: int
    held: int


class Quantity(msgspec.Struct, frozen=True):
    """One probability or reward a formula asks for (outside all brackets), with how it was obtained."""

    text: str
    """What is asked, in the formula language."""
    value: float
    """The Gumbel-Max answer; if sampled, the mean of the samples."""
    offset: int
    """The offset used, in the convention of the formula (`@5`, `@-1`)."""
    clipped: bool
    """It is not the offset asked for: the path is too short."""
    bounds: tuple[float, float] | None = None
    """Over every causal model of the class asked for; if sampled, an interval that holds the true value with
    `confidence`.
    """
    threshold: float | None = None
    """What it is compared with; `null` for `=?`."""
    holds: bool | None = None
    """Whether the comparison holds; `null` for `=?`, and where samples left it undecided."""
    robust: bool | None = None
    """No causal model of the class changes `holds`; `null` where not asked."""
    samples: int = 0
    """How many were drawn; left out where none were."""
    confidence: float | None = None
    """Of the interval, if there is one; left out of an exact answer."""


class Drawn(msgspec.Struct, frozen=True):
    """How a sampled verdict was drawn: with the path, all it takes to draw it again."""

    sampling: Sampling
    """The settings."""
    seed: int
    """Of this verdict's noise."""
    first: int
    """The seq its path begins with."""
    alpha: float
    """Probability of a false alarm at which the whole formula was tested."""
    beta: float
    """Probability of a miss at which the whole formula was tested."""
    test: int = 0
    """Which test of its stream it was, from 1; 0: it was asked alone."""


class Verdict(msgspec.Struct, frozen=True):
    """The answer to one formula on one path.

    Exactly one of `value` (for `=?`), `holds` (for a truth) and `outcome` (for `regret`) is set; a truth that could
    not be decided has none of them, and `reason` says why.
    """

    formula: str
    """The formula's text."""
    method: Literal["exact", "sampled"]
    """How it was answered."""
    causal_model: CausalModel
    """Over which causal models bounds were asked: `gumbel` is none but Gumbel-Max."""
    quantities: tuple[Quantity, ...]
    """Every probability and reward the formula asks for; of `regret` nominal first, then the alternative."""
    value: float | None = None
    """Of `=?`: always the Gumbel-Max answer."""
    holds: bool | None = None
    """Of a truth."""
    outcome: Outcome | None = None
    """Of `regret(...)`."""
    bounds: tuple[float, float] | None = None
    """Of the one quantity there is; of `regret` those of the alternative. If sampled, a confidence interval."""
    robust: bool | None = None
    """No causal model of the class asked for changes the answer; `null` where not asked."""
    effect: float | None = None
    """Value under the alternative minus value under nominal, of `regret`."""
    effect_bounds: tuple[float, float] | None = None
    """Bounds of the effect."""
    profile: Mapping[int, tuple[float, float]] = msgspec.field(default_factory=dict)
    """Offset, value under nominal, value under the alternative: each measured from its own start."""
    latest_useful: int | None = None
    """The smallest offset at which the alternative still turns the outcome."""
    offset: int = 0
    """The offset used."""
    clipped: bool = False
    """It is not the offset asked for: the path is too short."""
    start_dropped: bool = False
    """The episode's start is no longer held, so that `@-k` counts from the oldest pair of the path."""
    reason: str = ""
    """Why it could not be decided, or not as asked."""
    drawn: Drawn | None = None
    """How it was drawn, if sampled; else left out."""


# ---- notices: what the monitor tells the world; each sink takes what concerns it ----


class Received(msgspec.Struct, frozen=True):
    """What became of one message. `lag`: seconds between the agent's clock and ours; None if the agent sent none."""

    agent: str
    result: MessageResult
    reason: str = ""
    detail: str = ""
    lag: float | None = None


class Judged(msgspec.Struct, frozen=True):
    """A formula was answered for an agent at a step. `time`: the step's time, seconds since the epoch."""

    agent: str
    formula: str
    verdict: Verdict
    episode: Episode
    seq: int
    time: float
    late: bool = False


class Blind(msgspec.Struct, frozen=True):
    """A formula went blind for an agent (`reason`), or sees again (`reason` None). Sent on change only."""

    agent: str
    formula: str
    reason: BlindReason | None
    detail: str = ""


class AlarmMoved(msgspec.Struct, frozen=True):
    """The alarm of a formula is now `clear`, `pending` or `firing`; sent on change only."""

    agent: str
    formula: str
    state: AlarmState


class Threshold(msgspec.Struct, frozen=True):
    """What a value is compared with."""

    comparison: Literal["<", "<=", ">=", ">"]
    """How the value must compare with the bound for the formula to hold."""
    bound: float
    """A probability, or a reward."""


class Alternative(msgspec.Struct, frozen=True):
    """The other world of a regret formula."""

    name: str
    """What is in force there, in the formula's words: a policy, `do(action)` or `model:name`."""
    value: float | None
    """The value there, under the Gumbel-Max causal model."""
    bounds: tuple[float, float] | None
    """What every causal model of the class asked for allows; of a sampled verdict a confidence interval."""


class Handover(msgspec.Struct, frozen=True):
    """What handing over would do, seen from the newest step."""

    policy: str
    """What to hand over to, in the formula's words: a policy, or `do(action)`."""
    helps_now: bool | None
    """Handing over now meets the threshold and carrying on does not. `null`: not known (while
    blind, and by a sampled or undecided verdict).
    """
    latest_useful: int | None
    """How many steps ago handing over would last have helped: 0 is now. `null`: at no step looked at, or not known."""


class Figures(msgspec.Struct, frozen=True):
    """What a verdict says in numbers, with one meaning in alerts, metrics, page and terminal.

    `value`: the agent's own; of a plain formula that asks about one other world (`fallback@5.P>=0.9 [..]`) the value
    there. None, with `bounds`, for a formula of several quantities. `handover` is None where there is no advice.
    """

    value: float | None = None
    bounds: tuple[float, float] | None = None
    threshold: Threshold | None = None
    alternative: Alternative | None = None
    handover: Handover | None = None


class Fired(msgspec.Struct, frozen=True):
    """What the verdict said on which the alarm fired; the evidence proves this one."""

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
    """A change of an alarm that is published; `docs/messages.md` lists the fields of the message.

    `verdict` is the newest one, `figures` what it says in numbers, `fired` what was said when the alarm fired. `path`:
    the held path the verdict was given on, for the evidence file; not published.
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
    """A firing alarm has a newer verdict that makes no new revision; the next heartbeat publishes it.

    `monitor.alarm.refresh` gives the alert that follows from it. `pairs`: of the path the verdict was given on.
    """

    judged: Judged
    spec: FormulaSpec
    pairs: int


class OffPolicy(msgspec.Struct, frozen=True):
    """The agent took an action that the nominal policy never takes there."""

    agent: str


class Deviates(msgspec.Struct, frozen=True):
    """How far the agent's actions depart from the nominal policy, where that has changed by a hundredth.

    `share`: of its last `steps` steps, those on which nominal would have acted otherwise, beyond what it allows
    (`monitor.statistics.deviation`). 0 to 1.
    """

    agent: str
    share: float
    steps: int


class RewardMismatch(msgspec.Struct, frozen=True):
    """A step says that the transition into its state earned something else than the model has for that transition.

    `detail`: which transition, what it earned, and what the model says. Path and verdicts do not depend on it.
    """

    agent: str
    detail: str


class Skipped(msgspec.Struct, frozen=True):
    """`count` due answers of a formula were passed over; the path they were about is complete all the same.

    An alarm that only those answers would have raised was not raised.
    """

    agent: str
    formula: str
    count: int


class Ended(msgspec.Struct, frozen=True):
    """An agent's episode is over; its values mean nothing until the next one begins."""

    agent: str
    episode: Episode


class Forgotten(msgspec.Struct, frozen=True):
    """An agent has been silent for `forget_after`; whatever is kept or shown under its name can go.

    `silent`: seconds since its last message. `open`: that was in the middle of an episode.
    """

    agent: str
    silent: float = 0.0
    open: bool = False


class Departing(msgspec.Struct, frozen=True):
    """A transition seen more often than the model lets expect.

    `seen` times of the last `of` steps from `state` by `action`; `expected`: of as many.
    """

    state: int
    action: int
    successor: int
    seen: int
    of: int
    expected: float


class Trust(msgspec.Struct, frozen=True):
    """How the model stands the test of the transitions that happened: told on a change of `doubted`, and now and then.

    `log10_e`: of the evidence against the model (an e-value: 0 is none, 3 a thousand to one); `transitions`: tested.
    `agent`: whose transitions alone these are; empty: those of all agents together. `departing`: where it is doubted,
    what speaks loudest against the model, beside impossible steps.
    """

    doubted: bool
    log10_e: float
    transitions: int
    agent: str = ""
    departing: tuple[Departing, ...] = ()


class Forecast(msgspec.Struct, frozen=True):
    """A forecast that was followed is due: `value` was said, and it came true, or did not, or was given up (None).

    `value`: the probability in [0, 1] that the agent's own future satisfies what the formula asks of a path.
    """

    agent: str
    formula: str
    value: float
    came_true: bool | None


class Calibration(msgspec.Struct, frozen=True):
    """What followed forecasts came to, as plain data; `monitor.statistics.calibration` counts and reads it.

    `bins`: for each tenth of [0, 1] how many forecasts, their sum, how many came true; empty: none anywhere. `squared`:
    sum of the squared errors. `expected`: what that sum is on average if each forecast is true. `dropped`: given up.
    """

    bins: tuple[tuple[int, float, int], ...] = ()
    squared: float = 0.0
    expected: float = 0.0
    dropped: int = 0


class Calibrated(msgspec.Struct, frozen=True):
    """How the followed forecasts of a formula stand, with all that an earlier process followed.

    `agent`: whose forecasts these are; empty: those of all agents together, forgotten ones included.
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
