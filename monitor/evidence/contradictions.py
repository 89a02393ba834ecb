"""Contradictions within an evidence document, found without the model and the policies."""

from __future__ import annotations

import math
from collections.abc import Iterator

from monitor.alarm.message import Identity, alert_id
from monitor.alarm.takeover import outcome_of, takeover_formula
from monitor.errors import ConfigError, FormulaError
from monitor.evaluation import on_stream
from monitor.evidence.canonical import plain
from monitor.evidence.document import Evidence
from monitor.logic import Formula, parse
from monitor.logic.syntax import And, Goal
from monitor.types.specs import AlarmSpec, FormulaSpec
from monitor.types.stream_events import UNKNOWN_POLICY

TOLERANCE = 1e-9
"""Maximum accepted difference of a derived from a recorded number, relative to the larger of the recorded one and 1."""


def contradictions(evidence: Evidence) -> list[str]:
    """Return a sentence for each field of the evidence that contradicts other fields.

    This needs neither the model nor the policies, so it can be called before they are opened.
    """
    problems = [
        *_of_identity(evidence),
        *_of_place(evidence),
        *of_lengths(evidence),
        *_of_manifests(evidence),
    ]
    return problems or [*_of_noise(evidence), *_of_takeover(evidence)]


def _of_identity(evidence: Evidence) -> Iterator[str]:
    """Check the alarm's id, which is a hash of other fields, and that the verdict is for the same causal model."""
    formula = FormulaSpec(evidence.formula, evidence.text, causal_model=evidence.causal_model)
    policies = {name: policy.sha256 for name, policy in evidence.policies.items()}
    identity = Identity(evidence.model, evidence.model_sha256, policies, evidence.versions, evidence.models)
    expected = alert_id(evidence.agent, evidence.episode, formula, identity, evidence.first_seq)
    if evidence.alert != expected:
        yield f"alert: {evidence.alert} is recorded, {expected} follows from what it identifies"
    if evidence.causal_model != evidence.verdict.causal_model:
        yield f"causal_model: {evidence.causal_model} is recorded, the verdict was for {evidence.verdict.causal_model}"


def _of_place(evidence: Evidence) -> Iterator[str]:
    """Check the positions of the path and of the first bad verdict.

    If the path begins at the observed start, the first bad verdict is not later than the path's last step. If the first
    bad verdict is at the last step, `since` equals `time`. These two rules do not apply to other paths, because the
    agent may have restarted within the episode; the agent then numbers its steps from 0 again while the alarm
    continues.
    """
    oldest = evidence.seq - (len(evidence.path) - 1)
    if not evidence.path or oldest < 0 or (evidence.start_observed and oldest > 0):
        start = " from the start of the episode" if evidence.start_observed else ""
        yield f"path: {len(evidence.path)} pairs{start} do not end at seq {evidence.seq}"
    if evidence.first_seq < 0 or (evidence.start_observed and evidence.first_seq > evidence.seq):
        yield f"first_seq: the first bad verdict is of step {evidence.first_seq}, which is not within 0..{evidence.seq}"
    if evidence.start_observed and evidence.first_seq == evidence.seq and evidence.since != evidence.time:
        yield f"since: {evidence.since!r} is recorded, {evidence.time!r} follows: the first bad verdict is of this step"


def of_lengths(evidence: Evidence) -> Iterator[str]:
    """Check each list that has one entry for each pair of the path: it is empty or as long as the path."""
    for name in ("inputs", "acted"):
        entries, pairs = len(getattr(evidence, name)), len(evidence.path)
        if entries not in (0, pairs):
            yield f"{name}: entries for {entries} pairs are recorded, and the path has {pairs}"


def _of_manifests(evidence: Evidence) -> Iterator[str]:
    """Check that each manifest has the digest of the policy's file. A policy given as a value has no manifest."""
    for name, policy in evidence.policies.items():
        named = policy.manifest.get("sha256")
        if policy.manifest and named != policy.sha256:
            yield f"policies.{name}.manifest.sha256: {named} is recorded, the policy is {policy.sha256}"


def _of_noise(evidence: Evidence) -> Iterator[str]:
    """Check that the seed and the error rate of a sampled verdict follow from its position in its stream."""
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
            for when in ("fails", "holds")  # the evidence does not record which of these two values `when` had
        ]
    except ConfigError as error:
        yield f"verdict.drawn: {error}"
        return
    if drawn not in expected:
        yield from differences("verdict.drawn", plain(drawn), plain(expected[0]))


def _of_takeover(evidence: Evidence) -> Iterator[str]:
    """Yield contradictions in the names of the policies that acted, and in the fields of a takeover."""
    acted, pairs = evidence.acted, len(evidence.path)
    if unknown := sorted(set(acted) - evidence.policies.keys() - {UNKNOWN_POLICY}):
        yield f"acted: there is no policy {unknown[0]!r} in the evidence"
    takeover = evidence.takeover
    if takeover is None:
        return
    if evidence.first_seq != evidence.seq - (pairs - 1):
        yield f"first_seq: {evidence.first_seq} is recorded, but the path begins at {evidence.seq - (pairs - 1)}"
    if acted[:1] != (takeover.policy,) or takeover.policy == "nominal":
        yield f"takeover.policy: {takeover.policy} is recorded, which does not act at the first pair, or is nominal"
    outcome = outcome_of(evidence.verdict)
    if outcome != takeover.outcome:
        yield f"takeover.outcome: {takeover.outcome} is recorded, {outcome} follows from the verdict"
    elif outcome == "undecided":
        yield "takeover.outcome: undecided is recorded, and an undecided takeover has no evidence"
    try:
        formula = parse(evidence.text)
    except FormulaError as error:
        yield f"text: not a formula: {str(error).splitlines()[0]}"
        return
    if not _judges(formula, evidence):
        yield "text: not what happened and what the deployed policy would have done, from the takeover on"


def _judges(formula: Formula, evidence: Evidence) -> bool:
    """Return whether a formula judges a takeover at the path's first pair."""
    if not (isinstance(formula, And) and isinstance(formula.left, Goal) and isinstance(formula.right, Goal)):
        return False
    deployed = formula.right.world.change.name
    if formula != takeover_formula(formula.left, deployed, len(evidence.path) - 1):
        return False
    nominal = evidence.policies.get("nominal")
    named = evidence.policies.get(deployed)
    return nominal is not None and named is not None and named.sha256 == nominal.sha256


def differences(where: str, recorded: object, derived: object) -> Iterator[str]:
    """Yield a sentence for each leaf in which two values of plain data differ."""
    match recorded, derived:
        case dict(), dict():
            for key in sorted(recorded.keys() | derived.keys()):
                yield from differences(f"{where}.{key}", recorded.get(key), derived.get(key))
        case list(), list() if len(recorded) == len(derived):
            for index, (one, other) in enumerate(zip(recorded, derived, strict=True)):
                yield from differences(f"{where}[{index}]", one, other)
        case float(), float() if math.isclose(recorded, derived, rel_tol=TOLERANCE, abs_tol=TOLERANCE):
            pass
        case _ if type(recorded) is not type(derived) or recorded != derived:
            yield f"{where}: {recorded!r} is recorded, {derived!r} follows"
