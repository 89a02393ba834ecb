"""Policies in ONNX files. This is the impure module of the package: it opens manifests and files and runs onnxruntime.

A policy becomes one table over all states at the start, so all its faults raise `PolicyError` then and not later.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np

from monitor.arrays import Ints
from monitor.errors import PolicyError
from monitor.model.mdp import MDP
from monitor.policy.manifest import MAX_MANIFEST_BYTES, AnyManifest, Manifest, RecurrentManifest, read_manifest
from monitor.policy.network import MAX_ONNX_BYTES, Network, Sight
from monitor.policy.table import PolicyTable, as_table

__all__ = [
    "Actor",
    "Manifest",
    "OnnxPolicy",
    "load_network",
    "load_policy",
    "of_network",
    "opened",
    "read_bytes",
    "read_onnx",
    "read_pinned",
    "table_from_onnx",
]


Chosen = TypeVar("Chosen")


@dataclass(frozen=True, eq=False)
class OnnxPolicy(Generic[Chosen]):
    """Policy checked against a model. `sha256`: SHA-256 of the ONNX file, whose bytes are `content`.

    `table`: the policy's choices; in a world with numbers, which has no table, a `WorldPolicy`.
    """

    name: str
    table: Chosen
    sha256: str
    manifest: AnyManifest
    content: bytes


def load_policy(manifest_path: str | Path, model: MDP) -> OnnxPolicy[PolicyTable]:
    """Return the policy that a manifest describes, evaluated in every state of `model`.

    Raises:
        PolicyError: a file is missing, altered or too large, contains something that `onnx_scan` refuses, or does not
            fit the manifest or the model; the output is NaN, infinite, or not a distribution; an action is unavailable;
            or the model is not a table.
    """
    if not isinstance(model, MDP):
        raise PolicyError(
            f"policy {manifest_path}: it is evaluated in every state of a table (an MDP), not of {model!s:.80}; "
            "in a world with numbers give the manifest's path itself as the policy, to monitor.check or Monitor"
        )
    if model.emissions is not None:
        raise PolicyError(
            f"policy {manifest_path}: where states are hidden a policy is no table of states; give the manifest's path "
            "itself as the policy, to monitor.check or Monitor"
        )
    return opened(
        manifest_path,
        lambda manifest, content, where: table_from_onnx(content, of_network(manifest, where), model, where),
    )


def opened(manifest_path: str | Path, table_of: Callable[[AnyManifest, bytes, str], Chosen]) -> OnnxPolicy[Chosen]:
    """Return the policy that a manifest describes. `table_of`: (manifest, bytes, where) -> the policy's choices."""
    manifest, content = _read(Path(manifest_path))
    table = table_of(manifest, content, str(manifest_path))
    return OnnxPolicy(
        name=manifest.name or Path(manifest_path).stem,
        table=table,
        sha256=manifest.sha256,
        manifest=manifest,
        content=content,
    )


def load_network(manifest_path: str | Path, model: MDP | Sight) -> Network:
    """Return the network that a manifest describes, to evaluate it in batches if the states are not enumerated.

    Raises PolicyError as `load_policy` does. Errors of the output are raised only when the network is evaluated.
    """
    manifest, content = _read(Path(manifest_path))
    return Network(content, of_network(manifest, str(manifest_path)), model, str(manifest_path))


def table_from_onnx(content: bytes, manifest: Manifest, model: MDP, where: str) -> PolicyTable:
    """Return the table of a policy from the bytes of its ONNX file, which `where` names. Raises PolicyError."""
    network = Network(content, manifest, model, where)
    chosen = np.concatenate([network.choose(states) for states in _batches(model.states, network.batch)])
    if manifest.mode == "greedy" and chosen.ndim == 2 and bool((chosen.max(axis=1) == 1.0).all()):
        chosen = chosen.argmax(axis=1)  # in each state, all recorded inputs give the same action
    try:
        return as_table(chosen, model)
    except PolicyError as error:
        hint = "" if manifest.mask else "; with mask: true in the manifest, unavailable actions are ruled out"
        raise PolicyError(f"policy {where}: {error}{hint if 'unavailable' in str(error) else ''}") from error


