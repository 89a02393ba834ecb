"""Functions for models of all kinds: their bytes and digests, and reading them and their policies from files."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from monitor.arrays import Reals
from monitor.errors import ConfigError, PolicyError
from monitor.model import MDP
from monitor.model.io import load_model
from monitor.model.npz import MAX_UNPACKED_BYTES, canonical_bytes, meaning_sha256, model_sha256, read_model
from monitor.policy.controller import Controller, Reader, as_reader
from monitor.policy.controller import Policy as Sighted
from monitor.policy.draft import draft_manifest
from monitor.policy.manifest import AnyManifest, ControllerManifest, Manifest, RecurrentManifest, SightedManifest
from monitor.policy.onnx_policy import OnnxPolicy, opened, table_from_onnx
from monitor.policy.table import PolicyTable
from monitor.worlds import CheckedWorld, is_world, load_world, with_inputs
from monitor.worlds.trial import some_inputs, some_states
from monitor.worlds.world_policies import WorldPolicy, network_policy, sees_inputs

TRIED: Final = 1024
"""Number of states of a world in which a new policy is evaluated."""
AnyModel = MDP | CheckedWorld
"""A table, or a world with numbers."""
AnyPolicy = PolicyTable | WorldPolicy | Reader
"""The choices of a policy on a table or in a world; a `Reader` if states are hidden or if the policy remembers."""


def require_table(model: object, why: str) -> MDP:
    """Return the model if it is a table. Raises ConfigError otherwise, with the reason `why` a table is needed."""
    if isinstance(model, MDP):
        return model
    given = f"the class {model.__name__}" if isinstance(model, type) else f"{type(model).__name__} {model!r:.80}"
    raise ConfigError(f"model: {why}, not {given}; monitor.load_model reads an MDP from a file")


def bytes_of(model: AnyModel) -> bytes:
    """Return the model as bytes. Equal models give equal bytes."""
    return model.content if isinstance(model, CheckedWorld) else canonical_bytes(model)


def sha256_of(model: AnyModel) -> str:
    """Return the SHA-256 of the model's bytes, in hexadecimal. It identifies the model in alerts and evidence."""
    return hashlib.sha256(model.content).hexdigest() if isinstance(model, CheckedWorld) else model_sha256(model)


def meaning_of(model: AnyModel) -> str:
    """Return a digest of the names behind the numbers of states and actions.

    It is equal for all models without names.
    """
    if not isinstance(model, CheckedWorld):
        return meaning_sha256(model)
    names = [each.name for each in model.features], [each.name for each in model.inputs], list(model.action_names)
    return hashlib.sha256(repr(names).encode()).hexdigest()


def load_any_model(source: str) -> AnyModel:
    """Return the model of a source, written as in a configuration or command. Raises ModelError."""
    return load_world(source) if is_world(source) else load_model(source)


def model_of(content: bytes, where: str, *, limit: int = MAX_UNPACKED_BYTES) -> AnyModel:
    """Return the model in these bytes. `limit`: as for `read_model`. Raises ModelError."""
    if content.startswith(b"PK"):
        return read_model(content, where, limit=limit)
    from monitor.worlds.location_scale import world_of  # noqa: PLC0415 - onnxruntime and scipy only where needed

    return load_world(world_of(content, where))


def tried_states(model: AnyModel, *, inputs: bool = False) -> MDP:
    """Return the states in which a new policy is evaluated: all of a table, or `TRIED` in a world's ranges.

    The states of a world are returned as a table in which every action is available, and whose observations are the
    numbers of the states. With `inputs`, inputs in their ranges follow these numbers.
    """
    if isinstance(model, MDP):
        return model
    states = some_states(model, TRIED)
    seen = with_inputs(states, some_inputs(model, TRIED)) if inputs else states
    return places(TRIED, model, f"{model}, tried out in its ranges", observations=seen)


def places(count: int, model: AnyModel, source: str, observations: Reals | None = None) -> MDP:
    """Return a table of `count` states in which a policy can be evaluated. Every action is available in each."""
    pairs = count * model.actions
    return MDP(
        count,
        model.actions,
        indptr=np.arange(pairs + 1),
        successors=np.repeat(np.arange(count), model.actions),
        probabilities=np.ones(pairs),
        rewards=np.zeros((count, model.actions)),
        observations=observations,
        action_names=model.action_names,
        source=source,
    )


