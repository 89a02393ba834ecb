"""An alarm's evidence with the model and the policies it names, opened from wherever they are kept."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from monitor.alarm.document import Evidence, PolicyEvidence, plain
from monitor.errors import EvidenceError, ModelError, PolicyError
from monitor.model.io import read_model
from monitor.model.mdp import MDP
from monitor.policy.manifest import Manifest, manifest_of
from monitor.policy.session import table_from_onnx
from monitor.policy.table import PolicyTable

__all__ = ["Proof", "open_proof"]


@dataclass(frozen=True)
class Proof:
    """All that an alarm follows from; each object has the sha256 that the evidence gives."""

    evidence: Evidence
    model: MDP
    tables: Mapping[str, PolicyTable]
    models: Mapping[str, MDP]


def open_proof(evidence: Evidence, read: Callable[[str], bytes]) -> Proof:
    """Open what the evidence names; `read` gives the content kept under a sha256, and raises where there is none.

    Raises EvidenceError if an object is not the one that is named, or is no model or policy.
    """

    def fetch(sha256: str, what: str) -> bytes:
        content = read(sha256)
        found = hashlib.sha256(content).hexdigest()
        if found != sha256:
            raise EvidenceError(f"{what}: {sha256} is recorded, what is kept under it has {found}: altered")
        return content

    try:
        model = read_model(fetch(evidence.model_sha256, "the model"), evidence.model)
        models = {name: read_model(fetch(sha256, f"model {name}"), name) for name, sha256 in evidence.models.items()}
        tables = {}
        for name, policy in evidence.policies.items():
            manifest = _manifest(name, policy)
            content = fetch(policy.sha256, f"policy {name}")
            tables[name] = table_from_onnx(content, manifest, model, f"policy {name}")
    except (ModelError, PolicyError) as error:  # it has the right digest and still is none
        raise EvidenceError(f"what the evidence names does not load: {error}") from error
    return Proof(evidence, model, tables, models)


def _manifest(name: str, policy: PolicyEvidence) -> Manifest:
    """The manifest, of the very file that the policy is, and written as the monitor writes it: every key, and no other.

    Else a text such as "yes" could stand for a truth, and one manifest could be written in several ways.
    """
    where = f"policies.{name}.manifest"
    manifest = manifest_of(plain(policy.manifest), where)
    if manifest.sha256 != policy.sha256:
        raise EvidenceError(f"{where}.sha256: {manifest.sha256} is recorded, the policy is {policy.sha256}")
    if manifest.model_dump(mode="json") != plain(policy.manifest):
        raise EvidenceError(f"{where}: not in canonical form: altered")
    return manifest
