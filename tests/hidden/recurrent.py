"""Recurrent networks with weights made by hand, in files."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from monitor.policy.export import manifest_yaml
from monitor.policy.manifest import Input, MemoryTensor, Output, RecurrentManifest

FLOAT = TensorProto.FLOAT


def network(
    nodes: Sequence[Any], weights: dict[str, Any], given: dict[str, list[Any]], results: dict[str, list[Any]]
) -> bytes:
    """Return the ONNX bytes of a graph of floats."""
    graph = helper.make_graph(
        list(nodes),
        "recurrent",
        [helper.make_tensor_value_info(name, FLOAT, shape) for name, shape in given.items()],
        [helper.make_tensor_value_info(name, FLOAT, shape) for name, shape in results.items()],
        [numpy_helper.from_array(np.asarray(array, np.asarray(array).dtype), name) for name, array in weights.items()],
    )
    model = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])
    onnx.checker.check_model(model)
    content: bytes = model.SerializeToString(deterministic=True)
    return content


def hysteresis(chances: tuple[float, float], effects: str = "lower keep raise") -> bytes:
    """Return a GRU of one unit, which each reading lowers, keeps or raises; it begins in the middle.

    `chances`: of action 1 while it is not raised, and while it is.
    """
    gates = [60.0 if each == "keep" else -60.0 for each in effects.split()]
    targets = [{"lower": -60.0, "keep": 0.0, "raise": 60.0}[each] for each in effects.split()]
    low, high = (np.log(chance / (1 - chance)) for chance in chances)
    weights = {
        "W": np.array([[gates, [0.0] * len(gates), targets]], np.float32),
        "R": np.zeros((1, 3, 1), np.float32),
        "axis": np.array([0], np.int64),
        "half": np.array(0.5, np.float32),
        "low": np.array([0.0, low], np.float32),
        "high": np.array([0.0, high], np.float32),
    }
    nodes = [
        helper.make_node("Unsqueeze", ["seen", "axis"], ["x"]),
        helper.make_node("GRU", ["x", "W", "R", "", "", "h_in"], ["", "h_out"], hidden_size=1, linear_before_reset=1),
        helper.make_node("Squeeze", ["h_out", "axis"], ["h"]),
        helper.make_node("Greater", ["h", "half"], ["raised"]),
        helper.make_node("Where", ["raised", "high", "low"], ["logits"]),
    ]
    return network(
        nodes,
        weights,
        {"seen": ["batch", len(gates)], "h_in": [1, "batch", 1]},
        {"logits": ["batch", 2], "h_out": [1, "batch", 1]},
    )


def previous(table: Any) -> bytes:  # noqa: ANN401 - an array
    """Return a network that remembers what it read last: probabilities `table` [last, now, A], last 0 at the start.

    What it chooses depends on what it remembered before, which it forgets as it chooses.
    """
    seen, actions = table.shape[1:]
    weights = {
        "table": np.asarray(table, np.float32).reshape(-1, actions),
        "size": np.array([1, seen * seen], np.int64),
        "column": np.array([1, seen, 1], np.int64),
        "row": np.array([1, 1, seen], np.int64),
        "first": np.array([[1.0, *[0.0] * (seen - 1)]], np.float32),
        "one": np.array([1.0], np.float32),
        "axes": np.array([1], np.int64),
    }
    nodes = [  # the state is the one-hot of what was read, and zeros at the start are taken for the first
        helper.make_node("ReduceSum", ["h_in", "axes"], ["known"], keepdims=1),
        helper.make_node("Sub", ["one", "known"], ["fresh"]),
        helper.make_node("Mul", ["fresh", "first"], ["filled"]),
        helper.make_node("Add", ["h_in", "filled"], ["last"]),
        helper.make_node("Reshape", ["last", "column"], ["columns"]),
        helper.make_node("Reshape", ["seen", "row"], ["rows"]),
        helper.make_node("MatMul", ["columns", "rows"], ["both"]),
        helper.make_node("Reshape", ["both", "size"], ["flat"]),
        helper.make_node("MatMul", ["flat", "table"], ["chances"]),
        helper.make_node("Identity", ["seen"], ["h_out"]),
    ]
    shape: list[Any] = ["batch", seen]
    return network(nodes, weights, {"seen": shape, "h_in": shape}, {"chances": ["batch", actions], "h_out": shape})


def write_recurrent(path: Path, content: bytes, output: Output, **fields: Any) -> Path:  # noqa: ANN401 - of the manifest
    """Write a network beside its manifest, whose path is returned."""
    path.with_suffix(".onnx").write_bytes(content)
    manifest = RecurrentManifest(
        **{
            "kind": "recurrent",
            "file": path.with_suffix(".onnx").name,
            "sha256": hashlib.sha256(content).hexdigest(),
            "input": Input(name="seen", kind="one_hot"),
            "output": output,
            "states": (MemoryTensor(input="h_in", output="h_out"),),
            "mode": "stochastic",
            **fields,
        }
    )
    path.write_text(manifest_yaml(manifest))
    return path
