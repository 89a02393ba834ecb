"""Every value that crosses a border between rooms, on one screen.

All are frozen, and cheap to make, for several are made at each message. Times are seconds: `wall` since the epoch,
`ticks` on a monotonic clock. Probabilities lie in [0, 1]. The order below is the order of the route: a message becomes
an `Observation`, that a `Step`, that (on the held path) a `Verdict`, that an `Alert`.
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
    "Blind",
    "BlindReason",
    "Break",
    "CausalModel",
    "Drawn",
    "End",
    "Ended",
    "Engine",
    "Episode",
    "Forgotten",
    "FormulaSpec",
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
    "RewardMismatch",
    "Sampling",
    "Skipped",
    "Step",
    "StreamSettings",
    "TestName",
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
    "model_doubt",
]
"""Why a formula cannot be answered now, or why not to rely on its answer. Without a row in docs/blindness.md a value
here fails the tests.
"""

AlarmState = Literal["clear", "pending", "firing", "resolved", "ended", "removed"]
"""`clear`, `pending`, `firing` are where an alarm can be; `resolved`, `ended`, `removed` how a firing one closes."""

Outcome = Literal["safe", "regret", "unavoidable", "undecided"]
CausalModel = Literal["gumbel", "any", "stable"]
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
    """How verdicts become an alarm. `for_`, `keep`: verdicts in a row before firing, before resolving (>= 1).

    `when`: for a plain formula `fails` or `holds`; for `regret(...)` `regret`, or `unavoidable` to fire on that too.
    """

    for_: int = 1
    keep: int = 1
    severity: str = "warning"
    runbook: str | None = None
    when: Literal["fails", "holds", "regret", "unavoidable"] | None = None


class Sampling(msgspec.Struct, frozen=True):
    """How well answers by sampling must be founded; `monitor.engine.check_sampling` says what is allowed.

    Attributes:
        seed: of all noise, 0 to 2**53 - 1.
        alpha: the probability of a false alarm: to say *false*, or *regret*, of what is not so. On a stream it holds
            for all verdicts of one formula on one agent together, and counts the answer the alarm fires on.
        beta: that of the opposite error, of one verdict.
        delta: half-width of the region around a bound within which either answer will do, as a part of the range one
            world's outcome may have: of 1 for a `P`. `betting` on a stream has no such region.
        deviation: the same for `R` and for `delta(..)` with the test `paper`, in standard deviations of one sample.
        error: half-width asked of a `=?`, as a part of the same range.
        error_alpha: the probability that a reported interval misses the true value.
        limit: samples a quantity may take; what is open then is undecided.
        rewards: the smallest and the largest reward of a step, for models that cannot be enumerated.
        test: of values against bounds. `betting`: alpha and beta hold for every model (a `P` asked alone is decided by
            Wald's test, whose rates hold too). `paper`: the paper's; for `R` and `delta(..)` a sequential t-test, whose
            rates are nominal.
    """

    seed: int = 0
    alpha: float = 0.01
    beta: float = 0.01
    delta: float = 0.01
    deviation: float = 0.1
    error: float = 0.02
    error_alpha: float = 0.05
    limit: int = 20_000
    rewards: tuple[float, float] | None = None
    test: TestName = "betting"


class FormulaSpec(msgspec.Struct, frozen=True, eq=False):
    """One formula to watch. `every`: an int counts steps, a float is a duration in seconds on the monotonic clock.

    >>> FormulaSpec("f", "true", every=1) == FormulaSpec("f", "true", every=1.0)
    False
    """

    name: str
    text: str
    every: int | float = 1
    causal_model: CausalModel = "gumbel"
    alarm: AlarmSpec = msgspec.field(default_factory=AlarmSpec)
    engine: Engine = "auto"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FormulaSpec) and self._content() == other._content()

    def __hash__(self) -> int:
        return hash(self._content())

    def _content(self) -> tuple[object, ...]:
        """Every field, and of which kind `every` is: one step is not one second."""
        return *msgspec.structs.astuple(self), type(self.every)


class StreamSettings(msgspec.Struct, frozen=True):
    """What the stream may hold and how long it waits. Durations in seconds, counts in steps or agents.

    `nominal_sha256`: of the configured nominal policy's ONNX file, compared with what an agent says it runs.
    """

    window: int = 64
    reorder_steps: int = 256
    reorder_wait: float = 0.5
    stale_after: float = 5.0
    forget_after: float = 3600.0
    max_lag: float = 2.0
    agents: int = 1000
    encoder: Literal["index", "name", "valuation", "bins"] = "index"
    nominal_sha256: str | None = None


class TrustSettings(msgspec.Struct, frozen=True):
    """How the model is held against the transitions that happen; `monitor.statistics.trust` says how it is done.

    `alpha`: the probability that a true model is ever doubted. `impossible`: which part of the steps may contradict the
    model without its being wrong (a glitch in a sensor).
    """

    alpha: float = 0.001
    impossible: float = 0.0001
    enabled: bool = True


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
    """One probability or reward a formula asks for (outside all brackets), with how it was obtained.

    `bounds`: over every causal model of the class asked for, else None. `threshold` and `holds`: None for `=?`.
    `offset` is the one used, in the convention of the formula (`@5`, `@-1`); `clipped`: it is not the one asked for.
    `robust`: no causal model of the class changes `holds`; None where not asked. If sampled: `value` is the mean of so
    many `samples`, and `bounds` an interval that holds the true one with probability `confidence` or more, if there is
    one; `holds` None: undecided within the limit.
    """

    text: str
    value: float
    offset: int
    clipped: bool
    bounds: tuple[float, float] | None = None
    threshold: float | None = None
    holds: bool | None = None
    robust: bool | None = None
    samples: int = 0
    confidence: float | None = None


class Drawn(msgspec.Struct, frozen=True):
    """How a sampled verdict was drawn: with the path, all it takes to draw it again.

    `seed`: of this verdict's noise, `first`: the seq its path begins with. `alpha`, `beta`: the strength <alpha, beta>
    the whole formula was tested at. `test`: which test of its stream it was, from 1; 0: it was asked alone.
    """

    sampling: Sampling
    seed: int
    first: int
    alpha: float
    beta: float
    test: int = 0


class Verdict(msgspec.Struct, frozen=True):
    """The answer to one formula on one path.

    Exactly one of `value` (for `=?`), `holds` (for a truth) and `outcome` (for `regret`) is set; a truth that could
    not be decided has none of them, and `reason` says why. `value` is always the Gumbel-Max answer. `effect`:
    delta(W, nominal) of a regret formula, `effect_bounds` its bounds; `profile`: offset -> (value under nominal, value
    under the alternative), each measured from its own start; `latest_useful`: the smallest offset at which the
    alternative still turns the outcome. If sampled, `drawn` says how, and `bounds` are a confidence interval.
    """

    formula: str
    method: Literal["exact", "sampled"]
    causal_model: CausalModel
    quantities: tuple[Quantity, ...]
    value: float | None = None
    holds: bool | None = None
    outcome: Outcome | None = None
    bounds: tuple[float, float] | None = None
    robust: bool | None = None
    effect: float | None = None
    effect_bounds: tuple[float, float] | None = None
    profile: Mapping[int, tuple[float, float]] = msgspec.field(default_factory=dict)
    latest_useful: int | None = None
    offset: int = 0
    clipped: bool = False
    start_dropped: bool = False
    reason: str = ""
    drawn: Drawn | None = None


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


class Alert(msgspec.Struct, frozen=True):
    """A published change of an alarm; the fields are those of `cfmon/alerts/<agent>/<formula>` in the docs.

    `evidence_path`: the held path the verdict was given on, for the evidence file; not published.
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


class OffPolicy(msgspec.Struct, frozen=True):
    """A deterministic nominal policy would have taken another action than the agent took."""

    agent: str


class RewardMismatch(msgspec.Struct, frozen=True):
    """A step says that the transition into its state earned something else than the model has for that transition.

    `detail`: which transition, what it earned, and what the model says. Path and verdicts do not depend on it.
    """

    agent: str
    detail: str


class Skipped(msgspec.Struct, frozen=True):
    """`count` due answers of a formula were passed over; the path they were about is complete all the same."""

    agent: str
    formula: str
    count: int


class Ended(msgspec.Struct, frozen=True):
    """An agent's episode is over; its values mean nothing until the next one begins."""

    agent: str
    episode: Episode


class Forgotten(msgspec.Struct, frozen=True):
    """An agent has been silent for `forget_after`; whatever is kept or shown under its name can go."""

    agent: str


class Trust(msgspec.Struct, frozen=True):
    """How the model stands the test of the transitions that happened: told on a change of `doubted`, and now and then.

    `log10_e`: of the evidence against the model (an e-value: 0 is none, 3 a thousand to one); `transitions`: tested.
    """

    doubted: bool
    log10_e: float
    transitions: int


Notice = (
    Received | Judged | Blind | AlarmMoved | Alert | OffPolicy | RewardMismatch | Skipped | Ended | Forgotten | Trust
)
