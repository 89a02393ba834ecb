"""The published form of an alert: its id, and the JSON document on `cfmon/alerts/<agent>/<formula>`."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from functools import cached_property, lru_cache
from typing import Final, Literal, cast

import msgspec
import numpy as np

from monitor.alarm.figures import effect_of, is_open, other_quantity, own_quantity
from monitor.alarm.recourse_sentences import AlertRecourse, alert_recourse
from monitor.alarm.verdict_cache import VerdictCache
from monitor.evaluation.models import AnyModel, sha256_of
from monitor.model.formats import file_name
from monitor.policy.controller import Reader
from monitor.policy.table import PolicyTable
from monitor.types.alerts import Alert, Alternative, Handover, Threshold
from monitor.types.specs import FormulaSpec
from monitor.types.stream_events import YEAR_10000, BlindReason, Episode
from monitor.types.verdicts import Band, Outcome, Quantity, RestsOn, Verdict
from monitor.worlds import CheckedWorld
from monitor.worlds.world_policies import WorldPolicy

ALERT_VERSION = 1
EARLIEST: Final = -62_135_596_800.0
LATEST: Final = YEAR_10000 - 0.0005
"""Earliest and latest time in seconds since the epoch: the start of the year 0001, and the first time that rounds to
the year 10000."""

TIMES: Final = 4096
"""Number of cached dates.

Dates repeat, because the alerts of one batch share the time of sending, and each alert repeats the beginning of its
alarm.
"""

_encode: Final = msgspec.json.Encoder(enc_hook=np.generic.item).encode
_compact = json.JSONEncoder(separators=(",", ":")).encode
_profiles: Final[VerdictCache[tuple[Offset, ...]]] = VerdictCache()


class Identity(msgspec.Struct, frozen=True, dict=True):
    """Model, policies and software behind a verdict.

    `policies`: name -> SHA-256 of the policy's file, in hexadecimal. `versions`: name -> version of the software, which
    is part of the evidence, but not of an alert or its id. `models`: name -> SHA-256 of the other models in formulas.
    """

    model_name: str
    model_sha256: str
    policies: Mapping[str, str]
    versions: Mapping[str, str]
    models: Mapping[str, str] = msgspec.field(default_factory=dict)

    @cached_property
    def inputs(self) -> str:
        """JSON of models and policies, from which the id of an alarm is computed."""
        return _compact([self.model_sha256, sorted(self.policies.items()), sorted(self.models.items())])

    @cached_property
    def named_policies(self) -> tuple[Named, ...]:
        """The policies of the identity, ordered by name."""
        return tuple(Named(name, sha256) for name, sha256 in sorted(self.policies.items()))

    def same_inputs_as(self, other: Identity) -> bool:
        """Return whether models and policies are the same, ignoring the model's name and the software."""
        return (self.model_sha256, self.policies, self.models) == (other.model_sha256, other.policies, other.models)

    def changed_policies(self, other: Identity) -> frozenset[str]:
        """Return the names of policies that both identities have, with different files."""
        common = self.policies.keys() & other.policies.keys()
        return frozenset(name for name in common if self.policies[name] != other.policies[name])


def identity_of(
    model: AnyModel, policies: Mapping[str, PolicyTable | WorldPolicy | Reader], models: Mapping[str, AnyModel]
) -> Identity:
    """Return the identity of models and policies that are given as values, not files, by digests of their contents."""
    digests = {name: hashlib.sha256(_content(table)).hexdigest() for name, table in policies.items()}
    others = {name: sha256_of(other) for name, other in models.items()}
    return Identity(
        model_name=model.version if isinstance(model, CheckedWorld) else file_name(model.source),
        model_sha256=sha256_of(model),
        policies=digests,
        versions={},
        models=others,
    )


def _content(table: PolicyTable | WorldPolicy | Reader) -> bytes:
    if isinstance(table, Reader):
        return table.content()
    if isinstance(table, WorldPolicy):
        return table.name.encode("utf-8", "surrogatepass")  # a function has no bytes that define its behaviour
    array = table.probabilities if table.actions is None else table.actions
    assert array is not None
    return array.tobytes()


