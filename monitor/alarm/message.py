"""Alert as published: its id and the JSON document on `cfmon/alerts/<agent>/<formula>`."""

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
from monitor.types import (
    Alert,
    Alternative,
    BlindReason,
    Episode,
    FormulaSpec,
    Handover,
    Outcome,
    Quantity,
    RestsOn,
    Threshold,
    Verdict,
)
from monitor.worlds import CheckedWorld
from monitor.worlds.world_policies import WorldPolicy

ALERT_VERSION = 1
Band = tuple[float, float]
EARLIEST: Final = -62_135_596_800.0
LATEST: Final = 253_402_300_799.9995
"""Seconds since the epoch: start of the year 0001, and the first time that rounds to the year 10000."""

TIMES: Final = 4096
"""Dates kept as text: alerts of one batch share the time of sending, and each repeats when its alarm began."""

_encode: Final = msgspec.json.Encoder(enc_hook=np.generic.item).encode
_compact = json.JSONEncoder(separators=(",", ":")).encode
_profiles: Final[VerdictCache[tuple[Offset, ...]]] = VerdictCache()


class Identity(msgspec.Struct, frozen=True, dict=True):
    """Model, policies and software behind a verdict.

    `policies`: name -> sha256 of its file, hexadecimal. `versions`: of the software, name -> version; they are part of
    the evidence, but neither of an alert nor of its id. `models`: name -> sha256 of the other models in formulas.
    """

    model_name: str
    model_sha256: str
    policies: Mapping[str, str]
    versions: Mapping[str, str]
    models: Mapping[str, str] = msgspec.field(default_factory=dict)

    @cached_property
    def inputs(self) -> str:
        """JSON of models and policies, as they enter the id of an alarm."""
        return _compact([self.model_sha256, sorted(self.policies.items()), sorted(self.models.items())])

    @cached_property
    def named_policies(self) -> tuple[Named, ...]:
        """Its policies, by name."""
        return tuple(Named(name, sha256) for name, sha256 in sorted(self.policies.items()))

    def same_inputs_as(self, other: Identity) -> bool:
        """Return whether models and policies are the same, ignoring the model's name and the software."""
        return (self.model_sha256, self.policies, self.models) == (other.model_sha256, other.policies, other.models)

    def changed_policies(self, other: Identity) -> frozenset[str]:
        """Return the names of the policies of both that have different files."""
        common = self.policies.keys() & other.policies.keys()
        return frozenset(name for name in common if self.policies[name] != other.policies[name])


def identity_of(
    model: AnyModel, policies: Mapping[str, PolicyTable | WorldPolicy | Reader], models: Mapping[str, AnyModel]
) -> Identity:
    """Return the identity of models and policies given as values, not as files: digests of their contents."""
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
        return table.name.encode("utf-8", "surrogatepass")  # a function has no bytes that say what it does
    array = table.probabilities if table.actions is None else table.actions
    assert array is not None
    return array.tobytes()


def alert_id(agent: str, episode: Episode, formula: FormulaSpec, identity: Identity, first_seq: int) -> str:
    """Return the id of an alarm, 32 hexadecimal digits; the same alarm has the same id in every process.

    It is a hash of agent, episode, formula (name, text, causal model), models, policies and the step at which the
    breach began. Episode `1` is not episode `"1"`.
    """
    about = _about(formula.name, formula.text, formula.causal_model)
    place = f"[{_compact(agent)},{_compact(episode)},{first_seq}]"  # as `_compact` writes the list, in half the time
    return hashlib.sha256(f"[{place},{about},{identity.inputs}]".encode("ascii")).hexdigest()[:32]


@lru_cache
def _about(name: str, text: str, causal_model: str) -> str:
    return _compact([name, text, causal_model])


class Named(msgspec.Struct, frozen=True):
    """A model or a policy."""

    name: str
    """Its name in the configuration; for a model the name of its file."""
    sha256: str
    """SHA-256 of its content, hexadecimal."""


