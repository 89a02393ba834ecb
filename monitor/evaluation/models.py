"""What all kinds of models have in common: the bytes of a model, the digest that names it, and its policies' files."""

from __future__ import annotations

import hashlib
from pathlib import Path

from monitor.errors import ConfigError
from monitor.model import MDP
from monitor.model.io import load_model
from monitor.model.npz import MAX_UNPACKED_BYTES, canonical_bytes, model_sha256, read_model
from monitor.policy.manifest import Manifest
from monitor.policy.network import Network
from monitor.policy.onnx_policy import Policy, opened, table_from_onnx
from monitor.policy.table import PolicyTable
from monitor.worlds import CheckedWorld, is_world, load_world
from monitor.worlds.policies import WorldPolicy, WorldSight, as_world_policy

AnyModel = MDP | CheckedWorld
"""A table, or a world with numbers."""
AnyPolicy = PolicyTable | WorldPolicy
"""What a policy chooses in either."""


def require_table(model: object, why: str) -> MDP:
    """Return the model if it is a table. Raises ConfigError: something else was given, and `why` that does not do."""
    if isinstance(model, MDP):
        return model
    given = f"the class {model.__name__}" if isinstance(model, type) else f"{type(model).__name__} {model!r:.80}"
    raise ConfigError(f"model: {why}, not {given}; monitor.load_model reads an MDP from a file")


def bytes_of(model: AnyModel) -> bytes:
    """Return the model as bytes: equal models give equal bytes."""
    return model.content if isinstance(model, CheckedWorld) else canonical_bytes(model)


def sha256_of(model: AnyModel) -> str:
    """Return the SHA-256 of its bytes, in hexadecimal: the model's name in alerts and evidence."""
    return hashlib.sha256(model.content).hexdigest() if isinstance(model, CheckedWorld) else model_sha256(model)


def load_any_model(source: str) -> AnyModel:
    """Return the model of a source, as a configuration and commands name it. Raises ModelError."""
    return load_world(source) if is_world(source) else load_model(source)


def model_of(content: bytes, where: str, *, limit: int = MAX_UNPACKED_BYTES) -> AnyModel:
    """Return the model in these bytes. Raises ModelError; `limit`: as for `read_model`."""
    if content.startswith(b"PK"):
        return read_model(content, where, limit=limit)
    from monitor.worlds.location_scale import world_of  # noqa: PLC0415 - onnxruntime and scipy only where needed

    return load_world(world_of(content, where))


def policy_of(manifest: Manifest, content: bytes, model: AnyModel, where: str) -> AnyPolicy:
    """Return what the policy in the bytes of an ONNX file chooses; `where` names it in messages. Raises PolicyError."""
    if isinstance(model, CheckedWorld):
        return as_world_policy(where, Network(content, manifest, WorldSight(model), where), model)
    return table_from_onnx(content, manifest, model, where)


def load_any_policy(manifest_path: str | Path, model: AnyModel) -> Policy[AnyPolicy]:
    """Return the policy a manifest describes; errors as for `load_policy`."""
    return opened(manifest_path, lambda manifest, content, where: policy_of(manifest, content, model, where))