def alert_id(agent: str, episode: Episode, formula: FormulaSpec, identity: Identity, first_seq: int) -> str:
    """Return the id of an alarm: 32 hexadecimal digits, the same in every process.

    It is a hash of agent, episode, formula (name, text, causal model), models, policies and the step of the
    first bad verdict. Episode `1` is not episode `"1"`.
    """
    about = _about(formula.name, formula.text, formula.causal_model)
    place = f"[{_compact(agent)},{_compact(episode)},{first_seq}]"  # the text that `_compact` gives, in half the time
    return hashlib.sha256(f"[{place},{about},{identity.inputs}]".encode("ascii")).hexdigest()[:32]


@lru_cache
def _about(name: str, text: str, causal_model: str) -> str:
    return _compact([name, text, causal_model])


class Named(msgspec.Struct, frozen=True):
    """A model or a policy."""

    name: str
    """Name of the policy in the configuration, or of the model's file."""
    sha256: str
    """SHA-256 of the content, in hexadecimal."""


class FormulaText(msgspec.Struct, frozen=True):
    """Name and text of a formula."""

    name: str
    """Name of the formula in the configuration."""
    text: str
    """The formula's text, in the formula language."""


class EvidenceLink(msgspec.Struct, frozen=True):
    """Location of the evidence of an alarm."""

    id: str
    """The first 32 digits of the digest in the file. This is also the file's name."""
    path: str
    """Path at which the monitor serves the evidence over HTTP. Beside the store it is the file `evidence/<id>`."""


class Offset(msgspec.Struct, frozen=True, omit_defaults=True):
    """The agent's own value and the alternative's value at one offset, both from the state at this offset on."""

    offset: int
    """Number of steps before the newest step; 0 is now."""
    nominal: float | None
    """The agent's own value."""
    alternative: float | None
    """The value under the alternative."""
    nominal_extremes: tuple[float, float] | None = None
    """Least and greatest own value over all outcomes of unrecorded pairs; left out if there are no such pairs."""
    alternative_extremes: tuple[float, float] | None = None
    """Least and greatest value under the alternative over all outcomes of unrecorded pairs; left out if there are no
    such pairs."""


class FiredMessage(msgspec.Struct, frozen=True):
    """Summary of the verdict on which the alarm fired."""

    outcome: Outcome | None
    """The outcome when the alarm fired."""
    value: float | None
    """The agent's own value when the alarm fired."""
    alternative: Alternative | None
    """The alternative when the alarm fired."""
    seq: int
    """The step at which the alarm fired. The evidence proves the verdict on this step."""
    time: str | None
    """The time of the step `seq`."""
    time_unix: float | None
    """The value of `time` in seconds since the epoch."""


class ValueBands(msgspec.Struct, frozen=True):
    """Bands of one value on a learned model."""

    credible: tuple[float | None, float | None] | None
    """Credible band, at the level `level`, of the value over models drawn from the posterior. Its ends take the worst
    and the best outcome of unrecorded pairs."""
    guaranteed: tuple[float | None, float | None] | None
    """Bounds over every causal model and every row in the confidence set; `null` unless `causal_model` is `any`."""
    support: int | None
    """The smallest number of visits among the rows that contribute 90 % of the value; `null` if no learned row matters.
    """


