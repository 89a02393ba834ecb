"""Published changes of alarms, with their numbers."""

from __future__ import annotations

from typing import Literal

import msgspec

from monitor.types.stream_events import BlindReason, Episode, State
from monitor.types.verdicts import Outcome, Verdict

AlarmState = Literal["clear", "pending", "firing", "resolved", "ended", "removed"]
"""`clear`, `pending`, `firing`: states of an alarm. `resolved`, `ended`, `removed`: how a firing alarm was closed."""


class Threshold(msgspec.Struct, frozen=True):
    """Threshold with which a value is compared."""

    comparison: Literal["<", "<=", ">=", ">"]
    """The formula holds if the value has this relation to the bound."""
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
    """Least and greatest value over all possible outcomes of pairs that were never recorded; left out if there are no
    such pairs."""


class Handover(msgspec.Struct, frozen=True, omit_defaults=True):
    """Effect of handing over control, as of the newest step."""

    policy: str
    """The policy or `do(action)` to hand over to, as written in the formula."""
    helps_now: bool | None
    """True if handing over now meets the goal and carrying on does not. For `handover(...)`: true if handing over now
    meets the goal, so that it is not too late. For a comparison of `delta(policy,nominal)@0`: true if the comparison
    holds. `null`: not known, for one of four reasons: the formula is blind (but with the reason `model_doubt`, true
    stays true); the verdict has no `profile`; a `delta` was sampled; or the answer depends on pairs that were never
    recorded. On a learned model the field is false only if no value in the credible band would make it true and no
    problem with the model is known.
    """
    latest_useful: int | None
    """The last moment at which handing over would have helped, as a number of steps ago; 0: now. `null`: handing over
    would not have helped at any step, or this is not known. For `handover(...)` and `delta(...)`: 0 or `null`.
    """
    extremes: tuple[float, float] | None = None
    """Least and greatest value of handing over now, over all possible outcomes of pairs that were never recorded; left
    out if all pairs were recorded.
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
    alarm fired. `worst`: the worst known value since the alarm fired; None if the value was not known when it fired.
    `seq`, `time`: step of the newest verdict. `first_seq`, `since`: step and time of the first bad verdict. Times are
    seconds since the epoch.

    Three fields are for the evidence and are not published. `path`: the (state, action) pairs of the verdict's path.
    `acted`: the policies that acted at these pairs (empty: always nominal). `inputs`: the recorded inputs (empty: the
    model has none).
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
    worst: float | None = None
    instructions: str | None = None
