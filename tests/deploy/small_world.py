"""A road crossing where a rash agent is harmed, as the files of `cfmon run`: model, two ONNX policies, config."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from monitor.model import MDP, save_model
from tests.exact.learned import learned_model

__all__ = ["CONFIG", "CRASH", "DRIFT", "EDGE", "PARK", "ROAD", "STAY", "write_world"]

ROAD, EDGE, CRASH, PARK = range(4)
DRIFT, STAY = range(2)

CONFIG: dict[str, Any] = {
    "model": "model.npz",
    "policies": {"nominal": "rash.yaml", "careful": "careful.yaml"},
    "path": {"window": 16, "reorder": {"steps": 16, "wait": "100ms"}},
    "formulas": [
        {
            "name": "careful_would_have",
            "formula": 'regret(careful@1, P>=0.8 [ G<=3 !"crash" ])',
            "alarm": {"severity": "critical"},
        },
        {"name": "likely_safe", "formula": 'P>=0.5 [ G<=2 !"crash" ]', "alarm": {"severity": "warning"}},
    ],
    "stream": {"stale_after": "5s", "forget_after": "1h"},
    "heartbeat": "1s",
    "limits": {"agents": 2},
    "store": {"path": "var/cfmon.sqlite"},
    "trust": {"enabled": False},  # tests choose the agents' states, however unlikely
}


def write_world(folder: Path, url: str, listen: str, *, learned: bool = False) -> Path:
    """Write all files into `folder`; return the config's path. `learned`: from a thousand draws of each row."""
    transitions = [(ROAD, DRIFT, EDGE, 0.9), (ROAD, DRIFT, ROAD, 0.1), (ROAD, STAY, ROAD, 1.0)]
    transitions += [
        (EDGE, DRIFT, CRASH, 0.9),
        (EDGE, DRIFT, EDGE, 0.1),
        (EDGE, STAY, ROAD, 0.5),
        (EDGE, STAY, PARK, 0.5),
    ]
    transitions += [(state, action, state, 1.0) for state in (CRASH, PARK) for action in (DRIFT, STAY)]
    if learned:
        draws = [(s, a, t) for s, a, t, chance in transitions for _ in range(round(1000 * chance))]
        model, _ = learned_model(5, 2, draws, {"crash": frozenset({CRASH})})
    else:
        model = MDP.from_transitions(states=4, actions=2, transitions=transitions, labels={"crash": [CRASH]})
    save_model(model, folder / "model.npz")
    beyond = [STAY] * (model.states - 4)
    write_policy(folder, "rash", [DRIFT, DRIFT, STAY, STAY, *beyond])
    write_policy(folder, "careful", [STAY, STAY, STAY, STAY, *beyond])
    path = folder / "cfmon.yaml"
    path.write_text(json.dumps({**CONFIG, "mqtt": {"url": url}, "http": {"listen": listen}}))  # JSON is YAML
    return path


def write_policy(folder: Path, name: str, actions: Sequence[int]) -> None:
    """Write a one-layer network that takes `actions[state]`, and its manifest."""
    states = len(actions)
    weights = numpy_helper.from_array(np.eye(2, dtype=np.float32)[list(actions)], "weights")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["state", "weights"], ["scores"])],
        name,
        [helper.make_tensor_value_info("state", TensorProto.FLOAT, ["batch", states])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["batch", 2])],
        [weights],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    content = model.SerializeToString()
    (folder / f"{name}.onnx").write_bytes(content)
    manifest = {
        "file": f"{name}.onnx",
        "sha256": hashlib.sha256(content).hexdigest(),
        "input": {"name": "state", "kind": "one_hot"},
        "output": {"name": "scores", "kind": "logits"},
        "mode": "greedy",
    }
    (folder / f"{name}.yaml").write_text(json.dumps(manifest))