class AlertBands(msgspec.Struct, frozen=True):
    """Uncertainty of a verdict on a model learned from data, and how it was computed."""

    value: ValueBands | None
    """Bands of the agent's own value; `null` for a formula with several quantities."""
    alternative: ValueBands | None
    """Bands of the value under the alternative, with the fields of `bands.value`; `null` for plain formulas."""
    effect_credible: tuple[float | None, float | None] | None
    """Credible band of the effect."""
    effect_guaranteed: tuple[float | None, float | None] | None
    """Guaranteed band of the effect."""
    support: int | None
    """The smallest support of the formula's quantities."""
    to_visit: tuple[tuple[int, int], ...]
    """Up to three pairs [state, action] whose visits would narrow the credible bands most."""
    draws: int
    """Number of posterior models."""
    seed: int
    """Seed with which the posterior models were drawn."""
    level: float | None
    """Level of the credible bands."""
    delta: float | None
    """Probability with which any guaranteed band may fail, for all answers together."""
    reason: str
    """Reason why a band or the support is missing, or why fits have no answer; empty if nothing is missing."""
    fits: int
    """In a world with numbers, the number of fits to resampled recordings, which replace the posterior models."""


class AlertMessage(msgspec.Struct, frozen=True, omit_defaults=True):
    """The JSON document on `cfmon/alerts/<agent>/<formula>`.

    Times are RFC 3339 in UTC; `null` if a time is no valid date.
    """

    v: int
    """Version of this schema: 1."""
    id: str
    """Identifies this alarm. It is the same in all messages about the alarm."""
    revision: int
    """Grows with each change of the alarm. A heartbeat repeats the newest revision."""
    state: Literal["firing", "resolved", "ended", "removed"]
    """`firing`, or how the alarm closed: `resolved` (the goal is met again), `ended` (the episode ended or the agent
    became silent while the goal was not met), `removed` (the formula was changed or removed)."""
    blind: BlindReason | None
    """Reason why the formula cannot be evaluated now, or why its result is marked; `null` if there is no reason."""
    severity: str
    """Severity of the alarm, as configured."""
    agent: str
    """The agent's name, from its topic."""
    formula: FormulaText
    """The formula."""
    outcome: Outcome | None
    """Outcome of `regret(...)`; `null` for every other formula."""
    value: float | None
    """The agent's own value in the newest verdict: a probability or an expected reward. For a plain formula under one
    intervention, the value under this intervention; `null` for a formula with several quantities, and if the value is
    known only as `extremes`."""
    threshold: Threshold | None
    """The comparison for `value`; `null` for `=?` and for a formula with several quantities."""
    alternative: Alternative | None
    """The same quantity under the other policy; `null` for plain formulas."""
    method: Literal["exact", "sampled"]
    """How the numbers were computed."""
    effect: float | None
    """`alternative.value` minus `value`."""
    bounds: tuple[float | None, float | None] | None
    """Bounds of `value` over every causal model of the requested class; for a sampled verdict, a confidence interval.
    """
    robust: bool | None
    """True if no causal model of the requested class changes the answer; `null` if no class was requested."""
    profile: tuple[Offset, ...]
    """Own and alternative value for each offset of the takeover, smallest offset first; for `handover(F, Q, h)` the
    values of Q now; empty for other plain formulas."""
    handover: Handover | None
    """Effect of handing over now; `null` if there is nothing to hand over to, or if the alarm does not fire."""
    fired: FiredMessage
    """Summary of the verdict on which the alarm fired."""
    episode: Episode
    """The episode of the newest verdict."""
    seq: int
    """The step of the newest verdict."""
    time: str | None
    """Time of the newest change of the alarm: of the step that changed it, or of a change of blindness."""
    time_unix: float | None
    """The value of `time` in seconds since the epoch."""
    since: str | None
    """Time of the step of the first bad verdict, which `alarm.for` counts from."""
    since_unix: float | None
    """The value of `since` in seconds since the epoch."""
    late: bool
    """True if the newest step was older than `stream.max_lag` when it arrived."""
    sent: str | None
    """When this message was sent."""
    sent_unix: float | None
    """The value of `sent` in seconds since the epoch."""
    model: Named
    """The model used."""
    policies: tuple[Named, ...]
    """The policies used."""
    evidence: EvidenceLink | None
    """The evidence of the verdict on which the alarm fired; `null` if none could be stored."""
    summary: str
    """What happened and how bad it is, what to do, and how certain this is, in fewer than 200 characters. It can be
    read alone."""
    details: tuple[str, ...]
    """Further sentences: the counterfactual, other decisions, and how the numbers were computed."""
    runbook: str | None
    """Runbook of the alarm, as configured."""
    extremes: tuple[float, float] | None = None
    """Least and greatest `value` over all outcomes of pairs (state, action) that were never recorded; left out if there
    are no such pairs, and for models that are not learned."""
    bands: AlertBands | None = None
    """Uncertainty of the newest verdict on a model learned from data; left out for any other model."""
    rests_on: RestsOn | None = None
    """The recorded steps behind the value of `alternative`; for a plain formula behind `value`; for `handover(...)` in
    a world with numbers behind the value of handing over now. Left out if unknown, and for models that are not learned.
    """
    recourse: AlertRecourse | None = None
    """Whether the missed goal of `regret(...)` could have been met, in the newest verdict. Left out if the goal is met,
    for every other formula, and if this was not examined (`recourse` in the configuration)."""
    worst: float | None = None
    """The worst known `value` since the alarm fired, also of verdicts between two messages, so that a closed alarm says
    how bad it was. Left out if `value` was not known when the alarm fired."""
    instructions: str | None = None
    """Who hands over, and how, as configured (`alarm.instructions`); left out if nothing is configured."""


