"""Policies in files, for models with hidden states."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from monitor.policy.export import manifest_yaml, table_onnx
from monitor.policy.manifest import ControllerManifest, Input, Manifest, Output, SightedManifest


def write_network(path: Path, actions: Sequence[int], sees: str | None = None) -> None:
    """Write a greedy policy that takes these actions at observations, or at what it `sees`."""
    content = table_onnx(np.eye(2, dtype=np.float32)[list(actions)], "index")
    path.with_suffix(".onnx").write_bytes(content)
    fields = {
        "file": path.with_suffix(".onnx").name,
        "sha256": hashlib.sha256(content).hexdigest(),
        "input": Input(name="state", kind="index"),
        "output": Output(name="scores", kind="logits"),
        "mode": "greedy",
    }
    manifest = Manifest(**fields) if sees is None else SightedManifest(**fields, sees=sees)
    path.write_text(manifest_yaml(manifest))


def write_controller(path: Path, **tables: object) -> None:
    """Write a policy that remembers."""
    content = json.dumps(tables).encode()
    path.with_suffix(".json").write_bytes(content)
    sha256 = hashlib.sha256(content).hexdigest()
    manifest = ControllerManifest(kind="controller", file=path.with_suffix(".json").name, sha256=sha256)
    path.write_text(manifest_yaml(manifest))
