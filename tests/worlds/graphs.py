"""ONNX graphs for tests: linear ones, and networks with two hidden layers."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from onnx import TensorProto, helper, numpy_helper

__all__ = ["linear", "network", "world_files"]

WEIGHTS = dict[str, Any]


def linear(
    terms: Mapping[str, Any],
    constant: Any,
    *,
    softmax: bool = False,
    twice: bool = False,
    kind: int = TensorProto.DOUBLE,
) -> bytes:
    """constant + the sum of input @ matrix over the named inputs, as bytes; `twice`: as two outputs."""
    nodes, tensors, last = [], [_tensor("constant", np.atleast_2d(constant), kind)], "constant"
    for name, matrix in terms.items():
        tensors.append(_tensor(f"m_{name}", np.asarray(matrix), kind))
        nodes += [helper.make_node("MatMul", [name, f"m_{name}"], [f"p_{name}"])]
        nodes += [helper.make_node("Add", [last, f"p_{name}"], [f"s_{name}"])]
        last = f"s_{name}"
    if softmax:
        nodes.append(helper.make_node("Softmax", [last], ["soft"], axis=1))
        last = "soft"
    nodes.append(helper.make_node("Identity", [last], ["y"]))
    inputs = {name: np.asarray(matrix).shape[0] for name, matrix in terms.items()}
    if twice:
        nodes.append(helper.make_node("Identity", [last], ["z"]))
    return _model(nodes, tensors, inputs, np.atleast_2d(constant).shape[1], kind, "yz" if twice else "y")


def network(rng: np.random.Generator, inputs: Mapping[str, int], out: int, hidden: int = 64) -> bytes:
    """Two hidden layers of tanh, over the named inputs side by side, in 32-bit floats."""
    kind = TensorProto.FLOAT
    nodes, tensors = [helper.make_node("Concat", list(inputs), ["h0"], axis=1)], []
    widths = [sum(inputs.values()), hidden, hidden, out]
    for k in range(3):
        tensors.append(_tensor(f"w{k}", rng.normal(size=widths[k : k + 2]) / np.sqrt(widths[k]), kind))
        nodes.append(helper.make_node("MatMul", [f"h{k}", f"w{k}"], [f"l{k}"]))
        nodes.append(helper.make_node("Tanh" if k < 2 else "Identity", [f"l{k}"], [f"h{k + 1}" if k < 2 else "y"]))
    return _model(nodes, tensors, inputs, out, kind)


def world_files(folder: Path, manifest: dict[str, Any], **graphs: bytes) -> Path:
    """Write graphs and a manifest in which `file:NAME` stands for them; return its path."""
    for name, content in graphs.items():
        (folder / f"{name}.onnx").write_bytes(content)

    def filled(value: Any) -> Any:
        if isinstance(value, str) and value.startswith("file:"):
            name = value.removeprefix("file:")
            return {"file": f"{name}.onnx", "sha256": hashlib.sha256(graphs[name]).hexdigest()}
        if isinstance(value, dict):
            return {key: filled(each) for key, each in value.items()}
        return [filled(each) for each in value] if isinstance(value, list) else value

    path = folder / "world.yaml"
    path.write_text(yaml.safe_dump(filled({"kind": "world", "version": "test 1", **manifest})))
    return path


def _tensor(name: str, values: Any, kind: int) -> Any:
    return numpy_helper.from_array(values.astype(helper.tensor_dtype_to_np_dtype(kind)), name)


def _model(
    nodes: list[Any], tensors: list[Any], inputs: Mapping[str, int], out: int, kind: int, outputs: str = "y"
) -> bytes:
    given = [helper.make_tensor_value_info(name, kind, ["n", width]) for name, width in inputs.items()]
    results = [helper.make_tensor_value_info(name, kind, ["n", out]) for name in outputs]
    graph = helper.make_graph(nodes, "g", given, results, tensors)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(made.SerializeToString())
