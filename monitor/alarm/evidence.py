"""The evidence of an alarm: made from the alert, read back, and derived again from the model and the policies.

Altering any number of a document is found by its digest. Whoever alters the digest as well is found by `rederive`, as
far as the number follows from others. What follows from nothing, and is guarded by the digest alone, are the inputs:

- who, what and when: `agent`, `episode`, `formula` (the name), `first_seq` are bound to `alert`, the alarm's id, but
  that is a hash anyone can compute; `time`, `since`, `model` (the name) and `versions` are bound to nothing;
- `reason`, which for a sampled verdict says why it is not exact;
- `seq`, where the start of the path was not observed (otherwise the path's length gives it);
- the manifests and the policies' sha256, as far as the tables handed to `rederive` come from elsewhere;
- the path, `terminated` and `start_observed`: altered, they are the evidence of another history. Mostly that shows (an
  impossible step, another verdict, a `seq` that does not fit), but a history with the very same verdict cannot be told
  from the true one. Which of them happened, only an id kept elsewhere can tell: the published alert's `evidence`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from monitor.alarm.document import (
    EVIDENCE_VERSION,
    Evidence,
    PolicyEvidence,
    evidence_id,
    pack_evidence,
    plain,
    read_evidence,
)
from monitor.alarm.message import Identity, alert_id
from monitor.engine import check, on_stream
from monitor.errors import ConfigError, MonitorError
from monitor.model.mdp import MDP
from monitor.model.npz import model_sha256
from monitor.policy.table import PolicyTable
from monitor.types import AlarmSpec, Alert, FormulaSpec, Verdict

__all__ = ["TOLERANCE", "Evidence", "evidence_id", "make_evidence", "read_evidence", "rederive"]

TOLERANCE = 1e-9
"""How far a derived number may be from the recorded one, relative to the larger of it and 1."""


def make_evidence(
    alert: Alert,
    identity: Identity,
    tables: Mapping[str, PolicyTable],
    manifests: Mapping[str, Mapping[str, object]],
) -> bytes:
    """The evidence for `alert`, whose verdict was given with these policies; the same alert gives the same bytes.

    `manifests`: name -> the policy's manifest as plain data (texts, numbers, truths, lists, maps).

    Raises EvidenceError if a number is not finite.
    """
    verdict = alert.verdict
    evidence = Evidence(
        v=EVIDENCE_VERSION,
        digest="",
        alert=alert.id,
        agent=alert.agent,
        episode=alert.episode,
        formula=alert.formula,
        text=alert.text,
        causal_model=verdict.causal_model,
        seq=alert.seq,
        first_seq=alert.first_seq,
        time=float(alert.time),
        since=float(alert.since),
        path=alert.path,
        start_observed=alert.start_observed,
        terminated=alert.terminated,
        model=identity.model_name,
        model_sha256=identity.model_sha256,
        models=identity.models,
        policies={name: _policy(alert, identity, name, table, manifests) for name, table in tables.items()},
        verdict=verdict,
        versions=identity.versions,
    )
    return pack_evidence(evidence)


def rederive(
    evidence: Evidence,
    model: MDP,
    tables: Mapping[str, PolicyTable],
    models: Mapping[str, MDP] | None = None,
) -> list[str]:
    """Everything in the evidence that does not follow from its path, this model and these policies; empty if all does.

    Numbers may differ by `TOLERANCE`; everything else must be equal. Each entry is a sentence: what is recorded, and
    what follows instead.
    """
    problems = [*_of_identity(evidence), *_of_models(evidence, model, models or {})]
    if problems:
        return problems  # another alarm or another model: what follows from them says nothing about this one
    noise = list(_of_noise(evidence))
    if noise:
        return noise  # other noise gives other numbers
    problems = list(_of_policies(evidence, model, tables))
    try:
        verdict = _verdict(evidence, model, tables, models)
    except MonitorError as error:
        return [*problems, f"no verdict follows: {error}"]
    return [*problems, *_differences("verdict", plain(evidence.verdict), plain(verdict))]


def _verdict(
    evidence: Evidence, model: MDP, tables: Mapping[str, PolicyTable], models: Mapping[str, MDP] | None
) -> Verdict:
    """The verdict by the engine that gave it: a sampled one is drawn again, with the same noise."""
    drawn = evidence.verdict.drawn
    verdict = check(
        evidence.text,
        model=model,
        path=evidence.path,
        policies=tables,
        engine="exact" if drawn is None else "sampled",
        causal_model=evidence.causal_model,
        terminated=evidence.terminated,
        start_observed=evidence.start_observed,
        models=models,
        drawn=drawn,
    )
    return verdict if drawn is None else replace(verdict, reason=evidence.verdict.reason)


def _of_noise(evidence: Evidence) -> Iterator[str]:
    """Whether the noise and the strength of a sampled verdict are those of its place on its stream."""
    drawn = evidence.verdict.drawn
    if drawn is None:
        return
    stream = evidence.agent, evidence.episode, evidence.formula
    first = evidence.seq - (len(evidence.path) - 1)
    try:
        expected = [
            on_stream(
                drawn.sampling, AlarmSpec(when=when), stream=stream, seq=evidence.seq, first=first, test=drawn.test
            )
            for when in ("fails", "holds")  # which of the two the alarm fires on is not recorded
        ]
    except ConfigError as error:
        yield f"verdict.drawn: {error}"
        return
    if drawn not in expected:
        yield from _differences("verdict.drawn", plain(drawn), plain(expected[0]))


def _policy(
    alert: Alert,
    identity: Identity,
    name: str,
    table: PolicyTable,
    manifests: Mapping[str, Mapping[str, object]],
) -> PolicyEvidence:
    states = sorted({state for state, _ in alert.path})
    return PolicyEvidence(
        sha256=identity.policies[name],
        manifest=manifests.get(name, {}),
        choices=tuple((state, tuple(table.choices(state))) for state in states),
    )


def _of_identity(evidence: Evidence) -> Iterator[str]:
    """The alarm's id, and where the path lies in the episode."""
    formula = FormulaSpec(evidence.formula, evidence.text, causal_model=evidence.causal_model)
    policies = {name: policy.sha256 for name, policy in evidence.policies.items()}
    identity = Identity(evidence.model, evidence.model_sha256, policies, evidence.versions, evidence.models)
    expected = alert_id(evidence.agent, evidence.episode, formula, identity, evidence.first_seq)
    if evidence.alert != expected:
        yield f"alert: {evidence.alert} is recorded, {expected} follows from what it identifies"
    oldest = evidence.seq - (len(evidence.path) - 1)
    if not evidence.path or oldest < 0 or (evidence.start_observed and oldest > 0):
        start = " from the start of the episode" if evidence.start_observed else ""
        yield f"path: {len(evidence.path)} pairs{start} do not end at seq {evidence.seq}"
    if not 0 <= evidence.first_seq <= evidence.seq:
        yield f"first_seq: the breach began at {evidence.first_seq}, which is not within 0..{evidence.seq}"


