"""Settings of what to monitor and how: formulas, alarms, sampling, bands, the stream, and the test of the model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

AlarmWhen = Literal["fails", "holds", "regret", "unavoidable"]
"""The answer that the alarm counts as bad."""

AlarmOnlyIf = Literal["robust"]
"""Condition under which a bad answer counts."""

RequestedModel = Literal["gumbel", "any", "stable"]
"""Classes of causal models that may be requested."""

CausalModel = Literal["gumbel", "any", "stable", "world"]
"""Class of causal models of an answer: as requested, or `world`: a world with numbers is its own causal model."""

UnitFraction = Annotated[float, Meta(gt=0, lt=1)]
Positive = Annotated[int, Meta(ge=1)]

Engine = Literal["auto", "exact", "sampled"]
"""How a formula is evaluated. `auto`: exactly if the limits allow it, otherwise by sampling."""

BandsWhen = Literal["auto", "always", "off"]
"""Selects the verdicts on a learned model that get a credible band and a support."""

RecourseWhen = Literal["auto", "always", "off"]
"""Selects the missed goals of `regret` for which it is examined whether other decisions could have met the goal."""

TestName = Literal["betting", "paper"]
"""The tests that compare sampled values with thresholds."""


class AlarmSpec(msgspec.Struct, frozen=True):
    """Conditions under which verdicts raise an alarm, and texts that are published with the alarm."""

    for_: Positive = 1
    """Number of bad verdicts, without a good verdict in between, that fire the alarm."""
    keep: Positive = 1
    """Number of good verdicts, without a verdict that is bad or missed in between, that resolve the alarm."""
    severity: str = "warning"
    """Severity published with the alarm; the shipped alert rules know `warning` and `critical`."""
    runbook: str | None = None
    """Link to instructions, published with the alarm. If absent: the monitor's own runbook page for the severity."""
    instructions: Annotated[str, Meta(min_length=1, max_length=300)] | None = None
    """Who hands over, and how: published and shown with the alarm."""
    when: AlarmWhen | None = None
    """The bad answer. If absent: `regret` for `regret(...)`, else `fails`. `unavoidable` also fires on regret."""
    step: Annotated[float, Meta(ge=0)] = 0.05
    """While the alarm fires, a new revision is published when the value differs from the last published value by more
    than `step`.
    """
    only_if: AlarmOnlyIf | None = None
    """If `robust`, a bad verdict counts only if no model in its widest band changes it; any other bad verdict is
    ignored. Needs `causal_model` `any` or `stable`.
    """

    @property
    def fires_while(self) -> Literal["fails", "holds"]:
        """The truth value with which the alarm fires; `fails` also for `regret(...)`, whose alarm is about a miss."""
        return "holds" if self.when == "holds" else "fails"


class Sampling(msgspec.Struct, frozen=True):
    """Error rates and limits of sampled answers; `monitor.evaluation.check_sampling` checks them."""

    seed: Annotated[int, Meta(ge=0, le=(1 << 53) - 1)] = 0
    """Seed of all noise; the same seed draws the same samples."""
    alpha: UnitFraction = 0.01
    """Probability of a false alarm, i.e. of a wrong *false* or *regret*. On a stream this is the probability of any
    false alarm among all verdicts of one formula on one agent.
    """
    beta: UnitFraction = 0.01
    """Probability of the opposite error (a failing formula counts as met), per verdict."""
    delta: UnitFraction = 0.01
    """Half-width of the indifference region around a threshold, as a fraction of the range of a world's outcome (1
    for a `P`). Within it either answer is accepted. `betting` on a stream has no such region.
    """
    deviation: float = 0.1
    """Half-width of the indifference region for `R` and `delta(..)` with the test `paper`, in standard deviations of
    one sample.
    """
    error: UnitFraction = 0.02
    """Required half-width of the interval of a `=?`, as a fraction of the range of its outcome."""
    error_alpha: UnitFraction = 0.05
    """Probability that a reported interval misses the true value."""
    limit: Positive = 20_000
    """Maximum number of samples of a quantity; a quantity that these samples do not decide is undecided."""
    rewards: tuple[float, float] | None = None
    """Smallest and largest reward of a step, for models that cannot be enumerated."""
    test: TestName = "betting"
    """The test that compares values with thresholds. `betting`: `alpha` and `beta` hold for every model. Outside a
    stream, `P` uses Wald's test in place of betting; its rates hold too. `paper`: the tests of the paper. For `R` and
    `delta(..)` it is a sequential t-test, whose rates are nominal.
    """


