"""A whole project on disk: the corridor's model, two policies in ONNX with manifests, and a configuration."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from monitor.model import MDP
from monitor.model.io import save_model

__all__ = ["CONFIG", "write_policy", "write_project"]

CONFIG = """\
mqtt: {url: "mqtt://127.0.0.1:1"}
model: model.npz
policies: {nominal: rash.yaml, careful: careful.yaml}
path: {window: 16, reorder: {steps: 16, wait: 200ms}}
formulas:
  - name: watch
    formula: 'regret(careful@2, P>=0.8 [ G<=3 !"lost" ])'
    alarm: {severity: critical, runbook: "https://example.org/watch", instructions: "Call 4711."}
  - name: chance
    formula: 'careful@1.P=? [ F<=3 "home" ]'
    causal_model: any
heartbeat: 1s
http: {listen: "127.0.0.1:0"}
store: {path: var/cfmon.sqlite}
"""


def write_policy(folder: Path, name: str, actions: list[int], count: int) -> None:
    """A greedy policy that looks its action up: scores [S, A], 1 for the action of the state."""
    scores = np.eye(count, dtype=np.float32)[actions]
    graph = helper.make_graph(
        [helper.make_node("Gather", ["scores", "state"], ["logits"], axis=0)],
        name,
        [helper.make_tensor_value_info("state", TensorProto.INT64, ["batch"])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", count])],
        [numpy_helper.from_array(scores, "scores")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    content = model.SerializeToString()
    (folder / f"{name}.onnx").write_bytes(content)
    manifest = {
        "file": f"{name}.onnx",
        "sha256": hashlib.sha256(content).hexdigest(),
        "input": {"name": "state", "kind": "index"},
        "output": {"name": "logits", "kind": "logits"},
        "mode": "greedy",
    }
    (folder / f"{name}.yaml").write_text(json.dumps(manifest))


def write_project(folder: Path, model: MDP, config: str = CONFIG) -> Path:
    """Write everything below `folder`; returns the configuration's path."""
    folder.mkdir(parents=True, exist_ok=True)
    save_model(model, folder / "model.npz")
    write_policy(folder, "rash", [0] * model.states, model.actions)
    write_policy(folder, "careful", [1] * model.states, model.actions)
    path = folder / "config.yaml"
    path.write_text(config)
    return path