class Actor:
    """Policy in an agent's own process: evaluates the network in the current state and chooses an action."""

    def __init__(self, content: bytes, manifest: Manifest, model: MDP, where: str) -> None:
        self.manifest = manifest
        self._network = Network(content, manifest, model, where)
        self._model = model

    @classmethod
    def load(cls, manifest_path: str | Path, model: MDP) -> Actor:
        """Return the actor for a manifest. Raises PolicyError."""
        manifest, content = _read(Path(manifest_path))
        return cls(content, of_network(manifest, str(manifest_path)), model, str(manifest_path))

    def decide(self, state: int, rng: np.random.Generator) -> int:
        """Return the action taken in `state`; `rng` draws it if the policy is stochastic, and is not used otherwise."""
        return int(self.decide_all(np.array([state]), rng)[0])

    def decide_all(self, states: Ints, rng: np.random.Generator) -> Ints:
        """Return the actions taken in `states` [n], in batches of the network. Raises PolicyError."""
        step = self._network.batch
        chosen = np.concatenate([self._network.choose(states[i : i + step]) for i in range(0, len(states), step)])
        if chosen.ndim == 1:
            return chosen.astype(np.int64)
        # Inverse transform: the first action whose cumulated probability exceeds the draw. The last positive entry is
        # raised to 1, so that rounding cannot leave a draw without an action.
        cumulated = chosen.cumsum(axis=1)
        last = chosen.shape[1] - 1 - np.argmax(chosen[:, ::-1] > 0, axis=1)
        cumulated[np.arange(len(chosen)), last] = 1.0
        drawn: Ints = np.argmax(rng.random(len(chosen))[:, np.newaxis] < cumulated, axis=1)
        return drawn


def _read(path: Path) -> tuple[AnyManifest, bytes]:
    if path.suffix.lower() == ".onnx":
        raise PolicyError(
            f"policy {path}: this is the network itself; give its manifest, a small YAML file beside it "
            f"(`cfmon policy init {path} --model MODEL` writes one)"
        )
    manifest = read_manifest(read_bytes(path, f"policy {path}", MAX_MANIFEST_BYTES), str(path))
    return manifest, read_pinned(path, manifest.file, manifest.sha256)


def of_network(manifest: AnyManifest, where: str) -> Manifest:
    """Return the manifest if it belongs to a network without memory. Raises PolicyError otherwise."""
    if isinstance(manifest, Manifest):
        return manifest
    what = "a recurrent network" if isinstance(manifest, RecurrentManifest) else "a controller"
    raise PolicyError(f"policy {where}: it is {what}, which remembers; here a policy without memory is needed")


def read_pinned(path: Path, name: str, sha256: str) -> bytes:
    """Return the bytes of the file `name` beside the manifest `path`. Raises PolicyError if its SHA-256 differs."""
    file = path.parent / name
    try:
        inside = file.resolve().is_relative_to(path.parent.resolve())
    except (OSError, RuntimeError) as error:  # symbolic links may form a loop
        raise PolicyError(f"policy {path}: cannot resolve {name} ({error})") from error
    if not inside:
        raise PolicyError(f"policy {path}: {name} is a link out of the manifest's folder")
    content = read_bytes(file, f"policy {path}: its file", MAX_ONNX_BYTES)
    found = hashlib.sha256(content).hexdigest()
    if found != sha256:
        raise PolicyError(
            f"policy {path}: {name} was altered: its SHA-256 is {found}, the manifest says {sha256}; "
            "restore the file, or update the manifest if the change is meant"
        )
    return content


def read_onnx(path: Path) -> bytes:
    """Return the bytes of an ONNX file. Raises PolicyError if it cannot be read or is too large."""
    return read_bytes(path, f"policy {path}", MAX_ONNX_BYTES)


def read_bytes(path: Path, what: str, limit: int) -> bytes:
    """Return the bytes of a file. Raises PolicyError, which begins with `what`, if it is unreadable or too large."""
    try:
        with path.open("rb") as file:
            content = file.read(limit + 1)  # the size of a device or a growing file is not known beforehand
    except FileNotFoundError as error:
        raise PolicyError(f"{what} is missing: there is no {path}") from error
    except (OSError, ValueError) as error:
        raise PolicyError(f"{what} cannot be read ({error})") from error
    if len(content) > limit:
        raise PolicyError(f"{what} {path} is larger than the limit of {limit:,} bytes")
    return content


def _batches(states: int, size: int) -> list[Ints]:
    return [np.arange(i, min(i + size, states)) for i in range(0, states, size)]