def observations_of(model: AnyModel) -> list[MDP]:
    """Return the states in which a new policy is evaluated, once for each kind of observation that it may use.

    In a world with inputs, the observations are the states alone, or the states with the inputs.
    """
    more = isinstance(model, CheckedWorld) and bool(model.inputs)
    return [tried_states(model), *([tried_states(model, inputs=True)] if more else [])]


def draft_any_manifest(content: bytes, file: Path, model: AnyModel, **known: Any) -> tuple[Manifest, list[str]]:  # noqa: ANN401
    """Return the manifest of a network on a model, and the assumptions made.

    `known`, errors: as for `draft_manifest`.
    """
    if isinstance(model, MDP):
        return draft_manifest(content, file, model, **known)
    names = [each.name for each in model.features]
    sees = sees_inputs(content, model, str(file))
    manifest, assumed = draft_manifest(content, file, tried_states(model, inputs=sees), **known)
    states = f"states lie in the ranges of the features, near 0 where there is none; {TRIED:,} of them were tried"
    names += [each.name for each in model.inputs] if sees else []
    return manifest, [f"its input is {', '.join(names)}, in this order", *assumed, states]


def policy_of(manifest: AnyManifest, content: bytes, model: AnyModel, where: str) -> AnyPolicy:
    """Return the policy in the bytes of its file. `where` names it in messages. Raises PolicyError."""
    if isinstance(manifest, ControllerManifest):
        return _controller_of(manifest, content, model, where)
    if isinstance(manifest, RecurrentManifest):
        return _recurrent_of(manifest, content, model, where)
    if isinstance(model, CheckedWorld):
        return network_policy(content, manifest, model, where)
    sees = manifest.sees if isinstance(manifest, SightedManifest) else "observation"
    if model.emissions is None:
        return table_from_onnx(content, manifest, model, where)
    shown = readable(model, sees)
    table = table_from_onnx(content, manifest, shown, where)
    with _named(where):
        return as_reader(Sighted(table.actions if table.probabilities is None else table.probabilities, sees), model)


def _controller_of(manifest: ControllerManifest, content: bytes, model: AnyModel, where: str) -> Reader:
    if isinstance(model, CheckedWorld):
        raise PolicyError(f"policy {where}: a controller reads observations or states, and a world has numbers")
    try:
        parts = msgspec.json.decode(content, type=_Controller)
    except msgspec.DecodeError as error:
        raise PolicyError(f"policy {where}: {manifest.file} is no JSON of `choice` and `next`: {error}") from None
    with _named(where):
        return as_reader(Controller(parts.choice, parts.next, manifest.memory, manifest.sees), model)


def _recurrent_of(manifest: RecurrentManifest, content: bytes, model: AnyModel, where: str) -> Reader:
    if isinstance(model, CheckedWorld):
        raise PolicyError(
            f"policy {where}: a recurrent network reads observations or states of a table; in a world with numbers a "
            "policy that remembers is not offered"
        )
    from monitor.policy.recurrent import RecurrentReader  # noqa: PLC0415 - only where one is named

    shown = readable(model, manifest.sees)
    allowed = np.ones((shown.states, model.actions), dtype=np.bool_)
    for state in range(model.states):
        for each in [state] if shown is model else [signal for signal, _ in model.shown(state)]:
            allowed[each] &= model.available(state)
    return RecurrentReader(content, manifest, shown, allowed, where)


def readable(model: MDP, sees: str) -> MDP:
    """Return a table of the states that a policy reads; if states are hidden, a table of the observations."""
    if model.emissions is None or sees == "state":
        return model
    return places(model.emissions.signals, model, f"the observations of {model.source}")


class _Controller(msgspec.Struct, forbid_unknown_fields=True):
    choice: list[Any]
    next: list[Any]


@contextmanager
def _named(where: str) -> Iterator[None]:
    try:
        yield
    except PolicyError as error:
        raise PolicyError(f"policy {where}: {error}") from None


def read_policies(policies: Mapping[str, object], model: MDP) -> dict[str, object]:
    """Return policies, after reading those that are given as paths of manifests. Raises PolicyError."""
    return {
        name: load_any_policy(each, model).table if isinstance(each, str | Path) else each
        for name, each in policies.items()
    }


def load_any_policy(manifest_path: str | Path, model: AnyModel) -> OnnxPolicy[AnyPolicy]:
    """Return the policy that a manifest describes. Errors are those of `load_policy`."""
    return opened(manifest_path, lambda manifest, content, where: policy_of(manifest, content, model, where))
