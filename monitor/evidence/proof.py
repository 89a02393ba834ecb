"""An alarm's evidence, with the models and policies that it refers to."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from monitor.errors import ConfigError, EvidenceError, LimitError, ModelError, PolicyError
from monitor.evaluation.models import AnyModel, AnyPolicy, model_of, policy_of, sha256_of
from monitor.evidence.canonical import plain
from monitor.evidence.document import Evidence, PolicyEvidence
from monitor.model.npz import MAX_UNPACKED_BYTES
from monitor.model.unpack import LargeModelError
from monitor.policy.manifest import AnyManifest, manifest_of
from monitor.worlds import CheckedWorld
from monitor.worlds.content import NOT_RUN, name_in_python

_LARGE: Final = "; if you trust its source, add --large"
_OWN: Final = "read it, and give your own copy of the file: --world FILE.py:NAME, once for each world"


@dataclass(frozen=True)
class Proof:
    """Everything needed to recompute an alarm. The digests of all objects were checked."""

    evidence: Evidence
    model: AnyModel
    tables: Mapping[str, AnyPolicy]
    models: Mapping[str, AnyModel]


def open_proof(
    evidence: Evidence,
    read: Callable[[str], bytes],
    *,
    memory: int = MAX_UNPACKED_BYTES,
    worlds: Sequence[CheckedWorld] = (),
) -> Proof:
    """Open the objects that the evidence refers to. `read` returns content by SHA-256; it raises if content is missing.

    `memory`: maximum bytes for reading all models. `worlds`: the verifier's own copies of worlds written in Python,
    because code in the evidence is never run. Raises EvidenceError if an object has another digest, or is not a model
    or policy; LimitError if a model needs more memory; ConfigError if a world in Python is not given.
    """
    limit = memory // (1 + len(evidence.models))

    copies = {sha256_of(world): world for world in worlds}

    def fetch(sha256: str, what: str) -> bytes:
        content = read(sha256)
        found = hashlib.sha256(content).hexdigest()
        if found != sha256:
            raise EvidenceError(f"{what}: altered: {sha256} is recorded, its content has {found}")
        return content

    def opened(sha256: str, what: str, name: str) -> AnyModel:
        content = fetch(sha256, what)
        if not (code := name_in_python(content)):
            return model_of(content, name, limit=limit)
        if not worlds:
            raise ConfigError(f"{what} is {code}, written in Python, and {NOT_RUN}; {_OWN}")
        if sha256 not in copies:
            given = " and ".join(copies)
            raise ConfigError(f"{what} is {code} with sha256 {sha256}, and the given world has {given}; {_OWN}")
        return copies[sha256]

    try:
        model = opened(evidence.model_sha256, "the model", evidence.model)
        models = {name: opened(sha256, f"model {name}", name) for name, sha256 in evidence.models.items()}
        tables: dict[str, AnyPolicy] = {}
        for name, policy in evidence.policies.items():
            manifest = _manifest(name, policy)
            content = fetch(policy.sha256, f"policy {name}")
            tables[name] = policy_of(manifest, content, model, f"policy {name}")
    except LargeModelError as error:
        raise LimitError(f"{error}{_LARGE if memory < MAX_UNPACKED_BYTES else ''}") from error
    except (ModelError, PolicyError) as error:  # the digest is correct, but the content is not
        raise EvidenceError(f"a model or policy of the evidence cannot be loaded: {error}") from error
    return Proof(evidence, model, tables, models)


def _manifest(name: str, policy: PolicyEvidence) -> AnyManifest:
    """Return the policy's manifest. Raises EvidenceError unless it names the policy's file and is in canonical form.

    Without this check, a text such as "yes" could be read as a Boolean, and one manifest could have several forms.
    """
    where = f"policies.{name}.manifest"
    manifest = manifest_of(plain(policy.manifest), where)
    if manifest.sha256 != policy.sha256:
        raise EvidenceError(f"{where}.sha256: {manifest.sha256} is recorded, the policy is {policy.sha256}")
    if manifest.model_dump(mode="json") != plain(policy.manifest):
        raise EvidenceError(f"{where}: altered: not in canonical form")
    return manifest