FOLLOWING: Final = (
    "outcome", "value", "threshold", "alternative", "method", "effect", "bounds", "robust", "profile", "handover",
    "episode", "seq", "time", "time_unix", "late", "summary", "details", "extremes", "bands",
    "rests_on", "recourse", "worst",
)  # fmt: skip
"""Fields that are updated from the newest verdict without a new revision."""
OPTIONAL: Final = (
    "bands", "rests_on", "recourse", "worst", "instructions", "extremes", "nominal_extremes", "alternative_extremes",
    "samples", "credible_now",
)  # fmt: skip
"""Fields that are left out if they do not apply."""


def alert_payload(alert: Alert, identity: Identity, *, sent: float, evidence: str | None) -> bytes:
    """Return the alert as published.

    `sent`: seconds since the epoch. `evidence`: id of the evidence, or None if none could be stored. Infinity and NaN
    become null. `profile` is a list, nearest offset first, because JSON keys are text.
    """
    link = None if evidence is None else EvidenceLink(evidence, f"/evidence/{evidence}")
    model = Named(identity.model_name, identity.model_sha256)
    return json_bytes(_message(alert, model, named_policies(identity), sent=sent, evidence=link))


def json_bytes(message: msgspec.Struct | Mapping[str, object]) -> bytes:
    """Return a message as published: JSON in UTF-8, its fields in order. Infinity and NaN become null."""
    return _encode(message)


def named_policies(identity: Identity) -> tuple[Named, ...]:
    """Return the policies of an identity, by name."""
    return identity.named_policies


def refreshed_payload(published: Mapping[str, object], alert: Alert) -> dict[str, object]:
    """Return a published alert with the fields of the newest verdict. The revision is unchanged."""
    newest = plain_message(_message(alert, Named("", ""), (), sent=0.0, evidence=None))
    kept = {name: value for name, value in published.items() if name not in FOLLOWING or name in newest}
    return {**kept, **{name: newest[name] for name in FOLLOWING if name in newest}}


@lru_cache(TIMES)
def rfc3339(seconds: float) -> str | None:
    """Return a time as a date, in UTC to the millisecond; None outside the years 0001 to 9999.

    >>> rfc3339(1795259763.7)
    '2026-11-21T11:16:03.700Z'
    >>> rfc3339(float("inf")) is None
    True
    """
    if not EARLIEST <= seconds < LATEST:
        return None
    return f"{np.datetime64(round(seconds * 1000), 'ms')}Z"