class BandSettings(msgspec.Struct, frozen=True):
    """Settings for the bands of a learned model; `monitor.evaluation` checks them."""

    draws: Annotated[int, Meta(ge=1, le=10_000)] = 64
    """Number of models drawn from the posterior. On each model the answer is evaluated exactly, and twice: first with
    the worst outcome of everything that was never observed, then with the best outcome. In a world with numbers:
    largest number of fits that are used.
    """
    seed: Annotated[int, Meta(ge=0, le=(1 << 53) - 1)] = 0
    """Seed of the draws; the same seed draws the same models."""
    level: UnitFraction = 0.95
    """Probability that the band contains the value of the true model, if that model has the posterior distribution."""
    delta: UnitFraction = 0.05
    """Probability that the guaranteed band misses the true value, for all answers together."""
    doubt: str = ""
    """Reason to doubt the model when it says that handing over now does not help; empty if there is no reason. `cfmon
    init` writes the problems of the model here. Only verdicts with bands use this text.
    """


class FormulaSpec(msgspec.Struct, frozen=True, eq=False):
    """One formula to monitor.

    Texts (`labels`, `actions`, the alarm's `runbook` and `instructions`) and `recourse` are ignored in comparisons of
    formulas.

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
    """Class of causal models for bounds beside the Gumbel-Max value: `any`, or `stable` (counterfactually stable)."""
    alarm: AlarmSpec = msgspec.field(default_factory=AlarmSpec)
    """Settings of the formula's alarm."""
    engine: Engine = "auto"
    """`auto`: exact if the formula allows it, otherwise sampled."""
    labels: tuple[tuple[str, str], ...] = ()
    """Pairs of a label and the words that replace it in sentences."""
    actions: tuple[tuple[str, str], ...] = ()
    """Pairs of an action (its name in the model, or its number if it has no name) and the words for it in sentences."""
    bands: BandsWhen = "auto"
    """Selects the verdicts on a learned model that get a credible band and a support. `auto`: verdicts that miss the
    goal, and all verdicts while the alarm is pending or fires. Also `always` and `off`.
    """
    recourse: RecourseWhen = "auto"
    """Selects the missed goals of `regret(...)` for which the monitor examines whether other decisions could have met
    the goal, and how few changes are needed. `auto`: missed goals while the alarm is pending or fires. Also `always`
    and `off`.
    """

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FormulaSpec) and self._content() == other._content()

    def __hash__(self) -> int:
        return hash(self._content())

    def _content(self) -> tuple[object, ...]:
        """Return all fields that affect alarms, and the type of `every`. Words and `recourse` do not affect alarms."""
        query = self.name, self.text, self.every, type(self.every), self.causal_model, self.engine, self.bands
        return *query, msgspec.structs.replace(self.alarm, runbook=None, instructions=None)


class StreamSettings(msgspec.Struct, frozen=True):
    """Limits of the stream. Durations in seconds."""

    window: Positive = 64
    """Number of steps held for each agent; the oldest step is dropped first."""
    reorder_steps: int = 256
    """Maximum number of later steps that wait for a missing step before the missing step counts as lost."""
    reorder_wait: float = 0.5
    """Maximum time that later steps wait for a missing step."""
    stale_after: float = 5.0
    """Silence in an episode after which an agent's formulas are marked `stale`. If a step waits this long to be
    evaluated, the formulas are marked `deadline`.
    """
    idle_after: float = 900.0
    """Silence between episodes after which an agent's formulas are marked `idle`: the agent has finished or failed."""
    forget_after: float = 3600.0
    """Silence after which an agent is forgotten, with its alerts and metrics."""
    max_lag: float = 2.0
    """Alarms on steps older than this are marked `late`. If more steps arrive than can be evaluated, and steps have
    waited for half of this time, evaluations are skipped.
    """
    agents: Positive = 1000
    """Maximum number of agents. Further agents are refused, counted and reported, unless an agent that sent few steps
    and fell silent can be forgotten.
    """
    pending: Positive = 100_000
    """Maximum number of unevaluated steps of one agent; if there are more, all of them are dropped."""
    encoder: Literal["index", "name", "valuation", "bins", "nearest", "features"] = "index"
    """Form of the agents' states. `index`: numbers. `name`: names. `valuation`: values of variables. `bins`, `nearest`:
    floats (and texts), which are sorted into the model's bins or assigned to the nearest centre. `features`: the
    features of a world with numbers.
    """
    policies: Mapping[str, str] = {}
    """The known policies: digest of the ONNX file -> name. An agent that reports another digest is blind; if the map is
    empty, reported digests are not compared.
    """


class TrustSettings(msgspec.Struct, frozen=True):
    """The test of the model against the observed transitions; `monitor.statistics.model_betting` defines the test."""

    alpha: UnitFraction = 0.001
    """Probability that a correct model is rejected, for each agent and for all agents together."""
    impossible: Annotated[float, Meta(gt=0, le=0.005)] = 0.0001
    """Fraction of the steps that may contradict a correct model, such as a sensor's glitches."""
    enabled: bool = True
    """If false, the model is not tested."""
    acknowledged: Mapping[str, str] = {}
    """Agent, or `*` for all agents -> why the rejection of the model is acknowledged. A new or changed text restarts
    the test, also on reload.
    """