def _of_models(evidence: Evidence, model: MDP, models: Mapping[str, MDP]) -> Iterator[str]:
    given = model_sha256(model)
    if given != evidence.model_sha256:
        yield f"model: {evidence.model_sha256} is recorded, the model given has {given}"
    others = {name: model_sha256(other) for name, other in models.items()}
    yield from _differences("models", plain(evidence.models), plain(others))
    if evidence.causal_model != evidence.verdict.causal_model:
        yield f"causal_model: {evidence.causal_model} is recorded, the verdict was for {evidence.verdict.causal_model}"


def _of_policies(evidence: Evidence, model: MDP, tables: Mapping[str, PolicyTable]) -> Iterator[str]:
    """What each policy does in the states of the path."""
    if tables.keys() != evidence.policies.keys():
        yield f"policies: {', '.join(evidence.policies)} are recorded, {', '.join(sorted(tables))} are given"
    states = sorted({state for state, _ in evidence.path if 0 <= state < model.states})
    for name in sorted(tables.keys() & evidence.policies.keys()):
        derived = [(state, tables[name].choices(state)) for state in states]
        yield from _differences(f"policies.{name}.choices", plain(evidence.policies[name].choices), plain(derived))


def _differences(where: str, recorded: object, derived: object) -> Iterator[str]:
    """Compare two pieces of plain data leaf by leaf."""
    match recorded, derived:
        case dict(), dict():
            for key in sorted(recorded.keys() | derived.keys()):
                yield from _differences(f"{where}.{key}", recorded.get(key), derived.get(key))
        case list(), list() if len(recorded) == len(derived):
            for index, (one, other) in enumerate(zip(recorded, derived, strict=True)):
                yield from _differences(f"{where}[{index}]", one, other)
        case float(), float() if math.isclose(recorded, derived, rel_tol=TOLERANCE, abs_tol=TOLERANCE):
            pass
        case _ if type(recorded) is not type(derived) or recorded != derived:
            yield f"{where}: {recorded!r} is recorded, {derived!r} follows"