def _message(
    alert: Alert, model: Named, policies: tuple[Named, ...], *, sent: float, evidence: EvidenceLink | None
) -> AlertMessage:
    verdict, figures, fired = alert.verdict, alert.figures, alert.fired
    return AlertMessage(
        v=ALERT_VERSION,
        id=alert.id,
        revision=alert.revision,
        state=cast('Literal["firing", "resolved", "ended", "removed"]', alert.state),  # no other state is published
        blind=alert.blind,
        severity=alert.severity,
        agent=alert.agent,
        formula=FormulaText(alert.formula, alert.text),
        outcome=verdict.outcome,
        value=figures.value,
        threshold=figures.threshold,
        alternative=figures.alternative,
        method=verdict.method,
        effect=effect_of(verdict),
        bounds=figures.bounds,
        robust=verdict.robust,
        profile=_profiles.get(lambda: _profile(verdict), verdict, None),
        handover=figures.handover,
        fired=FiredMessage(fired.outcome, fired.value, fired.alternative, fired.seq, rfc3339(fired.time), fired.time),
        episode=alert.episode,
        seq=alert.seq,
        time=rfc3339(alert.time),
        time_unix=alert.time,
        since=rfc3339(alert.since),
        since_unix=alert.since,
        late=alert.late,
        sent=rfc3339(sent),
        sent_unix=sent,
        model=model,
        policies=policies,
        evidence=evidence,
        summary=alert.summary,
        details=alert.details,
        runbook=alert.runbook,
        extremes=figures.extremes,
        bands=alert_bands(verdict),
        rests_on=None if (quantity := other_quantity(verdict)) is None else quantity.rests_on,
        recourse=alert_recourse(verdict.recourse, alert.seq, alert.actions),
        worst=alert.worst,
        instructions=alert.instructions,
    )


def _profile(verdict: Verdict) -> tuple[Offset, ...]:
    return tuple(Offset(offset, *values, *ends) for offset, values, ends in known_profile(verdict))


def known_profile(
    verdict: Verdict,
) -> Iterator[tuple[int, tuple[float | None, float | None], tuple[Band | None, Band | None]]]:
    """Yield each offset of a profile with its two values (None for open values) and their extremes, if any."""
    for offset in sorted(verdict.profile):
        nominal, alternative = verdict.profile[offset]
        if offset >= len(verdict.profile_extremes):
            yield offset, (nominal, alternative), (None, None)
            continue
        low, high, least, most = verdict.profile_extremes[offset]
        mine, other = (low, high), (least, most)
        known = None if is_open(mine) else nominal, None if is_open(other) else alternative
        yield offset, known, (mine, other)


def alert_bands(verdict: Verdict) -> AlertBands | None:
    """Return the uncertainty of a verdict on a learned model; None on any other model."""
    how = verdict.bands
    if how is None:
        return None
    value = own_quantity(verdict)
    other = verdict.quantities[1] if value is not None and len(verdict.quantities) == 2 else None
    return AlertBands(
        value=_value_bands(value),
        alternative=_value_bands(other),
        effect_credible=verdict.effect_credible,
        effect_guaranteed=verdict.effect_guaranteed,
        support=verdict.support,
        to_visit=verdict.to_visit,
        draws=how.draws,
        seed=how.seed,
        level=how.level,
        delta=how.delta,
        reason=how.reason,
        fits=how.fits,
    )


def _value_bands(quantity: Quantity | None) -> ValueBands | None:
    return None if quantity is None else ValueBands(quantity.credible, quantity.guaranteed, quantity.support)


def plain_message(message: msgspec.Struct) -> dict[str, object]:
    """Return a message as JSON data: its fields in order, without `OPTIONAL` fields that are None.

    Infinity and NaN become None.
    """
    fields = {name: _plain(getattr(message, name)) for name in message.__struct_fields__}
    return {name: value for name, value in fields.items() if value is not None or name not in OPTIONAL}


def _plain(value: object) -> object:
    match value:
        case float():
            return value if math.isfinite(value) else None
        case msgspec.Struct():
            return plain_message(value)
        case list() | tuple():
            return [_plain(item) for item in value]
        case _:
            return value
