"""What is published about an alarm: its id and the JSON document on `cfmon/alerts/<agent>/<formula>`."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import PurePath

import msgspec

from monitor.model.mdp import MDP
from monitor.model.npz import model_sha256
from monitor.policy.table import PolicyTable
from monitor.types import Alert, Episode, FormulaSpec, Verdict

__all__ = ["Identity", "alert_id", "alert_payload", "identity_of"]

ALERT_VERSION = 1

_compact = json.JSONEncoder(separators=(",", ":")).encode


class Identity(msgspec.Struct, frozen=True):
    """Who judges: which model, which policies, which software.

    `policies`: name -> sha256 of its file, hexadecimal. `versions`: of the software, name -> version; they go into the
    evidence, but neither into an alert nor into its id. `models`: name -> sha256 of the other dynamics formulas ask of.
    """

    model_name: str
    model_sha256: str
    policies: Mapping[str, str]
    versions: Mapping[str, str]
    models: Mapping[str, str] = msgspec.field(default_factory=dict)

    def is_world_of(self, other: Identity) -> bool:
        """The same models and policies, whatever they are called and whichever software reads them."""
        return (self.model_sha256, self.policies, self.models) == (other.model_sha256, other.policies, other.models)


def identity_of(model: MDP, policies: Mapping[str, PolicyTable], models: Mapping[str, MDP]) -> Identity:
    """The identity of what was handed over as values and not as files: digests of the contents."""
    digests = {name: hashlib.sha256(_content(table)).hexdigest() for name, table in policies.items()}
    name = PurePath(model.source).name if model.source.endswith(".npz") else model.source
    others = {name: model_sha256(other) for name, other in models.items()}
    return Identity(model_name=name, model_sha256=model_sha256(model), policies=digests, versions={}, models=others)


def _content(table: PolicyTable) -> bytes:
    array = table.probabilities if table.actions is None else table.actions
    assert array is not None
    return array.tobytes()


def alert_id(agent: str, episode: Episode, formula: FormulaSpec, identity: Identity, first_seq: int) -> str:
    """The name of one alarm, 32 hexadecimal digits: the same wherever and whenever the same alarm is raised.

    A hash of agent, episode, formula (name, text, causal model), models, policies and the step at which the breach
    began. An episode `1` is not an episode `"1"`.
    """
    parts = [
        [agent, episode, first_seq],
        [formula.name, formula.text, formula.causal_model],
        [identity.model_sha256, sorted(identity.policies.items()), sorted(identity.models.items())],
    ]
    return hashlib.sha256(_compact(parts).encode("ascii")).hexdigest()[:32]


def alert_payload(alert: Alert, identity: Identity, *, sent: float, evidence: str | None) -> dict[str, object]:
    """The alert as published; `json.dumps` takes it as it is, also with `allow_nan=False`.

    `sent`: seconds since the epoch. `evidence`: id of the evidence, or None if none could be kept. A number that does
    not exist is null. `profile` is a list, nearest offset first, because JSON knows no whole numbers as keys.
    """
    verdict = alert.verdict
    value, threshold = _figures(verdict)
    return {
        "v": ALERT_VERSION,
        "id": alert.id,
        "revision": alert.revision,
        "state": alert.state,
        "blind": alert.blind,
        "severity": alert.severity,
        "formula": {"name": alert.formula, "text": alert.text},
        "outcome": verdict.outcome,
        "value": _number(value),
        "threshold": _number(threshold),
        "method": verdict.method,
        "effect": _number(verdict.effect),
        "bounds": _interval(verdict.bounds),
        "robust": verdict.robust,
        "profile": [
            {"offset": offset, "nominal": _number(nominal), "alternative": _number(alternative)}
            for offset, (nominal, alternative) in sorted(verdict.profile.items())
        ],
        "episode": alert.episode,
        "seq": alert.seq,
        "time": _number(alert.time),
        "since": _number(alert.since),
        "late": alert.late,
        "sent": _number(sent),
        "model": {"name": identity.model_name, "sha256": identity.model_sha256},
        "policies": [{"name": name, "sha256": sha256} for name, sha256 in sorted(identity.policies.items())],
        "evidence": evidence,
        "summary": alert.summary,
        "runbook": alert.runbook,
    }


def _figures(verdict: Verdict) -> tuple[float | None, float | None]:
    """Value and threshold of the one quantity an alert is about; for regret that under the alternative.

    A formula of several quantities has no single value: both are None, and the summary tells each.
    """
    if verdict.outcome is not None and verdict.quantities:
        return verdict.quantities[-1].value, verdict.quantities[-1].threshold
    if verdict.value is not None:
        return verdict.value, None
    if len(verdict.quantities) == 1:
        return verdict.quantities[0].value, verdict.quantities[0].threshold
    return None, None


def _number(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _interval(bounds: tuple[float, float] | None) -> list[float | None] | None:
    return None if bounds is None else [_number(bounds[0]), _number(bounds[1])]