class FormulaText(msgspec.Struct, frozen=True):
    """Formula, by name and text."""

    name: str
    """Its name in the configuration."""
    text: str
    """Its text, in the formula language."""


class EvidenceLink(msgspec.Struct, frozen=True):
    """Where the evidence of an alarm is."""

    id: str
    """The first 32 digits of the digest in the file, which is also the file's name."""
    path: str
    """Where the monitor serves it over HTTP; beside the store it is the file `evidence/<id>`."""


class Offset(msgspec.Struct, frozen=True, omit_defaults=True):
    """Both values for a takeover at one offset, each from its own intervention state."""

    offset: int
    """How many steps ago; 0 is now."""
    nominal: float | None
    """The agent's own value."""
    alternative: float | None
    """The value under the alternative."""
    nominal_extremes: tuple[float, float] | None = None
    """Least and greatest own value, whatever pairs that were never recorded lead to; left out if there are none."""
    alternative_extremes: tuple[float, float] | None = None
    """The same under the alternative."""


class FiredMessage(msgspec.Struct, frozen=True):
    """Summary of the verdict on which the alarm fired."""

    outcome: Outcome | None
    """The outcome then."""
    value: float | None
    """The agent's own value then."""
    alternative: Alternative | None
    """The alternative then."""
    seq: int
    """The step at which it fired. The evidence proves the verdict on this step."""
    time: str | None
    """The time of that step."""
    time_unix: float | None
    """The same, in seconds since the epoch."""


class ValueBands(msgspec.Struct, frozen=True):
    """Bands of one value on a learned model."""

    credible: tuple[float | None, float | None] | None
    """Band of the value over models drawn from the posterior, in which what was never observed is as bad and as good as
    can be, at the level `level`.
    """
    guaranteed: tuple[float | None, float | None] | None
    """Bounds over every causal model and every row in the confidence set; `null` unless `causal_model` is `any`."""
    support: int | None
    """The fewest visits among the rows that carry 90 % of the value; `null` if no learned row matters."""


class AlertBands(msgspec.Struct, frozen=True):
    """Uncertainty of an answer on a model learned from data, and how it was obtained."""

    value: ValueBands | None
    """Of the agent's own value; `null` for a formula of several quantities."""
    alternative: ValueBands | None
    """Of the value under the alternative; `null` for plain formulas."""
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
    """Seed they were drawn with."""
    level: float | None
    """Level of the credible bands."""
    delta: float | None
    """Probability with which a guaranteed band may fail, for all answers together."""
    reason: str
    """Why a band or the support is missing, or fits have no answer; empty if none is."""
    fits: int
    """In a world with numbers: number of its fits to resampled recordings, instead of posterior models."""


class AlertMessage(msgspec.Struct, frozen=True, omit_defaults=True):
    """The JSON document on `cfmon/alerts/<agent>/<formula>`.

    Times are RFC 3339 in UTC, `null` where they are no date.
    """

    v: int
    """Version of this schema: 1."""
    id: str
    """Identifies this alarm; the same in all its messages."""
    revision: int
    """Grows with each change; a heartbeat repeats the newest one."""
    state: Literal["firing", "resolved", "ended", "removed"]
    """`firing`, or how it closed: `resolved` (the goal is met again), `ended` (the episode ended or the agent fell
    silent, with the goal not met), `removed` (the formula was changed or removed).
    """
    blind: BlindReason | None
    """Why the formula cannot be evaluated now, or why its result is flagged."""
    severity: str
    """As configured."""
    agent: str
    """The agent's name, from its topic."""
    formula: FormulaText
    """The formula."""
    outcome: Outcome | None
    """Outcome of `regret(...)`; `null` for every other formula."""
    value: float | None
    """The agent's own value, by the newest verdict: a probability or an expected reward. For a plain formula under one
    intervention, the value under it; `null` for a formula of several quantities, and where it is known as `extremes`
    only.
    """
    threshold: Threshold | None
    """The comparison for `value`; `null` for `=?` and for a formula of several quantities."""
    alternative: Alternative | None
    """The same quantity under the other policy; `null` for plain formulas."""
    method: Literal["exact", "sampled"]
    """How the numbers were obtained."""
    effect: float | None
    """`alternative.value` minus `value`."""
    bounds: tuple[float | None, float | None] | None
    """Bounds of `value` over every causal model of the requested class; of a sampled verdict a confidence interval."""
    robust: bool | None
    """True if no causal model of the requested class changes the answer; `null` if none was requested."""
    profile: tuple[Offset, ...]
    """Both values for each offset of the takeover, smallest first; of `handover(F, Q, h)` those of Q now; empty for
    other plain formulas.
    """
    handover: Handover | None
    """Effect of handing over now; `null` if there is nothing to hand over to, and unless the alarm fires."""
    fired: FiredMessage
    """Summary of the verdict on which it fired."""
    episode: Episode
    """The episode of the newest verdict."""
    seq: int
    """The step of the newest verdict."""
    time: str | None
    """When the newest change happened: the time of that step, or of a change of blindness."""
    time_unix: float | None
    """The same, in seconds since the epoch."""
    since: str | None
    """The time of the step at which the breach began: the first of the `alarm.for` bad verdicts."""
    since_unix: float | None
    """The same, in seconds since the epoch."""
    late: bool
    """The newest step was older than `stream.max_lag` when it came."""
    sent: str | None
    """When this message was sent."""
    sent_unix: float | None
    """The same, in seconds since the epoch."""
    model: Named
    """The model used."""
    policies: tuple[Named, ...]
    """The policies used."""
    evidence: EvidenceLink | None
    """The evidence of the verdict on which the alarm fired; `null` if none could be stored."""
    summary: str
    """What happened and how bad it is, what to do, and how sure that is, in fewer than 200 characters; it stands alone.
    """
    details: tuple[str, ...]
    """Sentences that say the rest: the counterfactual, other decisions, and how the numbers were obtained."""
    runbook: str | None
    """As configured."""
    extremes: tuple[float, float] | None = None
    """Least and greatest `value`, whatever pairs (state, action) that were never recorded lead to; left out if there
    are none, and of models that are not learned.
    """
    bands: AlertBands | None = None
    """Uncertainty of the newest verdict, on a model learned from data; left out on any other model."""
    rests_on: RestsOn | None = None
    """What the value of `alternative`, or of a plain formula `value`, rests on; of `handover(...)` in a world with
    numbers that of handing over now; left out where that is not known, and of models that are not learned.
    """
    recourse: AlertRecourse | None = None
    """Whether the missed goal of `regret(...)` could have been met, by the newest verdict; left out if the goal is met,
    for every other formula, and where it was not examined (`recourse` in the configuration).
    """


FOLLOWING: Final = (
    "outcome", "value", "threshold", "alternative", "method", "effect", "bounds", "robust", "profile", "handover",
    "episode", "seq", "time", "time_unix", "late", "summary", "details", "extremes", "bands",
    "rests_on", "recourse",
)  # fmt: skip
"""Fields that follow the newest verdict without a new revision."""
OPTIONAL: Final = (
    "bands", "rests_on", "recourse", "extremes", "nominal_extremes", "alternative_extremes", "samples", "credible_now",
)  # fmt: skip
"""Fields that are left out where they do not apply."""


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
    """Return a published alert with the fields of the newest verdict; the revision stays."""
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
        state=cast('Literal["firing", "resolved", "ended", "removed"]', alert.state),  # no other is published
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
    )


def _profile(verdict: Verdict) -> tuple[Offset, ...]:
    return tuple(Offset(offset, *values, *ends) for offset, values, ends in known_profile(verdict))


def known_profile(
    verdict: Verdict,
) -> Iterator[tuple[int, tuple[float | None, float | None], tuple[Band | None, Band | None]]]:
    """Yield each offset of a profile with its two values, None where they are open, and their extremes, if any."""
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
    """Return the uncertainty of a verdict on a learned model; None on any other."""
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
    """Return a message as JSON data: its fields in order, without `OPTIONAL` ones that are None.

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
